"""A family of one's own: mixtures of exponentials (waiting times), in one file.

    p(x | k) = prod_d lambda_kd exp(-lambda_kd x_d),   lambda_kd ~ Gamma(a, b_d)

A package offers it by an entry point: ``exponential = exponential_family:Model`` in the group
``esvi_shm.families``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import esvi_shm
from esvi_shm.errors import CorpusError
from esvi_shm.families._mixture import Mixture
from esvi_shm.families._mixture.functions import gammaln, psi
from esvi_shm.families._mixture.kind import Expected


class Exponential:
    """t(x) = x, theta = -lambda; see `esvi_shm.families._mixture.kind.Kind`."""

    dtype = np.float32

    def __init__(self, n_features, options, prior):
        self.n_statistics, self.mean = n_features, prior["mean"]
        self.a = float(prior["shape"][0])
        # So that the prior's mean rate is that of the points.
        self.b = (self.a * self.mean)[:, None]

    @staticmethod
    def size_of(n_features, options):
        return n_features, np.float32

    @staticmethod
    def prior_shapes(n_features, options):
        return {"mean": (n_features,), "shape": (1,)}

    @staticmethod
    def find_prior(points, options):
        mean = np.maximum(points.moments()[0], 1e-12)
        return {"mean": mean, "shape": np.array([options.feature_prior or 0.5])}

    @staticmethod
    def centre(points, options):
        return np.zeros(points.n_features)

    @staticmethod
    def check_points(points, options):
        least = points.values.min()
        if least < 0:
            raise CorpusError(points.name, f"must be times, 0 or more, got {float(least)}")

    def features(self, x):
        return x

    def sparse_features(self, matrix):
        return matrix.tocsr()

    def expect(self, n, s):
        a, b = self.a + n, self.b + np.maximum(s, 0.0)
        log_b, D = np.log(b).sum(axis=0), self.n_statistics
        gain = D * (gammaln(a) - gammaln(np.array(self.a)))
        gain += self.a * np.log(self.b).sum() - a * log_b
        return Expected(-a / b, D * psi(a) - log_b, gain)

    def log_base(self, points):
        return np.zeros(points.shape[0])

    def seed(self, seeds):
        means = 0.5 * seeds + 0.5 * self.mean
        return -1.0 / means.T, -np.log(means).sum(axis=1)

    def spread(self, rows):
        return rows

    def draw(self, n, s, which, random):
        means = self.describe(n, s)["means"][which]
        return random.exponential(means)

    def describe(self, n, s):
        return {"means": ((self.b + np.maximum(s, 0.0)) / (self.a + n)).T}


class Model(Mixture):
    """Mixtures of exponentials."""

    kind = Exponential


def offer(folder):
    """What `pip install` of a package with the entry point would leave, in a folder of its own."""
    facts = Path(folder) / "exponential_family-1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: exponential-family\nVersion: 1\n")
    entry = "[esvi_shm.families]\nexponential = exponential_family:Model\n"
    (facts / "entry_points.txt").write_text(entry)
    sys.path.append(str(folder))


if __name__ == "__main__":
    offer(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "site")
    random = np.random.default_rng(0)
    which = random.integers(2, size=500)
    times = random.exponential(np.array([[1.0, 10.0, 1.0], [20.0, 2.0, 5.0]])[which])
    mixture = esvi_shm.Mixture(2, family="exponential", n_workers=1, random_state=0).fit(times)
    print("mean times", mixture.means_.round(1).tolist())
    agree = (mixture.labels_ == which).mean()
    print("found again", round(max(agree, 1 - agree), 2))
