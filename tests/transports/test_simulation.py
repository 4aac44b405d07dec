"""The protocol in thousands of simulated fits: see `simulator` for what is checked."""

import pytest

from tests.transports.simulator import Cluster

SEEDS, AT_ONCE = 2000, 100


@pytest.fixture(autouse=True)
def other_constants(monkeypatch):
    """Rows of several pieces; news seldom enough that most steps are of something else."""
    monkeypatch.setattr("esvi_shm.transports.protocol.outbox.PIECE", 16)
    monkeypatch.setattr("esvi_shm.transports.protocol.hops.NEWS", 0.1)


def simulate(seeds, is_large=False):
    for seed in seeds:
        cluster = Cluster(seed, is_large)
        try:
            for _ in range(2 if is_large or seed % 4 == 0 else 1):
                cluster.release()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_blocks_make_their_visits_and_come_to_rest(first):
    simulate(range(first, first + AT_ONCE))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 100_000, 1000))
def test_many_more_seeds(first):
    simulate(range(first, first + 1000), is_large=True)
