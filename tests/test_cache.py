"""The folder of the compiled kernels: found again, held while in use, else removed in time."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from esvi_shm import cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory and the temporary folder are the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "home" / "esvi_shm"


def other_version(folder: Path, last_used: float = 0) -> Path:
    (folder / "inside").mkdir(parents=True)
    (folder / "inside" / "kernel.nbi").write_bytes(b"x")
    os.utime(folder, (last_used, last_used))
    return folder


def test_the_folder_is_named_by_the_sources_and_found_again(home, monkeypatch):
    folder = cache.open_folder()
    assert Path(folder).parent == home and Path(folder).name.startswith("kernels-")
    os.utime(folder, (0, 0))
    assert cache.open_folder() == folder
    assert os.stat(folder).st_mtime > 0  # when it was last used
    monkeypatch.setattr(cache, "_source_digest", lambda: "f" * 16)
    assert cache.open_folder() == str(home / ("kernels-" + "f" * 16))


def test_other_versions_are_removed_and_ours_is_kept(home, tmp_path):
    user = os.getuid()
    ours = cache.open_folder()
    others = [
        other_version(home / "kernels-0"),
        other_version(tmp_path / "tmp" / f"esvi_shm-{user}-0"),
        other_version(tmp_path / "tmp" / "esvi_shm-kernels-abc"),
    ]
    foreign = [other_version(home / "else"), other_version(tmp_path / "tmp" / f"esvi_shm-{user}x")]
    (home / "kernels-file").touch()
    (home / "kernels-link").symlink_to(foreign[0])
    assert cache.remove_other_versions() == [str(path) for path in others]
    assert not any(path.exists() for path in others)
    assert all((path / "inside" / "kernel.nbi").exists() for path in foreign)
    assert {path.name for path in home.iterdir()} == {
        Path(ours).name, "else", "kernels-file", "kernels-link",
    }  # fmt: skip


def test_a_folder_in_use_is_spared(home, monkeypatch):
    ours = cache.open_folder()
    other = other_version(home / "kernels-0")
    monkeypatch.setattr(cache, "_source_digest", lambda: "f" * 16)  # ours is another version's now
    descriptor = os.open(other, os.O_RDONLY)  # as a process of that version has it
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    assert cache.remove_other_versions() == []
    os.close(descriptor)
    assert cache.remove_other_versions() == [str(other)]
    assert Path(ours).is_dir()


def test_a_new_version_removes_what_was_not_used_for_long(home, monkeypatch):
    now = os.stat(cache.open_folder()).st_mtime
    old = other_version(home / "kernels-0", now - cache.KEEP_SECONDS - 100)
    recent = other_version(home / "kernels-1", now - cache.KEEP_SECONDS + 1000)
    cache.open_folder()
    assert old.exists()  # not at every start: only at the first of a version
    monkeypatch.setattr(cache, "_source_digest", lambda: "f" * 16)
    cache.open_folder()
    assert recent.exists() and not old.exists()


def test_a_folder_that_another_process_removes_is_no_error(home, monkeypatch):
    gone = home / "kernels-0"
    monkeypatch.setattr(cache, "_folders", lambda: iter([gone]))
    assert cache.remove_other_versions() == []


def test_a_folder_removed_before_it_is_locked_is_made_anew(home, monkeypatch):
    flock, removed = fcntl.flock, []

    def interrupted(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_SH and not removed:
            (folder,) = home.iterdir()
            folder.rmdir()
            folder.mkdir()  # as a third process does
            removed.append(folder)
        flock(descriptor, operation)

    monkeypatch.setattr(cache.fcntl, "flock", interrupted)
    folder = cache.open_folder()
    assert removed == [Path(folder)]
    assert Path(folder).is_dir()
    monkeypatch.setattr(cache, "_source_digest", lambda: "f" * 16)
    assert cache.remove_other_versions() == []  # the new one is held


def test_where_the_user_s_cache_has_no_room_all_processes_go_elsewhere(home, tmp_path, monkeypatch):
    allocate = os.posix_fallocate
    with monkeypatch.context() as patched:
        patched.setattr(
            os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(28, "disk full"))
        )
        folders = {cache.open_folder() for _ in range(2)}
    assert {Path(folder).parent for folder in folders} == {tmp_path / "tmp"} and len(folders) == 1
    asked = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *a: asked.append(a) or allocate(*a))
    there = {cache.open_folder() for _ in range(2)}  # the second one has kernels, and needs no more
    assert {Path(folder).parent for folder in there} == {home} and len(there) == len(asked) == 1
    assert os.listdir(*there) == []


@pytest.mark.parametrize("trap", [None, "a link", "a file"])
def test_where_the_user_s_cache_cannot_be_written(trap, home, tmp_path):
    home.parent.mkdir()
    home.touch()
    usual = tmp_path / "tmp" / f"esvi_shm-{os.getuid()}-{cache._source_digest()}"
    if trap == "a link":
        (tmp_path / "elsewhere").mkdir()
        usual.symlink_to(tmp_path / "elsewhere")
    elif trap == "a file":
        usual.touch()
    folder = Path(cache.open_folder())
    if trap is None:
        assert folder == usual == Path(cache.open_folder())
    else:
        assert folder.parent == usual.parent and folder.name.startswith("esvi_shm-kernels-")
    assert folder.stat().st_mode & 0o777 == 0o700
