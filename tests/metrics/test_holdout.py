"""Documents set aside: which they are, what is refused, and what they say of topics."""

import numpy as np
import pytest

from esvi_shm import metrics
from esvi_shm.corpus import Corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics.holdout import set_aside

RANDOM = np.random.default_rng(2)
COUNTS = RANDOM.poisson(0.7, (40, 15))
CORPUS = Corpus.from_sparse(COUNTS, [f"word{v}" for v in range(15)])


def dense(corpus):
    return corpus.as_sparse().toarray()


def test_a_share_parts_the_documents():
    training, held_out, documents = set_aside(CORPUS, 0.25, seed=3)
    assert (training.n_documents, held_out.n_documents) == (30, 10)
    assert training.vocabulary == CORPUS.vocabulary
    np.testing.assert_array_equal(dense(training), COUNTS[documents])
    others = np.setdiff1d(np.arange(40), documents)
    halves = [np.zeros((10, 15)) for _ in range(2)]
    for out, half in zip(halves, (held_out.observed, held_out.scored), strict=True):
        rows = np.repeat(np.arange(10), np.diff(half.indptr))
        out[rows, half.indices] = half.counts
        assert out.sum() > 0
    np.testing.assert_array_equal(sum(halves), COUNTS[others])
    assert held_out.describe() == {
        "source": "matrix, 10 documents held out", "n_documents": 10,
        "n_tokens": COUNTS[others].sum(), "n_scored_tokens": halves[1].sum(),
        "outside_words": 0, "outside_tokens": 0,
    }  # fmt: skip


def test_the_draw_is_the_seed_s():
    drawn = [set_aside(CORPUS, 0.25, seed).documents.tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    # Not the first documents, nor always the same.
    assert len({tuple(set_aside(CORPUS, 0.25, seed).documents) for seed in range(20)}) == 20


def test_the_figure_is_that_of_completion_whatever_the_order_of_rows():
    other = Corpus.from_sparse(RANDOM.poisson(1, (12, 15)), CORPUS.vocabulary)
    training, held_out, documents = set_aside(CORPUS, other, seed=5)
    assert training is CORPUS and documents.tolist() == list(range(40))
    lambda_ = RANDOM.gamma(1, 1, (15, 3)).astype(np.float32) + np.float32(0.01)
    alpha = np.array([0.1, 0.5, 0.2])
    observed, scored = metrics.split_tokens(other, 5)
    topics = metrics.point_topics(lambda_)
    theta = metrics.fold_in(topics, alpha, observed)
    wanted = metrics.completion_perplexity(theta, topics, scored).perplexity
    order = RANDOM.permutation(15).astype(np.int32)
    before = lambda_.copy()
    assert held_out(lambda_, np.arange(15), alpha) == pytest.approx(wanted, rel=1e-9)
    roughly = held_out(lambda_, np.arange(15), alpha, roughly=True)
    assert roughly != wanted and roughly == pytest.approx(wanted, rel=1e-3)
    assert held_out(lambda_[order], order, alpha) == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_array_equal(lambda_, before)
    assert held_out(lambda_, order, alpha) != pytest.approx(wanted, rel=1e-3)


def test_other_words_are_aligned_and_counted():
    other = Corpus.from_tokens([["rum", "word3", "word1", "rum"] * 3, ["word3", "ale"]])
    held_out = set_aside(CORPUS, other, seed=0).held_out
    assert (held_out.outside_words, held_out.outside_tokens) == (2, 7)
    assert held_out.describe()["n_tokens"] == 7
    words = set(held_out.observed.indices) | set(held_out.scored.indices)
    assert words == {1, 3}


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, np.nan, np.inf, 3, True])
def test_a_share_lies_between_0_and_1(share):
    with pytest.raises(ParameterError, match=r"holdout as a share must lie in \(0, 1\), got"):
        set_aside(CORPUS, share, seed=0)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_share_leaves_documents_on_both_sides(share):
    with pytest.raises(ParameterError, match="holdout must set aside some and not all of 40 docum"):
        set_aside(CORPUS, share, seed=0)


def test_held_out_documents_that_cannot_judge():
    def refused(matrix, vocabulary=CORPUS.vocabulary):
        return pytest.raises(CorpusError), Corpus.from_sparse(matrix, vocabulary, "other.txt")

    raises, other = refused(np.ones((2, 2)), ["ash", "bay"])
    with raises as caught:
        set_aside(CORPUS, other, seed=0)
    assert str(caught.value).startswith("other.txt: there must be a word in common")
    raises, other = refused(COUNTS * 0.5)
    with raises as caught:
        set_aside(CORPUS, other, seed=0)
    assert "counts must be whole numbers" in str(caught.value)
    # One token: by some seeds it is observed, and nothing is left to score.
    one = Corpus.from_sparse(np.eye(1, 15), CORPUS.vocabulary, "other.txt")
    accepted = 0
    for seed in range(20):
        try:
            assert set_aside(CORPUS, one, seed).held_out.scored.n_tokens == 1
            accepted += 1
        except CorpusError as error:
            assert str(error).startswith("other.txt: there must be a token to score")
    assert 0 < accepted < 20


def test_a_side_without_tokens():
    sparse = np.zeros((10, 4))
    sparse[0] = 3
    corpus = Corpus.from_sparse(sparse)
    messages = set()
    for seed in range(30):
        with pytest.raises(CorpusError, match="must have at least one token") as caught:
            set_aside(corpus, 0.5, seed)
        messages.add("held out" in str(caught.value))
    assert messages == {True, False}
