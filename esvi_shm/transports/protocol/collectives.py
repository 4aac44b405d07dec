"""Calls that all nodes make in the same order, while no block is out.

gather      every node sends its part to all others
collect     every node sends its part to rank 0, which answers when it has all
sum_into    every node sends its array to rank 0, which adds them up in the order of the ranks
            and sends the sum to all: the same bits everywhere
rotate      every node sends the rows of the blocks that it holds to the next rank, block by
            block, and gives up each one's room when it has come:

    rank r                      rank r + 1
       <---- GRANT 0 of 2 -----    here, room for two
    TURN block a ------------->    writes it
    TURN block b ------------->    writes it
       <---- GRANT 1 of 3 -----    one has come, and one has gone on from here
    drops a

A node takes no more than WINDOW blocks beyond those that it has got rid of, so its memory stays
that of its blocks and a few. All nodes can never wait for each other in this: one of them would
have to have taken more than it sent, and so would all, but what one takes another has sent.

Calls are numbered. What comes for a call that this node has not made yet waits until it does.
"""

import struct
from collections.abc import Sequence

import numpy as np

from esvi_shm.runtime.peers import Rows
from esvi_shm.transports.protocol.frames import FrameError, Kind
from esvi_shm.transports.protocol.outbox import Outbox
from esvi_shm.transports.protocol.pieces import Landing, unpack, unpack_piece

#: Blocks that may come in a turn beyond those that have gone.
WINDOW = 2

_PART = struct.Struct("<Q")  # number of the call
_TURN = struct.Struct("<QII")  # number of the call, blocks that will come in all, block
_GRANT = struct.Struct("<QII")  # number of the call, blocks that have come, that may come


class _Turn:
    """A rotation under way at this node."""

    def __init__(self, held: Sequence[int]) -> None:
        self.held = list(held)
        self.n_sent = self.n_gone = self.n_allowed = 0
        self.expected: int | None = None  # blocks that will come, once known
        self.came: list[int] = []
        self.arriving: tuple[int, Landing] | None = None
        self.has_told = False


