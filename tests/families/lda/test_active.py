"""Active sets: visits over the topics of document and word, against the same in NumPy."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma

from esvi_shm.config import FitConfig
from esvi_shm.families.lda import exclusion, listed, thresholds
from esvi_shm.families.lda.schedule import Schedule
from esvi_shm.families.lda.update import FLUSH_ROWS
from tests.families.lda.play import assert_sums_hold, bound_noise, cases, look, play
from tests.families.lda.test_invariants import assert_within_priors
from tests.families.lda.test_visits import assert_sums_are_gone
from tests.naive import left_out


def factors_of(x, rule):
    """E of a row relative to its largest; what `exp_digamma_row` takes for 0 is 0."""
    logs = rule.power * (np.log(x) if rule.cvb0 else digamma(x))
    factors = np.exp(logs - logs.max())
    return np.where(factors < 1e-19, 0.0, factors)


def cuts(largest, cvb0):
    """Tokens from which on a topic is a document's, and a word's."""
    if cvb0:
        return min(0.1 * largest, 0.2), min(0.1 * largest, 0.02)
    return min(1e-3 * largest, 0.02), 1e-5 * largest


def placed(phi, topics, tolerance):
    """phi of a pair over more topics, without those that are negligible."""
    above = phi >= tolerance
    enough = phi[above].sum() >= max(1 - thresholds.SCATTERED * tolerance, 0.5)
    phi = np.where(above if enough else phi >= tolerance / topics.sum(), phi, 0.0)
    return phi / phi.sum()


def restricted(gamma, lambda_, log_pi, rule, count, factors, topics):
    """phi of a pair over some topics, and the sum of their factors with what is left out."""
    logs = np.log if rule.cvb0 else digamma
    w = np.where(topics, np.exp(rule.power * (logs(gamma) + logs(lambda_)) - log_pi), 0.0)
    amount = float(left_out(np.array(count), exclusion.CHOICES[rule.leave_out]))
    own, s = 1 / gamma + 1 / lambda_, w.sum()
    f = 1 / (1 + amount / s * (1 + amount * (w**2 * own).sum() / s**2) * w * own)
    return w * f / (w * f).sum(), (factors * f)[topics].sum()


def visit_naively(fit, counts, block, tolerance):
    """What `active.visit` leads to in a fit of one worker.

    Margins, gamma, lambda, entropy, tokens outside at most; and how many pairs were updated over
    few, more and all topics.
    """
    seen, rule = look(fit, counts), fit.workers[0].rule
    alpha, eta = (fit.shared[name] for name in ("alpha", "eta"))
    rows = slice(*fit.corpus_arrays["block_bounds"][block : block + 2])
    words = fit.corpus_arrays["word_ids"][rows]
    eta = eta[rows]
    gamma, lambda_ = seen.gamma.copy(), seen.lambda_.copy()
    phi_doc, phi_word = seen.phi_doc.copy(), seen.phi_word.copy()
    pi = lambda_.sum(axis=0)
    log_pi = rule.power * (np.log(pi) if rule.cvb0 else digamma(pi))
    inverse_pi = np.exp(log_pi.min() - log_pi)
    lives, beta, edge = {}, {}, {}
    for v, prior in zip(words, eta, strict=True):
        above = lambda_[v] - prior
        lives[v] = (above >= cuts(above.max(), rule.cvb0)[1]) & (above > listed.ROUNDING * prior)
        left = np.where(lives[v], 0.0, phi_word[0, v])
        lambda_[v] -= left
        phi_word[0, v] -= left
        *row, edge[v] = factors_of(np.append(lambda_[v], prior), rule)
        beta[v] = np.array(row) * inverse_pi
        most = np.inf if rule.cvb0 else thresholds.EDGE_CUT * beta[v][lives[v]].sum()
        if lives[v].all() or not lives[v].any() or edge[v] > most:
            lives[v], edge[v] = np.ones_like(lives[v]), 0.0
    start, entropy, outside = lambda_.copy(), 0.0, 0.0
    new_word = np.zeros_like(phi_word[0])
    ways = [0, 0, 0]
    for d in range(len(counts)):
        present = [v for v in words if counts[d, v] > 0]
        if not present:
            continue
        above = gamma[d] - alpha
        own = above >= cuts(above.max(), rule.cvb0)[0]
        left = np.where(own, 0.0, phi_doc[d, block])
        gamma[d] -= left
        phi_doc[d, block] -= left
        new = np.zeros(len(alpha))
        *theta, beyond = factors_of(np.append(gamma[d], max([alpha.max(), *gamma[d][~own]])), rule)
        theta, beyond = np.array(theta), 0.0 if own.all() else beyond
        for v in present:
            over = partial(restricted, gamma[d], start[v], log_pi, rule, counts[d, v])
            factors = theta * beta[v]
            all_left_out = edge[v] * (theta[own] @ inverse_pi[own] + beyond * inverse_pi.sum())
            topics, way = lives[v] & own, 0
            beside = beyond * beta[v][lives[v]].sum() + all_left_out
            phi, s = over(factors, topics) if topics.any() else (None, 0.0)
            outside += counts[d, v] * min(beside / (s + beside), tolerance / (1 + tolerance))
            if rule.cvb0:
                few = beside <= tolerance * s
            else:
                peak = max(beta[v][lives[v]].max(), edge[v])
                single = beyond * peak + edge[v] * (theta[own] @ inverse_pi[own])
                few = single <= tolerance * s and beside <= max(1, min(10, 0.5 / tolerance)) * (
                    tolerance * s
                )
            if not few:
                topics, way = lives[v], 1
                phi, s = over(factors, topics)
                if all_left_out > tolerance * s:
                    topics, way = np.ones_like(own), 2
                    phi, s = over(factors, topics)
                phi = placed(phi, topics, 0.1 if rule.cvb0 else tolerance)
            ways[way] += 1
            new += counts[d, v] * phi
            new_word[v] += counts[d, v] * phi
            entropy -= counts[d, v] * float(np.sum(phi[phi > 0] * np.log(phi[phi > 0])))
        gamma[d] += new - phi_doc[d, block]
        phi_doc[d, block] = new
    lambda_[words] += new_word[words] - phi_word[0, words]
    phi_word[0, words] = new_word[words]
    return (gamma, lambda_, phi_doc, phi_word, entropy, outside), ways


def poisson(seed, shape=(12, 15)):
    random = np.random.default_rng(seed)
    counts = random.poisson(random.gamma(0.3, 2.0, shape)).astype(np.float32)
    counts[0, 0] = 1
    return counts


def assert_visits_are_naive(fit, counts, tolerance):
    """Visit each block; returns how many pairs were updated over few, more and all topics."""
    ways = np.zeros(3, int)
    worker = fit.workers[0]
    worker._take_rule_of(fit.passes)
    worker.rule = worker.rule._replace(tolerance=np.float32(tolerance))
    for block in range(fit.sizes.n_blocks):
        expected, of_block = visit_naively(fit, counts, block, tolerance)
        ways += of_block
        worker._visit_active(block, want_entropy=True)
        assert_sums_are_gone(worker)
        seen = look(fit, counts)
        near = {"rtol": 2e-4, "atol": 2e-4 * (1 + counts.max())}
        for name, value in zip(
            ("gamma", "lambda_", "phi_doc", "phi_word"), expected[:4], strict=True
        ):
            np.testing.assert_allclose(getattr(seen, name), value, **near, err_msg=name)
        assert fit.shared["entropy"][0, block] == pytest.approx(
            expected[4], rel=1e-3, abs=1e-3 * float(1 + counts.sum())
        )
        if worker.rule.cvb0:
            found = fit.shared["cvb0_left_out"][0, block]
            assert found == pytest.approx(expected[5], rel=1e-3, abs=1e-3)
    return ways


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_topics=st.sampled_from([1, 2, 8, 9, 16, 60, 200, 600]),
    tolerance=st.sampled_from([1e-6, 1e-3, 0.3]),
    alpha=st.sampled_from([0.02, 0.1, 1.0]),
    eta=st.sampled_from([0.01, 0.05, 0.5]),
)
def test_a_visit_is_the_naive_one(seed, n_topics, tolerance, alpha, eta):
    counts = poisson(seed)
    fit = play(
        counts, n_topics=n_topics, n_blocks=2, alpha=alpha, eta=eta, seed=seed, dense_passes=2
    )
    for _ in range(3):
        fit.run_pass()
    fit.bound()
    assert_visits_are_naive(fit, counts, tolerance)


@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_topics=st.sampled_from([1, 2, 9, 60, 200]),
    tolerance=st.sampled_from([0.1, 1.0, 10.0]),
    alpha=st.sampled_from([0.02, 0.1, 1.0]),
    eta=st.sampled_from([0.01, 0.5]),
    power=st.sampled_from([0.8, 1.0]),
    leave_out=st.sampled_from(exclusion.CHOICES),
)
def test_a_visit_by_cvb0_is_the_naive_one(seed, n_topics, tolerance, alpha, eta, power, leave_out):
    counts = poisson(seed)
    fit = play(
        counts, n_topics=n_topics, n_blocks=2, alpha=alpha, eta=eta, seed=seed, dense_passes=2,
        inference="cvb0", leave_out=leave_out, power=power, temper_passes=0,
    )  # fmt: skip
    for _ in range(3):
        fit.run_pass()
    fit.bound()
    assert_visits_are_naive(fit, counts, tolerance)


def test_sums_over_thousands_of_documents_are_flushed():
    """Those of frequent words alone, where they have tiles of their own among the others'."""
    random = np.random.default_rng(5)
    chances = (0.3, 1.0, 0.1, 0.6, 0.2)
    counts = (random.random((2 * FLUSH_ROWS + 50, 5)) < chances) * random.integers(
        1, 4, (2 * FLUSH_ROWS + 50, 5)
    )
    fit = play(counts, n_topics=20, alpha=0.1, eta=0.01, dense_passes=1)
    fit.run_pass()
    fit.bound()
    assert_visits_are_naive(fit, counts, 1e-3)


