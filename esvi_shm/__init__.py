"""Extreme stochastic variational inference on shared memory.

    from esvi_shm import LDA                    # scikit-learn's idiom
    model = esvi_shm.load("folder")             # what `python -m esvi_shm.fit --out folder` wrote

Names are imported when they are first used: a worker process imports this package too, and
must not wait for scikit-learn.
"""

# The one of `typing`, which takes longer to import than all that is here.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from esvi_shm.corpus import Corpus, read_corpus
    from esvi_shm.estimators import LDA
    from esvi_shm.mixture_estimator import Mixture
    from esvi_shm.store import load

__version__ = "0.1.0"

_HOMES = {
    "LDA": "esvi_shm.estimators",
    "Mixture": "esvi_shm.mixture_estimator",
    "load": "esvi_shm.store",
    "Corpus": "esvi_shm.corpus",
    "read_corpus": "esvi_shm.corpus",
}

__all__ = ["LDA", "Corpus", "Mixture", "__version__", "load", "read_corpus"]


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'esvi_shm' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
