"""Workers that change places: who with whom, and that all may run afterwards where they might."""

import os
import subprocess
import sys

import numpy as np
import pytest

from esvi_shm.runtime.blocks import AT_WORK, CORE, PID, Control, control_specs, initialise_control
from esvi_shm.runtime.places import Places, furthest_behind
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
    """Who was sent where, in order; on a machine of cores 0 to 3."""
    made = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: made.append((pid, cores)))
    return made


def make(calls, waiting=(0, 3), at_work=(0, 1), here=2, there=1):
    """Worker 0 on core `here`, and worker 1, process 77, on core `there`."""
    state = control(2, waiting, at_work)
    state.workers[1, [PID, CORE]] = 77, there
    places = Places(state, 0)
    places._current_core = lambda: here
    return places, state


def test_two_change_places(calls):
    places, state = make(calls)
    assert state.workers[0, PID] == os.getpid()
    assert places.change()
    assert calls[:2] == [(77, {2}), (0, {1})]
    assert sorted(calls[2:]) == [(0, {0, 1, 2, 3}), (77, {0, 1, 2, 3})]


def test_a_change_is_not_made_again_at_once(calls):
    places, _ = make(calls)
    assert places.change()
    assert not places.change()
    places.changed_at = -np.inf
    assert places.change()


def test_who_is_on_the_same_core_stays(calls):
    places, _ = make(calls, here=1)
    assert not places.change()
    assert calls == []


def test_who_has_one_core_stays(calls, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    places, _ = make(calls)
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
    places, _ = make(calls)
    places.change()
    assert (0, {0, 1, 2, 3}) in calls
    assert [cores for pid, cores in calls if pid == 0][-1] == {0, 1, 2, 3}


def test_noting_says_where(calls):
    places, state = make(calls)
    places.note()
    assert state.workers[0, CORE] == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_real_processes_change_and_are_free_again():
    before = os.sched_getaffinity(0)
    sleeper = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(sleeper, stdin=subprocess.PIPE) as other:
        state = control(2, [0, 3], [0, 1])
        places = Places(state, 0)
        places.note()
        here = int(state.workers[0, CORE])
        there = min(before - {here})
        state.workers[1, [PID, CORE]] = other.pid, there
        seen = []
        set_affinity = os.sched_setaffinity

        def spy(pid, cores):
            set_affinity(pid, cores)
            seen.append((pid, places._current_core()))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "sched_setaffinity", spy)
            assert places.change()
        assert seen[1] == (0, there)
        assert os.sched_getaffinity(0) == os.sched_getaffinity(other.pid) == before
        other.communicate()