def test_pairs_are_updated_over_as_many_topics_as_they_need():
    ways = np.zeros(3, int)
    for alpha, eta, tolerance in ((0.1, 0.05, 1e-3), (0.1, 0.08, 1e-12), (1.0, 0.05, 1e-6)):
        counts = poisson(3)
        fit = play(counts, n_topics=60, n_blocks=2, alpha=alpha, eta=eta, dense_passes=2)
        for _ in range(3):
            fit.run_pass()
        fit.bound()
        ways += assert_visits_are_naive(fit, counts, tolerance)
    assert (ways > 4).all()


def assert_the_rest_is_at_its_prior(fit):
    for values, prior, live in (
        (fit.gamma, fit.shared["alpha"], fit.workers[0].lists.live),
        (fit.shared["lambda_"], fit.shared["eta"][:, None], fit.shared["live_topics"]),
    ):
        bits = np.unpackbits(live.view(np.uint8), axis=1, bitorder="little")
        bits = bits[:, : values.shape[1]]
        assert not ((values - prior > 1e-4) & (bits == 0)).any()
        assert bits.mean() < 0.9


def test_what_is_live_is_found_again_after_a_command():
    fit = play(poisson(7), n_topics=30, n_blocks=3, dense_passes=0, refold_after=(2,))
    for _ in range(2):
        fit.run_pass()
    # As if all had been in topic 0 until then.
    fit.workers[0].lists.live[:], fit.shared["live_topics"][:] = 1, 1
    fit.rest(2)
    fit.run_pass()
    assert_the_rest_is_at_its_prior(fit)


