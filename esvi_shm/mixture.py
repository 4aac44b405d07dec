"""The fitted mixture: what people look at, save and load, and what it says of other points."""

import math
from typing import Any, NamedTuple

import numpy as np

from esvi_shm import families
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.families._mixture import DEAD
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points, as_points
from esvi_shm.runtime.record import Record, Result
from esvi_shm.summary import of_fit, speed_of

#: Numbers of t(x) that are computed at a time.
_TILE = 2**21


class MixtureRecord(NamedTuple):
    """One evaluation, as `runtime.record.Record`; `log_likelihood` is that of a held-out point."""

    passes: float
    fit_seconds: float
    total_seconds: float
    elbo: float
    elbo_f: float
    objective: float
    log_likelihood: float = math.nan


class FittedMixture:
    """A fitted mixture of an exponential family.

    Parameters
    ----------
    family : str
    options : MixtureOptions
    statistics : float64 array, shape (1 + T, K)
        Of each component: its points (row 0), and the sums of t(x) over them.
    prior : dict of float64 arrays
    centre : float64 array, shape (D,)
        Taken off all points.
    history : list of MixtureRecord
    summary : dict
        What `summary.json` holds.
    labels : int array, shape (N,)
        The most probable component of each point that it was fitted to.

    Examples
    --------
    >>> from esvi_shm.config import FitConfig
    >>> from esvi_shm.runtime import engine
    >>> points = as_points([[0.0], [0.1], [9.0], [9.1]] * 5)
    >>> config = FitConfig(2, family="gaussian", n_workers=1, n_passes=10)
    >>> model = FittedMixture.from_result(engine.fit(points, config), points)
    >>> model.weights.round(2).tolist(), np.sort(model.parameters()["means"].ravel()).round(1)
    ([0.5, 0.5], array([0.5, 8.6]))
    >>> len(set(model.predict([[0.0], [0.2], [8.0]]).tolist()))
    2
    """

    #: Names of its sizes in the summary.
    SIZES = ("n_points", "n_features", "n_components")

    def __init__(
        self,
        family: str,
        options: MixtureOptions,
        statistics: np.ndarray,
        prior: dict[str, np.ndarray],
        centre: np.ndarray,
        history: list[MixtureRecord],
        summary: dict[str, Any],
        labels: np.ndarray,
    ) -> None:
        self.family, self.options, self.statistics = family, options, statistics
        self.prior, self.centre, self.labels = prior, centre, labels
        self.history, self.summary = history, summary
        made: Any = families.find(family)
        self._check_points = made.kind.check_points
        self._kind = made.kind(len(centre), options, prior)
        self._kind.dtype = np.float64
        expected = self._kind.expect(self.counts, statistics[1:])
        self._theta, self._constant = expected.theta, expected.constant + self._log_weights()

    def __repr__(self) -> str:
        K = len(self.counts)
        text = f"{self.family}, {K} components, {len(self.centre)} features"
        return f"FittedMixture({text}, ELBO {self.elbo:.6g})"

    @classmethod
    def from_result(
        cls, result: Result, points: Points, holdout: dict[str, Any] | None = None
    ) -> "FittedMixture":
        """The model of a finished fit of `points`; `holdout` describes what judged it."""
        found, config = result.learned, result.config
        return cls(
            config.family, config.mixture or MixtureOptions(), np.array(found.statistics),
            found.prior, found.centre, [as_record(r) for r in result.history],
            summarise(result, points, holdout),
            found.labels(),
        )  # fmt: skip

    @property
    def counts(self) -> np.ndarray:
        """Points of each component, float64, shape (K,)."""
        return np.maximum(self.statistics[0], 0.0)

    @property
    def _concentrations(self) -> np.ndarray:
        K = self.statistics.shape[1]
        return self.counts + (self.options.weight_concentration_prior or 1.0 / K)

    @property
    def weights(self) -> np.ndarray:
        """E[pi], shape (K,)."""
        concentrations = self._concentrations
        return concentrations / concentrations.sum()

    def _log_weights(self) -> np.ndarray:
        from scipy.special import digamma

        concentrations = self._concentrations
        return digamma(concentrations) - digamma(concentrations.sum())

    @property
    def elbo(self) -> float:
        """The evidence lower bound of the points it was fitted to, in nats."""
        return self.history[-1].elbo

    def parameters(self) -> dict[str, np.ndarray]:
        """The components in scikit-learn's words, first axis K: `means`, `covariances`; `rates`."""
        found = self._kind.describe(self.counts, self.statistics[1:])
        if "means" in found:
            found["means"] = found["means"] + self.centre
        return found

    def _scores(self, x: Any) -> np.ndarray:
        """u_ik of some points (a matrix), float64."""
        if isinstance(x, np.ndarray):
            t = self._kind.features(x.astype(np.float64) - self.centre)
        elif self.centre.any():
            t = self._kind.features(x.toarray().astype(np.float64) - self.centre)
        else:
            t = self._kind.sparse_features(x.astype(np.float64))
        return np.asarray(t @ self._theta) + self._constant

    def _by_tiles(self, points: Any, say: Any) -> np.ndarray:
        """`say` of the scores and the points, tile by tile."""
        given = as_points(points).in_order_of(self.summary.get("features"))
        if given.n_features != len(self.centre):
            rule = f"must have {len(self.centre)} features, as the model has"
            raise CorpusError(given.name, f"{rule}, got {given.n_features}")
        self._check_points(given, self.options)
        step = max(1, _TILE // max(self._theta.shape))
        found = []
        for first in range(0, given.n_points, step):
            part = given.values[first : first + step]
            with np.errstate(over="ignore", invalid="ignore"):
                u = self._scores(part)
            lost = ~np.isfinite(u).all(axis=1)
            if lost.any():
                rule = "must lie nearer to the components: its scores overflow"
                raise CorpusError(given.name, f"row {first + int(np.argmax(lost))} {rule}")
            found.append(say(u, part))
        return np.concatenate(found)

    def predict_proba(self, points: Any) -> np.ndarray:
        """Responsibilities of the components for each point, float64, shape (N, K)."""

        def say(u: np.ndarray, x: Any) -> np.ndarray:
            z = np.exp(u - u.max(axis=1, keepdims=True))
            return z / z.sum(axis=1, keepdims=True)

        return self._by_tiles(points, say)

    def predict(self, points: Any) -> np.ndarray:
        """The most probable component of each point, shape (N,)."""
        return self._by_tiles(points, lambda u, x: u.argmax(axis=1))

    def score_samples(self, points: Any) -> np.ndarray:
        """log of sum_k exp(E[log pi_k p(x | theta_k)]) of each point, in nats, shape (N,).

        As in scikit-learn; a lower bound of the log of the predictive density.
        """
        from scipy.special import logsumexp

        return self._by_tiles(points, lambda u, x: logsumexp(u, axis=1) + self._kind.log_base(x))

    def sample(self, n: int = 1, random_state: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Points drawn from the model at its posterior means, and their components.

        Parameters
        ----------
        n : int
        random_state : int or None

        Returns
        -------
        float64 array, shape (n, D); int array, shape (n,)
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ParameterError("n", "must be a whole number from 1 on", n)
        random = np.random.default_rng(random_state)
        which = random.choice(len(self.weights), n, p=self.weights)
        x = self._kind.draw(self.counts, self.statistics[1:], which, random)
        return x + self.centre, which

    def save(self, folder: str) -> None:
        """Write the model directory; see `esvi_shm.store`."""
        from esvi_shm import store

        store.save(self, folder)


def as_record(record: Record) -> MixtureRecord:
    """An evaluation of the engine, whose judge says the lower the better."""
    return MixtureRecord(*record[:6], -record.perplexity)


def summarise(
    result: Result, points: Points, holdout: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The figures of a finished fit of a mixture, of what JSON can hold."""
    last, points = result.history[-1], points.whole
    return {
        "n_points": points.n_points,
        "n_features": points.n_features,
        "features": points.features,
        "n_components": result.config.n_topics,
        "n_dead_components": int((result.learned.statistics[0] < DEAD).sum()),
        "n_nodes": getattr(points, "n_nodes", 1),
        "elbo_per_point": last.elbo / points.n_points,
        "holdout": holdout,
        "holdout_log_likelihood": -last.perplexity if holdout else None,
        "points_per_second": speed_of(result),
        **of_fit(result, points),
    }
