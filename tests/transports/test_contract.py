"""What every transport promises; each runs the same fits of random rows."""

import os
import threading
import uuid

import pytest

from esvi_shm import transports
from esvi_shm.errors import ParameterError, PeerError
from esvi_shm.transports.contract import Options
from tests.transports.home import play


def together(n_nodes, work, **options):
    """Run `work(peers)` on every node in a thread of its own; what each returned or raised."""
    nodes = tuple(f"{uuid.uuid4().hex}-{j}" for j in range(n_nodes))
    results = [None] * n_nodes

    def run(rank):
        try:
            peers = transports.connect("loopback", Options(rank, nodes, **options), bytes(32))
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


@pytest.mark.parametrize("n_nodes", [1, 2, 3])
@pytest.mark.parametrize("route", ["lap", "balanced"])
def test_rows_travel_and_come_home(n_nodes, route):
    before = len(os.listdir("/proc/self/fd"))
    succeed(together(n_nodes, play, route=route))
    assert len(os.listdir("/proc/self/fd")) == before


def test_long_rows_go_in_pieces_through_full_queues():
    succeed(together(3, lambda peers: play(peers, 7, 700_000, 2, 1)))


def test_a_recall_is_heard_by_all():
    results = succeed(together(3, lambda peers: play(peers, n_passes=10**6, recall_after=20)))
    assert [recalled for _, recalled in results] == [True] * 3


def test_an_error_reaches_all():
    def work(peers):
        if peers.rank == 1:
            raise ParameterError("alpha", "must be greater than 0", -1)
        play(peers)

    results = together(3, work)
    assert isinstance(results[1], ParameterError)
    for j in (0, 2):
        assert isinstance(results[j], PeerError)
        assert "node 1" in str(results[j]) and "alpha must be greater" in str(results[j])
