"""Coherence and diversity against counting by hand, plain Python and gensim."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.metrics import coherence_npmi, topic_diversity
from tests.corpus.strategies import matrices

DOCUMENTS = [["a", "b", "b"], ["a", "b", "c"], ["a", "c"], ["a", "d"], ["a"], ["a"], ["a"], ["a"]]


def test_npmi_by_hand():
    corpus = Corpus.from_tokens(DOCUMENTS)
    # b in 2 of 8 documents, c in 2, both in 1: log((1/8) / (1/16)) / -log(1/8) = 1/3.
    assert coherence_npmi([["b", "c"]], corpus).npmi[0] == pytest.approx(1 / 3)
    # a is everywhere, so it tells nothing of b.
    assert coherence_npmi([["a", "b"]], corpus).npmi[0] == pytest.approx(0)
    # b and d never meet: -1; mean over the three pairs b-c, b-d, c-d.
    assert coherence_npmi([["b", "c", "d"]], corpus).npmi[0] == pytest.approx((1 / 3 - 2) / 3)


def test_words_that_always_meet_have_1():
    everywhere = Corpus.from_tokens([["a", "b"]] * 3)
    assert coherence_npmi([["a", "b"]], everywhere).npmi.tolist() == [1]
    together = Corpus.from_tokens([["a", "b"], ["a", "b"], ["c"]])
    assert coherence_npmi([["a", "b"]], together).npmi[0] == pytest.approx(1)


def test_a_word_that_the_reference_never_uses_meets_none_and_is_told():
    corpus = Corpus.from_sparse(np.array([[1, 1, 0]]), ["a", "b", "unused"])
    found = coherence_npmi([["a", "b", "unused"], ["a", "unknown", "b"]], corpus)
    assert found.npmi.tolist() == [(1 - 1 - 1) / 3] * 2
    assert found.missing == ("unknown", "unused")


def naive_npmi(words: list[str], documents: list[set[str]]) -> float:
    values = []
    for i, j in combinations(words, 2):
        p_i, p_j, both = (
            sum(needed <= document for document in documents) / len(documents)
            for needed in ({i}, {j}, {i, j})
        )
        if both == 0:
            values.append(-1.0)
        elif both == 1:
            values.append(1.0)
        else:
            values.append(math.log(both / (p_i * p_j)) / -math.log(both))
    return sum(values) / len(values)


@given(matrices(max_words=9), st.integers(0, 2**32 - 1))
def test_npmi_is_the_naive_one(matrix, seed):
    names = [f"word{v}" for v in range(matrix.shape[1])]
    corpus = Corpus.from_sparse(matrix, names)
    documents = [{names[v] for v in np.flatnonzero(row)} for row in matrix]
    rng = np.random.default_rng(seed)
    pool = [*names, "unknown"]
    topics = [rng.permutation(pool)[: rng.integers(2, len(pool) + 1)].tolist() for _ in range(3)]
    n_top = int(rng.integers(2, 12))
    found = coherence_npmi(topics, corpus, n_top).npmi
    np.testing.assert_allclose(found, [naive_npmi(words[:n_top], documents) for words in topics])
    assert ((found >= -1) & (found <= 1 + 1e-12)).all()
    # Whose topic it is, and the order of its words, change nothing.
    backwards = [words[:n_top][::-1] for words in reversed(topics)]
    np.testing.assert_allclose(coherence_npmi(backwards, corpus, n_top).npmi, found[::-1])


def test_npmi_is_gensims_where_words_meet():
    pytest.importorskip("gensim")
    from gensim.corpora import Dictionary
    from gensim.models import CoherenceModel

    rng = np.random.default_rng(0)
    texts = [[f"word{v}" for v in range(6) if rng.random() < 0.6] or ["word0"] for _ in range(60)]
    topics = [[f"word{v}" for v in order] for order in ([0, 3, 5, 1], [4, 2, 1, 0])]
    peer = CoherenceModel(
        topics=topics, texts=texts, dictionary=Dictionary(texts), coherence="c_npmi",
        window_size=1000, topn=4, processes=1,
    )  # fmt: skip
    ours = coherence_npmi(topics, Corpus.from_tokens(texts)).npmi
    np.testing.assert_allclose(ours, peer.get_coherence_per_topic(), rtol=1e-6)


def test_topics_of_fewer_than_two_words_have_none():
    corpus = Corpus.from_tokens(DOCUMENTS)
    assert np.isnan(coherence_npmi([["a"], []], corpus).npmi).all()
    with pytest.raises(ParameterError, match="n_top must be at least 2, got 1"):
        coherence_npmi([["a", "b"]], corpus, 1)


def test_diversity_by_hand():
    assert topic_diversity([["a", "b"], ["c", "d"]]) == 1
    assert topic_diversity([["a", "b"]] * 4) == 0.25
    # Only the first words count: a, b; a, c.
    assert topic_diversity([["a", "b", "x"], ["a", "c", "x"]], n_top=2) == 0.75
    with pytest.raises(ParameterError, match="n_top"):
        topic_diversity([["a"]], 0)
    with pytest.raises(ParameterError, match="must hold a word"):
        topic_diversity([[]])


def test_a_name_that_comes_twice_is_one_word():
    corpus = Corpus.from_tokens(DOCUMENTS)
    twice, once = coherence_npmi([["b", "b", "c"], ["b", "c"]], corpus, n_top=2).npmi
    assert twice == once == pytest.approx(1 / 3)
