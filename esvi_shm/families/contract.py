"""What a model family gives the engine, and the engine gives a family.

A family is a module (or package) of this folder with a class `Model` that follows `Family`.
It declares its shared arrays, and does its work in the workers through `FamilyWorker`: visits
of travelling blocks, and named commands at quiescent points, when no block is out. It knows
nothing of processes, rings or files.

At a quiescent point `start`, `at_rest` and `evaluate` run in the main process as generators:
each name they yield is a command that all workers run and finish before the generator goes on, so
a command may read everything that earlier ones wrote. Within a command the workers write disjoint
parts. A number that `at_rest` yields is one of passes to make on trial: they change the state, but
do not count, and the fit goes on with the pass that was next. It is answered whether they were
made whole: where the fit is to end they are cut short.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.shared.table import ArraySpec

Arrays = Mapping[str, np.ndarray]
#: Parameters of a configuration, with other values.
Changes = Mapping[str, Any]

#: What held-out text says of topics, the lower the better: called with rows of lambda, shape
#: (V, K), the word of each row, and alpha. It must change none of them.
Judge = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Sizes:
    """The sizes of one fit. P workers, B blocks; per shard in order of the workers."""

    n_documents: int
    n_words: int
    n_workers: int
    n_blocks: int
    shard_documents: tuple[int, ...]
    shard_pairs: tuple[int, ...]
    shard_rows: tuple[int, ...]
    shard_words: tuple[int, ...]


class Bound(NamedTuple):
    """The evidence lower bound over the whole corpus, in nats, in two forms; nan: not known.

    `objective` is what the inference climbs: with one worker it never falls, once the updates
    have settled (`Family.settles_after`).
    """

    elbo: float
    elbo_f: float
    objective: float


class FamilyWorker(Protocol):
    """A family's part in one worker process."""

    def visit(self, block: int, pass_: int, want_entropy: bool) -> None:
        """Update everything that the block and this worker's shard decide together.

        `pass_` is the block's own pass, from 0.
        """

    def command(self, name: str) -> None:
        """Do this worker's part of a named command."""


class Family(Protocol):
    """A model family bound to a configuration and the sizes of a corpus."""

    #: Names of the commands that `start`, `at_rest` and `evaluate` may yield.
    commands: Sequence[str]
    #: Passes after which the updates and the objective keep their meaning.
    settles_after: int

    def __init__(self, config: FitConfig, sizes: Sizes) -> None: ...

    @staticmethod
    def check(config: FitConfig, has_judge: bool = True) -> None:
        """Raise ParameterError for what the family does not know, or needs a judge for."""

    @staticmethod
    def without_effect(config: FitConfig) -> list[tuple[Any, ...]]:
        """What does not do all it says in a configuration: a message for a warning each.

        A format and its arguments, as `logging` takes them; names are `errors.ParameterName`.
        """

    @staticmethod
    def storages(config: FitConfig) -> tuple[Sequence[Changes], Sequence[Changes]]:
        """The ways to hold the state that a configuration leaves open, as changes to it.

        First those that give the same iterates, at least one, the best first: that is taken where
        memory is not short. Then those that come at a price, which take less and less memory.
        """

    def check_corpus(self, corpus: Corpus) -> None:
        """Raise ParameterError where corpus and configuration do not go together."""

    def shared_specs(self) -> list[ArraySpec]:
        """Arrays of the parameters that travel, and what all workers read."""

    def shard_specs(self, worker: int) -> list[ArraySpec]:
        """Arrays that belong to one worker's shard."""

    def scratch_bytes(self, most_words: int) -> int:
        """Bytes of a worker's private arrays at most, where no block has more words."""

    def initialise(self, corpus: Arrays, shared: Arrays) -> None:
        """Set what has a value before any worker starts (main process)."""

    def start(
        self, corpus: AnyCorpus, arrays: Arrays, shared: Arrays, restart: int = 0
    ) -> Generator[str, bool, None]:
        """Set the first state, from `config.start_seed(restart)`, whatever the state before.

        `arrays` are those of the segment `corpus`.
        """

    def next_rest(self, n_passes: int) -> int | None:
        """The next number of passes, above this one, after which `at_rest` is to run."""

    def at_rest(
        self,
        corpus: AnyCorpus,
        arrays: Arrays,
        shared: Arrays,
        n_passes: int,
        judge: Judge | None,
    ) -> Generator[str | int, bool, dict[str, int]]:
        """Change the state after so many passes; the time counts as fitting.

        `arrays` are those of the segment `corpus`. Returns what to report, by name; numbers of
        several rests are added up.
        """

    def ending(self, n_passes: int) -> dict[str, Any]:
        """By what rule the last of so many passes was made: what inference later needs to know."""

    def evaluate(self, shared: Arrays, n_passes: int) -> Generator[str, bool, Bound]:
        """Remove float drift and compute the bound, after so many whole passes."""

    def worker(
        self, worker: int, corpus: Arrays, shared: Arrays, shards: Sequence[Arrays], beat: Any
    ) -> FamilyWorker:
        """The family's part in worker number `worker`; `beat` is a counter to advance."""
