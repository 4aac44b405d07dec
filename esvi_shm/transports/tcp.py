"""Nodes joined by sockets: `--nodes HOST:PORT,HOST:PORT,... --rank R`.

Every node listens at its own address until all have come, connects to those of lower rank, and
then stops listening: nobody can join later. Who connects has to prove that it belongs here (see
`_greeting`), within GREETING seconds and a few bytes; whoever does not is dropped, and the run
goes on. Addresses beyond this machine need a key, and with a key every frame has a MAC. Nothing
is encrypted.

A connection that is lost is not made again: the fit ends, and says which node it was.
"""

import ipaddress
import logging
import os
import select
import socket
import stat
import time
from collections.abc import Iterator, Sequence

from esvi_shm.errors import ParameterError, PeerError
from esvi_shm.transports._greeting import OTHER_NODES, TWICE, WELCOME, Caller, Listener
from esvi_shm.transports.contract import BATCH, Options
from esvi_shm.transports.protocol.frames import Buffer, FrameError

#: Seconds that a greeting may take.
GREETING = 5.0
#: Connections at once that have not yet said who they are.
MOST_STRANGERS = 64
#: Seconds between two attempts to reach a node that does not listen yet.
AGAIN = 0.1
#: Seconds until the system gives up data that nobody takes. Longer than the silence after which
#: a node is given up anyhow: a node that is busy reads nothing, and is alive.
TIMEOUT = 20.0
LEAST_KEY, MOST_KEY = 16, 4096

_log = logging.getLogger(__name__)


def _address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ParameterError("nodes", "must be HOST:PORT with a port from 1 to 65535", text)
    return host, int(port)


def _resolve(text: str) -> tuple[socket.AddressFamily, tuple]:
    host, port = _address(text)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        rule = f"must have hosts whose names are known ({error})"
        raise ParameterError("nodes", rule, text) from None
    family, _, _, _, address = found[0]
    return family, address


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
            key = file.read(MOST_KEY + 1).strip()
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
        _, address = _resolve(node)
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
    met: dict[int, tuple[socket.socket, tuple[bytes, bytes]]] = {}
    listening = None
    try:
        listening = _listen(nodes[rank], len(nodes))
        for j in range(rank):
            met[j] = _call(key, nodes, names, rank, j, limit, options.wait)
        _wait(listening, key, names, rank, met, limit, options.wait)
    except BaseException:
        for found, _ in met.values():
            found.close()
        raise
    finally:
        if listening is not None:
            listening.close()
    return TcpLink(rank, names, met, key is not None)


def _listen(node: str, n_nodes: int) -> socket.socket:
    family, address = _resolve(node)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(n_nodes + MOST_STRANGERS)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        rule = "must give this rank an address and a free port of this machine; is another node "
        rule += f"of the same rank running? ({error.strerror})"
        raise ParameterError("nodes", rule, node) from None
    return listening


def _call(
    key: bytes | None,
    nodes: Sequence[str],
    names: Sequence[str],
    rank: int,
    peer: int,
    limit: float,
    wait: float,
) -> tuple[socket.socket, tuple[bytes, bytes]]:
    """Connect to a node, which may not be there yet, and greet it."""
    family, address = _resolve(nodes[peer])
    why: object = "it does not listen"
    while (left := limit - time.monotonic()) > 0:
        trying = socket.socket(family, socket.SOCK_STREAM)
        try:
            trying.settimeout(left)
            trying.connect(address)
            # On one machine a port that nobody listens at may connect to itself.
            if trying.getsockname() != trying.getpeername():
                return trying, _greet(trying, Caller(key, len(nodes), rank, peer, os.urandom(32)))
        except PeerError as error:
            trying.close()
            raise PeerError(f"{names[peer]} {error}") from None
        except OSError as error:
            why = error.strerror or error
        except BaseException:
            trying.close()
            raise
        trying.close()
        time.sleep(min(AGAIN, max(limit - time.monotonic(), 0)))
    raise PeerError(f"{names[peer]} has not come in {wait:g} s ({why})")


def _greet(connected: socket.socket, caller: Caller) -> tuple[bytes, bytes]:
    connected.sendall(caller.first)
    while caller.keys is None:
        data = connected.recv(caller.wanted)
        if not data:
            raise ConnectionResetError(0, "it has closed the connection")
        connected.sendall(caller.feed(data))
    return caller.keys


def _wait(
    listening: socket.socket,
    key: bytes | None,
    names: Sequence[str],
    rank: int,
    met: dict[int, tuple[socket.socket, tuple[bytes, bytes]]],
    limit: float,
    wait: float,
) -> None:
    """Wait for the nodes of higher rank; drop whoever is none."""
    strangers: dict[int, tuple[socket.socket, Listener, float]] = {}
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    refused = ""
    try:
        while len(met) < len(names) - 1:
            now = time.monotonic()
            if now > limit:
                late = min(set(range(len(names))) - met.keys() - {rank})
                raise PeerError(f"{names[late]} has not come in {wait:g} s{refused}")
            for fd, _ in poll.poll(100):
                if fd == listening.fileno():
                    listener = Listener(key, len(names), rank, os.urandom(32))
                    _accept(listening, strangers, poll, listener)
                    continue
                connected, listener, _ = strangers[fd]
                why = _hear(connected, listener, names, met)
                if why is None:
                    continue
                poll.unregister(fd)
                del strangers[fd]
                if why:
                    connected.close()
                    refused = f"; {why}"
            for fd, (connected, _, until) in list(strangers.items()):
                if now > until:
                    poll.unregister(fd)
                    connected.close()
                    del strangers[fd]
    finally:
        for connected, _, _ in strangers.values():
            connected.close()


def _accept(
    listening: socket.socket,
    strangers: dict[int, tuple[socket.socket, Listener, float]],
    poll: "select.poll",
    listener: Listener,
) -> None:
    try:
        connected, _ = listening.accept()
    except OSError:
        return  # it has gone again
    if len(strangers) >= MOST_STRANGERS:
        connected.close()
        return
    connected.setblocking(False)
    strangers[connected.fileno()] = connected, listener, time.monotonic() + GREETING
    poll.register(connected, select.POLLIN)


def _hear(
    connected: socket.socket,
    listener: Listener,
    names: Sequence[str],
    met: dict[int, tuple[socket.socket, tuple[bytes, bytes]]],
) -> str | None:
    """Take what one that connects says; "" if it is a node, why it was dropped, else None."""
    who = "someone"
    try:
        who = connected.getpeername()[0]
        data = connected.recv(listener.wanted)
        if not data:
            return f"a connection from {who} was closed before it said who it is"
        # So few bytes always find room.
        connected.sendall(listener.feed(data))
        if not listener.is_proven:
            return None
        if listener.has_other_nodes:
            connected.sendall(OTHER_NODES)
            raise PeerError(f"a node at {who} was started with other nodes or another rank")
        if listener.peer in met:
            connected.sendall(TWICE)
            return f"a second node {listener.peer} at {who} was refused"
        connected.sendall(WELCOME)
    except (OSError, FrameError) as error:
        why = f"a connection from {who} was refused: {error}"
        _log.warning("%s", why)
        return why
    met[listener.peer] = connected, listener.keys
    return ""


class TcpLink:
    """The sockets of one node."""

    nap = 0.02
    threads = True

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        met: dict[int, tuple[socket.socket, tuple[bytes, bytes]]],
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
            timeout = int(1000 * TIMEOUT)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)
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
