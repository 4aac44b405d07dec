"""Mixtures of exponential families; components travel, points stay.

    pi ~ Dirichlet(a0), theta_k ~ the kind's conjugate prior; z_i ~ pi, x_i ~ p(x | theta_{z_i})
    u_ik = E[log pi_k] + <t(x_i), E[theta_k]> - E[g(theta_k)],   z_ik ~ exp(u_ik)

Blocks are groups of components, shards the points of a worker. What a worker does is in `worker`,
what a family gives in `kind`; here is what the main process does: arrays, start, evaluation.
Statistics and parameters have a row for each feature of t(x), row 0 being counts and constants,
and a column for each component.

Where the parameters are the best for the z that are held, q(theta) and q(pi) drop out of the bound:
    F = sum_k log Z(posterior_k) / Z(prior) + lnB(a0 + N) - lnB(a0) + sum_i log h(x_i) + H(z)
    L = F + sum_i KL(z_i || softmax(u_i)),   F at the best z for those parameters
F never falls with one worker, and in the strict form with any number.

On several nodes every one keeps all components, as new as they last came by, and its points move
among all of them, as they do between workers: a block carries its statistics, and what the points
of a node have changed waits there (`pending`) until it comes. At rest all are the same everywhere.

Source: Zhang et al., AISTATS 2019, Lemma 1, Algorithms 1 and 2.
"""

import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from esvi_shm.config import FitConfig, choose
from esvi_shm.counter import shuffled
from esvi_shm.errors import ParameterError, ParameterName
from esvi_shm.families._mixture import cut as cuts
from esvi_shm.families._mixture import kept, kernels, part, splitting, starts
from esvi_shm.families._mixture.cut import Sizes, options_of
from esvi_shm.families._mixture.functions import gammaln, psi
from esvi_shm.families._mixture.kept_worker import KeptWorker
from esvi_shm.families._mixture.learned import Learned
from esvi_shm.families._mixture.left_out import left_out
from esvi_shm.families._mixture.mover import as_slice
from esvi_shm.families._mixture.moves import FIRST, is_due, script
from esvi_shm.families._mixture.worker import Worker, tile_rows
from esvi_shm.families.contract import Arrays, Bound, Changes, Judge
from esvi_shm.points import Points
from esvi_shm.shared.ring import LINE_WORDS
from esvi_shm.shared.table import ArraySpec

#: Times in a pass that a component is rewritten, by all workers: a pass is then worth more than one
#: over all points at once.
PARTS = 16
#: A part has so many points at least, or of sparse points so many values for each feature: fewer
#: take less time than the parameters.
LEAST_POINTS, LEAST_VALUES = 64, 32
#: Of so many components storage `topk` keeps one, where no number is given.
COMPONENTS_A_KEPT_ONE = 4
#: Passes over all components, where some are kept, before those that look only at near ones; of
#: these every tenth looks at all again, and then the neighbours are found anew.
DENSE_PASSES, ALL_EVERY = 5, 10
#: Neighbours of a component, and components drawn for a point, that it is scored against.
N_NEAR, N_DRAWN = 8, 4
#: More passes than a fit makes.
NEVER = 2**62
#: Components with fewer points than this are reported as dead.
DEAD = 0.5
#: Of kernels in each process, as measured.
CODE_BYTES = 6 * 2**20


