"""What a mixture is told beside `FitConfig`: its priors, by scikit-learn's names, and its form."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from esvi_shm.errors import ParameterError

_NUMBERS = (
    "weight_concentration_prior",
    "mean_precision_prior",
    "degrees_of_freedom_prior",
    "feature_prior",
)
#: What the numbers may be: beyond, gamma functions cancel to nothing, or overflow.
LEAST, MOST = 1e-12, 1e12
_ARRAYS = ("mean_prior", "covariance_prior", "means")


@dataclass(frozen=True, eq=False)
class MixtureOptions:
    """Priors of a mixture; None: as the data suggest.

    Attributes
    ----------
    covariance : str
        Of `gaussian`: diag, spherical, full.
    weight_concentration_prior : float or None
        Dirichlet parameter of each weight. None: 1 / K.
    mean_precision_prior : float or None
        Points that the prior mean stands for. None: 1.
    mean_prior : array of shape (D,) or None
        None: the mean of the points.
    degrees_of_freedom_prior : float or None
        Of the precisions' prior; full: greater than D - 1. None: D for full, else 1.
    covariance_prior : float, array of shape (D,) or (D, D), or None
        The inverse scale of the precisions' prior, as in scikit-learn: a matrix for full, a number
        for each feature for diag, one number for spherical. None: the covariance of the points.
    feature_prior : float or None
        Of counts: what the prior adds to each feature of a component. None: 0.5.
    means : array of shape (K, D) or None
        Where the components start.
    moves : bool
        At some rests components are merged and split, where that raises the bound.
    strict : bool
        Lemma 1 only within the block that a worker holds (Algorithm 2 to the letter).

    Raises
    ------
    ParameterError
        For a value out of its range.

    Examples
    --------
    >>> MixtureOptions(covariance="full", mean_precision_prior=0.1).covariance
    'full'
    """

    covariance: str = "diag"
    weight_concentration_prior: float | None = None
    mean_precision_prior: float | None = None
    mean_prior: Any = None
    degrees_of_freedom_prior: float | None = None
    covariance_prior: Any = None
    feature_prior: float | None = None
    means: Any = None
    moves: bool = True
    strict: bool = False

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(
                value, int | float | np.integer | np.floating
            ):
                raise ParameterError(name, "must be a number", value)
            if not value > 0:
                raise ParameterError(name, "must be greater than 0", value)
            if not LEAST <= value <= MOST:
                raise ParameterError(name, f"must lie between {LEAST:g} and {MOST:g}", value)
            object.__setattr__(self, name, float(value))
        for name in _ARRAYS:
            value = getattr(self, name)
            if value is None:
                continue
            try:
                array = np.asarray(value)
            except ValueError:  # lists of different lengths
                array = np.array("")
            if array.dtype.kind not in "iuf":
                raise ParameterError(name, "must be numbers", value)
            if not np.isfinite(array).all():
                wrong = array[~np.isfinite(array)].flat[0]
                raise ParameterError(name, "must be finite", float(wrong))
            object.__setattr__(self, name, np.array(array, np.float64))
        for name in ("moves", "strict"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ParameterError(name, "must be True or False", getattr(self, name))
            object.__setattr__(self, name, bool(getattr(self, name)))

    def as_dict(self) -> dict[str, Any]:
        """The options in types that JSON knows."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in values}
