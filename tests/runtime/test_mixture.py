"""Mixtures fitted by true processes."""

import numpy as np
import pytest

from esvi_shm.config import FitConfig
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import as_points
from esvi_shm.runtime import engine, home
from tests.families.mixture.play import blobs
from tests.runtime.fits import Threads


def fitted(n_workers: int, **options):
    x, _ = blobs(200, 3, 4, seed=8)
    config = FitConfig(6, family="gaussian", n_workers=n_workers, n_passes=8, tol=0.0, **options)
    return engine.fit(as_points(x), config)


def test_processes_fit_and_deterministic_fits_repeat(monkeypatch):
    first = fitted(2, deterministic=True, evaluate_every=4)
    with monkeypatch.context() as patched:
        patched.setattr(home, "Workers", Threads)
        second = fitted(2, deterministic=True, evaluate_every=4)
    np.testing.assert_array_equal(first.learned.statistics, second.learned.statistics)
    assert [r.elbo for r in first.history] == [r.elbo for r in second.history]
    assert first.work == 8 * 200 and first.stopped == "passes"
    free = fitted(2)
    assert free.history[-1].elbo == pytest.approx(first.history[-1].elbo, rel=0.05)
    z = np.concatenate(free.learned.responsibilities)
    np.testing.assert_allclose(free.learned.statistics[0], z.sum(axis=0, dtype=float), rtol=1e-5)


@pytest.mark.parametrize("type_of", [np.float32, np.float64])
@pytest.mark.parametrize(
    "family", ["diag", "spherical", "full", "multinomial", "poisson", "bernoulli"]
)
def test_what_is_left_out_is_told_of_every_family_and_type_of_points(family, type_of, monkeypatch):
    monkeypatch.setattr(home, "Workers", Threads)
    x, _ = blobs(60, 3, 4, seed=8)
    options = None
    if family in ("diag", "spherical", "full"):
        options, family = MixtureOptions(covariance=family), "gaussian"
    else:
        x = x > 0 if family == "bernoulli" else np.floor(np.abs(x))
    config = FitConfig(6, family=family, n_workers=2, n_passes=4, tol=0.0, topk=2, mixture=options)
    left_out = engine.fit(as_points(x.astype(type_of)), config).ending["left_out"]
    assert left_out["points"] == 60 and 0 <= left_out["mass"] <= 1
    assert np.isfinite(left_out["elbo_gap"])
