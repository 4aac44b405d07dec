"""One frozen, validated description of a fit; every entry (shell, Python) fills in the same one.

Only ranges are checked here. Names of families, routes, storages and starts are checked by the
rooms that hold them, with the list of what they know.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from esvi_shm.errors import ParameterError

Prior = float | np.ndarray


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ParameterError(name, "must be a whole number", value)
    if value < least:
        raise ParameterError(name, f"must be at least {least}", value)
    if value >= 2**63 or (value >= 2**31 and name != "seed"):
        raise ParameterError(name, f"must be less than 2**{63 if name == 'seed' else 31}", value)


def _number(name: str, value: Any, rule: str, holds: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ParameterError(name, "must be a number", value)
    # Not math.isfinite: it fails on whole numbers that no float holds.
    if value == math.inf or not holds(value):
        raise ParameterError(name, f"must be {rule}", value)


def choose(name: str, value: str, known: Iterable[str]) -> str:
    """`value` if it is one of `known`.

    >>> choose("route", "lap", ["lap", "ring"])
    'lap'
    """
    known = sorted(known)
    if value not in known:
        raise ParameterError(name, f"must be one of {', '.join(known)}", value)
    return value


def prior_vector(name: str, value: Prior, length: int) -> np.ndarray:
    """A prior as a float64 vector: a scalar is repeated, a vector must have `length` values > 0.

    A repeated scalar takes no memory: sizes are not yet checked against it when this is called.

    >>> prior_vector("alpha", 0.1, 2)
    array([0.1, 0.1])
    """
    vector = np.asarray(value, dtype=np.float64)
    if vector.ndim == 0:
        return np.broadcast_to(vector, (length,))
    if vector.shape != (length,):
        raise ParameterError(name, f"must be a number or have {length} values", vector.shape)
    return np.ascontiguousarray(vector)


@dataclass(frozen=True)
class FitConfig:
    """What to fit and how; see `python -m esvi_shm.fit --help` for the meaning of each.

    Attributes
    ----------
    n_topics : int
    alpha, eta : float or array
        Dirichlet priors per topic (a document's) and per word (a topic's); not divided by K or V.
    n_workers : int or None
        None: the cores this process may use.
    n_blocks : int or None
        None: by the length of the documents and the number of workers.
    cvb0_passes : int or None
        Of inference `anneal`: passes of cvb0 before those of vb. None: half of all, at most 50.
    temper_passes : int or None
        Passes in which the responsibilities are tempered; 0: none. None: two fifths of all, at
        most 40, and none with inference `vb`.
    refold_after : tuple of int
        Numbers of passes after which all documents are folded in afresh.
    restarts : int
        Starts that are tried by a short fit each; the best one goes on.
    restart_passes : int
        Passes of a short fit.
    repair_after : tuple of int
        Numbers of passes after which topics that are dead or double begin anew, on trial.
    n_passes : int
    evaluate_every : int
        Passes between evaluations of the bound; 0 evaluates at the end only.
    tol : float
        Stop when the relative change of the objective (the ELBO at the responsibilities held; under
        cvb0 its own) between evaluations is below this, once the updates have settled; 0 never.
    max_time : float or None
        Seconds of fitting after which the fit ends.
    seed : int

    Raises
    ------
    ParameterError
        For a value out of its range.

    Examples
    --------
    >>> FitConfig(n_topics=20).alpha
    0.1
    """

    n_topics: int = 50
    family: str = "lda"
    inference: str = "anneal"
    cvb0_passes: int | None = None
    temper_passes: int | None = None
    refold_after: tuple[int, ...] = ()
    repair_after: tuple[int, ...] = ()
    alpha: Prior = 0.1
    eta: Prior = 0.05
    storage: str = "margins"
    start: str = "seeded"
    restarts: int = 1
    restart_passes: int = 20
    n_workers: int | None = None
    n_blocks: int | None = None
    route: str = "lap"
    deterministic: bool = False
    n_passes: int = 100
    evaluate_every: int = 10
    tol: float = 1e-4
    max_time: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _whole("n_topics", self.n_topics, 1)
        _whole("n_passes", self.n_passes, 0)
        _whole("evaluate_every", self.evaluate_every, 0)
        _whole("restarts", self.restarts, 1)
        _whole("restart_passes", self.restart_passes, 1)
        for name in ("cvb0_passes", "temper_passes"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 0)
        _whole("seed", self.seed, 0)
        for name in ("refold_after", "repair_after"):
            object.__setattr__(self, name, tuple(np.atleast_1d(getattr(self, name)).tolist()))
            for n in getattr(self, name):
                _whole(name, n, 1)
        for name in ("n_workers", "n_blocks"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        _number("tol", self.tol, "at least 0", lambda x: x >= 0)
        if self.max_time is not None:
            _number("max_time", self.max_time, "greater than 0", lambda x: x > 0)
        for name in ("alpha", "eta"):
            self._check_prior(name, getattr(self, name))

    @staticmethod
    def _check_prior(name: str, value: Any) -> None:
        if np.ndim(value) == 0:
            _number(name, value, "greater than 0", lambda x: x > 0)
            values = [value]
        else:
            try:
                values = np.asarray(value, dtype=np.float64).ravel().tolist()
            except (TypeError, ValueError, OverflowError):
                raise ParameterError(name, "must be a number or a vector", value) from None
        for x in values:
            # Below 1e-6 digamma(prior) leaves float32 no digits for anything else.
            if not 1e-6 <= x <= 1e6:
                raise ParameterError(name, "must lie between 1e-6 and 1e6", x)

    def start_seed(self, restart: int) -> int:
        """The seed of a start; that of the first one is `seed` itself.

        >>> config = FitConfig(seed=7)
        >>> config.start_seed(0), config.start_seed(1) == config.start_seed(2)
        (7, False)
        """
        if restart == 0:
            return self.seed
        words = np.random.SeedSequence([self.seed, restart]).generate_state(1, np.uint64)
        return int(words[0] >> np.uint64(1))  # below 2**63, as every seed

    def as_dict(self) -> dict[str, Any]:
        """The configuration in types that JSON knows."""
        plain = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray | np.generic):
                value = value.tolist()
            elif isinstance(value, tuple):
                value = list(value)
            plain[field.name] = value
        return plain
