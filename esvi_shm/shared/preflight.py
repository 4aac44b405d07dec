"""How much memory there is for segments, asked before anything is allocated.

Shared memory is charged to the machine, to the control group of the process (a container's
limit), and to the size of /dev/shm, which Docker sets to 64 MiB whatever the machine has. The
least of the three counts. Where only /dev/shm is short, segments are files in a scratch folder.

Nothing here allocates, and nothing is promised: others may take the memory meanwhile, which is
why `Segment.reserve` allocates every page before the first is touched.
"""

import logging
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from esvi_shm.errors import MemoryShortError, ParameterError
from esvi_shm.shared.runs import SHARED_FOLDER

#: Where the segments of a run lie: in /dev/shm, or in files of a scratch folder.
Backing = Literal["shm", "file"]

#: Free bytes where no limit is set.
UNLIMITED = sys.maxsize

_log = logging.getLogger(__name__)


def free_space(folder: str | os.PathLike[str]) -> int:
    """Return the free bytes of a file system; 0 where nothing can be written in the folder.

    Examples
    --------
    >>> free_space("/no/such/folder")
    0
    """
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    if not os.access(folder, os.W_OK | os.X_OK):  # of a file system that is read-only, too
        return 0
    if found.f_blocks == 0:  # a tmpfs mounted with size=0 has no limit of its own
        return UNLIMITED
    return found.f_bavail * found.f_frsize


def free_shared_memory() -> int:
    """Return the free bytes of /dev/shm; 0 if there is none, or it is read-only."""
    return free_space(SHARED_FOLDER)


def _number(path: Path) -> int | None:
    """Read a control group's number; None if there is none, or no limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _reclaimable(path: Path, key: str) -> int:
    """Return the bytes of file cache that the kernel drops before it refuses memory."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.split()[0] == key)


def _free_in_group(folder: Path) -> int:
    """Return limit - use + reclaimable cache of one control group, of version 2 or 1."""
    for limit_name, use_name, key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, use = _number(folder / limit_name), _number(folder / use_name)
        if limit is not None and use is not None:
            return max(0, limit - use + _reclaimable(folder / "memory.stat", key))
    return UNLIMITED


def control_groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups, of version 2 and 1, and their parents.

    Parameters
    ----------
    controller : str
        What the group must control: "memory", "cpu".
    root : Path
        Where `proc` and `sys` lie.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Inside a container the path may be the host's, and only the root of it be mounted.
        path = Path(group.lstrip("/"))
        # "cpu,cpuacct" may be mounted as "cpuacct,cpu", with a link from each of both.
        for mount in {controllers, controller if controllers else ""}:
            for part in (path, *path.parents):
                yield root / "sys/fs/cgroup" / mount / part


def free_memory(root: str | os.PathLike[str] = "/") -> int:
    """Return the bytes that can be allocated: the machine's, within every control group's limit.

    Parameters
    ----------
    root : path
        Where `proc` and `sys` lie: for tests.

    Examples
    --------
    >>> free_memory() > 0
    True
    """
    base = Path(root)
    # The least of them: the limit of a parent holds for its groups together.
    free = min(map(_free_in_group, control_groups("memory", base)), default=UNLIMITED)
    for line in (base / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = min(free, int(line.split()[1]) * 1024)
    return free


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.1f} MiB" if n_bytes < UNLIMITED else "unlimited"


def free_descriptors() -> int:
    """Return how many more files this process may open.

    Examples
    --------
    >>> free_descriptors() > 0
    True
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return UNLIMITED
    return max(0, limit - len(os.listdir("/proc/self/fd")))


def check_memory(n_bytes: int, what: str) -> None:
    """Refuse what takes more private memory than there is, before it is allocated.

    Parameters
    ----------
    n_bytes : int
    what : str
        For the message: what takes it.

    Raises
    ------
    MemoryShortError

    Examples
    --------
    >>> check_memory(1, "a byte")
    """
    free = free_memory()
    if n_bytes > free:
        raise MemoryShortError(
            f"not enough memory: {what} takes {_mib(n_bytes)}, {_mib(free)} are free"
        )


def check_scratch(folder: str | os.PathLike[str]) -> None:
    """Refuse a scratch folder that can hold no files, before anything else is done.

    Parameters
    ----------
    folder : path

    Raises
    ------
    ParameterError
        If it is no folder, or a file in it cannot be made.

    Examples
    --------
    >>> check_scratch("/tmp")
    >>> check_scratch("/no/such/folder")
    Traceback (most recent call last):
    esvi_shm.errors.ParameterError: scratch must be a folder that exists, got '/no/such/folder'
    """
    name = os.fspath(folder)
    if not os.path.isdir(folder):
        raise ParameterError("scratch", "must be a folder that exists", name)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        rule = f"must be a folder that can be written in ({error.strerror})"
        raise ParameterError("scratch", rule, name) from None


def choose_backing(total_bytes: int, scratch: str | os.PathLike[str] | None = None) -> Backing:
    """Choose where segments of `total_bytes` together go, before any is allocated.

    Parameters
    ----------
    total_bytes : int
    scratch : path, optional
        A folder for files if /dev/shm is too small; the temporary folder if not given. Naming
        one also allows a fit larger than the memory, at the speed of the disk.

    Returns
    -------
    "shm" or "file"
        For `Run`. "file" is also said by a warning of the logger of this module.

    Raises
    ------
    MemoryShortError
        If neither has room; the message says how much is needed and how much is free.

    Examples
    --------
    >>> choose_backing(0)
    'shm'
    """
    shared, memory = free_shared_memory(), free_memory()
    if total_bytes <= min(shared, memory):
        return "shm"
    folder = scratch if scratch is not None else tempfile.gettempdir()
    disk = free_space(folder)
    facts = (
        f"the shared arrays need {_mib(total_bytes)}; {_mib(shared)} are free in {SHARED_FOLDER}, "
        f"{_mib(memory)} of memory, {_mib(disk)} in {os.fspath(folder)}"
    )
    if total_bytes > disk or (total_bytes > memory and scratch is None):
        raise MemoryShortError(f"not enough memory: {facts}")
    slower = " (larger than the memory: expect the speed of the disk)"
    _log.warning("using files in %s: %s%s", folder, facts, slower if total_bytes > memory else "")
    return "file"
