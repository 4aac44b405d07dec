"""Whole fits on the topic axis: topics that meet at workers, wait for company, and pass on."""

import numpy as np
import pytest

from esvi_shm.errors import ParameterError
from esvi_shm.runtime import engine, worker
from esvi_shm.runtime.routes import ROUTES
from tests.families.lda.play import bound_noise
from tests.families.lda.test_recovery import farthest_topic
from tests.naive import simulate
from tests.runtime.fits import COUNTS
from tests.runtime.test_engine import assert_right

AXIS = {"axis": "topics", "storage": "full"}


@pytest.mark.parametrize("n_workers", [1, 2, 3])
@pytest.mark.parametrize("route", ROUTES)
def test_the_bound_never_falls_at_any_number_of_workers(threaded_fit, route, n_workers):
    ended = threaded_fit(
        **AXIS, route=route, n_workers=n_workers, n_passes=30, evaluate_every=1, n_topics=6
    )
    ended.assert_consistent()
    ended.assert_passes_are_whole(30)
    found = [record.elbo_f for record in ended.result.history]
    assert np.diff(found).min() > -bound_noise(COUNTS)
    assert found[-1] > found[0] + 20


def test_with_true_processes(fit):
    ended = fit(**AXIS, n_workers=2, n_passes=40)
    assert len(fit.pids) == 2
    assert_right(ended, 40)


def test_it_agrees_with_the_word_axis(threaded_fit):
    """As good an optimum, over seeds; and the same topics as were drawn."""
    options = {"n_workers": 2, "n_passes": 150, "evaluate_every": 0, "storage": "full"}
    differences = []
    for seed in range(8):
        words, topics = (
            threaded_fit(**options, axis=axis, seed=seed).result for axis in ("words", "topics")
        )
        differences.append(topics.history[-1].elbo - words.history[-1].elbo)
    spread = np.std(differences, ddof=1) / np.sqrt(8)
    assert abs(np.mean(differences)) < 3 * spread + 5
    counts, drawn = simulate(120, 24, 3, 80, seed=2)
    ended = threaded_fit(counts, **options | AXIS, seed=1, restarts=3)
    assert farthest_topic(ended.serial.lambda_, drawn) < 0.2


@pytest.mark.parametrize("n_topics", [1, 2, 3])
def test_there_may_be_fewer_topics_than_workers(threaded_fit, n_topics):
    """A lone topic waits for company, in vain, and passes on."""
    ended = threaded_fit(**AXIS, n_workers=3, n_topics=n_topics, n_blocks=3, n_passes=6)
    ended.assert_consistent()
    ended.assert_passes_are_whole(6)


def test_blocks_meet(threaded_fit, monkeypatch):
    met = []
    visit = worker.Worker._visit_together

    def recorded(self):
        met.append(len(self.company))
        visit(self)

    monkeypatch.setattr(worker.Worker, "_visit_together", recorded)
    threaded_fit(**AXIS, n_workers=2, n_topics=8, n_blocks=8, n_passes=20)
    assert sum(met) == 20 * 8 * 2
    assert np.mean(met) > 1.5


def test_the_groups_are_as_many_as_suit(threaded_fit):
    for n_workers, n_topics, n_blocks in ((1, 9, 1), (2, 9, 8), (2, 3, 3)):
        ended = threaded_fit(
            axis="topics", n_workers=n_workers, n_topics=n_topics, n_blocks=None, n_passes=1
        )
        assert ended.layout.config.storage == "full"
        assert ended.layout.sizes.n_blocks == n_blocks


def test_time_that_is_up_ends_it_with_all_blocks_home(threaded_fit):
    ended = threaded_fit(**AXIS, n_passes=10**6, max_time=0.3, evaluate_every=0, n_topics=6)
    assert ended.result.stopped == "max_time"
    ended.assert_consistent()


def test_rests_on_the_way(threaded_fit):
    ended = threaded_fit(
        **AXIS, n_workers=2, n_topics=6, n_passes=60, inference="anneal", refold_after=(5,),
        noise=0.1, learn_priors="alpha", repair_after=(50,), evaluate_every=20,
    )  # fmt: skip
    ended.assert_consistent()
    assert ended.result.passes == 60
    assert ended.result.learned.alpha.std() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axis": "x"}, "axis must be one of topics, words, got 'x'"),
        (
            {"axis": "topics", "storage": "margins"},
            "storage must be full where topics travel .*, got 'margins'",
        ),
        ({**AXIS, "deterministic": True}, "axis must be words in a deterministic fit"),
    ],
)
def test_what_does_not_go_together_is_refused(threaded_fit, options, message):
    with pytest.raises(ParameterError, match=message):
        threaded_fit(**options)
    assert threaded_fit.runs == []


def test_what_has_no_effect_is_told(threaded_fit, caplog, monkeypatch):
    monkeypatch.setattr(engine, "available_cores", lambda: 2)
    threaded_fit(**AXIS, inference="cvb0", leave_out="pair", n_passes=1)
    assert [r.getMessage() for r in caplog.records] == ["leave_out has no effect with axis topics"]
