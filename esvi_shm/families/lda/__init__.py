"""Latent Dirichlet allocation by mean-field variational inference; blocks of words travel.

    theta_d ~ Dirichlet(alpha), beta_k ~ Dirichlet(eta); for each token z ~ theta_d, word ~ beta_z
    q(theta_d) = Dirichlet(gamma_d), q(beta_k) = Dirichlet(lambda_k), q(z) = phi

The updates are in `update`, `margins` and `full`; starts in `starts`; the bound in `bound`;
here they are tied to the shared arrays. Word rows are in the order of the blocks: row i is word
`word_ids[i]`, and block b has rows `block_bounds[b]` to `block_bounds[b + 1]`.

Source: Zhang et al., AISTATS 2019, Algorithm 3 and appendix A; Hoffman et al. 2013.
"""

import importlib
from collections.abc import Generator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from esvi_shm.config import FitConfig, choose, prior_vector
from esvi_shm.corpus.shard import Shard
from esvi_shm.errors import ParameterError
from esvi_shm.families.contract import Arrays, Bound, Sizes
from esvi_shm.families.lda import bound, repair, starts
from esvi_shm.families.lda.repair import TRIAL_PASSES
from esvi_shm.families.lda.schedule import Schedule
from esvi_shm.families.lda.update import Rule, make_scratch
from esvi_shm.shared.table import ArraySpec

STORAGES = ("margins", "full")
STARTS = ("seeded", "scikit-learn", "random")
INFERENCES = ("vb", "cvb0", "anneal")

#: Sweeps of each worker over its own documents, with the topics held still, at a start.
FOLD_SWEEPS = 5
#: The same where documents are folded in afresh during a fit.
REFOLD_SWEEPS = 15


def _storage(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


class Model:
    """LDA for one configuration and corpus size; see `families.contract.Family`."""

    commands: Sequence[str] = (
        "corpus_topics",
        "seed_topics",
        "fold_in",
        "refold",
        "random_phi",
        "sum_documents",
        "sum_words",
        "bound",
        *repair.COMMANDS,
    )

    @staticmethod
    def check(config: FitConfig) -> None:
        choose("inference", config.inference, INFERENCES)
        choose("storage", config.storage, STORAGES)
        choose("start", config.start, STARTS)
        schedule = Schedule(config)
        for n in config.repair_after:
            rules = {(schedule.cvb0(i), schedule.power(i)) for i in range(n - 1, n + TRIAL_PASSES)}
            if len(rules) > 1:
                rule = (
                    f"must lie where the updates stay the same for {TRIAL_PASSES} passes: at or "
                    f"after pass {schedule.n_passes + 1}"
                )
                raise ParameterError("repair_after", rule, n)

    def __init__(self, config: FitConfig, sizes: Sizes) -> None:
        self.check(config)
        self.config, self.sizes = config, sizes
        self.schedule = Schedule(config)
        self.rests = frozenset((*config.refold_after, *config.repair_after))
        self.settles_after = max(self.schedule.n_passes, *self.rests, 0)
        self.alpha = prior_vector("alpha", config.alpha, config.n_topics)
        self.eta = prior_vector("eta", config.eta, sizes.n_words)

    def shared_specs(self) -> list[ArraySpec]:
        s, n_topics = self.sizes, self.config.n_topics
        P, V, B, K = s.n_workers, s.n_words, s.n_blocks, n_topics
        every = "all workers"
        repairs = repair.specs(s, n_topics) if self.config.repair_after else []
        return [
            *repairs,
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
            ArraySpec("alpha", (K,), np.float64, "home, once", every, "prior of the documents"),
            ArraySpec("eta", (V,), np.float64, "home, once", every, "prior of the topics, by row"),
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
            ArraySpec(
                "seeds", (K,), np.int64, "home, at the start", every, "seed document of each topic"
            ),
        ]  # fmt: skip

    def shard_specs(self, worker: int) -> list[ArraySpec]:
        s, K = self.sizes, self.config.n_topics
        lengths = {
            "row": s.shard_rows[worker],
            "word": s.shard_words[worker],
            "pair": s.shard_pairs[worker],
        }
        own, others = "worker p", "worker p; everyone while no block is out"
        specs = [
            ArraySpec(
                "gamma", (s.shard_documents[worker], K), np.float32, own, others,
                "Dirichlet parameters of the shard's documents",
            )
        ]  # fmt: skip
        for name, what, text in _storage(self.config.storage).ARRAYS:
            specs.append(ArraySpec(name, (lengths[what], K), np.float32, own, others, text))
            if self.config.repair_after:
                kept = f"{name} as it was before a repair on trial"
                shape = (lengths[what], K)
                specs.append(ArraySpec(f"kept_{name}", shape, np.float32, own, own, kept))
        return specs

    def initialise(self, corpus: Arrays, shared: Arrays) -> None:
        shared["alpha"][:] = self.alpha
        shared["eta"][:] = self.eta[corpus["word_ids"]]

    def start(self, corpus: Arrays, shared: Arrays, restart: int = 0) -> Generator[str, bool, None]:
        seed = self.config.start_seed(restart)
        shared["start_seed"][0] = seed
        random = np.random.default_rng([seed, 0x5EED])
        if self.config.start == "random":
            yield "random_phi"
        else:
            if self.config.start == "seeded":
                shared["seeds"][:] = starts.choose_seed_documents(
                    corpus["document_tokens"], self.config.n_topics, random
                )
                yield "corpus_topics"
                yield "seed_topics"
            else:
                starts.expected_topics_into(shared["lambda_"], corpus["word_ids"], random)
            yield "fold_in"
        yield "sum_documents"
        yield "sum_words"
        shared["pi_snapshot"][:] = shared["pi"]

    def at_rest(
        self, corpus: Arrays, shared: Arrays, n_passes: int
    ) -> Generator[str | int, bool, dict[str, int]]:
        if n_passes in self.config.refold_after:
            # All documents afresh: it frees those that are stuck in their first topics.
            shared["pi_snapshot"][:] = shared["pi"]
            yield "refold"
            yield "sum_documents"
            yield "sum_words"
        if n_passes in self.config.repair_after:
            return (yield from repair.script(self, corpus, shared, n_passes))
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
        )

    def worker(
        self, worker: int, corpus: Arrays, shared: Arrays, shards: Sequence[Arrays], beat: Any
    ) -> "Worker":
        return Worker(self, worker, corpus, shared, shards, beat)


