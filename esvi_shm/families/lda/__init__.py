"""Latent Dirichlet allocation by mean-field variational inference; blocks of words travel.

    theta_d ~ Dirichlet(alpha), beta_k ~ Dirichlet(eta); for each token z ~ theta_d, word ~ beta_z
    q(theta_d) = Dirichlet(gamma_d), q(beta_k) = Dirichlet(lambda_k), q(z) = phi

The updates are in `update` and the storages `margins`, `full` and `topk`; starts in `starts`; the
bound in `bound`. What the workers do is in `worker`; here is what the main process does: arrays,
start, rests, evaluation.
Word rows are in the order of the blocks: row i is word `word_ids[i]`, and block b has rows
`block_bounds[b]` to `block_bounds[b + 1]`.

Source: Zhang et al., AISTATS 2019, Algorithm 3 and appendix A; Hoffman et al. 2013.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from esvi_shm.config import FitConfig, choose, prior_vector
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError, ParameterName
from esvi_shm.families.contract import Arrays, Bound, Judge, Sizes
from esvi_shm.families.lda import bound, exclusion, priors, repair, starts, tiling
from esvi_shm.families.lda.repair import TRIAL_PASSES
from esvi_shm.families.lda.schedule import Schedule
from esvi_shm.families.lda.starts import _given
from esvi_shm.families.lda.update import scratch_word_bytes
from esvi_shm.families.lda.worker import Worker, find_storage
from esvi_shm.shared.table import ArraySpec

STORAGES = ("margins", "full", "topk")
#: What `topk` does with the mass that it does not keep, and of how many topics it keeps one where
#: no number is given.
RESIDUALS, TOPICS_A_KEPT_ONE = ("spread", "drop"), 4
INFERENCES = ("vb", "cvb0", "anneal")


class Model:
    """LDA for one configuration and corpus size; see `families.contract.Family`."""

    commands: Sequence[str] = (
        "corpus_topics",
        "fold_in",
        "fold_in_longer",
        "refold",
        "random_phi",
        "sum_documents",
        "sum_words",
        "sum_under_alpha",
        "sum_under_eta",
        "take_priors",
        "bound",
        *repair.COMMANDS,
    )

    @staticmethod
    def check(config: FitConfig, has_judge: bool = True) -> None:
        choose("inference", config.inference, INFERENCES)
        choose("storage", config.storage, STORAGES)
        if config.leave_out is not None:
            choose("leave_out", config.leave_out, exclusion.CHOICES)
        choose("residual", config.residual, RESIDUALS)
        if config.topk is not None and config.topk > config.n_topics:
            rule = f"must be at most the number of topics, {config.n_topics}"
            raise ParameterError("topk", rule, config.topk)
        choose("start", config.start, starts.known())
        if config.seed_documents or config.seed_words or config.start_from is not None:
            choose("start", config.start, starts.from_documents())
        _given.check(config)
        choose("learn_priors", config.learn_priors, priors.LEARNED)
        prior_vector("alpha", config.alpha, config.n_topics)
        priors.check(config, has_judge)
        if config.inference == "anneal" and 0 < config.n_passes <= (config.cvb0_passes or 0):
            # Refused: the name says that vb comes after, and its objective would not.
            rule = f"must be less than the {config.n_passes} passes of anneal (cvb0 is without vb)"
            raise ParameterError("cvb0_passes", rule, config.cvb0_passes)
        schedule = Schedule(config)
        for n in config.repair_after:
            rules = {schedule.rule(i) for i in range(n - 1, n + TRIAL_PASSES)}
            if len(rules) > 1:
                rule = (
                    f"must lie where the updates stay the same for {TRIAL_PASSES} passes: at or "
                    f"after pass {schedule.n_passes + 1}"
                )
                raise ParameterError("repair_after", rule, n)

    @staticmethod
    def without_effect(config: FitConfig) -> list[tuple[Any, ...]]:
        # Not refused: scripts give one set of options with each inference and number of passes.
        found: list[tuple[Any, ...]] = []
        n_passes = config.n_passes
        if config.cvb0_passes is not None and config.inference != "anneal":
            names = ParameterName("cvb0_passes"), ParameterName("inference")
            found.append(("%s has no effect with %s %s", *names, config.inference))
        if config.leave_out is not None and config.inference == "vb":
            names = ParameterName("leave_out"), ParameterName("inference")
            found.append(("%s has no effect with %s vb", *names))
        if (config.temper_passes or 0) > n_passes:
            found.append(
                (
                    "%s (%d) is more than %s (%d): the fit ends while it is tempered, short of its "
                    "optimum", ParameterName("temper_passes"), config.temper_passes,
                    ParameterName("n_passes"), n_passes,
                )
            )  # fmt: skip
        for name in ("refold_after", "repair_after"):
            late = [n for n in getattr(config, name) if n > n_passes]
            if late:
                numbers = ", ".join(map(str, late))
                text = "%s %s has no effect in %d passes"
                found.append((text, ParameterName(name), numbers, n_passes))
        settled = Schedule(config).n_passes
        if config.learn_priors != "none" and settled >= n_passes:
            text = "%s %s has no effect: the updates settle after %d of %d passes"
            name = ParameterName("learn_priors")
            found.append((text, name, config.learn_priors, settled, n_passes))
        if config.dense_passes is not None:
            for other, value, takes_it in (
                ("storage", config.storage, config.storage == "margins"),
                ("inference", config.inference, config.inference != "cvb0"),
            ):
                if not takes_it:
                    names = ParameterName("dense_passes"), ParameterName(other)
                    found.append(("%s has no effect with %s %s", *names, value))
        if config.storage != "topk":
            for name, default in (("topk", None), ("residual", RESIDUALS[0])):
                if getattr(config, name) != default:
                    names = ParameterName(name), ParameterName("storage")
                    found.append(("%s has no effect with %s %s", *names, config.storage))
        elif config.leave_out not in (None, "none"):
            names = ParameterName("leave_out"), ParameterName("storage")
            found.append(("%s has no effect with %s topk", *names))
        if config.noise_passes and not config.noise:
            names = ParameterName("noise_passes"), ParameterName("noise")
            found.append(("%s has no effect without %s", *names))
        return found

    def check_corpus(self, corpus: Corpus) -> None:
        _given.check_words(self.config, corpus)

    def __init__(self, config: FitConfig, sizes: Sizes) -> None:
        self.check(config)
        self.config, self.sizes = config, sizes
        self.schedule = Schedule(config)
        changes = (*config.refold_after, *config.repair_after)
        self.settles_after = max(self.schedule.n_passes, *changes, 0)
        self.alpha = prior_vector("alpha", config.alpha, config.n_topics)
        self.eta = prior_vector("eta", config.eta, sizes.n_words)

    def shared_specs(self) -> list[ArraySpec]:
        s, n_topics = self.sizes, self.config.n_topics
        P, V, B, K = s.n_workers, s.n_words, s.n_blocks, n_topics
        every, rest = "all workers", "home, while no block is out"
        repairs = repair.specs(s, n_topics) if self.config.repair_after else []
        live = tiling.specs(s, n_topics) if self.config.dense_passes is not None else []
        return [
            *repairs,
            *live,
            ArraySpec(
                "lambda_", (V, K), np.float32, "the owner of the row's block",
                "the owner; everyone while no block is out",
                "Dirichlet parameters of the topics, a row per word; point topics during a start",
            ),
            ArraySpec(
                "pi", (P, K), np.float64, "worker p its row, at the end of a visit", every,
                "column sums of lambda_ - eta, by the worker whose documents they come from",
            ),
            ArraySpec(
                "pi_snapshot", (P, K), np.float64, "home, between passes",
                "all workers of a deterministic fit", "pi as it was when the pass began",
            ),
            ArraySpec("alpha", (K,), np.float64, rest, every, "prior of the documents"),
            ArraySpec("eta", (V,), np.float64, rest, every, "prior of the topics, by row"),
            ArraySpec("trial_alpha", (K,), np.float64, rest, every, "alpha that is being tried"),
            ArraySpec("trial_eta", (1,), np.float64, rest, every, "eta that is being tried"),
            ArraySpec(
                "document_sums", (P, K + 2), np.float64, "worker p its row, on command",
                "home while no block is out", "the worker's sums under trial_alpha, see `priors`",
            ),
            ArraySpec(
                "topic_sums", (P, 2), np.float64, "worker p its row, on command",
                "home while no block is out", "the worker's sums under trial_eta, see `priors`",
            ),
            ArraySpec(
                "entropy", (P, B), np.float64, "worker p its row, at the end of a visit",
                "home while no block is out",
                "H of the phi held for (shard, block); nan where the last visit did not compute it",
            ),
            ArraySpec(
                "bound_parts", (P, bound.N_PARTS), np.float64, "worker p its row, on command",
                "home while no block is out", "the worker's share of the sums in the bound",
            ),
            ArraySpec("start_seed", (1,), np.int64, "home, at a start", every, "its seed"),
        ]  # fmt: skip

    def shard_specs(self, worker: int) -> list[ArraySpec]:
        s, K = self.sizes, self.config.n_topics
        lengths = {
            "row": s.shard_rows[worker],
            "word": s.shard_words[worker],
            "pair": s.shard_pairs[worker],
        }
        n_kept = self.config.topk or -(-K // TOPICS_A_KEPT_ONE)
        columns: dict[str, tuple[tuple[int, ...], Any]] = {
            "topic": ((K,), np.float32),
            "kept topic": ((n_kept,), np.min_scalar_type(K - 1)),
            "kept": ((n_kept,), np.float32),
            "one": ((), np.float32),
        }
        own, others = "worker p", "worker p; everyone while no block is out"
        specs = [
            ArraySpec(
                "gamma", (s.shard_documents[worker], K), np.float32, own, others,
                "Dirichlet parameters of the shard's documents",
            )
        ]  # fmt: skip
        for name, what, column, text in find_storage(self.config.storage).ARRAYS:
            more, dtype = columns[column]
            shape = (lengths[what], *more)
            specs.append(ArraySpec(name, shape, dtype, own, others, text))
            if self.config.repair_after:
                kept = f"{name} as it was before a repair on trial"
                specs.append(ArraySpec(f"kept_{name}", shape, dtype, own, own, kept))
        return specs

    def scratch_bytes(self, most_words: int) -> int:
        # What a visit needs (`update.make_scratch`), and float64 sums where its rows are many.
        n_topics = self.config.n_topics
        row = scratch_word_bytes(n_topics, self.schedule.leaves_out) + 8 * n_topics
        if self.config.dense_passes is None:
            return most_words * row
        most_documents = max(self.sizes.shard_documents)
        row += tiling.word_bytes(n_topics)
        return most_words * row + most_documents * tiling.document_bytes(n_topics)

    def initialise(self, corpus: Arrays, shared: Arrays) -> None:
        shared["alpha"][:] = self.alpha
        shared["eta"][:] = self.eta[corpus["word_ids"]]

    def start(
        self, corpus: Corpus, arrays: Arrays, shared: Arrays, restart: int = 0
    ) -> Generator[str, bool, None]:
        config = replace(self.config, seed=self.config.start_seed(restart))
        shared["start_seed"][0] = config.seed
        yield from starts.find(config.start).start(config, corpus, arrays, shared)
        yield "sum_documents"
        yield "sum_words"
        shared["pi_snapshot"][:] = shared["pi"]

    def next_rest(self, n_passes: int) -> int | None:
        changes = (*self.config.refold_after, *self.config.repair_after)
        rests = [n for n in changes if n > n_passes]
        if self.config.learn_priors != "none":
            rests.append(self._next_learning(n_passes))
        return min(rests, default=None)

    def _next_learning(self, n_passes: int) -> int:
        return priors.next_time(n_passes, self.schedule.n_passes, self.config.n_passes)

    def ending(self, n_passes: int) -> dict[str, Any]:
        cvb0, power, _ = self.schedule.rule(max(n_passes - 1, 0))
        return {"inference": "cvb0" if cvb0 else "vb", "power": power}

    def at_rest(
        self,
        corpus: Corpus,
        arrays: Arrays,
        shared: Arrays,
        n_passes: int,
        judge: Judge | None,
    ) -> Generator[str | int, bool, dict[str, int]]:
        if n_passes in self.config.refold_after:
            # It frees documents that are stuck in their first topics.
            shared["pi_snapshot"][:] = shared["pi"]
            yield "refold"
            yield "sum_documents"
            yield "sum_words"
        learning = self.config.learn_priors != "none"
        if learning and n_passes == self._next_learning(n_passes - 1):
            decides = judge if self.schedule.cvb0(n_passes - 1) else None
            yield from priors.learn(self.config, arrays["word_ids"], shared, decides)
        if n_passes in self.config.repair_after:
            return (yield from repair.script(self, corpus, arrays, shared, n_passes))
        return {}

    def evaluate(self, shared: Arrays, n_passes: int) -> Generator[str, bool, Bound]:
        yield "sum_documents"
        yield "sum_words"
        yield "bound"
        pi = shared["pi"].sum(axis=0) + shared["eta"].sum()
        return bound.combine(
            shared["bound_parts"],
            float(shared["entropy"].sum()),
            shared["alpha"],
            shared["eta"],
            pi,
            self.sizes.n_documents,
            self.schedule.cvb0(max(n_passes - 1, 0)),
            self.schedule.power(max(n_passes - 1, 0)),
        )

    def worker(
        self, worker: int, corpus: Arrays, shared: Arrays, shards: Sequence[Arrays], beat: Any
    ) -> Worker:
        return Worker(self, worker, corpus, shared, shards, beat)
