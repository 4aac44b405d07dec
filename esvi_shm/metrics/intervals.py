"""Credible intervals of weights under a Dirichlet: its marginals are Beta(a_k, a_0 - a_k)."""

from typing import NamedTuple

import numpy as np

from esvi_shm.errors import ParameterError


class Interval(NamedTuple):
    """Ends of intervals with as much probability below as above them."""

    lower: np.ndarray
    upper: np.ndarray


def dirichlet_interval(part: np.ndarray, total: np.ndarray, level: float = 0.95) -> Interval:
    """Central credible intervals of weights x_k with x ~ Dirichlet(a).

    Parameters
    ----------
    part : array
        a_k > 0, of the weights that are asked for.
    total : array
        a_0, the sum of all parameters of their Dirichlet; must broadcast with `part`.
    level : float
        Probability inside, between 0 and 1.

    Returns
    -------
    Interval
        float64 arrays, of the shape of both.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> found = dirichlet_interval(np.array([1.0]), np.array([2.0]), level=0.5)  # uniform
    >>> found.lower.round(6).tolist(), found.upper.round(6).tolist()
    ([0.25], [0.75])
    """
    from scipy.special import betaincinv

    if not isinstance(level, float | np.floating) or not 0.0 < level < 1.0:
        raise ParameterError("level", "must lie between 0 and 1", level)
    a = np.asarray(part, np.float64)
    b = np.asarray(total, np.float64) - a
    # The only weight there is, is 1 (b is 0, or what float32 has left of it).
    b = np.maximum(b, 1e-300)
    tail = (1.0 - level) / 2.0
    return Interval(betaincinv(a, b, tail), betaincinv(a, b, 1.0 - tail))
