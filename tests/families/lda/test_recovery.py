"""Topics that generated the data are found again; from one start all orders end alike."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from tests import naive
from tests.families.lda.play import play


def farthest_topic(lambda_: np.ndarray, topics: np.ndarray) -> float:
    """Largest total variation between a topic and its estimate, best matched."""
    found = (lambda_ / lambda_.sum(axis=0)).T
    distance = np.abs(found[:, None] - topics[None]).sum(axis=2) / 2
    return float(distance[linear_sum_assignment(distance)].max())


@pytest.mark.parametrize("start", ["seeded", "scikit-learn"])
def test_separated_topics_are_recovered(start):
    """By the best of a few fits, as one would do it: two seeds may lie in one topic."""
    counts, topics = naive.simulate(200, 60, 4, 100, seed=0)
    fits = [
        play(counts, n_topics=4, n_workers=2, n_blocks=5, start=start, seed=seed)
        for seed in range(4)
    ]
    assert min(farthest_topic(fit.lambda_, topics) for fit in fits) > 0.1
    for fit in fits:
        for _ in range(40):
            fit.run_pass()
    best = max(fits, key=lambda fit: fit.bound().elbo)
    assert farthest_topic(best.lambda_, topics) < 0.1


def test_two_workers_reach_the_bound_of_one():
    counts, _ = naive.simulate(100, 40, 4, 60, seed=5)
    reached = []
    for n_workers in (1, 2, 3):
        fit = play(counts, n_topics=4, n_workers=n_workers, n_blocks=4)
        for _ in range(60):
            fit.run_pass()
        reached.append(fit.bound().elbo)
    assert np.ptp(reached) < 1e-3 * abs(reached[0])
