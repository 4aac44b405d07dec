"""Points set aside from the fit of a mixture, and what their log likelihood is while it runs."""

import math
from typing import Any

import numpy as np

from esvi_shm import families
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics.holdout import DRAW, check_share
from esvi_shm.mixture import FittedMixture
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points, as_points


class HeldOutPoints:
    """Points that judge a mixture: calling it gives minus their mean log likelihood, in nats.

    It is that of `FittedMixture.score_samples`, a lower bound of the predictive density's.

    Parameters
    ----------
    points : Points
    n_features : int
        Features of the points of the fit.
    family : str
    options : MixtureOptions

    Raises
    ------
    CorpusError
        For points with other features, or that the family does not take.
    """

    def __init__(
        self, points: Points, n_features: int, family: str, options: MixtureOptions | None
    ) -> None:
        if points.n_features != n_features:
            rule = f"must have {n_features} features, as the points of the fit have"
            raise CorpusError(points.name, f"{rule}, got {points.n_features}")
        self.points, self.family, self.options = points, family, options or MixtureOptions()
        made: Any = families.find(family)
        made.kind.check_points(points, self.options)

    def __call__(
        self, statistics: np.ndarray, prior: dict[str, np.ndarray], centre: np.ndarray
    ) -> float:
        nobody = np.empty(0, np.int32)
        model = FittedMixture(self.family, self.options, statistics, prior, centre, [], {}, nobody)
        return -float(model.score_samples(self.points).mean())

    def describe(self) -> dict[str, Any]:
        """What was held out, as `summary.json` has it."""
        return {"source": self.points.name, "n_points": self.points.n_points}


def set_aside(
    points: Points, holdout: Any, family: str, options: MixtureOptions | None, seed: int
) -> tuple[Points, HeldOutPoints]:
    """Part points into those to fit to and those that judge.

    Parameters
    ----------
    points : Points
    holdout : float, or anything that `as_points` takes
        A share of the points, drawn by `seed` alone; or other points, and then the fit is to all.
    family : str
    options : MixtureOptions or None
    seed : int

    Raises
    ------
    ParameterError
        For a share that is not in (0, 1), or leaves no point on one of the sides.
    CorpusError
        As by `HeldOutPoints`.

    Examples
    --------
    >>> points = as_points(np.arange(20.0)[:, None])
    >>> training, held_out = set_aside(points, 0.2, "gaussian", None, seed=0)
    >>> training.n_points, held_out.points.n_points
    (16, 4)
    """
    if not isinstance(holdout, int | float | np.number):
        other = as_points(holdout).in_order_of(points.features)
        return points, HeldOutPoints(other, points.n_features, family, options)
    n_held = math.floor(check_share(float(holdout)) * points.n_points + 0.5)
    if not 0 < n_held < points.n_points:
        rule = f"must set aside some and not all of {points.n_points} points"
        raise ParameterError("holdout", rule, holdout)
    drawn = np.random.default_rng([seed, DRAW]).permutation(points.n_points)
    name = f"{points.name}, {n_held} points held out"
    aside = Points(points.rows(np.sort(drawn[:n_held])), name)
    training = Points(points.rows(np.sort(drawn[n_held:])), points.name, points.features)
    return training, HeldOutPoints(aside, points.n_features, family, options)
