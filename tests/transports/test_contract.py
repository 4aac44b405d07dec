"""What every transport promises; each runs the same fits of random rows."""

import gc
import os
import re
import threading
import uuid

import pytest

from esvi_shm import transports
from esvi_shm.errors import ParameterError, PeerError
from esvi_shm.transports import _meeting
from esvi_shm.transports.contract import Options
from esvi_shm.transports.ferry import Ferry
from tests.transports.home import free_addresses, play, write_key

#: Those whose nodes can be threads of one process; of mpi a process is a node (test_processes).
TRANSPORTS = ("loopback", "tcp", "tcp with a key")


def addresses(transport, n_nodes):
    """Nodes that nobody else has."""
    if transport == "loopback":
        return tuple(f"{uuid.uuid4().hex}-{j}" for j in range(n_nodes))
    return free_addresses(n_nodes)


def together(transport, n_nodes, work, digests=None, **options):
    """Run `work(peers)` on every node in a thread of its own; what each returned or raised."""
    nodes = addresses(transport, n_nodes)
    results = [None] * n_nodes

    def run(rank):
        try:
            digest = digests[rank] if digests else bytes(32)
            name = transport.split()[0]
            peers = transports.connect(name, Options(rank, nodes, **options), digest)
            try:
                results[rank] = work(peers)
            except BaseException as error:
                peers.close(str(error))
                raise
            peers.close()
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n_nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def succeed(results):
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.fixture(params=TRANSPORTS)
def run(request, tmp_path):
    """`together` over a transport."""
    options = {}
    if request.param.endswith("key"):
        options["key_file"] = str(tmp_path / "key")
        write_key(options["key_file"])
    return lambda n_nodes, work, **more: together(request.param, n_nodes, work, **options, **more)


@pytest.mark.parametrize("n_nodes", [1, 2, 3])
@pytest.mark.parametrize("route", ["lap", "balanced"])
def test_rows_travel_and_come_home(run, n_nodes, route):
    gc.collect()  # of what came before
    before = len(os.listdir("/proc/self/fd"))
    succeed(run(n_nodes, play, route=route))
    assert len(os.listdir("/proc/self/fd")) == before


def test_long_rows_go_in_pieces_through_full_queues(run):
    succeed(run(3, lambda peers: play(peers, 7, 700_000, 2, 1)))


def test_a_recall_is_heard_by_all(run):
    results = succeed(run(3, lambda peers: play(peers, n_passes=10**6, recall_after=20)))
    assert [recalled for _, recalled in results] == [True] * 3


def test_a_node_that_runs_another_fit_is_named(run):
    results = run(3, play, digests=[bytes(32), bytes(32), b"1" * 32])
    for result in results:
        assert isinstance(result, PeerError)
        assert "node 2" in str(result) and "other options" in str(result)


def test_a_node_that_leaves_while_it_is_needed_is_named(run):
    results = run(2, lambda peers: play(peers) if peers.rank else None)
    assert isinstance(results[1], PeerError)
    assert "node 0" in str(results[1]) and "has left the fit" in str(results[1])


@pytest.mark.parametrize("transport", ["loopback", "tcp"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_that_never_comes_is_named(transport, rank, caplog, monkeypatch):
    monkeypatch.setattr(_meeting, "SILENCE", 0.0)
    caplog.set_level("INFO")
    nodes = addresses(transport, 2)
    late = re.escape(f"node {1 - rank} ({nodes[1 - rank]}) has not come in 0.2 s")
    with pytest.raises(PeerError, match=late):
        transports.connect(transport, Options(rank, nodes, wait=0.2), bytes(32))
    told = f"waiting for node {1 - rank} ({nodes[1 - rank]}), 0.2 s at most"
    assert caplog.messages == ([told] if transport == "tcp" else [])


@pytest.mark.parametrize("transport", ["loopback", "tcp"])
@pytest.mark.parametrize(
    "rank, nodes, message",
    [
        (None, ("127.0.0.1:4000",), "rank must be from 0 to 0"),
        (2, ("127.0.0.1:4000", "127.0.0.1:4001"), "rank must be from 0 to 1"),
        (0, (), "nodes must name every node"),
        (0, ("127.0.0.1:4000", "127.0.0.1:4000"), "nodes must each be another"),
    ],
)
def test_nodes_and_rank_are_checked(transport, rank, nodes, message):
    with pytest.raises(ParameterError, match=message):
        transports.check(transport, Options(rank, nodes))


def test_nobody_sleeps_on_what_has_come(monkeypatch):
    came, ferry = [], Ferry.__new__(Ferry)
    monkeypatch.setattr(Ferry, "_step", lambda self: came.append("a part"))
    monkeypatch.setattr(Ferry, "_sleep", lambda *_: pytest.fail("it sleeps"))
    assert ferry._wait_for(lambda: came or None) == ["a part"]


def test_an_unknown_transport_is_refused_with_those_that_are_known():
    assert set(transports.known()) >= {"loopback", "tcp"}
    with pytest.raises(ParameterError, match=r"must be one of loopback, .*tcp"):
        transports.check("pigeon", Options())


def test_an_error_reaches_all(run):
    def work(peers):
        if peers.rank == 1:
            raise ParameterError("alpha", "must be greater than 0", -1)
        play(peers)

    results = run(3, work)
    assert isinstance(results[1], ParameterError)
    for j in (0, 2):
        assert isinstance(results[j], PeerError)
        assert "node 1" in str(results[j]) and "alpha must be greater" in str(results[j])
