"""Sockets: who may come, what is refused, and what a stranger can do (nothing)."""

import os
import socket
import threading

import pytest

from esvi_shm import transports
from esvi_shm.errors import ParameterError, PeerError
from esvi_shm.transports import _greeting, _meeting
from esvi_shm.transports.contract import Options
from tests.transports.home import free_addresses, play, write_key


def in_threads(options, work=play, disturb=None):
    """Run the nodes that the options are of; what each raised, or None."""
    results = [None] * len(options)

    def run(i):
        try:
            peers = transports.connect("tcp", options[i], bytes(32))
            try:
                work(peers)
            except BaseException as error:
                peers.close(str(error))
                raise
            peers.close()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(options))]
    threads[0].start()
    if disturb is not None:
        disturb()
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def test_an_address_beyond_this_machine_needs_a_key(tmp_path):
    nodes = ("127.0.0.1:4000", "192.0.2.1:4000")
    with pytest.raises(ParameterError, match=r"key_file must be given .*192\.0\.2\.1"):
        transports.check("tcp", Options(0, nodes))
    with pytest.raises(ParameterError, match=r"key_file must be given .*0\.0\.0\.0"):
        transports.check("tcp", Options(0, ("0.0.0.0:4000", "127.0.0.1:4000")))
    write_key(tmp_path / "key")
    transports.check("tcp", Options(0, nodes, str(tmp_path / "key")))
    transports.check("tcp", Options(0, ("localhost:4000", "[::1]:4000")))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    write_key(tmp_path / "key", mode=mode)
    with pytest.raises(ParameterError, match=f"key_file must be a file of mode 0600.*{mode:04o}"):
        transports.check("tcp", Options(0, ("127.0.0.1:4000",), str(tmp_path / "key")))


def test_a_key_must_be_there_and_long_enough(tmp_path):
    with pytest.raises(ParameterError, match="key_file must be a readable file"):
        transports.check("tcp", Options(0, ("127.0.0.1:4000",), str(tmp_path / "none")))
    write_key(tmp_path / "key", b"short\n")
    with pytest.raises(ParameterError, match="from 16 to 4096 bytes, and holds 5"):
        transports.check("tcp", Options(0, ("127.0.0.1:4000",), str(tmp_path / "key")))


@pytest.mark.parametrize(
    "node", ["127.0.0.1", "127.0.0.1:", ":4000", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:70000"]
)
def test_addresses_are_checked(node):
    with pytest.raises(ParameterError, match="nodes must be HOST:PORT"):
        transports.check("tcp", Options(0, (node,)))


def test_a_host_that_nobody_knows_is_refused(monkeypatch):
    def fail(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ParameterError, match="nodes must have hosts whose names are known"):
        transports.check("tcp", Options(0, ("no-such-host.invalid:4000",)))


def test_a_port_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as other:
        nodes = (f"127.0.0.1:{other.getsockname()[1]}", *free_addresses(1))
        with pytest.raises(ParameterError, match=r"nodes must give this rank .* free port"):
            transports.connect("tcp", Options(0, nodes), bytes(32))


def test_another_program_on_the_port_of_a_node_is_told_from_one():
    def serve():
        connection, _ = other.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 10)
            connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as other:
        nodes = (f"127.0.0.1:{other.getsockname()[1]}", *free_addresses(1))
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(PeerError, match=r"node 0 .* is another program"):
            transports.connect("tcp", Options(1, nodes), bytes(32))
        thread.join()


@pytest.mark.parametrize("with_key", [False, True])
def test_another_key_is_refused_on_both_sides(tmp_path, with_key, monkeypatch):
    monkeypatch.setattr(_meeting, "GREETING", 0.5)
    nodes = free_addresses(2)
    write_key(tmp_path / "a")
    write_key(tmp_path / "b", b"quite another key for the other")
    theirs = str(tmp_path / "b") if with_key else None
    options = [Options(0, nodes, str(tmp_path / "a")), Options(1, nodes, theirs)]
    listens, calls = in_threads(options)  # both long before the time limit
    assert isinstance(calls, PeerError) and "node 0" in str(calls) and "another key" in str(calls)
    assert isinstance(listens, PeerError) and "node 1" in str(listens)
    told = "has not come; a connection from 127.0.0.1 was refused: it has another key"
    assert told in str(listens)


def test_the_right_node_may_come_after_one_with_another_key(tmp_path):
    nodes = free_addresses(2)
    write_key(tmp_path / "a")
    write_key(tmp_path / "b", b"quite another key for the other")
    told = []

    def disturb():
        with pytest.raises(PeerError, match="another key") as caught:
            transports.connect("tcp", Options(1, nodes, str(tmp_path / "b")), bytes(32))
        told.append(caught.value)

    right = [Options(j, nodes, str(tmp_path / "a")) for j in range(2)]
    assert in_threads(right, disturb=disturb) == [None, None]
    assert told


