"""Arrays in a scratch folder: used where shared memory is short, and gone at every end of a fit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import Interrupted, MemoryShortError, ParameterError, WorkerError
from esvi_shm.runtime import engine, memory
from esvi_shm.shared import preflight
from tests.runtime.fits import COUNTS
from tests.runtime.test_ends import (
    ENDLESS,
    SCENARIO,
    TIME_LIMIT,
    Striking,
    assert_nothing_left,
    scenario,
)

pytestmark = pytest.mark.usefixtures("signals_interrupt")


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Path:
    """A scratch folder, while /dev/shm is full."""
    monkeypatch.setattr(preflight, "free_shared_memory", lambda: 0)
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def mapped(folder: Path, pid: int | str = "self") -> int:
    """How many files of a folder a process has in its memory."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if f" {folder}/" in line})  # their inodes


def assert_used(fit, folder: Path, n_workers: int = 2) -> None:
    """All arrays lie in the folder, and every process has them in its memory."""
    n_segments = 3 + 2 * n_workers
    assert len(fit.runs) == 1
    assert [mapped(folder, pid) for pid in ("self", *fit.pids)] == [n_segments] * (
        1 + len(fit.pids)
    )
    assert not list(Path("/dev/shm").glob(f"{fit.runs[0]}*"))


def assert_gone(fit, folder: Path) -> None:
    assert_nothing_left(fit)
    assert os.listdir(folder) == []


def test_a_normal_end(fit, scratch, caplog):
    seen = []
    observer = Striking(lambda: seen.append(assert_used(fit, scratch)))
    ended = fit(n_passes=200, observer=observer, scratch=str(scratch))
    assert seen == [None]
    ended.assert_consistent()
    assert f"using files in {scratch}" in caplog.text
    assert_gone(fit, scratch)
    # The files go with the arrays.
    assert mapped(scratch) > 0
    fit._ended.clear()
    del ended
    assert mapped(scratch) == 0


def test_an_exception(threaded_fit, scratch):
    def explode():
        assert_used(threaded_fit, scratch)
        raise LookupError("on purpose")

    with pytest.raises(LookupError, match="on purpose"):
        threaded_fit(observer=Striking(explode), scratch=scratch, **ENDLESS)
    assert_gone(threaded_fit, scratch)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal(threaded_fit, scratch, number):
    def strike():
        assert_used(threaded_fit, scratch)
        os.kill(os.getpid(), number)

    ended = threaded_fit(observer=Striking(strike), scratch=scratch, **ENDLESS)
    assert ended.result.stopped == number.name
    assert_gone(threaded_fit, scratch)


def test_a_second_signal(threaded_fit, scratch):
    def strike():
        assert_used(threaded_fit, scratch)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        threaded_fit(observer=Striking(strike), scratch=scratch, **ENDLESS)
    assert_gone(threaded_fit, scratch)


def test_a_killed_worker(fit, scratch):
    def kill():
        assert_used(fit, scratch)
        os.kill(fit.pids[0], signal.SIGKILL)

    with pytest.raises(WorkerError, match="SIGKILL"):
        fit(observer=Striking(kill), scratch=scratch, **ENDLESS)
    assert_gone(fit, scratch)


def test_a_kill_of_all_processes_leaves_a_lock_file_for_gc(tmp_path, monkeypatch):
    """A file without a name is freed by the kernel: gc need not be told of the folder."""
    for name in ("scratch", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with scenario(str(SCENARIO), f"in={tmp_path / 'scratch'}") as process:
        facts = json.loads(process.stdout.readline())
        assert facts["run"] is None and len(facts["workers"]) == 2
        assert {mapped(tmp_path / "scratch", p) for p in (process.pid, *facts["workers"])} == {7}
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=TIME_LIMIT)
    assert os.listdir(tmp_path / "scratch") == []
    (lock,) = (tmp_path / "run").glob("*/*.lock")
    command = [sys.executable, "-m", "esvi_shm.gc"]
    assert f"removed {lock}\n" in subprocess.run(command, capture_output=True, text=True).stdout
    assert not lock.exists()


def test_with_room_in_memory_the_folder_stays_unused(threaded_fit, tmp_path):
    used = []
    observer = Striking(lambda: used.append(mapped(tmp_path)))
    threaded_fit(observer=observer, n_passes=200, scratch=tmp_path)
    assert used == [0]


@pytest.mark.parametrize(
    ("folder", "rule"),
    [
        ("missing", "must be a folder that exists"),
        ("file", "must be a folder that exists"),
        ("closed", r"must be a folder that can be written in \("),
    ],
)
def test_a_folder_that_is_no_use_is_refused_before_the_corpus_is_read(folder, rule, tmp_path):
    path = tmp_path / folder
    if folder == "file":
        path.write_text("")
    if folder == "closed":
        path = Path("/proc/self")  # not even root can make a file there
    with pytest.raises(ParameterError, match=f"scratch {rule}") as caught:
        engine.check(FitConfig(scratch=path))
    assert caught.value.value == str(path)


def test_a_path_must_be_one():
    with pytest.raises(ParameterError, match="scratch must be the path of a folder, got 3"):
        FitConfig(scratch=3)
    assert FitConfig(scratch=Path("/tmp")).as_dict()["scratch"] == "/tmp"


def test_a_folder_without_room_is_refused_before_anything_is_allocated(
    threaded_fit, scratch, monkeypatch
):
    monkeypatch.setattr(preflight, "free_space", lambda folder: 1000)
    with pytest.raises(MemoryShortError, match=f"not enough memory: .* MiB in {scratch}"):
        threaded_fit(scratch=scratch)
    assert threaded_fit.runs == []


def test_the_plan_says_where_the_arrays_will_lie(scratch, monkeypatch):
    corpus, config = Corpus.from_sparse(COUNTS), FitConfig(n_workers=1, scratch=scratch)
    layout = engine.plan(corpus, config)
    assert memory.describe(layout).splitlines()[-1] == f"  shared arrays lie in files in {scratch}"
    monkeypatch.setattr(preflight, "free_space", lambda folder: 0)
    assert memory.describe(layout).splitlines()[-1].startswith("  not enough memory: the shared")
    monkeypatch.setattr(preflight, "free_shared_memory", lambda: 2**30)
    assert memory.describe(layout).splitlines()[-1] == "  shared arrays lie in /dev/shm"
