"""Where compiled kernels are kept, for how long, and how those of other versions are removed.

Numba's disk cache notices an edited function but not an edited callee in another file, so the
folder is named by a hash of all sources of the package: an edit anywhere compiles afresh. It lies
in the user's cache directory (site-packages may be read-only); where that cannot be written
either, in a private temporary folder.

A process keeps a shared lock on the folder that it uses, and only folders that nobody has locked
are removed: a fit by another version may be about to start its workers. Only the standard library
is imported.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: Kernels of other versions of the sources are kept for so long after they were last used.
KEEP_SECONDS = 30 * 24 * 3600
#: Bytes that those of a few kinds of fit take; where there are fewer they go elsewhere.
ROOM = 8 << 20


def _source_digest() -> str:
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _user_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "esvi_shm"


def open_folder() -> str:
    """Make the folder for the kernels of these sources, and lock it while this process lives."""
    digest = _source_digest()
    folder = _user_folder() / f"kernels-{digest}"
    is_new = not folder.exists()
    try:
        _make_and_lock(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            if is_new:
                os.posix_fallocate(file.fileno(), 0, ROOM)
    except OSError:
        if is_new:  # else it would not be new to the workers
            with contextlib.suppress(OSError):
                folder.rmdir()
        # Named by user and digest, so that the parent and its workers agree on it; private.
        folder = Path(tempfile.gettempdir()) / f"esvi_shm-{os.getuid()}-{digest}"
        with contextlib.suppress(OSError):
            _make_and_lock(folder)
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
            folder = Path(tempfile.mkdtemp(prefix="esvi_shm-kernels-"))
            _make_and_lock(folder)
    if is_new:
        remove_other_versions(KEEP_SECONDS)
    return str(folder)


def _make_and_lock(folder: Path) -> None:
    """Make a folder, lock it for good, and note that it is used now."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        # Not every network file system knows locks.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        # Between the lines it may have been removed.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                os.utime(folder)
                return
        os.close(descriptor)


def _folders() -> Iterator[Path]:
    """The user's folders of all versions."""
    temporary = Path(tempfile.gettempdir())
    yield from sorted(_user_folder().glob("kernels-*"))
    yield from sorted(temporary.glob(f"esvi_shm-{os.getuid()}-*"))
    yield from sorted(temporary.glob("esvi_shm-kernels-*"))


def remove_other_versions(unused_for: float = 0.0) -> list[str]:
    """Remove kernels of other versions of the sources that no live process uses.

    Parameters
    ----------
    unused_for : float
        Only those last used so many seconds ago.

    Returns
    -------
    list of str
        The path of each folder removed.
    """
    digest, removed = _source_digest(), []
    for folder in _folders():
        if folder.name.endswith(digest):
            continue
        # Another process may be removing it too.
        with contextlib.suppress(OSError), _locked_alone(folder) as found:
            if found.st_uid == os.getuid() and time.time() - found.st_mtime >= unused_for:
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(str(folder))
    return removed


@contextlib.contextmanager
def _locked_alone(folder: Path) -> Iterator[os.stat_result]:
    """Hold a folder that nobody else holds; OSError where it is held, gone, or no folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield os.fstat(descriptor)
    finally:
        os.close(descriptor)
