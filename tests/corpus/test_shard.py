import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.corpus import Corpus
from esvi_shm.corpus.shard import (
    assign_blocks,
    empty_shard,
    fill_shard,
    shard_sizes,
    split_documents,
)
from esvi_shm.errors import ParameterError
from tests.corpus.strategies import matrices


def plain_shard(dense, lo, hi, word_order, block_bounds, n_turns):
    """The seven arrays by np.lexsort."""
    rank = np.argsort(word_order)
    docs, words = np.nonzero(dense[lo:hi])
    counts = dense[lo:hi][docs, words]
    rows = rank[words]
    blocks = np.searchsorted(block_bounds, rows, side="right") - 1
    cells = blocks * n_turns + docs % n_turns
    order = np.lexsort((rows, docs, cells))
    docs, rows, cells, counts = docs[order], rows[order], cells[order], counts[order]
    both, pair_word = np.unique(cells * len(rank) + rows, return_inverse=True)
    new = np.ones(len(rows), bool)
    new[1:] = (np.diff(cells) != 0) | (np.diff(docs) != 0)
    starts = np.flatnonzero(new)
    edges = np.arange(n_turns * (len(block_bounds) - 1) + 1)
    return (
        pair_word,
        counts,
        docs[starts],
        np.append(starts, len(rows)),
        np.searchsorted(cells[starts], edges),
        both % len(rank),
        np.searchsorted(both // len(rank), edges),
    )


@given(
    matrices(),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 99),
)
def test_shards_are_those_of_lexsort(dense, n_shards, n_blocks, n_turns, shuffled, seed):
    corpus = Corpus.from_sparse(dense)
    order, bounds = assign_blocks(corpus.pairs_per_word(), n_blocks)
    if shuffled:
        # Any permutation is legal, also one that does not ascend within its blocks.
        order = np.random.default_rng(seed).permutation(order)
    cuts = split_documents(corpus.indptr, n_shards)
    for lo, hi in itertools.pairwise(cuts):
        sizes = shard_sizes(corpus, lo, hi, order, bounds, n_turns)
        shard = empty_shard(sizes, n_blocks * n_turns)
        for values in shard:
            values.fill(-77)
        fill_shard(corpus, lo, hi, order, bounds, shard, n_turns)
        expected = plain_shard(dense, lo, hi, order, bounds, n_turns)
        for name, got, wanted in zip(shard._fields, shard, expected, strict=True):
            assert got.tolist() == wanted.tolist(), name


def test_arrays_of_another_size_are_refused():
    corpus = Corpus.from_sparse(np.eye(3))
    cut = (corpus, 0, 2, np.arange(3, dtype=np.int32), np.array([0, 1, 3]))
    shard = empty_shard(shard_sizes(*cut), 2)
    with pytest.raises(ValueError, match=r"row_doc must be int32 \(2,\), got int32 \(1,\)"):
        fill_shard(*cut, shard._replace(row_doc=np.empty(1, np.int32)))
    with pytest.raises(ValueError, match=r"pair_count must be float32 \(2,\), got float64"):
        fill_shard(*cut, shard._replace(pair_count=np.empty(2)))


@pytest.mark.parametrize("documents", [(-1, 2), (2, 1), (0, 4)])
def test_a_range_outside_the_corpus_is_refused(documents):
    corpus = Corpus.from_sparse(np.eye(3))
    with pytest.raises(ParameterError, match=r"a range of documents within 0\.\.3"):
        shard_sizes(corpus, *documents, np.arange(3, dtype=np.int32), np.array([0, 3]))
