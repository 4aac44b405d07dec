"""Mixtures fitted by true processes."""

import numpy as np
import pytest

from esvi_shm.config import FitConfig
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
