"""The oracle is right where the answer is known without it."""

import numpy as np
import pytest

from tests import naive


def random_lda(seed: int, n_topics: int = 3, tokens: float = 6.0) -> naive.Lda:
    random = np.random.default_rng(seed)
    counts = random.poisson(tokens / 12, (4, 3))
    counts[0, 0] += 1
    phi = random.dirichlet(np.ones(n_topics), counts.shape)
    return naive.Lda(counts, phi, random.uniform(0.1, 2, n_topics), random.uniform(0.1, 2, 3))


@pytest.mark.parametrize("seed", range(3))
def test_every_way_raises_the_bound_towards_the_evidence(seed):
    start = random_lda(seed)
    evidence = naive.log_evidence(start.counts, start.alpha, start.eta)
    assert np.isfinite(evidence)
    pairs = list(zip(*np.nonzero(start.counts), strict=True))
    for way in ("visits", "tokens", "batch"):
        lda = random_lda(seed)
        before = lda.bound_f()
        for _ in range(20):
            if way == "visits":
                for words in (np.array([0, 2]), np.array([1])):
                    lda.visit(range(4), words)
            elif way == "tokens":
                lda.token_pass(pairs)
            else:
                lda.batch_pass()
            assert before - 1e-12 <= lda.bound_f() <= lda.bound_l() + 1e-12 <= evidence + 1e-12
            before = lda.bound_f()
        assert evidence - lda.bound_l() < 0.4 * abs(evidence)


def test_all_ways_have_the_same_fixed_points():
    lda = random_lda(5)
    for _ in range(500):
        lda.token_pass(zip(*np.nonzero(lda.counts), strict=True))
    there = lda.gamma.copy(), lda.lambda_.copy()
    assert lda.bound_f() == pytest.approx(lda.bound_l(), abs=1e-10)
    lda.visit(range(4), np.arange(3))
    lda.batch_pass()
    np.testing.assert_allclose(lda.gamma, there[0], rtol=1e-6)
    np.testing.assert_allclose(lda.lambda_, there[1], rtol=1e-6)


def test_one_topic_is_exact():
    lda = random_lda(1, n_topics=1)
    exact = naive.log_evidence_one_topic(lda.counts, lda.eta)
    assert naive.log_evidence(lda.counts, lda.alpha, lda.eta) == pytest.approx(exact, abs=1e-10)
    assert lda.bound_f() == pytest.approx(exact, abs=1e-10)
    assert lda.bound_l() == pytest.approx(exact, abs=1e-10)
