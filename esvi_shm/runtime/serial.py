"""A fit played in one process: the workers take turns, without processes or rings.

It runs the family's real code on the real layout. `warm_up` uses it to compile, or load from the
disk cache, every kernel that a fit will call, before any clock runs; the tests use it to choose
the order of the visits themselves.
"""

from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from esvi_shm.config import FitConfig, GivenTopics
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.counter import shuffled
from esvi_shm.families.contract import Bound, Judge
from esvi_shm.runtime.blocks import initialise_control
from esvi_shm.runtime.layout import fill, lay_out
from esvi_shm.runtime.routes import least_waiting
from esvi_shm.runtime.script import play
from esvi_shm.shared.ring import pop_any, try_push


class SerialFit:
    """All workers of a fit in this process, started and at a quiescent point.

    Parameters
    ----------
    corpus : Corpus
    config : FitConfig
        With `n_workers` and `n_blocks` set.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["a", "b", "b"], ["b", "c"]])
    >>> fit = SerialFit(corpus, FitConfig(2, inference="vb", n_workers=1, n_blocks=1))
    >>> before = fit.bound().elbo_f
    >>> fit.run_pass()
    >>> fit.bound().elbo_f >= before - 1e-5
    True
    """

    def __init__(self, corpus: Corpus, config: FitConfig) -> None:
        self.corpus, self.config, self.passes = corpus, config, 0
        self.layout = lay_out(corpus, config)
        self.sizes, model = self.layout.sizes, self.layout.model
        self.arrays = {
            label: table.views(bytearray(table.total_bytes))
            for label, table in self.layout.tables.items()
        }
        self.held = fill(self.layout, corpus, self.arrays)
        self.corpus_arrays = self.arrays["corpus"]
        self.shared = self.arrays["parameters"]
        self.shards = merge_shards(self.arrays, self.sizes.n_workers)
        model.initialise(self.corpus_arrays, self.shared)
        self.workers = [
            model.worker(p, self.corpus_arrays, self.shared, self.shards, np.zeros(1, np.int64))
            for p in range(self.sizes.n_workers)
        ]
        self._play(model.start(self.held, self.corpus_arrays, self.shared))

    def _play(self, script: Generator[str | int, Any, Any]) -> Any:
        return play(script, self._command, self._run_on_trial)

    def _command(self, name: str) -> None:
        for worker in self.workers:
            worker.command(name)

    def _run_on_trial(self, n_passes: int) -> bool:
        passes = self.passes
        for _ in range(n_passes):
            self.run_pass()
        self.passes = passes
        return True

    def visit(self, worker: int, block: int, want_entropy: bool = True) -> None:
        """One block at one shard."""
        self.workers[worker].visit(block, self.passes, want_entropy)

    def run_pass(self, order: Iterable[tuple[int, int]] | None = None) -> None:
        """Visit every (worker, block) once, or those of `order`."""
        if order is None:
            order = [(p, b) for b in range(self.sizes.n_blocks) for p in range(len(self.workers))]
        for worker, block in order:
            self.visit(worker, block)
        self.passes += 1

    def rest(self, n_passes: int, judge: Judge | None = None) -> dict[str, int]:
        """What the model does after so many passes."""
        model = self.layout.model
        return self._play(
            model.at_rest(self.held, self.corpus_arrays, self.shared, n_passes, judge)
        )

    def bound(self) -> Bound:
        """Both bounds, after removing float drift."""
        return self._play(self.layout.model.evaluate(self.shared, self.passes))

    @property
    def gamma(self) -> np.ndarray:
        """gamma, float32, shape (D, K)."""
        return np.concatenate([arrays["gamma"] for arrays in self.shards])

    @property
    def lambda_(self) -> np.ndarray:
        """lambda, float32, shape (V, K), in the order of the vocabulary."""
        out = np.empty_like(self.shared["lambda_"])
        out[self.corpus_arrays["word_ids"]] = self.shared["lambda_"]
        return out


def merge_shards(arrays: dict[str, dict[str, np.ndarray]], n_workers: int) -> list[dict]:
    """Each worker's pairs and state as one mapping."""
    return [{**arrays[f"shard_{p}"], **arrays[f"state_{p}"]} for p in range(n_workers)]


def warm_up(config: FitConfig) -> None:
    """Run every kernel of a fit once on two documents, so that it is compiled and loaded."""
    # Not by `from_sparse`: it imports scipy.sparse, which a worker has no other use for.
    offsets, words = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
    corpus = Corpus(offsets, words, np.array([1, 2, 1], np.float32), n_words=2)
    alpha = float(np.ravel(config.alpha)[0])
    eta = float(np.ravel(config.eta)[0])
    # Of numbers of topics only the bytes matter: another type is another kernel.
    width = np.min_scalar_type(config.n_topics - 1).itemsize
    n_topics = 2 if width == 1 else 2 ** (4 * width) + 1
    given = config.start_from
    if given is not None:  # others, as small; the last topic is left to the start
        topics = np.ones((2, n_topics - 1), np.float32)
        given = GivenTopics(topics, [corpus.word(0), corpus.word(1)], "toy")
    toy = replace(
        config, n_topics=n_topics, topk=None, n_workers=1, n_blocks=1, alpha=alpha, eta=eta,
        start_from=given, seed_words=(),
    )  # fmt: skip
    # Whatever comes only after some passes comes now.
    toy = replace(toy, cvb0_passes=0, temper_passes=0)
    if config.dense_passes is not None:
        toy = replace(toy, dense_passes=0)
    fit = SerialFit(corpus, toy)
    fit.run_pass()
    fit.bound()
    # Rests of each kind: the first of those with a number, and the first of the others.
    model = fit.layout.model
    others = type(model)(replace(toy, refold_after=(), repair_after=()), fit.sizes)
    rests = [*config.refold_after[:1], *config.repair_after[:1], others.next_rest(0)]
    for passes in (n for n in rests if n is not None):
        fit.rest(passes, judge=lambda *_: 1.0)
    fit.held.rows(np.zeros(1, np.int64))  # what a rest asks for only now and then
    control = fit.arrays["control"]
    initialise_control(control, 1, 1)
    try_push(control["rings"][0, 1], 0)
    shuffled(np.arange(2), 0, 0, 0)
    least_waiting(
        np.arange(1), control["visited"][0], control["rings"], control["workers"], 0, 0, 0
    )
    pop_any(control["rings"][0], 0, 1)
