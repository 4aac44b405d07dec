"""Before any clock runs, `warm_up` has compiled or loaded every kernel of a mixture."""

import numpy as np
import pytest
import scipy.sparse

from esvi_shm.config import FitConfig
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import as_points
from esvi_shm.runtime.serial import SerialFit, warm_up
from tests.families.mixture.play import bounds
from tests.runtime.test_warm_up import kernels, loaded

POINTS = np.random.default_rng(0).poisson(1.0, size=(40, 3)).astype(float)
SPARSE = scipy.sparse.csr_matrix(POINTS)


@pytest.mark.parametrize(
    ("points", "covariance", "given"),
    [
        (POINTS, "full", {}),
        (POINTS, "diag", {"topk": 2, "dense_passes": 1}),
        (SPARSE, "diag", {}),
        (SPARSE, "diag", {"topk": 2, "dense_passes": 1}),
    ],
)
def test_nothing_is_compiled_after_it(points, covariance, given):
    mixture = MixtureOptions(covariance=covariance)
    config = FitConfig(
        4, family="gaussian", mixture=mixture, n_workers=2, n_blocks=2, n_passes=4, **given
    )
    for kernel in kernels().values():
        kernel._reset_overloads()  # other tests have called them; the disk cache still has them
    warm_up(config)
    ready = loaded()
    fit = SerialFit(as_points(points), config)
    bounds(fit, 4)
    assert any("_mixture" in name for name, _ in ready)
    assert loaded() - ready == set()
