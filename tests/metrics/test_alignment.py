"""A corpus in a model's vocabulary: every token is kept, or counted as outside."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.corpus import Corpus
from esvi_shm.corpus.corpus import Documents
from esvi_shm.errors import CorpusError
from esvi_shm.metrics import align
from tests.corpus.strategies import matrices


def tokens_by_name(corpus: Corpus, d: int) -> Counter:
    pairs = slice(corpus.indptr[d], corpus.indptr[d + 1])
    names = [corpus.word(v) for v in corpus.indices[pairs]]
    return Counter(dict(zip(names, corpus.counts[pairs].tolist(), strict=True)))


@given(matrices(floats=False), st.integers(0, 2**32 - 1))
def test_tokens_keep_their_word_or_are_counted(matrix, seed):
    names = [f"word{v}" for v in range(matrix.shape[1])]
    corpus = Corpus.from_sparse(matrix, names, "given")
    rng = np.random.default_rng(seed)
    kept = [name for name in names if rng.random() < 0.7]
    words = rng.permutation([*kept, "other", "another"]).tolist()
    inside = np.isin(names, words)
    if not matrix[:, inside].any():
        with pytest.raises(CorpusError, match=r"given: there must be"):
            align(corpus, words)
        return
    found = align(corpus, words)
    assert found.corpus.vocabulary == tuple(words)
    assert found.corpus.name == "given"
    for d in range(len(matrix)):
        expected = tokens_by_name(corpus, d)
        assert tokens_by_name(found.corpus, d) == {
            name: n for name, n in expected.items() if name in words
        }
    assert found.outside_tokens == matrix[:, ~inside].sum()
    assert found.outside_words == (matrix[:, ~inside].sum(axis=0) > 0).sum()


def test_the_same_vocabulary_costs_nothing():
    corpus = Corpus.from_tokens([["tea", "milk"], []])
    found = align(corpus, ["milk", "tea"])
    assert found.corpus is corpus
    assert (found.outside_words, found.outside_tokens) == (0, 0)
    nameless = Corpus.from_sparse(np.array([[1, 0, 2]]))
    found = align(nameless, ["w0", "w1", "w2"])
    assert found.corpus.indices is nameless.indices
    assert found.corpus.vocabulary == ("w0", "w1", "w2")


def test_words_of_one_name_are_one_word(caplog):
    corpus = Corpus.from_sparse(np.array([[2, 3, 1]]), ["tea", "tea", "milk"])
    found = align(corpus, ["rum", "milk", "tea", "tea"])
    assert found.corpus.as_sparse().toarray().tolist() == [[0, 1, 5, 0]]
    assert "1 words of the model are called like one before them" in caplog.text


def test_without_a_word_in_common_both_are_named():
    corpus = Corpus.from_tokens([["ash", "bay", "cap", "den"]], "given")
    with pytest.raises(CorpusError) as caught:
        align(corpus, ["tea", "milk"])
    assert str(caught.value) == (
        "given: there must be a word in common with the vocabulary of the model: the corpus has "
        "'ash', 'bay', 'cap', ..., the model has 'tea', 'milk'"
    )


def test_common_words_without_a_token_are_not_enough():
    corpus = Corpus.from_sparse(np.array([[0, 2]]), ["tea", "rum"], "given")
    with pytest.raises(CorpusError, match=r"given: there must be a token .* all 2 .* 'rum'"):
        align(corpus, ["tea", "milk"])


def test_one_large_id_names_no_words_that_never_occur():
    matrix = scipy.sparse.csr_matrix(([2.0, 3.0], [1, 99_999_999], [0, 2]), shape=(1, 100_000_000))
    corpus = Corpus.from_sparse(matrix)
    tracemalloc.start()
    found = align(corpus, ["w0", "w1"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    assert found.corpus.as_sparse().toarray().tolist() == [[0, 2]]
    assert (found.outside_words, found.outside_tokens) == (1, 3)
    with pytest.raises(CorpusError, match="the corpus has 'w1', 'w99999999', the model has 'w0'"):
        align(corpus, ["w0"])


def matrix_of(words) -> Corpus:
    """A document with 1, 2 and 3 of three words, called so or not at all."""
    return Corpus.from_sparse(np.array([[1, 2, 3]]), words, "given")


@pytest.mark.parametrize(
    ("names", "words", "nameless"),
    [(None, ["tea", "milk", "rum"], "the corpus"), (["tea", "milk", "rum"], None, "the model")],
)
def test_where_one_side_has_no_names_columns_are_in_order(names, words, nameless, caplog):
    model = words or ["w0", "w1", "w2"]
    found = align(matrix_of(names), model)
    assert found.corpus.as_sparse().toarray().tolist() == [[1, 2, 3]]
    assert found.corpus.vocabulary == tuple(model)
    assert found.outside_words == 0
    assert caplog.messages == [
        f"given: {nameless} has no names of words: columns are taken for the model's words in order"
    ]
    for wrong in (model[:2], [*model, "w3" if words is None else "ale"]):
        rule = rf"given: {nameless} has no names of words.*{len(wrong)} words, got 3"
        with pytest.raises(CorpusError, match=rule):
            align(matrix_of(names), wrong)


def test_where_neither_has_names_numbers_are_the_names(caplog):
    """As a file of ids has it, in which the largest need not occur."""
    for n, kept in ((5, [1, 2, 3, 0, 0]), (2, [1, 2])):
        found = align(matrix_of(None), [f"w{v}" for v in range(n)])
        assert found.corpus.as_sparse().toarray().tolist() == [kept]
    assert found.outside_tokens == 3
    assert caplog.messages == []


def test_no_token_of_a_known_word_is_legal_where_it_is_asked_for():
    for corpus in (
        Corpus.from_tokens([["ash"], ["bay", "ash"]]),
        Corpus.from_sparse(np.array([[0, 1], [0, 2]]), ["tea", "rum"]),
    ):
        found = align(corpus, ["tea", "milk"], may_be_empty=True)
        assert found.corpus.as_sparse().toarray().tolist() == [[0, 0], [0, 0]]
        assert (found.outside_tokens, found.corpus.vocabulary) == (3, ("tea", "milk"))
        with pytest.raises(CorpusError, match="there must be a"):
            align(corpus, ["tea", "milk"])
    for words in (["tea"], ["w0"]):
        found = align(Documents.from_tokens([[], []]), words, may_be_empty=True)
        assert found.corpus.as_sparse().shape == (2, 1)
