"""What a fit tells while it runs, and what it hands over at its end."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from esvi_shm.config import FitConfig
from esvi_shm.runtime.layout import Layout


class Record(NamedTuple):
    """One evaluation. Seconds from the moment the workers were ready; bounds in nats.

    `perplexity` is that of held-out data; nan where there is none. The priors of the moment, on
    average: those given, or learned so far.
    """

    passes: float
    fit_seconds: float
    total_seconds: float
    elbo: float
    elbo_f: float
    objective: float
    perplexity: float = math.nan
    alpha_mean: float = math.nan
    eta_mean: float = math.nan


class Restart(NamedTuple):
    """A start that was tried, and the objective after its short fit."""

    seed: int
    objective: float


class Observer:
    """What a fit tells while it runs; this one keeps quiet."""

    def planned(self, layout: Layout) -> None:
        """The memory plan is made; nothing is allocated yet."""

    def stage(self, name: str) -> None:
        """Something else begins: "compile", "workers", "start", "passes"."""

    def progress(self, done: int, planned: int, fit_seconds: float) -> None:
        """Work done so far, of what is planned."""

    def evaluating(self) -> None:
        """The bound is to be computed; the clock of the fit stands still."""

    def evaluated(self, record: Record) -> None:
        """The bound was computed."""

    def restarted(self, restart: Restart) -> None:
        """A start was tried."""

    def rested(self, passes: int, counts: Mapping[str, int]) -> None:
        """The family has changed the state after so many passes, and says what it did."""


@dataclass
class Result:
    """A finished fit.

    Attributes
    ----------
    learned : object
        What the family has found, as views of its shared arrays (which outlive the engine).
    work : int
        What was updated in passes: pairs, points (`Family.work`).
    stopped : str
        Why the fit ended: "passes", "tol", "patience", "max_time" or the name of a signal; "under
        way" where it has not.
    restarts : list of Restart
        The starts that were tried, where there was more than one.
    at_rest : dict of int
        What the family counted at its rests, all of them together.
    ending : dict
        By what rule the last pass was made, as the family says.
    most_held : float
        Of the rows that travel, the share that any node has held at once.
    """

    config: FitConfig
    learned: Any
    history: list[Record]
    passes: float
    fit_seconds: float
    pass_seconds: float
    work: int
    shared_bytes: int
    peak_private_bytes: int
    stopped: str
    restarts: list[Restart] = field(default_factory=list)
    at_rest: dict[str, int] = field(default_factory=dict)
    ending: dict[str, Any] = field(default_factory=dict)
    most_held: float = 1.0


@dataclass(frozen=True)
class Keep:
    """Has a fit handed over as it stands now and then, so that not all is lost if it breaks off.

    Attributes
    ----------
    every : int
        Passes between two times, at least 1.
    save : callable
        Takes a `Result`, whose views hold until it returns. Nothing else goes on meanwhile, and
        the clock of the fit stands still.
    """

    every: int
    save: Callable[[Result], None]
