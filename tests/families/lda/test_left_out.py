"""What active sets leave out, against the formula for pairs of two topics."""

import numpy as np
import pytest
from scipy.special import psi

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.lda import left_out
from tests.families.lda.play import play

ALPHA = np.full(2, 0.1)


def measure(corpus, gamma, lambda_, eta, tolerance):
    sample = left_out.draw(corpus.n_documents, 0)
    return left_out.measure(
        corpus.rows(sample),
        np.array(gamma),
        lambda_,
        np.arange(len(lambda_)),
        ALPHA,
        eta,
        tolerance,
    )


def phi_of(gamma, lambda_):
    """phi over all topics of each word, by the definition."""
    elog = psi(gamma) + psi(lambda_) - psi(lambda_.sum(axis=0))
    phi = np.exp(elog - elog.max(axis=1, keepdims=True))
    return phi / phi.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("gamma", "lambda_", "eta"),
    [
        # The document lacks the second topic.
        ([90.1, 0.101], [[9.0, 5.0], [2.0, 40.0], [1.0, 1.0]], 0.01),
        # The words do.
        ([9.1, 40.0], [[700.0, 0.1], [800.0, 0.1], [0.1, 900.0]], 0.1),
    ],
)
def test_mass_and_gap_are_those_of_phi(gamma, lambda_, eta):
    corpus = Corpus.from_tokens([["a", "b", "b"]])
    lambda_, eta = np.array(lambda_), np.full(3, eta)
    phi = phi_of(np.array(gamma), lambda_)
    share = phi[:, 1]
    state = corpus, [gamma], lambda_, eta
    found = measure(*state, 0.1)
    assert (found["documents"], found["tokens"]) == (1, 3.0)
    assert found["mass"] == pytest.approx((share[0] + 2 * share[1]) / 3, rel=1e-9)
    assert found["mass"] > 1e-9
    gap = -(np.log(phi[0, 0]) + 2 * np.log(phi[1, 0])) / 3
    assert found["elbo_gap"] == pytest.approx(gap, rel=1e-9)
    # Where that were too much, the pairs are updated over all topics.
    found = measure(*state, share[:2].min() / 1000)
    assert max(found["mass"], found["elbo_gap"]) < share[:2].min() / 1000


def test_a_fit_leaves_out_less_than_its_tolerance():
    random = np.random.default_rng(0)
    counts = random.poisson(random.gamma(0.2, 3.0, (150, 60))).astype(np.float32)
    fit = play(counts, n_topics=40, dense_passes=3, n_blocks=2)
    for _ in range(8):
        fit.run_pass()
    row_of_word = np.argsort(fit.corpus_arrays["word_ids"])
    eta = np.full(60, 0.05)
    state = fit.shared["lambda_"], row_of_word, fit.shared["alpha"], eta

    def of(seed, tolerance=1e-3):
        sample = left_out.draw(150, seed)
        return left_out.measure(fit.corpus.rows(sample), fit.gamma[sample], *state, tolerance)

    found = of(5)
    assert found["documents"] == left_out.SAMPLE
    assert 0 < found["mass"] < 1e-3 and 0 < found["elbo_gap"] < 1e-3
    assert found == of(5) != of(6)
    assert of(5, 1e-9)["mass"] < found["mass"] / 100
