"""A cluster in one loop: real protocols, and a network, homes and workers drawn by a seed.

Frames of a pair of nodes come in order, those of different pairs in any; any frame may come
again, at any later time; connections may be lost with what is on its way, and come back. Nodes
are fast or slow, look seldom or often, and write little at a time, so that queues form.

Every block carries mass, which visits move to and from the pool of a node. After every step each
block must have one owner, and the mass of blocks and pools be what it was.
"""

import random
from array import array
from collections import deque
from itertools import pairwise
from math import inf
from operator import ge

import numpy as np

from esvi_shm.runtime.layout import MOST_HELD
from esvi_shm.runtime.peers import RECALL, REST, VISIT
from esvi_shm.transports.protocol import Protocol
from esvi_shm.transports.protocol.agreement import Hello
from esvi_shm.transports.protocol.frames import Frame

POISON = -(10**9)


class SimulatedRows:
    """Rows of every block at one node: mass, visits; what is not held is poison."""

    def __init__(self, n_blocks: int, held) -> None:
        self.mass = array("q", [POISON]) * n_blocks
        self.visits = array("q", [POISON]) * (3 * n_blocks)
        self.held = set(held)
        for block in held:
            self.mass[block] = 1000
            self.visits[3 * block : 3 * block + 3] = array("q", [0, 0, 0])
        self.pool = np.zeros(2)  # mass, visits made here
        self.others = None

    def pack(self, block):
        assert block in self.held, f"rows of block {block} are not held"
        visits = self.visits[3 * block : 3 * block + 3]
        return memoryview(self.mass[block : block + 1].tobytes() + visits.tobytes())

    def most(self, block):
        return 32 + 9 * (block % 5)

    def unpack(self, block, data):
        assert block in self.held, f"rows of block {block} are not held"
        if len(data) != 32:
            raise ValueError(f"they take 32 bytes, got {len(data)}")
        numbers = array("q", bytes(data))
        self.mass[block] = numbers[0]
        self.visits[3 * block : 3 * block + 3] = numbers[1:]

    def hold(self, block):
        assert block not in self.held, f"block {block} is held already"
        self.held.add(block)

    def drop(self, block):
        self.held.remove(block)
        self.mass[block] = POISON
        self.visits[3 * block : 3 * block + 3] = array("q", [POISON] * 3)

    def contribution(self):
        return self.pool

    def set_others(self, total):
        self.others = total.copy()


class Node:
    """A node: its protocol, and a home whose visits take a while."""

    def __init__(self, rank, cluster) -> None:
        draw = cluster.draw
        self.rank, self.cluster = rank, cluster
        names = [f"node {j}" for j in range(cluster.n_nodes)]
        hello = Hello(cluster.n_nodes, bytes(32), "1")
        self.protocol = Protocol(rank, names, hello, cluster.route, cluster.seed, watch=False)
        self.rows = SimulatedRows(cluster.n_blocks, range(rank, cluster.n_blocks, cluster.n_nodes))
        self.protocol.begin(self.rows, cluster.nodes_of, cluster.spare)
        self.inbox = []
        self.busy = deque()  # (block, when its visit is over)
        self.slowness = draw.choice([1.0, 1.0, 1.0, 8.0])
        self.written = draw.choice([2, 10, 100])  # messages at a time
        self.at_rest = True
        self.recalled = False
        self.before = [0] * cluster.n_nodes

    def has_to_act(self, now):
        """Whether there is anything to do; else nothing would change."""
        outbox = self.protocol.outbox
        return (
            self.inbox
            or now >= self.wakes()
            or not all(map(outbox.is_empty, outbox.others))
            or (not self.released and now >= self.late)
        )

    def wakes(self):
        """When there is something to do even if nothing comes."""
        return min(self.busy[0][1] if self.busy else inf, self.protocol.hops._next_news)

    def act(self, now):
        for source, frame in self.inbox:
            self.protocol.receive(source, frame)
        self.inbox.clear()
        self.protocol.tick(now)
        self._hear(now)
        while self.busy and self.busy[0][1] <= now:
            block = self.busy.popleft()[0]
            self._visit(block)
            self.protocol.hops.visited(block)
            self.protocol.tick(now)
        self._hear(now)
        self._write(now)

    def _hear(self, now):
        events, cluster = self.protocol.events, self.cluster
        while events:
            kind, block = events.popleft()
            if kind == VISIT:
                assert not self.at_rest
                last = self.busy[-1][1] if self.busy else now
                self.busy.append(
                    (block, max(last, now) + 0.01 * self.slowness * cluster.draw.random())
                )
                cluster.check_opened(self)
            elif kind == RECALL:
                assert not self.recalled
                self.recalled = True
            elif kind == REST:
                cluster.check_rest(self)
                self.at_rest = True

    def _visit(self, block):
        moved = self.cluster.draw.randrange(-5, 6)
        self.rows.mass[block] += moved
        for i in range(3 * block, 3 * block + 3):
            self.rows.visits[i] += 1
        self.rows.pool += (-moved, 1)
        self.cluster.visits[block].append(self.rank)

    def _write(self, now):
        for j in self.protocol.outbox.others:
            for _ in range(self.written):
                message = self.protocol.outbox.next(j)
                if message is None:
                    break
                body = b"".join(bytes(part) for part in message.parts)
                self.cluster.put(self.rank, j, Frame(message.kind, message.epoch, body), now)


