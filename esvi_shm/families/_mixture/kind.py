"""What one exponential family gives the mixtures: all that a family's file holds.

    p(x | k) = h(x) exp(<t(x), theta_k> - g(theta_k)),   conjugate prior over theta_k

Everything that a fit needs of it follows from its statistics: u = t(x) E[theta] - E[g] is one
product, z' t(x) another. To write a family is to write a `Kind` and
``class Model(Mixture): kind = ...``; `examples/` has one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points


class Expected(NamedTuple):
    """What a component's posterior says, for k components, float64.

    `theta` is E[theta], shape (T, k); `constant` is -E[g(theta)], shape (k,); `gain` is
    log int exp(<s, theta> - n g(theta)) p(theta) d theta, shape (k,): what the component adds to
    the ELBO beside weights, entropy and log h.
    """

    theta: np.ndarray
    constant: np.ndarray
    gain: np.ndarray


class Kind(Protocol):
    """One exponential family with its prior.

    Attributes
    ----------
    n_statistics : int
        T: features of t(x).
    dtype : type
        Of products: float32, or float64 where it has to be.
    """

    n_statistics: int
    dtype: Any

    def __init__(
        self, n_features: int, options: MixtureOptions, prior: Mapping[str, np.ndarray]
    ) -> None: ...

    @staticmethod
    def size_of(n_features: int, options: MixtureOptions) -> tuple[int, Any]:
        """`n_statistics` and `dtype`."""

    @staticmethod
    def prior_shapes(n_features: int, options: MixtureOptions) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the prior's float64 arrays."""

    @staticmethod
    def find_prior(points: Points, options: MixtureOptions) -> dict[str, np.ndarray]:
        """The prior: what is given, else what the points suggest; raises an InputError.

        In the coordinates of `centre`.
        """

    @staticmethod
    def centre(points: Points, options: MixtureOptions) -> np.ndarray:
        """What is taken off every point, shape (D,): 0 where zeros must stay zeros."""

    @staticmethod
    def check_points(points: Points, options: MixtureOptions) -> None:
        """Raise CorpusError for points that the family does not know."""

    def features(self, x: np.ndarray) -> np.ndarray:
        """t(x) of dense points, shape (n, T)."""

    def sparse_features(self, matrix: Any) -> Any:
        """t(x) of sparse points, a CSR matrix; t(x) of a zero is zero."""

    def expect(self, n: np.ndarray, s: np.ndarray) -> Expected:
        """The posterior after n (k,) points with statistics s (T, k)."""

    def log_base(self, points: Any) -> np.ndarray:
        """log h(x) of each point (a matrix, dense or sparse)."""

    def seed(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores by which points go to the nearest of the seeds (k, D): theta and constant."""

    def spread(self, rows: Any) -> Any:
        """Points as k-means++ looks at them."""

    def draw(self, n: np.ndarray, s: np.ndarray, which: np.ndarray, random: Any) -> np.ndarray:
        """A point from each of the components `which`, at the posterior means."""

    def describe(self, n: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
        """The components in scikit-learn's words: means, covariances; first axis k."""
