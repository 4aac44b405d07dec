"""Mixtures of independent Bernoullis: features that a point has (1) or has not (0)."""

from typing import Any

import numpy as np

from esvi_shm.families._mixture import Mixture
from esvi_shm.families._mixture.counts import Counts
from esvi_shm.families._mixture.functions import gammaln, psi
from esvi_shm.families._mixture.kind import Expected


class Bernoulli(Counts):
    """t(x) = x, theta = log p / (1 - p), p ~ Beta(a, a); see `_mixture.kind.Kind`."""

    most = 1.0

    def _posterior(self, n: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ones = np.clip(s, 0.0, n)  # rounding may leave a little more or less
        return ones + self.prior, n - ones + self.prior

    def expect(self, n: np.ndarray, s: np.ndarray) -> Expected:
        a, b = self._posterior(n, s)
        none = psi(b)
        total = psi(2.0 * self.prior + n)
        gain = (gammaln(a) + gammaln(b)).sum(axis=0)
        gain -= self.n_statistics * (gammaln(2.0 * self.prior + n) + _log_beta(self.prior))
        constant = none.sum(axis=0) - self.n_statistics * total
        return Expected(psi(a) - none, constant, gain)

    def log_base(self, points: Any) -> np.ndarray:
        return np.zeros(points.shape[0])

    def seed(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = np.clip(0.5 * seeds + 0.5 * self.mean, 1e-6, 1.0 - 1e-6)
        return (np.log(p) - np.log1p(-p)).T, np.log1p(-p).sum(axis=1)

    def draw(self, n: np.ndarray, s: np.ndarray, which: np.ndarray, random: Any) -> np.ndarray:
        p = self.describe(n, s)["probabilities"][which]
        return (random.random(p.shape) < p).astype(np.float64)

    def describe(self, n: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
        a, b = self._posterior(n, s)
        return {"probabilities": (a / (a + b)).T}


def _log_beta(a: float) -> float:
    """log B(a, a)."""
    return float(2.0 * gammaln(np.array(a)) - gammaln(np.array(2.0 * a)))


class Model(Mixture):
    """Mixtures of Bernoullis; see `families.contract.Family`."""

    kind: Any = Bernoulli
