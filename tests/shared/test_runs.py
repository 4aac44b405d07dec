"""The lock of a run: private, taken before it can be mistaken for a dead one's."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from esvi_shm.errors import InputError
from esvi_shm.shared import runs
from esvi_shm.shared.runs import RunLock, remove_leftovers, run_folders


@pytest.fixture(autouse=True)
def only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run folders and the folder of segments are the test's own."""
    shared = tmp_path / "shm"
    shared.mkdir()
    monkeypatch.setattr(runs, "SHARED_FOLDER", shared)
    folders = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(runs, "run_folders", lambda: folders)
    return shared


def dead_run(tmp_path: Path, shared: Path, labels: tuple[str, ...] = ("a", "b")) -> list[Path]:
    """What a run leaves that was killed together with its tracker."""
    name = f"esvi-{os.getuid()}-{'0123456789abcdef'}"
    (tmp_path / "first").mkdir(mode=0o700, exist_ok=True)
    paths = [shared / f"{name}-{label}" for label in labels]
    paths.append(tmp_path / "first" / f"{name}.lock")
    for path in paths:
        path.touch()
    return paths


def test_the_folder_is_private_and_the_name_is_the_users(tmp_path) -> None:
    lock, other = RunLock(), RunLock()
    assert lock.path == tmp_path / "first" / f"{lock.name}.lock"
    assert lock.name.startswith(f"esvi-{os.getuid()}-")
    assert lock.name != other.name
    assert (tmp_path / "first").stat().st_mode & 0o777 == 0o700
    for one in (lock, other):
        one.close()
        one.close()
        assert not one.path.exists()


@pytest.mark.parametrize("trap", ["open to others", "a link", "a file"])
def test_a_folder_that_is_not_ours_alone_is_passed_over(trap, tmp_path) -> None:
    first = tmp_path / "first"
    if trap == "open to others":
        first.mkdir()
        first.chmod(0o777)
    elif trap == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        first.symlink_to(tmp_path / "elsewhere")
    else:
        first.touch()
    lock = RunLock()
    assert lock.path.parent == tmp_path / "second"
    lock.close()


def test_no_folder_at_all_is_an_error_that_names_them(tmp_path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"tried .*first, .*second"):
        RunLock()


def test_a_lock_file_taken_by_a_clean_up_is_made_anew(monkeypatch) -> None:
    """The clean-up comes between the creation of the file and its lock."""
    removed = []
    flock = fcntl.flock

    def interrupted(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not removed:
            removed.extend(remove_leftovers())
        flock(descriptor, operation)

    monkeypatch.setattr(runs.fcntl, "flock", interrupted)
    lock = RunLock()
    assert len(removed) == 1
    assert str(lock.path) not in removed
    assert lock.path.exists()
    assert remove_leftovers() == []
    lock.close()


def test_what_a_dead_run_left_is_removed(tmp_path, only_folder) -> None:
    paths = dead_run(tmp_path, only_folder)
    assert sorted(remove_leftovers()) == sorted(map(str, paths))
    assert not any(path.exists() for path in paths)
    assert remove_leftovers() == []


def test_a_live_run_is_spared(only_folder) -> None:
    lock = RunLock()
    segment = only_folder / f"{lock.name}-a"  # created, and not yet locked
    segment.touch()
    os.utime(segment, (0, 0))
    assert remove_leftovers() == []
    assert segment.exists()
    lock.close()


def test_a_segment_in_use_is_spared_and_its_lock_file_with_it(tmp_path, only_folder) -> None:
    used, free, lock = dead_run(tmp_path, only_folder)
    with used.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert remove_leftovers() == [str(free)]
        assert used.exists()
        assert lock.exists()
    assert remove_leftovers() == [str(used), str(lock)]


def test_a_segment_without_a_lock_file_is_removed_once_it_is_old(tmp_path, only_folder) -> None:
    segment, lock = dead_run(tmp_path, only_folder, ("a",))
    lock.unlink()
    assert remove_leftovers() == []
    old = time.time() - 2 * runs.GRACE
    os.utime(segment, (old, old))
    with segment.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert remove_leftovers() == []
    assert remove_leftovers() == [str(segment)]


def test_other_names_are_never_touched(tmp_path, only_folder) -> None:
    dead_run(tmp_path, only_folder, ())
    user = os.getuid()
    names = [f"esvi-{user + 1}-0123456789abcdef-a", f"esvi-{user}x-0-a", "psm_1234", "esvi"]
    for name in names:
        (only_folder / name).touch()
        os.utime(only_folder / name, (0, 0))
    os.mkfifo(only_folder / f"esvi-{user}-0123456789abcdef-fifo")  # opening it must not wait
    remove_leftovers()
    assert {path.name for path in only_folder.iterdir()} >= set(names)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
def test_files_of_another_user_under_our_names_are_spared(tmp_path, only_folder) -> None:
    segment, _ = dead_run(tmp_path, only_folder, ("a",))
    os.chown(segment, 12345, 12345)
    remove_leftovers()
    assert segment.exists()


def test_the_folders_follow_the_environment(monkeypatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/somewhere")
    assert run_folders()[0] == Path(f"/somewhere/esvi-{os.getuid()}")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    folders = run_folders()
    assert folders[0] == Path(f"/run/user/{os.getuid()}/esvi-{os.getuid()}")
    assert len(set(folders)) == len(folders) == 2
