"""Several nodes in one process, each a thread: the plainest `runtime.peers.Peers` there can be.

It moves rows from one node's arrays to another's as a transport would, and keeps nothing back,
so that what home does with its peers can be tested without one.
"""

import contextlib
import threading
from collections import deque
from dataclasses import replace

import numpy as np

from esvi_shm import families
from esvi_shm.corpus.range import take
from esvi_shm.corpus.split import split_documents
from esvi_shm.errors import ParameterError
from esvi_shm.points import Points
from esvi_shm.runtime import engine, home
from esvi_shm.runtime.peers import RECALL, REST, VISIT, Event
from esvi_shm.runtime.serial import warm_up
from tests.runtime.fits import TIME_LIMIT, Threads


class Meeting:
    """What the nodes share."""

    def __init__(self, n_nodes):
        self.n_nodes = n_nodes
        self.barrier = threading.Barrier(n_nodes, timeout=TIME_LIMIT)
        self.lock = threading.Lock()
        self.said = [None] * n_nodes
        self.peers = [Node(self, rank) for rank in range(n_nodes)]
        self.visits = []
        self.carried = 0
        self.homes = {}


class Node:
    """One node's view of the meeting."""

    nap = 0.002

    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.n_nodes = meeting, rank, meeting.n_nodes
        self.events, self.held, self.most_held = deque(), set(), 0

    def descriptors(self):
        return []

    def _say(self, what):
        meeting = self.meeting
        meeting.said[self.rank] = what
        meeting.barrier.wait()
        found = list(meeting.said)
        meeting.barrier.wait()
        return found

    def gather(self, part):
        assert isinstance(part, bytes)
        return self._say(part)

    def collect(self, part):
        found = self._say(part)
        return [] if self.rank else found

    def sum_into(self, array):
        assert array.dtype == np.float64
        array[...] = sum(self._say(array.copy()))

    def begin(self, rows, nodes_of):
        self.rows, self.nodes_of = rows, nodes_of
        self.held = {b for b in range(len(nodes_of)) if b % self.n_nodes == self.rank}

    def _give(self, block):
        assert block in self.held
        content = self.rows.pack(block)
        assert content.nbytes <= self.rows.most(block)
        self.held.remove(block)
        self.rows.drop(block)
        return block, content

    def _take(self, parcel):
        block, content = parcel
        self.rows.hold(block)
        self.rows.unpack(block, content)
        if "pi_total" in self.rows.shared:  # it is the holder's alone, and whole
            _, topics = self.rows.model.rows(self.rows.arrays, block, "lambda_")
            every = [peer.rows for peer in self.meeting.peers]
            pi = sum(rows.shared["pi"][: rows.n_workers, topics].sum(axis=0) for rows in every)
            near = {"rtol": 1e-9, "atol": 1e-9}
            np.testing.assert_allclose(self.rows.shared["pi"][:, topics].sum(axis=0), pi, **near)
        self.held.add(block)
        self.most_held = max(self.most_held, len(self.held))
        self.meeting.carried += 1

    def rotate(self, held):
        assert set(held) == self.held
        parcels = self._say([self._give(b) for b in held])[(self.rank - 1) % self.n_nodes]
        for parcel in parcels:
            self._take(parcel)
        return sorted(self.held)

    def release(self, n_passes):
        meeting = self.meeting
        if self.rank == 0:
            n_blocks = len(self.nodes_of)
            meeting.left = [n_passes] * n_blocks
            meeting.to_do = [set(nodes) for nodes in self.nodes_of]
            meeting.n_out, meeting.recalled = n_blocks, False
        self._say(None)
        for block in sorted(self.held):
            self._send_on(block)

    def _send_on(self, block):
        meeting = self.meeting
        with meeting.lock:
            if not meeting.to_do[block]:
                meeting.left[block] -= 1
                meeting.to_do[block] = set(self.nodes_of[block])
            done = meeting.left[block] == 0 or meeting.recalled
            to = block % self.n_nodes
            if not done:
                unvisited = meeting.to_do[block]
                to = self.rank if self.rank in unvisited else min(unvisited)
                unvisited.remove(to)
            self._hand_over(block, to, "done" if done else "visit")

    def _hand_over(self, block, to, why):
        other = self.meeting.peers[to]
        of_others = sum(p.rows.contribution() for p in self.meeting.peers if p is not self)
        self.rows.set_others(of_others)
        if self.n_nodes > 1 and self.rows.model.contributes:
            assert (self.rows.shared["pi"][-1] == of_others).all()
        parcel = self._give(block)
        other.events.append((why, parcel))

    def poll(self, seconds):
        meeting, found = self.meeting, []
        while self.events:
            why, what = self.events.popleft()
            if why in (RECALL, REST):
                found.append(Event(why))
                continue
            with meeting.lock:
                self._take(what)
                if why == "visit":
                    meeting.visits.append((what[0], self.rank))
                    found.append(Event(VISIT, what[0]))
                    continue
                meeting.n_out -= 1
                if meeting.n_out == 0:
                    for peer in meeting.peers:
                        peer.events.append((REST, None))
        return found

    def visited(self, block):
        self._send_on(block)

    def recall(self):
        with self.meeting.lock:
            self.meeting.recalled = True
            for peer in self.meeting.peers:
                peer.events.append((RECALL, None))

    def close(self, error=None):
        pass


class Signals:
    """No signals: they are for the main thread."""

    received = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def part_of(data, config, rank, n_nodes):
    """A node's documents, or points."""
    if config.family == "lda":
        bounds = split_documents(data.indptr, n_nodes).tolist()
        return take(data, bounds[rank], bounds[rank + 1])
    bounds = [data.n_points * r // n_nodes for r in (rank, rank + 1)]
    return Points(data.values[slice(*bounds)], data.name)


def fit_together(data, config, n_nodes, monkeypatch, judges=None, parts=None, keeps=None):
    """Fit data on so many nodes; their results, and the meeting."""
    with contextlib.suppress(ParameterError):  # as the fit itself will say
        families.find(config.family).check_nodes(config)
        warm_up(config)  # the limit of time is not for the compiler
    monkeypatch.setattr(home, "Workers", Threads)
    monkeypatch.setattr(engine, "Signals", Signals)
    meeting, results, failed = Meeting(n_nodes), [None] * n_nodes, []

    class Noted(home.Home):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if self.nodes is not None:
                meeting.homes[self.nodes.peers.rank] = self

    monkeypatch.setattr(engine, "Home", Noted)

    def work(rank):
        peers = meeting.peers[rank]
        try:
            own = parts[rank] if parts else part_of(data, config, rank, n_nodes)
            own = families.find(config.family).join(own, peers)
            judge = judges[rank] if judges else None
            keep = keeps[rank] if keeps else None
            results[rank] = engine.fit(own, replace(config), judge=judge, peers=peers, keep=keep)
        except BaseException as error:
            failed.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(n_nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIME_LIMIT)
    broken = [e for e in failed if not isinstance(e, threading.BrokenBarrierError)]
    if failed:
        raise (broken or failed)[0]
    return results, meeting