def test_a_second_node_of_a_rank_is_refused_and_the_first_goes_on():
    # The third node has other hands: it pretends to have an address of its own.
    nodes = free_addresses(3)
    refused = []

    def disturb():
        host, port = nodes[0].split(":")
        keys = []
        connected = []
        for _ in range(2):
            caller = _greeting.Caller(None, 3, 1, 0, os.urandom(32))
            connection = connect_soon((host, int(port)))
            try:
                keys.append(_meeting.greet(connection, caller))
            except PeerError as error:
                refused.append(str(error))
            connected.append(connection)
        for connection in connected:
            connection.close()

    results = in_threads([Options(0, nodes, wait=1.0)], disturb=disturb)
    assert refused == ["has a node 1 already: two were given the same rank"]
    assert "node 2" in str(results[0])


def test_a_node_with_other_nodes_is_named_on_both_sides():
    nodes = free_addresses(3)
    results = in_threads([Options(0, nodes[:2], wait=5.0), Options(1, nodes, wait=5.0)])
    assert "started with other nodes" in str(results[0])
    assert "node 0" in str(results[1]) and "started with other nodes" in str(results[1])


def connect_soon(address):
    """Connect to one who is about to listen."""
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            continue


def greeting(n_nodes=2, rank=1, peer=0):
    return _greeting.Caller(None, n_nodes, rank, peer, bytes(32)).first


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 10_000_000,
        greeting()[:20],
        greeting() + bytes(32),
        greeting() + b"x" * 10_000_000,
        greeting(rank=0) + bytes(32),
        greeting(n_nodes=2**31) + bytes(32),
    ],
)
def test_a_stranger_is_dropped_and_the_run_goes_on(said):
    nodes = free_addresses(2)
    strangers = []

    def disturb():
        host, port = nodes[0].split(":")
        stranger = connect_soon((host, int(port)))
        stranger.settimeout(10)
        strangers.append(stranger)
        try:
            stranger.sendall(said)
        except OSError:
            pass  # dropped already, as it should

    try:
        results = in_threads([Options(j, nodes, wait=30.0) for j in range(2)], disturb=disturb)
        assert results == [None, None]
    finally:
        for stranger in strangers:
            stranger.close()


def test_strangers_have_limited_time(monkeypatch):
    monkeypatch.setattr(_meeting, "GREETING", 0.2)
    nodes = free_addresses(2)
    ended = []

    def disturb():
        host, port = nodes[0].split(":")
        with connect_soon((host, int(port))) as stranger:
            stranger.settimeout(10)
            stranger.sendall(greeting()[:10])
            ended.append(stranger.recv(100))

    assert in_threads([Options(j, nodes) for j in range(2)], disturb=disturb) == [None, None]
    assert ended == [b""]


def test_strangers_cannot_take_all_places():
    nodes = free_addresses(2)
    strangers = []

    def disturb():
        host, port = nodes[0].split(":")
        strangers.append(connect_soon((host, int(port))))
        for _ in range(_meeting.MOST_STRANGERS + 20):
            strangers.append(socket.create_connection((host, int(port))))
        # Those beyond the most are closed at once.
        strangers[-1].settimeout(10)
        assert strangers[-1].recv(1) == b""
        for stranger in strangers:
            stranger.close()

    assert in_threads([Options(j, nodes) for j in range(2)], disturb=disturb) == [None, None]


def test_greetings_cannot_be_played_again_or_turned_round():
    key = b"k" * 32
    caller = _greeting.Caller(key, 2, 1, 0, b"c" * 32)
    listener = _greeting.Listener(key, 2, 0, b"l" * 32)
    answer = listener.feed(caller.first)
    proof = caller.feed(answer)
    assert listener.feed(proof) == b"" and listener.is_proven
    caller.feed(_greeting.WELCOME)
    assert caller.keys == listener.keys[::-1] and caller.keys[0] != caller.keys[1]
    again = _greeting.Listener(key, 2, 0, b"m" * 32)
    own = again.feed(caller.first)
    for said in (proof, own[32:]):
        again = _greeting.Listener(key, 2, 0, b"m" * 32)
        again.feed(caller.first)
        with pytest.raises(PeerError, match="another key"):
            again.feed(said)
    assert len(caller.first) + len(proof) <= _greeting.LONGEST


def test_a_changed_frame_ends_the_run(tmp_path, monkeypatch):
    write_key(tmp_path / "key")
    nodes = free_addresses(2)
    options = [Options(j, nodes, str(tmp_path / "key")) for j in range(2)]

    def work(peers):
        if peers.rank == 1:
            peers._writers[0]._mac = peers._writers[0]._mac.copy()
            peers._writers[0]._mac.update(b"x")
        play(peers)

    results = in_threads(options, work)
    assert "node 1" in str(results[0]) and "MAC" in str(results[0])
    assert "node 0" in str(results[1]) and "ended the fit" in str(results[1])
