"""Mixtures of Gaussians: covariance diag, spherical (Normal-Gamma) or full (Normal-Wishart).

    mu_k ~ N(m0, 1 / (beta0 lambda_k)),   lambda_k ~ Gamma(a0, b0) or Wishart(W0, nu0)

`diag` is a product of Normal-Gammas, one for each feature, and `spherical` has one precision:
scikit-learn keeps a Wishart's digammas in both, so only bounds of `full` compare. Its products
x_i x_j are features of t(x) like all others, in float64: what they lose in subtractions would be
too much in float32.

Source: Bishop 2006, 10.2 (with nu = nu0 + N, of which 10.63 is a misprint).
"""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from esvi_shm.config import choose
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.families._mixture import Mixture
from esvi_shm.families._mixture.normal import Diagonal, Full, Spherical
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points

COVARIANCES = ("diag", "spherical", "full")
#: A feature with a standard deviation of less than this share of its mean is constant: rounding.
#: Its prior variance is this share of the mean one. Otherwise features may have any scales.
CONSTANT, LEAST_VARIANCE = 1e-6, 1e-6
#: A correlation matrix with an eigenvalue below is singular; such are lifted to `LEAST_VARIANCE`.
SINGULAR = 1e-12
#: Standard deviations whose squares, and the squares' inverses, float32 holds with room to spare.
LEAST_SPREAD, MOST_SPREAD = 1e-12, 1e12

#: Sparse points are not centred: means so many standard deviations from 0 leave scores of float32,
#: differences of their squares, with an error of 0.05 nats.
MOST_OFF_ZERO = 1e3
#: Standard deviations that a prior mean, or one to start from, may lie from that of the points.
MOST_FAR = 1e5

_log = logging.getLogger(__name__)


_KINDS: dict[str, Any] = {"diag": Diagonal, "spherical": Spherical, "full": Full}


