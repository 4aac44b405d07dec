"""Learned priors: the sums they come from, the guard on every step, and what is recovered."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, psi

from esvi_shm.config import FitConfig
from esvi_shm.errors import ParameterError
from esvi_shm.families.lda import Model, priors
from tests import naive
from tests.families.lda.play import (
    assert_sums_hold,
    bound_noise,
    cases,
    look,
    play,
    put,
)

storages = pytest.mark.parametrize("storage", ["margins", "full", "sparse", "topk"])
WHEN = priors.EVERY  # of vb without tempering: the first time that priors are learned


def learned_of(fit):
    return fit.shared["alpha"].copy(), fit.shared["eta"].copy()


def dirichlet_multinomial(counts, prior):
    """log of its likelihood, and Minka's fixed point from the prior; a row of counts each."""
    rows = prior + counts
    value = np.sum(naive.log_beta(rows) - naive.log_beta(prior))
    change = (psi(rows) - psi(prior)).sum(axis=0)
    of_sums = (psi(rows.sum(axis=1)) - psi(prior.sum())).sum()
    return value, prior * change / of_sums


@storages
@settings(max_examples=30)
@given(case=cases(least_prior=1e-2, most_count=50), tried=st.floats(0.01, 5))
def test_the_sums_are_those_of_the_definition(storage, case, tried):
    fit = case.fit(storage=storage, inference="vb", eta=0.2)
    fit.run_pass(case.orders[0])
    fit.bound()
    seen, (alpha, _) = look(fit, case.counts), learned_of(fit)
    n_topics = len(alpha)
    fit.shared["trial_alpha"][:] = tried * alpha
    fit.shared["trial_eta"][:] = tried
    for worker in fit.workers:
        worker.command("sum_under_alpha")
        worker.command("sum_under_eta")
    near = {"rtol": 1e-4, "atol": 1e-3 * (1 + case.counts.sum())}
    sums = fit.shared["document_sums"].sum(axis=0)
    value, target = dirichlet_multinomial(seen.phi_doc.sum(axis=1), tried * alpha)
    np.testing.assert_allclose(sums[n_topics + priors.LNB], value, **near)
    found = tried * alpha * sums[:n_topics] / sums[n_topics + priors.CHANGE]
    np.testing.assert_allclose(found, target, rtol=1e-3, atol=1e-5)
    sums = fit.shared["topic_sums"].sum(axis=0)
    mass = seen.phi_word.sum(axis=0)  # (V, K)
    wanted = [np.sum(f(tried + mass) - f(tried)) for f in (psi, gammaln)]
    np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=near["atol"])


@storages
@settings(max_examples=40)
@given(
    case=cases(),
    learn=st.sampled_from(["alpha", "eta", "both"]),
    symmetric=st.booleans(),
    alpha=st.floats(1e-3, 10),
    eta=st.floats(1e-3, 10),
)
def test_the_bound_never_falls_and_the_sums_hold(storage, case, learn, symmetric, alpha, eta):
    symmetric = symmetric and learn != "eta"
    options = {"learn_priors": learn, "symmetric_alpha": symmetric, "alpha": alpha, "eta": eta}
    fit = case.fit(storage=storage, **{**options, "inference": "vb", "temper_passes": 0})
    noise = bound_noise(case.counts)
    for order in case.orders:
        fit.run_pass(order)
        before, (old_alpha, old_eta) = fit.bound().elbo_f, learned_of(fit)
        fit.rest(WHEN)
        assert_sums_hold(fit, case.counts)
        assert fit.bound().elbo_f >= before - noise
        new_alpha, new_eta = learned_of(fit)
        assert learn != "eta" or (new_alpha == old_alpha).all()
        assert learn != "alpha" or (new_eta == old_eta).all()
        assert not symmetric or np.ptp(new_alpha) == 0
        assert np.ptp(new_eta) == 0
        for prior in (new_alpha, new_eta):
            assert ((prior >= 1e-6) & (prior <= 1e6)).all()
        for worker in fit.workers:
            np.testing.assert_array_equal(worker.rule.alpha, new_alpha.astype(np.float32))
            np.testing.assert_array_equal(worker.rule.eta, new_eta.astype(np.float32))
            assert worker.rule.eta_total == pytest.approx(new_eta.sum())


