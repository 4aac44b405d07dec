"""Fits through the engine, with a look at what they leave; with processes or, faster, threads.

`Threads` stands in for `runtime.processes.Workers`: the same worker loop, rings, routes and
kernels (which let go of the GIL), without the seconds that an interpreter takes to start. Only
`test_ends` and one test of each kind elsewhere need true processes.
"""

import os
import select
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.contract import Judge
from esvi_shm.runtime import engine, home
from esvi_shm.runtime.blocks import PLACE, RECALL, STEP
from esvi_shm.runtime.layout import Layout
from esvi_shm.runtime.processes import Workers
from esvi_shm.runtime.record import Keep, Observer, Result
from esvi_shm.runtime.serial import SerialFit, merge_shards
from esvi_shm.runtime.worker import Setup, Worker
from esvi_shm.shared.ring import contents
from tests import naive
from tests.families.lda.play import assert_sums_hold

#: Seconds after which a fit is taken to hang.
TIME_LIMIT = 60
COUNTS, TOPICS = naive.simulate(30, 24, 3, 40, seed=0)


class Threads:
    """Workers in threads of this process."""

    def __init__(self, setups: list[Setup], bell: int, wakes: Sequence[int] = ()) -> None:
        self._bell = bell
        self.failed: list[BaseException] = []
        self.peak_private_bytes = [0] * len(setups)
        # A worker ends itself when its parent is another one than it was told.
        self._workers = [Worker(replace(setup, parent=os.getppid())) for setup in setups]
        self._threads = [
            threading.Thread(target=self._work, args=(worker,)) for worker in self._workers
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:
            self.failed.append(error)

    def wait_ready(self) -> None:
        pass

    def check(self, seconds: float = 0.0) -> None:
        if select.select([self._bell], [], [], seconds)[0]:
            os.eventfd_read(self._bell)
        if self.failed:
            raise self.failed[0]

    def watch(self, rows: np.ndarray) -> None:
        pass

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, *exception: object) -> None:
        """End the workers that were not told to: no block circulates, and the parent is gone."""
        for worker in self._workers:
            worker.orders[RECALL] = 1
            worker.parent = -1
        self.join()


@dataclass
class Ended:
    """A fit that came to its end: its result, and the arrays behind it."""

    result: Result
    layout: Layout
    arrays: dict
    stops: list

    @property
    def serial(self) -> SerialFit:
        """The same arrays in the shape that `tests.families.lda.play` looks at."""
        view = SerialFit.__new__(SerialFit)
        view.config, view.layout, view.sizes = self.layout.config, self.layout, self.layout.sizes
        view.arrays, view.shared = self.arrays, self.arrays["parameters"]
        view.corpus_arrays = self.arrays["corpus"]
        view.shards = merge_shards(self.arrays, view.sizes.n_workers)
        return view

    def assert_consistent(self, counts: np.ndarray = COUNTS) -> None:
        """All blocks home, no id on its way, and all sums right."""
        control, n_workers = self.arrays["control"], self.layout.sizes.n_workers
        assert (control["blocks"][:, PLACE] == n_workers).all()
        for ring in control["rings"].reshape(-1, control["rings"].shape[-1]):
            assert contents(ring).size == 0
        assert_sums_hold(self.serial, counts)
        result = self.result
        in_order = np.argsort(result.learned.word_ids)
        np.testing.assert_array_equal(self.serial.lambda_, result.learned.lambda_rows[in_order])
        np.testing.assert_array_equal(self.serial.gamma, np.concatenate(result.learned.of_units))
        seconds = [(r.fit_seconds, r.total_seconds) for r in result.history]
        assert all(0 <= fit <= total for fit, total in seconds)
        assert seconds == sorted(seconds)
        assert [total for _, total in seconds] == sorted(total for _, total in seconds)
        assert 0 <= result.pass_seconds <= result.fit_seconds

    def assert_passes_are_whole(self, n_passes: int) -> None:
        steps = self.arrays["control"]["blocks"][:, STEP]
        assert steps.tolist() == [n_passes * len(stops) for stops in self.stops]
        assert self.result.passes == n_passes
        assert self.result.stopped == "passes"


class Fits:
    """Runs fits and remembers what they used; see the fixtures in `conftest`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: type) -> None:
        self.pids: list[int] = []
        self.runs: list[str] = []
        self._ended: list[Ended] = []
        recorder, finish = self, home.Home._result

        class RecordedWorkers(workers):  # type: ignore[misc]
            def wait_ready(self) -> None:
                super().wait_ready()
                self.ready = time.monotonic()
                recorder.pids.extend(getattr(self, "pids", []))

            def check(self, seconds: float = 0.0) -> None:
                super().check(seconds)
                waited = time.monotonic() - getattr(self, "ready", np.inf)
                assert waited < TIME_LIMIT, "blocks do not come home"

        class RecordedRun(engine.Run):
            def __init__(self, *arguments: object) -> None:
                super().__init__(*arguments)
                recorder.runs.append(self.name)

        def recorded_result(fit: home.Home, stopped: str) -> Result:
            result = finish(fit, stopped)
            recorder._ended.append(Ended(result, fit.layout, fit.arrays, fit.stops))
            return result

        monkeypatch.setattr(home, "Workers", RecordedWorkers)
        monkeypatch.setattr(engine, "Run", RecordedRun)
        monkeypatch.setattr(home.Home, "_result", recorded_result)

    def __call__(
        self,
        counts: np.ndarray = COUNTS,
        observer: Observer | None = None,
        judge: Judge | None = None,
        keep: Keep | None = None,
        **options: object,
    ) -> Ended:
        """Fit; small unless told otherwise."""
        options = {
            "n_topics": 3,
            "n_workers": 2,
            "n_blocks": 5,
            "tol": 0.0,
            "inference": "vb",
            **options,
        }
        corpus = Corpus.from_sparse(counts)
        # Released: nothing after the filling may need its pairs.
        engine.fit(corpus, FitConfig(**options), observer, judge, release=True, keep=keep)
        assert not hasattr(corpus, "indices")
        return self._ended[-1]


def with_processes(monkeypatch: pytest.MonkeyPatch) -> Fits:
    return Fits(monkeypatch, Workers)


def with_threads(monkeypatch: pytest.MonkeyPatch) -> Fits:
    return Fits(monkeypatch, Threads)