def test_what_is_live_is_found_again_after_a_visit_of_all_topics():
    """A block of the last dense pass may come after one of the first active pass."""
    fit = play(poisson(7), n_topics=30, n_blocks=2, dense_passes=1)
    visit = fit.workers[0].visit
    visit(0, 1, want_entropy=True)
    first, last = fit.corpus_arrays["block_bounds"][1:3]
    fit.workers[0].lists.live[:], fit.shared["live_topics"][first:last] = 1, 1
    fit.shared["knows_live"][1] = True
    visit(1, 0, want_entropy=True)
    visit(0, 1, want_entropy=True)
    visit(1, 1, want_entropy=True)
    assert_the_rest_is_at_its_prior(fit)


@given(case=cases(), dense_passes=st.integers(0, 2))
def test_sums_hold_and_the_bounds_are_bounds(case, dense_passes):
    fit, counts = case.fit(dense_passes=dense_passes), case.counts
    for order in case.orders:
        fit.run_pass(order)
        assert_within_priors(fit, counts)
        bound = fit.bound()
        assert_sums_hold(fit, counts)
        if fit.layout.model.schedule.relax(fit.passes - 1) == 1.0:  # else no phi has these sums
            assert bound.elbo >= bound.elbo_f - bound_noise(counts)


def test_sums_hold_where_passes_by_vb_follow_those_by_cvb0():
    """What pairs that were updated over a word's topics left out is of no matter then."""
    counts, alpha = np.eye(3, dtype=np.float32), np.append(np.ones(87), 60.0)
    options = {"inference": "anneal", "cvb0_passes": 3, "alpha": alpha, "eta": 0.1}
    fit = play(counts, n_topics=88, dense_passes=1, **options)
    fit.run_pass()
    for _ in range(5):
        fit.run_pass()
        assert fit.workers[0].lists.counts[1] > 0
        fit.bound()
        assert_sums_hold(fit, counts)


