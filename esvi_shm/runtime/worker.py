"""A worker process: it pops a block, visits it, pushes it on; or obeys a command.

It is a fresh interpreter started by `processes.Workers` and imports the standard library, numpy
and numba only. All it is told comes through one pipe (`Setup`); all it says through the pipe is
"ready", or the error it ends with. Between the two it works on shared memory alone.

It never writes a block that it does not hold, never waits inside compiled code, and never
outlives its parent.
"""

import contextlib
import os
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.families.contract import FamilyWorker, Sizes
from esvi_shm.runtime import blocks
from esvi_shm.runtime.blocks import (
    AT_WORK,
    BEAT,
    ENTROPY_FROM,
    PLACE,
    RECALL,
    RELEASING,
    STEP,
    Control,
)
from esvi_shm.runtime.environment import die_with_parent
from esvi_shm.runtime.places import Places
from esvi_shm.runtime.routes import Route, find_stops
from esvi_shm.runtime.serial import merge_shards, warm_up
from esvi_shm.runtime.turns import hand_on, leave, take, take_part
from esvi_shm.shared.ring import EMPTY, try_push
from esvi_shm.shared.segments import Handle, attach

#: Rounds over the rings inside one compiled poll: some microseconds.
SPINS = 1000
#: Polls in vain before the worker changes places with one that is behind.
CHANGE_AFTER = 2
#: Polls in vain before the core is given away for a moment, and before the worker sleeps.
YIELD_AFTER, SLEEP_AFTER = 2, 20
#: Polls in vain after which a block that waits for company is visited alone and passed on: some
#: milliseconds. It is a bound, so blocks that wait at different workers cannot wait for ever.
LONE_AFTER = 30
#: Seconds of sleep: short enough that a block does not wait noticeably.
SLEEP = 0.0002


@dataclass(frozen=True)
class Setup:
    """What a worker is told at its start."""

    worker: int
    config: FitConfig
    sizes: Sizes
    handles: dict[str, Handle]
    parent: int
    bell: int  # eventfd that wakes the main process


