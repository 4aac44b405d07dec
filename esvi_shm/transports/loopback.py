"""Nodes in one process: each in a thread, or step by step. For tests, and to look at runs.

Bytes go through bounded queues in memory, as they would through sockets. Nodes with the same
`Options.nodes` find each other.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from esvi_shm.errors import ParameterError, PeerError
from esvi_shm.transports.contract import BATCH, Options
from esvi_shm.transports.protocol.frames import Buffer

#: Bytes between two nodes at most, so that writers see a full queue as they would elsewhere.
MOST_BYTES = 4 * BATCH


class _Pipe:
    """The bytes from one node to another."""

    def __init__(self) -> None:
        self.chunks: deque[bytes] = deque()
        self.size = 0
        self.has_ended = False
        self.lock = threading.Lock()


class _Mesh:
    """The nodes that belong together."""

    def __init__(self, n_nodes: int) -> None:
        nodes = range(n_nodes)
        self.pipes = {(i, j): _Pipe() for i in nodes for j in nodes if i != j}
        self.joined: dict[int, int] = {}  # rank: its bell
        self.left: set[int] = set()


_meshes: dict[tuple[str, ...], _Mesh] = {}
_changed = threading.Condition()


def check(options: Options) -> None:
    """Raise ParameterError unless the options say where the nodes are."""
    options.placed()


def connect(options: Options) -> "LoopbackLink":
    """Join the nodes of the same names, and wait for all of them.

    Raises
    ------
    ParameterError
        If the rank is there already.
    PeerError
        If one does not come in time.
    """
    rank, nodes = options.placed()
    limit = time.monotonic() + options.wait
    with _changed:
        mesh = _meshes.setdefault(nodes, _Mesh(len(nodes)))
        if rank in mesh.joined:
            raise ParameterError("rank", "must be another on every node", rank)
        mesh.joined[rank] = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        link = LoopbackLink(rank, nodes, mesh)
        _changed.notify_all()
        while len(mesh.joined) < len(nodes):
            if not _changed.wait(limit - time.monotonic()):
                late = min(set(range(len(nodes))) - mesh.joined.keys())
                link.close(False)
                raise PeerError(f"node {late} ({nodes[late]}) has not come in {options.wait:g} s")
        return link


class LoopbackLink:
    """One node's ends of the queues."""

    nap = 0.02
    threads = True

    def __init__(self, rank: int, nodes: tuple[str, ...], mesh: _Mesh) -> None:
        self.rank, self.n_nodes = rank, len(nodes)
        self.names = [f"node {j} ({name})" for j, name in enumerate(nodes)]
        self._nodes, self._mesh, self._bell = nodes, mesh, mesh.joined[rank]
        self._ended: set[int] = set()

    def key(self, sender: int, receiver: int) -> bytes | None:
        """No MAC: nobody else reaches this memory."""
        return None

    def write(self, to: int, buffers: Sequence[Buffer]) -> int:
        """Take bytes for a node, until its queue is full."""
        pipe = self._mesh.pipes[self.rank, to]
        taken = 0
        with pipe.lock:
            if pipe.has_ended:
                raise BrokenPipeError
            for buffer in buffers:
                chunk = bytes(buffer[: MOST_BYTES - pipe.size])
                pipe.chunks.append(chunk)
                pipe.size += len(chunk)
                taken += len(chunk)
                if pipe.size >= MOST_BYTES:
                    break
        self._ring(to)
        return taken

    def read(self) -> Iterator[tuple[int, memoryview | None]]:
        """What has come, by its sender."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        for j in range(self.n_nodes):
            if j == self.rank or j in self._ended:
                continue
            pipe = self._mesh.pipes[j, self.rank]
            with pipe.lock:
                data, has_ended = b"".join(pipe.chunks), pipe.has_ended
                pipe.chunks.clear()
                pipe.size = 0
            if data:
                self._ring(j)  # there is room again
                yield j, memoryview(data)
            if has_ended:
                self._ended.add(j)
                yield j, None

    def _ring(self, node: int) -> None:
        with _changed:
            if node not in self._mesh.left:
                os.eventfd_write(self._mesh.joined[node], 1)

    def descriptors(self) -> Sequence[int]:
        """The bell that the others ring."""
        return [self._bell]

    def close(self, was_told: bool) -> None:
        """End all queues; what is in them can still be read."""
        with _changed:
            self._mesh.left.add(self.rank)
            os.close(self._bell)
            if _meshes.get(self._nodes) is self._mesh:
                del _meshes[self._nodes]
        for (i, j), pipe in self._mesh.pipes.items():
            if self.rank in (i, j):
                with pipe.lock:
                    pipe.has_ended = True
                other = j if i == self.rank else i
                if other in self._mesh.joined:
                    self._ring(other)
