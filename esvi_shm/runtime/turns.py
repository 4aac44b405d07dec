"""What a worker does with a block between two visits, in one compiled call.

In Python it took half as long as a short visit: with many workers visits are short, and after one
the caches hold the block's rows and nothing of the interpreter.
"""

import numpy as np

from esvi_shm.compile import Holder, holder, kernel
from esvi_shm.runtime.blocks import (
    AT_WORK,
    BEAT,
    ONE_PASS,
    PLACE,
    RECALL,
    STEP,
    TARGET_PASS,
    VISITS,
    WORK,
)
from esvi_shm.runtime.routes import next_stop
from esvi_shm.shared.ring import pop_any, try_push


@holder("control", "table", "work", "worker")
class Turns(Holder):
    """A worker's part in the traffic, kept in compiled form.

    Attributes
    ----------
    control : Control
    table : Stops
    work : int64 array, shape (B,)
        Of each block at this worker.
    worker : int
    """


@kernel(allocates=True)
def take_part(control, table, work, worker):
    """The turns of a worker."""
    return Turns(control, table, work, worker)


@kernel(allocates=True)
def take(turns, first, spins):
    """Take what has come next; the worker is at work then, if it is a block.

    Parameters
    ----------
    turns : Turns
    first, spins : int
        See `ring.pop_any`.

    Returns
    -------
    (source, id) : int64, int64
        (-1, EMPTY) if there was nothing.

    Raises
    ------
    RuntimeError
        If another holds the block.
    """
    control, worker = turns.control, turns.worker
    row = control.workers[worker]
    row[BEAT] += 1
    source, value = pop_any(control.rings[worker], first, spins)
    if value >= 0:
        if control.blocks[value, PLACE] != worker:
            raise RuntimeError("a block came to a worker that does not hold it")
        row[AT_WORK] = 1
    return source, value


@kernel(allocates=True)
def leave(turns, block, following):
    """Count a visit that is over, and send the block on, or home; return where it goes.

    Parameters
    ----------
    turns : Turns
    block : int
    following : int
        The next stop, if it is not home; -1: as the route has it.
    """
    control, table, worker = turns.control, turns.table, turns.worker
    n_stops = table.first[block + 1] - table.first[block]
    row = control.workers[worker]
    row[WORK] += turns.work[block]
    row[VISITS] += 1
    row[AT_WORK] = 0
    step = control.blocks[block, STEP] + 1
    control.blocks[block, STEP] = step
    if control.orders[ONE_PASS]:
        is_done = step % n_stops == 0
    else:
        is_done = step >= control.orders[TARGET_PASS] * n_stops
    if is_done or control.orders[RECALL]:
        following = np.int64(control.workers.shape[0])
    elif following < 0:
        following = next_stop(table, block, step, control)
    hand_on(control, worker, block, following)
    return following


@kernel
def hand_on(control, worker, block, following):
    """Give a block to another: its release publishes all that was written before, and its rows."""
    control.blocks[block, PLACE] = following
    try_push(control.rings[following, worker], block)
