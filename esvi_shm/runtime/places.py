"""A worker that waits changes places with the one furthest behind: each gets the other's core.

Cores of one machine differ in speed: there are two kinds of them, one is hot, or on the other half
of one another machine is at work. Every block visits every worker, so all would go at the pace of
the slowest core while the fast ones wait; and the kernel's scheduler, to which all cores are
equally busy, moves nobody. But who finds no block is on a fast core, and who has the most waiting
is on a slow one. Where they change places, all go at the mean pace: of two workers with equal
work, one waited 10 to 20% of its time for the other, and now waits for 2%.

A worker sets its own affinity and the other's, to one core for some milliseconds and then back to
what both were started with: where they may run in the long run is as before.
"""

import contextlib
import os
import time
from pathlib import Path

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.runtime.blocks import AT_WORK, PID, Control
from esvi_shm.shared.ring import size_guess

#: Seconds between two changes that a worker asks for. Each costs it 2 to 4 ms (the scheduler lets
#: the one that comes run first), and the other the filling of its new core's caches, some 0.2 ms.
PAUSE = 0.01
#: Blocks that wait at a worker that is behind: more than the one that is just coming in.
BEHIND = 2


class Places:
    """Where one worker runs.

    Parameters
    ----------
    control : Control
        The worker's row of `workers` is written.
    worker : int
    """

    def __init__(self, control: Control, worker: int) -> None:
        self.rings, self.workers, self.p = control.rings, control.workers, worker
        self.allowed = os.sched_getaffinity(0)
        self.changed_at = -np.inf
        self.workers[worker, PID] = os.getpid()

    def change(self) -> bool:
        """Change places with the worker that is furthest behind; False: there is none, or not yet.

        Called by a worker that waits.
        """
        now = time.monotonic()
        if len(self.allowed) == 1 or now - self.changed_at < PAUSE:
            return False
        other = furthest_behind(self.rings, self.workers, self.p)
        if other < 0:
            return False
        self.changed_at = now
        pid = int(self.workers[other, PID])
        # Where somebody forbids it, or the other has ended meanwhile, all stay where they are.
        with contextlib.suppress(OSError):
            here, there = core_of(os.getpid()), core_of(pid)
            if here == there:
                return False
            os.sched_setaffinity(pid, {here})
            os.sched_setaffinity(0, {there})
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.allowed)
            os.sched_setaffinity(pid, self.allowed)
        return True


def core_of(pid: int) -> int:
    """The core that a process is on, or was last; OSError if there is no such process."""
    # What follows the name, which may hold anything, is numbers: from the third field on.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[39 - 3])


@kernel
def furthest_behind(rings, workers, worker):
    """The other worker at work with the most blocks waiting, `BEHIND` or more; -1: none.

    None either where a worker of a lower number waits too: two are not to want the same core.

    Parameters
    ----------
    rings, workers : arrays of `blocks.control_specs`
    worker : int
    """
    most, furthest = np.int64(BEHIND - 1), np.int64(-1)
    for p in range(workers.shape[0]):
        if p == worker:
            continue
        if workers[p, AT_WORK] == 0:
            if p < worker:
                return np.int64(-1)
            continue
        waiting = np.int64(0)
        for ring in range(rings.shape[1]):
            waiting += size_guess(rings[p, ring])
        if waiting > most:
            most, furthest = waiting, np.int64(p)
    return furthest