class Worker:
    """LDA's part in one worker process; see `families.contract.FamilyWorker`."""

    def __init__(
        self,
        model: Model,
        worker: int,
        corpus: Arrays,
        shared: Arrays,
        shards: Sequence[Arrays],
        beat: np.ndarray,
    ) -> None:
        self.model, self.worker, self.corpus, self.shared = model, worker, corpus, shared
        self.storage = _storage(model.config.storage)
        names = [name for name, _, _ in self.storage.ARRAYS]
        self.shards = [Shard(*(arrays[name] for name in Shard._fields)) for arrays in shards]
        self.phis = [tuple(arrays[name] for name in names) for arrays in shards]
        self.shard, self.phi = self.shards[worker], self.phis[worker]
        self.gamma = shards[worker]["gamma"]
        lo, hi = (int(d) for d in corpus["document_bounds"][worker : worker + 2])
        self.first_document, self.document_tokens = lo, corpus["document_tokens"][lo:hi]
        self.rule = Rule(
            shared["alpha"].astype(np.float32),
            shared["eta"].astype(np.float32),
            float(shared["eta"].sum()),
            cvb0=model.schedule.cvb0(0),
            power=1.0,
        )
        live = shared["pi"]
        self.pi = (shared["pi_snapshot"] if model.config.deterministic else live, live)
        self.scratch = make_scratch(
            most_words=int(np.diff(self.shard.block_word_ptr).max(initial=0)),
            most_pairs=int(np.diff(self.shard.row_ptr).max(initial=0)),
            n_topics=model.config.n_topics,
            beat=beat,
        )
        self.repairer = None
        if model.config.repair_after:
            self.repairer = repair.Repairer(self, shards[worker])
        # The command's word rows: blocks are dealt out to the workers in turn.
        self.own_blocks = range(worker, model.sizes.n_blocks, model.sizes.n_workers)

    def visit(self, block: int, pass_: int, want_entropy: bool) -> None:
        schedule = self.model.schedule
        self.rule = self.rule._replace(cvb0=schedule.cvb0(pass_), power=schedule.power(pass_))
        self._visit(block, given=False, frozen=False, want_words=True, want_entropy=want_entropy)

    def _visit(
        self, block: int, given: bool, frozen: bool, want_words: bool, want_entropy: bool
    ) -> None:
        value = self.storage.visit(
            self.shard,
            block,
            self.gamma,
            self.shared["lambda_"],
            self.phi,
            self.pi,
            self.rule,
            self.worker,
            given,
            frozen,
            want_words,
            want_entropy,
            self.scratch,
        )
        self.shared["entropy"][self.worker, block] = value if want_entropy else np.nan

    def command(self, name: str) -> None:
        if self.repairer is not None and name in repair.COMMANDS:
            self.repairer.command(name)
        else:
            getattr(self, f"_{name}")()

    def _corpus_topics(self) -> None:
        tokens = self.corpus["word_tokens"]
        for first, last in self.own_rows():
            starts.corpus_topics_into(
                self.shared["lambda_"],
                first,
                last,
                tokens,
                float(tokens.sum()),
                self.corpus["word_ids"],
                int(self.shared["start_seed"][0]),
            )

    def _seed_topics(self) -> None:
        starts.add_seed_documents(
            self.shared["lambda_"],
            self.shared["seeds"],
            self.first_document,
            self.shard,
            self.document_tokens,
        )

    def _fold_in(self) -> None:
        # As before the first pass: this may be another start, after passes of the one before.
        self.rule = self.rule._replace(cvb0=self.model.schedule.cvb0(0), power=1.0)
        self._sweep_from_uniform(FOLD_SWEEPS, given=True)

    def _refold(self) -> None:
        self._sweep_from_uniform(REFOLD_SWEEPS, given=False)

    def _sweep_from_uniform(self, n_sweeps: int, given: bool) -> None:
        self.storage.set_uniform(self.shard, self.gamma, self.phi, self.shared["alpha"])
        self._sweep(n_sweeps, given)

    def fold_in(self, n_sweeps: int) -> None:
        """Fold this worker's documents in from the phi that is held, under lambda as it is."""
        self.storage.sum_documents(self.shard, self.gamma, self.phi, self.shared["alpha"])
        self._sweep(n_sweeps, given=False)

    def _sweep(self, n_sweeps: int, given: bool) -> None:
        for sweep in range(n_sweeps):
            last = sweep == n_sweeps - 1
            for block in range(self.model.sizes.n_blocks):
                self._visit(block, given, frozen=True, want_words=last, want_entropy=last)

    def _random_phi(self) -> None:
        self.shared["entropy"][self.worker] = self.storage.set_random(
            self.shard,
            self.phi,
            self.first_document,
            self.corpus["word_ids"],
            int(self.shared["start_seed"][0]),
            np.empty(self.model.config.n_topics),
        )

    def _sum_documents(self) -> None:
        self.storage.sum_documents(self.shard, self.gamma, self.phi, self.shared["alpha"])
        own = np.zeros(self.model.config.n_topics)
        for block in range(self.model.sizes.n_blocks):
            first, last = self._block_rows(block)
            sums = np.zeros((last - first, len(own)))
            self.storage.add_words(self.shard, block, self.phi, first, sums)
            own += sums.sum(axis=0)
        self.shared["pi"][self.worker] = own

    def _sum_words(self) -> None:
        for block in self.own_blocks:
            first, last = self._block_rows(block)
            sums = np.zeros((last - first, self.model.config.n_topics))
            for shard, phi in zip(self.shards, self.phis, strict=True):
                self.storage.add_words(shard, block, phi, first, sums)
            sums += self.shared["eta"][first:last, None]
            self.shared["lambda_"][first:last] = sums

    def _bound(self) -> None:
        digamma_pi = bound.digamma_rows(self.shared["pi"], self.rule.eta_total)
        lambda_ = self.shared["lambda_"]
        parts = np.zeros(bound.N_PARTS)
        for block in range(self.model.sizes.n_blocks):
            parts[bound.PAIRS] += bound.pairs_part(
                self.shard, block, self.gamma, lambda_, digamma_pi
            )
        parts[[bound.DOCUMENTS_LNB, bound.DOCUMENTS_GAP, bound.DOCUMENTS_NLOGN]] = (
            bound.documents_part(self.gamma, self.document_tokens, self.shared["alpha"])
        )
        for first, last in self.own_rows():
            parts[[bound.WORDS_LNB, bound.WORDS_GAP, bound.WORDS_NLOGN]] += bound.words_part(
                lambda_, first, last, self.shared["eta"], digamma_pi
            )
        self.shared["bound_parts"][self.worker] = parts

    def _block_rows(self, block: int) -> tuple[int, int]:
        bounds = self.corpus["block_bounds"]
        return int(bounds[block]), int(bounds[block + 1])

    def own_rows(self) -> list[tuple[int, int]]:
        """First and last of the word rows that this worker writes on command."""
        return [self._block_rows(block) for block in self.own_blocks]
