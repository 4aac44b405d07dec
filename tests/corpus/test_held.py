"""What is asked of a corpus is answered the same by the shards that hold it."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.corpus import Corpus
from esvi_shm.corpus.held import HeldCorpus
from esvi_shm.corpus.shard import (
    assign_blocks,
    empty_shard,
    fill_shard,
    shard_sizes,
    split_documents,
)
from tests.corpus.strategies import matrices


def hold(corpus: Corpus, n_shards: int, n_blocks: int, n_turns: int = 2) -> HeldCorpus:
    order, blocks = assign_blocks(corpus.pairs_per_word(), n_blocks)
    bounds = split_documents(corpus.indptr, n_shards)
    shards = []
    for lo, hi in itertools.pairwise(bounds):
        sizes = shard_sizes(corpus, lo, hi, order, blocks, n_turns)
        shards.append(empty_shard(sizes, n_blocks * n_turns))
        fill_shard(corpus, lo, hi, order, blocks, shards[-1], n_turns)
    return HeldCorpus(corpus, bounds, order, shards)


@given(matrices(), st.integers(1, 4), st.integers(1, 5), st.data())
def test_rows_are_those_of_the_corpus(dense, n_shards, n_blocks, data):
    corpus = Corpus.from_sparse(dense)
    asked = data.draw(st.lists(st.integers(0, corpus.n_documents - 1), max_size=9))
    documents = np.array(asked, np.int64)
    indptr, indices, counts = hold(corpus, n_shards, n_blocks).rows(documents)
    found = np.zeros((len(asked), corpus.n_words), np.float32)
    for i, (lo, hi) in enumerate(itertools.pairwise(indptr)):
        assert (np.diff(indices[lo:hi]) > 0).all()
        found[i, indices[lo:hi]] = counts[lo:hi]
    assert found.tolist() == dense[documents].astype(np.float32).tolist()
    for got, wanted in zip((indptr, indices, counts), corpus.rows(documents), strict=True):
        assert got.dtype == wanted.dtype and got.tolist() == wanted.tolist()


@given(matrices(), st.integers(1, 4), st.integers(1, 5))
def test_words_have_as_many_pairs_as_in_the_corpus(dense, n_shards, n_blocks):
    held = hold(Corpus.from_sparse(dense), n_shards, n_blocks)
    assert held.pairs_per_word().tolist() == np.count_nonzero(dense, axis=0).tolist()


def test_a_released_corpus_is_known_by_all_but_its_pairs():
    dense = np.array([[0, 2.5, 1], [0, 0, 0], [3, 0, 0]])
    corpus, other = (Corpus.from_sparse(dense, "abc", "toy") for _ in range(2))
    held = hold(corpus, 2, 2)
    corpus.release()
    assert corpus.digest() == other.digest() and repr(corpus) == repr(other)
    assert (corpus.n_documents, corpus.n_words, corpus.n_pairs) == (3, 3, 3)
    assert (corpus.vocabulary, corpus.word(2), corpus.n_tokens) == (("a", "b", "c"), "c", 6.5)
    assert held.rows(np.array([0]))[1].tolist() == [1, 2]
    for ask in (corpus.as_sparse, corpus.pairs_per_word, lambda: corpus.rows(np.array([0]))):
        with pytest.raises(AttributeError):
            ask()
