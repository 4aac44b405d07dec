"""Which runs are alive: a lock file for each, and the removal of what dead ones left.

A run takes an exclusive advisory lock on `<run folder>/esvi-<uid>-<random>.lock` before any of
its segments exists, and keeps it to its end; the kernel drops it however the process ends. Every
process that maps a segment also keeps a shared lock on that segment. What nobody has locked
belongs to nobody, and `remove_leftovers` removes it:

- the run's lock covers the moment between a segment's creation and its own lock;
- the segment's lock covers workers that outlive their parent, and run folders that are cleaned
  away under a live run (as the session's folder is at logout).

It never touches a segment of another user, nor one that a live process holds. Only names in
/dev/shm can be left behind: a segment in a scratch folder is a file without a name (see
`shared.segments`), which the kernel frees by itself.

Only the standard library is imported.
"""

import errno
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esvi_shm.errors import InputError

#: Where POSIX shared memory has its names on Linux.
SHARED_FOLDER = Path("/dev/shm")

#: Seconds. A segment without a lock file is spared while it is younger: its run may have just
#: created it, with a run folder that this process cannot see.
GRACE = 60.0


def _prefix() -> str:
    """Return how the names of all runs of this user begin."""
    return f"esvi-{os.getuid()}-"


def run_folders() -> list[Path]:
    """Return where lock files of this user's runs may lie, the preferred place first.

    All candidates that the environment of this or another login may have given.
    """
    bases = [os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}", tempfile.gettempdir()]
    folders = [Path(base) / f"esvi-{os.getuid()}" for base in bases if base]
    return list(dict.fromkeys(folders))


def _usable(folder: Path) -> bool:
    """Make the folder if need be; say whether it is this user's alone."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    # /tmp is everybody's: someone else may have made the folder, or a link, before us.
    private = stat.S_IMODE(found.st_mode) & 0o077 == 0
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and private


class RunLock:
    """The name of a run and the lock that says that it is alive.

    Attributes
    ----------
    name : str
        `esvi-<uid>-<random>`: the names of all segments of the run begin with it.
    path : Path
        The lock file.

    Raises
    ------
    InputError
        If no folder for the lock file can be made.

    Examples
    --------
    >>> lock = RunLock()
    >>> lock.path.exists()
    True
    >>> lock.close()
    >>> lock.path.exists()
    False
    """

    def __init__(self) -> None:
        folder = next(filter(_usable, run_folders()), None)
        if folder is None:
            tried = ", ".join(map(str, run_folders()))
            raise InputError(f"no private folder for the lock file of the run: tried {tried}")
        while True:
            self.name = f"{_prefix()}{secrets.token_hex(8)}"
            self.path = folder / f"{self.name}.lock"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, mode=0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            # Between the two lines a clean-up may have found it unlocked, and removed it.
            if os.fstat(self._descriptor).st_nlink:
                break
            os.close(self._descriptor)

    def close(self) -> None:
        """Remove the lock file and drop the lock. May be repeated."""
        if self._descriptor >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def _held_alone(path: Path) -> Iterator[bool]:
    """Lock a file exclusively; yield whether that worked, so that nobody alive has it."""
    try:
        # O_NONBLOCK: whatever else may lie there under our name, opening it must not wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        alone = os.fstat(descriptor).st_uid == os.getuid()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            alone = False
        yield alone
    finally:
        os.close(descriptor)


def _remove_if_dead(path: Path) -> bool:
    """Remove a segment that no process has locked; say whether it was removed."""
    with _held_alone(path) as alone:
        if alone:
            path.unlink(missing_ok=True)
        return alone


def _segments(run: str) -> list[Path]:
    return sorted(SHARED_FOLDER.glob(f"{run}-*"))


def remove_leftovers() -> list[str]:
    """Remove the segments and lock files of this user's runs that no live process holds.

    Returns
    -------
    list of str
        The path of each thing removed.
    """
    removed = []
    known = set()
    for folder in filter(_usable, (path for path in run_folders() if path.is_dir())):
        for lock in sorted(folder.glob(f"{_prefix()}*.lock")):
            known.add(lock.stem)
            with _held_alone(lock) as alone:
                if not alone:
                    continue
                removed += [str(path) for path in _segments(lock.stem) if _remove_if_dead(path)]
                if not _segments(lock.stem):  # else a worker that outlives its parent has some
                    lock.unlink(missing_ok=True)
                    removed.append(str(lock))
    for path in sorted(SHARED_FOLDER.glob(f"{_prefix()}*")):
        run = "-".join(path.name.split("-")[:3])
        try:
            age = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            continue
        if run not in known and age > GRACE and _remove_if_dead(path):
            removed.append(str(path))
    return removed