@pytest.mark.parametrize("inference", ["vb", "cvb0"])
def test_tokens_are_placed_once_where_priors_are_far_apart(inference):
    """What one topic may have by rounding is many tokens to another."""
    alpha, counts = np.append(100.0, np.full(299, 0.18)), np.full((1, 20), 0.5, np.float32)
    options = {"start": "scikit-learn", "inference": inference, "dense_passes": 1}
    fit = play(counts, n_topics=300, alpha=alpha, eta=1.0, **options)
    for _ in range(4):
        fit.run_pass()
        fit.bound()
        seen = look(fit, counts)
        assert seen.phi_doc.sum() == pytest.approx(10, rel=1e-4)
        assert seen.phi_word.sum() == pytest.approx(10, rel=1e-4)


def simulated(n_topics=70, n_words=300, n_documents=80, seed=0):
    random = np.random.default_rng(seed)
    topics = random.dirichlet(np.full(n_words, 0.05), n_topics)
    theta = random.dirichlet(np.full(n_topics, 0.05), n_documents)
    return np.stack([random.multinomial(120, t @ topics) for t in theta]).astype(np.float32)


def test_it_ends_where_dense_passes_end():
    counts, options = simulated(), {"n_topics": 70, "alpha": 0.1, "n_blocks": 4}
    dense, sparse = play(counts, **options), play(counts, dense_passes=5, **options)
    for _ in range(40):
        dense.run_pass()
        sparse.run_pass()
    assert sparse.workers[0].lists is not None and dense.workers[0].lists is None
    tokens = float(counts.sum())
    assert sparse.bound().elbo / tokens == pytest.approx(dense.bound().elbo / tokens, abs=0.02)


def test_the_bound_of_what_is_held_rises():
    fit = play(simulated(), n_topics=70, n_blocks=4, dense_passes=3)
    for _ in range(5):
        fit.run_pass()
    tokens, before = fit.corpus.n_tokens, fit.bound().elbo_f
    for _ in range(10):
        fit.run_pass()
        bound = fit.bound().elbo_f
        # What a list drops is below a thousandth of its document's tokens.
        assert bound >= before - 1e-4 * tokens
        before = bound


def test_documents_find_new_topics():
    """Two documents of one topic each; the words of one are put into the other's topic."""
    counts = np.zeros((2, 8), np.float32)
    counts[0, :4], counts[1, 4:] = 5, 5
    fit = play(counts, n_topics=40, dense_passes=0, start="random", alpha=0.1, eta=0.01)
    for _ in range(60):
        fit.run_pass()
    dense = play(counts, n_topics=40, start="random", alpha=0.1, eta=0.01)
    for _ in range(60):
        dense.run_pass()
    assert fit.bound().elbo == pytest.approx(dense.bound().elbo, rel=0.02)


@pytest.mark.parametrize("n_topics", [1, 3, 60])
@pytest.mark.parametrize("prior", [1e-3, 100.0])
def test_counts_below_the_resolution_of_the_priors_are_placed(n_topics, prior):
    counts = np.array([[1e-6, 0, 0, 0], [0, 1e-6, 3, 0], [0, 0, 1, 1e-5]])
    fit = play(counts, n_topics=n_topics, alpha=prior, eta=prior, dense_passes=0, n_blocks=2)
    for _ in range(3):
        fit.run_pass()
        seen = look(fit, counts)
        np.testing.assert_allclose(seen.phi_doc.sum(axis=(1, 2)), counts.sum(axis=1), rtol=1e-2)
        np.testing.assert_allclose(seen.phi_word.sum(axis=(0, 2)), counts.sum(axis=0), rtol=1e-2)
        assert np.isfinite(fit.bound()).all()


def test_which_passes_are_dense():
    def tolerances(**options):
        passes = Schedule(FitConfig(n_passes=6, **options))
        return [passes.tolerance(n) > 0 for n in range(6)]

    assert tolerances(inference="vb") == [False] * 6
    assert tolerances(inference="vb", dense_passes=2) == [False] * 2 + [True] * 4
    assert tolerances(inference="cvb0", dense_passes=2) == [False] * 2 + [True] * 4
    assert tolerances(inference="anneal", cvb0_passes=4, dense_passes=2) == [False] * 2 + [True] * 4
