"""What a fit hands over while it is under way."""

from dataclasses import replace

import numpy as np
import pytest

from esvi_shm.runtime.record import Keep
from tests.runtime.fits import COUNTS
from tests.runtime.meeting import fit_together
from tests.runtime.test_nodes import CONFIG, CORPUS, sums_hold


class Kept:
    """Notes what it is handed, with copies of what holds only for the moment."""

    def __init__(self, every):
        self.keep = Keep(every, self.take)
        self.results, self.lambda_rows, self.passes = [], [], []

    def take(self, result):
        learned = result.learned
        self.results.append(result)
        self.passes.append([record.passes for record in result.history])
        copied = np.concatenate(learned.of_units).copy(), learned.lambda_rows.copy()
        self.lambda_rows.append(copied[1])
        gamma, tokens = copied[0].sum(), COUNTS.sum()
        if gamma.size and len(copied[0]) == len(COUNTS):
            np.testing.assert_allclose(gamma - len(COUNTS) * learned.alpha.sum(), tokens, rtol=1e-5)
            mass = copied[1].sum() - copied[1].shape[1] * learned.eta.sum()
            np.testing.assert_allclose(mass, tokens, rtol=1e-5)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_fit_is_kept_every_so_many_passes_but_at_its_end(threaded_fit, deterministic):
    kept = Kept(3)
    options = {"n_passes": 9, "evaluate_every": 4, "deterministic": deterministic}
    ended = threaded_fit(keep=kept.keep, **options)
    assert kept.passes == [[3], [3, 4, 6]]  # each with its own bound
    assert [result.stopped for result in kept.results] == ["under way"] * 2
    ended.assert_consistent()
    ended.assert_passes_are_whole(9)
    assert [record.passes for record in ended.result.history] == [3, 4, 6, 8, 9]


def test_what_is_kept_is_the_model_of_a_fit_that_ends_there(threaded_fit):
    kept = Kept(4)
    options = {"deterministic": True, "evaluate_every": 2}
    threaded_fit(keep=kept.keep, n_passes=9, **options)
    ended = threaded_fit(n_passes=8, **options).result
    np.testing.assert_array_equal(kept.lambda_rows[-1], ended.learned.lambda_rows)
    assert kept.results[-1].ending == ended.ending


def test_a_fit_that_has_settled_is_not_kept_again(threaded_fit):
    kept = Kept(2)
    result = threaded_fit(keep=kept.keep, n_passes=40, evaluate_every=2, tol=1.0).result
    assert result.stopped == "tol"
    assert kept.passes == [[2]]


def test_evaluation_at_the_end_only_leaves_what_is_kept(threaded_fit):
    kept = Kept(3)
    ended = threaded_fit(keep=kept.keep, n_passes=7, evaluate_every=0)
    assert kept.passes == [[3], [3, 6]]
    assert [record.passes for record in ended.result.history] == [3, 6, 7]


@pytest.mark.parametrize(
    "stops", [{"tol": 0.05}, {"tol": 0.0, "patience": 2}, {"evaluate_every": 0, "tol": 1.0}]
)
def test_what_is_kept_does_not_change_when_a_fit_ends(stops, threaded_fit):
    """The bound of what is kept is not compared: its steps are shorter than those asked for."""
    judge = (lambda *arguments: 1.0) if "patience" in stops else None
    options = {"n_passes": 30, "evaluate_every": 6, "deterministic": True, "judge": judge} | stops
    alone = threaded_fit(**options).result
    beside = threaded_fit(keep=Kept(1).keep, **options).result
    assert (beside.passes, beside.stopped) == (alone.passes, alone.stopped)
    # The sums are added up anew at each bound, which rounds them otherwise.
    np.testing.assert_allclose(beside.learned.lambda_rows, alone.learned.lambda_rows, rtol=1e-4)


def test_the_first_of_several_nodes_is_handed_the_whole(monkeypatch):
    whole = []

    def take(result):
        sums_hold(result.learned)
        whole.append(result.passes)

    keeps = [Keep(2, take), Keep(2, lambda result: None)]
    results, _ = fit_together(CORPUS, replace(CONFIG, n_passes=5), 2, monkeypatch, keeps=keeps)
    assert whole == [2, 4]
    sums_hold(results[0].learned)
