"""LDA's part in one worker process: visits, and what all workers do on command."""

import copy
import importlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from esvi_shm.corpus.shard import Shard
from esvi_shm.families.contract import Arrays
from esvi_shm.families.lda import (
    active,
    bound,
    exclusion,
    listed,
    listing,
    lists,
    margins,
    priors,
    repair,
    sparse,
    topic_axis,
)
from esvi_shm.families.lda.cut import word_rows
from esvi_shm.families.lda.desk import set_rule, sit_down
from esvi_shm.families.lda.few import BATCH, set_prior
from esvi_shm.families.lda.listed import ROUNDING
from esvi_shm.families.lda.noise import visit_key
from esvi_shm.families.lda.starts import _documents
from esvi_shm.families.lda.switch import Switch
from esvi_shm.families.lda.update import Rule, least_sum, make_scratch
from esvi_shm.vector import padded

if TYPE_CHECKING:
    from esvi_shm.families.lda import Model


def find_storage(name: str | None) -> ModuleType:
    """The module of a storage; None: the default."""
    return importlib.import_module(f"esvi_shm.families.lda.{name or 'margins'}")


class Worker:
    """LDA's part in one worker process; see `families.contract.FamilyWorker`."""

    def __init__(
        self,
        model: "Model",
        worker: int,
        corpus: Arrays,
        shared: Arrays,
        shards: Sequence[Arrays],
        beat: np.ndarray,
    ) -> None:
        self.model, self.worker, self.corpus, self.shared = model, worker, corpus, shared
        self.storage = find_storage(model.config.storage)
        self.shards = [Shard(*(arrays[name] for name in Shard._fields)) for arrays in shards]
        lo, hi = (int(d) for d in corpus["document_bounds"][worker : worker + 2])
        self.first_document, self.document_tokens = lo, corpus["document_tokens"][lo:hi]
        # Arrays, or what stands for them in the kernels of a storage.
        self.gamma: Any
        self.phis: list[tuple[Any, ...]]
        if self.storage is sparse:
            alpha = shared["alpha"].astype(np.float32)
            bounds = pairwise(corpus["document_bounds"].tolist())
            tokens = [corpus["document_tokens"][first:last] for first, last in bounds]
            held = sparse.attach(shards, alpha, tokens)
            self.lambda_: Any = listed.words_of_arrays(shared, corpus["word_tokens"])
            self.gamma, self.phis = held[worker][0], [tuple(phi) for _, *phi in held]
            sparse.lay_out_rows(self.shards[worker], *held[worker])
        else:
            names = [name for name, *_ in self.storage.ARRAYS]
            self.gamma, self.lambda_ = shards[worker]["gamma"], shared["lambda_"]
            self.phis = [tuple(arrays[name] for name in names) for arrays in shards]
        self.shard, self.phi = self.shards[worker], self.phis[worker]
        self.most_words = int(np.diff(self.shard.block_word_ptr).max(initial=0))
        self.lists: lists.Lists | None = None  # made when they are needed
        self.knows_live = False
        self.switch = Switch(self.shard, model.config.n_topics, model.sizes.n_turns)
        self.scratch = make_scratch(
            most_words=self.most_words,
            most_pairs=int(np.diff(self.shard.row_ptr).max(initial=0)),
            n_topics=model.config.n_topics,
            beat=beat,
            leaves_out=model.schedule.leaves_out,
        )
        live = shared["pi"]
        pi = (shared["pi_snapshot"] if model.config.deterministic else live, live)
        # By pass; a block may be a pass ahead of another.
        self._of_pass: dict[int, dict[str, Any]] = {}
        self._in_force: dict[str, Any] | None = None
        rule = self._rule_of_now()
        self.desk = sit_down(
            self.shard, self.gamma, self.lambda_, self.phi, pi, worker, rule, self.scratch
        )
        self.rule = rule
        self._set_prior()
        self.entropy = shared["entropy"][worker]
        # Whether `live_topics` says of a block's words what they are; none without active sets.
        self.words_live = shared.get("knows_live", np.zeros(model.sizes.n_blocks, bool))
        self.repairer = None
        if model.config.repair_after:
            self.repairer = repair.Repairer(self, shards[worker])
        self.resident: Sequence[int] = range(model.sizes.n_blocks)
        self.given = False  # whether lambda_ holds point topics

    @property
    def rule(self) -> Rule:
        """What the visits go by; `_take_rule_of` has it changed from pass to pass."""
        return self._rule

    @rule.setter
    def rule(self, rule: Rule) -> None:
        self._rule, self._in_force, self._pass = rule, None, -1
        set_rule(self.desk, rule)

    def visit(self, block: int, pass_: int, want_entropy: bool) -> None:
        self._take_rule_of(pass_)
        if self.rule.tolerance and self._is_active(pass_):
            self._visit_active(block, want_entropy)
        else:
            self._visit(
                block, given=False, frozen=False, want_words=True, want_entropy=want_entropy
            )

    def _is_active(self, pass_: int) -> bool:
        """Whether a visit is over active sets: if that was asked for, or if it costs less."""
        if not self.model.schedule.chooses:
            return True
        # Tempered, its documents live in too many topics.
        return not self.rule.cvb0 and self.switch.look(pass_, self.gamma, self.rule.alpha)

    def visit_together(self, blocks: Sequence[int], pass_: int) -> None:
        self._take_rule_of(pass_)
        topics = np.concatenate([self.model.topics_of(block) for block in sorted(blocks)])
        topic_axis.visit(self.desk, topics)
        if "pi_total" in self.shared:
            self.shared["pi_total"][0, topics] = self.shared["pi"][:, topics].sum(axis=0)

    def _take_rule_of(self, pass_: int) -> None:
        if pass_ == self._pass:
            return
        if pass_ not in self._of_pass:
            self._of_pass[pass_] = self._changes_of(pass_)
        changes = self._of_pass[pass_]
        if changes != self._in_force:
            power = self.rule.power
            self.rule = self.rule._replace(**changes)
            if self.rule.power != power:
                self._set_prior()
            self._in_force = changes
        self._pass = pass_

    def _changes_of(self, pass_: int) -> dict[str, Any]:
        """What of the rule changes from pass to pass."""
        schedule, noise = self.model.schedule, self.model.schedule.noise(pass_)
        has_active = self.storage in (margins, sparse)
        return {
            "cvb0": schedule.cvb0(pass_),
            "power": schedule.power(pass_),
            "least": least_sum(schedule.cvb0(pass_), schedule.power(pass_)),
            "noise": noise,
            "noise_key": visit_key(self.model.config.seed, pass_, self.worker) if noise else 0,
            "leave_out": schedule.leave_out(pass_),
            "relax": np.float32(schedule.relax(pass_)),
            "tolerance": np.float32(schedule.tolerance(pass_) if has_active else 0.0),
        }

    def _visit_active(self, block: int, want_entropy: bool) -> None:
        is_sparse = self.storage is sparse  # its lists say where documents live
        if self.lists is None:
            n_topics, n_documents = self.model.config.n_topics, len(self.document_tokens)
            self.lists = lists.make_lists(
                self.most_words, 0 if is_sparse else n_documents, n_topics,
                self.model.schedule.leaves_out,
            )  # fmt: skip
        rule, live = self.rule, self.lists.gained
        if not is_sparse:
            live = self.shared["live_topics"]
            if not self.knows_live:
                priors = rule.alpha + rule.alpha * ROUNDING
                lists.find_live_documents(self.gamma, priors, self.lists.live)
                self.knows_live = True
            if not self.words_live[block]:
                first, last = self._block_rows(block)
                lists.find_live_words(first, last, self.lambda_, rule.eta, live)
                self.words_live[block] = True
        value = left_out = 0.0
        counts = np.zeros_like(self.lists.counts)
        self._begin_counting(block)
        for cell in self.cells(block):
            if is_sparse:
                self.gamma.window.without_place[:] = 0.0
            value += active.visit(self.desk, cell, want_entropy, live, self.lists)
            self._count_without_place(block)
            left_out += self.lists.left_out[0]
            counts += self.lists.counts
        self.entropy[block] = value if want_entropy else np.nan
        self.shared["active_visits"][self.worker] += 1
        if self.model.schedule.chooses and not self.switch.goes_on(block, counts):
            self.shared["active_visits"][self.worker] = 0  # nothing will be left of them
        if rule.cvb0:
            self.shared["cvb0_left_out"][self.worker, block] = left_out

    def _begin_counting(self, block: int) -> None:
        if self.storage is sparse:
            self.shared["without_place"][self.worker, block] = 0.0

    def _count_without_place(self, block: int) -> None:
        """Add what the visit of a cell has found."""
        if self.storage is sparse:
            self.shared["without_place"][self.worker, block] += self.gamma.window.without_place

    def _visit(
        self, block: int, given: bool, frozen: bool, want_words: bool, want_entropy: bool
    ) -> None:
        # It may give a document or a word any topic.
        self.knows_live = False
        self.words_live[block] = False
        value = 0.0
        self._begin_counting(block)
        for cell in self.cells(block):
            value += self.storage.visit(self.desk, cell, given, frozen, want_words, want_entropy)
            self._count_without_place(block)
        self.entropy[block] = value if want_entropy else np.nan

    def command(self, name: str) -> None:
        # Most set gamma or lambda, or what they are at where nothing is.
        self.knows_live = False
        self.words_live[:] = False
        if self.repairer is not None and name in repair.COMMANDS:
            self.repairer.command(name)
        else:
            getattr(self, f"_{name}")()

    def _take_priors(self) -> None:
        self.rule = self._rule_of_now()
        self._set_prior()

    def _set_prior(self) -> None:
        set_prior(self.rule.alpha, self.rule.power, self.scratch.few)

    def _rule_of_now(self) -> Rule:
        return Rule(
            self.shared["alpha"].astype(np.float32),
            self.shared["eta"].astype(np.float32),
            float(self.shared["eta"].sum()),
            cvb0=self.model.schedule.cvb0(0),
            power=1.0,
            word_ids=self.corpus["word_ids"],
            noise=0.0,
            noise_key=0,
            leave_out=exclusion.NONE,
            drop=self.model.config.residual == "drop",
            most_alpha=np.float32(self.shared["alpha"].max()),
        )

    def _sum_under_alpha(self) -> None:
        priors.sum_documents_into(
            self.gamma,
            self.rule.alpha,
            self.shared["trial_alpha"],
            self.shared["document_sums"][self.worker],
        )

    def _sum_under_eta(self) -> None:
        sums = self.shared["topic_sums"][self.worker]
        sums[:] = 0.0
        trial = float(self.shared["trial_eta"][0])
        for first, last in self.counted_rows():
            n_topics, eta = self.model.config.n_topics, self.rule.eta
            priors.add_topics(self.lambda_, first, last, n_topics, eta, trial, sums)

    def _corpus_topics(self) -> None:
        tokens = self.corpus["word_tokens"]
        n_tokens, seed = float(tokens.sum()), int(self.shared["start_seed"][0])
        word_ids, n_topics = self.corpus["word_ids"], self.model.config.n_topics
        for first, last in self.own_rows():
            if self.storage is not sparse:
                _documents.corpus_topics_into(
                    self.lambda_[first:last], first, last, tokens, n_tokens, word_ids, seed
                )
                continue
            for at in range(first, last, BATCH):
                end = min(at + BATCH, last)
                made = np.empty((end - at, n_topics), np.float32)
                _documents.corpus_topics_into(made, at, end, tokens, n_tokens, word_ids, seed)
                self._list(slice(at, end), made)

    def _list(self, rows: slice, made: np.ndarray) -> None:
        window, numbers = self.gamma.window, np.arange(rows.start, rows.stop)
        listing.list_rows(self.lambda_, numbers, made, window.bits, window.own)

    def _unfold(self) -> None:
        self._take_priors()
        self._begin_afresh()
        self._set_uniform(given=True)

    def _begin_afresh(self) -> None:
        """As before the first pass: this may be another start, after passes of the one before."""
        self.switch.start()
        for array in self._of_active():
            array[...] = 0

    def _of_active(self) -> list[np.ndarray]:
        """What this worker tells of its visits over active sets."""
        names, p = ("active_visits", "cvb0_left_out"), self.worker
        return [self.shared[n][p : p + 1] for n in names if n in self.shared]

    def active_state(self) -> tuple[Switch, list[np.ndarray]]:
        """Where the visits over active sets stand, for `go_on_from`."""
        return copy.copy(self.switch), [array.copy() for array in self._of_active()]

    def go_on_from(self, state: tuple[Switch, list[np.ndarray]]) -> None:
        """Put back where they stood."""
        switch, told = state
        self.switch = copy.copy(switch)
        for array, before in zip(self._of_active(), told, strict=True):
            array[...] = before

    def _unfold_again(self) -> None:
        self.rule = self.rule._replace(noise=0.0)
        self._set_uniform(given=False)

    def _set_uniform(self, given: bool) -> None:
        self.given = given
        self.storage.set_uniform(self.shard, self.gamma, self.phi, self.shared["alpha"])

    def hold_topics(self) -> None:
        """Have the sweeps go on from the phi that is held, under lambda as it is."""
        self.given = False
        self.storage.sum_documents(self.shard, self.gamma, self.phi, self.shared["alpha"])

    def _sweep(self, last: bool = False) -> None:
        for block in self.words_here:
            self._visit(block, self.given, frozen=True, want_words=last, want_entropy=last)

    def _last_sweep(self) -> None:
        self._sweep(last=True)

    def _random_phi(self) -> None:
        self._begin_afresh()
        of_cells = self.storage.set_random(
            self.shard,
            self.phi,
            self.model.sizes.first_document + self.first_document,
            self.corpus["word_ids"],
            int(self.shared["start_seed"][0]),
            np.empty(self.model.config.n_topics),
        )
        of_turns = of_cells.reshape(-1, self.model.sizes.n_turns)
        self.entropy[:] = of_turns.sum(axis=1)

    def _tidy(self) -> None:
        topic_axis.tidy(self.shard, self.phi, self.entropy)

    def _sum_documents(self) -> None:
        self.storage.sum_documents(self.shard, self.gamma, self.phi, self.shared["alpha"])
        own = np.zeros(self.model.config.n_topics)
        for block in range(self.model.sizes.n_blocks):
            for _, sums in self._sums_of_words(block, [self.worker]):
                own += sums.sum(axis=0)
        self.shared["pi"][self.worker] = own

    def _clear_words(self) -> None:
        for first, last in self.own_rows():
            if self.storage is sparse:
                self.lambda_.size[first:last], self.lambda_.rest[first:last] = 0, 0.0
            else:
                self.lambda_[first:last] = self.shared["eta"][first:last, None]

    def _add_words(self) -> None:
        for block in self.own_blocks:
            for rows, sums in self._sums_of_words(block, range(len(self.shards))):
                if self.storage is sparse:
                    for at in range(rows.start, rows.stop, BATCH):
                        some = slice(at, min(at + BATCH, rows.stop))
                        made = listed.ListedRows(self.lambda_)[some]
                        made += sums[at - rows.start : some.stop - rows.start]
                        self._list(some, made)
                else:
                    self.lambda_[rows] += sums

    def _sums_of_words(
        self, block: int, workers: Iterable[int]
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Word rows of a block and their sum of n phi over some shards, float64, in chunks.

        They lie in the scratch of a visit, which is free at rest: a whole block's sums beside it
        would be as much memory again.
        """
        n_topics, (first, last) = self.model.config.n_topics, self._block_rows(block)
        scratch = self.scratch.rows.view(np.float64).reshape(-1, padded(n_topics))
        for at in range(first, last, len(scratch)):
            rows = slice(at, min(at + len(scratch), last))
            sums = scratch[: rows.stop - at]
            sums[:] = 0.0
            for p, cell in product(workers, self.cells(block)):
                self.storage.add_words(self.shards[p], cell, self.phis[p], at, sums)
            yield rows, sums[:, :n_topics]
        scratch[:] = 0.0  # what lies beyond K must be 0 in a visit

    def _bound_pairs(self) -> None:
        digamma_pi = bound.digamma_rows(self.shared["pi"], self.rule.eta_total)
        parts, eta = self.shared["bound_parts"][self.worker], self.rule.eta
        for block in self.words_here:
            self.scratch.beat[0] += 1
            for cell in self.cells(block):
                parts[bound.PAIRS] += bound.pairs_part(
                    self.shard, cell, self.gamma, self.lambda_, eta, digamma_pi
                )

    def _bound_own(self) -> None:
        digamma_pi = bound.digamma_rows(self.shared["pi"], self.rule.eta_total)
        parts = np.zeros(bound.N_PARTS)
        parts[[bound.DOCUMENTS_LNB, bound.DOCUMENTS_GAP, bound.DOCUMENTS_NLOGN]] = (
            bound.documents_part(self.gamma, self.document_tokens, self.shared["alpha"])
        )
        for first, last in self.counted_rows():
            parts[[bound.WORDS_LNB, bound.WORDS_GAP, bound.WORDS_NLOGN]] += bound.words_part(
                self.lambda_, first, last, self.shared["eta"], digamma_pi
            )
        self.shared["bound_parts"][self.worker] = parts

    def cells(self, block: int) -> range:
        """The cells of a block, one for each turn of a visit; see `corpus.shard`."""
        n_turns = self.model.sizes.n_turns
        return range(block * n_turns, (block + 1) * n_turns)

    def _block_rows(self, block: int) -> tuple[int, int]:
        rows = word_rows(self.corpus, block)
        return rows.start, rows.stop

    @property
    def words_here(self) -> Sequence[int]:
        """The blocks of words whose rows are at this node: where topics travel, all."""
        return range(self.model.sizes.n_blocks) if self.model.meets else self.resident

    @property
    def own_blocks(self) -> Sequence[int]:
        """The blocks whose rows this worker writes on command: they are dealt out in turn."""
        return self.words_here[self.worker :: self.model.sizes.n_workers]

    def own_rows(self) -> list[tuple[int, int]]:
        """First and last of the word rows that this worker writes on command."""
        return [self._block_rows(block) for block in self.own_blocks]

    def counted_rows(self) -> list[tuple[int, int]]:
        """The same of those that it counts in sums over all words: each is in one node's sums."""
        counted = self.resident[self.worker :: self.model.sizes.n_workers]
        return [self._block_rows(block) for block in counted]
