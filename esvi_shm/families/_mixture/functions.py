"""Special functions of arrays, with the package's own kernels: a worker imports no scipy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from esvi_shm.families._mixture import kernels


def _of(kernel: Callable[..., Any], x: Any) -> np.ndarray:
    flat = np.ascontiguousarray(x, np.float64).ravel()
    out = np.empty_like(flat)
    kernel(flat, out)
    return out.reshape(np.shape(x))


def psi(x: Any) -> np.ndarray:
    """digamma, element by element.

    >>> round(float(psi(1.0)), 6)
    -0.577216
    """
    return _of(kernels.digamma_into, x)


def gammaln(x: Any) -> np.ndarray:
    """log Gamma, element by element.

    >>> round(float(gammaln(5.0)), 6)
    3.178054
    """
    return _of(kernels.log_gamma_into, x)
