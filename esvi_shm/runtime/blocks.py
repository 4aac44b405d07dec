"""Where each block is: the words and rings through which ownership moves.

Home has index P, the workers 0 to P - 1. `rings[q, p]` is the ring from p to q, so that all
rings into q are adjacent rows. A block's id in a ring *is* its ownership: who popped it owns it
until it pushes it on, and the ring's release/acquire pair publishes the rows it wrote.

Every word has one writer at a time:

===========  ====================================================================
blocks       its holder: `PLACE` is q once the block is with q or on its way to
             q's ring, `STEP` counts its visits
visited      its holder: where the block has been, as its route needs it
workers      worker p its row: a sign of life, whether it is at work, what it has done,
             which process it is
orders       home, while no block is out (`RECALL` at any time); `ONE_PASS`: blocks come
             home after each pass, and not after `TARGET_PASS` of them; `RELEASING`: not
             all have been sent out yet
===========  ====================================================================

`PLACE` is written before the push that hands the block over, so after a dead worker its words
and its rings say where each block is. Negative ids in a ring are commands (`command_id`).
"""

from typing import NamedTuple

import numpy as np

from esvi_shm.shared.ring import LINE_WORDS, initialise, ring_words
from esvi_shm.shared.table import ArraySpec

# Columns of a row of `blocks`.
PLACE, STEP = 0, 1
# Columns of a row of `workers`.
BEAT, VISITS, WORK, AT_WORK, PID = 0, 1, 2, 3, 4
# Places of `orders`.
TARGET_PASS, RECALL, ENTROPY_FROM, ONE_PASS, RELEASING = 0, 1, 2, 3, 4

#: The command that ends a worker; the family's commands follow.
STOP = 0


class Control(NamedTuple):
    """The arrays of the `control` segment, for kernels; see `control_specs`."""

    rings: np.ndarray
    blocks: np.ndarray
    visited: np.ndarray
    workers: np.ndarray
    orders: np.ndarray


def command_id(index: int) -> int:
    """The negative ring id of a command, and back: it is its own inverse."""
    return -1 - index


def control_specs(n_workers: int, n_blocks: int) -> list[ArraySpec]:
    """The arrays of the `control` segment.

    A ring holds every block and one command, so a push cannot fail.
    """
    n, words = n_workers + 1, ring_words(n_blocks + 1)
    lines = -(-n_workers // (LINE_WORDS * 8))
    rest = "everyone, when handed the block"
    return [
        ArraySpec(
            "rings", (n, n, words), np.int64, "ring [q, p]: p pushes, q pops", "p and q",
            "one SPSC ring of block ids and commands for each ordered pair",
        ),
        ArraySpec(
            "blocks", (n_blocks, LINE_WORDS), np.int64, "the holder of the block", rest,
            "place and number of visits, a line each",
        ),
        ArraySpec(
            "visited", (n_blocks, lines * LINE_WORDS * 8), np.uint8, "the holder of the block",
            rest,
            "1 for each worker that the block has been at, this pass or just now; whole lines",
        ),
        ArraySpec(
            "workers", (n_workers, LINE_WORDS), np.int64, "worker p its row", "everyone",
            "sign of life, visits, work done, at work?, process; a line each",
        ),
        ArraySpec("orders", (LINE_WORDS,), np.int64, "home", "workers", "how far to go"),
    ]  # fmt: skip


def initialise_control(control: dict[str, np.ndarray], n_workers: int, n_blocks: int) -> None:
    """All rings empty, all blocks at home."""
    for ring in control["rings"].reshape(-1, control["rings"].shape[-1]):
        initialise(ring, n_blocks + 1)
    control["blocks"][:, PLACE] = n_workers
