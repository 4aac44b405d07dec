"""What a transport is: a module of this folder with `check` and `connect`, and the link it makes.

A link moves bytes to and from each other node, in order and without loss, and never waits. It
knows nothing of what they mean.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from esvi_shm.errors import ParameterError
from esvi_shm.transports.protocol.frames import Buffer
from esvi_shm.transports.protocol.orders import ORDERS

#: Bytes that a link is given at once, about; and the most that it hands over at once.
BATCH = 2**19


@dataclass(frozen=True)
class Options:
    """How the nodes of a fit find each other.

    Attributes
    ----------
    rank : int or None
        This node's number, from 0; None where the transport tells it (mpi).
    nodes : tuple of str
        By rank: of tcp HOST:PORT, of loopback names that nobody else uses; of mpi none.
    key_file : str or None
        File with the key that all nodes have, of mode 0600 (tcp).
    wait : float
        Seconds until a node that has not come is given up.
    route : str
        How blocks choose the next node: lap or balanced.
    seed : int
        By which orders are drawn.

    Raises
    ------
    ParameterError
    """

    rank: int | None = None
    nodes: tuple[str, ...] = ()
    key_file: str | None = None
    wait: float = 60.0
    route: str = "lap"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.route not in ORDERS:
            rule = f"must be one of {', '.join(ORDERS)} on several nodes"
            raise ParameterError("route", rule, self.route)
        if not 0 < self.wait < float("inf"):
            raise ParameterError("node_wait", "must be a number of seconds above 0", self.wait)

    def placed(self) -> tuple[int, tuple[str, ...]]:
        """Rank and nodes, where the transport needs both.

        >>> Options(rank=1, nodes=("a", "b")).placed()
        (1, ('a', 'b'))
        """
        if len(self.nodes) < 1:
            raise ParameterError("nodes", "must name every node of this transport", self.nodes)
        if self.rank is None or not 0 <= self.rank < len(self.nodes):
            rule = f"must be from 0 to {len(self.nodes) - 1} with these nodes"
            raise ParameterError("rank", rule, self.rank)
        twice = sorted({name for name in self.nodes if self.nodes.count(name) > 1})
        if twice:
            raise ParameterError("nodes", "must each be another", twice[0])
        return self.rank, self.nodes


class Link(Protocol):
    """Byte streams from one node to all others.

    Attributes
    ----------
    rank, n_nodes : int
    names : sequence of str
        What nodes are called in messages, by rank.
    nap : float
        Seconds after which it has to be looked at even if no descriptor is readable; it may change.
    threads : bool
        Whether another thread may write (never two at once).
    """

    rank: int
    n_nodes: int
    names: Sequence[str]
    nap: float
    threads: bool

    def key(self, sender: int, receiver: int) -> bytes | None:
        """The key of the frames of one direction, this node being one end; None: no MAC."""

    def write(self, to: int, buffers: Sequence[Buffer]) -> int:
        """Take bytes for a node, from the first on; how many, which may be none for now.

        Raises OSError where the connection has ended.
        """

    def read(self) -> Iterator[tuple[int, memoryview | None]]:
        """What has come, by its sender, at most BATCH or so from each; None: it has ended."""

    def descriptors(self) -> Sequence[int]:
        """File descriptors that become readable when there is something to read, or to write."""

    def close(self, was_told: bool) -> None:
        """End all connections, and leave nothing behind.

        `was_told`: all have been written to last, and none is known to be gone without a word.
        """
