"""Segments: nothing is left behind at any end, nothing is unlinked that is still in use."""

import contextlib
import gc
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esvi_shm.errors import MemoryShortError, ParameterError
from esvi_shm.shared import segments
from esvi_shm.shared.segments import Run, attach
from esvi_shm.shared.table import ArraySpec, Table

SHM = Path("/dev/shm")
SCENARIO = Path(__file__).with_name("scenario.py")
ROOT = SCENARIO.parents[2]
TIME_LIMIT = 60
BACKINGS = ["shm", "file"]
TABLE = Table([ArraySpec("x", (1000,), "int64", "all", "all", "a test")])


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock files and scratch files of the test lie apart from those of other runs."""
    for name in ("run", "scratch"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def in_shm(run: str) -> list[str]:
    """The names of a run in /dev/shm; other runs may be alive beside the test."""
    return sorted(path.name for path in SHM.glob(f"{run}*"))


def assert_nothing_left(run: str, tmp_path: Path) -> None:
    assert in_shm(run) == []
    assert list((tmp_path / "scratch").iterdir()) == []
    assert list((tmp_path / "run").glob("*/*")) == []


@contextlib.contextmanager
def started(what: str, backing: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A scenario that is up, in a session of its own; killed if it is still there at the end."""
    process = subprocess.Popen(
        [sys.executable, str(SCENARIO), what, backing],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and standard error, once it and its resource tracker have ended."""
    errors = process.communicate(timeout=TIME_LIMIT)[1]
    return process.returncode, errors


@pytest.mark.parametrize("backing", BACKINGS)
@pytest.mark.parametrize("what", ["normal", "unclosed", "lost worker", "wait"])
def test_an_orderly_end_leaves_nothing_and_says_nothing(what, backing, tmp_path) -> None:
    with started(what, backing) as (process, facts):
        if what == "wait":
            assert len(in_shm(facts["run"])) == (backing == "shm")
        assert ended(process) == (0, "")
    assert_nothing_left(facts["run"], tmp_path)


@pytest.mark.parametrize("backing", BACKINGS)
def test_an_exception_leaves_nothing(backing, tmp_path) -> None:
    with started("exception", backing) as (process, facts):
        code, errors = ended(process)
        assert code == 1
        assert "on purpose" in errors
        assert "resource_tracker" not in errors
    assert_nothing_left(facts["run"], tmp_path)


@pytest.mark.parametrize("backing", BACKINGS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_parent_leaves_no_memory(number, backing, tmp_path) -> None:
    """SIGTERM and SIGKILL give it no chance: its tracker, or the kernel, has to do it."""
    with started("wait", backing) as (process, facts):
        assert len(in_shm(facts["run"])) == (backing == "shm")
        process.send_signal(number)
        code, _ = ended(process)
        assert code == -number
    assert in_shm(facts["run"]) == []
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("backing", BACKINGS)
def test_after_a_kill_of_the_whole_group_gc_removes_it(backing, tmp_path) -> None:
    with started("wait", backing) as (process, facts):
        os.killpg(process.pid, signal.SIGKILL)
        ended(process)
    names = in_shm(facts["run"])
    assert names == ([f"{facts['run']}-state"] if backing == "shm" else [])
    said = collect()
    for name in [*names, f"{facts['run']}.lock"]:
        assert name in said
    assert_nothing_left(facts["run"], tmp_path)
    assert facts["run"] not in collect()


def collect() -> str:
    """What `python -m esvi_shm.gc` says."""
    done = subprocess.run(
        [sys.executable, "-m", "esvi_shm.gc"], capture_output=True, text=True, timeout=TIME_LIMIT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_gc_spares_a_live_run() -> None:
    with started("wait", "shm") as (process, facts):
        assert facts["run"] not in collect()
        assert in_shm(facts["run"]) == [f"{facts['run']}-state"]
        assert ended(process) == (0, "")


def test_gc_spares_what_a_worker_holds_after_its_parent(tmp_path) -> None:
    with started("orphan", "shm") as (process, facts):
        for name in ("tracker", "worker"):
            assert isinstance(facts[name], int)
        os.kill(facts["tracker"], signal.SIGKILL)
        process.kill()
        process.wait()
        assert facts["run"] not in collect()
        assert in_shm(facts["run"]) == [f"{facts['run']}-state"]
        os.kill(facts["worker"], signal.SIGKILL)
        ended(process)
        assert f"{facts['run']}-state" in collect()
    assert_nothing_left(facts["run"], tmp_path)


def test_an_unrelated_process_attaches_without_unlinking() -> None:
    """It has a resource tracker of its own, which must not learn of the segment."""
    program = (
        "import pickle, sys\n"
        "from multiprocessing import resource_tracker\n"
        "from esvi_shm.shared.segments import attach\n"
        "resource_tracker.ensure_running()\n"
        "segment = attach(pickle.load(sys.stdin.buffer))\n"
        "segment.arrays['x'][:] += 1\n"
        "kept = segment.arrays['x']\n"
        "segment.close()\n"
        "kept[:] += 1\n"
    )
    with Run() as run:
        segment = run.create("state", TABLE)
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", program],
                input=pickle.dumps(segment.handle),
                capture_output=True,
                timeout=TIME_LIMIT,
            )
            assert (done.returncode, done.stderr) == (0, b"")
            assert in_shm(run.name) == [f"{run.name}-state"]
        assert set(segment.arrays["x"]) == {4}


@pytest.mark.parametrize("backing", BACKINGS)
def test_arrays_outlive_everything(backing) -> None:
    with Run(backing) as run:
        ours = run.create("state", TABLE)
        theirs = attach(pickle.loads(pickle.dumps(ours.handle)))
        first, second = ours.arrays["x"], theirs.arrays["x"]
    for segment in (ours, theirs):
        segment.close()
        segment.close()
        assert segment.arrays == {}
    run.close()
    del ours, theirs, segment
    gc.collect()
    first[:] = np.arange(1000)
    assert second[-1] == 999


@pytest.mark.parametrize("backing", BACKINGS)
def test_a_segment_that_is_gone_cannot_be_attached(backing) -> None:
    with Run(backing) as run:
        handle = run.create("state", TABLE).handle
        run.unlink("state")
        run.unlink("state")
        with pytest.raises(FileNotFoundError):
            attach(handle)
        run.create("state", TABLE)  # the label is free again
        if backing == "shm":  # some file systems reuse the inode at once
            with pytest.raises(FileNotFoundError, match="gone"):
                attach(handle)


def test_a_segment_removed_by_hand_is_no_trouble(tmp_path) -> None:
    with started("removed by hand", "shm") as (process, facts):
        assert ended(process) == (0, "")  # nor does the tracker complain
    assert_nothing_left(facts["run"], tmp_path)


def test_the_lock_comes_before_any_segment_and_goes_after(tmp_path, monkeypatch) -> None:
    seen = []

    def watched(act: str) -> Any:
        told = getattr(segments.resource_tracker, act)

        def look(name: str, kind: str) -> None:
            locks = [path.stem for path in tmp_path.glob("run/*/*.lock")]
            seen.append((act, locks, in_shm(name[1:])))
            told(name, kind)

        return look

    for act in ("register", "unregister"):
        monkeypatch.setattr(segments.resource_tracker, act, watched(act))
    with Run() as run:
        run.create("state", TABLE)
        assert in_shm(run.name) == [f"{run.name}-state"]
    # The tracker knows of a name from before it is there until it is gone.
    assert seen == [("register", [run.name], []), ("unregister", [run.name], [])]
    assert_nothing_left(run.name, tmp_path)


def test_a_forked_child_unlinks_nothing() -> None:
    with Run() as run:
        run.create("state", TABLE)
        child = os.fork()
        if child == 0:
            run.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert in_shm(run.name) == [f"{run.name}-state"]


def test_mistakes_are_named() -> None:
    with pytest.raises(ParameterError, match="backing must be 'shm' or 'file', got 'disk'"):
        Run("disk")  # type: ignore[arg-type]
    with Run() as run:
        run.create("state", TABLE)
        with pytest.raises(ParameterError, match="label must be unique"):
            run.create("state", TABLE)
        for label in ("", "a/b", "a:b", "a-b", "x" * 101):
            with pytest.raises(ParameterError, match="label must be of"):
                run.create(label, TABLE)


def test_an_empty_table_is_a_segment_too() -> None:
    with Run() as run:
        segment = run.create("empty", Table([]))
        segment.reserve()
        assert attach(segment.handle).arrays == {}


def test_pages_are_allocated_by_reserve_only() -> None:
    with Run() as run:
        table = Table([ArraySpec("x", (2**20,), "int8", "all", "all", "1 MiB")])
        segment = run.create("late", table, reserve=False)
        path = SHM / f"{run.name}-late"
        assert path.stat().st_blocks == 0
        other = attach(segment.handle)
        other.arrays["x"][7] = 3
        other.reserve()
        assert path.stat().st_blocks * 512 == 2**20
        assert segment.arrays["x"][7] == 3
        run.create("early", table)
        assert (SHM / f"{run.name}-early").stat().st_blocks * 512 == 2**20


def test_a_lack_of_room_names_the_segment_and_leaves_nothing(monkeypatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with Run() as run:
        with pytest.raises(MemoryShortError, match=r"-state needs 8064 bytes; \d+ are free"):
            run.create("state", TABLE)
        assert in_shm(run.name) == []
        assert run.segments == {}


LIMITED = """
import os, resource, sys
from esvi_shm.errors import MemoryShortError
from esvi_shm.shared.segments import Run
from esvi_shm.shared.table import ArraySpec, Table

table = Table([ArraySpec("x", (1000,), "int64", "all", "all", "a test")])
with Run(sys.argv[1], os.environ["SCRATCH"]) as run:
    run.create("first", table)
    for limit, size in [(resource.RLIMIT_FSIZE, 4096), (resource.RLIMIT_NOFILE, 3)]:
        before = resource.getrlimit(limit)
        resource.setrlimit(limit, (size, before[1]))
        try:
            run.create("second", table)
        except (MemoryShortError, OSError) as error:
            resource.setrlimit(limit, before)
            print(str(error).replace(run.name, "RUN"))
        assert list(run.segments) == ["first"]
    run.create("second", table)
"""


@pytest.mark.parametrize("backing", BACKINGS)
def test_limits_of_the_process_are_one_error_and_no_word_of_the_tracker(backing, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, backing], capture_output=True, text=True, timeout=TIME_LIMIT
    )
    assert (done.returncode, done.stderr) == (0, "")
    size, files = done.stdout.splitlines()
    assert size.startswith("segment RUN-second needs 8064 bytes; ")
    assert size.endswith(" are free (File too large)")
    assert files.startswith("[Errno 24] Too many open files")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert list((tmp_path / "run").glob("*/*")) == []


def private_mounts() -> list[str]:
    """The command that gives a process mounts of its own, if that works here."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        trial = [*command, "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/dev/shm"]
        if shutil.which("unshare") and subprocess.run(trial, capture_output=True).returncode == 0:
            return command
    return []


def test_a_full_shared_memory_is_an_error_and_not_a_bus_error(tmp_path) -> None:
    unshare = private_mounts()
    if not unshare:
        pytest.skip("no private mount namespace here (unshare -m)")
    script = "mount -t tmpfs -o size=1m none /dev/shm && exec " + (
        f"'{sys.executable}' '{SCENARIO}' full shm"
    )
    done = subprocess.run(
        [*unshare, "sh", "-c", script], capture_output=True, text=True, timeout=TIME_LIMIT
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert f"{facts['run']}-large needs 4194304 bytes; 1048576 are free" in facts["message"]
    assert facts["left"] == []
    assert facts["chosen"] == "file"
    assert "using files in" in done.stderr
    assert "resource_tracker" not in done.stderr
    assert_nothing_left(facts["run"], tmp_path)
