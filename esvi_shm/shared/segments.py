"""The owner of all shared memory: segments are created, attached, closed and unlinked here only.

    parent    Run() -> create(label, table) -> Segment --handle--> worker
    worker    attach(handle) -> Segment
    both      segment.arrays["name"], segment.reserve(), segment.close()
    parent    run.close() unlinks everything

Two backings with one interface (`shared.preflight.choose_backing` picks):

- "shm": a name in /dev/shm, `esvi-<uid>-<random>-<label>`. Before it is created,
  multiprocessing's resource tracker is told, a process of the parent's that unlinks the names
  when the parent and its children are gone, even by SIGKILL. What that misses (SIGKILL of the
  tracker too), `python -m esvi_shm.gc` removes.
- "file": a temporary file that has no name from the start; workers reach it as the parent's
  open file under /proc. The kernel frees it with its last user, so nothing can be left.

It is not multiprocessing's `SharedMemory`, for three reasons. To attach with that registers the
segment as the worker's (always, before Python 3.13), and a worker's end would then unlink it or
warn. Its `close` raises BufferError while an array is in use, or, with `np.ndarray(buffer=...)`,
leaves the array pointing nowhere; here arrays hold their mapping: `close` only lets go of our
references, and the memory goes with the last array. And where it finds no room it confuses the
tracker, which it tells only afterwards.

A fresh segment has no pages. Touching one that /dev/shm has no room for is a SIGBUS, so
`reserve` allocates them first and turns a lack of room into an error. The process that calls it
decides on which memory node they lie: a worker reserves and first touches its own shard's.
"""

import atexit
import contextlib
import errno
import fcntl
import mmap
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import IO, Any

import numpy as np

from esvi_shm.errors import MemoryShortError, ParameterError
from esvi_shm.shared.preflight import Backing
from esvi_shm.shared.runs import SHARED_FOLDER, RunLock
from esvi_shm.shared.table import Table

#: All rows of an array.
ALL = slice(None)

_SHORT = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Handle:
    """What a process needs to attach a segment; picklable."""

    name: str
    path: str
    inode: tuple[int, int]  # device and inode: the path still leads to the same file
    table: Table


class Segment:
    """A mapped segment. Made by `Run.create` and `attach` only.

    Attributes
    ----------
    handle : Handle
    arrays : dict of str to ndarray
        Views of the shared memory; empty after `close`. They may outlive the segment.
    """

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        with _opened(handle) as descriptor:
            # The mapping keeps a copy of the descriptor, and with it this lock (see `runs`).
            # Some network file systems have no locks; a file there needs none.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._mapping: Any = mmap.mmap(descriptor, _size(handle.table))
        self.arrays: dict[str, np.ndarray[Any, Any]] = handle.table.views(self._mapping)

    def reserve(self, name: str | None = None, rows: slice = ALL) -> None:
        """Allocate every page, on the memory node of the caller; what is there stays.

        Call it before the first touch, in whichever process will use the arrays most.

        Parameters
        ----------
        name : str, optional
            Of an array: its pages only.
        rows : slice
            Of that array.

        Raises
        ------
        MemoryShortError
            If there is no room; the message says how much is needed and how much is free.
        """
        first, size = 0, _size(self.handle.table)
        if name is not None:
            first, size = self._place(name, rows)
        if size == 0:
            return
        with _opened(self.handle) as descriptor:
            reserve_file(f"segment {self.handle.name}", descriptor, size, first)

    def give_back(self, name: str, rows: slice) -> None:
        """Free the pages that hold nothing but these rows of an array; they read as zeros then.

        Nobody may touch them until they are reserved again.

        Raises
        ------
        OSError
            On a file system that cannot free a part of a file.
        """
        first, size = self._place(name, rows)
        begin = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (first + size) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > begin:
            self._mapping.madvise(mmap.MADV_REMOVE, begin, end - begin)

    def _place(self, name: str, rows: slice) -> tuple[int, int]:
        """First byte and number of bytes of some rows of an array."""
        spec = self.handle.table[name]
        start, stop, _ = rows.indices(spec.shape[0] if spec.shape else 1)
        row = spec.n_bytes // max(spec.shape[0], 1) if spec.shape else spec.n_bytes
        return self.handle.table.offset(name) + start * row, max(stop - start, 0) * row

    def close(self) -> None:
        """Let go of the arrays; the memory is unmapped with the last one in use. Repeatable."""
        self.arrays, self._mapping = {}, None


def _ensure_tracker() -> None:
    """Have Python's tracker run, which removes what a killed process has left in shared memory.

    It ignores a Ctrl-C and a SIGTERM, and is not to end with a terminal that closes either.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _size(table: Table) -> int:
    """Return the bytes of the segment; an empty mapping is not possible."""
    return max(table.total_bytes, 1)


def reserve_file(name: str, descriptor: int, size: int, first: int = 0) -> None:
    """Take room for bytes of a file that is to be mapped: without it a write to them kills.

    Raises
    ------
    MemoryShortError
        If there is none; the message calls the file by `name`.
    """
    with _room_for(name, size, descriptor):
        os.posix_fallocate(descriptor, first, size)


@contextlib.contextmanager
def _room_for(name: str, size: int, descriptor: int) -> Iterator[None]:
    """Say how much is missing where an operation on a file finds no room."""
    try:
        yield
    except OSError as error:
        if error.errno not in _SHORT:
            raise
        space = os.fstatvfs(descriptor)
        raise MemoryShortError(
            f"{name} needs {size} bytes; "
            f"{space.f_bavail * space.f_frsize} are free ({os.strerror(error.errno)})"
        ) from None


@contextlib.contextmanager
def _opened(handle: Handle) -> Any:
    """Open the segment's file, and make sure that it is that one."""
    flags = os.O_RDWR | os.O_CLOEXEC
    descriptor = os.open(handle.path, flags)
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != handle.inode:
            raise FileNotFoundError(errno.ENOENT, "segment is gone, its run is over", handle.name)
        yield descriptor
    finally:
        os.close(descriptor)