class Gaussian:
    """The kind that `covariance` names; see `_mixture.kind.Kind`."""

    def __new__(
        cls, n_features: int, options: MixtureOptions, prior: Mapping[str, np.ndarray]
    ) -> Any:
        return _KINDS[options.covariance](n_features, options, prior)

    @staticmethod
    def check(options: MixtureOptions) -> None:
        choose("covariance", options.covariance, COVARIANCES)
        if options.feature_prior is not None:
            raise ParameterError("feature_prior", "is for counts only", options.feature_prior)

    @staticmethod
    def size_of(n_features: int, options: MixtureOptions) -> tuple[int, Any]:
        D = n_features
        n_statistics = {"diag": 2 * D, "spherical": D + 1, "full": D + D * (D + 1) // 2}
        return n_statistics[options.covariance], _KINDS[options.covariance].dtype

    @staticmethod
    def prior_shapes(n_features: int, options: MixtureOptions) -> dict[str, tuple[int, ...]]:
        scales = {"diag": (n_features,), "spherical": (1,), "full": (n_features,) * 2}
        return {
            "mean": (n_features,),
            "mean_precision": (1,),
            "degrees_of_freedom": (1,),
            "scale": scales[options.covariance],
        }

    @staticmethod
    def check_points(points: Points, options: MixtureOptions) -> None:
        if points.is_sparse and options.covariance == "full":
            rule = "covariance full takes dense points only: use diag or spherical"
            raise CorpusError(points.name, rule)

    @staticmethod
    def centre(points: Points, options: MixtureOptions) -> np.ndarray:
        return np.zeros(points.n_features) if points.is_sparse else points.moments()[0]

    @staticmethod
    def find_prior(points: Points, options: MixtureOptions) -> dict[str, np.ndarray]:
        D, full = points.n_features, options.covariance == "full"
        mean, variance = of_points = points.moments()
        widest = float(np.sqrt(variance.max()))
        if not (widest == 0.0 or LEAST_SPREAD <= widest <= MOST_SPREAD):
            rule = (
                f"the widest feature must have a standard deviation from {LEAST_SPREAD:g} to "
                f"{MOST_SPREAD:g}: scale the points; got {widest:.3g}"
            )
            raise CorpusError(points.name, rule)
        if points.is_sparse:
            _check_off_zero(points, mean, variance, options.covariance)
        shift = np.zeros(D) if points.is_sparse else mean
        if options.means is not None and options.means.shape[1:] == (D,):
            _check_near("means", options.means, mean, variance)
        if options.mean_prior is not None:
            if options.mean_prior.shape != (D,):
                rule = f"must have a number for each of the {D} features"
                raise ParameterError("mean_prior", rule, options.mean_prior.shape)
            _check_near("mean_prior", options.mean_prior, mean, variance)
            mean = options.mean_prior
        nu0 = options.degrees_of_freedom_prior or (float(D) if full else 1.0)
        if full and nu0 <= D - 1:
            rule = f"must be greater than the number of features - 1, {D - 1}"
            raise ParameterError("degrees_of_freedom_prior", rule, nu0)
        beta0 = options.mean_precision_prior or 1.0
        return {
            "mean": mean - shift,
            "mean_precision": np.array([beta0]),
            "degrees_of_freedom": np.array([nu0]),
            "scale": _scale(points, options, *of_points),
        }


def _scale(
    points: Points, options: MixtureOptions, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """The prior's scale: what is given, checked, or the variance of the points, floored."""
    D, given, form = points.n_features, options.covariance_prior, options.covariance
    if given is not None:
        shape = {"diag": (D,), "spherical": (), "full": (D, D)}[form]
        if given.shape != shape:
            rule = f"must have shape {shape} with covariance {form}"
            raise ParameterError("covariance_prior", rule, given.shape)
        if form != "full":
            if not (given > 0).all():
                least = float(given.min())
                raise ParameterError("covariance_prior", "must be greater than 0", least)
            _check_range(given)
            return given.reshape(-1)
        least = float(np.linalg.eigvalsh(given)[0])
        if not np.allclose(given, given.T) or least <= 0:
            rule = "must be symmetric and positive definite"
            raise ParameterError("covariance_prior", f"{rule} (least eigenvalue given)", least)
        _check_range(np.linalg.eigvalsh(given))
        return given
    low, floored = _constant(mean, variance), _floored(mean, variance)
    if low.any():
        _log.warning(
            "%s: %d of %d features are constant, or nearly so (the first is column %d): their "
            "prior variance is taken to be %.3g",
            points.name, low.sum(), D, int(np.argmax(low)), floored[low][0],
        )  # fmt: skip
    # As scikit-learn's numpy.cov: divided by N - 1.
    unbiased = points.n_points / max(points.n_points - 1, 1)
    if form == "spherical":
        return np.array([max(float(variance.mean()), float(floored.min())) * unbiased])
    if form == "diag":
        return floored * unbiased
    deviations = np.sqrt(floored * unbiased)
    correlation = points.covariance() / np.outer(deviations, deviations)
    correlation[low, low] = 1.0
    values, vectors = np.linalg.eigh(correlation)
    if values[0] < SINGULAR:  # some features say the same
        correlation = (vectors * np.maximum(values, LEAST_VARIANCE)) @ vectors.T
    return correlation * np.outer(deviations, deviations)


def _check_off_zero(points: Points, mean: np.ndarray, variance: np.ndarray, form: str) -> None:
    """Refuse sparse points that lie too far from 0 for how they vary."""
    each = _floored(mean, variance)
    if form == "spherical":
        each = np.full_like(variance, max(float(variance.mean()), float(each.min())))
    off = np.abs(mean) / np.sqrt(each)
    if off.max() > MOST_OFF_ZERO:
        rule = (
            f"the mean of a feature of sparse points must lie within {MOST_OFF_ZERO:g} standard "
            "deviations of 0: leave constant ones out, or give dense points, which are centred"
        )
        column = int(off.argmax())
        raise CorpusError(points.name, f"{rule}; got {off[column]:.3g} in column {column} (from 0)")


def _check_near(name: str, given: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
    """Refuse what lies so far from the points that sums of squares could not be told apart."""
    deviations = np.sqrt(_floored(mean, variance))
    with np.errstate(over="ignore"):
        far = float((np.abs(given - mean) / deviations).max())
    if not far <= MOST_FAR:
        rule = f"must lie within {MOST_FAR:g} standard deviations of the mean of the points"
        raise ParameterError(name, f"{rule} (the furthest given)", far)


def _constant(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Which features vary by no more than what rounding does to their numbers."""
    return np.sqrt(variance) <= np.maximum(CONSTANT * np.abs(mean), LEAST_SPREAD)


def _floored(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The features' variances; of constant ones a share of the mean one."""
    of_all = float(variance.mean())
    floor = LEAST_VARIANCE * (of_all if of_all > LEAST_SPREAD**2 else 1.0)
    return np.where(_constant(mean, variance), floor, variance)


def _check_range(variances: np.ndarray) -> None:
    """Refuse a prior's variances that products of points could not be held against."""
    least, most = LEAST_SPREAD**2, MOST_SPREAD**2
    bad = (variances < least) | (variances > most)
    if bad.any():
        rule = f"must lie between {least:g} and {most:g} (eigenvalues, of full)"
        raise ParameterError("covariance_prior", rule, float(variances[bad].flat[0]))


class Model(Mixture):
    """Mixtures of Gaussians; see `families.contract.Family`."""

    kind: Any = Gaussian
