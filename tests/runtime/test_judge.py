"""What a judge is shown at each evaluation, and when it ends a fit."""

import numpy as np
import pytest

from esvi_shm.errors import ParameterError
from tests.runtime.fits import COUNTS


class Judge:
    """Gives the figures that it is told to, and remembers what it was shown."""

    def __init__(self, *figures):
        self.figures, self.shown = iter(figures), []

    def __call__(self, lambda_rows, word_ids, alpha):
        self.shown.append((lambda_rows.copy(), word_ids.copy(), alpha.copy()))
        return next(self.figures)


def figures_of(ended):
    return [record.perplexity for record in ended.result.history]


def test_it_sees_the_topics_of_the_moment_and_changes_nothing(threaded_fit):
    options = {"n_passes": 6, "evaluate_every": 2, "deterministic": True}
    judge = Judge(9.0, 8.0, 8.5)
    ended = threaded_fit(judge=judge, **options)
    assert figures_of(ended) == [9.0, 8.0, 8.5]
    ended.assert_consistent()
    rows, word_ids, alpha = judge.shown[-1]
    np.testing.assert_array_equal(rows, ended.result.learned.lambda_rows)
    np.testing.assert_array_equal(word_ids, ended.result.learned.word_ids)
    np.testing.assert_array_equal(alpha, ended.result.learned.alpha)
    assert not np.array_equal(judge.shown[0][0], rows)
    # Summed by word, whatever the layout: these are the counts.
    lambda_ = np.empty_like(rows)
    lambda_[word_ids] = rows
    tokens = (lambda_ - ended.result.learned.eta[:, None]).sum(axis=1)
    np.testing.assert_allclose(tokens, COUNTS.sum(axis=0), rtol=1e-4)
    alone = threaded_fit(**options)
    np.testing.assert_array_equal(
        alone.result.learned.lambda_rows, ended.result.learned.lambda_rows
    )
    assert np.isnan(figures_of(alone)).all()


def test_the_clock_stands_still_meanwhile(threaded_fit, monkeypatch):
    """The judge's seconds are counted by a clock of our own, which nothing else moves by hours."""
    from esvi_shm.runtime import home

    true_clock, hours = home.time.perf_counter, 3600.0
    passed = [0.0]

    class Clock:
        perf_counter = staticmethod(lambda: true_clock() + passed[0])

    monkeypatch.setattr(home, "time", Clock)

    def judge(lambda_rows, word_ids, alpha):
        passed[0] += hours
        return 1.0

    history = threaded_fit(judge=judge, n_passes=4, evaluate_every=2).result.history
    assert [record.fit_seconds < hours for record in history] == [True, True]
    assert [record.total_seconds // hours for record in history] == [1, 2]


@pytest.mark.parametrize(
    ("figures", "patience", "ends_after"),
    [
        ((9, 8, 8, 8.5, 7), 2, 4),  # no better is in vain, the same as worse
        ((9, 8, 9, 7, 8, 8, 6), 2, 6),  # a better one begins anew
        ((5, 6), 1, 2),
        ((9, 8, 7, 6, 5), 1, None),
        ((5, 6, 7, 8, 9), 5, None),
        ((5, 6, 7, 8, 9), None, None),
    ],
)
def test_patience_ends_a_fit(threaded_fit, figures, patience, ends_after):
    options = {"n_passes": 2 * len(figures), "evaluate_every": 2, "patience": patience}
    ended = threaded_fit(judge=Judge(*figures), **options)
    assert ended.result.stopped == ("passes" if ends_after is None else "patience")
    assert figures_of(ended) == list(figures[:ends_after])
    ended.assert_consistent()


@pytest.mark.parametrize(
    "options", [{"temper_passes": 5}, {"inference": "anneal", "cvb0_passes": 5, "temper_passes": 0}]
)
def test_patience_waits_until_evaluations_can_be_compared(threaded_fit, options):
    options = {"n_passes": 20, "evaluate_every": 2, "patience": 2, **options}
    ended = threaded_fit(judge=Judge(*range(10)), **options)
    # The first that counts is that after 6 passes.
    assert (ended.result.stopped, ended.result.passes) == ("patience", 10)


def test_patience_needs_a_judge_and_evaluations(threaded_fit):
    with pytest.raises(ParameterError, match="patience must come with holdout, got 3"):
        threaded_fit(patience=3)
    with pytest.raises(ParameterError, match="evaluate_every must be at least 1 with patience"):
        threaded_fit(judge=Judge(), patience=3, evaluate_every=0)
    with pytest.raises(ParameterError, match="patience must be at least 1, got 0"):
        threaded_fit(judge=Judge(), patience=0)
    assert threaded_fit.runs == []


def test_a_judge_that_fails_ends_the_fit_and_leaves_nothing(fit):
    def judge(lambda_rows, word_ids, alpha):
        raise ZeroDivisionError("no tokens")

    with pytest.raises(ZeroDivisionError):
        fit(judge=judge, n_passes=4, evaluate_every=2)
