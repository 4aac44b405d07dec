"""Messages on their way out, by node: short ones first, then pieces of rows.

Nothing is copied: what goes out in pieces must stay as it is until it is written, which the
protocol sees to. So the queues hold no more memory than the blocks that they are about.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from esvi_shm.transports.protocol.frames import PIECE, Buffer, Kind
from esvi_shm.transports.protocol.pieces import WHERE, flat


class Message(NamedTuple):
    """What a frame will say; `tag` says which block it is a piece of."""

    kind: Kind
    epoch: int
    parts: Sequence[Buffer]
    tag: int = -1


class Outbox:
    """The messages of one node to the others.

    Attributes
    ----------
    changeable : set of int
        Nodes to which pieces were being written of a block that may change before they are all
        written; whoever writes copies what is left of them.
    """

    def __init__(self, rank: int, n_nodes: int) -> None:
        self.changeable: set[int] = set()
        self.others = [j for j in range(n_nodes) if j != rank]
        self._short: list[deque[Message]] = [deque() for _ in range(n_nodes)]
        self._long: list[deque[Message]] = [deque() for _ in range(n_nodes)]

    def send(self, to: int, kind: Kind, epoch: int, *parts: Buffer) -> None:
        """A short message to one node."""
        self._short[to].append(Message(kind, epoch, parts))

    def send_last(self, to: int, kind: Kind, epoch: int, *parts: Buffer) -> None:
        """A short message after all that is waiting."""
        self._long[to].append(Message(kind, epoch, parts))

    def send_newest(self, to: int, kind: Kind, epoch: int, *parts: Buffer) -> None:
        """A short message in place of those of its kind that are not yet written."""
        self._short[to] = deque(m for m in self._short[to] if m.kind != kind)
        self.send(to, kind, epoch, *parts)

    def send_long(
        self, to: int, kind: Kind, epoch: int, head: bytes, views: Sequence[memoryview], tag: int
    ) -> None:
        """Bytes in pieces; each is told, after `head`, how many there are, and its own place."""
        total, place = sum(view.nbytes for view in views), 0
        for view in map(flat, views):
            for start in range(0, view.nbytes, PIECE):
                piece = view[start : start + PIECE]
                where = head + WHERE.pack(total, place)
                self._long[to].append(Message(kind, epoch, (where, piece), tag))
                place += piece.nbytes
        if not total:
            self._long[to].append(Message(kind, epoch, (head + WHERE.pack(0, 0),), tag))

    def next(self, to: int) -> Message | None:
        """The message that is to be written next, if there is one."""
        for queue in (self._short[to], self._long[to]):
            if queue:
                return queue.popleft()
        return None

    def forget(self, to: int, tag: int) -> None:
        """Leave out the pieces of a block that are not yet written."""
        self._long[to] = deque(m for m in self._long[to] if m.tag != tag)
        self.changeable.add(to)

    def clear(self, to: int) -> None:
        """Leave out all that is not yet written."""
        self._short[to].clear()
        self._long[to].clear()

    def is_empty(self, to: int) -> bool:
        """Whether nothing is waiting to be written."""
        return not self._short[to] and not self._long[to]
