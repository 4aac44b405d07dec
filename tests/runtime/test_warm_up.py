"""Before any clock runs, `warm_up` has compiled or loaded every kernel that a fit will call."""

import importlib
import pkgutil

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import esvi_shm
from esvi_shm.config import GivenTopics
from esvi_shm.families.lda import likeness
from esvi_shm.runtime import compiling
from esvi_shm.runtime.serial import warm_up
from tests.runtime.fits import COUNTS

LAMBDA = np.random.default_rng(0).random((COUNTS.shape[1], 2)).astype(np.float32) + 0.1
WORDS = [f"w{v}" for v in range(COUNTS.shape[1])]
#: Together all options that kernels differ by, and each other option that a fit branches by.
OPTIONS = {
    "vb": {"learn_priors": "both", "route": "random"},
    "active": {"dense_passes": 1, "noise": 0.1},
    "anneal": {
        "inference": "anneal", "cvb0_passes": 2, "temper_passes": 2, "noise": 0.5,
        "noise_passes": 2, "start": "spread", "refold_after": (2,), "route": "balanced",
    },
    "cvb0": {
        "inference": "cvb0", "power": 0.9, "start": "scikit-learn", "storage": "full",
        "route": "ring", "refold_after": (1,),
    },
    "repair": {"start": "random", "repair_after": (2,), "deterministic": True, "n_topics": 6},
    "repair full": {"start": "random", "repair_after": (2,), "storage": "full", "n_topics": 6},
    "topic axis": {"axis": "topics", "storage": "full", "noise": 0.1, "noise_passes": 2},
    "given": {
        "start_from": GivenTopics(LAMBDA, WORDS, "another"), "restarts": 2, "restart_passes": 1,
        "learn_priors": "alpha", "symmetric_alpha": True,
    },
}  # fmt: skip


def kernels() -> dict[str, Dispatcher]:
    modules = pkgutil.walk_packages(esvi_shm.__path__, "esvi_shm.")
    found = [
        value
        for module in modules
        if not module.name.endswith("__main__")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, Dispatcher)
    ]
    return {f"{kernel.__module__}.{kernel.__name__}": kernel for kernel in found}


def loaded() -> set[tuple[str, object]]:
    """Each kernel with each signature that it can be called with at once."""
    return {(name, sig) for name, kernel in kernels().items() for sig in kernel.overloads}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_nothing_is_compiled_after_it(options, threaded_fit, monkeypatch):
    for kernel in kernels().values():
        kernel._reset_overloads()  # other tests have called them; the disk cache still has them
    ready = set()

    def noted(config):
        warm_up(config)
        ready.update(loaded())
        # All topics are alike, so that there is a double to repair.
        monkeypatch.setattr(likeness, "LIKE_WORDS", 0.0)

    monkeypatch.setattr(compiling, "warm_up", noted)
    ended = threaded_fit(n_passes=4, evaluate_every=2, **options)
    assert ended.result.passes == 4
    if "repair_after" in options:
        assert ended.result.at_rest["repairs_tried"] == 1
    assert len(ready) > 15
    assert loaded() - ready == set()
