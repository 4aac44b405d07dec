"""What a model family gives the engine, and the engine gives a family.

What a family is fitted to, its *data*, has *units* that stay with a worker (documents, points);
what it learns has parts that travel in blocks (words, components). The engine knows of both only
how many there are.

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
from esvi_shm.shared.table import ArraySpec

Arrays = Mapping[str, np.ndarray]
#: Parameters of a configuration, with other values.
Changes = Mapping[str, Any]

#: What held-out data say of the parameters, the lower the better: called with what `Family.judged`
#: returns, of which it must change nothing; with `roughly=True` by a family that learns by it and
#: only compares what it says, to 1 in 10,000.
Judge = Callable[..., float]


class WholeRows:
    """What a script yields to see all rows that travel, wherever they are.

    It is sent arrays by name, to be looked at in place of the shared ones, at node 0 (none where
    that is the only node), and None at other nodes.
    """


class ListedBlock(NamedTuple):
    """n rows as lists, as `families.lda.listed` has them."""

    first: np.ndarray  # int64 (n + 1,): where the places of each row begin
    size: np.ndarray  # int32 (n,): how many of them are taken
    rest: np.ndarray  # float32 (n,)
    columns: np.ndarray  # unsigned, (places,)
    values: np.ndarray  # float32 (places,)
    n_columns: int


@dataclass(frozen=True)
class Sizes:
    """The sizes of one fit: P workers (of this node), B blocks; a family adds its own."""

    n_workers: int
    n_blocks: int
    n_nodes: int


class Data(Protocol):
    """What a family is fitted to."""

    @property
    def name(self) -> str:
        """What messages call them."""

    def release(self) -> None:
        """Give up what the shards hold once they are filled."""


class Cut(Protocol):
    """How the data of one fit are dealt out; allocates nothing that lasts.

    Attributes
    ----------
    sizes : Sizes
    largest_block : int
        Parts in the largest block.
    released_bytes : int
        Of the data: what `Data.release` gives up.
    """

    sizes: Any
    largest_block: int
    released_bytes: int

    def data_specs(self) -> list[ArraySpec]:
        """Arrays of the segment `corpus`: what home writes once and all workers read."""

    def shard_data_specs(self, worker: int) -> list[ArraySpec]:
        """Arrays of the segment `shard_<p>`: the units of a worker."""

    def fill(self, data: Any, arrays: Mapping[str, Arrays]) -> Any:
        """Write the data into those arrays (by segment; zeros), and return them as they are there.

        What is returned answers questions of starts and rests after the data are released; its
        `rows(numbers)` are units of these numbers.
        """


class Bound(NamedTuple):
    """The evidence lower bound over the whole corpus, in nats, in two forms.

    `elbo` is finite, else the fit ends with an error; nan in the others: not known.
    `objective` is what the inference climbs: with one worker it never falls, once the updates
    have settled (`Family.settles_after`).
    """

    elbo: float
    elbo_f: float
    objective: float


class FamilyWorker(Protocol):
    """A family's part in one worker process."""

    #: The blocks whose rows are at this node, while no block is out; set before a command.
    resident: Sequence[int]

    def visit(self, block: int, pass_: int, want_entropy: bool) -> None:
        """Update everything that the block and this worker's shard decide together.

        `pass_` is the block's own pass, from 0.
        """

    def visit_together(self, blocks: Sequence[int], pass_: int) -> None:
        """The same for several blocks, or for one that has waited for company in vain.

        Where blocks meet (`Family.meets`) it is asked instead of `visit`, and leaves no entropy:
        that is `evaluate`'s matter then. `pass_` is the least of the blocks' own.
        """

    def command(self, name: str) -> None:
        """Do this worker's part of a named command."""


