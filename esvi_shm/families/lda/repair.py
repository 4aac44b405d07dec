"""Repair of poor optima: topics that are dead or double are freed, and begin anew elsewhere.

The lesser topic of a double gives its responsibilities to the greater one. A freed topic begins
as a document that the topics explain badly, smoothed by the corpus at equal weight, as a start
has it; the document is drawn by its excess (see `likeness`), as k-means++ draws its centres by
distance. All documents lend the new topics a share of theirs, are folded in, and a few passes
are made on trial. If the objective does not end higher than by as many passes without the move
(they raise it too, and a worse move would do then), the state before is put back: its phi was
kept, and all else is rebuilt from that.

A move frees all dead topics, which have nothing to lose, but one of a double only: of several
together the bad ones spoil the good ones (measured). The rise is found by trying and not by a
formula: how many documents turn to a new topic shows in passes only.

Source: moves of this kind in Ueda et al. 2000 and Hughes and Sudderth 2013; Arthur and
Vassilvitskii 2007.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.families.contract import Arrays, Bound
from esvi_shm.families.lda import likeness
from esvi_shm.families.lda.cut import Sizes, row_of_word
from esvi_shm.families.lda.likeness import STAYS, Likeness
from esvi_shm.families.lda.totals import everywhere, fold_in, sum_up
from esvi_shm.shared.table import ArraySpec

if TYPE_CHECKING:
    from esvi_shm.families.lda import Model
    from esvi_shm.families.lda.worker import Worker

#: Share of its tokens that a document lends to the new topics, all together.
LENT = 0.2
#: Sweeps that fold the documents in, and the passes on trial, without the move and with it.
FOLD_SWEEPS, TRIAL_PASSES = 5, 10
#: What the script may yield beside commands of `lda.Worker`.
COMMANDS = (
    "keep",
    "restore",
    "liken",
    "find_excess",
    "take_over",
    "smooth_freed",
    "scale_freed",
    "lend_freed",
)


def take_over(phi: tuple[np.ndarray, ...], moves: np.ndarray) -> None:
    """Give what each freed topic holds to the one that takes over; in place.

    Parameters
    ----------
    phi : tuple of float32 arrays, shapes (n, K)
        What a storage keeps.
    moves : int64 array, shape (K,)
    """
    for less in np.flatnonzero(moves != STAYS):
        if moves[less] != less:
            for array in phi:
                array[:, moves[less]] += array[:, less]
                array[:, less] = 0.0


def lend(phi: tuple[np.ndarray, ...], topics: np.ndarray, n_topics: int) -> None:
    """Have each row lend `LENT` of its sum to some topics, in equal parts; in place.

    Parameters
    ----------
    phi : tuple of float32 arrays, shapes (n, K)
        What a storage keeps; gamma is the sum of the first, which is changed.
    topics : int array
    n_topics : int
        K.
    """
    rows = phi[0]
    sums = rows.sum(axis=1)
    rows *= np.float32(1.0 - LENT)
    rows[:, topics] += (LENT / len(topics) * sums)[:, None].astype(np.float32)


def specs(sizes: Sizes, n_topics: int) -> list[ArraySpec]:
    """The shared arrays of repairs."""
    P, B, K = sizes.n_workers, sizes.n_blocks, n_topics
    own, home, every = "worker p its row, on command", "home while no block is out", "all workers"
    return [
        ArraySpec("moves", (K,), np.int64, "home, at a rest", every, "see `choose_moves`"),
        ArraySpec("like_words", (P, K, K), np.float64, own, home, "its part of Likeness.words"),
        ArraySpec("like_documents", (P, K, K), np.float64, own, home, "of Likeness.documents"),
        ArraySpec("like_sums", (P, K), np.float64, own, home, "of Likeness.document_sums"),
        ArraySpec(
            "excess", (sizes.n_documents,), np.float64, "worker p its documents, on command",
            home, "how badly each document is explained; see `excess_into`",
        ),
        ArraySpec("kept_entropy", (P, B), np.float64, own, own, "`entropy` of the state kept"),
    ]  # fmt: skip


def script(
    model: "Model", corpus: AnyCorpus, arrays: Arrays, shared: Arrays, n_passes: int
) -> Generator[Any, Any, dict[str, int]]:
    """What home does at a rest: one move on trial, of all topics that are to be freed."""
    # gamma, lambda and pi are at their sums from here on, as they will be after `restore`.
    pi = yield from sum_up(shared)
    yield "liken"
    yield "find_excess"
    eta_total, tokens = float(shared["eta"].sum()), float(arrays["word_tokens"].sum())
    seen = Likeness(
        (yield from everywhere(shared["like_words"])),
        (yield from everywhere(shared["like_documents"])),
        (yield from everywhere(shared["like_sums"])),
        pi,
    )
    # The same on all nodes: all of it is drawn from what all know.
    random = np.random.default_rng([model.config.seed, n_passes, 0x8E5EED])
    moves = likeness.choose_moves(seen, model.sizes.n_documents_in_all, eta_total, random)
    freed = np.flatnonzero(moves != STAYS)
    seeds = likeness.choose_documents(corpus.of_all(shared["excess"]), len(freed), random)
    moves[freed[len(seeds) :]] = STAYS
    freed = freed[: len(seeds)]
    if not len(freed):
        return {"repairs_tried": 0, "repairs_kept": 0}
    yield "keep"
    if not (yield TRIAL_PASSES):
        yield from restore(shared)
        return {"repairs_tried": 0, "repairs_kept": 0}
    without: Bound = yield from model.evaluate(shared, n_passes + TRIAL_PASSES)
    yield from restore(shared)
    shared["moves"][:] = moves
    yield "take_over"
    yield from sum_up(shared)
    # Only the freed topics are written: half the corpus distribution, half a document's, in sum
    # as large as a topic is on average.
    yield "smooth_freed"
    row_of = row_of_word(arrays)
    indptr, indices, counts = corpus.rows(seeds)
    for i, k in enumerate(freed):
        pairs = slice(indptr[i], indptr[i + 1])
        weights = 0.5 * counts[pairs] / counts[pairs].sum(dtype=np.float64)
        rows = row_of[indices[pairs]]
        shared["lambda_"][rows[rows >= 0], k] += weights[rows >= 0]
    yield "scale_freed"
    shared["pi"][0, freed] += tokens / len(moves) - shared["pi"][:, freed].sum(axis=0)
    shared["pi_snapshot"][:] = shared["pi"]
    yield from fold_in("lend_freed", FOLD_SWEEPS)
    yield from sum_up(shared)
    kept = False
    if (yield TRIAL_PASSES):
        moved: Bound = yield from model.evaluate(shared, n_passes + TRIAL_PASSES)
        kept = moved.objective > without.objective
    if not kept:
        yield from restore(shared)
    return {"repairs_tried": 1, "repairs_kept": int(kept)}


def restore(shared: Arrays) -> Generator[str, bool, None]:
    """Put the state back that `keep` kept, to the bit."""
    yield "restore"
    yield from sum_up(shared)


class Repairer:
    """The commands of repairs in one worker process."""

    def __init__(self, worker: "Worker", state: Arrays) -> None:
        self.worker, self.shared = worker, worker.shared
        self.kept = [state[f"kept_{name}"] for name, *_ in worker.storage.ARRAYS]

    @property
    def freed(self) -> np.ndarray:
        """The topics that the move at hand frees."""
        return np.flatnonzero(self.shared["moves"] != STAYS)

    def command(self, name: str) -> None:
        getattr(self, f"_{name}")()

    def _of_storage(self, name: str) -> Callable[..., None]:
        """`take_over` or `lend`, as the storage needs it."""
        return getattr(self.worker.storage, name, globals()[name])

    def _keep(self) -> None:
        for kept, array in zip(self.kept, self.worker.phi, strict=True):
            kept[:] = array
        p = self.worker.worker
        self.shared["kept_entropy"][p] = self.shared["entropy"][p]
        self.kept_active = self.worker.active_state()

    def _restore(self) -> None:
        for kept, array in zip(self.kept, self.worker.phi, strict=True):
            array[:] = kept
        p = self.worker.worker
        self.shared["entropy"][p] = self.shared["kept_entropy"][p]
        self.worker.go_on_from(self.kept_active)

    def _liken(self) -> None:
        worker, shared = self.worker, self.shared
        p, gamma, lambda_, alpha = worker.worker, worker.gamma, shared["lambda_"], shared["alpha"]
        shared["like_documents"][p] = likeness.products(gamma, alpha)
        shared["like_sums"][p] = gamma.sum(axis=0, dtype=np.float64) - len(gamma) * alpha
        words = shared["like_words"][p]
        words[:] = 0.0
        for first, last in worker.counted_rows():
            words += likeness.products(lambda_[first:last], shared["eta"][first:last, None])
        self._excess()[:] = 0.0

    def _excess(self) -> np.ndarray:
        """That of the worker's documents."""
        first = self.worker.first_document
        return self.shared["excess"][first : first + len(self.worker.gamma)]

    def _find_excess(self) -> None:
        worker, lambda_, excess = self.worker, self.shared["lambda_"], self._excess()
        pi = self.shared["pi"].sum(axis=0) + self.shared["eta"].sum()
        for block in worker.words_here:
            for cell in worker.cells(block):
                likeness.excess_into(
                    excess, worker.shard, cell, worker.gamma, lambda_, pi, worker.document_tokens
                )

    def _take_over(self) -> None:
        self._of_storage("take_over")(self.worker.phi, self.shared["moves"])

    def _smooth_freed(self) -> None:
        tokens, freed = self.worker.corpus["word_tokens"], self.freed
        for first, last in self.worker.own_rows():
            half = 0.5 * tokens[first:last] / tokens.sum()
            self.shared["lambda_"][first:last, freed] = half[:, None]

    def _scale_freed(self) -> None:
        size = float(self.worker.corpus["word_tokens"].sum()) / len(self.shared["moves"])
        freed = self.freed
        for first, last in self.worker.own_rows():
            rows = self.shared["lambda_"][first:last]
            rows[:, freed] = self.shared["eta"][first:last, None] + size * rows[:, freed]

    def _lend_freed(self) -> None:
        self._of_storage("lend")(self.worker.phi, self.freed, self.worker.gamma.shape[1])
        self.worker.hold_topics()