def climb(value, target, *start, **more):
    """Where `priors.climb` ends, and all that it tried."""
    tried = []

    def measure(prior):
        tried.append(prior.copy())
        yield "a command"
        return value(prior), target(prior)

    script = priors.climb(measure, np.array(start), **more)
    while True:
        try:
            assert next(script) == "a command"
        except StopIteration as stop:
            return stop.value, np.array(tried)


def test_a_climb_stays_where_float32_can_follow():
    end, tried = climb(lambda x: -np.log(x).sum(), lambda x: 0 * x, 2e-4, 1e-5)
    assert (end == 1e-6).all() and (tried >= 1e-6).all()
    end, tried = climb(lambda x: np.log(x).sum(), lambda x: np.inf * x, 2e4, 1e5)
    assert (end == 1e6).all() and (tried <= 1e6).all()


def test_a_climb_lengthens_steps_that_pay_and_shortens_others():
    # The fixed point goes a tenth (of the logarithm) of the way to 1 at each step.
    end, tried = climb(lambda x: -(np.log(x[0]) ** 2), lambda x: x**0.9, 0.5)
    assert len(tried) == 1 + priors.TRIALS and 0.9 < end[0] <= 1.01
    # It overshoots six times.
    end, tried = climb(lambda x: -(np.log(x[0]) ** 2), lambda x: x**-5.0, 0.7)
    assert 0.7 < end[0] < 1.2 and tried[1] > 2
    # And where no step pays, nothing moves.
    end, tried = climb(lambda x: 1.0, lambda x: 2 * x, 0.7)
    assert end[0] == 0.7 and len(tried) > 2


def scale(value, start):
    """Where `priors.scale` ends, and all that it tried."""
    tried = []

    def measure(prior):
        tried.append(prior.copy())
        yield "a question"
        return value(prior)

    script = priors.scale(measure, np.atleast_1d(start))
    while True:
        try:
            assert next(script) == "a question"
        except StopIteration as stop:
            return stop.value, np.array(tried)


@pytest.mark.parametrize("best", [2e-3, 0.02, 0.05, 0.1, 0.7, 5.0])
def test_a_prior_is_scaled_to_the_top_of_a_parabola(best):
    end, tried = scale(lambda x: -900.0 - 9 * np.log(x[0] / best) ** 2, [0.1, 0.2])
    np.testing.assert_allclose(end, [best, 2 * best], rtol=1e-6)
    assert len(tried) <= priors.TRIALS + 2


def test_a_prior_is_scaled_as_long_as_it_is_worth_it():
    gain = 1000 * priors.WORTH
    end, tried = scale(lambda x: -1000.0 + 0.9 * gain * (x[0] < 0.05), 0.1)
    assert end[0] in tried and end[0] > 0.1 * priors.SCALE  # not down, for so little
    end, tried = scale(lambda x: -1000.0 + 1.1 * gain * (x[0] < 0.05), 0.1)
    assert end[0] == 0.1 * priors.SCALE


def test_a_prior_that_nothing_is_better_than_stays():
    end, _ = scale(lambda x: -abs(x[0] - 0.5), 0.5)
    assert end[0] == 0.5
    end, tried = scale(lambda x: -x[0], 1e-5)
    assert (tried >= 1e-6).all() and end[0] == 1e-6


