"""A small home that plays a fit of random rows with its peers, as the real one does.

Rows are those of `n_blocks` blocks, of two arrays each. A visit adds the node's number, plus one,
to all of them. After every release and every rotation the rows are what they must be.
"""

import os
import socket
import time

import numpy as np

from esvi_shm.runtime.peers import RECALL, REST, VISIT


def free_addresses(n_nodes):
    """Addresses of this machine with ports that nobody has."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n_nodes)]
    nodes = tuple(f"127.0.0.1:{found.getsockname()[1]}" for found in sockets)
    for found in sockets:
        found.close()
    return nodes


def write_key(path, key=b"a key of the tests' own", mode=0o600):
    """A key file."""
    with open(path, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(key)


class HomeRows:
    """Rows of every block; those that are not held are nan."""

    def __init__(self, rank, n_nodes, n_blocks, width) -> None:
        self.lambda_ = np.full((n_blocks, width), np.nan, np.float32)
        self.sums = np.full((n_blocks, 3), np.nan)
        self.held, self.most_held = set(), 0
        for block in range(rank, n_blocks, n_nodes):
            self.hold(block)
            self.lambda_[block] = block
            self.sums[block] = block
        self.visits = np.zeros(2)
        self.others = None

    def pack(self, block):
        return memoryview(self.lambda_[block].tobytes() + self.sums[block].tobytes())

    def most(self, block):
        return self.lambda_[block].nbytes + self.sums[block].nbytes

    def unpack(self, block, data):
        n = self.lambda_[block].nbytes
        self.lambda_[block] = np.frombuffer(data[:n], np.float32)
        self.sums[block] = np.frombuffer(data[n:])

    def hold(self, block):
        assert block not in self.held
        self.held.add(block)
        self.most_held = max(self.most_held, len(self.held))

    def drop(self, block):
        self.held.remove(block)
        self.lambda_[block] = self.sums[block] = np.nan

    def contribution(self):
        return self.visits

    def set_others(self, total):
        self.others = total.copy()


def play(peers, n_blocks=11, width=50, n_passes=3, n_releases=2, recall_after=None, pause=0.0):
    """Play it; returns the rows and how many visits were made here."""
    rank, n_nodes = peers.rank, peers.n_nodes
    rows = HomeRows(rank, n_nodes, n_blocks, width)
    nodes_of = [[j for j in range(n_nodes) if (b + j) % 5 or b % 2] for b in range(n_blocks)]
    assert peers.gather(f"words of {rank}".encode() * 3) == [
        f"words of {j}".encode() * 3 for j in range(n_nodes)
    ]
    for i in range(30):
        found = peers.collect(f"{i} of {rank}".encode() * 3)
        assert found == ([] if rank else [f"{i} of {j}".encode() * 3 for j in range(n_nodes)])
    peers.begin(rows, nodes_of)
    total = np.array([[0.1 * (rank + 1), rank]])
    peers.sum_into(total)
    expected = np.array([[0.1, 0.0]])
    for j in range(1, n_nodes):
        expected = expected + np.array([[0.1 * (j + 1), j]])
    assert total.tobytes() == expected.tobytes()
    recalled = False
    for release in range(1, n_releases + 1):
        peers.release(n_passes)
        at_rest, recalled, waiting = False, False, []
        while not at_rest:
            for kind, block in peers.poll(0.0 if waiting else 1.0):
                if kind == VISIT:
                    waiting.append(block)
                recalled = recalled or kind == RECALL
                at_rest = at_rest or kind == REST
            if waiting:
                block = waiting.pop(0)
                if pause:
                    time.sleep(pause)
                rows.lambda_[block] += rank + 1
                rows.sums[block] += rank + 1
                rows.visits += (1, rank)
                peers.visited(block)
                if recall_after is not None and rows.visits[0] >= recall_after:
                    peers.recall()
        assert rows.held == set(range(rank, n_blocks, n_nodes))
        every = [np.frombuffer(part) for part in peers.gather(rows.visits.tobytes())]
        assert n_nodes == 1 or (rows.others == sum(every) - every[rank]).all()
        if not recalled and recall_after is None:
            for block in rows.held:
                added = n_passes * release * sum(j + 1 for j in nodes_of[block])
                assert (rows.lambda_[block] == block + added).all()
                assert (rows.sums[block] == block + added).all()
            assert sum(every)[0] == n_passes * release * sum(map(len, nodes_of))
        held, seen = sorted(rows.held), set()
        for _ in range(n_nodes):
            held = peers.rotate(held)
            assert set(held) == rows.held and not np.isnan(rows.lambda_[held]).any()
            seen |= rows.held
        assert seen == set(range(n_blocks)) and held == list(range(rank, n_blocks, n_nodes))
    return rows, recalled