def kept_of(config: FitConfig) -> int | None:
    """How many responsibilities of a point are kept; None: all."""
    if config.storage == "topk" and config.topk is None:
        return max(1, config.n_topics // COMPONENTS_A_KEPT_ONE)
    return config.topk


class Mixture:
    """A mixture for one configuration and number of points; see `families.contract.Family`.

    A family is a subclass with a `kind`.
    """

    kind: Any
    units = "points"
    commands: Sequence[str] = (
        "assign", "sum", "settle", "refresh", "near", "bound",
        "lean", "halve", "weigh", "pair", "mix", "move",
    )  # fmt: skip
    tours: Sequence[str] = ()
    # What a component scores follows from its statistics; the sum of all counts never changes.
    travels: Sequence[str] = ("statistics",)
    copied = True
    contributes = ""
    meets = False
    settles_after = 0
    prepare = staticmethod(starts.prepare)

    #: What LDA alone knows of, in `FitConfig`.
    _NOT_OURS = (
        "inference", "cvb0_passes", "temper_passes", "power", "leave_out", "settle", "relax",
        "refold_after", "noise", "noise_passes", "repair_after", "alpha", "eta", "learn_priors",
        "symmetric_alpha", "axis", "residual", "seed_documents", "start_from",
        "seed_words",
    )  # fmt: skip

    @classmethod
    def check(cls, config: FitConfig, has_judge: bool = True) -> None:
        defaults: dict[str, Any] = {field.name: field.default for field in fields(FitConfig)}
        for name in cls._NOT_OURS:
            value = getattr(config, name)
            if not (np.ndim(value) == np.ndim(defaults[name]) == 0 and value == defaults[name]):
                if np.size(value) or np.ndim(value) == 0:
                    rule = f"has no meaning with family {config.family}"
                    raise ParameterError(name, rule, value)
        choose("start", config.start, starts.STARTS)
        options = options_of(config)
        if hasattr(cls.kind, "check"):
            cls.kind.check(options)
        if options.means is not None and options.means.shape[:1] != (config.n_topics,):
            rule = f"must have a row for each of the {config.n_topics} components"
            raise ParameterError("means", rule, options.means.shape)
        if config.storage is not None:
            choose("storage", config.storage, ("full", "topk"))
        if config.topk is not None:
            if config.storage == "full":
                raise ParameterError("topk", "has no meaning with %s full", config.topk, "storage")
            if config.topk > config.n_topics:
                rule = f"must be at most the number of components, {config.n_topics}"
                raise ParameterError("topk", rule, config.topk)
        if config.dense_passes is not None and kept_of(config) is None:
            raise ParameterError("dense_passes", "must come with %s", config.dense_passes, "topk")
        if options.strict and kept_of(config) is not None:
            raise ParameterError("storage", "must be full where strict is asked for", "topk")
        if options.strict and config.n_blocks and config.n_topics < 2 * config.n_blocks:
            rule = f"must be at most {config.n_topics // 2}: strict takes two components a block"
            raise ParameterError("n_blocks", rule, config.n_blocks)

    @staticmethod
    def without_effect(config: FitConfig) -> list[tuple[Any, ...]]:
        if options_of(config).means is not None and config.restarts > 1:
            names = ParameterName("restarts"), ParameterName("means")
            return [("%s has no effect with %s", *names)]
        return []

    @staticmethod
    def storages(config: FitConfig) -> tuple[Sequence[Changes], Sequence[Changes]]:
        if config.storage is not None or config.topk is not None or options_of(config).strict:
            return [{"storage": "full" if kept_of(config) is None else "topk"}], []
        # A half of them, each with its number, takes as much as all.
        halves = [config.n_topics >> i for i in range(2, config.n_topics.bit_length())]
        return [{"storage": "full"}], [{"storage": "topk", "topk": n} for n in halves]

    @staticmethod
    def n_units(data: Points) -> int:
        return data.n_points

    @staticmethod
    def choose_n_blocks(data: Points, config: FitConfig, n_workers: int) -> int:
        # No more: the components of a block that waits for a worker are not rewritten.
        suits = n_workers
        least = 2 if options_of(config).strict else 1
        if least == 2:  # its blocks regroup, and must be several for that to be of use
            suits = max(suits, 2)
        most = min(config.n_topics // least, data.whole.n_points // n_workers)
        return max(1, min(config.n_blocks or suits, most))

    @classmethod
    def cut(cls, data: Points, config: FitConfig) -> cuts.Cut:
        cls.check(config)
        if data.whole.n_points < config.n_topics:
            rule = f"must be at most the number of points, {data.whole.n_points}"
            raise ParameterError("n_topics", rule, config.n_topics)
        return cuts.Cut(cls.kind, data, config)

    @classmethod
    def toy(cls, config: FitConfig) -> tuple[Points, FitConfig, Sequence[int]]:
        # The given prior may have another number of features.
        options = replace(
            options_of(config), mean_prior=None, covariance_prior=None, means=None,
            degrees_of_freedom_prior=None,
        )  # fmt: skip
        points = Points(np.array([[0.0], [1.0], [0.0], [1.0]], np.float32))
        # Whether the points are sparse is not known here.
        dtype = cls.kind.size_of(1, options)[1]
        for module in (kernels, splitting, kept):
            module.try_sparse(dtype)
        kernels.try_look()
        topk = None if kept_of(config) is None else 2
        small = replace(
            config, topk=topk, n_topics=4, n_workers=1, n_blocks=1, start="random", mixture=options,
            dense_passes=None if topk is None else 0,  # the start is dense
        )  # fmt: skip
        return points, small, [FIRST] if options.strict or options.moves else []

    def work(self, shard: Arrays) -> np.ndarray:
        # At a node with few points a chunk may be empty: its worker is visited all the same, for
        # what it has pending.
        return np.maximum(np.diff(shard["chunk_bounds"]), 1)

    def __init__(self, config: FitConfig, sizes: Sizes) -> None:
        self.check(config)
        self.config, self.sizes, self.options = config, sizes, options_of(config)
        self.K, self.kept = config.n_topics, kept_of(config)
        self.a0 = self.options.weight_concentration_prior or 1.0 / self.K
        self.block_bounds = np.linspace(0, self.K, sizes.n_blocks + 1).astype(np.int64)
        self.n_statistics, self.dtype = self.kind.size_of(sizes.n_features, self.options)
        self.log_base = 0.0
        self.log_total = float(psi(self.K * self.a0 + sizes.n_points_in_all))
        self.n_near, self.n_drawn = min(N_NEAR, self.K - 1), N_DRAWN
        #: The first pass that looks only at near components.
        self.first_near = NEVER
        if self.kept is not None and self.n_near:
            self.first_near = DENSE_PASSES if config.dense_passes is None else config.dense_passes

    @property
    def moves(self) -> bool:
        """Whether components are merged and split at rests."""
        return self.options.moves and not self.options.strict and self.K > 1

    @property
    def looks(self) -> bool:
        """Whether owners look at what other workers have pending of their components.

        Not where that is added point by point, and takes long.
        """
        s, config = self.sizes, self.config
        return not (s.is_sparse or config.deterministic or self.options.strict) and s.n_workers > 1

    def is_near(self, pass_: int) -> bool:
        """Whether a pass (from 0) looks only at components near a point."""
        since = pass_ - self.first_near
        return since >= 0 and since % ALL_EVERY != ALL_EVERY - 1

    def make_kind(self, corpus: Arrays) -> Any:
        """The family's kind with the prior of a fit."""
        shapes = self.kind.prior_shapes(self.sizes.n_features, self.options)
        prior = {name: corpus[f"prior_{name}"] for name in shapes}
        return self.kind(self.sizes.n_features, self.options, prior)

    join = staticmethod(part.join)

    @staticmethod
    def check_nodes(config: FitConfig) -> None:
        if config.deterministic:
            raise ParameterError("deterministic", "cannot be used on several nodes", True)

    def rows(self, arrays: Arrays, block: int, name: str) -> Any:
        return slice(None), as_slice(self.columns(arrays, block))

    def listed_block(self, arrays: Arrays, block: int) -> None:
        return None

    def arrived(self, shared: Arrays, block: int) -> None:
        """Who visits it first rewrites its parameters."""

    def check_data(self, data: Points) -> None:
        means = self.options.means
        if means is not None and means.shape != (self.K, data.n_features):
            rule = f"must have shape {(self.K, data.n_features)}"
            raise ParameterError("means", rule, means.shape)

    def columns(self, shared: Arrays, block: int) -> np.ndarray:
        """The components of a block."""
        return shared["members"][self.block_bounds[block] : self.block_bounds[block + 1]]

    def n_steps(self, worker: int) -> int:
        """Parts of a chunk after each of which the parameters at hand are rewritten."""
        s = self.sizes
        parts = s.shard_points[worker] // LEAST_POINTS
        if self.first_near < self.config.n_passes:  # a point takes less time
            parts = min(parts, 2 * s.shard_points[worker] // self.K)
        if s.is_sparse:
            parts = s.shard_values[worker] // (LEAST_VALUES * self.n_statistics)
        # Other nodes have as many workers, mostly.
        return max(1, min(PARTS // (s.n_workers * s.n_nodes), parts // s.n_blocks))

    def log_weights(self, n: np.ndarray) -> np.ndarray:
        """E[log pi_k]; the sum of all counts is the number of points."""
        return psi(self.a0 + n) - self.log_total

    def shared_specs(self) -> list[ArraySpec]:
        s, K, rows = self.sizes, self.K, 1 + self.n_statistics
        P, B, owner, rest = s.n_workers, s.n_blocks, "the owner of the column's block", "at rest"
        others = int(s.n_nodes > 1)
        specs = [
            ArraySpec(
                "statistics", (rows, K), np.float64, owner, "the owner; everyone at rest",
                "sums of z (row 0) and of z t(x), by component",
            ),
            ArraySpec(
                "theta", (rows, K), self.dtype, owner, "everyone, by `versions`",
                "E[log pi] - E[g] (row 0) and E[theta]",
            ),
            ArraySpec(
                "versions", (B, LINE_WORDS), np.int64, "the owner of the block", "everyone",
                "odd while the block's columns of theta change; a line each",
            ),
            ArraySpec(
                "pending", (P + others, rows, K), np.float64,
                "worker p its part; home the last one, for other nodes, at rest",
                "worker p; owners, by `adding`; settle: everyone",
                "what its z have changed of statistics of blocks that were elsewhere",
            ),
            ArraySpec(
                "adding", (P, LINE_WORDS), np.int64, "worker p its row", "everyone",
                "odd while its part of `pending` grows; a line each",
            ),
            ArraySpec("members", (K,), np.int64, f"home, {rest}", "everyone", "blocks' components"),
            ArraySpec(
                "bound_parts", (P, 4), np.float64, "worker p its row, on command", f"home, {rest}",
                "gains of its components; log-sum-exp, entropy and KL of its points",
            ),
        ]  # fmt: skip
        if self.moves:
            home = f"home, {rest}"
            specs += [
                ArraySpec("lean", (rows, K), self.dtype, "home; owners", "everyone, at rest",
                          "by how much a component's new half scores better"),
                ArraySpec("gains", (3, K), np.float64, "owners, at rest", "everyone, at rest",
                          "what a split and a merge change of the bound; what each adds to it"),
                ArraySpec("partner", (K,), np.int32, "owners, at rest", "everyone, at rest",
                          "what each component is best merged into"),
                ArraySpec("mixing", (P + others, 2, K), np.float64,
                          "worker p its part, at rest; home the last one, for other nodes", home,
                          "what that changes of the entropy"),
                ArraySpec("moves", (2, K), np.int32, home, "everyone, at rest",
                          "what is merged into which, and which become new halves"),
            ]  # fmt: skip
        if self.kept is not None:
            shape, text = (K, self.n_near), "neighbours of each component"
            own = "the owner of a component, at rest"
            specs.append(ArraySpec("near", shape, np.int32, own, "everyone", text))
        if self.config.deterministic:
            text = "theta as it was when the pass began"
            shape = (rows, K)
            specs.append(ArraySpec("snapshot", shape, self.dtype, "home", "everyone", text))
        return specs

    def shard_specs(self, worker: int) -> list[ArraySpec]:
        own, rest = "worker p", "worker p; everyone at rest"
        shape = (self.sizes.shard_points[worker], self.kept or self.K)
        specs = [ArraySpec("z", shape, np.float32, own, rest, "responsibilities")]
        if self.kept is not None:
            specs.append(ArraySpec("ids", shape, np.int32, own, rest, "components of those in z"))
        return specs

    def scratch_bytes(self, largest_block: int) -> int:
        item, s, T = np.dtype(self.dtype).itemsize, self.sizes, self.n_statistics
        rows = tile_rows(T, self.K, item, s.is_sparse)
        tile = rows * (self.K + (0 if s.is_sparse else 2 * T + 1))
        theta = (1 + T) * self.K * (1 if s.is_sparse else 2)
        kept = 0
        if self.kept is not None:
            kept = 8 * rows * self.kept + 16 * self.K
            if not s.is_sparse:
                kept += 8 * (1 + T) * self.K
        # A block's statistics, and what `expect` needs for them, in float64.
        held = (1 if s.n_blocks > 1 else 0) + (2 if self.looks else 0)
        expected = 8 * (5 * T + held * (1 + T)) * largest_block
        return item * (tile + theta + (1 + T) * largest_block) + kept + expected

    def code_bytes(self) -> int:
        return CODE_BYTES

    def initialise(self, corpus: Arrays, shared: Arrays) -> None:
        shared["members"][:] = np.arange(self.K)
        self.log_base = float(corpus["log_base"][0])

    def begin_pass(self, shared: Arrays) -> None:
        shared["snapshot"][:] = shared["theta"]

    def start(
        self, held: Any, arrays: Arrays, shared: Arrays, restart: int = 0
    ) -> Generator[Any, bool, None]:
        seed = self.config.start_seed(restart)
        kind = self.make_kind(arrays)
        seeds = starts.choose_seeds(self, kind, held, arrays["centre"], seed)
        theta, constant = kind.seed(held.agree(seeds))
        shared["members"][:] = np.arange(self.K)
        shared["theta"][0], shared["theta"][1:] = constant, theta
        yield "assign"
        yield from self._settle(shared)
        if self.first_near == 0:
            yield "near"

    def _settle(self, shared: Arrays) -> Generator[Any, bool, None]:
        """Statistics from z, exactly, and the best parameters for them, at every node."""
        yield "sum"
        yield from self.add_others(shared["pending"])
        yield "settle"
        yield "refresh"

    def add_others(self, parts: np.ndarray) -> Generator[Any, bool, None]:
        """Set the last part, of other nodes, by the workers' parts there."""
        if self.sizes.n_nodes > 1:
            own = parts[:-1].sum(axis=0)
            total = own.copy()
            yield total
            parts[-1] = total - own

    def next_rest(self, n_passes: int) -> int | None:
        if self.options.strict:  # Lemma 1 moves nothing from one block to another: they regroup
            return n_passes + 1
        least, found = n_passes + 1, []
        if self.moves:
            found.append(next(n for n in itertools.count(least) if is_due(n)))
        if self.first_near < self.config.n_passes:
            since = max(0, least - self.first_near)
            found.append(self.first_near + -(-since // ALL_EVERY) * ALL_EVERY)
        return min(found, default=None)

    def at_rest(
        self, held: Any, arrays: Arrays, shared: Arrays, n_passes: int, judge: Judge | None
    ) -> Generator[Any, bool, dict[str, int]]:
        made: dict[str, int] = {}
        if self.options.strict:
            if self.sizes.n_nodes > 1:  # a block takes statistics along that other ones had
                yield from self._settle(shared)
            fresh = shuffled(np.arange(self.K), self.config.seed, self.K, n_passes)
            for lo, hi in zip(self.block_bounds[:-1], self.block_bounds[1:], strict=True):
                shared["members"][lo:hi] = np.sort(fresh[lo:hi])
            yield "refresh"
            return made
        yield from self._settle(shared)
        if self.moves and is_due(n_passes):
            made = yield from script(self, held, arrays, shared, n_passes)
            yield from self._settle(shared)
        if self.is_near(n_passes) and not self.is_near(n_passes - 1):
            yield "near"
        return made

    def ending(
        self, n_passes: int, held: Any, arrays: Mapping[str, Arrays], learned: Any
    ) -> dict[str, Any]:
        if self.kept is None:
            return {}
        near = any(self.is_near(n) for n in range(n_passes))
        kind = self.make_kind(arrays["corpus"])
        return {"scored": "near" if near else "all", "left_out": left_out(self, kind, held, arrays)}

    def evaluate(self, shared: Arrays, n_passes: int) -> Generator[Any, bool, Bound]:
        yield from self._settle(shared)
        yield "bound"
        gain, _, entropy, gap = shared["bound_parts"].sum(axis=0)
        counts, a0, K = np.maximum(shared["statistics"][0], 0.0), self.a0, self.K
        weights = gammaln(a0 + counts).sum() - K * gammaln(np.array(a0))
        weights += math.lgamma(K * a0) - math.lgamma(K * a0 + counts.sum())
        # Points are added up over the nodes; components are the same at all of them.
        sums = np.array([(gain + weights) / self.sizes.n_nodes + entropy + self.log_base, gap])
        yield sums
        elbo_f = float(sums[0])
        return Bound(elbo_f + float(sums[1]), elbo_f, elbo_f)

    def judged(self, arrays: Arrays, shared: Arrays) -> tuple[Any, ...]:
        shapes = self.kind.prior_shapes(self.sizes.n_features, self.options)
        prior = {name: arrays[f"prior_{name}"] for name in shapes}
        return shared["statistics"], prior, arrays["centre"]

    def prior_means(self, shared: Arrays) -> tuple[float, float]:
        return math.nan, math.nan

    def learned(self, arrays: Mapping[str, Arrays]) -> Learned:
        corpus, shared = arrays["corpus"], arrays["parameters"]
        shapes = self.kind.prior_shapes(self.sizes.n_features, self.options)
        prior = {name: corpus[f"prior_{name}"].copy() for name in shapes}
        states = [arrays[f"state_{p}"] for p in range(self.sizes.n_workers)]
        z, ids = [s["z"] for s in states], [s.get("ids") for s in states]
        centre, order = corpus["centre"].copy(), corpus["order"]
        return Learned(shared["statistics"], prior, centre, order, z, ids)

    def worker(
        self, worker: int, corpus: Arrays, shared: Arrays, shards: Sequence[Arrays], beat: Any
    ) -> Worker:
        made = Worker if self.kept is None else KeptWorker
        return made(self, worker, corpus, shared, shards, beat)
