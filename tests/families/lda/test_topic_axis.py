"""The topic axis: updates on some topics alone, in one process."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families.lda.play import (
    assert_sums_hold,
    bound_noise,
    cases,
    documents_of,
    look,
    oracle_of,
    play,
    rule_of,
    stored_phi,
    words_of,
)
from tests.families.lda.test_paths import disjoint_fit

AXIS = {"storage": "full", "axis": "topics"}


@st.composite
def axis_cases(draw, **options):
    """A case with no more blocks than topics, and for each visit a worker and some blocks."""
    case = draw(cases(**options))
    n_blocks = min(case.options["n_blocks"], case.options["n_topics"])
    case.options |= {**AXIS, "n_blocks": n_blocks}
    blocks = st.lists(st.integers(0, n_blocks - 1), min_size=1, unique=True)
    workers = st.integers(0, case.options["n_workers"] - 1)
    return case, draw(st.lists(st.tuples(workers, blocks), min_size=1, max_size=6))


def visit(fit, worker, blocks):
    fit.workers[worker].visit_together(blocks, fit.passes)


def held(fit, blocks):
    return np.concatenate([fit.layout.model.topics_of(b) for b in sorted(blocks)])


def test_blocks_deal_out_the_topics():
    fit = play(np.ones((3, 7)), n_topics=11, n_blocks=4, **AXIS)
    parts = [fit.layout.model.topics_of(b) for b in range(4)]
    assert np.concatenate(parts).tolist() == list(range(11))
    assert {len(part) for part in parts} == {2, 3}


@settings(max_examples=40)
@given(axis_cases(most_count=50, max_topics=8))
def test_a_visit_is_the_restricted_update(drawn):
    case, visits = drawn
    fit, counts = case.fit(), case.counts
    for worker, blocks in visits:
        fit.bound()  # removes the drift, so that what follows is one visit's
        lda, before = oracle_of(fit, counts), stored_phi(fit)
        lda.inference, lda.power, _ = rule_of(fit, fit.passes)
        topics = held(fit, blocks)
        words = [words_of(fit, b) for b in range(fit.sizes.n_blocks)]
        lda.visit_topics(documents_of(fit, worker), words, topics)
        visit(fit, worker, blocks)
        after = stored_phi(fit)
        # An error of gamma or lambda, which are float32, comes back by E, which is steep below 1.
        near = {"rtol": 2e-3, "atol": 1e-3}
        there = counts > 0
        np.testing.assert_allclose(after[there], lda.phi[there], **near)
        others = np.setdiff1d(np.arange(after.shape[2]), topics)
        np.testing.assert_array_equal(after[..., others], before[..., others])
        mass = before[..., topics].sum(axis=2)
        np.testing.assert_allclose(after[..., topics].sum(axis=2), mass, rtol=1e-5, atol=1e-30)
        elsewhere = np.setdiff1d(np.arange(len(counts)), documents_of(fit, worker))
        np.testing.assert_array_equal(after[elsewhere], before[elsewhere])


@settings(max_examples=40)
@given(axis_cases(most_count=1e4), st.booleans())
def test_the_bound_never_falls_at_any_number_of_workers(drawn, at_once):
    """Whatever meets where; `at_once`: before any sum is refreshed."""
    case, visits = drawn
    fit = case.fit(inference="vb", power=1.0, temper_passes=0)
    noise = bound_noise(case.counts)
    before = fit.bound().elbo_f
    for worker, blocks in visits:
        visit(fit, worker, blocks)
        if not at_once:
            after = fit.bound().elbo_f
            assert after >= before - noise
            before = after
    assert fit.bound().elbo_f >= before - noise
    assert_sums_hold(fit, case.counts)


@pytest.mark.parametrize("inference", ["vb", "cvb0"])
def test_all_topics_together_are_a_pass_of_the_word_axis(inference):
    counts = np.random.default_rng(0).poisson(0.7, (20, 15))
    options = {"n_topics": 6, "n_blocks": 3, "n_workers": 2, "inference": inference,
               "leave_out": "none", "storage": "full"}  # fmt: skip
    words, topics = play(counts, **options), play(counts, **options, axis="topics")
    for _ in range(3):
        words.run_pass([(p, b) for p in range(2) for b in range(3)])
        for worker in range(2):
            visit(topics, worker, range(3))
        topics.passes += 1
    np.testing.assert_allclose(stored_phi(topics), stored_phi(words), rtol=1e-3, atol=1e-4)
    assert topics.bound().elbo_f == pytest.approx(words.bound().elbo_f, abs=bound_noise(counts))


def test_an_optimum_of_the_word_axis_is_one_of_topics_that_meet_in_pairs():
    counts = np.random.default_rng(1).poisson(1.0, (30, 20))
    options = {"n_topics": 4, "n_workers": 2, "n_blocks": 4, "storage": "full", "seed": 1}
    words, topics = play(counts, **options), play(counts, **options, axis="topics")
    for _ in range(400):
        words.run_pass()
    words.bound()
    for name in ("phi", "gamma"):
        for mine, theirs in zip(topics.shards, words.shards, strict=True):
            mine[name][:] = theirs[name]
    optimum, before = words.bound().elbo_f, topics.bound().elbo_f
    assert before == pytest.approx(optimum, abs=0.01)
    for first in range(4):
        for second in range(first + 1, 4):
            for worker in range(2):
                visit(topics, worker, [first, second])
    assert topics.bound().elbo_f == pytest.approx(optimum, abs=0.05)


def test_pairs_without_a_common_topic_go_through_the_log_domain():
    counts, fit = disjoint_fit("full", n_workers=2, n_blocks=3, axis="topics")
    lda = oracle_of(fit, counts)
    words = [words_of(fit, b) for b in range(3)]
    for blocks in ([0, 1], [1, 2], [0, 2], [0, 1, 2]):
        for worker in range(2):
            lda.visit_topics(documents_of(fit, worker), words, held(fit, blocks))
            visit(fit, worker, blocks)
    np.testing.assert_allclose(stored_phi(fit), lda.phi, rtol=1e-3, atol=1e-3)
    assert fit.bound().elbo_f == pytest.approx(lda.bound_f(), abs=0.05)


def test_a_lone_topic_moves_nothing():
    counts = np.random.default_rng(2).poisson(1.0, (9, 8))
    fit = play(counts, n_topics=3, n_blocks=3, **AXIS)
    before = look(fit, counts)
    visit(fit, 0, [1])
    for a, b in zip(before, look(fit, counts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_rounding_is_tidied_at_a_rest():
    counts = np.random.default_rng(3).poisson(1.0, (12, 9))
    fit = play(counts, n_topics=5, n_blocks=5, **AXIS)
    fit.shards[0]["phi"][:] *= 1.001
    bound = fit.bound()
    np.testing.assert_allclose(fit.shards[0]["phi"].sum(axis=1), 1, rtol=1e-6)
    lda = oracle_of(fit, counts)
    assert bound.elbo_f == pytest.approx(lda.bound_f(), abs=bound_noise(counts))
