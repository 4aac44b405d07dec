"""What a worker does with a block between two visits: it takes it, and sends it on."""

import numpy as np
import pytest

from esvi_shm.runtime.blocks import (
    AT_WORK,
    BEAT,
    PLACE,
    RECALL,
    STEP,
    TARGET_PASS,
    VISITS,
    WORK,
    command_id,
)
from esvi_shm.runtime.turns import leave, take, take_part
from esvi_shm.shared.ring import EMPTY, contents, try_push
from tests.runtime.test_routes import control, make

HOME = 2


@pytest.fixture
def state():
    """Two workers, three blocks that stop at both, all home; two passes are to be made."""
    state = control(HOME, 3)
    state.orders[TARGET_PASS] = 2
    return state


@pytest.fixture
def turns(state):
    """Those of worker 0."""
    table = make("ring", [np.array([0, 1])] * 3, HOME).table
    return take_part(state, table, np.array([10, 20, 30]), 0)


def send(state, block, to=0):
    state.blocks[block, PLACE] = to
    try_push(state.rings[to, HOME], block)


def test_what_comes_is_taken_and_puts_the_worker_to_work(state, turns):
    row = state.workers[0]
    assert take(turns, HOME, 1) == (-1, EMPTY)
    assert (row[BEAT], row[AT_WORK]) == (1, 0)
    try_push(state.rings[0, HOME], command_id(1))
    assert take(turns, HOME, 1) == (HOME, command_id(1))
    assert (row[BEAT], row[AT_WORK]) == (2, 0)
    send(state, 1)
    assert take(turns, HOME, 1) == (HOME, 1)
    assert (row[BEAT], row[AT_WORK]) == (3, 1)


def test_the_ring_after_the_last_is_the_first(state, turns):
    for sender in (1, HOME):
        try_push(state.rings[0, sender], command_id(sender))
    assert take(turns, HOME, 1)[0] == HOME
    assert take(turns, HOME, 1)[0] == 1


def test_a_block_of_another_is_refused(state, turns):
    send(state, 1)
    state.blocks[1, PLACE] = 1
    with pytest.raises(RuntimeError, match="does not hold"):
        take(turns, HOME, 1)
    assert state.workers[0, AT_WORK] == 0


def test_a_visit_is_counted_and_the_block_goes_on_and_home_at_last(state, turns):
    places = []
    for n in range(4):
        send(state, 2)
        take(turns, HOME, 1)
        places.append(leave(turns, 2, -1))
        assert state.blocks[2, STEP] == n + 1
        assert contents(state.rings[places[-1], 0])[-1] == 2
    # A ring over both, from one of them on, for two passes.
    assert places == [places[0], 1 - places[0], places[0], HOME]
    row = state.workers[0]
    assert (row[VISITS], row[WORK], row[AT_WORK]) == (4, 4 * 30, 0)


def test_a_block_that_is_recalled_goes_home_and_one_that_is_told_where_goes_there(state, turns):
    send(state, 0)
    take(turns, HOME, 1)
    assert leave(turns, 0, 1) == state.blocks[0, PLACE] == 1
    state.orders[RECALL] = 1
    send(state, 1)
    take(turns, HOME, 1)
    assert leave(turns, 1, 0) == state.blocks[1, PLACE] == HOME
