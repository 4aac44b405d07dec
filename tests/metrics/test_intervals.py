"""Intervals of a Dirichlet's weights against draws from it."""

import numpy as np
import pytest

from esvi_shm.errors import ParameterError
from esvi_shm.metrics import dirichlet_interval


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_they_are_the_quantiles_of_draws(level):
    parameters = np.array([0.3, 2.0, 40.0, 7.0])
    draws = np.random.default_rng(0).dirichlet(parameters, 200_000)
    found = dirichlet_interval(parameters, parameters.sum(), level)
    tail = (1 - level) / 2
    # Shares of draws below each end: their standard error is about 0.001 at most.
    np.testing.assert_allclose((draws < found.lower).mean(axis=0), tail, atol=0.005)
    np.testing.assert_allclose((draws > found.upper).mean(axis=0), tail, atol=0.005)


def test_a_lone_weight_is_one():
    found = dirichlet_interval(np.array([3.0]), np.array([3.0]))
    assert (found.lower.tolist(), found.upper.tolist()) == ([1.0], [1.0])


@pytest.mark.parametrize("level", [0.0, 1.0, -1, 95, np.nan, "x", None, [0.5]])
def test_a_level_is_a_probability(level):
    with pytest.raises(ParameterError, match="level must lie between 0 and 1"):
        dirichlet_interval(np.ones(2), 2.0, level)
