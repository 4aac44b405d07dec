"""The main process of a fit: home of the blocks, and the only place where the clock is kept.

              main process (home)                             worker p
    data -> lay_out -> segments --------------------------> attach, reserve own state
              start ----- commands through rings ---------> family.command, answer
              release blocks ---- rings ------------------> visit ---- ring ----> worker q
              wait <------------- rings ------------------- block made its passes
              evaluate -- commands ------------------------> partial sums of the bound
              Result <- views of the shared arrays

    release            all blocks out                   all home = quiescent
    ---|----------------------------------------------------|-- evaluate --|-- release ...
       no barrier in between: each block makes its passes at its own pace

Work ends without a barrier: a block that has made its passes goes home, and when all are home
nobody holds anything. Only then are commands given; each is over when all workers have
answered, and meanwhile no block is out.

The fit's clock runs from the moment the workers are ready, through the start and the passes; it
stands still during evaluation. The first SIGINT, SIGTERM or SIGHUP (or `max_time`) recalls every
block after its current visit, and the fit ends with what it has; a second one aborts it. At
every end no worker and no segment is left.
"""

import contextlib
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from esvi_shm.errors import BoundError, ParameterName
from esvi_shm.families.contract import Bound, Data, Judge
from esvi_shm.runtime import blocks
from esvi_shm.runtime.blocks import (
    ENTROPY_FROM,
    RECALL,
    STEP,
    VISITS,
    WORK,
)
from esvi_shm.runtime.layout import Layout, fill
from esvi_shm.runtime.nodes import Nodes
from esvi_shm.runtime.peers import Peers
from esvi_shm.runtime.processes import Workers, give_back_freed, private_bytes
from esvi_shm.runtime.record import Keep, Observer, Record, Restart, Result
from esvi_shm.runtime.routes import Route, find_stops
from esvi_shm.runtime.script import play
from esvi_shm.runtime.signals import Signals
from esvi_shm.runtime.traffic import Traffic
from esvi_shm.runtime.worker import Setup
from esvi_shm.shared.segments import Run

#: Seconds that home sleeps at most between two looks at signals, time and progress.
LOOK = 0.05
#: Seconds between two looks at the workers' signs of life.
WATCH = 1.0

_log = logging.getLogger(__name__)


