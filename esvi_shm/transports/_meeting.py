"""How the nodes of a run over sockets find each other: each listens, and calls those before it.

Whoever connects has GREETING seconds and a few bytes to prove that it belongs here. Others are
dropped: they take a place among MOST_STRANGERS for that time, and nothing else.
"""

import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import Sequence

from esvi_shm.errors import ParameterError, PeerError
from esvi_shm.transports._greeting import OTHER_NODES, REFUSED, TWICE, WELCOME, Caller, Listener
from esvi_shm.transports.protocol.frames import FrameError

#: Seconds that a greeting may take.
GREETING = 5.0
#: Connections at once that have not yet said who they are.
MOST_STRANGERS = 64
#: Seconds that others are waited for before that is told.
SILENCE = 1.0
#: Seconds between two attempts to reach a node that does not listen yet.
AGAIN = 0.1

#: The nodes that are found: the connection, and the keys of what is sent and received there.
Met = dict[int, tuple[socket.socket, tuple[bytes, bytes]]]

_log = logging.getLogger(__name__)


def _address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ParameterError("nodes", "must be HOST:PORT with a port from 1 to 65535", text)
    return host, int(port)


def resolve(text: str) -> tuple[socket.AddressFamily, tuple]:
    host, port = _address(text)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        rule = f"must have hosts whose names are known ({error})"
        raise ParameterError("nodes", rule, text) from None
    family, _, _, _, address = found[0]
    return family, address


def listen(node: str, n_nodes: int) -> socket.socket:
    family, address = resolve(node)
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


def call(
    key: bytes | None,
    nodes: Sequence[str],
    names: Sequence[str],
    rank: int,
    peer: int,
    limit: float,
    wait: float,
) -> tuple[socket.socket, tuple[bytes, bytes]]:
    """Connect to a node, which may not be there yet, and greet it."""
    family, address = resolve(nodes[peer])
    why: object = "it does not listen"
    told = time.monotonic() + SILENCE
    while (left := limit - time.monotonic()) > 0:
        trying = socket.socket(family, socket.SOCK_STREAM)
        try:
            trying.settimeout(left)
            trying.connect(address)
            # On one machine a port that nobody listens at may connect to itself.
            if trying.getsockname() != trying.getpeername():
                return trying, greet(trying, Caller(key, len(nodes), rank, peer, os.urandom(32)))
        except PeerError as error:
            trying.close()
            raise PeerError(f"{names[peer]} {error}") from None
        except OSError as error:
            why = error.strerror or error
        except BaseException:
            trying.close()
            raise
        trying.close()
        if time.monotonic() > told:
            told = limit
            _log.info("waiting for %s, %g s at most", names[peer], wait)
        time.sleep(min(AGAIN, max(limit - time.monotonic(), 0)))
    raise PeerError(f"{names[peer]} has not come in {wait:g} s ({why})")


def greet(connected: socket.socket, caller: Caller) -> tuple[bytes, bytes]:
    connected.sendall(caller.first)
    while caller.keys is None:
        data = connected.recv(caller.wanted)
        if not data:
            raise ConnectionResetError(0, "it has closed the connection")
        try:
            answer = caller.feed(data)
        except PeerError:
            # So that it need not wait for this node, which will not come again.
            with contextlib.suppress(OSError):
                connected.sendall(REFUSED)
            raise
        connected.sendall(answer)
    return caller.keys


def wait_for_others(
    listening: socket.socket,
    key: bytes | None,
    nodes: Sequence[str],
    names: Sequence[str],
    rank: int,
    met: Met,
    limit: float,
    wait: float,
) -> None:
    """Wait for the nodes of higher rank; drop whoever is none.

    Whoever comes from a node's address, says that it is that node, and has another key most
    likely is: then the right one is waited for only GREETING seconds more.
    """
    strangers: dict[int, tuple[socket.socket, Listener, float]] = {}
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    refused, suspect = "", -1
    told = time.monotonic() + SILENCE
    try:
        while len(met) < len(names) - 1:
            now = time.monotonic()
            if now > limit and suspect in missing(names, rank, met):
                raise PeerError(f"{names[suspect]} has not come{refused}")
            if now > limit:
                late = min(missing(names, rank, met))
                raise PeerError(f"{names[late]} has not come in {wait:g} s{refused}")
            if now > told:
                told = limit
                others = ", ".join(names[j] for j in sorted(missing(names, rank, met)))
                _log.info("waiting for %s, %g s at most", others, wait)
            for fd, _ in poll.poll(100):
                if fd == listening.fileno():
                    listener = Listener(key, len(names), rank, os.urandom(32))
                    _accept(listening, strangers, poll, listener)
                    continue
                connected, listener, _ = strangers[fd]
                why = _hear(connected, listener, met)
                if why is None:
                    continue
                poll.unregister(fd)
                del strangers[fd]
                if why:
                    if _may_be_node(connected, listener, nodes):
                        suspect, limit = listener.peer, min(limit, now + GREETING)
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


def missing(names: Sequence[str], rank: int, met: Met) -> set[int]:
    """The nodes that have not come."""
    return set(range(len(names))) - met.keys() - {rank}


def _may_be_node(connected: socket.socket, listener: Listener, nodes: Sequence[str]) -> bool:
    """Whether someone who was refused is at the address of the node that it says it is."""
    if listener.has_other_nodes or listener.is_proven or listener.peer < 0:
        return False
    try:
        return connected.getpeername()[0] == resolve(nodes[listener.peer])[1][0]
    except (OSError, ParameterError):
        return False


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
    met: Met,
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
