"""Mixtures played in one process."""

import numpy as np

from esvi_shm.config import FitConfig
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import as_points
from esvi_shm.runtime.serial import SerialFit

FAMILIES = ("gaussian", "multinomial", "bernoulli", "poisson")
_OPTIONS = set(MixtureOptions.__dataclass_fields__)


def blobs(n: int, n_features: int, k: int, seed: int, apart: float = 5.0):
    """Points about k centres, and the centre of each."""
    random = np.random.default_rng(seed)
    which = random.integers(k, size=n)
    centres = apart * random.normal(size=(k, n_features))
    return centres[which] + random.normal(size=(n, n_features)), which


def points_of(family: str, n: int, n_features: int, seed: int) -> np.ndarray:
    """Points that a family takes, from three groups."""
    random = np.random.default_rng(seed)
    if family == "gaussian":
        return blobs(n, n_features, 3, seed)[0]
    rates = np.exp(random.normal(size=(3, n_features)))[random.integers(3, size=n)]
    counts = random.poisson(rates)
    return (counts > 0).astype(float) if family == "bernoulli" else counts.astype(float)


def play(x, family: str = "gaussian", n_topics: int = 3, **given) -> SerialFit:
    """A fit that has started; options of both kinds by name."""
    options = MixtureOptions(**{name: given.pop(name) for name in _OPTIONS & given.keys()})
    values = {"n_workers": 1, "n_blocks": 1, **given}
    config = FitConfig(n_topics, family=family, mixture=options, **values)
    return SerialFit(as_points(x), config)


def responsibilities(fit: SerialFit) -> np.ndarray:
    """z of all points, in their order."""
    rows = []
    for shard in fit.shards:
        z = shard["z"]
        if "ids" in shard:
            z = np.zeros((len(z), fit.config.n_topics), np.float32)
            np.put_along_axis(z, shard["ids"].astype(int), shard["z"], axis=1)
        rows.append(z)
    z = np.concatenate(rows)
    z[fit.corpus_arrays["order"]] = z.copy()
    return z


def bounds(fit: SerialFit, n_passes: int, order=None) -> list[float]:
    """F at the start and after each pass, with the rests that the fit asks for."""
    found, model = [fit.bound().elbo_f], fit.layout.model
    for n in range(1, n_passes + 1):
        fit.run_pass(order)
        if model.next_rest(n - 1) == n:
            fit.rest(n)
        found.append(fit.bound().elbo_f)
    return found
