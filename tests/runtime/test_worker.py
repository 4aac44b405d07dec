"""The loop of a worker: which block it takes next."""

import os

from esvi_shm.runtime.traffic import Traffic
from esvi_shm.runtime.worker import Worker
from esvi_shm.shared.ring import size_guess


def test_the_blocks_of_one_worker_keep_step_however_slow_home_is(threaded_fit, monkeypatch):
    visits, visit, let_go = [], Worker._visit, Traffic._let_go

    def recording(worker, block):
        visits.append((worker._pass_of(block), block))
        visit(worker, block)

    def slowly(traffic, block):
        let_go(traffic, block)
        while size_guess(traffic.rings[0, traffic.home]):  # until the worker has taken it
            os.sched_yield()

    monkeypatch.setattr(Worker, "_visit", recording)
    threaded_fit(n_passes=4, n_workers=1, n_blocks=6, evaluate_every=2)
    fast, visits[:] = visits[:], []
    # It takes the first, and the others once all are out.
    monkeypatch.setattr(Traffic, "_let_go", lambda *of: slowly(*of) if of[1] == 0 else let_go(*of))
    threaded_fit(n_passes=4, n_workers=1, n_blocks=6, evaluate_every=2)
    assert visits == fast == [(n, b) for n in range(4) for b in range(6)]
