"""beta of unseen documents' words, as rows or lists, is what its definition gives in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import psi

from esvi_shm.families.lda.beta import (
    ALL,
    SPARSE,
    expected_topics,
    frozen,
    given_topics,
    sum_columns,
)
from esvi_shm.families.lda.unseen import make_rule

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(2, 70), st.integers(1, 150), st.booleans(), st.floats(0.01, 0.5))
def test_topics_are_expected_by_their_definition(seed, n_words, n_topics, cvb0, shape):
    rng = np.random.default_rng(seed)
    lambda_ = (rng.gamma(shape, 40.0, (n_words, n_topics)) + 0.01).astype(np.float32)
    alpha = rng.uniform(0.05, 0.6, n_topics)
    words = rng.permutation(n_words)
    pi = lambda_.sum(axis=0, dtype=np.float64)

    def spread(work, ends):
        """In two pieces, the last first."""
        assert len(ends) == n_words + 1
        work(n_words // 2, n_words)
        work(0, n_words // 2)

    topics = expected_topics(lambda_, pi, words, make_rule(alpha, cvb0), spread)
    log_e = np.log if cvb0 else psi
    prior = np.exp(log_e(alpha.astype(np.float32).astype(np.float64)))
    prior /= prior.max()
    factor = np.exp(log_e(pi).min() - log_e(pi))
    for i, word in enumerate(words):
        exact = np.exp(log_e(lambda_[word].astype(np.float64)) - log_e(pi))
        row = np.zeros(n_topics)
        values = topics.values[topics.begins[i] :]
        n = topics.listed[i]
        if n == ALL:
            row[:] = values[:n_topics]
            assert not values[n_topics : -(-n_topics // 16) * 16].any()
        else:
            row[topics.topics[topics.numbered[i] :][:n]] = values[:n]
            assert SPARSE * n <= n_topics
        # The largest E is from 1/4 to 1, also where all of lambda_ is small.
        assert row.max() > 0.2 * factor[lambda_[word].argmax()] - 1e-30
        # Below it, E of lambda_ and pi may be less than a float32 holds: the log domain's.
        if row.sum() > 1e-9:
            exact *= row.sum() / exact.sum()
            np.testing.assert_allclose(row, exact, rtol=2e-5, atol=1e-18)
        assert topics.sums[i] == pytest.approx(row.sum(), rel=1e-5)
        assert topics.apart[i] == pytest.approx(row @ prior, rel=1e-4)


def test_frozen_copies_only_what_it_must():
    array = np.zeros((3, 2), np.float32)
    assert np.shares_memory(frozen(array, np.float32), array)
    assert array.flags.writeable and not frozen(array, np.float32).flags.writeable
    assert not np.shares_memory(frozen(array.T, np.float32), array)
    assert given_topics(array[:, :0]).values.dtype == np.float32


@given(SEEDS, st.integers(1, 11), st.integers(1, 70))
def test_columns_are_summed_and_looked_at(seed, n_words, n_topics):
    rng = np.random.default_rng(seed)
    lambda_ = rng.gamma(0.3, 1e3, (n_words, n_topics)).astype(np.float32) + np.float32(1e-30)
    pi = np.full(n_topics, np.nan)
    assert sum_columns(lambda_, pi)
    np.testing.assert_allclose(pi, lambda_.sum(axis=0, dtype=np.float64), rtol=1e-14)
    lambda_[rng.integers(n_words), rng.integers(n_topics)] = rng.choice([0, -0.0, -1, -np.inf])
    assert not sum_columns(lambda_, pi)
