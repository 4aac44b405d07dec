"""exp(digamma) of rows of which few values are far from their prior, against scipy."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import psi

from esvi_shm.families.lda.few import (
    BATCH,
    NEAR,
    document_factors_of,
    few_bytes,
    make_few,
    set_prior,
    word_factors_of,
)
from esvi_shm.vector import padded


def exact(x, prior, power):
    """E to the power relative to the largest; below 1e-17 of it whatever is below that."""
    log_e = psi(np.maximum(x, prior).astype(np.float64))
    return np.exp(power * (log_e - log_e.max(axis=-1, keepdims=True)))


def assert_near(got, wanted, x):
    scale = wanted.max(axis=1, keepdims=True)
    got = got / got.max(axis=1, keepdims=True)
    # As exp_digamma_row and power_row promise, and of rounding that is taken for the prior. The
    # least that is not 0, 1e-19 where the largest is 1/4 to 1, is 2e-15 to the power 0.8.
    allowed = wanted * (2.5e-5 + 4e-6 / x) + 2e-15 * scale
    wrong = np.abs(got - wanted) > allowed
    assert not wrong.any(), (x[wrong], got[wrong], wanted[wrong])


def rows_of(random, n_rows, n_topics, prior, share_far):
    """Rows as fits have them: some values far from the prior, others at it, or hardly above."""
    far = random.random((n_rows, n_topics)) < share_far[:, None]
    x = prior + far * 10.0 ** random.uniform(-3, 4, far.shape)
    return x.astype(np.float32)


cases = {
    "seed": st.integers(0, 2**32 - 1),
    "n_topics": st.one_of(st.integers(1, 150), st.sampled_from([16, 64, 128, 192])),
    "power": st.sampled_from([1.0, 0.9, 0.8]),
    "prior": st.floats(-3, 1).map(lambda e: 10.0**e),
}


@settings(deadline=None)
@given(**cases)
@example(seed=28624, n_topics=109, power=0.8, prior=10.0**-1.90625)
def test_words(seed, n_topics, power, prior):
    random, n_words, length = np.random.default_rng(seed), 2 * BATCH + 3, padded(n_topics)
    eta = np.full(n_words, prior, np.float32)
    eta[1] *= 2
    x = rows_of(random, n_words, n_topics, eta[:, None], random.choice([0, 0.1, 0.5, 1], n_words))
    # What float32 leaves where tokens have gone.
    x *= 1 + random.choice([0, 1e-7, 5e-7], x.shape).astype(np.float32)
    factor = np.zeros(length, np.float32)
    factor[:n_topics] = random.uniform(0.1, 1, n_topics)
    order = random.permutation(n_words).astype(np.int32)
    rows = np.full(2 * length * (n_words - 1), np.float32(7))
    word_factors_of(x, order, 1, n_words, eta, power, factor, make_few(n_topics), rows)
    rows = rows.reshape(n_words - 1, 2, length)
    assert (rows[:, 1] == 7).all() and (rows[:, 0, n_topics:] == 0).all()
    order = order[1:]
    got = rows[:, 0, :n_topics] / factor[:n_topics]
    assert (got.max(axis=1) > 0.1).all() and got.max() < 1 + 1e-6
    assert_near(got, exact(x[order], eta[order, None], power), x[order])


@settings(deadline=None)
@given(**cases)
def test_documents(seed, n_topics, power, prior):
    random, few = np.random.default_rng(seed), make_few(n_topics)
    alpha = (prior * random.choice([1, 1, 3], n_topics)).astype(np.float32)
    few.thetas[:] = 7
    few.thetas[:, n_topics:] = 0
    set_prior(alpha, power, few)
    x = rows_of(random, BATCH, n_topics, alpha, random.choice([0, 0.1, 0.5, 1], BATCH))
    # Hardly above the prior, on both sides of what is near.
    dust = 10.0 ** random.uniform(-8, 0.5, x.shape) * random.integers(0, 2, x.shape)
    x += (dust * NEAR * np.minimum(alpha**2, 1)).astype(np.float32)
    n = int(random.integers(1, BATCH + 1))
    order = random.permutation(BATCH).astype(np.int32)
    document_factors_of(x, order, BATCH - n, BATCH, alpha, power, few)
    x, got = x[order[BATCH - n :]], few.thetas[:n]
    assert (got[:, n_topics:] == 0).all()
    got = got[:, :n_topics]
    assert (got.max(axis=1) > 0.1).all() and got.max() < 1 + 1e-6
    assert ((got == 0) | (got > 1e-30)).all()  # products of subnormal numbers take very long
    assert_near(got, exact(x, alpha, power), x)


@pytest.mark.parametrize("alpha", [0.03, 0.1, 1.0, 50.0, 1e6])
def test_a_document_near_its_prior_goes_by_a_parabola(alpha):
    """To the bound that the module states, over all that is near."""
    few, priors = make_few(16), np.full(16, alpha, np.float32)
    set_prior(priors, 1.0, few)
    x = np.tile(priors, (1, 1))
    d = np.linspace(0, NEAR * min(alpha**2, 1.0), 15, endpoint=False)
    x[0, :15] += d.astype(np.float32)
    x[0, 15] += 20
    document_factors_of(x, np.zeros(1, np.int32), 0, 1, priors, 1.0, few)
    got = few.thetas[0, :15] / few.thetas[0, 15]
    e = psi(x[0].astype(np.float64))
    np.testing.assert_allclose(got, np.exp(e[:15] - e[15]), rtol=3e-6 + 1e-7 / alpha)


@pytest.mark.parametrize("n_topics", [1, 100, 1024, 8192])
def test_its_bytes_are_planned(n_topics):
    made = sum(array.nbytes for array in make_few(n_topics))
    assert few_bytes(n_topics) == pytest.approx(made, rel=0.02, abs=1000)
