"""Workers that change places: who with whom, and that all may run afterwards where they might."""

import os
import subprocess
import sys

import numpy as np
import pytest

from esvi_shm.runtime import places as module
from esvi_shm.runtime.blocks import AT_WORK, PID, Control, control_specs, initialise_control
from esvi_shm.runtime.places import Places, core_of, furthest_behind
from esvi_shm.shared.ring import try_push


def control(n_workers, waiting, at_work=None, n_blocks=9):
    """The control arrays with so many blocks waiting at each worker."""
    made = {s.name: np.zeros(s.shape, s.dtype) for s in control_specs(n_workers, n_blocks)}
    initialise_control(made, n_workers, n_blocks)
    for worker, length in enumerate(waiting):
        for n in range(length):
            try_push(made["rings"][worker, n % (n_workers + 1)], n)
    made["workers"][:, AT_WORK] = 1 if at_work is None else at_work
    return Control(**made)


@pytest.mark.parametrize(
    ("waiting", "at_work", "worker", "furthest"),
    [
        ([2, 0], [1, 0], 1, 0),
        ([0, 4], [0, 1], 0, 1),
        ([1, 0], [1, 0], 1, -1),  # what comes in just now
        ([3, 0], [0, 0], 1, -1),  # that one is not at work
        ([2, 5, 3, 0], [1, 1, 1, 0], 3, 1),
        ([2, 5, 0, 0], [1, 1, 0, 0], 3, -1),  # the third asks
        ([2, 5, 0, 0], [1, 1, 0, 0], 2, 1),
        ([0], [0], 0, -1),
    ],
)
def test_who_is_furthest_behind(waiting, at_work, worker, furthest):
    state = control(len(waiting), waiting, at_work)
    assert furthest_behind(state.rings, state.workers, worker) == furthest


@pytest.fixture
def calls(monkeypatch):
    """Who was sent where, in order; on a machine of cores 0 to 3.

    Worker 0 is on core 2, and worker 1, process 77, on core 1.
    """
    made = []
    monkeypatch.setattr(module, "core_of", {os.getpid(): 2, 77: 1}.__getitem__)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: made.append((pid, cores)))
    return made


def make(waiting=(0, 3), at_work=(0, 1)):
    """Worker 0, and what all see."""
    state = control(2, waiting, at_work)
    state.workers[1, PID] = 77
    return Places(state, 0), state


def test_two_change_places(calls):
    places, state = make()
    assert state.workers[0, PID] == os.getpid()
    assert places.change()
    assert calls[:2] == [(77, {2}), (0, {1})]
    assert sorted(calls[2:]) == [(0, {0, 1, 2, 3}), (77, {0, 1, 2, 3})]


def test_a_change_is_not_made_again_at_once(calls):
    places, _ = make()
    assert places.change()
    assert not places.change()
    places.changed_at = -np.inf
    assert places.change()


def test_who_is_on_the_same_core_stays(calls, monkeypatch):
    monkeypatch.setattr(module, "core_of", lambda pid: 1)
    places, _ = make()
    assert not places.change()
    assert calls == []


def test_who_has_one_core_stays(calls, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    places, _ = make()
    assert not places.change()
    assert calls == []


@pytest.mark.parametrize("n_calls", range(4))
def test_where_it_is_forbidden_or_the_other_has_ended_all_goes_on(calls, monkeypatch, n_calls):
    """Whichever call fails: the worker itself may run where it might."""

    def fails(pid, cores):
        if pid == 77 and len(calls) >= n_calls:
            raise ProcessLookupError
        calls.append((pid, cores))

    monkeypatch.setattr(os, "sched_setaffinity", fails)
    places, _ = make()
    places.change()
    assert (0, {0, 1, 2, 3}) in calls
    assert [cores for pid, cores in calls if pid == 0][-1] == {0, 1, 2, 3}


def test_the_core_of_a_process_that_has_ended_is_not_known():
    other = subprocess.Popen([sys.executable, "-c", ""])
    other.wait()
    with pytest.raises(OSError):
        core_of(other.pid)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_real_processes_change_and_are_free_again():
    before = os.sched_getaffinity(0)
    sleeper = [sys.executable, "-c", "print(flush=True); input()"]
    here, there, *_ = sorted(before)
    state = control(2, [0, 3], [0, 1])
    places = Places(state, 0)
    seen = []
    set_affinity = os.sched_setaffinity

    def spy(pid, cores):
        set_affinity(pid, cores)
        seen.append((pid, core_of(os.getpid())))

    try:
        os.sched_setaffinity(0, {there})
        other = subprocess.Popen(sleeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with other:
            other.stdout.readline()
            os.sched_setaffinity(other.pid, before)
            # Held fast until the change, whatever else the cores have to do.
            os.sched_setaffinity(0, {here})
            assert (core_of(os.getpid()), core_of(other.pid)) == (here, there)
            state.workers[1, PID] = other.pid
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "sched_setaffinity", spy)
                assert places.change()
            assert seen[1] == (0, there)
            assert os.sched_getaffinity(0) == os.sched_getaffinity(other.pid) == before
            other.communicate(b"\n")
    finally:
        os.sched_setaffinity(0, before)