class Family(Protocol):
    """A model family bound to a configuration and the sizes of its data."""

    #: What the units of its data are called.
    units: str
    #: Names of the commands that `start`, `at_rest` and `evaluate` may yield; what else they may is
    #: in `runtime.script`.
    commands: Sequence[str]
    #: Those that have to be given for every block where all blocks' units are: where there are
    #: several nodes, the blocks go round, and the command is given for those that are there.
    tours: Sequence[str]
    #: Names of the arrays of `shared_specs` whose rows travel with their block, see `rows`.
    travels: Sequence[str]
    #: Whether every node has room for all of that. At rest it is then the same at all nodes, by
    #: what the family's scripts do; else a node has what its blocks carry, and `rows` are slices.
    copied: bool
    #: The one whose rows are the workers' contributions to sums that every visit needs, with a row
    #: for the other nodes where there are some; empty: none.
    contributes: str
    #: Whether a worker visits all blocks that it holds together, `FamilyWorker.visit_together`.
    meets: bool
    #: Passes after which the updates and the objective keep their meaning.
    settles_after: int

    def __init__(self, config: FitConfig, sizes: Any) -> None: ...

    @staticmethod
    def n_units(data: Any) -> int:
        """The number of units (of this node); it has no more workers."""

    @staticmethod
    def choose_n_blocks(data: Any, config: FitConfig, n_workers: int) -> int:
        """The number of blocks: what is asked for, where data and parts allow, or what suits.

        `n_workers` are those of all nodes.
        """

    @staticmethod
    def cut(data: Any, config: FitConfig) -> Cut:
        """Cut data for a configuration with its numbers of workers and blocks.

        Raises MemoryShortError where there is no room to do that.
        """

    @staticmethod
    def join(data: Any, nodes: Any) -> Any:
        """This node's data, as part of what all nodes have; `nodes` is a `runtime.peers.Peers`."""

    @staticmethod
    def prepare(config: FitConfig, data: Any) -> None:
        """Import what the start needs, and warn of what is odd about the data.

        Once, before memory is planned and before the clock runs.
        """

    @staticmethod
    def check_nodes(config: FitConfig) -> None:
        """Raise ParameterError for what several nodes cannot do."""

    @staticmethod
    def toy(config: FitConfig) -> tuple[Any, FitConfig, Sequence[int]]:
        """A small fit that calls every kernel of this one: data, configuration, rests to play."""

    def work(self, shard: Arrays) -> np.ndarray:
        """What each block finds to do at a shard, shape (B,); where that is 0 it passes by."""

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

        First those that make the same updates, or as good ones, at least one, the best first: that
        is taken where memory is not short. Then those that come at a price: one that is tried
        first, and others, which take less and less memory.
        """

    def rows(self, arrays: Arrays, block: int, name: str) -> Any:
        """The index of a block's part in one of the arrays that travel.

        `arrays` are those of the segment `corpus` and of the parameters.
        """

    def listed_block(self, arrays: Arrays, block: int) -> ListedBlock | None:
        """A block's part as lists, where that is what travels; None: whole rows."""

    def arrived(self, shared: Arrays, block: int) -> None:
        """Note that a block's rows were written by another node, where that makes a difference."""

    def check_data(self, data: Any) -> None:
        """Raise an InputError where data and configuration do not go together."""

    def shared_specs(self) -> list[ArraySpec]:
        """Arrays of the parameters that travel, and what all workers read."""

    def shard_specs(self, worker: int) -> list[ArraySpec]:
        """Arrays that belong to one worker's shard."""

    def scratch_bytes(self, largest_block: int) -> int:
        """Bytes of a worker's private arrays at most, where no block has more parts."""

    def code_bytes(self) -> int:
        """Bytes of the kernels in each process."""

    def initialise(self, corpus: Arrays, shared: Arrays) -> None:
        """Set what has a value before any worker starts (main process)."""

    def begin_pass(self, shared: Arrays) -> None:
        """Note what all workers read in a pass of a deterministic fit (home, at rest)."""

    def start(
        self, held: Any, arrays: Arrays, shared: Arrays, restart: int = 0
    ) -> Generator[str, bool, None]:
        """Set the first state, from `config.start_seed(restart)`, whatever the state before.

        `held` is what `Cut.fill` has returned, `arrays` are those of the segment `corpus`.
        """

    def next_rest(self, n_passes: int) -> int | None:
        """The next number of passes, above this one, after which `at_rest` is to run."""

    def at_rest(
        self,
        held: Any,
        arrays: Arrays,
        shared: Arrays,
        n_passes: int,
        judge: Judge | None,
    ) -> Generator[str | int, bool, dict[str, int]]:
        """Change the state after so many passes; the time counts as fitting.

        `held` and `arrays` as for `start`. Returns what to report, by name; numbers of
        several rests are added up.
        """

    def ending(
        self, n_passes: int, held: Any, arrays: Mapping[str, Arrays], learned: Any
    ) -> dict[str, Any]:
        """By what rule the last of so many passes was made, and what it was worth.

        Inference needs to know later. `held` as for `start`; `arrays` by segment; `learned` as of
        `learned`, on several nodes whole at node 0, whose answer counts.
        """

    def evaluate(self, shared: Arrays, n_passes: int) -> Generator[str, bool, Bound]:
        """Remove float drift and compute the bound, after so many whole passes."""

    def judged(self, arrays: Arrays, shared: Arrays) -> tuple[Any, ...]:
        """What a judge is asked about: the parameters of the moment."""

    def prior_means(self, shared: Arrays) -> tuple[float, float]:
        """The mean priors of the moment, of units and of what is learned; nan: not told."""

    def learned(self, arrays: Mapping[str, Arrays]) -> Any:
        """What the fit has found, as views of its arrays (by segment), for its model.

        Its `of_units` lists arrays of the units, in order.
        """

    def worker(
        self, worker: int, corpus: Arrays, shared: Arrays, shards: Sequence[Arrays], beat: Any
    ) -> FamilyWorker:
        """The family's part in worker number `worker`; `beat` is a counter to advance."""
