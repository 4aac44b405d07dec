"""How many cores this process may use: those of its affinity, within its control groups' quotas."""

import os
from pathlib import Path

from esvi_shm.shared.preflight import control_groups


def _quota(group: Path) -> float | None:
    """Cores' worth of time that a control group, of version 2 or 1, may use; None: no limit."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((group / file).read_text() for file in files).split()
        except (OSError, ValueError):
            continue
        if quota.isdigit() and period.isdigit() and int(period):  # no limit is "max", or -1
            return int(quota) / int(period)
    return None


def available_cores(root: str | os.PathLike[str] = "/") -> int:
    """Return how many cores this process may use, at least 1.

    Parameters
    ----------
    root : path
        Where `proc` and `sys` lie: for tests.

    Examples
    --------
    >>> 1 <= available_cores() <= len(os.sched_getaffinity(0))
    True
    """
    cores = len(os.sched_getaffinity(0))
    for quota in map(_quota, control_groups("cpu", Path(root))):
        if quota is not None:
            cores = min(cores, max(1, round(quota)))
    return cores
