"""The other nodes of a fit, as home sees them: what joins machines must do for it.

Every node runs a home of its own, with its own units and workers, and all homes play the same
scripts. While no block is out they meet in collective calls (`gather`, `collect`, `sum_into`,
`rotate`), which all make in the same order. In between, blocks hop from node to node, and take
their rows along: `release` lets them go, then each home visits what `poll` hands it until `REST`.

    home                        peers                          the other homes
    release ------------------> (every block at its owner)
    poll --------- VISIT b <--- b is here, its rows are written
    visited b ----------------> next node of the pass: rows --> poll: VISIT b
    poll ------------ REST <--- every block has made its passes and is back at its owner

A block visits each of its nodes once a pass. At rest block b is at node `b % n_nodes`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

#: Kinds of `Event`. `VISIT`: a block is here to be visited by this node's workers. `RECALL`: some
#: node has asked for the end of the passes; blocks are to come home after their current visit.
#: `REST`: every block of every node is at rest.
VISIT, RECALL, REST = "visit", "recall", "rest"


class Event(NamedTuple):
    """What has happened between nodes; `block` is -1 where none is meant."""

    kind: str
    block: int = -1


class Rows(Protocol):
    """What blocks carry, at this node; made by home, used by its peers."""

    def pack(self, block: int) -> memoryview:
        """A block's rows as bytes to send."""

    def most(self, block: int) -> int:
        """The most bytes that `pack` may give for a block, on any node."""

    def unpack(self, block: int, data: memoryview) -> None:
        """Write the rows that another node has packed.

        Raises ValueError for bytes that are no such.
        """

    def hold(self, block: int) -> None:
        """Make room for a block that is about to be written."""

    def drop(self, block: int) -> None:
        """Give the room of a block back: it has gone, for certain."""

    def contribution(self) -> np.ndarray:
        """What this node's units contribute to the sums that all nodes need (pi), float64."""

    def set_others(self, total: np.ndarray) -> None:
        """Take the sum of the other nodes' contributions, as new as known."""


class Peers(Protocol):
    """The other nodes of one fit."""

    rank: int
    n_nodes: int

    def descriptors(self) -> Sequence[int]:
        """File descriptors that become readable when there is something to poll for."""

    @property
    def nap(self) -> float:
        """Seconds that home may sleep at most when nothing happens: small without descriptors."""

    # While no block is out: all nodes, in the same order.

    def gather(self, part: bytes) -> list[bytes]:
        """Every node's part, by rank, on every node."""

    def collect(self, part: bytes) -> list[bytes]:
        """Every node's part, by rank, at node 0; nothing elsewhere."""

    def sum_into(self, array: np.ndarray) -> None:
        """Replace a float64 array by its sum over all nodes; the same bits on all of them."""

    def begin(self, rows: Rows, nodes_of: Sequence[Sequence[int]]) -> None:
        """Say once what blocks carry, and which nodes each has to visit (ascending)."""

    def rotate(self, held: Sequence[int]) -> list[int]:
        """Send the rows of these blocks to the next node, and return those that have come."""

    def release(self, n_passes: int) -> None:
        """Begin `n_passes` passes of every block."""

    # While blocks are out.

    def poll(self, seconds: float) -> list[Event]:
        """What has happened, waiting so long at most where nothing has."""

    def visited(self, block: int) -> None:
        """A block that `VISIT` handed over has made its visits here (or was recalled)."""

    def recall(self) -> None:
        """Ask every node to end the passes."""

    def close(self, error: str | None = None) -> None:
        """Part from the others: well, or for a reason that they are told and end with."""
