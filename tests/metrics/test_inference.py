"""Inference on threads: as scikit-learn infers, the same on any number of threads, bad input."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from esvi_shm.corpus import Corpus
from esvi_shm.corpus.corpus import as_corpus
from esvi_shm.errors import ParameterError
from esvi_shm.families.lda import beta, unseen
from esvi_shm.metrics import (
    PreparedTopics,
    fold_in,
    infer_gamma,
    inference,
    mean_of,
    point_topics,
    split_tokens,
)
from esvi_shm.runtime import threads


@pytest.fixture
def case():
    """lambda (V, K), alpha, and a corpus with an empty document and unused words."""
    rng = np.random.default_rng(4)
    lambda_ = (rng.gamma(0.1, 20.0, (60, 40)) + 0.01).astype(np.float32)
    counts = rng.poisson(0.4, (30, 60))
    counts[7] = 0
    counts[:, 50:] = 0
    return lambda_, np.full(40, 0.1), Corpus.from_sparse(counts)


@pytest.mark.parametrize("tol", [1e-2, 1e-3])
def test_scikit_learn_infers_the_same_in_the_end(case, tol):
    """At a tolerance each stops on its way, scikit-learn further from the end."""
    from sklearn.decomposition import LatentDirichletAllocation

    lambda_, alpha, corpus = case

    def peer(steps, tol):
        model = LatentDirichletAllocation(
            40, doc_topic_prior=0.1, max_iter=1, mean_change_tol=tol, random_state=0,
            max_doc_update_iter=steps,
        ).fit(corpus.as_sparse().astype(float))  # fmt: skip
        model.components_ = lambda_.T.astype(float)
        model.exp_dirichlet_component_ = np.exp(expected_logs(lambda_)).T
        return model.transform(corpus.as_sparse().astype(float))

    end = peer(5000, 1e-9)
    theta = mean_of(infer_gamma(lambda_, alpha, corpus, 5000, 1e-6))
    assert np.abs(theta - end).max() < 1e-3
    theta = mean_of(infer_gamma(lambda_, alpha, corpus, tol=tol))
    np.testing.assert_allclose(theta[7], 1 / 40, rtol=1e-6)
    ours, theirs = (np.abs(x - end).sum(axis=1) for x in (theta, peer(100, tol)))
    assert ours.mean() < theirs.mean()
    # But for the few that come to another fixed point.
    assert np.quantile(ours, 0.9) < 1.5 * np.quantile(theirs, 0.9)


def test_rows_of_lambda_may_be_of_other_words(case):
    lambda_, alpha, corpus = case
    word_ids = np.random.default_rng(0).permutation(len(lambda_))
    gamma = infer_gamma(lambda_[word_ids], alpha, corpus, word_ids=word_ids)
    np.testing.assert_allclose(gamma, infer_gamma(lambda_, alpha, corpus), rtol=1e-4)
    listed = infer_gamma(lambda_[word_ids], alpha, corpus, word_ids=word_ids.tolist())
    np.testing.assert_array_equal(listed, gamma)
    for wrong in (word_ids[:-1], np.zeros(len(lambda_), int), word_ids + 1):
        with pytest.raises(ParameterError, match="word_ids must be each word's number once"):
            infer_gamma(lambda_, alpha, corpus, word_ids=wrong)


def expected_logs(lambda_):
    from scipy.special import psi

    return psi(lambda_.astype(float)) - psi(lambda_.sum(axis=0, dtype=float))


@pytest.fixture
def made(monkeypatch):
    """How many rows of beta each preparation has made."""
    expected, made = beta.expected_topics, []

    def watching(lambda_, pi, words, *others):
        made.append(len(words))
        return expected(lambda_, pi, words, *others)

    monkeypatch.setattr(beta, "expected_topics", watching)
    return made


@pytest.mark.parametrize("shuffled", [False, True])
def test_topics_are_made_for_the_first_call_and_for_another(case, made, shuffled):
    lambda_, alpha, corpus = case
    matrix, in_order = corpus.as_sparse(), lambda_
    n_words, word_ids = len(lambda_), None
    if shuffled:
        word_ids = np.random.default_rng(0).permutation(n_words)
        lambda_ = lambda_[word_ids]
    topics = PreparedTopics(lambda_, alpha, word_ids=word_ids)
    nothing, some, others = (
        as_corpus(part, may_be_empty=True) for part in (matrix[7:8], matrix[:2], matrix[2:])
    )
    in_use = len(np.unique(some.indices))
    assert in_use < 50
    # All words: from the call on that has some more.
    for part, so_far in (
        (some, [in_use]),
        (some, [in_use]),
        (nothing, [in_use]),
        (others, [in_use, n_words]),
        (some, [in_use, n_words]),
        (corpus, [in_use, n_words]),
    ):
        gamma = topics.infer_gamma(part)
        assert made == so_far
        alone = PreparedTopics(lambda_, alpha, word_ids=word_ids).infer_gamma(part)
        np.testing.assert_array_equal(gamma, alone)
        np.testing.assert_allclose(gamma, infer_gamma(in_order, alpha, part), rtol=1e-4)
        made[:] = so_far


def test_of_many_and_large_topics_nothing_is_kept(case, made, monkeypatch):
    lambda_, alpha, corpus = case
    monkeypatch.setattr(inference, "MOST_KEPT", 4 * 60 * 48 - 1)
    topics = PreparedTopics(lambda_, alpha)
    for _ in range(3):
        gamma = topics.infer_gamma(corpus)
    assert made == [50] * 3
    np.testing.assert_array_equal(gamma, infer_gamma(lambda_, alpha, corpus))


def test_prepared_topics_are_for_many_threads(case):
    lambda_, alpha, corpus = case
    matrix, topics = corpus.as_sparse(), PreparedTopics(lambda_, alpha)
    parts = [Corpus.from_sparse(matrix[i : i + 3]) for i in range(0, 27, 3)] * 5
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(topics.infer_gamma, parts))
    for part, gamma in zip(parts, found, strict=True):
        np.testing.assert_array_equal(gamma, infer_gamma(lambda_, alpha, part))


def test_prepared_topics_come_back_from_a_pickle_as_they_were(case, made):
    lambda_, alpha, corpus = case
    topics = PreparedTopics(lambda_, alpha)
    gamma = topics.infer_gamma(corpus)
    again = pickle.loads(pickle.dumps(topics))
    n_compiled = len(unseen.settle_documents.signatures)
    np.testing.assert_array_equal(again.infer_gamma(corpus), gamma)
    assert made == [50, 50]  # what can be made again is not in it
    assert len(unseen.settle_documents.signatures) == n_compiled


def test_prepared_topics_are_for_their_vocabulary(case):
    lambda_, alpha, _ = case
    with pytest.raises(ParameterError, match="corpus must have 60 words, got 3"):
        PreparedTopics(lambda_, alpha).infer_gamma(Corpus.from_sparse(np.ones((1, 3))))


def test_the_number_of_threads_changes_no_bit(case, monkeypatch):
    lambda_, alpha, corpus = case
    observed, _ = split_tokens(corpus)
    topics = point_topics(lambda_)

    def found(n_workers):
        return [
            infer_gamma(lambda_, alpha, corpus, n_workers=n_workers),
            infer_gamma(lambda_, alpha, corpus, inference="cvb0", n_workers=n_workers),
            fold_in(topics, alpha, observed, n_workers=n_workers),
        ]

    alone = found(1)
    monkeypatch.setattr(threads, "LEAST_PAIRS", 1)
    for n_workers in (2, 7, None):
        for one, several in zip(alone, found(n_workers), strict=True):
            np.testing.assert_array_equal(several, one)


def test_cvb0_is_the_fold_in_under_the_means(case):
    lambda_, alpha, corpus = case
    gamma = infer_gamma(lambda_, alpha, corpus, 2000, 1e-7, inference="cvb0")
    theta = fold_in(point_topics(lambda_), alpha, corpus, 2000, 1e-7)
    np.testing.assert_allclose(mean_of(gamma), theta, atol=2e-5)
    vb = mean_of(infer_gamma(lambda_, alpha, corpus))
    assert np.abs(vb - theta).max() > 0.05


@pytest.mark.parametrize("inference", ["vb", "cvb0"])
def test_lambda_stays_as_it_is(case, inference):
    lambda_, alpha, corpus = case
    before = lambda_.tobytes(), alpha.tobytes()
    for given in (lambda_, lambda_.astype(np.float64), np.asfortranarray(lambda_)):
        kept = given.copy()
        infer_gamma(given, alpha, corpus, inference=inference)
        np.testing.assert_array_equal(given, kept)
        assert given.flags.writeable
    assert (lambda_.tobytes(), alpha.tobytes()) == before


@pytest.mark.parametrize(
    "options, says",
    [
        ({"inference": "em"}, "inference must be one of cvb0, vb, got 'em'"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"steps": 1.5}, "steps must be a whole number, got 1.5"),
        ({"steps": True}, "steps must be a whole number, got True"),
        ({"steps": "3"}, "steps must be a whole number, got '3'"),
        ({"steps": None}, "steps must be a whole number, got None"),
        ({"steps": 10**30}, r"steps must be less than 2\*\*63, got 1000"),
        ({"tol": "a"}, "tol must be a number, got 'a'"),
        ({"tol": None}, "tol must be a number, got None"),
        ({"tol": -0.5}, "tol must be at least 0, got -0.5"),
        ({"tol": float("nan")}, "tol must be at least 0, got nan"),
        ({"n_workers": 0}, "n_workers must be at least 1, got 0"),
    ],
)
def test_bad_parameters(case, options, says):
    with pytest.raises(ParameterError, match=says):
        infer_gamma(*case, **options)


def test_bad_priors(case):
    lambda_, _, corpus = case
    for alpha in (np.zeros(40), np.full(40, np.nan), 0.1):
        with pytest.raises(ParameterError, match="alpha must be a vector of numbers greater"):
            infer_gamma(lambda_, alpha, corpus)


def test_no_documents_have_no_gamma(case):
    lambda_, alpha, corpus = case
    none = as_corpus(np.zeros((0, corpus.n_words)), may_be_empty=True)
    for workers in (1, 2, None):
        found = infer_gamma(lambda_, alpha, none, n_workers=workers)
        assert found.shape == (0, len(alpha)) and found.dtype == np.float32


@pytest.mark.parametrize("value", [-0.5, np.nan, np.inf])
@pytest.mark.parametrize("padding", [False, True])
def test_topics_that_are_no_weights_are_refused(value, padding):
    """Wherever it stands, and whether or not the rows are of the length that kernels read."""
    corpus = Corpus.from_sparse(np.eye(3))
    topics = point_topics(np.ones((3, 2)))
    topics = topics if padding else topics[:, :2]
    for at in ((0, 0), (2, 1)):
        wrong = topics.copy()
        wrong[at] = value
        says = f"topics must be finite and at least 0, got {value}"
        with pytest.raises(ParameterError, match=says):
            fold_in(wrong, np.ones(2), corpus)
        with pytest.raises(
            ParameterError, match=f"lambda_ must be finite and at least 0, got {value}"
        ):
            point_topics(wrong[:, :2])


def test_a_topic_without_a_word_is_no_distribution():
    with pytest.raises(
        ParameterError, match=r"a weight above 0 in each topic, got 'none in topic 1"
    ):
        point_topics(np.array([[1.0, 0.0], [2.0, 0.0]]))
    with pytest.raises(ParameterError, match="lambda_ must have two dimensions"):
        point_topics(np.ones(3))