class Worker:
    """The loop of one worker process."""

    def __init__(self, setup: Setup) -> None:
        segments = {label: attach(handle) for label, handle in setup.handles.items()}
        self.p, self.home = setup.worker, setup.sizes.n_workers
        self.parent, self.bell = setup.parent, setup.bell
        # Before the first touch: the pages of this shard's state come to lie near this core.
        segments[f"state_{self.p}"].reserve()
        arrays = {label: segment.arrays for label, segment in segments.items()}
        self.control = control = Control(**arrays["control"])
        self.rings, self.orders, self.blocks = control.rings, control.orders, control.blocks
        self.row = control.workers[self.p]
        shards = merge_shards(arrays, setup.sizes.n_workers)
        config = setup.config
        model = families.find(config.family)(config, setup.sizes)
        work = [model.work(shard) for shard in shards]
        stops = find_stops(work)
        self.n_stops = [len(s) for s in stops]
        self.route = Route(config, stops)
        own_work = np.ascontiguousarray(work[self.p], dtype=np.int64)
        self.turns = take_part(control, self.route.table, own_work, self.p)
        self.commands = model.commands
        beat = self.row[BEAT : BEAT + 1]
        self.family: FamilyWorker = model.worker(
            self.p, arrays["corpus"], arrays["parameters"], shards, beat
        )
        self.waiting: list[int] = []  # blocks of this pass in their order (deterministic)
        self.early: set[int] = set()  # blocks that came before their turn
        self.order_of = -1
        self.places = Places(control, self.p)
        self.company: list[int] = []  # blocks that are to be visited together
        self.enough = min(2, len(own_work)) if model.meets else 0

    def run(self) -> None:
        """Work until told to stop."""
        turn, idle = self.home, 0
        while True:
            source, value = take(self.turns, turn, SPINS)
            if value == EMPTY:
                idle += 1
                if self.company and self._have_met(idle):
                    self._visit_together()
                else:
                    self._wait(idle)
                continue
            # All that comes from home is taken before anything comes back: the blocks keep step.
            turn, idle = source if source == self.home else source + 1, 0
            while source == self.home and self.orders[RELEASING]:
                os.sched_yield()
            if value >= 0:
                self._arrived(value)
            elif not self._obey(blocks.command_id(value)):
                return

    def _have_met(self, idle: int) -> bool:
        """Whether the blocks at hand are enough for a visit, or have waited long enough."""
        return len(self.company) >= self.enough or idle > LONE_AFTER or bool(self.orders[RECALL])

    def _wait(self, idle: int) -> None:
        if self.early and self.orders[RECALL]:
            # The blocks before these may have been recalled: their turn need not come.
            for block in sorted(self.early):
                hand_on(self.control, self.p, block, self.home)
                self._ring_bell()
            self.early.clear()
        if idle == CHANGE_AFTER:
            self.places.change()
        if idle > SLEEP_AFTER:
            if os.getppid() != self.parent:
                raise SystemExit("the main process is gone")
            time.sleep(SLEEP)
        elif idle > YIELD_AFTER:
            os.sched_yield()

    def _obey(self, index: int) -> bool:
        """Run a command and answer; False at the one that ends the worker."""
        if index == blocks.STOP:
            return False
        self.family.resident = np.flatnonzero(self.blocks[:, PLACE] == self.home).tolist()
        self.family.command(self.commands[index - 1])
        self._answer(blocks.command_id(index))
        return True

    def _arrived(self, block: int) -> None:
        if not self.enough and not self.route.deterministic:
            self._visit(block)
            return
        self.row[AT_WORK] = 0
        if self.enough:
            # Visited when no more come at once: the more meet the better.
            self.company.append(block)
            return
        pass_ = self._pass_of(block)
        # A pass may come again: those of a short fit, or of a move on trial.
        if pass_ != self.order_of or not self.waiting:
            self.order_of, self.waiting = pass_, self.route.worker_order(self.p, pass_)
        self.early.add(block)
        while self.waiting and self.waiting[0] in self.early:
            following = self.waiting.pop(0)
            self.early.remove(following)
            self.row[AT_WORK] = 1
            self._visit(following)

    def _pass_of(self, block: int) -> int:
        return int(self.blocks[block, STEP]) // self.n_stops[block]

    def _visit(self, block: int) -> None:
        """Visit a block, and hand it on."""
        pass_ = self._pass_of(block)
        self.family.visit(block, pass_, bool(pass_ >= self.orders[ENTROPY_FROM]))
        self._leave(block)

    def _visit_together(self) -> None:
        """Visit the blocks that have met, and hand them on."""
        company, self.company = self.company, []
        self.row[AT_WORK] = 1
        self.family.visit_together(company, min(self._pass_of(block) for block in company))
        for block in company:
            self._leave(block)

    def _leave(self, block: int) -> None:
        following = -1
        if self.route.deterministic:
            step = int(self.blocks[block, STEP]) + 1
            following = self.route.next_stop(block, step, self.control)
        if leave(self.turns, block, following) == self.home:
            self._ring_bell()

    def _answer(self, command: int) -> None:
        try_push(self.rings[self.home, self.p], command)
        self._ring_bell()

    def _ring_bell(self) -> None:
        os.eventfd_write(self.bell, 1)


def main(descriptor: int) -> None:
    """Run a worker that talks through the pipe with this file descriptor."""
    pipe: Any = Connection(descriptor)
    try:
        setup: Setup = pipe.recv()
        die_with_parent(setup.parent)
        warm_up(setup.config)
        worker = Worker(setup)
        pipe.send(("ready", None))
        worker.run()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        with contextlib.suppress(OSError):  # nobody is left to be told
            pipe.send(("error", text))
        raise SystemExit(1) from None
