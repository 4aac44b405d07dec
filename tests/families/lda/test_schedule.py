"""What cvb0 leaves out and how far it goes, by pass; how often the words settle."""

import pytest

from esvi_shm.config import FitConfig
from esvi_shm.families.lda import exclusion
from esvi_shm.families.lda.cut import choose_n_turns
from esvi_shm.families.lda.schedule import Schedule


def passes_of(**options):
    """The passes that leave nothing out, and those that are over-relaxed."""
    config = FitConfig(**options)
    schedule, passes = Schedule(config), range(config.n_passes)
    plain = [n for n in passes if schedule.leave_out(n) == exclusion.NONE]
    relaxed = [n for n in passes if schedule.relax(n) > 1.0]
    return len(plain), len(relaxed)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"inference": "cvb0", "n_passes": 24, "relax": 1.8}, (16, 20)),
        ({"inference": "cvb0", "n_passes": 96, "relax": 1.8}, (25, 80)),
        ({"inference": "cvb0", "n_passes": 500}, (25, 80)),
        ({"inference": "cvb0", "n_passes": 24, "relax": 1.8, "leave_out": "pair"}, (0, 20)),
        ({"inference": "cvb0", "n_passes": 24, "relax": 1.0}, (0, 0)),
        ({"inference": "cvb0", "n_passes": 24}, (16, 20)),
        ({"inference": "cvb0", "n_passes": 50}, (25, 41)),
        ({"inference": "cvb0", "n_passes": 24, "storage": "full"}, (0, 0)),
        ({"inference": "cvb0", "n_passes": 24, "storage": "full", "relax": 1.8}, (0, 0)),
        ({"inference": "cvb0", "n_passes": 24, "storage": "full", "axis": "topics"}, (24, 0)),
        ({"inference": "cvb0", "n_passes": 24, "dense_passes": 9}, (0, 0)),
        ({"inference": "anneal", "n_passes": 24}, (10, 10)),
        ({"inference": "anneal", "n_passes": 24, "relax": 1.0}, (10, 0)),
        ({"inference": "anneal", "n_passes": 24, "n_topics": 512}, (12, 0)),
        ({"inference": "anneal", "n_passes": 24, "cvb0_passes": 0}, (24, 0)),
        ({"inference": "anneal", "n_passes": 24, "storage": "topk", "topk": 9}, (24, 0)),
        ({"inference": "vb", "n_passes": 24, "relax": 1.5}, (24, 0)),
    ],
)
def test_the_first_passes_of_cvb0_go_further_and_leave_nothing_out(options, wanted):
    assert passes_of(**options) == wanted
    settled = Schedule(FitConfig(**options, temper_passes=0)).n_passes
    assert settled >= wanted[1]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, (50, 10, 70)),
        ({"n_passes": 400}, (50, 10, 70)),
        ({"n_passes": 20}, (10, 2, 14)),
        ({"n_passes": 4}, (2, 0, 2)),
        ({"n_passes": 1}, (0, 0, 0)),
        ({"cvb0_passes": 30}, (30, 0, 30)),
        ({"storage": "full", "n_topics": 600}, (50, 10, 70)),
        ({"n_topics": 512}, (50, 0, 50)),
    ],
)
def test_passes_of_cvb0_come_ever_rarer_before_those_of_vb(options, wanted):
    config = FitConfig(temper_passes=0, **{"n_passes": 100, **options})
    schedule = Schedule(config)
    found = [schedule.cvb0(n) for n in range(config.n_passes)]
    first = wanted[0]
    assert found[:first] == [True] * first
    assert (first, sum(found[first:]), schedule.n_passes) == wanted
    assert not any(found[schedule.n_passes :])
    # Each half of the mixed ones has fewer than the half before.
    middle = (first + schedule.n_passes) // 2
    assert sum(found[first:middle]) > sum(found[middle:]) or wanted[1] < 10


@pytest.mark.parametrize("n_passes", range(1, 131))
def test_no_pass_is_by_cvb0_once_the_rule_stays(n_passes):
    schedule = Schedule(FitConfig(n_passes=n_passes))
    assert not any(schedule.cvb0(n) for n in range(schedule.n_passes, n_passes + 5))


@pytest.mark.parametrize(
    ("options", "n_workers", "pairs_a_word", "turns"),
    [
        ({"settle": 4}, 1, 100, 4),
        ({"settle": 4}, 1, 3, 4),
        ({"settle": 4}, 3, 100, 2),
        ({"inference": "cvb0", "settle": 8}, 3, 100, 3),
        ({"settle": 4, "axis": "topics"}, 1, 100, 1),
        ({"inference": "anneal"}, 1, 100, 4),
        ({"inference": "anneal", "n_topics": 511}, 2, 100, 2),
        ({"inference": "anneal", "n_topics": 512}, 1, 100, 1),
        ({"inference": "anneal", "dense_passes": 9}, 1, 100, 1),
        ({"inference": "anneal", "cvb0_passes": 0}, 1, 100, 1),
        ({"inference": "cvb0", "n_passes": 50}, 1, 100, 4),
        ({"inference": "cvb0", "n_passes": 50}, 1, 47.9, 3),
        ({"inference": "cvb0", "n_passes": 50}, 1, 1.5, 2),
        ({"inference": "cvb0", "n_passes": 50}, 2, 100, 2),
        ({"inference": "cvb0", "n_passes": 50}, 2, 20, 1),
        ({"inference": "cvb0", "n_passes": 50, "settle": 1}, 1, 100, 1),
        ({"inference": "cvb0", "n_passes": 50, "storage": "full"}, 1, 100, 1),
        ({"inference": "vb"}, 1, 100, 1),
        ({"inference": "vb", "settle": 3}, 1, 100, 3),
    ],
)
def test_all_workers_together_settle_so_often(options, n_workers, pairs_a_word, turns):
    assert choose_n_turns(FitConfig(**options), n_workers, pairs_a_word) == turns
