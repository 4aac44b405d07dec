"""Where a fit chooses, active sets are used as long as they cost less than all topics."""

from types import SimpleNamespace

import numpy as np
import pytest

from esvi_shm.config import FitConfig
from esvi_shm.families.lda import schedule, switch
from esvi_shm.families.lda.schedule import Schedule
from esvi_shm.families.lda.switch import (
    ACTIVE,
    ALL_TOPICS,
    LONGER,
    LOOK_PASSES,
    MOST_COST,
    Switch,
)
from tests.families.lda.play import play
from tests.families.lda.test_active import simulated

#: Of a fit that may choose.
CHOOSING = {"n_topics": schedule.ACTIVE_TOPICS, "n_blocks": 2, "n_passes": 40}


def test_many_topics_are_active_of_themselves_where_documents_live_in_few():
    """After `DENSE_PASSES`; the same numbers as where that is asked for."""
    counts = simulated(n_documents=30)
    chosen, asked = (play(counts, **CHOOSING, alpha=0.01, **more) for more in (
        {}, {"dense_passes": schedule.DENSE_PASSES}
    ))  # fmt: skip
    for n in range(schedule.DENSE_PASSES + 3):
        assert chosen.shared["active_visits"][0] == 2 * max(n - schedule.DENSE_PASSES, 0)
        chosen.run_pass()
        asked.run_pass()
    np.testing.assert_array_equal(chosen.gamma, asked.gamma)


def test_with_few_topics_or_another_storage_or_axis_there_is_no_choice():
    few = FitConfig(n_topics=schedule.ACTIVE_TOPICS - 1)
    assert Schedule(few).dense_passes is None
    for changes in ({"storage": "topk"}, {"storage": "full"}, {"axis": "topics"}):
        config = FitConfig(n_topics=schedule.ACTIVE_TOPICS, **changes)
        assert Schedule(config).dense_passes is None


@pytest.mark.parametrize("start", ["seeded", "random"])
def test_another_start_knows_nothing_of_the_one_before(start):
    fit = play(simulated(n_documents=30), **CHOOSING, start=start)
    found = fit.workers[0].switch
    before = found.is_on, found._look_after, found._pause
    found.is_on, found._look_after, found._pause = True, 25, 20
    told = [fit.shared["active_visits"], fit.shared["cvb0_left_out"]]
    for array in told:
        array[:] = 7
    fit._play(fit.layout.model.start(fit.held, fit.corpus_arrays, fit.shared))
    assert (found.is_on, found._look_after, found._pause) == before
    assert not any(array.any() for array in told)


def test_a_repair_that_is_put_back_leaves_no_trace():
    fit = play(simulated(n_documents=30), **CHOOSING, alpha=0.01, repair_after=(30,))
    worker = fit.workers[0]

    def state():
        told = fit.shared["active_visits"].tolist(), fit.shared["cvb0_left_out"].tolist()
        return str((vars(worker.switch), told))

    for _ in range(schedule.DENSE_PASSES + 1):
        fit.run_pass()
    before = state()
    worker.command("keep")
    for _ in range(2):
        fit.run_pass()
        worker.switch.is_on = False
        assert state() != before
        worker.command("restore")
        assert state() == before


def test_where_documents_live_in_many_topics_none_are_tried():
    spread = play(simulated(n_documents=30), **CHOOSING, alpha=20.0)
    worker, spread.passes = spread.workers[0], schedule.DENSE_PASSES
    spread.run_pass()
    assert not worker.switch.is_on and worker.lists is None
    for arrays in spread.shards:  # as if they had come down to one
        arrays["gamma"][:, 1:] = 20.0
    worker.rule = worker.rule._replace(cvb0=True)
    assert not worker._is_active(100)
    worker.rule = worker.rule._replace(cvb0=False)
    assert not worker._is_active(schedule.DENSE_PASSES + LOOK_PASSES - 1)
    assert worker._is_active(schedule.DENSE_PASSES + LOOK_PASSES)


def test_what_costs_more_is_given_up_and_tried_later(monkeypatch):
    monkeypatch.setattr(switch, "MOST_COST", 0.0)
    fit = play(simulated(n_documents=30), **CHOOSING, alpha=0.01)
    worker, tried, visit = fit.workers[0], [], fit.workers[0]._visit_active

    def spy(*arguments):
        tried.append(fit.passes)
        visit(*arguments)

    monkeypatch.setattr(worker, "_visit_active", spy)
    first = fit.passes = schedule.DENSE_PASSES
    for _ in range(2 + LOOK_PASSES * (1 + LONGER)):
        fit.run_pass()
        assert not worker.switch.is_on and not fit.shared["active_visits"].any()
    assert tried == [first, first + LOOK_PASSES * (1 + LONGER)]
    worker.command("unfold")
    assert worker.switch.look(0, worker.gamma[:0], worker.rule.alpha)


@pytest.mark.parametrize("n_turns", [1, 2])
def test_a_switch_weighs_what_visits_had_to_do(n_turns):
    """Two blocks of 10 and 30 pairs, 2 and 4 rows, 5 and 6 words."""
    shard = SimpleNamespace(
        block_row_ptr=np.array([0, 1, 2, 4, 6]) if n_turns == 2 else np.array([0, 2, 6]),
        row_ptr=np.array([0, 4, 10, 17, 24, 31, 40]),
        block_word_ptr=np.array([0, 5, 5, 11, 11]) if n_turns == 2 else np.array([0, 5, 11]),
    )
    weighed = Switch(shard, 600, n_turns)
    all_topics = 600 * ALL_TOPICS @ np.array([[10, 30], [2, 4], [5, 6]])
    fixed = ACTIVE[:2] @ np.array([[10, 30], [2, 4]])
    gamma, alpha = np.full((3, 600), 0.1, np.float32), np.full(600, 0.1, np.float32)
    gamma[:, 0] = 5.0
    assert weighed.look(7, gamma, alpha)
    for over in (0.99, 1.01):  # of what a pass may cost: the first block nothing, then the rest
        for part in (0.0, over):
            assert weighed.is_on
            left = max(part * MOST_COST * all_topics.sum() - fixed.sum(), 0)
            weighed.goes_on(int(part > 0), np.array([0, left / ACTIVE[3], 0, 0]))
    assert not weighed.is_on
    assert not weighed.look(7 + LOOK_PASSES * (1 + LONGER) - 1, gamma, alpha)
    assert weighed.look(7 + LOOK_PASSES * (1 + LONGER), gamma, alpha)
    # One block alone that costs more than a whole pass may.
    weighed.goes_on(0, np.array([0, 0, MOST_COST * all_topics.sum() / ACTIVE[4], 0]))
    assert not weighed.is_on
