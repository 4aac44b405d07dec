"""The protocol of one node, put together: what comes in goes to the part that it is for.

A node is lost when its connection has ended without BYE, or when nothing has come from it for
SILENCE seconds of this node's own looking: time in which this node did not look says nothing.
"""

from collections import deque
from collections.abc import Callable, Sequence

from esvi_shm.errors import PeerError
from esvi_shm.runtime.peers import Event, Rows
from esvi_shm.transports.protocol.agreement import Hello, compare, unpack_hello
from esvi_shm.transports.protocol.collectives import Collectives
from esvi_shm.transports.protocol.frames import Frame, FrameError, Kind
from esvi_shm.transports.protocol.hops import Hops
from esvi_shm.transports.protocol.orders import Order
from esvi_shm.transports.protocol.outbox import Outbox
from esvi_shm.transports.protocol.shares import Shares

#: Seconds between two signs of life.
BEAT = 1.0
#: Seconds without one after which a node is given up.
SILENCE = 10.0
#: Bytes of a reason that are passed on.
MOST_REASON = 2000


class Protocol:
    """One node's side of everything.

    Parameters
    ----------
    rank : int
    names : sequence of str
        What the nodes are called in messages, by rank.
    hello : Hello
    route : str
        One of `orders.ORDERS`.
    seed : int
    watch : bool
        Whether a node that says nothing is given up.

    Attributes
    ----------
    outbox : Outbox
        What is to be written.
    events : deque of Event
        What home is to be told.
    """

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        hello: Hello,
        route: str = "lap",
        seed: int = 0,
        watch: bool = True,
    ) -> None:
        self.rank, self.names, self.n_nodes = rank, list(names), len(names)
        self.outbox = Outbox(rank, self.n_nodes)
        self.events: deque[Event] = deque()
        self.collectives = Collectives(rank, self.n_nodes, self.outbox)
        self.hops: Hops | None = None
        self.shares: Shares | None = None
        self._order = Order(route, seed, self.n_nodes)
        self._watch = watch
        self._quiet = [0.0] * self.n_nodes
        self._parted = [False] * self.n_nodes
        self._last_tick: float | None = None
        self._next_beat = 0.0
        self._early: list[tuple[int, Frame]] = []
        self._hellos = {rank: hello}
        for j in self.outbox.others:
            self.outbox.send(j, Kind.HELLO, 0, hello.pack())
        self._handlers: dict[Kind, Callable[[int, int, memoryview], None]] = {
            Kind.HELLO: self._receive_hello,
            Kind.BEAT: lambda source, epoch, body: None,
            Kind.PART: lambda source, epoch, body: self.collectives.receive_part(source, body),
            Kind.TURN: lambda source, epoch, body: self.collectives.receive_turn(source, body),
            Kind.GRANT: lambda source, epoch, body: self.collectives.receive_grant(source, body),
            Kind.ERROR: self._receive_error,
            Kind.BYE: self._receive_bye,
        }

    def begin(
        self, rows: Rows, nodes_of: Sequence[Sequence[int]], spare: int | None = None
    ) -> None:
        """Say what blocks carry, and where they go; see `Peers.begin`."""
        self.collectives.begin(rows)
        self.shares = shares = Shares(self.n_nodes, self.outbox, rows)
        self.hops = hops = Hops(
            self.rank, self.n_nodes, self.outbox, self.events, shares, rows, nodes_of,
            self._order, spare,
        )  # fmt: skip
        self._handlers |= {
            Kind.SHARE: shares.receive,
            Kind.STATUS: hops.receive_status,
            Kind.BLOCK: hops.receive_block,
            Kind.ACCEPTED: lambda source, _, body: hops.receive_answer(source, body, True),
            Kind.REFUSED: lambda source, _, body: hops.receive_answer(source, body, False),
            Kind.RECALL: lambda source, epoch, _: hops.receive_recall(source, epoch),
            Kind.DONE: hops.receive_done,
        }
        early, self._early = self._early, []
        for source, frame in early:
            self.receive(source, frame)

    def receive(self, source: int, frame: Frame) -> None:
        """A frame has come.

        Raises
        ------
        PeerError
            If it makes no sense, or says that the fit has failed.
        """
        self._quiet[source] = 0.0
        handler = self._handlers.get(frame.kind)
        if handler is None:
            # Another node is further on than this one; of a release, no more than its opening.
            if len(self._early) > 100 * self.n_nodes:
                raise FrameError(f"{frame.kind.name} comes before the fit has begun")
            self._early.append((source, frame._replace(body=memoryview(bytes(frame.body)))))
            return
        handler(source, frame.epoch, frame.body)

    def tick(self, now: float) -> None:
        """Do what is due; to be called after what has come was received, and often.

        Raises
        ------
        PeerError
            If a node is lost or has parted while it is needed.
        """
        if self.hops is not None and self.shares is not None:
            self.shares.apply()
            self.hops.settle(now)
        self.beat(now)
        passed = 0.0 if self._last_tick is None else min(now - self._last_tick, 1.0)
        self._last_tick = now
        for j in self.outbox.others:
            self._quiet[j] += passed
            if self._quiet[j] > SILENCE and self.is_silent(j):
                raise PeerError(f"{self.names[j]} has said nothing for {SILENCE:.0f} s")
        if any(self._parted):
            for j in self.missing():
                if self._parted[j]:
                    raise PeerError(f"{self.names[j]} has left the fit while it was needed")

    def beat(self, now: float) -> None:
        """Give a sign of life, if it is time."""
        if now >= self._next_beat:
            self._next_beat = now + BEAT
            for j in self.outbox.others:
                if self.outbox.is_empty(j) and not self._parted[j]:
                    self.outbox.send(j, Kind.BEAT, 0)

    def lost(self, source: int, how: str = "its connection has ended") -> None:
        """The connection to a node has ended."""
        if not self._parted[source]:
            raise PeerError(f"{self.names[source]} is gone: {how}")

    def again(self, source: int) -> None:
        """The connection to a node is there again: say what may have been lost.

        No transport of today connects again; one that does needs no other protocol, as the
        simulated fits show.
        """
        assert self.hops is not None
        self.hops.again(source)

    def missing(self) -> list[int]:
        """The nodes that this one waits for."""
        waited = self.hops.missing() if self.hops is not None else []
        return sorted({*waited, *self.collectives.missing()})

    def part(self, error: str | None) -> None:
        """Tell all that this node goes, well or for a reason."""
        for j in self.outbox.others:
            if error is None:
                self.outbox.send_last(j, Kind.BYE, 0)
            else:
                self.outbox.clear(j)
                self.outbox.send(
                    j, Kind.ERROR, 0, error.encode("utf-8", "backslashreplace")[:MOST_REASON]
                )

    def is_silent(self, node: int) -> bool:
        """Whether a node has given no sign of life for too long since its first."""
        has_come = node in self._hellos and not self._parted[node]
        return self._watch and has_come and self._quiet[node] > SILENCE

    def has_parted(self, node: int) -> bool:
        """Whether a node has said that it goes."""
        return self._parted[node]

    @property
    def all_parted(self) -> bool:
        """Whether all others have said goodbye."""
        return all(self._parted[j] for j in self.outbox.others)

    @property
    def unheard(self) -> list[int]:
        """The nodes that have not said hello."""
        return [j for j in range(self.n_nodes) if j not in self._hellos]

    @property
    def is_agreed(self) -> bool:
        """Whether all nodes have said hello, and run the same fit.

        Raises
        ------
        PeerError
            If one does not.
        """
        if self.unheard:
            return False
        compare(self._hellos, self.names)
        return True

    def _receive_hello(self, source: int, epoch: int, body: memoryview) -> None:
        self._hellos[source] = unpack_hello(body)

    def _receive_error(self, source: int, epoch: int, body: memoryview) -> None:
        reason = str(body[:MOST_REASON], "utf-8", "replace")
        self._parted[source] = True
        raise PeerError(f"{self.names[source]} ended the fit: {reason}")

    def _receive_bye(self, source: int, epoch: int, body: memoryview) -> None:
        self._parted[source] = True