class Cluster:
    """Nodes, the network between them, and what must hold."""

    def __init__(self, seed, is_large=False) -> None:
        self.seed, self.draw = seed, random.Random(seed)
        draw = self.draw
        self.n_nodes = draw.randint(2, 5 if is_large else 4)
        sizes = [1, self.n_nodes, 2 * self.n_nodes + 1]
        self.n_blocks = 4 * self.n_nodes if is_large else draw.choice(sizes)
        self.n_passes = draw.choice([1, 2, 3] if is_large else [1, 2])
        self.route = draw.choice(["lap", "balanced"])
        self.spare = draw.choice([None, 1, 2])
        self.nodes_of = [self._draw_nodes() for _ in range(self.n_blocks)]
        self.repeats = draw.choice([0.0, 0.1, 0.4])
        self.losses = draw.choice([0.0, 0.0, 0.002])
        self.visits = [[] for _ in range(self.n_blocks)]
        pairs = [(i, j) for i in range(self.n_nodes) for j in range(self.n_nodes) if i != j]
        # Some pairs are near to each other, some far: a long way may be the shorter.
        scale = draw.choice([0.0001, 0.003, 0.03])
        self.delays = {pair: scale * draw.choice([0.1, 1, 1, 10]) for pair in pairs}
        self.links = {pair: deque() for pair in pairs}
        self.old = {pair: [] for pair in pairs}
        self.last = dict.fromkeys(pairs, 0.0)
        self.nodes = [Node(j, self) for j in range(self.n_nodes)]
        self.now, self.steps = 0.0, 0
        # How often they look.
        self.paces = [(node, draw.choice([1, 1, 1, 0.1])) for node in self.nodes]
        self.total = 1000 * self.n_blocks
        self.rested = 0

    def _draw_nodes(self):
        nodes = range(self.n_nodes)
        if self.draw.random() < 0.7:
            return list(nodes)
        return sorted(self.draw.sample(nodes, self.draw.randint(0, self.n_nodes)))

    def put(self, source, to, frame, now):
        pair = source, to
        self.last[pair] = max(self.last[pair], now + self.delays[pair] * self.draw.random())
        self.links[pair].append((self.last[pair], frame))

    def _carry(self):
        for (source, to), link in self.links.items():
            old = self.old[source, to]
            while link and link[0][0] <= self.now:
                frame = link.popleft()[1]
                self.nodes[to].inbox.append((source, frame))
                if self.repeats:
                    old.append(frame)
                    if self.draw.random() < self.repeats:
                        # Again, any that came before.
                        self.nodes[to].inbox.append((source, self.draw.choice(old)))

    def _next(self):
        """When something happens next, while no node has anything to do."""
        on_the_way = [link[0][0] for link in self.links.values() if link]
        waiting = [node.late for node in self.nodes if not node.released]
        return min(*on_the_way, *waiting, *(node.wakes() for node in self.nodes), inf)

    def _lose(self):
        """Lose a connection, and what is on its way; both sides say everything again."""
        i, j = self.draw.sample(range(self.n_nodes), 2)
        for a, b in ((i, j), (j, i)):
            self.links[a, b].clear()
            self.old[a, b].clear()
            self.nodes[a].inbox = [m for m in self.nodes[a].inbox if m[0] != b]
            self.nodes[a].protocol.again(b)

    def release(self):
        """Run one release from rest to rest, at once or one node after the other."""
        for history in self.visits:
            history.clear()
        for node in self.nodes:
            node.rows.pool[:] += (0, 3)  # as a start would
            node.late = self.now + self.draw.choice([0.0, 0.05]) * self.draw.random()
            node.released = False
        recall = self.now + 0.2 * self.draw.random() if self.draw.random() < 0.3 else None
        self.asked = False
        self.rested, limit = 0, self.steps + 20_000
        while not all(node.released and node.at_rest for node in self.nodes):
            self.now += 0.002 * self.draw.random()
            self.steps += 1
            assert self.steps < limit, "work does not move on"
            self._carry()
            able = [node.has_to_act(self.now) and pace for node, pace in self.paces]
            if not any(able):
                self.now = self._next()
                continue
            if self.losses and self.draw.random() < self.losses:
                self._lose()
            node = self.draw.choices(self.nodes, able)[0]
            if not node.released and self.now >= node.late:
                node.released, node.at_rest, node.recalled = True, False, False
                node.opening = node.rows.pool.copy()
                node.protocol.hops.release(self.n_passes)
            if recall is not None and self.now >= recall and node.released:
                recall, self.asked = None, True
                node.protocol.hops.recall()
            node.act(self.now)
            self.check()
        recalled = {node.recalled for node in self.nodes}
        assert len(recalled) == 1, "some nodes heard of the recall, and some did not"
        self._check_visits(recalled.pop())

    def owners(self, block):
        """The nodes that own a block: those that have it, or sent it and it is not accepted."""
        found = []
        for node in self.nodes:
            trip = node.protocol.hops.trips.get(block)
            if trip is None or trip.state == "arriving":
                continue
            if trip.state == "sent":
                there = self.nodes[trip.to].protocol.hops
                known, accepted = there._decided.get(block, (0, False))
                arriving = block in there.trips and there.trips[block].state == "arriving"
                if known > trip.attempt or (known == trip.attempt and accepted and not arriving):
                    continue
            found.append(node)
        return found

    def check(self):
        """What holds after every step."""
        mass = 0
        for block in range(self.n_blocks):
            owners = self.owners(block)
            assert len(owners) == 1, f"block {block} has {len(owners)} owners"
            mass += owners[0].rows.mass[block]
            rows = owners[0].rows.visits[3 * block : 3 * block + 3]
            assert rows[0] == rows[1] == rows[2] >= 0
        assert mass + sum(node.rows.pool[0] for node in self.nodes) == self.total
        for node in self.nodes:
            hops = node.protocol.hops
            assert set(hops.trips) == node.rows.held
            foreign = [b for b in hops.trips if b % self.n_nodes != node.rank]
            assert len(foreign) <= hops.spare, "more blocks than places"
            if self.spare is None and hops.spare > 2:
                sizes = [node.rows.most(block) for block in range(self.n_blocks)]
                held = sum(sizes[block] for block in hops.trips)
                assert held <= MOST_HELD * sum(sizes) / self.n_nodes, "more than MOST_HELD"
            versions = node.protocol.shares.versions.tolist()
            assert all(map(ge, versions, node.before))
            node.before = versions

    def check_opened(self, node):
        """A visit knows at least what the others had when the release began."""
        others = [other for other in self.nodes if other is not node]
        assert node.rows.others[1] >= sum(other.opening[1] for other in others)

    def check_rest(self, node):
        """Nobody is at rest before all are, and everybody knows everything."""
        for block in range(self.n_blocks):
            (owner,) = self.owners(block)
            assert owner.rank == block % self.n_nodes
            assert owner.protocol.hops.trips[block].state == "rest"
        assert not any(other.busy for other in self.nodes)
        owned = set(range(node.rank, self.n_blocks, self.n_nodes))
        assert set(node.protocol.hops.trips) == owned, "a block that has gone is kept"
        others = sum(other.rows.pool for other in self.nodes if other is not node)
        assert (node.rows.others == others).all(), "a share is not known at rest"
        if not node.recalled:
            self._check_visits(False)

    def _check_visits(self, recalled):
        for block, history in enumerate(self.visits):
            stops = list(self.nodes_of[block])
            size = max(len(stops), 1)
            passes = [history[i : i + size] for i in range(0, len(history), size)]
            if not recalled:
                assert len(history) == self.n_passes * len(stops)
                assert all(sorted(nodes) == stops for nodes in passes)
            assert all(len(set(nodes)) == len(nodes) for nodes in passes)
            # A node that has heard of a recall sends a block home, where it may not be known yet.
            for before, after in pairwise([] if recalled else passes):
                assert before[-1] == after[0], "a pass begins where the block is"