class Home:
    """One run from the filled arrays to the result."""

    def __init__(
        self,
        layout: Layout,
        data: Data,
        run: Run,
        signals: Signals,
        observer: Observer,
        judge: Judge | None = None,
        peers: Peers | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.layout, self.signals = layout, signals
        self.observer, self.judge, self.keep = observer, judge, keep
        self.config, sizes = layout.config, layout.sizes
        self.P, self.B = sizes.n_workers, sizes.n_blocks
        for label, table in layout.tables.items():
            later = label.startswith("state_") or (peers is not None and label == "parameters")
            run.create(label, table, reserve=not later)
        self.handles = {label: segment.handle for label, segment in run.segments.items()}
        self.arrays = {label: segment.arrays for label, segment in run.segments.items()}
        self.held = fill(layout, data, self.arrays)
        # The state, which is larger than the data mostly, is not there yet.
        self.peak_loading = private_bytes() + layout.filled_bytes
        if layout.released_bytes:
            data.release()
            give_back_freed()
        control = self.arrays["control"]
        blocks.initialise_control(control, self.P, self.B)
        self.orders, self.block_words = control["orders"], control["blocks"]
        self.worker_words = control["workers"]
        self.shared = self.arrays["parameters"]
        work = [layout.model.work(self.arrays[f"shard_{p}"]) for p in range(self.P)]
        self.stops = find_stops(work)
        self.nodes = None
        if peers is not None:
            segment, corpus = run.segments["parameters"], self.arrays["corpus"]
            self.nodes = Nodes(peers, layout, segment, corpus, self.block_words)
            self.nodes.begin(self.stops)
        self.ended_by: str | None = None  # the signal that has ended the fit
        layout.model.initialise(self.arrays["corpus"], self.shared)
        route = Route(self.config, self.stops)
        self.traffic = Traffic(control, route, self.stops, self.nodes)
        self.work_a_pass = sum(int(of_shard.sum()) for of_shard in work)
        self.visits_a_pass = sum(len(s) for s in self.stops)
        # Where a visit need not be the shard's last of the pass, every visit must leave its H;
        # so it must where the passes may be cut short.
        self.always_entropy = (
            self.config.route in ("random", "balanced") or self.config.max_time is not None
        )
        self.history: list[Record] = []
        #: Those that were asked for; what is kept has others too, and changes nothing of the fit.
        self.compared: list[Record] = []
        self.restarts: list[Restart] = []
        self.at_rest: Counter[str] = Counter()
        self.trial_visits = 0
        # Of the starts that are tried: as planned, then as made.
        n_tried = self.config.restarts if self.config.restarts > 1 else 0
        self.start_work = n_tried * self.config.restart_passes * self.work_a_pass
        self.fit_seconds = self.start_seconds = 0.0
        self.began = 0.0  # when the clock was last started
        self.last_told = 0.0  # when the observer was told of progress
        self.peak_private = private_bytes()

    def run(self) -> Result:
        self.observer.stage("workers")
        bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # What only the start needs may be large.
        config = replace(self.config, start_from=None, seed_words=())
        setups = [
            Setup(p, config, self.layout.sizes, self.handles, os.getpid(), bell)
            for p in range(self.P)
        ]
        wakes = () if self.nodes is None else self.nodes.peers.descriptors()
        with _closing(bell), Workers(setups, bell, wakes) as self.workers:
            self.workers.wait_ready()
            self.ready = self.last_watch = time.perf_counter()
            self.observer.stage("start")
            with self._clock():
                self._start()
            self.observer.stage("passes")
            stopped = self._passes()
            self.workers.watch(self.worker_words)
            self.traffic.stop()
            self.workers.join()
        return self._result(stopped)

    def _start(self) -> None:
        """Start, or try several starts by a short fit each and start from the best of them.

        The best one is played again: it is the same to the bit, by its seed. Keeping its state
        meanwhile would save its few passes, and need as much memory again. So no other start is
        tried where `max_time` would then leave no time to make the passes of the best one again.
        """
        n_passes = min(self.config.restart_passes, self.config.n_passes)
        longest = 0.0
        for restart in range(self.config.restarts if self.config.restarts > 1 else 0):
            before, discounted = self._so_far(), self.trial_visits
            if restart and self._is_short(before[1] + 2 * longest):
                tried = restart, self.config.restarts, ParameterName("max_time")
                _log.warning("%d of %d starts were tried: %s leaves no time for more", *tried)
                break
            self._play(self._start_script(restart))
            if not self._run_on_trial(n_passes):
                # The fit ends with the start at hand, and what was done since is its own.
                _log.warning(
                    "the fit is ended while start %d of %d is tried, and goes no further",
                    restart + 1, self.config.restarts,
                )  # fmt: skip
                self.trial_visits = discounted
                self.start_work, self.start_seconds = before
                return
            bound = self._bound(n_passes)
            self.restarts.append(Restart(self.config.start_seed(restart), bound.objective))
            self.observer.restarted(self.restarts[-1])
            longest = max(longest, self._so_far()[1] - before[1])
        objectives = [restart.objective for restart in self.restarts]
        self._play(self._start_script(int(np.argmax(objectives)) if objectives else 0))
        self.start_work, self.start_seconds = self._so_far()

    def _so_far(self) -> tuple[int, float]:
        """Work done, and seconds on the clock, which runs."""
        seconds = self.fit_seconds + time.perf_counter() - self.began
        return int(self.worker_words[:, WORK].sum()), seconds

    def _is_short(self, seconds: float) -> bool:
        """Whether `max_time` is less than that."""
        if self.config.max_time is None:
            return False
        return self._any(self.config.max_time < seconds)

    def _any(self, here: bool) -> bool:
        """Whether that is so at any node."""
        return here if self.nodes is None else bool(self.nodes.sums(here)[0])

    def _start_script(self, restart: int) -> Generator[str, bool, None]:
        return self.layout.model.start(self.held, self.arrays["corpus"], self.shared, restart)

    def _run_on_trial(self, n_passes: int) -> bool:
        """Make passes that do not count; whether they were made whole."""
        steps, visits = self.block_words[:, STEP].copy(), self._n_visits()
        done = visits // max(self.visits_a_pass, 1)
        self._run_to(done, done + n_passes)
        self._agree()
        # At rest home holds every block, and so may write its words.
        self.block_words[:, STEP] = steps
        self.trial_visits += self._n_visits() - visits
        return not self.orders[RECALL]

    def _n_visits(self) -> int:
        """Visits so far, without those of passes on trial."""
        return int(self.worker_words[:, VISITS].sum()) - self.trial_visits

    def _passes(self) -> str:
        """Run passes until there is a reason to stop; return it."""
        config, done, model = self.config, 0, self.layout.model
        if config.n_passes == 0:
            self._evaluate()
        while done < config.n_passes:
            # Blocks that are recalled make a visit each when they are sent out.
            self._agree()
            if self.ended_by is None and not self.orders[RECALL]:
                rest = model.next_rest(done)
                target = min(rest or config.n_passes, config.n_passes)
                target = min(target, self._next_evaluation(done))
                with self._clock():
                    self._run_to(done, target)
                    self._agree()
                    if target == rest and not self.orders[RECALL]:
                        self._rest(target)
                is_due, done = target == self._next_evaluation(done), target
                if not (is_due or done == config.n_passes or self.orders[RECALL]):
                    continue
            self._evaluate()
            self._agree()
            if self.ended_by is not None:
                # From Python nothing else tells that the passes are not those asked for.
                name, passes = self.ended_by, self.history[-1].passes
                _log.warning("the fit was ended by %s after %.4g passes", name, passes)
                return name
            # Of several nodes another's clock may be ahead of node 0's, by which this one goes: but
            # for a signal, nothing else has recalled the blocks.
            is_over = self.orders[RECALL] or self.fit_seconds >= (config.max_time or math.inf)
            if is_over:
                return "max_time"
            if done == config.n_passes or done % (config.evaluate_every or config.n_passes) == 0:
                self.compared.append(self.history[-1])
                if self._has_settled() and self._change() < config.tol:
                    return "tol"
                if config.patience is not None and self._in_vain() >= config.patience:
                    return "patience"
            if self.keep is not None and done % self.keep.every == 0 and done < config.n_passes:
                self.keep.save(self._result("under way"))
        return "passes"

    def _next_evaluation(self, done: int) -> int:
        """The number of passes at which the bound is computed next: what is kept has it too."""
        every = [self.config.evaluate_every or self.config.n_passes]
        if self.keep is not None:
            every.append(self.keep.every)
        return min(done + n - done % n for n in every)

    def _rest(self, passes: int) -> None:
        counts = self._play(
            self.layout.model.at_rest(
                self.held, self.arrays["corpus"], self.shared, passes, self.judge
            )
        )
        self.at_rest.update(counts)
        self.observer.rested(passes, counts)

    def _has_settled(self) -> bool:
        """Whether the last two evaluations can be compared."""
        settles_after = self.layout.model.settles_after
        return len(self.compared) > 1 and self.compared[-2].passes >= settles_after

    def _change(self) -> float:
        before, now = self.compared[-2].objective, self.compared[-1].objective
        return abs(now - before) / max(abs(before), 1e-300)

    def _in_vain(self) -> int:
        """Evaluations since the best held-out perplexity of the settled updates."""
        settles_after = self.layout.model.settles_after
        found = [r.perplexity for r in self.compared if r.passes >= settles_after]
        return len(found) - 1 - int(np.argmin(found)) if found else 0

    def _run_to(self, done: int, target: int) -> None:
        """Let all blocks make their passes up to `target`, and wait until they are home."""
        # The bound may be asked for then: the last pass leaves H.
        self.orders[ENTROPY_FROM] = 0 if self.always_entropy else target - 1
        if self.nodes is not None:
            self.traffic.release_everywhere(target - done, self._look)
            return
        if not self.config.deterministic:
            self.traffic.release(target, self._look)
            return
        for pass_ in range(done + 1, target + 1):
            self.layout.model.begin_pass(self.shared)
            self.traffic.release(pass_, self._look)
            if self.orders[RECALL]:
                return

    def _look(self, are_out: bool) -> bool:
        """Sleep until something happens, and look around; whether blocks are to be recalled."""
        now = time.perf_counter()
        self.workers.check(LOOK if self.nodes is None else min(self.nodes.peers.nap, LOOK))
        if now - self.last_watch > WATCH:
            self.last_watch = now
            self.workers.watch(self.worker_words)
            self.peak_private = max(self.peak_private, private_bytes())
        if are_out and now - self.last_told >= LOOK:
            self.last_told = now
            done = int(self.worker_words[:, WORK].sum())
            planned = self.config.n_passes * self.work_a_pass + self.start_work
            self.observer.progress(min(done, planned), planned, self.fit_seconds + now - self.began)
        return are_out and self._should_stop(now)

    def _agree(self) -> None:
        """Have all nodes know what ends the fit; they go by the clock of node 0.

        No block is out.
        """
        signal = None if self.signals.received is None else self.signals.received.name
        if self.nodes is None:
            self.ended_by = signal
            return
        here = {"signal": signal, "recall": int(self.orders[RECALL]), "seconds": self.fit_seconds}
        found = self.nodes.agree(here)
        self.ended_by = next((said["signal"] for said in found if said["signal"]), None)
        self.orders[RECALL] = max(said["recall"] for said in found)
        self.fit_seconds = found[0]["seconds"]

    def _should_stop(self, now: float) -> bool:
        limit = self.config.max_time
        return self.signals.received is not None or (
            limit is not None and self.fit_seconds + now - self.began >= limit
        )

    def _command(self, name: str) -> None:
        model = self.layout.model
        index = list(model.commands).index(name)
        self.traffic.command(index, name in model.tours, self._look)

    def _play(self, script: Generator[Any, Any, Any]) -> Any:
        if self.nodes is None:
            return play(script, self._command, self._run_on_trial)
        of_all = self.nodes.peers.sum_into, self.nodes.whole_rows
        return play(script, self._command, self._run_on_trial, *of_all)

    def _evaluate(self) -> None:
        self.observer.evaluating()
        visits, visits_a_pass = float(self._n_visits()), float(self.visits_a_pass)
        if self.nodes is not None:
            visits, visits_a_pass = self.nodes.sums(visits, visits_a_pass)
        passes = float(visits / max(visits_a_pass, 1))
        model = self.layout.model
        bound = self._bound(int(passes))
        perplexity = math.nan
        if self.judge is not None:
            perplexity = self._ask(self.judge)
        seconds = self.fit_seconds, time.perf_counter() - self.ready
        means = model.prior_means(self.shared)
        record = Record(passes, *seconds, *bound, perplexity, *means)
        self.history.append(record)
        self.observer.evaluated(record)

    def _bound(self, n_passes: int) -> Bound:
        bound: Bound = self._play(self.layout.model.evaluate(self.shared, n_passes))
        if not math.isfinite(bound.elbo):
            raise BoundError(
                f"after {n_passes} passes the bound is {bound.elbo}: counts or priors are beyond "
                "what float32 can hold, or this is a fault"
            )
        return bound

    def _ask(self, judge: Judge) -> float:
        """What held-out data say; on several nodes those of node 0."""
        model, corpus = self.layout.model, self.arrays["corpus"]
        if self.nodes is None:
            return judge(*model.judged(corpus, self.shared))
        whole = self.nodes.whole_rows()
        found = 0.0 if whole is None else judge(*model.judged(corpus, {**self.shared, **whole}))
        return float(self.nodes.sums(found)[0])

    @contextlib.contextmanager
    def _clock(self) -> Iterator[None]:
        """Add the time spent inside to the fit's seconds."""
        self.began = time.perf_counter()
        try:
            yield
        finally:
            self.fit_seconds += time.perf_counter() - self.began

    def _learned(self) -> Any:
        """What the fit has found; on several nodes the whole of it at node 0."""
        if self.nodes is None:
            return self.layout.model.learned(self.arrays)
        whole = self.nodes.whole_rows() or {}
        parameters = {**self.shared, **whole}
        learned = self.layout.model.learned({**self.arrays, "parameters": parameters})
        learned.of_units[:] = self.nodes.whole_units(learned.of_units)
        return learned

    def _result(self, stopped: str) -> Result:
        work = float(self.worker_words[:, WORK].sum()) - self.start_work
        if self.nodes is not None:
            work = self.nodes.sums(work)[0]
        most_held = 1.0 if self.nodes is None else self.nodes.most_held()
        private = max(self.peak_private, private_bytes()) + sum(self.workers.peak_private_bytes)
        learned, n_passes = self._learned(), math.ceil(self.history[-1].passes)
        return Result(
            config=self.config,
            learned=learned,
            history=self.history,
            passes=self.history[-1].passes,
            fit_seconds=self.fit_seconds,
            pass_seconds=self.fit_seconds - self.start_seconds,
            work=int(work),
            shared_bytes=self.layout.total_bytes,
            peak_private_bytes=max(private, self.peak_loading - self.layout.total_bytes),
            stopped=stopped,
            restarts=self.restarts,
            at_rest=dict(self.at_rest),
            most_held=most_held,
            ending=self.layout.model.ending(n_passes, self.held, self.arrays, learned),
        )


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)
