"""What the families of counts have in common: t(x) is x itself, and zeros may stay zeros."""

import logging
from typing import Any

import numpy as np

from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.families._mixture.functions import gammaln
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points

#: Default of `feature_prior`.
FEATURE_PRIOR = 0.5
#: Means to start from are at most this, where the counts have no bound of their own.
MOST_MEAN = 1e12
#: A count is at most this: sums of counts and their squares are to stay in the range of floats.
MOST_COUNT = 1e30
#: Up to here a count's share of a score, in float32, is right to a tenth of a nat or so.
EXACT_COUNT = 1e5
_log = logging.getLogger(__name__)
_GAUSSIAN_ONLY = (
    "mean_precision_prior", "mean_prior", "degrees_of_freedom_prior", "covariance_prior",
)  # fmt: skip


class Counts:
    """A kind with t(x) = x; `mean` is the mean of the points, `feature` the prior's strength."""

    dtype: Any = np.float32
    #: The largest number that x may be, or None.
    most: float | None = None

    def __init__(self, n_features: int, options: MixtureOptions, prior: Any) -> None:
        self.n_statistics = n_features
        self.prior, self.mean = float(prior["feature"][0]), prior["mean"]

    @staticmethod
    def size_of(n_features: int, options: MixtureOptions) -> tuple[int, Any]:
        return n_features, np.float32

    @staticmethod
    def check(options: MixtureOptions) -> None:
        for name in _GAUSSIAN_ONLY:
            if getattr(options, name) is not None:
                rule = "is for family gaussian only"
                raise ParameterError(name, rule, getattr(options, name))
        if options.covariance != MixtureOptions.covariance:
            raise ParameterError("covariance", "is for family gaussian only", options.covariance)

    @classmethod
    def check_points(cls, points: Points, options: MixtureOptions) -> None:
        largest = 0.0
        for first in range(0, points.n_points, 4096):
            part = points.values[first : first + 4096]
            x = part.data if points.is_sparse else part
            largest = max(largest, float(x.max(initial=0.0)))
            bad = (x < 0) | (x != np.floor(x))
            bad |= x > (MOST_COUNT if cls.most is None else cls.most)
            if not bad.any():
                continue
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            value = float(x[at])
            if points.is_sparse:
                row = int(np.searchsorted(part.indptr, at[0], side="right")) - 1
                at = row, int(part.indices[at[0]])
            whole = f"must be whole numbers from 0 to {MOST_COUNT:g}"
            rule = whole if cls.most is None else "must be 0 or 1"
            where = f"in row {first + at[0]}, column {at[1]} (from 0)"
            raise CorpusError(points.name, f"{rule}, got {value:g} {where}")
        if largest > EXACT_COUNT:
            _log.warning(
                "%s: scores of counts as large as %.3g are rounded by a tenth of a nat or more",
                points.name, largest,
            )  # fmt: skip

    @staticmethod
    def prior_shapes(n_features: int, options: MixtureOptions) -> dict[str, tuple[int, ...]]:
        return {"feature": (1,), "mean": (n_features,)}

    @classmethod
    def find_prior(cls, points: Points, options: MixtureOptions) -> dict[str, np.ndarray]:
        if options.means is not None:
            most = cls.most or MOST_MEAN
            bad = (options.means < 0) | (options.means > most)
            if bad.any():
                raise ParameterError(
                    "means", f"must lie between 0 and {most:g}", float(options.means[bad][0])
                )
        # A feature that never occurs: as one that occurs in half a point.
        mean = np.maximum(points.moments()[0], 0.5 / points.n_points)
        return {"feature": np.array([options.feature_prior or FEATURE_PRIOR]), "mean": mean}

    @staticmethod
    def centre(points: Points, options: MixtureOptions) -> np.ndarray:
        return np.zeros(points.n_features)

    def features(self, x: np.ndarray) -> np.ndarray:
        return x

    def sparse_features(self, matrix: Any) -> Any:
        return matrix.tocsr()

    def spread(self, rows: Any) -> Any:
        """Square roots of shares: distances are Hellinger's."""
        if isinstance(rows, np.ndarray):
            return np.sqrt(rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-300))
        totals = np.maximum(np.asarray(rows.sum(axis=1)), 1e-300)
        return rows.multiply(1.0 / totals).sqrt().tocsr()


def log_factorials(points: Any) -> np.ndarray:
    """sum_d log x_d! of each point, dense or sparse."""
    if isinstance(points, np.ndarray):
        return gammaln(points.astype(np.float64) + 1.0).sum(axis=1)
    owners = np.repeat(np.arange(points.shape[0]), np.diff(points.indptr))
    terms = gammaln(points.data.astype(np.float64) + 1.0)
    return np.bincount(owners, terms, minlength=points.shape[0])
