"""A cluster that is only modelled: what each node decides is the protocol's own code.

A node is the protocol as it runs in a fit, and three things that are only timed:

workers  a block that is here visits each of them, the one with the fewest blocks waiting first;
         a visit takes what its pairs, words and documents take, with a little noise
home     one processor that takes frames, ticks, writes frames, packs and unpacks rows; while it
         is busy everything else waits for it, and a worker without a core of its own stands still
wire     frames leave a node one after the other, and arrive one after the other

Rows are not moved: a block's are so many bytes divided by `SCALE`, cut in pieces that are smaller
by the same factor, so frames are as many as in a fit, and are counted at their full length.

Nothing here measures: seconds are those of `Costs`.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from bench.cluster_shape import Load
from esvi_shm.runtime.peers import REST, VISIT
from esvi_shm.transports.contract import BATCH
from esvi_shm.transports.protocol import Protocol, outbox
from esvi_shm.transports.protocol.agreement import Hello
from esvi_shm.transports.protocol.frames import HEADER, PIECE, Frame, Kind
from esvi_shm.transports.protocol.hops import NEWS

#: Bytes of rows that one byte stands for. A share of up to 32 nodes is in one piece.
SCALE = 512
#: Bytes that wait on a node's wire at most before home keeps the rest.
ON_THE_WIRE = 4 * BATCH

_ROWS = memoryview(bytes(2**24))
_ACT, _ARRIVAL, _VISITED = range(3)


@dataclass(frozen=True)
class Costs:
    """What takes how long; seconds.

    Attributes
    ----------
    latency, bandwidth : float
        Of the wire; bytes a second out of a node, and into one.
    look, frame, byte, packing : float
        Of home's processor: a look around, a frame taken or written, a byte of it on the wire, a
        byte of rows (all of them, not the packed ones) packed or unpacked.
    noise : float
        Standard deviation of the logarithm of a visit's time.
    own_core : bool
        Whether home has a core that no worker needs.
    """

    latency: float
    bandwidth: float
    look: float
    frame: float
    byte: float
    packing: float
    noise: float
    own_core: bool


class _Rows:
    """See `peers.Rows`: of blocks nothing but the length; of the sums, how old they are."""

    def __init__(self, wire_bytes: np.ndarray, n_nodes: int) -> None:
        self.lengths = np.maximum(wire_bytes // SCALE, 1).astype(int).tolist()
        # By node: when its newest contribution was made, and the pairs it has done until then.
        self.own = np.zeros((2, n_nodes))
        self.others = np.zeros((2, n_nodes))
        self.n_hops = 0

    def pack(self, block: int) -> memoryview:
        return _ROWS[: self.lengths[block]]

    def most(self, block: int) -> int:
        return self.lengths[block]

    def unpack(self, block: int, data: memoryview) -> None:
        pass

    def hold(self, block: int) -> None:
        self.n_hops += 1

    def drop(self, block: int) -> None:
        pass

    def contribution(self) -> np.ndarray:
        return self.own

    def set_others(self, total: np.ndarray) -> None:
        self.others = total.reshape(self.others.shape)


class _Node:
    """A node's protocol, and what it and its workers are at."""

    def __init__(self, rank: int, model: "Cluster") -> None:
        n, load = model.n_nodes, model.load
        self.rank, self.model = rank, model
        self.rows = _Rows(load.wire_bytes, n)
        names = [f"node {j}" for j in range(n)]
        hello = Hello(n, bytes(32), "1")
        self.protocol = Protocol(rank, names, hello, "lap", model.seed, watch=False)
        self.protocol.begin(self.rows, [range(n)] * len(load.pairs))
        assert self.protocol.hops is not None
        self.hops = self.protocol.hops
        self.inbox: list[tuple[int, Frame, int, float]] = []
        self.came: deque[int] = deque()
        self.next_act = np.inf
        self.free = self.wire_free = self.arrival_free = 0.0
        self.home_busy = self.sent = 0.0
        n_workers = model.n_workers
        self.waiting = [0] * n_workers  # blocks at each worker, with the one at work on
        self.queues: list[deque[int]] = [deque() for _ in range(n_workers)]
        self.until = [0.0] * n_workers
        self.left: dict[int, list[int]] = {}  # workers that each block has yet to visit
        self.turn = 0
        for j in self.protocol.outbox.others:
            self.protocol.outbox.clear(j)  # of hellos: they have agreed

    def act(self, now: float) -> None:
        """One round of home: take what has come, tick, hand on a block that is back, write."""
        costs, protocol = self.model.costs, self.protocol
        clock = now + costs.look
        inbox, self.inbox = self.inbox, []
        for source, frame, n_bytes, packing in inbox:
            clock += costs.frame + n_bytes * costs.byte + packing
            protocol.receive(source, frame)
        protocol.tick(clock)
        self._hear(clock)
        clock = self._write(clock)
        is_back = bool(self.came)
        if is_back:
            self.hops.visited(self.came.popleft())
            clock = self._write(clock)
            self._hear(clock)
        self.home_busy += clock - now
        self.free = clock
        if not costs.own_core:
            self._stand_still(clock - now)
        self.wake(clock if is_back else clock + NEWS)

    def wake(self, when: float) -> None:
        """See that home acts at a time, or before."""
        if when < self.next_act:
            self.next_act = when
            self.model.push(when, _ACT, self, None)

    def _hear(self, now: float) -> None:
        events = self.protocol.events
        while events:
            kind, block = events.popleft()
            if kind == VISIT:
                self.model.look_at_shares(self, now)
                self.left[block] = list(range(self.model.n_workers))
                self.go_on(block, now)
            elif kind == REST:
                self.model.rested(now)

    def _write(self, now: float) -> float:
        """Put frames on the wire while it takes some; returns when home has done so."""
        model, costs, outbox = self.model, self.model.costs, self.protocol.outbox
        others = outbox.others
        for i in range(len(others)):
            to, n_written = others[(i + self.turn) % len(others)], 0
            while not outbox.is_empty(to) and n_written < BATCH:
                if (self.wire_free - now) * costs.bandwidth > ON_THE_WIRE:
                    self.wake(self.wire_free - ON_THE_WIRE / 2 / costs.bandwidth)
                    return now
                message = outbox.next(to)
                assert message is not None
                body = b"".join(bytes(part) for part in message.parts)
                n_bytes, packing = len(body), 0.0
                if message.kind is Kind.BLOCK:
                    rows = len(message.parts[-1])
                    n_bytes += rows * (SCALE - 1)
                    # Of the whole block, piece by piece.
                    packing = rows * SCALE * model.load.dense_by_wire * costs.packing
                elif message.kind is Kind.SHARE:
                    n_bytes = n_bytes * 8 * model.load.n_topics // self.rows.own.nbytes
                n_bytes += HEADER.size
                n_written += n_bytes
                now += costs.frame + n_bytes * costs.byte + packing
                self.wire_free = max(self.wire_free, now) + n_bytes / costs.bandwidth
                self.sent += n_bytes
                frame = Frame(message.kind, message.epoch, memoryview(body))
                model.carry(self.rank, to, frame, n_bytes, packing, self.wire_free)
        self.turn += 1
        if not all(map(outbox.is_empty, others)):
            self.wake(now)
        return now

    # Workers.

    def go_on(self, block: int, now: float) -> None:
        """Send a block to the worker with the fewest waiting, or home."""
        left = self.left[block]
        if not left:
            del self.left[block]
            self.came.append(block)
            self.wake(max(now, self.free))
            return
        fewest = min(self.waiting[p] for p in left)
        ties = [p for p in left if self.waiting[p] == fewest]
        p = ties[int(self.model.draw.random() * len(ties))]
        left.remove(p)
        self.waiting[p] += 1
        self.queues[p].append(block)
        if self.waiting[p] == 1:
            self._begin(p, now)

    def _begin(self, p: int, now: float) -> None:
        model = self.model
        seconds = model.load.seconds[self.queues[p][0]]
        if model.costs.noise:
            seconds *= model.draw.lognormvariate(0.0, model.costs.noise)
        model.busy += seconds
        self.until[p] = now + seconds
        model.push(now + seconds, _VISITED, self, p)

    def visited(self, p: int, now: float) -> None:
        """A visit is over, unless home has had its core in between."""
        if self.until[p] > now:
            self.model.push(self.until[p], _VISITED, self, p)
            return
        block = self.queues[p].popleft()
        self.waiting[p] -= 1
        self.model.made(self, block, now)
        self.go_on(block, now)
        if self.queues[p]:
            self._begin(p, now)

    def _stand_still(self, seconds: float) -> None:
        """Home has had the core of one of the workers, each in turn."""
        busy = [p for p, n in enumerate(self.waiting) if n]
        if len(busy) == len(self.waiting):
            self.until[busy[self.turn % len(busy)]] += seconds


