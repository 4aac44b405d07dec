"""Nodes joined by sockets: `--nodes HOST:PORT,HOST:PORT,... --rank R`.

Every node listens at its own address until all have come, connects to those of lower rank, and
then stops listening: nobody can join later. Who connects has to prove that it belongs here (see
`_meeting`, `_greeting`); whoever does not is dropped, and the run goes on. Addresses beyond this
machine need a key, and with a key every frame has a MAC. Nothing is encrypted.

A connection that is lost is not made again: the fit ends, and says which node it was.
"""

import ipaddress
import os
import select
import socket
import stat
import time
from collections.abc import Iterator, Sequence

from esvi_shm.errors import ParameterError
from esvi_shm.transports._meeting import Met, call, listen, resolve, wait_for_others
from esvi_shm.transports.contract import BATCH, Options
from esvi_shm.transports.protocol.frames import Buffer

LEAST_KEY, MOST_KEY = 16, 4096


def _key(path: str | None) -> bytes | None:
    """The key in a file that only its owner can read."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_mode & 0o077:
                mode = f"{path} with mode {stat.S_IMODE(facts.st_mode):04o}"
                raise ParameterError("key_file", "must be a file of mode 0600", mode)
            key = file.read(MOST_KEY + 3).removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise ParameterError("key_file", f"must be a readable file ({error})", path) from None
    if not LEAST_KEY <= len(key) <= MOST_KEY:
        rule = f"must hold from {LEAST_KEY} to {MOST_KEY} bytes, and holds {len(key)}"
        raise ParameterError("key_file", rule, path)
    return key


def check(options: Options) -> None:
    """Raise ParameterError unless the options say safely where the nodes are."""
    _, nodes = options.placed()
    key = _key(options.key_file)
    for node in nodes:
        _, address = resolve(node)
        if key is None and not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback:
            rule = f"must be given where a node is not on this machine ({node})"
            raise ParameterError("key_file", rule, options.key_file)


def connect(options: Options) -> "TcpLink":
    """Find all nodes.

    Raises
    ------
    ParameterError
        If this node cannot listen at its address.
    PeerError
        If another does not come in time, or has another key, or the same rank.
    """
    rank, nodes = options.placed()
    key = _key(options.key_file)
    names = [f"node {j} ({node})" for j, node in enumerate(nodes)]
    limit = time.monotonic() + options.wait
    met: Met = {}
    listening = None
    try:
        listening = listen(nodes[rank], len(nodes))
        for j in range(rank):
            met[j] = call(key, nodes, names, rank, j, limit, options.wait)
        wait_for_others(listening, key, nodes, names, rank, met, limit, options.wait)
    except BaseException:
        for found, _ in met.values():
            found.close()
        raise
    finally:
        if listening is not None:
            listening.close()
    return TcpLink(rank, names, met, key is not None)


class TcpLink:
    """The sockets of one node."""

    nap = 0.02
    threads = True

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        met: Met,
        has_key: bool,
    ) -> None:
        self.rank, self.names, self.n_nodes = rank, names, len(names)
        self._sockets = {j: found for j, (found, _) in met.items()}
        self._keys = {j: keys for j, (_, keys) in met.items()} if has_key else {}
        self._of_descriptor = {found.fileno(): j for j, found in self._sockets.items()}
        self._epoll = select.epoll()
        self._full: set[int] = set()
        self._buffer = memoryview(bytearray(2 * BATCH))
        for found in self._sockets.values():
            found.setblocking(False)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
            # No TCP_USER_TIMEOUT: a node that is busy reads nothing, and is alive. One that is gone
            # is given up for its silence.
            self._epoll.register(found, select.EPOLLIN)

    def key(self, sender: int, receiver: int) -> bytes | None:
        """The key of the frames of one direction."""
        if not self._keys:
            return None
        ours, theirs = self._keys[receiver if sender == self.rank else sender]
        return ours if sender == self.rank else theirs

    def write(self, to: int, buffers: Sequence[Buffer]) -> int:
        """Take bytes for a node, as many as its socket has room for."""
        buffers = buffers[:512]  # the system takes 1024 at most
        try:
            taken = self._sockets[to].sendmsg(buffers)
        except BlockingIOError:
            taken = 0
        is_full = taken < sum(map(len, buffers))
        if is_full != (to in self._full):
            self._full ^= {to}
            events = select.EPOLLIN | (select.EPOLLOUT if is_full else 0)
            self._epoll.modify(self._sockets[to], events)
        return taken

    def read(self) -> Iterator[tuple[int, memoryview | None]]:
        """What has come, by its sender; each is to be used before the next is asked for."""
        for descriptor, events in self._epoll.poll(0):
            if not events & ~select.EPOLLOUT:
                continue
            j = self._of_descriptor[descriptor]
            try:
                size = self._sockets[j].recv_into(self._buffer)
            except BlockingIOError:
                continue
            except OSError:
                size = 0
            if size:
                yield j, self._buffer[:size]
            else:
                self._epoll.unregister(descriptor)
                del self._of_descriptor[descriptor]
                yield j, None

    def descriptors(self) -> Sequence[int]:
        """Readable when a socket can be read, or written where it was full."""
        return [self._epoll.fileno()]

    def close(self, was_told: bool) -> None:
        """End all connections, so that what was written last is read."""
        limit = time.monotonic() + 2.0
        for found in self._sockets.values():
            try:
                found.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has ended already
        # A socket closed with something unread takes back what it has sent last.
        while self._of_descriptor and time.monotonic() < limit:
            for _ in self.read():
                pass
            if self._of_descriptor:
                time.sleep(0.01)
        for found in self._sockets.values():
            found.close()
        self._epoll.close()