def attach(handle: Handle) -> Segment:
    """Map a segment that another process created.

    The resource tracker is not told: neither `close` nor the end of this process unlinks it.

    Parameters
    ----------
    handle : Handle
        `Segment.handle`, pickled or not.

    Raises
    ------
    FileNotFoundError
        If the run has ended meanwhile.

    Examples
    --------
    >>> from esvi_shm.shared.table import ArraySpec
    >>> table = Table([ArraySpec("n", (2,), "int64", "the parent", "all", "counts")])
    >>> with Run() as run:
    ...     ours = run.create("example", table)
    ...     theirs = attach(ours.handle)
    ...     ours.arrays["n"][:] = 7, 8
    ...     kept = theirs.arrays["n"]
    >>> kept
    array([7, 8])
    """
    return Segment(handle)


class Run:
    """All segments of one run; lives in the parent, which alone creates and unlinks.

    The run's lock is taken first, so that no clean-up mistakes a new segment for a dead run's.
    Use it as a context: whatever the end, all is unlinked. If not, the end of the interpreter
    does it. A forked child that inherits a run never unlinks.

    Parameters
    ----------
    backing : "shm" or "file"
        As `choose_backing` says.
    scratch : path, optional
        The folder of the files; the temporary folder if not given.

    Attributes
    ----------
    name : str
        `esvi-<uid>-<random>`, how the names of its segments begin.
    segments : dict of str to Segment
        By label.

    Raises
    ------
    ParameterError
        If `backing` is unknown.
    InputError
        If no lock file can be made.

    Examples
    --------
    >>> from esvi_shm.shared.table import ArraySpec
    >>> with Run() as run:
    ...     segment = run.create("state", Table([ArraySpec("x", (2,), "f8", "a", "b", "c")]))
    ...     segment.arrays["x"]
    array([0., 0.])
    """

    def __init__(
        self, backing: Backing = "shm", scratch: str | os.PathLike[str] | None = None
    ) -> None:
        if backing not in ("shm", "file"):
            raise ParameterError("backing", "must be 'shm' or 'file'", backing)
        self.segments: dict[str, Segment] = {}
        self._backing = backing
        self._scratch = scratch
        self._owners: dict[str, Path | IO[bytes]] = {}
        self._process = os.getpid()
        self._lock = RunLock()
        self.name = self._lock.name
        atexit.register(self.close)

    def create(self, label: str, table: Table, reserve: bool = True) -> Segment:
        """Create, map and (unless told not to) reserve a segment of zeros.

        Parameters
        ----------
        label : str
            Letters, digits, `_` and `.`; unique in the run.
        table : Table
        reserve : bool
            False leaves `Segment.reserve` to the worker that will touch it first.

        Raises
        ------
        ParameterError
            If the label is not of that form or taken.
        MemoryShortError
            If there is no room; nothing is left of the segment then.
        """
        if not re.fullmatch(r"[A-Za-z0-9_.]{1,100}", label):
            raise ParameterError("label", "must be of letters, digits, '_' and '.'", label)
        if label in self._owners:
            raise ParameterError("label", "must be unique in its run", label)
        name = f"{self.name}-{label}"
        try:
            path = self._create_owner(label, name, _size(table))
            found = os.stat(path)
            handle = Handle(name, path, (found.st_dev, found.st_ino), table)
            segment = self.segments[label] = Segment(handle)
            if reserve:
                segment.reserve()
        except BaseException:
            self.unlink(label)
            raise
        return segment

    def _create_owner(self, label: str, name: str, size: int) -> str:
        """Create the file of a segment, not yet allocated, and return its path."""
        if self._backing == "shm":
            _ensure_tracker()
            resource_tracker.register(f"/{name}", "shared_memory")
            path = self._owners[label] = SHARED_FOLDER / name
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with _room_for(f"segment {name}", size, descriptor):
                    os.truncate(descriptor, size)
            finally:
                os.close(descriptor)
            return str(path)
        file = self._owners[label] = tempfile.TemporaryFile(dir=self._scratch, prefix=f"{name}-")
        with _room_for(f"segment {name}", size, file.fileno()):
            file.truncate(size)
        return f"/proc/{os.getpid()}/fd/{file.fileno()}"

    def unlink(self, label: str) -> None:
        """Remove a segment's name and let go of it; who has attached it keeps it. Repeatable."""
        if os.getpid() != self._process:
            return
        owner = self._owners.get(label)
        if isinstance(owner, Path):
            owner.unlink(missing_ok=True)  # someone may have removed it by hand
            resource_tracker.unregister(f"/{owner.name}", "shared_memory")
        elif owner is not None:
            owner.close()
        self._owners.pop(label, None)
        segment = self.segments.pop(label, None)
        if segment is not None:
            segment.close()

    def close(self) -> None:
        """Unlink every segment, remove the lock file, let go of all. May be repeated."""
        if os.getpid() != self._process:
            return
        for label in list(self._owners):
            self.unlink(label)
        self._lock.close()
        atexit.unregister(self.close)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