class Cluster:
    """Nodes, and what happens when. Made and run by `simulate`."""

    def __init__(self, load: Load, n_nodes: int, n_workers: int, costs: Costs, seed: int) -> None:
        self.load, self.n_nodes, self.n_workers = load, n_nodes, n_workers
        self.costs, self.seed, self.draw = costs, seed, random.Random(seed)
        self._queue: list[tuple[float, int, int, _Node, Any]] = []
        self._n_events = 0
        self.busy = self.end = 0.0
        self.n_visits = self.n_rested = 0
        self.marks: list[tuple[float, float]] = []  # (time, pairs done) of each hundredth
        self.done = np.zeros(n_nodes)  # pairs by node, now
        self.ages: list[float] = []
        self.unseen: list[float] = []
        self.nodes = [_Node(j, self) for j in range(n_nodes)]

    def push(self, when: float, kind: int, node: _Node, what: Any) -> None:
        """Something is to happen."""
        self._n_events += 1
        heapq.heappush(self._queue, (when, self._n_events, kind, node, what))

    def carry(
        self, source: int, to: int, frame: Frame, n_bytes: int, packing: float, left: float
    ) -> None:
        """A frame has left a node."""
        node = self.nodes[to]
        seconds = n_bytes / self.costs.bandwidth
        # Its first byte may come while its last one leaves.
        arrives = left + self.costs.latency
        node.arrival_free = max(node.arrival_free + seconds, arrives)
        self.push(node.arrival_free, _ARRIVAL, node, (source, frame, n_bytes, packing))

    def made(self, node: _Node, block: int, now: float) -> None:
        """A visit is over: what it has done to the sums of its node."""
        rank, n_visits = node.rank, self.load.n_visits
        pairs = self.load.pairs[block]
        node.rows.own[0, rank] = now
        node.rows.own[1, rank] += pairs
        self.done[rank] += pairs
        self.n_visits += 1
        if self.n_visits * 100 // n_visits > len(self.marks):
            self.marks.append((now, float(self.done.sum())))

    def look_at_shares(self, node: _Node, now: float) -> None:
        """A block begins its visits at a node: what does it know of the others?"""
        if self.n_nodes > 1:
            others = np.arange(self.n_nodes) != node.rank
            known = node.rows.others[:, others]
            self.ages.append(float(now - known[0].mean()))
            self.unseen.append(float(self.done[others].sum() - known[1].sum()))

    def rested(self, now: float) -> None:
        """A node is at rest."""
        self.n_rested += 1
        self.end = max(self.end, now)

    def run(self, n_passes: int) -> None:
        """From release to rest."""
        for node in self.nodes:
            node.hops.release(n_passes)
            node.wake(0.0)
        while self.n_rested < self.n_nodes:
            now, _, kind, node, what = heapq.heappop(self._queue)
            if kind == _VISITED:
                node.visited(what, now)
            elif kind == _ARRIVAL:
                node.inbox.append(what)
                node.wake(max(now, node.free))
            elif now == node.next_act:
                node.next_act = np.inf
                node.act(now)