@storages
def test_the_best_priors_of_the_margins_are_found(storage):
    """Many rests with phi as it is: the maximum, by the gradient."""
    counts, _ = naive.simulate(40, 30, 3, 60, seed=1)
    fit = play(counts, n_topics=3, storage=storage, learn_priors="both", n_workers=2, n_blocks=3)
    for _ in range(10):
        fit.run_pass()
    before = fit.bound().elbo_f
    for _ in range(20):
        fit.rest(WHEN)
    assert fit.bound().elbo_f > before + 1
    seen, (alpha, eta) = look(fit, counts), learned_of(fit)
    _, target = dirichlet_multinomial(seen.phi_doc.sum(axis=1), alpha)
    np.testing.assert_allclose(target, alpha, rtol=2 * priors.ENOUGH)
    _, target = dirichlet_multinomial(seen.phi_word.sum(axis=0).T, eta)
    assert target.mean() == pytest.approx(eta[0], rel=2 * priors.ENOUGH)


def simulate(n_documents, alpha, eta, n_words, length, seed):
    random = np.random.default_rng(seed)
    topics = random.dirichlet(np.full(n_words, eta), len(alpha))
    theta = random.dirichlet(alpha, n_documents)
    return np.stack([random.multinomial(length, p) for p in theta @ topics]).astype(np.float32)


ALPHA, ETA = np.array([0.05, 0.15, 0.4, 0.8]), 0.1


def learn_from(counts, start_alpha, start_eta, **options):
    options = {"learn_priors": "both", "alpha": start_alpha, "eta": start_eta, **options}
    fit = play(counts, n_topics=4, seed=1, **options)
    for n in range(1, 81):
        fit.run_pass()
        if fit.layout.model.next_rest(n - 1) == n:
            fit.rest(n)
    return fit


@pytest.mark.parametrize("start", [(0.5, 0.5), (0.02, 0.01)])
def test_learned_priors_recover_those_of_simulated_data(start):
    counts = simulate(600, ALPHA, ETA, n_words=150, length=400, seed=0)
    fit = learn_from(counts, *start)
    alpha, eta = learned_of(fit)
    # Mean-field inference sees a little too much of the rare topics.
    np.testing.assert_allclose(np.sort(alpha), ALPHA, rtol=0.1, atol=0.06)
    assert eta[0] == pytest.approx(ETA, rel=0.15)
    symmetric = learn_from(counts, *start, symmetric_alpha=True)
    assert fit.bound().elbo > symmetric.bound().elbo + 50
    fixed = learn_from(counts, *start, learn_priors="none")
    assert symmetric.bound().elbo > fixed.bound().elbo + 50


def test_any_number_of_workers_and_blocks_learns_the_same():
    counts, _ = naive.simulate(30, 20, 3, 50, seed=2)
    phi = np.random.default_rng(0).dirichlet(np.full(3, 0.3), counts.shape)
    found = []
    for n_workers, n_blocks in ((1, 1), (2, 3), (3, 2)):
        fit = play(counts, n_topics=3, n_workers=n_workers, n_blocks=n_blocks, learn_priors="both")
        put(fit, counts, phi)
        fit.rest(WHEN)
        alpha, eta = learned_of(fit)
        assert abs(alpha - 0.1).min() > 0.01 and eta[0] != 0.05
        found.append([*alpha, eta[0]])
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=1e-4)


def test_a_topic_that_nobody_uses_gets_the_least_prior():
    counts, _ = naive.simulate(20, 15, 2, 40, seed=3)
    fit = play(counts, n_topics=3, learn_priors="alpha")
    phi = np.random.default_rng(0).dirichlet(np.ones(3), counts.shape)
    phi[..., 1] = 0
    put(fit, counts, phi / phi.sum(axis=-1, keepdims=True))
    for _ in range(5):
        fit.rest(WHEN)
    alpha = fit.shared["alpha"]
    assert alpha[1] == 1e-6 and alpha[[0, 2]].min() > 0.1
    fit.run_pass()
    assert np.isfinite(fit.bound()).all()
    assert_sums_hold(fit, counts)


