"""Blocks on their way from node to node: one owner each, and room before they go.

    here                                         at the target
    WAITING --- target has room ---> SENT        BLOCK pieces ---> ARRIVING --- whole ---> VISIT
       ^                              |                                |
       |  REFUSED: no room after all  |  <-----------------------------+  ACCEPTED: it is yours
       +------------------------------+  rows dropped

**Exactly once.** Every attempt to send a block has a number, which travels with the block and
only grows. The sender keeps the rows until it knows that they are accepted. The receiver decides
each attempt once; one that comes again is answered again, and changes nothing. The block that
comes back under a higher number has been accepted, whatever answer is still on its way.

**Room.** A node has a place for each block that it owns, kept free for that block, and `spare`
places for others, whichever they are. It says with its other news how many of these are free, and
a sender counts what it has sent since; the receiver alone decides.

**Work moves on.** A block that finds no room at any node that it has yet to visit goes home
after a while, where its place is free, and takes nobody else's. So every block in a spare place
can leave it, spare places become free, and from home a block goes only where it has a visit to
make: there are at most two hops for a visit, and nobody waits for ever.

**Rest.** A block that has made its passes goes to its owner, which counts it as finished; counts
only grow within a release, and rank 0 says DONE when they sum up to all blocks. By then no block
is anywhere else, so it is never early. Each node then sends its final share, and is at rest when
it has everybody's.
"""

import struct
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from esvi_shm.errors import PeerError
from esvi_shm.runtime.layout import FEWEST_SPARE, MOST_HELD
from esvi_shm.runtime.peers import RECALL, REST, VISIT, Event, Rows
from esvi_shm.transports.protocol.frames import FrameError, Kind
from esvi_shm.transports.protocol.orders import Order
from esvi_shm.transports.protocol.outbox import Outbox
from esvi_shm.transports.protocol.pieces import Landing, unpack, unpack_piece
from esvi_shm.transports.protocol.shares import Phase, Shares

#: Seconds that a block waits in a spare place before it goes home.
PATIENCE = 0.02
#: Seconds between two times that news are sent to all.
NEWS = 0.02
#: Of so few free places every change is told at once; of more a sender may know old numbers.
FEW = 2

_STATUS = struct.Struct("<QIII")  # stamp, queue length, free places, blocks finished
_ANSWER = struct.Struct("<IQ")  # block, attempt
_DONE = struct.Struct("<B")  # whether the release was recalled


class Trip:
    """A block that is here: what it has done in this release, and what is done with it now."""

    __slots__ = ("arrival", "attempt", "passes", "since", "state", "to", "visited")

    def __init__(self, attempt: int = 0) -> None:
        self.attempt, self.passes, self.visited = attempt, 0, 0
        self.state, self.to, self.since = "rest", -1, 0.0
        self.arrival: Landing | None = None


class Status:
    """What another node has said of itself."""

    def __init__(self) -> None:
        self.stamp, self.epoch, self.queue, self.free, self.finished = 0, 0, 0, 0, 0


