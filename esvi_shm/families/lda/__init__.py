"""Latent Dirichlet allocation by mean-field variational inference; blocks of words travel.

    theta_d ~ Dirichlet(alpha), beta_k ~ Dirichlet(eta); for each token z ~ theta_d, word ~ beta_z
    q(theta_d) = Dirichlet(gamma_d), q(beta_k) = Dirichlet(lambda_k), q(z) = phi

The updates are in `update` and the storages `margins`, `sparse`, `full` and `topk`; starts in
`starts`; the bound in `bound`. What the workers do is in `worker`; here is what the main process
does: arrays, start, rests, evaluation.
Word rows are in the order of the blocks: row i is word `word_ids[i]`, and block b has rows
`block_bounds[b]` to `block_bounds[b + 1]`.

Source: Zhang et al., AISTATS 2019, Algorithm 3 and appendix A; Hoffman et al. 2013.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from esvi_shm.config import FitConfig, prior_vector
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.corpus.part import join
from esvi_shm.families.contract import Arrays, Bound, Judge, ListedBlock
from esvi_shm.families.lda import (
    bound,
    cut,
    left_out,
    listed,
    lists,
    options,
    priors,
    repair,
    starts,
    totals,
    toy,
)
from esvi_shm.families.lda.cut import Sizes
from esvi_shm.families.lda.few import few_bytes
from esvi_shm.families.lda.schedule import MARGINS, Schedule
from esvi_shm.families.lda.starts import _given
from esvi_shm.families.lda.update import scratch_word_bytes
from esvi_shm.families.lda.worker import Worker, find_storage
from esvi_shm.shared.table import ArraySpec

#: Bytes of kernels, as measured: of passes over all topics, what lists have more, and active sets,
#: of arrays and of lists.
CODE_BYTES, LISTS_CODE, ACTIVE_CODE = 13 << 20, 9 << 20, (7 << 20, 11 << 20)


@dataclass
class Learned:
    """What a fit has found, as views of its arrays.

    Attributes
    ----------
    word_ids : int32 array, shape (V,)
        The word of each row of lambda.
    lambda_rows : float32 array or `ListedRows`, shape (V, K)
    of_units : list of float32 arrays or `ListedRows`, shapes (D_p, K)
    alpha, eta : float64 arrays, shapes (K,) and (V,)
        In the order of the topics and of the vocabulary.
    """

    word_ids: np.ndarray
    lambda_rows: Any
    of_units: list[Any]
    alpha: np.ndarray
    eta: np.ndarray


class Model:
    """LDA for one configuration and corpus size; see `families.contract.Family`."""

    units = "documents"
    cut = cut.Cut
    toy = staticmethod(toy.toy)
    check = staticmethod(options.check)
    without_effect = staticmethod(options.without_effect)
    storages = staticmethod(options.storages)
    commands: Sequence[str] = (
        "corpus_topics",
        "unfold",
        "unfold_again",
        "sweep",
        "last_sweep",
        "random_phi",
        "sum_documents",
        "clear_words",
        "add_words",
        "sum_under_alpha",
        "sum_under_eta",
        "take_priors",
        "bound_own",
        "bound_pairs",
        "tidy",
        *repair.COMMANDS,
    )
    tours: Sequence[str] = ("sweep", "last_sweep", "add_words", "bound_pairs", "find_excess")
    travels: Sequence[str] = ("lambda_",)
    copied = False
    contributes = "pi"
    join = staticmethod(join)
    check_nodes = staticmethod(options.check_nodes)
    prepare = staticmethod(starts.prepare)

    @staticmethod
    def n_units(data: Corpus) -> int:
        return data.n_documents

    @staticmethod
    def choose_n_blocks(data: Corpus, config: FitConfig, n_workers: int) -> int:
        if config.axis == "topics":
            # The words are cut into as many blocks, which are dealt to the workers at rests.
            n_blocks = config.n_blocks or cut.choose_n_groups(n_workers)
            return min(n_blocks, data.n_words, config.n_topics)
        return min(config.n_blocks or cut.choose_n_blocks(data.whole, n_workers), data.n_words)

    def work(self, shard: Arrays) -> np.ndarray:
        pairs = np.diff(shard["row_ptr"][shard["block_row_ptr"][:: self.sizes.n_turns]])
        if self.meets:  # a part of the topics finds work in all pairs
            n_pairs, parts = int(pairs.sum()), np.arange(len(pairs) + 1)
            return np.maximum(np.diff(n_pairs * parts // len(pairs)), min(n_pairs, 1))
        return pairs

    def rows(self, arrays: Arrays, block: int, name: str) -> Any:
        if self.meets:
            return slice(None), self._columns(block)
        rows = cut.word_rows(arrays, block)
        if name in ("lambda_topics", "lambda_values"):  # the places of these rows
            return slice(*arrays["lambda_first"][[rows.start, rows.stop]].tolist())
        return rows

    def listed_block(self, arrays: Arrays, block: int) -> ListedBlock | None:
        if not self.has_lists:
            return None
        rows = cut.word_rows(arrays, block)
        first = arrays["lambda_first"][rows.start : rows.stop + 1]
        size, rest = arrays["lambda_size"][rows], arrays["lambda_rest"][rows]
        topics, values = arrays["lambda_topics"], arrays["lambda_values"]
        return ListedBlock(first, size, rest, topics, values, self.config.n_topics)

    def arrived(self, shared: Arrays, block: int) -> None:
        if "knows_live" in shared:  # which topics its words live in is found anew
            shared["knows_live"][block] = False
        if "pi_total" in shared:
            own, topics = shared["pi"][: self.sizes.n_workers], self._columns(block)
            others = shared["pi_total"][0, topics] - own[:, topics].sum(axis=0)
            shared["pi"][self.sizes.n_workers, topics] = others

    def check_data(self, data: Corpus) -> None:
        _given.check_words(self.config, data)

    def __init__(self, config: FitConfig, sizes: Sizes) -> None:
        self.check(config)
        self.config, self.sizes = config, sizes
        self.schedule = Schedule(config)
        if self.schedule.chooses and sizes.n_nodes > 1:
            self.schedule.dense_passes = None
        self.meets = config.axis == "topics"
        self.has_lists = config.storage == "sparse"
        if self.has_lists:
            self.travels = tuple(f"lambda_{part}" for part in listed.TRAVELLING)
        if self.meets:  # all words are at every node
            self.copied, self.contributes, self.tours = True, "", ()
            if sizes.n_nodes > 1:
                self.travels = ("lambda_", "pi_total")
        changes = (*config.refold_after, *config.repair_after)
        self.settles_after = max(self.schedule.n_passes, *changes, 0)
        self.alpha = prior_vector("alpha", config.alpha, config.n_topics)
        self.eta = prior_vector("eta", config.eta, sizes.n_words)

    def shared_specs(self) -> list[ArraySpec]:
        s, n_topics = self.sizes, self.config.n_topics
        P, V, B, K = s.n_workers, s.n_words, s.n_blocks, n_topics
        every, rest = "all workers", "home, while no block is out"
        repairs = repair.specs(s, n_topics) if self.config.repair_after else []
        live = []
        if self.schedule.dense_passes is not None:
            live = lists.specs(s, n_topics, self.has_lists)
        moved = ArraySpec(
            "without_place", (P, B, 4), np.float64, "worker p its row, at the end of a visit",
            "home, at the end", "tokens without a place in the last visit, see `listed.Window`",
        )  # fmt: skip
        total = ArraySpec(
            "pi_total", (1, K), np.float64, "the owner of the topic, at the end of a visit",
            "home, when the topic leaves the node or comes", "pi over the workers of all nodes",
        )  # fmt: skip
        return [
            *repairs,
            *live,
            *([moved] if self.config.storage == "sparse" else []),
            *([total] if "pi_total" in self.travels else []),
            *self._lambda_specs(),
            ArraySpec(
                "pi", (P + (s.n_nodes > 1), K), np.float64,
                "worker p its row, at the end of a visit; home the last one, for other nodes",
                every,
                "column sums of lambda_ - eta, by the worker whose documents they come from",
            ),
            ArraySpec(
                "pi_snapshot", (P + (s.n_nodes > 1), K), np.float64, "home, between passes",
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

    def _lambda_specs(self) -> list[ArraySpec]:
        V, K = self.sizes.n_words, self.config.n_topics
        owner, readers = "the owner of the row's block", "the owner; everyone while no block is out"
        text = "Dirichlet parameters of the topics, a row per word; point topics during a start"
        if self.has_lists:
            places = self.sizes.lambda_places
            return listed.specs("lambda", V, places, K, owner, readers, f"{text}, without eta")
        return [ArraySpec("lambda_", (V, K), np.float32, owner, readers, text)]

    def shard_specs(self, worker: int) -> list[ArraySpec]:
        s, K = self.sizes, self.config.n_topics
        lengths = {
            "document": s.shard_documents[worker],
            "row": s.shard_rows[worker],
            "word": s.shard_words[worker],
            "pair": s.shard_pairs[worker],
        }
        n_kept = self.config.topk or -(-K // options.TOPICS_A_KEPT_ONE)
        columns: dict[str, tuple[tuple[int, ...], Any]] = {
            "topic": ((K,), np.float32),
            "kept topic": ((n_kept,), np.min_scalar_type(K - 1)),
            "kept": ((n_kept,), np.float32),
            "one": ((), np.float32),
        }
        own, others = "worker p", "worker p; everyone while no block is out"
        specs = []
        storage = find_storage(self.config.storage)
        kind = "listed" if self.config.storage == "sparse" else "topic"
        gamma = "gamma", "document", kind, "Dirichlet parameters of the shard's documents"
        for name, what, column, text in (gamma, *storage.ARRAYS):
            if column == "listed":
                specs += self._listed_specs(name, lengths[what], worker, text)
                continue
            more, dtype = columns[column]
            shape = (lengths[what], *more)
            specs.append(ArraySpec(name, shape, dtype, own, others, text))
            if self.config.repair_after and name != "gamma":
                kept = f"{name} as it was before a repair on trial"
                specs.append(ArraySpec(f"kept_{name}", shape, dtype, own, own, kept))
        return specs

    def _listed_specs(self, name: str, n_rows: int, worker: int, text: str) -> list[ArraySpec]:
        s, n_topics = self.sizes, self.config.n_topics
        places = s.shard_word_places[worker]
        if name != "phi_word":
            per_pair = listed.DOCUMENT_PLACES if name == "gamma" else listed.ROW_PLACES
            places = listed.n_places(s.shard_pairs[worker], n_rows, per_pair, n_topics)
        own, others = "worker p", "worker p; everyone while no block is out"
        return listed.specs(name, n_rows, places, n_topics, own, others, text)

    def scratch_bytes(self, largest_block: int) -> int:
        # What a visit needs (`update.make_scratch`), and float64 sums where its rows are many.
        n_topics = self.config.n_topics
        row = scratch_word_bytes(n_topics, self.schedule.leaves_out) + 8 * n_topics
        others = few_bytes(n_topics)
        if self.config.storage == "sparse":
            others += listed.window_bytes(n_topics)
            if self.config.start == "random" and self.config.restarts > 1:
                row += 4 * n_topics  # what a start needs beside the scratch of the one before
        if self.schedule.dense_passes is not None:
            row += lists.word_bytes(n_topics, self.schedule.leaves_out)
            if self.config.storage != "sparse":
                others += max(self.sizes.shard_documents) * lists.document_bytes(n_topics)
        return largest_block * row + others

    def code_bytes(self) -> int:
        is_sparse = self.config.storage == "sparse"
        is_active = self.schedule.dense_passes is not None
        return CODE_BYTES + LISTS_CODE * is_sparse + ACTIVE_CODE[is_sparse] * is_active

    def initialise(self, corpus: Arrays, shared: Arrays) -> None:
        shared["alpha"][:] = self.alpha
        shared["eta"][:] = self.eta[corpus["word_ids"]]
        if self.has_lists:
            places = listed.lambda_places(corpus["word_pairs"], self.config.n_topics)
            shared["lambda_first"][1:] = np.cumsum(places)

    def begin_pass(self, shared: Arrays) -> None:
        # What other workers read of pi during the pass: always the same, whoever is faster.
        shared["pi_snapshot"][:] = shared["pi"]

    def start(
        self, held: AnyCorpus, arrays: Arrays, shared: Arrays, restart: int = 0
    ) -> Generator[str, bool, None]:
        config = replace(self.config, seed=self.config.start_seed(restart))
        shared["start_seed"][0] = config.seed
        yield from starts.find(config.start).start(config, held, arrays, shared)
        yield from totals.sum_up(shared)
        self.begin_pass(shared)

    def next_rest(self, n_passes: int) -> int | None:
        changes = (*self.config.refold_after, *self.config.repair_after)
        rests = [n for n in changes if n > n_passes]
        if (learning := self._next_learning(n_passes)) is not None:
            rests.append(learning)
        return min(rests, default=None)

    def _next_learning(self, n_passes: int) -> int | None:
        learned, judged = self.config.learn_priors, self.config.inference == "cvb0"
        settled, last = self.schedule.n_passes, self.config.n_passes
        if learned == "none":
            return None
        if learned == "alpha" and judged:
            once = priors.time_of_alpha(settled, last)
            return once if once > n_passes else None
        times = priors.TIMES_OF_JUDGE if judged else priors.TIMES
        return priors.next_time(n_passes, settled, last, times)

    def ending(
        self, n_passes: int, held: AnyCorpus, arrays: Mapping[str, Arrays], learned: Any
    ) -> dict[str, Any]:
        last = max(n_passes - 1, 0)
        cvb0, power, *_ = self.schedule.rule(last)
        found: dict[str, Any] = {"inference": "cvb0" if cvb0 else "vb", "power": power}
        if self.config.axis == "words":
            found["settle"] = self.sizes.n_turns * self.sizes.n_workers
        shared = arrays["parameters"]
        uses_active = "active_visits" in shared and bool(shared["active_visits"].any())
        tokens = float(arrays["corpus"]["document_tokens"].sum())
        if "without_place" in shared:
            shares = shared["without_place"].sum(axis=(0, 1)) / (tokens or 1.0)
            names = "gamma", "phi_doc", "phi_word", "lambda"
            found["without_place"] = dict(zip(names, shares.tolist(), strict=True))
        if uses_active:
            found["active_visits"] = int(shared["active_visits"].sum())
            if shared["cvb0_left_out"].any():
                found["cvb0_left_out"] = float(shared["cvb0_left_out"].sum()) / tokens
        tolerance = self.schedule.tolerance(last)
        is_margins = self.config.storage in MARGINS
        # Whatever this node has done: where there are several, they answer each other.
        if tolerance and not cvb0 and is_margins and (uses_active or self.sizes.n_nodes > 1):
            n_documents, seed = self.sizes.n_documents_in_all, self.config.seed
            measured = left_out.of_fit(held, learned, n_documents, seed, tolerance)
            if measured is not None:
                found["active_left_out"] = measured
        return found

    def at_rest(
        self,
        held: AnyCorpus,
        arrays: Arrays,
        shared: Arrays,
        n_passes: int,
        judge: Judge | None,
    ) -> Generator[str | int, bool, dict[str, int]]:
        if n_passes in self.config.refold_after:
            # It frees documents that are stuck in their first topics.
            if "pi_total" in shared:  # topics that were elsewhere last are here as they left
                yield from totals.sum_up(shared)
            self.begin_pass(shared)
            yield from totals.fold_in("unfold_again", totals.REFOLD_SWEEPS)
            yield from totals.sum_up(shared)
        if n_passes == self._next_learning(n_passes - 1):
            decides = judge if self.schedule.cvb0(n_passes - 1) else None
            yield from priors.learn(self.config, arrays["word_ids"], shared, decides)
        if n_passes in self.config.repair_after:
            return (yield from repair.script(self, held, arrays, shared, n_passes))
        return {}

    def topics_of(self, block: int) -> np.ndarray:
        """The topics that travel as a block, int64, ascending."""
        columns = self._columns(block)
        return np.arange(columns.start, columns.stop)

    def _columns(self, block: int) -> slice:
        first, last = (self.config.n_topics * b // self.sizes.n_blocks for b in (block, block + 1))
        return slice(first, last)

    def evaluate(self, shared: Arrays, n_passes: int) -> Generator[str, bool, Bound]:
        if self.meets:
            yield "tidy"
        pi = yield from totals.sum_up(shared)
        yield "bound_own"
        yield "bound_pairs"
        shared["bound_parts"][:, bound.ENTROPY] = shared["entropy"].sum(axis=1)
        parts = yield from totals.everywhere(shared["bound_parts"])
        return bound.combine(
            parts,
            shared["alpha"],
            shared["eta"],
            pi + shared["eta"].sum(),
            self.sizes.n_documents_in_all,
            self.schedule.cvb0(max(n_passes - 1, 0)),
            self.schedule.power(max(n_passes - 1, 0)),
        )

    def judged(self, arrays: Arrays, shared: Arrays) -> tuple[Any, ...]:
        return listed.lambda_of(shared), arrays["word_ids"], shared["alpha"]

    def prior_means(self, shared: Arrays) -> tuple[float, float]:
        return float(shared["alpha"].mean()), float(shared["eta"].mean())

    def learned(self, arrays: Mapping[str, Arrays]) -> Learned:
        shared, word_ids = arrays["parameters"], arrays["corpus"]["word_ids"]
        states = [arrays[f"state_{p}"] for p in range(self.sizes.n_workers)]
        gamma: list[Any]
        if self.config.storage == "sparse":
            prior = shared["alpha"].astype(np.float32)
            of_shards = (listed.of_arrays("gamma", state, prior) for state in states)
            gamma = [listed.ListedRows(of_shard) for of_shard in of_shards]
        else:
            gamma = [state["gamma"] for state in states]
        eta = np.empty_like(shared["eta"])
        eta[word_ids] = shared["eta"]
        rows = listed.lambda_of(shared)
        return Learned(word_ids, rows, gamma, shared["alpha"].copy(), eta)

    def worker(
        self, worker: int, corpus: Arrays, shared: Arrays, shards: Sequence[Arrays], beat: Any
    ) -> Worker:
        return Worker(self, worker, corpus, shared, shards, beat)
