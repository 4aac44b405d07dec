"""Mixtures of independent Poissons: counts with a rate for each component and feature."""

from typing import Any

import numpy as np

from esvi_shm.families._mixture import Mixture
from esvi_shm.families._mixture.counts import Counts, log_factorials
from esvi_shm.families._mixture.functions import gammaln, psi
from esvi_shm.families._mixture.kind import Expected


class Poisson(Counts):
    """t(x) = x, theta = log rate, rate ~ Gamma(a, a / mean); see `_mixture.kind.Kind`."""

    def __init__(self, n_features: int, options: Any, prior: Any) -> None:
        super().__init__(n_features, options, prior)
        self.inverse_scale = (self.prior / self.mean)[:, None]

    def _posterior(self, n: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.maximum(s, 0.0) + self.prior, self.inverse_scale + n

    def expect(self, n: np.ndarray, s: np.ndarray) -> Expected:
        a, r = self._posterior(n, s)
        log_r = np.log(r)
        gain = (gammaln(a) - a * log_r).sum(axis=0)
        gain += self.prior * np.log(self.inverse_scale).sum()
        gain -= self.n_statistics * float(gammaln(np.array(self.prior)))
        return Expected(psi(a) - log_r, -(a / r).sum(axis=0), gain)

    def log_base(self, points: Any) -> np.ndarray:
        return -log_factorials(points)

    def seed(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rates = 0.5 * seeds + 0.5 * self.mean
        return np.log(rates).T, -rates.sum(axis=1)

    def draw(self, n: np.ndarray, s: np.ndarray, which: np.ndarray, random: Any) -> np.ndarray:
        return random.poisson(self.describe(n, s)["rates"][which]).astype(np.float64)

    def describe(self, n: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
        a, r = self._posterior(n, s)
        return {"rates": (a / r).T}


class Model(Mixture):
    """Mixtures of Poissons; see `families.contract.Family`."""

    kind: Any = Poisson