def simulate(
    load: Load, n_nodes: int, n_workers: int, n_passes: int, costs: Costs, seed: int = 0
) -> dict[str, float]:
    """Some passes of a corpus on a cluster, from rest to rest.

    Parameters
    ----------
    load : Load
        Of `n_passes` passes.
    n_nodes, n_workers : int
        Workers of each node.
    n_passes : int
    costs : Costs
    seed : int

    Returns
    -------
    dict
        `seconds` and `pairs_per_second` of all; `efficiency`, the time that workers were at work
        over all of theirs, and `settled`, pairs a second in the middle half of the visits;
        `home` and `wire`, the time that home's processor and a node's wire were busy; `bytes` and
        `hops` a second and node; `age` of what is known of other nodes' contributions when a block
        begins its visits at a node, mean and 95th percentile, and `unseen`, the pairs whose
        contributions are made and not known there, in passes.
    """
    with mock.patch.object(outbox, "PIECE", PIECE // SCALE):
        model = Cluster(load, n_nodes, n_workers, costs, seed)
        model.run(n_passes)
    total, seconds = sum(load.pairs) * n_nodes * n_workers, model.end
    assert model.n_visits == load.n_visits, "not every block has been everywhere"
    (t0, p0), (t1, p1) = (model.marks[len(model.marks) * i // 4] for i in (1, 3))
    sent = sum(node.sent for node in model.nodes) / n_nodes
    ages, unseen = np.array(model.ages or [0.0]), np.array(model.unseen or [0.0])
    return {
        "seconds": seconds,
        "pairs_per_second": n_passes * total / seconds,
        "settled": (p1 - p0) / (t1 - t0),
        "efficiency": model.busy / (n_nodes * n_workers * seconds),
        "home": sum(node.home_busy for node in model.nodes) / n_nodes / seconds,
        "wire": sent / costs.bandwidth / seconds,
        "bytes": sent / seconds,
        "hops": sum(node.rows.n_hops for node in model.nodes) / n_nodes / seconds,
        "age": float(ages.mean()),
        "age_95": float(np.quantile(ages, 0.95)),
        "unseen": float(unseen.mean() / total),
    }
