"""Normal distributions with conjugate priors, as kinds of mixtures: see `families.gaussian`."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from esvi_shm.errors import CorpusError
from esvi_shm.families._mixture.expectations import expect_diagonal, expect_full
from esvi_shm.families._mixture.functions import gammaln, psi
from esvi_shm.families._mixture.kind import Expected
from esvi_shm.mixture_options import MixtureOptions

_LOG_2PI = np.log(2.0 * np.pi)
#: Of a Cholesky factor of positive numbers.
_LEAST_PIVOT = 1e-300


class _Gaussian:
    """What the three have in common: beta and m."""

    dtype: Any = np.float32

    def __init__(
        self, n_features: int, options: MixtureOptions, prior: Mapping[str, np.ndarray]
    ) -> None:
        self.D = n_features
        self.m0, self.beta0 = prior["mean"], float(prior["mean_precision"][0])
        self.nu0, self.scale0 = float(prior["degrees_of_freedom"][0]), prior["scale"]
        self._set_up()

    def _set_up(self) -> None: ...

    def _location(self, n: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """beta (k,) and m (D, k)."""
        beta = self.beta0 + n
        return beta, (self.beta0 * self.m0[:, None] + s[: self.D]) / beta

    def log_base(self, points: Any) -> np.ndarray:
        return np.zeros(points.shape[0])  # the constant of the density is in `constant`

    def _weights(self) -> np.ndarray:
        """What a feature counts for at a start: the inverse of its prior variance."""
        return 1.0 / self.scale0

    def seed(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        theta = np.zeros((self.n_statistics, len(seeds)))  # type: ignore[attr-defined]
        theta[: self.D] = (seeds * self._weights()).T
        return theta, -0.5 * (seeds * theta[: self.D].T).sum(axis=1)

    def spread(self, rows: Any) -> Any:
        weights = np.broadcast_to(np.sqrt(self._weights()), (self.D,))
        return rows * weights if isinstance(rows, np.ndarray) else rows.multiply(weights).tocsr()


class Diagonal(_Gaussian):
    """t(x) = (x, x * x); a0 = nu0 / 2, b0 = scale / 2 of each feature.

    >>> prior = {"mean": np.zeros(1), "mean_precision": np.ones(1)}
    >>> prior |= {"degrees_of_freedom": np.ones(1), "scale": np.ones(1)}
    >>> kind = Diagonal(1, MixtureOptions(), prior)
    >>> float(kind.expect(np.zeros(1), np.zeros((2, 1))).gain[0])
    0.0
    """

    def _set_up(self) -> None:
        self.n_statistics = 2 * self.D
        self.a0, self.b0 = 0.5 * self.nu0, 0.5 * self.scale0[:, None]
        log_b0 = float(np.log(self.b0).sum())
        self.log_prior = self.D * float(gammaln(self.a0)) - self.a0 * log_b0
        self.log_prior -= 0.5 * self.D * math.log(self.beta0)

    def features(self, x: np.ndarray) -> np.ndarray:
        out = np.empty((len(x), 2 * self.D), x.dtype)
        out[:, : self.D] = x
        np.multiply(x, x, out=out[:, self.D :])
        return out

    def sparse_features(self, matrix: Any) -> Any:
        import scipy.sparse

        return scipy.sparse.hstack([matrix, matrix.multiply(matrix)], format="csr")

    def _posterior(self, n: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, ...]:
        beta, m = self._location(n, s)
        b = s[self.D :] - beta * m * m
        b += self.beta0 * (self.m0 * self.m0)[:, None]
        b *= 0.5
        b += self.b0
        # What is added to b0 is a sum of squares, whatever rounding says.
        np.maximum(b, self.b0, out=b)
        return beta, m, self.a0 + 0.5 * n, b

    def expect(self, n: np.ndarray, s: np.ndarray) -> Expected:
        n, s = np.ascontiguousarray(n), np.ascontiguousarray(s)
        found = Expected(np.empty_like(s), np.empty_like(n), np.empty_like(n))
        expect_diagonal(n, s, self.m0, self.beta0, self.a0, self.b0[:, 0], self.log_prior, *found)
        return found

    def draw(self, n: np.ndarray, s: np.ndarray, which: np.ndarray, random: Any) -> np.ndarray:
        found = self.describe(n, s)
        noise = random.standard_normal((len(which), self.D))
        return found["means"][which] + noise * np.sqrt(found["covariances"][which])

    def describe(self, n: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
        _, m, a, b = self._posterior(n, s)
        return {"means": m.T, "covariances": (b / a).T}


class Spherical(_Gaussian):
    """t(x) = (x, |x|^2), one precision; a0 = nu0 D / 2, b0 = scale D / 2."""

    def _set_up(self) -> None:
        self.n_statistics = self.D + 1
        self.a0, self.b0 = 0.5 * self.nu0 * self.D, 0.5 * float(self.scale0[0]) * self.D

    def features(self, x: np.ndarray) -> np.ndarray:
        out = np.empty((len(x), self.D + 1), x.dtype)
        out[:, : self.D] = x
        out[:, self.D] = np.einsum("nd,nd->n", x, x)
        return out

    def sparse_features(self, matrix: Any) -> Any:
        import scipy.sparse

        squares = scipy.sparse.csr_matrix(matrix.multiply(matrix).sum(axis=1))
        return scipy.sparse.hstack([matrix, squares], format="csr")

    def _posterior(self, n: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, ...]:
        beta, m = self._location(n, s)
        squares = s[self.D] + self.beta0 * (self.m0 @ self.m0)
        b = self.b0 + 0.5 * (squares - beta * np.einsum("dk,dk->k", m, m))
        return beta, m, self.a0 + 0.5 * self.D * n, np.maximum(b, self.b0)

    def expect(self, n: np.ndarray, s: np.ndarray) -> Expected:
        beta, m, a, b = self._posterior(n, s)
        precision, D = a / b, self.D
        theta = np.vstack([precision * m, -0.5 * precision])
        squares = precision * np.einsum("dk,dk->k", m, m)
        constant = 0.5 * (D * (psi(a) - np.log(b) - 1.0 / beta - _LOG_2PI) - squares)
        gain = gammaln(a) - gammaln(np.array(self.a0)) - a * np.log(b) + self.a0 * np.log(self.b0)
        gain -= 0.5 * D * (np.log(beta / self.beta0) + n * _LOG_2PI)
        return Expected(theta, constant, gain)

    def draw(self, n: np.ndarray, s: np.ndarray, which: np.ndarray, random: Any) -> np.ndarray:
        found = self.describe(n, s)
        noise = random.standard_normal((len(which), self.D))
        return found["means"][which] + noise * np.sqrt(found["covariances"][which])[:, None]

    def describe(self, n: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
        _, m, a, b = self._posterior(n, s)
        return {"means": m.T, "covariances": b / a}


class Full(_Gaussian):
    """t(x) = (x, x_i x_j for i <= j); W0 is the inverse of scale."""

    dtype = np.float64

    def _set_up(self) -> None:
        D = self.D
        self.rows, self.columns = np.triu_indices(D)
        self.n_statistics = D + len(self.rows)
        base = self.scale0 + self.beta0 * np.outer(self.m0, self.m0)
        self.base = base[self.rows, self.columns]
        # Of a matrix that is nearly singular rounding may leave less than nothing.
        self.least = max(float(np.linalg.eigvalsh(self.scale0)[0]), _LEAST_PIVOT)
        steps = 0.5 * (self.nu0 - np.arange(D))
        log_det = float(np.linalg.slogdet(self.scale0)[1])
        self.log_prior = 0.5 * self.nu0 * (D * math.log(2.0) - log_det)
        self.log_prior += float(gammaln(steps).sum()) - 0.5 * D * math.log(self.beta0)

    def features(self, x: np.ndarray) -> np.ndarray:
        out = np.empty((len(x), self.n_statistics))
        out[:, : self.D] = x
        at = self.D
        for i in range(self.D):
            n = self.D - i
            np.multiply(x[:, i : i + 1], x[:, i:], out=out[:, at : at + n])
            at += n
        return out

    def sparse_features(self, matrix: Any) -> Any:
        raise CorpusError("points", "covariance full takes no sparse points")  # see check_points

    def _weights(self) -> np.ndarray:
        return 1.0 / np.diag(self.scale0)

    def _posterior(self, n: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, ...]:
        """beta, m (D, k), nu, and the inverses of W, (k, D, D)."""
        beta, m = self._location(n, s)
        products = np.empty((len(n), self.D, self.D))
        products[:, self.rows, self.columns] = s[self.D :].T
        products[:, self.columns, self.rows] = s[self.D :].T
        products += self.scale0 + self.beta0 * np.outer(self.m0, self.m0)
        means = m.T
        products -= (beta[:, None] * means)[:, :, None] * means[:, None, :]
        return beta, m, self.nu0 + n, products

    def expect(self, n: np.ndarray, s: np.ndarray) -> Expected:
        n, s = np.ascontiguousarray(n), np.ascontiguousarray(s)
        found = Expected(np.empty_like(s), np.empty_like(n), np.empty_like(n))
        prior = self.m0, self.beta0, self.nu0, self.base, self.least, self.log_prior
        expect_full(n, s, *prior, *found)
        return found

    def draw(self, n: np.ndarray, s: np.ndarray, which: np.ndarray, random: Any) -> np.ndarray:
        found = self.describe(n, s)
        factors = np.linalg.cholesky(found["covariances"])
        noise = random.standard_normal((len(which), self.D))
        return found["means"][which] + np.einsum("nij,nj->ni", factors[which], noise)

    def describe(self, n: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
        _, m, nu, inverse_w = self._posterior(n, s)
        return {"means": m.T, "covariances": inverse_w / nu[:, None, None]}
