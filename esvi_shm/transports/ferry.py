"""The other nodes of a fit, as home uses them: the protocol over a link.

    home --- calls ---> Protocol --- messages ---> frames ---> link ---> the other nodes
    home <-- events --- Protocol <-- frames ------ Reader <--- link <--- the other nodes

Nothing here waits for a node but the calls that all make together. Rows go from where they lie
to the link, and from the link to where they belong. What is queued is no more than the blocks
that are on their way.

A thread gives signs of life while home is busy with something else: a node that computes is not
one that has died. It only writes, and only while home does not.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from esvi_shm import __version__
from esvi_shm.errors import PeerError
from esvi_shm.runtime.peers import Event, Rows
from esvi_shm.runtime.waiting import readable
from esvi_shm.transports.contract import BATCH, Link, Options
from esvi_shm.transports.protocol import Protocol
from esvi_shm.transports.protocol.agreement import Hello
from esvi_shm.transports.protocol.collectives import add_up
from esvi_shm.transports.protocol.frames import Buffer, Frame, FrameError, Reader, Writer
from esvi_shm.transports.protocol.machine import BEAT

#: Seconds between two looks at what is due, where nothing has come.
TICK = 0.002
#: Seconds that the last words may take.
FAREWELL = 5.0
T = TypeVar("T")


class Ferry:
    """The `Peers` of one node.

    Parameters
    ----------
    link : Link
        Connected; closed by `close`, and here if the nodes do not agree.
    options : Options
    digest : bytes
        32 bytes of all that must be the same on every node.

    Raises
    ------
    PeerError
        If the nodes run different fits, or one does not say hello in time.
    """

    def __init__(self, link: Link, options: Options, digest: bytes) -> None:
        self.rank, self.n_nodes = link.rank, link.n_nodes
        self._link = link
        self._others = [j for j in range(self.n_nodes) if j != self.rank]
        self._protocol = Protocol(
            self.rank,
            link.names,
            Hello(self.n_nodes, digest, __version__),
            options.route,
            options.seed,
            watch=link.threads,
        )
        self._writers = {j: Writer(link.key(self.rank, j)) for j in self._others}
        self._readers = {j: Reader(link.key(j, self.rank)) for j in self._others}
        self._pending: dict[int, list[Buffer]] = {j: [] for j in self._others}
        self._gone: set[int] = set()
        self._failed: PeerError | None = None
        self._next_tick = 0.0
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        try:
            self._agree(options.wait)
        except BaseException as error:
            self.close(str(error) or type(error).__name__)
            raise
        if self._others and link.threads:
            self._beats.start()

    def _agree(self, wait: float) -> None:
        limit = time.monotonic() + wait
        while not self._protocol.is_agreed:
            if time.monotonic() > limit:
                late = self._link.names[self._protocol.unheard[0]]
                raise PeerError(f"{late} has not come in {wait:g} s")
            self._step()
            if not self._protocol.is_agreed:
                self._sleep(0.05)

    @property
    def nap(self) -> float:
        """See `Peers`; that of the link, which may change."""
        return self._link.nap

    def descriptors(self) -> Sequence[int]:
        """File descriptors that become readable when there is something to poll for."""
        return self._link.descriptors()

    # While no block is out.

    def gather(self, part: bytes) -> list[bytes]:
        """Every node's part, by rank, on every node."""
        with self._lock:
            self._protocol.collectives.send_part(part, self._others, self._others)
        parts: dict[int, Buffer] = {self.rank: part, **self._wait_for_parts()}
        self._wait_until_written()
        return [bytes(parts[j]) for j in range(self.n_nodes)]

    def collect(self, part: bytes) -> list[bytes]:
        """Every node's part, by rank, at node 0; nothing elsewhere."""
        calls = self._protocol.collectives
        if self.rank:
            with self._lock:
                calls.send_part(part, [0], [0])
            self._wait_for_parts()  # until node 0 has all: nobody runs ahead of it
            return []
        with self._lock:
            calls.send_part(b"", [], self._others)
        parts: dict[int, Buffer] = {0: part, **self._wait_for_parts()}
        with self._lock:
            calls.go_on_with_part(b"", self._others, [])
        self._wait_until_written()
        return [bytes(parts[j]) for j in range(self.n_nodes)]

    def sum_into(self, array: np.ndarray) -> None:
        """Replace a float64 array by its sum over all nodes; the same bits on all of them."""
        calls = self._protocol.collectives
        if self.rank == 0:
            with self._lock:
                calls.send_part(b"", [], self._others)
            array[...] = add_up(array, self._wait_for_parts())
            with self._lock:
                calls.go_on_with_part(array.tobytes(), self._others, [])
            self._wait_until_written()
        else:
            with self._lock:
                calls.send_part(array.tobytes(), [0], [0])
            total = self._wait_for_parts()[0]
            if len(total) != array.nbytes:
                raise PeerError(f"node 0 sums {len(total)} bytes, this node {array.nbytes}")
            array[...] = np.frombuffer(total, np.float64).reshape(array.shape)

    def begin(self, rows: Rows, nodes_of: Sequence[Sequence[int]]) -> None:
        """Say once what blocks carry, and which nodes each has to visit (ascending)."""
        with self._lock:
            self._protocol.begin(rows, nodes_of)

    def rotate(self, held: Sequence[int]) -> list[int]:
        """Send the rows of these blocks to the next node, and return those that have come."""
        if not self._others:
            return list(held)
        calls = self._protocol.collectives
        with self._lock:
            calls.begin_turn(held)
        return self._wait_for(calls.take_turn)

    def release(self, n_passes: int) -> None:
        """Begin `n_passes` passes of every block."""
        hops = self._protocol.hops
        assert hops is not None
        with self._lock:
            hops.release(n_passes)
            self._next_tick = 0.0
            self._step()

    def _wait_for_parts(self) -> dict[int, bytearray]:
        return self._wait_for(self._protocol.collectives.take_parts)

    def _wait_until_written(self) -> None:
        """Others wait for it, and nobody knows when this node polls again."""
        self._wait_for(lambda: all(map(self._is_written, self._others)) or None)

    def _wait_for(self, take: Callable[[], T | None]) -> T:
        """What `take` has, once it has something; asked after every step, before any sleep."""
        while (taken := take()) is None:
            self._step()
            if (taken := take()) is not None:
                break
            self._sleep(0.05)
        return taken

    # While blocks are out.

    def poll(self, seconds: float) -> list[Event]:
        """What has happened, waiting so long at most where nothing has.

        Raises
        ------
        PeerError
            If a node is lost or ended the fit.
        """
        limit = time.monotonic() + seconds
        while True:
            self._step()
            events = list(self._protocol.events)
            self._protocol.events.clear()
            left = limit - time.monotonic()
            if events or left <= 0:
                return events
            self._sleep(left)

    def visited(self, block: int) -> None:
        """A block that `VISIT` handed over has made its visits here (or was recalled)."""
        hops = self._protocol.hops
        assert hops is not None
        with self._lock:
            hops.visited(block)
            self._write()

    def recall(self) -> None:
        """Ask every node to end the passes."""
        hops = self._protocol.hops
        if hops is not None:
            with self._lock:
                hops.recall()
                self._write()

    def close(self, error: str | None = None) -> None:
        """Part from the others: well, or for a reason that they are told and end with."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._beats.is_alive():
            self._beats.join()
        self._protocol.part(error)
        limit = time.monotonic() + FAREWELL
        try:
            # Until everything is written and, where all is well, everybody has said goodbye:
            # a connection that is closed before may take what was written with it.
            while time.monotonic() < limit:
                try:
                    self._receive()
                except PeerError:
                    pass  # too late to matter
                self._write()
                if all(map(self._is_written, self._others)) and (
                    error is not None or self._protocol.all_parted
                ):
                    break
                self._sleep(0.01)
        finally:
            self._link.close(all(map(self._is_told, self._others)))

    # How it works.

    def _step(self) -> None:
        """Take what has come, do what is due, write what can be written."""
        with self._lock:
            if self._failed is not None:
                raise self._failed
            came, now = self._receive(), time.monotonic()
            if came or now >= self._next_tick:
                self._next_tick = now + TICK
                self._protocol.tick(now)
            self._write()

    def _receive(self) -> bool:
        """Take what has come; whether anything has."""
        came = False
        for source, data in self._link.read():
            came = True
            if data is None:
                self._lose(source)
                continue
            frame: Frame
            try:
                for frame in self._readers[source].feed(data):
                    self._protocol.receive(source, frame)
            except FrameError as error:
                raise PeerError(f"{self._link.names[source]}: {error}") from error
        while self._protocol.outbox.changeable:
            j = self._protocol.outbox.changeable.pop()
            # Its MAC is that of the bytes as they are now.
            self._pending[j] = [bytes(buffer) for buffer in self._pending[j]]
        return came

    def _lose(self, source: int) -> None:
        self._gone.add(source)
        self._pending[source] = []
        self._protocol.lost(source)

    def _is_written(self, to: int) -> bool:
        return to in self._gone or (not self._pending[to] and self._protocol.outbox.is_empty(to))

    def _is_told(self, node: int) -> bool:
        """Whether a node knows that this one goes, or has said that it goes itself."""
        is_lost = node in self._gone or self._protocol.is_silent(node)
        is_lost = is_lost or node in self._protocol.unheard
        return self._protocol.has_parted(node) or (self._is_written(node) and not is_lost)

    def _write(self) -> None:
        for j in self._others:
            while self._write_to(j):
                pass

    def _write_to(self, to: int) -> bool:
        """Write what a node takes at once; whether more may follow."""
        outbox, pending = self._protocol.outbox, self._pending[to]
        if to in self._gone:
            outbox.clear(to)
            return False
        if not pending and outbox.is_empty(to):
            return False
        size = sum(map(len, pending))
        while size < BATCH and (message := outbox.next(to)) is not None:
            frame = self._writers[to].encode(message.kind, message.epoch, message.parts)
            pending += frame
            size += sum(map(len, frame))
        try:
            taken = self._link.write(to, pending)
        except OSError:
            # What it said last may still be there to be read: reading tells that it has ended.
            self._gone.add(to)
            self._pending[to] = []
            return False
        self._pending[to] = _without(pending, taken) if taken < size else []
        return taken == size

    def _sleep(self, seconds: float) -> None:
        """Sleep until there may be something to do."""
        readable(self.descriptors(), min(seconds, self.nap))

    def _beat(self) -> None:
        while not self._closed.wait(BEAT / 2):
            if self._lock.acquire(blocking=False):
                try:
                    self._protocol.beat(time.monotonic())
                    self._write()
                except PeerError as error:
                    self._failed = error
                    return
                finally:
                    self._lock.release()


def _without(buffers: list[Buffer], taken: int) -> list[Buffer]:
    """What is left of buffers after their first bytes."""
    for i, buffer in enumerate(buffers):
        if taken < len(buffer):
            return [memoryview(buffer)[taken:] if taken else buffer, *buffers[i + 1 :]]
        taken -= len(buffer)
    return []
