"""Priors learned by whole fits: what workers, home and the result have of them."""

import numpy as np
import pytest

from esvi_shm.errors import ParameterError
from tests.families.lda.play import bound_noise
from tests.naive import bound_l
from tests.runtime.fits import COUNTS

LEARN = {"learn_priors": "both", "n_passes": 40, "evaluate_every": 5}


def assert_learned(ended):
    result, shared = ended.result, ended.arrays["parameters"]
    ended.assert_consistent()
    np.testing.assert_array_equal(result.learned.alpha, shared["alpha"])
    in_order = np.argsort(result.learned.word_ids)
    np.testing.assert_array_equal(result.learned.eta, shared["eta"][in_order])
    means = [(record.alpha_mean, record.eta_mean) for record in result.history]
    assert means[0] == (pytest.approx(0.1), pytest.approx(0.05))
    assert means[-1] == (
        pytest.approx(result.learned.alpha.mean()),
        pytest.approx(result.learned.eta.mean()),
    )
    # Four times: after 10, 20, 30 and 40 passes.
    assert len({alpha for alpha, _ in means}) > 2
    lambda_, gamma = ended.serial.lambda_.astype(float), ended.serial.gamma.astype(float)
    wanted = bound_l(COUNTS, gamma, lambda_, result.learned.alpha, result.learned.eta)
    assert result.history[-1].elbo == pytest.approx(wanted, abs=bound_noise(COUNTS))


@pytest.mark.parametrize("storage", ["margins", "full"])
def test_one_worker_never_lowers_the_bound(threaded_fit, storage):
    ended = threaded_fit(storage=storage, n_workers=1, **LEARN)
    assert_learned(ended)
    bounds = [record.elbo_f for record in ended.result.history]
    assert (np.diff(bounds) >= -bound_noise(COUNTS)).all()
    without = threaded_fit(storage=storage, n_workers=1, **{**LEARN, "learn_priors": "none"})
    # The same until the first time; from then on ahead.
    assert bounds[0] == without.result.history[0].elbo_f
    assert bounds[-1] > without.result.history[-1].elbo_f + 10
    assert (without.result.learned.alpha == 0.1).all() and (
        without.result.learned.eta == 0.05
    ).all()


def test_any_number_of_workers_learns_nearly_the_same(threaded_fit):
    found = []
    for n_workers in (1, 2, 3):
        ended = threaded_fit(n_workers=n_workers, **{**LEARN, "n_passes": 100})
        assert_learned(ended)
        found.append([*np.sort(ended.result.learned.alpha), ended.result.learned.eta[0]])
    # Not the same optimum always: the order of the visits is another each time.
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=0.5)


def test_true_processes_work_under_the_learned_priors(fit):
    assert_learned(fit(**LEARN))


def test_deterministic_fits_repeat_to_the_bit(threaded_fit):
    first, second = (threaded_fit(deterministic=True, **LEARN).result for _ in range(2))
    np.testing.assert_array_equal(first.learned.alpha, second.learned.alpha)
    np.testing.assert_array_equal(first.learned.lambda_rows, second.learned.lambda_rows)


def test_cvb0_learns_by_its_judge(threaded_fit):
    options = {**LEARN, "inference": "cvb0", "temper_passes": 0}
    with pytest.raises(ParameterError, match="learn_priors must come with holdout under cvb0"):
        threaded_fit(**options)
    assert threaded_fit.runs == []
    ended = threaded_fit(judge=lambda rows, words, alpha, **_: 1.0, **options)
    assert (ended.result.learned.alpha == 0.1).all() and (ended.result.learned.eta == 0.05).all()
    ended.assert_consistent()
    ended = threaded_fit(judge=lambda rows, words, alpha, **_: -alpha.sum(), **options)
    alpha = ended.result.learned.alpha
    assert (alpha == alpha[0]).all() and alpha[0] > 0.2  # as a whole: the soft counts say nothing
    ended.assert_consistent()
