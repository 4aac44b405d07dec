"""A fit played in one process: the workers take turns, without processes or rings.

It runs the family's real code on the real layout. `warm_up` uses it to compile, or load from the
disk cache, every kernel that a fit will call, before any clock runs; the tests use it to choose
the order of the visits themselves.
"""

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.counter import shuffled
from esvi_shm.families.contract import Bound, Data, Judge
from esvi_shm.runtime.blocks import PLACE, Control, initialise_control
from esvi_shm.runtime.layout import fill, lay_out
from esvi_shm.runtime.places import furthest_behind
from esvi_shm.runtime.routes import Route, next_stop
from esvi_shm.runtime.script import play
from esvi_shm.runtime.turns import hand_on, leave, take, take_part
from esvi_shm.shared.ring import pop_any, try_push


class SerialFit:
    """All workers of a fit in this process, started and at a quiescent point.

    Parameters
    ----------
    data : what the family is fitted to
    config : FitConfig
        With `n_workers` and `n_blocks` set.
    started : bool
        If not, the arrays are as they were laid out.

    Examples
    --------
    >>> from esvi_shm.corpus.corpus import Corpus
    >>> corpus = Corpus.from_tokens([["a", "b", "b"], ["b", "c"]])
    >>> fit = SerialFit(corpus, FitConfig(2, inference="vb", n_workers=1, n_blocks=1))
    >>> before = fit.bound().elbo_f
    >>> fit.run_pass()
    >>> fit.bound().elbo_f >= before - 1e-5
    True
    """

    def __init__(self, data: Data, config: FitConfig, started: bool = True) -> None:
        self.corpus, self.config, self.passes = data, config, 0
        self.layout = lay_out(data, config)
        self.sizes, model = self.layout.sizes, self.layout.model
        self.arrays = {
            label: table.views(bytearray(table.total_bytes))
            for label, table in self.layout.tables.items()
        }
        self.held = fill(self.layout, data, self.arrays)
        self.corpus_arrays = self.arrays["corpus"]
        self.shared = self.arrays["parameters"]
        self.shards = merge_shards(self.arrays, self.sizes.n_workers)
        model.initialise(self.corpus_arrays, self.shared)
        self.workers = [
            model.worker(p, self.corpus_arrays, self.shared, self.shards, np.zeros(1, np.int64))
            for p in range(self.sizes.n_workers)
        ]
        if started:
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
        """Visit every (worker, block) once, or those of `order`; where blocks meet, all at once."""
        every = range(self.sizes.n_blocks)
        if self.layout.model.meets:
            for meeting in self.workers:
                meeting.visit_together(every, self.passes)
        else:
            for worker, block in order or [(p, b) for b in every for p in range(len(self.workers))]:
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
        """LDA: gamma, float32, shape (D, K)."""
        model = self.layout.model
        return np.concatenate([np.asarray(part) for part in model.learned(self.arrays).of_units])

    @property
    def lambda_(self) -> np.ndarray:
        """LDA: lambda, float32, shape (V, K), in the order of the vocabulary."""
        learned = self.layout.model.learned(self.arrays)
        out = np.empty_like(learned.lambda_rows)
        out[learned.word_ids] = learned.lambda_rows
        return out


def merge_shards(arrays: dict[str, dict[str, np.ndarray]], n_workers: int) -> list[dict]:
    """Each worker's units and state as one mapping."""
    return [{**arrays[f"shard_{p}"], **arrays[f"state_{p}"]} for p in range(n_workers)]


def warm_up(config: FitConfig) -> None:
    """Run every kernel of a fit once on very few data, so that it is compiled and loaded."""
    data, toy, rests = families.find(config.family).toy(config)
    fit = SerialFit(data, toy)
    fit.run_pass()
    fit.bound()
    for passes in rests:
        fit.rest(passes, judge=lambda *_, **__: 1.0)
    fit.held.rows(np.zeros(1, np.int64))  # what a rest asks for only now and then
    _move_a_block(fit, toy)


def warm_up_last(config: FitConfig) -> None:
    """Run what `warm_up` comes to last: all that needs no visit, of which nothing comes of use."""
    data, toy, _ = families.find(config.family).toy(config)
    fit = SerialFit(data, toy, started=False)
    fit.bound()
    _move_a_block(fit, toy)


def _move_a_block(fit: SerialFit, config: FitConfig) -> None:
    initialise_control(fit.arrays["control"], 1, 1)
    control = Control(**fit.arrays["control"])
    table = Route(config, [np.arange(1)]).table
    try_push(control.rings[0, 1], 0)
    shuffled(np.arange(2), 0, 0, 0)
    next_stop(table, 0, 0, control)
    turns = take_part(control, table, np.ones(1, np.int64), 0)
    control.blocks[0, PLACE] = 0
    take(turns, 0, 1)
    leave(turns, 0, -1)
    hand_on(control, 0, 0, 1)
    furthest_behind(control.rings, control.workers, 0)
    pop_any(control.rings[0], 0, 1)