class Hops:
    """The blocks of one node. See the module for how they move.

    Parameters
    ----------
    rank, n_nodes : int
    outbox : Outbox
    events : deque of Event
        What home is told, appended to.
    shares : Shares
    rows : Rows
    nodes_of : sequence of sequence of int
    order : Order
    spare : int, optional
        Places for blocks of others; by default so many that the rows of those with the most are
        within MOST_HELD, and at least FEWEST_SPARE.
    """

    def __init__(
        self,
        rank: int,
        n_nodes: int,
        outbox: Outbox,
        events: deque[Event],
        shares: Shares,
        rows: Rows,
        nodes_of: Sequence[Sequence[int]],
        order: Order,
        spare: int | None = None,
    ) -> None:
        self.rank, self.n_nodes, self.n_blocks = rank, n_nodes, len(nodes_of)
        self._outbox, self._events, self._shares, self._rows = outbox, events, shares, rows
        self._stops = [sum(1 << int(j) for j in nodes) for nodes in nodes_of]
        self._order = order
        owned = range(rank, self.n_blocks, n_nodes)
        self.spare = self._places(owned) if spare is None else spare
        self.trips = {b: Trip() for b in owned}
        self._head = struct.Struct(f"<IQI{(n_nodes + 7) // 8}s")  # block, attempt, passes, visited
        self._decided: dict[int, tuple[int, bool]] = {}  # block: last attempt here, accepted
        self.statuses = [Status() for _ in range(n_nodes)]
        self._flying = [0] * n_nodes  # blocks sent to spare places of a node, not answered
        self._stamp = 0
        self._told: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)] * n_nodes
        self._next_news = 0.0
        self.epoch = self.n_passes = self.finished = 0
        self.is_out = False
        self._begun = self._recalled = self._asked = False
        self._done: tuple[int, bool] = (0, False)  # last release that is done, whether recalled
        self._ahead = (0, 0)  # a recall that came before its release
        self._is_dirty = False

    # What home says.

    def release(self, n_passes: int) -> None:
        """Begin a release; blocks go once the opening shares of all nodes are known."""
        assert not self.is_out and sorted(self.trips) == list(
            range(self.rank, self.n_blocks, self.n_nodes)
        )
        self.epoch += 1
        self.n_passes, self.finished, self.is_out = n_passes, 0, True
        self._begun = self._recalled = self._asked = False
        for trip in self.trips.values():
            trip.state, trip.passes, trip.visited = "waiting", 0, 0
        self._tell_all()
        self._shares.announce(Phase.OPEN, self.epoch)
        self._is_dirty = True
        if self._ahead[0] == self.epoch:
            self._hear_recall(self._ahead[1], self.epoch)

    def visited(self, block: int) -> None:
        """A visit of a block here is over."""
        trip = self.trips.get(block)
        if trip is None or trip.state != "visit":
            raise PeerError(f"block {block} is not on a visit here")
        trip.visited |= 1 << self.rank
        trip.state = "waiting"
        self._onward(block, trip)

    def recall(self) -> None:
        """Ask rank 0 for the end of the passes, which then tells all: so all hear it, or none."""
        if self.is_out and not self._asked:
            self._asked = True
            self._hear_recall(self.rank, self.epoch)

    # What other nodes say.

    def receive_block(self, source: int, epoch: int, body: memoryview) -> None:
        """A piece of a block's rows."""
        (block, attempt, passes, visited), total, place, piece = unpack_piece(self._head, body)
        self._check_block(block)
        known, accepted = self._decided.get(block, (0, True))
        trip = self.trips.get(block)
        if attempt < known or (attempt == known and not (trip and trip.state == "arriving")):
            # Decided long ago: the answer has not come, or this has come twice.
            accepted = accepted or attempt < known
            self._answer(source, block, attempt, accepted)
            return
        if attempt > known:
            if epoch != self.epoch or not self.is_out:
                raise FrameError(f"block {block} is of release {epoch}, here is {self.epoch}")
            if trip is not None:
                if trip.state != "sent" or trip.attempt >= attempt:
                    raise FrameError(f"block {block} is here already")
                self._accepted(block, trip)  # it has been there, if it comes back
            if not self._is_own(block) and self.n_free <= 0:
                self._decided[block] = attempt, False
                self._answer(source, block, attempt, False)
                return
            arrival = Landing(self._rows, block, total)
            self._decided[block] = attempt, True
            trip = self.trips[block] = Trip(attempt)
            trip.passes, trip.visited = passes, int.from_bytes(visited, "little")
            trip.state, trip.arrival = "arriving", arrival
            self._rows.hold(block)
        assert trip is not None and trip.arrival is not None
        trip.arrival.write(place, piece)
        if trip.arrival.is_whole:
            trip.arrival.finish()
            trip.arrival, trip.state = None, "waiting"
            self._answer(source, block, attempt, True)
            self._onward(block, trip)

    def receive_answer(self, source: int, body: memoryview, accepted: bool) -> None:
        """ACCEPTED or REFUSED."""
        block, attempt = unpack(_ANSWER, body)
        self._check_block(block)
        trip = self.trips.get(block)
        if trip is None or trip.state != "sent" or (trip.to, trip.attempt) != (source, attempt):
            return  # an answer that comes again, or after the block itself
        if accepted:
            self._accepted(block, trip)
        else:
            self._outbox.forget(source, block)
            self._land(block, trip)
            self.statuses[source].free = 0  # until it says something else
            trip.state = "waiting"
            self._onward(block, trip)
        self._is_dirty = True

    def receive_status(self, source: int, epoch: int, body: memoryview) -> None:
        """How a node is; the newest word counts."""
        stamp, queue, free, finished = unpack(_STATUS, body)
        status = self.statuses[source]
        if stamp > status.stamp:
            status.stamp, status.epoch, status.queue = stamp, epoch, queue
            status.free, status.finished = free, finished
            self._is_dirty = True

    def receive_recall(self, source: int, epoch: int) -> None:
        """Of another node: rank 0 is asked; of rank 0: it is so."""
        self._hear_recall(source, epoch)
        self._is_dirty = True

    def receive_done(self, source: int, epoch: int, body: memoryview) -> None:
        """Rank 0 says that all blocks have come home."""
        (recalled,) = unpack(_DONE, body)
        if source != 0 or epoch > self.epoch:
            raise FrameError(f"release {epoch} cannot be done, here is {self.epoch}")
        if epoch == self.epoch and self._done[0] < epoch:
            self._hear_done(bool(recalled))

    # What follows.

    def settle(self, now: float) -> None:
        """Do what has become possible; after every message, and now and then."""
        if self._is_dirty or now >= self._next_news:
            self._is_dirty = False
            self._begin()
            self._move_on(now)
            self._count()
        if now >= self._next_news:
            self._next_news = now + NEWS
            if self.is_out:
                for j in self._outbox.others:
                    # A node that takes nothing would only have more and more to take.
                    if self._outbox.is_empty(j):
                        self._shares.along(j, self.epoch)
                        self._tell(j)
        if self.is_out and self._done[0] == self.epoch:
            if self._shares.all_reached(Phase.FINAL, self.epoch):
                self._shares.apply()
                self.is_out = False
                self._events.append(Event(REST))

    def again(self, to: int) -> None:
        """Say everything once more to a node that may have lost it."""
        self._outbox.clear(to)
        self._told[to] = (0, 0, 0, 0)
        self._tell(to)
        self._shares.again(to)
        if self._asked and to == 0:
            self._outbox.send(to, Kind.RECALL, self.epoch)
        if self.rank == 0:
            if self._recalled:
                self._outbox.send(to, Kind.RECALL, self.epoch)
            if self._done[0]:
                self._outbox.send(to, Kind.DONE, self._done[0], _DONE.pack(self._done[1]))
        for block, trip in self.trips.items():
            if trip.state == "sent" and trip.to == to:
                self._put(block, trip)

    def missing(self) -> list[int]:
        """The nodes without which this one cannot go on."""
        if not self.is_out:
            return []
        return self._shares.missing(Phase.FINAL, self.epoch)

    def _places(self, owned: Sequence[int]) -> int:
        sizes = [self._rows.most(b) for b in range(self.n_blocks)]
        left = MOST_HELD * sum(sizes) / self.n_nodes - sum(sizes[b] for b in owned)
        others = sorted((sizes[b] for b in range(self.n_blocks) if b not in owned), reverse=True)
        return max(sum(total <= left for total in accumulate(others)), FEWEST_SPARE)

    @property
    def n_free(self) -> int:
        """Spare places that nobody has."""
        return self.spare - sum(not self._is_own(b) for b in self.trips)

    def _is_own(self, block: int) -> bool:
        return block % self.n_nodes == self.rank

    def _check_block(self, block: int) -> None:
        if block >= self.n_blocks:
            raise FrameError(f"a block must be below {self.n_blocks}, got {block}")

    def _begin(self) -> None:
        if self.is_out and not self._begun:
            self._begun = self._shares.all_reached(Phase.OPEN, self.epoch)
            if self._begun:
                self._shares.apply()

    def _move_on(self, now: float) -> None:
        """Try the blocks that wait; the one that has waited longest first."""
        for block, trip in list(self.trips.items()):
            if trip.state == "waiting":
                self._onward(block, trip)
                if trip.state == "waiting" and self._begun:
                    trip.since = trip.since or now
                    if now - trip.since >= PATIENCE and not self._is_own(block):
                        self._send(block, trip, block % self.n_nodes)

    def _onward(self, block: int, trip: Trip) -> None:
        """Where a block goes from here, if it can."""
        if not self._begun:
            return
        stops, owner = self._stops[block], block % self.n_nodes
        if not self._recalled and trip.visited & stops == stops:
            trip.passes, trip.visited = (trip.passes + 1 if stops else self.n_passes), 0
        if self._recalled or trip.passes >= self.n_passes:
            if owner != self.rank:
                self._send(block, trip, owner)
            else:
                trip.state = "rest"
                self.finished += 1
                self._is_dirty = True
            return
        left = [j for j in range(self.n_nodes) if (stops & ~trip.visited) >> j & 1]
        if self.rank in left:
            trip.state = "visit"
            self._events.append(Event(VISIT, block))
            return
        is_last = trip.passes == self.n_passes - 1
        for j in self._order.of(block, trip.passes, is_last, left, self._queue):
            if j == owner or self._has_room(j):
                self._send(block, trip, j)
                return

    def _queue(self, node: int) -> int:
        return self.statuses[node].queue + self._flying[node]

    def _has_room(self, node: int) -> bool:
        status = self.statuses[node]
        return status.epoch == self.epoch and status.free > self._flying[node]

    def _send(self, block: int, trip: Trip, to: int) -> None:
        trip.attempt += 1
        trip.state, trip.to, trip.since = "sent", to, 0.0
        if block % self.n_nodes != to:
            self._flying[to] += 1
        self._put(block, trip)
        self._hint(to)

    def _put(self, block: int, trip: Trip) -> None:
        self._shares.along(trip.to, self.epoch)
        visited = trip.visited.to_bytes((self.n_nodes + 7) // 8, "little")
        head = self._head.pack(block, trip.attempt, trip.passes, visited)
        packed = self._rows.pack(block)
        self._outbox.send_long(trip.to, Kind.BLOCK, self.epoch, head, [packed], block)

    def _land(self, block: int, trip: Trip) -> None:
        """An attempt is decided."""
        if block % self.n_nodes != trip.to:
            self._flying[trip.to] -= 1

    def _accepted(self, block: int, trip: Trip) -> None:
        """The block has another owner for certain."""
        was_full = self.n_free <= 0
        self._land(block, trip)
        del self.trips[block]
        self._rows.drop(block)
        if was_full and self.n_free > 0:
            self._tell_all()  # someone may wait for this

    def _answer(self, to: int, block: int, attempt: int, accepted: bool) -> None:
        kind = Kind.ACCEPTED if accepted else Kind.REFUSED
        self._outbox.send(to, kind, self.epoch, _ANSWER.pack(block, attempt))
        self._hint(to)

    def _hear_recall(self, source: int, epoch: int) -> None:
        if epoch > self.epoch:
            self._ahead = epoch, source  # of a release that this node has yet to begin
        if epoch != self.epoch or not self.is_out or self._recalled or self._done[0] == epoch:
            return
        if self.rank != 0 and source != 0:
            self._outbox.send(0, Kind.RECALL, epoch)
            return
        self._recalled = True
        self._events.append(Event(RECALL))
        if self.rank == 0:
            for j in self._outbox.others:
                self._outbox.send(j, Kind.RECALL, epoch)

    def _count(self) -> None:
        """Of rank 0: whether the release is done; of the others: tell it how far they are."""
        # Before all have begun, DONE would reach nodes that have not yet heard of this release.
        if not self._begun or not self.is_out or self._done[0] == self.epoch:
            return
        if self.rank != 0:
            if self._told[0][3] != self.finished:
                self._tell(0)
            return
        others = (self.statuses[j] for j in self._outbox.others)
        total = self.finished + sum(s.finished for s in others if s.epoch == self.epoch)
        if total == self.n_blocks:
            for j in self._outbox.others:
                self._outbox.send(j, Kind.DONE, self.epoch, _DONE.pack(self._recalled))
            self._hear_done(self._recalled)

    def _hear_done(self, recalled: bool) -> None:
        self._done = self.epoch, recalled
        if recalled and not self._recalled:
            self._recalled = True
            self._events.append(Event(RECALL))
        # All blocks are with their owners: what was sent has come, and its answer need not.
        for block, trip in list(self.trips.items()):
            if trip.state == "sent":
                self._accepted(block, trip)
        self._shares.announce(Phase.FINAL, self.epoch)

    def _tell(self, to: int) -> None:
        """Say how this node is, if that is news."""
        queue = sum(trip.state in ("visit", "arriving") for trip in self.trips.values())
        news = (self.epoch, queue, max(self.n_free, 0), self.finished)
        if self._told[to] != news and to != self.rank:
            self._told[to] = news
            self._stamp += 1
            status = _STATUS.pack(self._stamp, *news[1:])
            self._outbox.send_newest(to, Kind.STATUS, self.epoch, status)

    def _hint(self, to: int) -> None:
        """Say how this node is, if it matters before the next news are due."""
        if self._order.name == "balanced" or min(self.n_free, self._told[to][2]) <= FEW:
            self._tell(to)

    def _tell_all(self) -> None:
        for j in self._outbox.others:
            self._tell(j)
