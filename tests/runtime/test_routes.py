"""Routes: legal stops, whole passes, and a deterministic order in which nobody waits for ever."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.config import FitConfig
from esvi_shm.errors import ParameterError
from esvi_shm.runtime.blocks import AT_WORK, PLACE, Control, control_specs, initialise_control
from esvi_shm.runtime.routes import ROUTES, Route, check, find_stops
from esvi_shm.shared.ring import try_push


@st.composite
def all_stops(draw, max_workers=4, max_blocks=9):
    """Number of workers, and the stops of each block; some blocks have none."""
    n_workers = draw(st.integers(1, max_workers))
    workers = st.lists(st.integers(0, n_workers - 1), unique=True).map(sorted)
    stops = draw(st.lists(workers, min_size=1, max_size=max_blocks))
    return n_workers, [np.array(s, int) for s in stops]


def make(name, stops, n_workers, seed=0, deterministic=False):
    config = FitConfig(route=name, n_workers=n_workers, seed=seed, deterministic=deterministic)
    check(config)
    return Route(config, stops)


def control(n_workers, n_blocks=9):
    """The control arrays of a fit at rest."""
    specs = control_specs(n_workers, n_blocks)
    made = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
    initialise_control(made, n_workers, n_blocks)
    return Control(**made)


@given(all_stops(), st.integers(0, 2**63 - 1), st.sampled_from(ROUTES), st.booleans())
def test_a_pass_of_lap_and_ring_is_every_stop_once(case, seed, name, deterministic):
    n_workers, stops = case
    if deterministic and name not in ("lap", "ring"):
        with pytest.raises(ParameterError, match="route must be lap or ring"):
            make(name, stops, n_workers, seed, deterministic)
        return
    route, rest = make(name, stops, n_workers, seed, deterministic), control(n_workers)
    for block, there in enumerate(stops):
        for pass_ in range(3):
            steps = range(pass_ * len(there), (pass_ + 1) * len(there))
            visited = [route.next_stop(block, step, rest) for step in steps]
            assert set(visited) <= set(there)
            if name in ("lap", "ring"):
                assert sorted(visited) == there.tolist()


@pytest.mark.parametrize("name", ["lap", "random", "balanced"])
def test_routes_are_random_by_seed_block_and_visit(name):
    def path(seed, block):
        rest = control(5)
        route = make(name, [np.arange(5)] * 2, 5, seed)
        return tuple(route.next_stop(block, step, rest) for step in range(25))

    paths = {(seed, block): path(seed, block) for seed in (0, 1) for block in (0, 1)}
    assert len(set(paths.values())) == 4
    assert len({paths[0, 0][i : i + 5] for i in range(0, 25, 5)}) > 1
    assert path(0, 0) == paths[0, 0]


def test_ring_starts_blocks_at_different_stops():
    route = make("ring", [np.arange(3)] * 6, 3)
    assert [route.next_stop(b, 0, control(3)) for b in range(6)] == [0, 1, 2, 0, 1, 2]


def test_random_visits_all_stops_equally():
    route = make("random", [np.array([0, 2, 3])], 4)
    rest = control(4)
    visits = Counter(route.next_stop(0, step, rest) for step in range(3000))
    assert set(visits) == {0, 2, 3}
    assert max(visits.values()) < 1150


def queue(state, worker, length):
    """Blocks waiting at a worker, pushed by several."""
    for n in range(length):
        try_push(state.rings[worker, n % state.rings.shape[1]], n)


def test_lap_goes_first_where_least_is_waiting():
    stops, state = np.array([0, 2, 3, 4]), control(6)
    route = make("lap", [stops], 6)
    for worker, length in ((0, 2), (2, 1), (3, 3)):
        queue(state, worker, length)
    for pass_ in range(3):
        visited = [route.next_stop(0, 4 * pass_ + place, state) for place in range(4)]
        assert visited == [4, 2, 0, 3]


def test_a_worker_at_work_counts_as_one_waiting():
    route, state = make("lap", [np.arange(2)], 2), control(2)
    state.workers[0, AT_WORK] = 1
    assert {route.next_stop(0, 2 * pass_, state) for pass_ in range(20)} == {1}
    queue(state, 1, 1)
    assert {route.next_stop(0, 2 * pass_, state) for pass_ in range(20)} == {0, 1}


def test_balanced_takes_the_shortest_queue_elsewhere():
    route, state = make("balanced", [np.array([0, 2, 3])], 4), control(4)
    for worker, length in ((0, 2), (2, 1), (3, 3)):
        queue(state, worker, length)
    assert {route.next_stop(0, step, state) for step in range(20)} == {2}
    state.blocks[0, PLACE] = 2
    assert {route.next_stop(0, step, state) for step in range(20)} == {0}
    queue(state, 0, 1)
    assert {route.next_stop(0, step, state) for step in range(50)} == {0, 3}


def test_a_block_with_one_stop_stays_there():
    for name in ROUTES:
        route, state = make(name, [np.array([1])], 3), control(3)
        state.blocks[0, PLACE] = 1
        assert {route.next_stop(0, step, state) for step in range(5)} == {1}


@given(all_stops(), st.integers(0, 1000), st.sampled_from(["lap", "ring"]), st.randoms())
def test_the_deterministic_order_never_deadlocks(case, seed, name, random):
    """Played with queues, workers taking turns at random: each visits its blocks in its order."""
    n_workers, stops = case
    route, rest = make(name, stops, n_workers, seed, True), control(n_workers)
    steps = [0] * len(stops)
    for pass_ in range(2):
        arrived = [set() for _ in range(n_workers)]
        waiting = [route.worker_order(worker, pass_) for worker in range(n_workers)]
        for worker, order in enumerate(waiting):
            assert sorted(order) == [b for b, there in enumerate(stops) if worker in there]
        for block, there in enumerate(stops):
            if len(there):
                arrived[route.next_stop(block, steps[block], rest)].add(block)
        visits = 0
        while ready := [p for p in range(n_workers) if waiting[p] and waiting[p][0] in arrived[p]]:
            worker = random.choice(ready)
            block = waiting[worker].pop(0)
            arrived[worker].remove(block)
            steps[block] += 1
            visits += 1
            if steps[block] < (pass_ + 1) * len(stops[block]):
                arrived[route.next_stop(block, steps[block], rest)].add(block)
        assert visits == sum(map(len, stops))
        assert not any(arrived) and not any(waiting)


def test_stops_are_the_workers_with_work():
    work = [np.array([2, 0, 1]), np.array([0, 0, 4])]
    assert [s.tolist() for s in find_stops(work)] == [[0], [], [0, 1]]
