"""Document completion against plain NumPy, hand-computed cases, and what must not matter."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.corpus import Corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics import completion_perplexity, fold_in, point_topics, split_tokens
from esvi_shm.vector import padded
from tests.corpus.strategies import matrices

SEEDS = st.integers(0, 2**32 - 1)


def dense(half) -> np.ndarray:
    matrix = np.zeros((half.n_documents, half.n_words))
    for d in range(half.n_documents):
        pairs = slice(half.indptr[d], half.indptr[d + 1])
        assert (np.diff(half.indices[pairs]) > 0).all()
        matrix[d, half.indices[pairs]] = half.counts[pairs]
    return matrix


def naive_step(gamma: np.ndarray, topics: np.ndarray, alpha: np.ndarray, row: np.ndarray):
    """gamma = alpha + sum_v n_v phi_v, phi_vk proportional to gamma_k beta_vk."""
    phi = gamma * topics
    phi /= phi.sum(axis=1, keepdims=True)
    return alpha + row @ phi


def naive_theta(topics, alpha, matrix, steps):
    gamma = np.array([alpha + row.sum() / len(alpha) for row in matrix])
    for _ in range(steps):
        gamma = np.array(
            [naive_step(g, topics, alpha, row) for g, row in zip(gamma, matrix, strict=True)]
        )
    return gamma / gamma.sum(axis=1, keepdims=True)


def random_model(seed: int, n_words: int, n_topics: int | None = None):
    """Sparse topics (V, K), float64, and an asymmetric prior."""
    rng = np.random.default_rng(seed)
    n_topics = n_topics or int(rng.integers(1, 40))
    lambda_ = rng.gamma(0.3, 1.0, (n_words, n_topics)) + 0.01
    return lambda_ / lambda_.sum(axis=0), rng.uniform(0.05, 0.6, n_topics)


# ------------------------------------------------------------------ the split


@given(matrices(floats=False), st.integers(0, 2**63 - 1))
def test_the_halves_add_up_to_the_whole(matrix, seed):
    observed, scored = split_tokens(Corpus.from_sparse(matrix), seed)
    for half in (observed, scored):
        assert (half.counts > 0).all() and (half.counts % 1 == 0).all()
    np.testing.assert_array_equal(dense(observed) + dense(scored), matrix)
    assert observed.n_tokens + scored.n_tokens == matrix.sum()


@given(matrices(floats=False), SEEDS, SEEDS)
def test_the_split_of_a_document_does_not_depend_on_the_others(matrix, seed, other):
    whole, _ = split_tokens(Corpus.from_sparse(matrix), seed)
    changed = np.random.default_rng(other).integers(0, 9, (len(matrix) + 2, matrix.shape[1]))
    d = other % len(matrix)
    changed[d] = matrix[d]
    changed[-1] = 1
    again, _ = split_tokens(Corpus.from_sparse(changed), seed)
    np.testing.assert_array_equal(dense(again)[d], dense(whole)[d])


@given(matrices(floats=False), SEEDS, SEEDS)
def test_the_split_does_not_depend_on_the_order_of_the_vocabulary(matrix, seed, other):
    names = np.array([f"word{v}" for v in range(matrix.shape[1])])
    order = np.random.default_rng(other).permutation(len(names))
    whole, _ = split_tokens(Corpus.from_sparse(matrix, names), seed)
    again, _ = split_tokens(Corpus.from_sparse(matrix[:, order], names[order]), seed)
    np.testing.assert_array_equal(dense(again), dense(whole)[:, order])


def test_coins_are_fair_and_independent():
    """Heads of 200 coins, four draws: mean 100, variance 50, no correlation of pairs."""
    corpus = Corpus.from_sparse(np.full((100, 80), 200))
    heads = dense(split_tokens(corpus, 3)[0])
    assert abs(heads.mean() - 100) < 4 * math.sqrt(50 / heads.size)
    assert abs(heads.var() - 50) < 4 * 50 * math.sqrt(2 / heads.size)
    for one, next_to_it in [(heads[1:], heads[:-1]), (heads[:, 1:], heads[:, :-1])]:
        assert abs(np.corrcoef(one.ravel(), next_to_it.ravel())[0, 1]) < 0.05
    other = dense(split_tokens(corpus, 4)[0])
    assert abs(np.corrcoef(heads.ravel(), other.ravel())[0, 1]) < 0.05


def test_few_coins_are_binomial():
    heads = dense(split_tokens(Corpus.from_sparse(np.full((100, 80), 3)), 0)[0])
    shares = np.bincount(heads.astype(int).ravel(), minlength=4) / heads.size
    np.testing.assert_allclose(shares, [1 / 8, 3 / 8, 3 / 8, 1 / 8], atol=0.02)


def test_fractions_and_endless_counts_are_refused():
    corpus = Corpus.from_sparse(np.array([[1, 0], [2, 1.5]]), ["tea", "milk"], "given")
    with pytest.raises(
        CorpusError, match=r"given: .*numbers below 2\*\*31: got 1.5 in document 1 .*'milk'"
    ):
        split_tokens(corpus)
    with pytest.raises(CorpusError, match="below 2"):
        split_tokens(Corpus.from_sparse(np.array([[2.0**31]])))
    most = Corpus.from_sparse(np.array([[2.0**25]]))
    assert split_tokens(most)[0].n_tokens == pytest.approx(2**24, rel=1e-3)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(ParameterError, match="seed"):
        split_tokens(Corpus.from_sparse(np.ones((1, 1))), seed)


# ------------------------------------------------------------------ theta


@given(matrices(), SEEDS, st.integers(0, 30))
def test_fold_in_is_the_naive_iteration(matrix, seed, steps):
    topics, alpha = random_model(seed, matrix.shape[1])
    theta = fold_in(topics, alpha, Corpus.from_sparse(matrix), steps, tol=0)
    expected = naive_theta(topics, alpha, matrix.astype(float), steps)
    np.testing.assert_allclose(theta, expected, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(theta.sum(axis=1), 1, rtol=1e-5)


@given(matrices(), SEEDS)
def test_fold_in_is_a_fixed_point(matrix, seed):
    topics, alpha = random_model(seed, matrix.shape[1])
    theta = fold_in(topics, alpha, Corpus.from_sparse(matrix), 20000, tol=1e-7)
    for row, found in zip(matrix.astype(float), theta.astype(float), strict=True):
        total = alpha.sum() + row.sum()
        again = naive_step(found * total, topics, alpha, row) / total
        np.testing.assert_allclose(again, found, atol=1e-5)


@given(matrices(), SEEDS)
def test_names_of_topics_and_scales_do_not_matter(matrix, seed):
    topics, alpha = random_model(seed, matrix.shape[1])
    corpus = Corpus.from_sparse(matrix)
    theta = fold_in(topics, alpha, corpus)
    order = np.random.default_rng(seed).permutation(len(alpha))
    permuted = fold_in(topics[:, order], alpha[order], corpus)
    np.testing.assert_allclose(permuted, theta[:, order], rtol=1e-3, atol=1e-5)
    # gamma is linear in (alpha, n), and phi knows no scale of a word.
    scaled = fold_in(topics, 4 * alpha, Corpus.from_sparse(4 * matrix))
    np.testing.assert_allclose(scaled, theta, rtol=1e-3, atol=1e-5)
    weights = np.random.default_rng(seed).uniform(0.1, 10, (len(topics), 1))
    np.testing.assert_allclose(
        fold_in(weights * topics, alpha, corpus), theta, rtol=1e-3, atol=1e-5
    )


def test_an_empty_document_has_the_prior_mean():
    topics, alpha = random_model(1, 5, 20)
    matrix = np.array([[0, 0, 0, 0, 0], [3, 0, 1, 0, 0], [0, 0, 0, 0, 0]])
    theta = fold_in(topics, alpha, Corpus.from_sparse(matrix))
    for d in (0, 2):
        np.testing.assert_allclose(theta[d], alpha / alpha.sum(), rtol=1e-6)
    assert abs(theta[1] - alpha / alpha.sum()).max() > 0.01


def test_a_document_stops_where_it_moves_little():
    topics, alpha = random_model(2, 30, 6)
    corpus = Corpus.from_sparse(np.random.default_rng(0).poisson(2, (4, 30)))
    np.testing.assert_array_equal(
        fold_in(topics, alpha, corpus, tol=2.0), fold_in(topics, alpha, corpus, steps=1)
    )
    # Each on its own: a document beside one that takes long is as it is alone.
    both = fold_in(topics, alpha, corpus, tol=1e-3)
    for d in range(4):
        alone = Corpus.from_sparse(corpus.as_sparse()[d])
        np.testing.assert_array_equal(fold_in(topics, alpha, alone, tol=1e-3)[0], both[d])
    assert abs(both - fold_in(topics, alpha, corpus, tol=1e-3, steps=1)).max() > 1e-3


def test_a_word_that_no_topic_knows_says_nothing():
    topics, alpha = random_model(3, 7, 3)
    topics[2] = 0
    row = np.array([[1, 2, 5, 0, 1, 4, 1]])
    without = row * (np.arange(7) != 2)
    # The start knows the length of the document, the fixed point does not.
    theta = fold_in(topics, alpha, Corpus.from_sparse(row), 2000, tol=0)
    expected = fold_in(topics, alpha, Corpus.from_sparse(without), 2000, tol=0)
    np.testing.assert_allclose(theta, expected, atol=1e-5)


@given(matrices(floats=False), SEEDS)
def test_inference_leaves_the_topics_as_they_are(matrix, seed):
    topics, alpha = random_model(seed, matrix.shape[1])
    lambda_ = (topics * 100).astype(np.float32)
    packed = point_topics(lambda_)
    before = lambda_.tobytes(), packed.tobytes(), alpha.tobytes()
    corpus = Corpus.from_sparse(matrix)
    theta = fold_in(packed, alpha, corpus)
    completion_perplexity(theta, packed, corpus)
    assert (lambda_.tobytes(), packed.tobytes(), alpha.tobytes()) == before
    # Padded by the caller or by fold_in.
    np.testing.assert_array_equal(fold_in(packed[:, : len(alpha)], alpha, corpus), theta)


def test_point_topics_are_means_in_padded_rows():
    lambda_ = np.random.default_rng(0).gamma(1, 1, (9000, 3)).astype(np.float32)
    topics = point_topics(lambda_)
    assert topics.shape == (9000, padded(3)) and topics.dtype == np.float32
    np.testing.assert_allclose(
        topics[:, :3], lambda_ / lambda_.sum(axis=0, dtype=np.float64), rtol=1e-6
    )
    assert not topics[:, 3:].any()


# ------------------------------------------------------------------ the score


def test_perplexity_by_hand():
    topics = np.array([[0.5, 0.1], [0.5, 0.9]])
    theta = np.array([[0.25, 0.75], [1.0, 0.0]])
    # p = 0.25 * 0.5 + 0.75 * 0.1 = 0.2 and 0.8; 0.5 in the second document.
    scored = Corpus.from_sparse(np.array([[2, 1], [0, 3]]))
    found = completion_perplexity(theta, topics, scored)
    logs = [2 * math.log(0.2) + math.log(0.8), 3 * math.log(0.5)]
    np.testing.assert_allclose(found.log_likelihood, logs, rtol=1e-6)
    assert found.perplexity == pytest.approx(math.exp(-sum(logs) / 6), rel=1e-6)
    assert (found.n_tokens, found.tokens.tolist()) == (6, [3, 3])


@given(matrices(floats=False), SEEDS)
def test_the_whole_path_is_the_naive_one(matrix, seed):
    topics, alpha = random_model(seed, matrix.shape[1])
    observed, scored = split_tokens(Corpus.from_sparse(matrix), seed)
    packed = point_topics(topics)
    theta = fold_in(packed, alpha, observed, tol=0.0)
    if scored.n_tokens == 0:
        with pytest.raises(CorpusError, match="scored half of the documents is empty"):
            completion_perplexity(theta, packed, scored)
        return
    found = completion_perplexity(theta, packed, scored)
    probability = naive_theta(topics, alpha, dense(observed), 100) @ topics.T
    likelihood = (dense(scored) * np.log(probability)).sum(axis=1)
    expected = math.exp(-likelihood.sum() / dense(scored).sum())
    assert found.perplexity == pytest.approx(expected, rel=1e-3)
    np.testing.assert_allclose(found.log_likelihood, likelihood, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(found.tokens, dense(scored).sum(axis=1))


@given(matrices(floats=False), SEEDS)
def test_one_topic_gives_the_unigram_perplexity(matrix, seed):
    topics, alpha = random_model(seed, matrix.shape[1], n_topics=1)
    corpus = Corpus.from_sparse(matrix)
    theta = fold_in(topics, alpha, corpus)
    np.testing.assert_array_equal(theta, 1)
    unigram = math.exp(-float(matrix.sum(axis=0) @ np.log(topics[:, 0])) / matrix.sum())
    assert completion_perplexity(theta, topics, corpus).perplexity == pytest.approx(
        unigram, rel=1e-5
    )


def test_a_word_without_probability_is_an_infinite_perplexity():
    topics = np.array([[1.0, 1.0], [0.0, 0.0]])
    scored = Corpus.from_sparse(np.array([[1, 0], [1, 1]]))
    found = completion_perplexity(np.full((2, 2), 0.5), topics, scored)
    assert found.perplexity == math.inf
    assert found.log_likelihood.tolist() == [0, -math.inf]


@pytest.mark.parametrize(
    "topics, alpha, says",
    [
        (np.ones((3, 2)), np.ones(2), r"topics must have the shape \(2, 2\)"),
        (np.ones((2, 3)), np.ones(2), r"topics must have the shape \(2, 2\)"),
        (np.ones((2, 16)), np.ones(2), "topics must be 0 beyond the 2 topics"),
        (np.ones((2, 2)), np.array([1.0, 0.0]), "alpha must be a vector of numbers greater"),
        (np.ones((2, 2)), np.array([1.0, np.nan]), "alpha must be a vector of numbers greater"),
        (np.ones((2, 2)), np.float64(1), "alpha must be a vector"),
    ],
)
def test_shapes_are_checked(topics, alpha, says):
    with pytest.raises(ParameterError, match=says):
        fold_in(topics, alpha, Corpus.from_sparse(np.ones((1, 2))))


def test_theta_must_be_of_these_documents():
    with pytest.raises(ParameterError, match="theta must have a row for each of 1 documents"):
        completion_perplexity(np.ones((2, 1)), np.ones((2, 1)), Corpus.from_sparse(np.ones((1, 2))))
