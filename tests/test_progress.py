"""What a fit tells: nothing that goes wrong with telling ends the fit."""

import io
import json
import logging

import pytest

from esvi_shm.errors import ParameterError
from esvi_shm.progress import Progress
from esvi_shm.runtime.record import Record

RECORD = Record(1.0, 0.1, 0.2, -9.0, -9.5, -9.5)


class Gone(io.StringIO):
    """A terminal that takes nothing. (tqdm itself knows of EIO only.)"""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.refused += 1
        raise OSError(28, "No space left on device")


def test_bars_and_lines_that_nobody_takes_are_lost(monkeypatch):
    gone = Gone()
    monkeypatch.setattr("sys.stderr", gone)
    with Progress(quiet=False, log_json=None) as progress:
        for act in (
            lambda: progress.say("words"),
            lambda: progress.reading(0, 10),
            lambda: progress.reading(10, 10),
            lambda: progress.stage("start"),
            lambda: progress.progress(10**9, 10**10, 1.0),
            lambda: progress.evaluated(RECORD),
        ):
            before = gone.refused
            act()
            assert gone.refused > before


def test_a_log_that_fills_up_is_given_up_with_one_warning(caplog):
    with caplog.at_level(logging.WARNING), Progress(True, "/dev/full") as progress:
        for _ in range(3):
            progress.evaluated(RECORD)
    assert caplog.messages == ["/dev/full: No space left on device: the log ends here"]


def test_a_log_has_every_event(tmp_path):
    with Progress(True, str(tmp_path / "log")) as progress:
        progress.stage("start")
        progress.evaluated(RECORD._replace(elbo_f=float("nan")))
    first, second = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (first["event"], first["name"]) == ("stage", "start")
    assert (second["elbo"], second["elbo_f"]) == (-9.0, None)


@pytest.mark.parametrize("place", ["no/such/folder/log", "", "FOLDER", "/proc/log"])
def test_a_log_that_cannot_be_written_is_refused(place, tmp_path):
    with pytest.raises(ParameterError, match=r"log_json must be a file that can be written \("):
        Progress(True, str(tmp_path) if place == "FOLDER" else place)
