"""Mixtures of multinomials: theta_k ~ Dirichlet(eta), the counts of a point by theta_k."""

from typing import Any

import numpy as np

from esvi_shm.families._mixture import Mixture
from esvi_shm.families._mixture.counts import Counts, log_factorials
from esvi_shm.families._mixture.functions import gammaln, psi
from esvi_shm.families._mixture.kind import Expected


class Multinomial(Counts):
    """t(x) = x, E[theta] = E[log theta], g = 0; see `_mixture.kind.Kind`."""

    def expect(self, n: np.ndarray, s: np.ndarray) -> Expected:
        eta = self.prior
        posterior = np.maximum(s, 0.0) + eta
        total = posterior.sum(axis=0)
        D = self.n_statistics
        gain = gammaln(posterior).sum(axis=0) - gammaln(total)
        gain -= D * gammaln(np.array(eta)) - gammaln(np.array(D * eta))
        return Expected(psi(posterior) - psi(total), np.zeros_like(n), gain)

    def log_base(self, points: Any) -> np.ndarray:
        # scipy sums in the type of the matrix.
        totals = np.asarray(points.astype(np.float64).sum(axis=1)).ravel()
        return gammaln(totals + 1.0) - log_factorials(points)

    def seed(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shares = seeds / np.maximum(seeds.sum(axis=1, keepdims=True), 1e-300)
        mixed = 0.5 * shares + 0.5 * self.mean / self.mean.sum()
        return np.log(mixed).T, np.zeros(len(seeds))

    def draw(self, n: np.ndarray, s: np.ndarray, which: np.ndarray, random: Any) -> np.ndarray:
        shares = self.describe(n, s)["probabilities"]
        lengths = np.rint(s.sum(axis=0) / np.maximum(n, 1e-300)).astype(np.int64)
        return np.array([random.multinomial(lengths[k], shares[k]) for k in which], np.float64)

    def describe(self, n: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
        posterior = np.maximum(s, 0.0) + self.prior
        return {"probabilities": (posterior / posterior.sum(axis=0)).T}


class Model(Mixture):
    """Mixtures of multinomials; see `families.contract.Family`."""

    kind: Any = Multinomial