@pytest.mark.parametrize("learn", ["alpha", "eta", "both"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_counts_that_are_next_to_nothing_leave_the_priors_as_they_are(learn, symmetric):
    """No digit of the sums that a step is a quotient of comes from them."""
    if learn == "eta" and symmetric:
        return
    counts, _ = naive.simulate(20, 15, 2, 40, seed=3)
    fit = play(counts * 1e-30, n_topics=3, learn_priors=learn, symmetric_alpha=symmetric)
    before = [*map(np.copy, learned_of(fit))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit.rest(WHEN)
    for prior, was in zip(learned_of(fit), before, strict=True):
        np.testing.assert_array_equal(prior, was)


@pytest.mark.parametrize("learn", ["alpha", "eta", "both"])
def test_under_cvb0_the_judge_decides(learn):
    counts, _ = naive.simulate(30, 20, 3, 50, seed=2)
    shown = []

    def after(judge):
        shown.clear()
        options = {"inference": "cvb0", "temper_passes": 0, "learn_priors": learn}
        fit = play(counts, n_topics=3, alpha=0.5, eta=0.3, **options)
        for _ in range(5):
            fit.run_pass()
        fit.bound()
        tokens = fit.shared["lambda_"].sum(axis=0) - 0.3 * 20

        def watched(lambda_rows, word_ids, alpha, *, roughly):
            assert roughly
            # lambda of the prior that is tried, whatever it is.
            eta = (lambda_rows.sum(axis=0) - tokens) / 20
            np.testing.assert_allclose(eta, eta[0], atol=1e-4)
            shown.append((alpha.mean(), eta[0]))
            np.testing.assert_array_equal(word_ids, fit.corpus_arrays["word_ids"])
            return judge(alpha.mean(), eta[0])

        fit.rest(WHEN, watched)
        assert_sums_hold(fit, counts)
        return fit.shared["alpha"].mean(), fit.shared["eta"][0]

    # Nothing is better than what there is: every step is dropped.
    assert after(lambda alpha, eta: 1.0) == (0.5, 0.3)
    assert len(set(shown)) > 2
    # The nearer to a goal the better: never further from it than at the beginning.
    found = []
    for goal in (0.8, 0.1, 0.01):
        alpha, eta = after(lambda alpha, eta, goal=goal: abs(alpha - goal) + abs(eta - goal))
        best = min(abs(a - goal) + abs(e - goal) for a, e in shown)
        assert abs(alpha - goal) + abs(eta - goal) == pytest.approx(best, abs=1e-4)
        found.append((alpha, eta))
    moved = [
        len({*values, start}) > 1
        for values, start in zip(zip(*found, strict=True), (0.5, 0.3), strict=True)
    ]
    assert moved == [learn != "eta", learn != "alpha"]


@pytest.mark.parametrize("goal", [0.03, 0.5, 6.0])
def test_under_cvb0_alpha_is_scaled_to_where_text_is_best(goal):
    """Where the fixed point does not lead: from soft counts it asks for more."""
    counts, _ = naive.simulate(30, 20, 3, 50, seed=2)
    before = np.array([0.2, 0.5, 0.8])
    options = {"inference": "cvb0", "temper_passes": 0, "learn_priors": "alpha"}
    fit = play(counts, n_topics=3, alpha=before, eta=0.3, **options)
    for _ in range(5):
        fit.run_pass()
    shown = []

    def judge(lambda_rows, word_ids, alpha, *, roughly):
        shown.append(alpha)
        return abs(np.log(alpha.mean() / goal)) + np.ptp(np.log(alpha / before))

    fit.rest(WHEN, judge)
    alpha = fit.shared["alpha"]
    np.testing.assert_allclose(alpha.mean(), goal, rtol=0.8)  # no parabola
    np.testing.assert_allclose(alpha / before, alpha[0] / before[0], rtol=1e-6)
    assert len(shown) <= priors.TRIALS + 2
    assert_sums_hold(fit, counts)


def test_under_vb_the_bound_decides_though_there_is_a_judge():
    counts, _ = naive.simulate(30, 20, 3, 50, seed=2)

    def judge(*shown):
        raise AssertionError("asked")

    fit = play(counts, n_topics=3, inference="anneal", learn_priors="both", n_passes=40)
    fit.rest(37, judge)
    assert (fit.shared["alpha"] != 0.1).any()


def test_when_priors_are_learned():
    def times(**options):
        config = FitConfig(**{"n_topics": 2, "n_passes": 100, **options})
        model = Model(config, play(np.ones((2, 2)), n_topics=2).sizes)
        n, found = 0, []
        while (n := model.next_rest(n)) is not None and n <= config.n_passes:
            found.append(n)
        return found

    assert times() == []
    assert times(learn_priors="eta") == [77, 84, 91, 98]
    assert times(learn_priors="eta", inference="vb") == list(range(10, 101, 10))
    # Where held-out text decides, seldom.
    assert times(learn_priors="eta", inference="cvb0") == [90, 100]
    assert times(learn_priors="alpha", inference="cvb0", n_passes=50) == [45]
    assert times(learn_priors="alpha", inference="cvb0", n_passes=30) == [27]
    assert times(learn_priors="alpha", inference="cvb0", n_passes=300) == [90]
    assert times(learn_priors="alpha", inference="cvb0", n_passes=1) == [1]
    rules = {"cvb0_passes": 50, "temper_passes": 0}
    assert times(learn_priors="eta", **rules) == [60, 70, 80, 90, 100]
    assert times(refold_after=(3, 55)) == [3, 55]
    assert times(learn_priors="eta", refold_after=(3, 80)) == [3, 77, 80, 84, 91, 98]


def test_a_refold_alone_learns_nothing():
    counts, _ = naive.simulate(30, 20, 3, 50, seed=2)
    fit = play(counts, n_topics=3, learn_priors="both", refold_after=(3,))
    fit.rest(3)
    assert (fit.shared["alpha"] == 0.1).all() and (fit.shared["eta"] == 0.05).all()


def test_auto_begins_with_the_default_and_learns():
    def config(**options):
        made = FitConfig(**options)
        return made.alpha, made.eta, made.learn_priors

    assert config(alpha="auto") == (0.1, 0.05, "alpha")
    assert config(eta="auto", alpha=0.3) == (0.3, 0.05, "eta")
    assert config(alpha="auto", eta="auto") == (0.1, 0.05, "both")
    assert config(alpha="auto", learn_priors="eta") == (0.1, 0.05, "both")
    assert config(alpha="auto", learn_priors="alpha") == (0.1, 0.05, "alpha")
    assert config(eta="auto", learn_priors="both") == (0.1, 0.05, "both")
    for name in ("alpha", "eta"):
        with pytest.raises(ParameterError, match=f"{name} must be a number, got 'x'"):
            FitConfig(**{name: "x"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learn_priors": "all"}, "learn_priors must be one of alpha, both, eta, none, got 'all'"),
        ({"learn_priors": "eta", "symmetric_alpha": True}, "learn_priors must be alpha or both"),
        ({"symmetric_alpha": True}, "learn_priors must be alpha or both with symmetric_alpha"),
        ({"learn_priors": "both", "eta": np.ones(5)}, "eta must be one number to be learned"),
        (
            {"learn_priors": "alpha", "symmetric_alpha": True, "alpha": np.ones(3)},
            "alpha must be one number with symmetric_alpha",
        ),
        ({"alpha": np.ones(4)}, r"alpha must be a number or have 3 values, got 4"),
        ({"learn_priors": "alpha", "inference": "cvb0"}, "learn_priors must come with holdout un"),
    ],
)
def test_what_cannot_be_learned_is_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        Model.check(FitConfig(n_topics=3, **options), has_judge=False)
    if options.get("inference") == "cvb0":
        Model.check(FitConfig(n_topics=3, **options), has_judge=True)
