"""Simulated corpora: they are LDA with Zipf words, of the sizes asked for, whoever draws them."""

import numpy as np
import pytest
from scipy import stats

from esvi_shm.errors import ParameterError
from esvi_shm.families.lda import simulator as module
from esvi_shm.families.lda.simulator import Simulator, simulator


def small(**changes) -> Simulator:
    sizes = {"n_documents": 50, "n_words": 200, "n_tokens": 4000, "n_topics": 5}
    return simulator(**{**sizes, **changes})


def test_tokens_are_exact_and_no_document_is_empty():
    corpus = small(n_documents=3000, n_tokens=200_000)
    indptr, _, counts = corpus.draw(0, 3000)
    assert counts.sum() == 200_000
    lengths = np.add.reduceat(counts, indptr[:-1])
    np.testing.assert_array_equal(lengths, np.diff(corpus.offsets))
    assert lengths.min() >= 1
    assert np.log(lengths).std() == pytest.approx(module.LENGTH_DEVIATION, rel=0.1)
    assert set(np.diff(small(n_tokens=50).offsets)) == {1}


def test_a_range_is_the_same_whatever_else_is_drawn():
    corpus = small()
    whole = corpus.draw(0, 50)
    parts = [corpus.draw(first, last) for first, last in ((0, 7), (7, 8), (8, 50))]
    sizes = np.concatenate([np.diff(indptr) for indptr, _, _ in parts])
    np.testing.assert_array_equal(sizes, np.diff(whole[0]))
    for i in (1, 2):
        np.testing.assert_array_equal(np.concatenate([part[i] for part in parts]), whole[i])
    assert [array.dtype for array in whole] == [np.int64, np.int32, np.float32]


def test_the_seed_counts_and_alone():
    one, again, other = (small(seed=seed).draw(0, 50)[1] for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert len(one) != len(other) or (one != other).any()


def test_words_ascend_in_each_document():
    indptr, indices, counts = small().draw(0, 50)
    for d in range(50):
        assert (np.diff(indices[indptr[d] : indptr[d + 1]]) > 0).all()
    assert counts.min() >= 1


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.7])
def test_ranks_follow_zipfs_law(exponent):
    """One topic in the order of the words: frequencies are the law."""
    offsets, orders = np.array([0, 100_000]), np.arange(40, dtype=np.int32)[None]
    corpus = Simulator(7, offsets, orders, 5.0, exponent)
    _, indices, counts = corpus.draw(0, 1)
    law = np.arange(1.0, 41.0) ** -exponent
    np.testing.assert_array_equal(indices, np.arange(40))
    assert stats.chisquare(counts, law / law.sum() * 100_000).pvalue > 0.001
    np.testing.assert_allclose(corpus.topics()[:, 0], law / law.sum(), rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_topics_of_a_document_are_those_of_a_dirichlet_prior(alpha):
    """Two topics of one word each: the word's count is beta-binomial, as theta is integrated."""
    n, n_documents = 9, 4000
    offsets, orders = np.arange(n_documents + 1) * n, np.array([[0, 0], [1, 1]], dtype=np.int32)
    indptr, indices, counts = Simulator(1, offsets, orders, 2 * alpha, 1.0).draw(0, n_documents)
    documents = np.repeat(np.arange(n_documents), np.diff(indptr))
    first = np.zeros(n_documents)
    first[documents[indices == 0]] = counts[indices == 0]
    expected = stats.betabinom(n, alpha, alpha).pmf(np.arange(n + 1)) * n_documents
    observed = np.bincount(first.astype(int), minlength=n + 1)
    assert stats.chisquare(observed, expected).pvalue > 0.001


def test_words_come_by_the_true_topics():
    corpus = small(n_documents=2000, n_tokens=200_000, n_words=30, n_topics=3, alpha=1.0)
    topics = corpus.topics()
    np.testing.assert_allclose(topics.sum(axis=0), 1, rtol=1e-5)
    _, indices, counts = corpus.draw(0, 2000)
    found = np.bincount(indices, counts, minlength=30) / 200_000
    # Topics are equally frequent on average; a document's share of one deviates by 0.236.
    assert np.abs(found - topics.mean(axis=1)).max() < 0.02
    assert np.abs(topics[:, 0] - topics[:, 1]).max() > 0.1


#: Documents, words, tokens and pairs a document of NY Times, PubMed, Enron and NIPS, made small.
@pytest.mark.parametrize(
    "n_words, tokens, pairs", [(5000, 331, 234), (5000, 90, 59), (3000, 164, 95), (4000, 1288, 498)]
)
def test_pairs_are_near_those_asked_for(n_words, tokens, pairs, monkeypatch):
    """Although they are counted on a part of the documents only."""
    monkeypatch.setattr(module, "SEARCH_TOKENS", 40_000)
    n = 120_000 // tokens
    corpus = simulator(n, n_words, tokens * n, pairs * n, n_topics=20)
    assert len(corpus.draw(0, n)[1]) == pytest.approx(pairs * n, rel=0.05)


def test_a_single_document_and_a_single_word():
    corpus = simulator(1, 1, 5, n_pairs=1, n_topics=1)
    indptr, indices, counts = corpus.draw(0, 1)
    assert (indptr.tolist(), indices.tolist(), counts.tolist()) == ([0, 1], [0], [5])
    assert [len(array) for array in corpus.draw(0, 0)] == [1, 0, 0]


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"n_documents": 0}, "n_documents must be from 1 to"),
        ({"n_words": 2**31}, "n_words must be from 1 to"),
        ({"n_topics": 0}, "n_topics must be from 1 to"),
        ({"n_tokens": 49}, "n_tokens must be from 1 to 2.*16 for each of the 50 documents, got 49"),
        ({"n_tokens": 50 * 2**16 + 1}, "n_tokens must be from 1 to"),
        ({"n_pairs": 4001}, "n_pairs must be at least one for each of the 50 documents, at most"),
        ({"n_pairs": 4000}, "n_pairs must be from about [0-9]+ to [0-9]+ for these .*, got 4000"),
        ({"n_pairs": 51}, "n_pairs must be from about [0-9]+ to [0-9]+ for these .*, got 51"),
        ({"alpha": 0.0}, "alpha must lie between 1e-6 and 1e6, got 0.0"),
        ({"alpha": float("nan")}, "alpha must lie"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_mistakes_are_named(changes, says):
    with pytest.raises(ParameterError, match=says):
        small(**changes)