class Collectives:
    """The calls of one node; one is under way at most."""

    def __init__(self, rank: int, n_nodes: int, outbox: Outbox) -> None:
        self.rank, self.n_nodes, self._outbox = rank, n_nodes, outbox
        self._number = 0
        self._parts: dict[tuple[int, int], tuple[int, bytearray]] = {}
        self._grants: dict[int, tuple[int, int]] = {}
        self._turn: _Turn | None = None
        self._rows: Rows | None = None
        self._awaited: set[int] = set()

    def begin(self, rows: Rows) -> None:
        """Say what a rotation moves."""
        self._rows = rows

    def missing(self) -> list[int]:
        """The nodes that the call under way waits for."""
        if self._turn is not None:
            before = [] if self._all_came() else [(self.rank - 1) % self.n_nodes]
            return before + ([] if self._all_went() else [(self.rank + 1) % self.n_nodes])
        return [j for j in self._awaited if not self._is_whole(j)]

    # Parts.

    def send_part(self, part: bytes, to: Sequence[int], awaited: Sequence[int]) -> None:
        """Begin a call: send a part to some nodes, and wait for those of others."""
        self._number += 1
        self.go_on_with_part(part, to, awaited)

    def go_on_with_part(self, part: bytes, to: Sequence[int], awaited: Sequence[int]) -> None:
        """Go on in the same call."""
        for j in to:
            head = _PART.pack(self._number)
            self._outbox.send_long(j, Kind.PART, 0, head, [memoryview(part)], -1)
        self._awaited = set(awaited)

    def take_parts(self) -> dict[int, bytearray] | None:
        """The parts that are waited for, once all have come."""
        if not all(map(self._is_whole, self._awaited)):
            return None
        parts = {j: self._parts.pop((self._number, j))[1] for j in self._awaited}
        self._awaited = set()
        return parts

    def _is_whole(self, source: int) -> bool:
        total, part = self._parts.get((self._number, source), (1, b""))
        return len(part) == total

    def receive_part(self, source: int, body: memoryview) -> None:
        """A piece of another node's part, in order."""
        (number,), total, place, piece = unpack_piece(_PART, body)
        if number < self._number:
            return  # again
        if number > self._number + self.n_nodes + 1:
            raise FrameError(f"call {number} is far ahead of call {self._number}")
        # Memory is taken as the bytes come, not as their number is told.
        said, part = self._parts.setdefault((number, source), (total, bytearray()))
        if said != total or place > len(part):
            raise FrameError(f"a piece at {place} of {total} does not follow {len(part)} of {said}")
        if place == len(part):
            part += piece

    # Turns.

    def begin_turn(self, held: Sequence[int]) -> None:
        """Begin to rotate the blocks that are held here."""
        self._number += 1
        self._turn = _Turn(held)
        self._grant()
        self._go_on()

    def take_turn(self) -> list[int] | None:
        """The blocks that have come, once all have, and all of this node's have gone."""
        turn = self._turn
        if turn is None or not (self._all_came() and self._all_went()):
            return None
        self._turn = None
        self._grants.pop(self._number, None)
        return sorted(turn.came)

    def _all_went(self) -> bool:
        turn = self._turn
        assert turn is not None
        return turn.has_told and turn.n_gone == len(turn.held)

    def _all_came(self) -> bool:
        turn = self._turn
        assert turn is not None
        return turn.expected == len(turn.came)

    def _grant(self) -> None:
        """Tell the node before how many blocks have come, and how many may."""
        turn = self._turn
        assert turn is not None
        allowed = turn.n_gone + WINDOW if turn.n_gone < len(turn.held) else 2**32 - 1
        grant = _GRANT.pack(self._number, len(turn.came), allowed)
        self._outbox.send((self.rank - 1) % self.n_nodes, Kind.GRANT, 0, grant)

    def _go_on(self) -> None:
        """Send what the next node has room for; give up what has come there."""
        turn, rows = self._turn, self._rows
        if turn is None:
            return
        assert rows is not None
        n_there, n_allowed = self._grants.get(self._number, (0, 0))
        to, n_held = (self.rank + 1) % self.n_nodes, len(turn.held)
        if n_allowed and not n_held and not turn.has_told:
            head = _TURN.pack(self._number, 0, 0)
            self._outbox.send_long(to, Kind.TURN, 0, head, [], -1)
        turn.has_told = turn.has_told or n_allowed > 0
        while turn.n_sent < min(n_allowed, n_held):
            block = turn.held[turn.n_sent]
            head = _TURN.pack(self._number, n_held, block)
            self._outbox.send_long(to, Kind.TURN, 0, head, [rows.pack(block)], block)
            turn.n_sent += 1
        if n_there > turn.n_sent:
            raise FrameError(f"{n_there} blocks cannot have come of {turn.n_sent}")
        if n_there > turn.n_gone:
            while turn.n_gone < n_there:
                rows.drop(turn.held[turn.n_gone])
                turn.n_gone += 1
            self._grant()

    def receive_grant(self, source: int, body: memoryview) -> None:
        """The next node has taken blocks, or has room for more."""
        number, n_there, n_allowed = unpack(_GRANT, body)
        if source != (self.rank + 1) % self.n_nodes or number > self._number + self.n_nodes + 1:
            raise FrameError(f"node {source} has nothing to grant in call {number}")
        if number < self._number:
            return
        before = self._grants.get(number, (0, 0))
        self._grants[number] = max(before[0], n_there), max(before[1], n_allowed)
        if number == self._number:
            self._go_on()

    def receive_turn(self, source: int, body: memoryview) -> None:
        """A piece of a block that moves on to this node."""
        (number, n_blocks, block), total, place, piece = unpack_piece(_TURN, body)
        turn, rows = self._turn, self._rows
        if number < self._number or (number == self._number and turn is None):
            return  # again
        if turn is None or rows is None or number != self._number:
            raise FrameError(f"call {number} sends rows that were not asked for")
        if source != (self.rank - 1) % self.n_nodes or turn.expected not in (None, n_blocks):
            raise FrameError(f"node {source} sends rows out of turn")
        turn.expected = n_blocks
        if n_blocks == 0 or block in turn.came:
            return
        if turn.arriving is None:
            turn.arriving = block, Landing(rows, block, total)
            rows.hold(block)
        arriving, arrival = turn.arriving
        if arriving != block:
            raise FrameError(f"block {block} comes within block {arriving}")
        arrival.write(place, piece)
        if arrival.is_whole:
            arrival.finish()
            turn.arriving = None
            turn.came.append(block)
            self._grant()


def add_up(own: np.ndarray, parts: dict[int, bytearray]) -> np.ndarray:
    """The sum of arrays in the order of the ranks, of which rank 0 is `own`."""
    total = own.astype(np.float64, copy=True)
    for j in sorted(parts):
        if len(parts[j]) != own.nbytes:
            raise FrameError(f"node {j} sums {len(parts[j])} bytes, node 0 {own.nbytes}")
        total += np.frombuffer(parts[j], "<f8").reshape(own.shape)
    return total
