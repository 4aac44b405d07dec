"""Options and fixtures of all tests."""

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from esvi_shm import fit
from esvi_shm.runtime.signals import ASKING_TO_STOP
from esvi_shm.shared.runs import run_folders
from tests.commands import write_uci

SHM = Path("/dev/shm")

# Kernels compile within the first example, which says nothing of the code under test.
settings.register_profile("kernels", deadline=None, max_examples=25)
settings.load_profile("kernels")

# Threads of tests stand in for workers and nodes and hand the GIL round all the time: nobody is
# to wait 5 ms for it.
sys.setswitchinterval(1e-4)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data-folder",
        default=os.environ.get("ESVI_SHM_DATA"),
        help="folder with docword.NAME.txt.gz corpora (or ESVI_SHM_DATA); without it the tests "
        "on real data are skipped",
    )


@pytest.fixture(scope="session")
def data_folder(request: pytest.FixtureRequest) -> Path:
    """The folder of real corpora."""
    given = request.config.getoption("--data-folder")
    if not given:
        pytest.skip("no --data-folder nor ESVI_SHM_DATA: no real corpora to read")
    folder = Path(given)
    if not folder.is_dir():
        pytest.fail(f"--data-folder {folder} is no folder")
    return folder


@pytest.fixture(autouse=True)
def signals_are_not_ignored():
    """As a shell leaves them to tests in the background, and so to the processes they start."""
    ignored = [n for n in ASKING_TO_STOP if signal.getsignal(n) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def signals_interrupt(signals_are_not_ignored):
    """Nor are they deadly: a test sends them to its own process."""
    before = {number: signal.getsignal(number) for number in ASKING_TO_STOP}
    for number in ASKING_TO_STOP:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def threads(monkeypatch):
    """Fits whose workers are threads, which start at once; fixtures of modules have processes."""
    from esvi_shm.runtime import home
    from tests.runtime.fits import Threads

    monkeypatch.setattr(home, "Workers", Threads)


@pytest.fixture
def nothing_left():
    """Segments of other runs may come and go; those that a test's own fits made must go."""
    before = set(os.listdir(SHM))
    yield
    ours = [n for n in set(os.listdir(SHM)) - before if _is_dead(n)]
    assert ours == []


def _is_dead(name: str) -> bool:
    run_name = "-".join(name.split("-")[:3])
    locks = [folder / f"{run_name}.lock" for folder in run_folders()]
    # Looked at again: a run of other tests may have come to its end meanwhile.
    has_lock = any(lock.exists() for lock in locks)
    return name.startswith("esvi-") and not has_lock and (SHM / name).exists()


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A saved model of 4 topics, to be read only, beside its corpus: 60 documents of 40 words."""
    folder = tmp_path_factory.mktemp("saved")
    out = folder / "model"
    arguments = [write_uci(folder), "--topics", "4", "--passes", "10", "--workers", "1"]
    assert fit.main([*arguments, "--out", str(out), "--quiet", "--top-words", "0"]) == 0
    return out
