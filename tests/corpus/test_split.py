import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.split import assign_blocks, split_documents
from esvi_shm.errors import ParameterError
from tests.corpus.strategies import matrices

sizes = st.lists(st.integers(0, 50), min_size=1, max_size=40)


@given(sizes, st.integers(1, 45))
def test_ranges_cover_all_documents_and_none_is_empty(pairs, n_shards):
    bounds = split_documents(np.append(0, np.cumsum(pairs)), n_shards)
    assert bounds.dtype == np.int64
    assert (bounds[0], bounds[-1], len(bounds)) == (0, len(pairs), n_shards + 1)
    lengths = np.diff(bounds)
    assert (lengths >= (1 if len(pairs) >= n_shards else 0)).all()
    assert len(pairs) >= n_shards or (lengths <= 1).all()


@given(st.lists(st.integers(1, 50), min_size=30, max_size=80), st.integers(1, 10))
def test_ranges_are_balanced(pairs, n_shards):
    bounds = split_documents(np.append(0, np.cumsum(pairs)), n_shards)
    loads = np.add.reduceat(pairs, bounds[:-1])
    # A cut is off by half a document at most, and a range has two cuts.
    slack = max(pairs) + 1
    if (np.diff(bounds) > 1).all():
        assert np.abs(loads - sum(pairs) / n_shards).max() <= slack


def test_pairs_past_two_to_the_53_are_exact():
    indptr = np.array([0, 2**60, 2**61 + 1, 2**61 + 2])
    assert split_documents(indptr, 2).tolist() == [0, 1, 3]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.integers(1, 12))
def test_blocks_are_a_permutation_balanced_within_the_proven_bound(pairs, n_blocks):
    order, bounds = assign_blocks(np.array(pairs), n_blocks)
    assert order.dtype == np.int32 and bounds.dtype == np.int64
    assert sorted(order.tolist()) == list(range(len(pairs)))
    assert bounds[0] == 0 and bounds[-1] == len(pairs) and len(bounds) == n_blocks + 1
    blocks = [order[a:b] for a, b in itertools.pairwise(bounds)]
    assert all((np.diff(block) > 0).all() for block in blocks)
    loads = [sum(pairs[v] for v in block) for block in blocks]
    # The best maximum is not known, but any list schedule is within mean + largest.
    assert max(loads) <= sum(pairs) / n_blocks + max(pairs)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 9))
def test_blocks_are_those_of_the_plain_greedy(pairs, n_blocks):
    loads, members = [0] * n_blocks, [[] for _ in range(n_blocks)]
    for v in sorted(range(len(pairs)), key=lambda v: -pairs[v]):
        if pairs[v]:
            b = loads.index(min(loads))
            loads[b] += pairs[v]
            members[b].append(v)
    for v in range(len(pairs)):
        if not pairs[v]:
            min(members, key=len).append(v)
    order, bounds = assign_blocks(np.array(pairs), n_blocks)
    assert [order[a:b].tolist() for a, b in itertools.pairwise(bounds)] == [
        sorted(block) for block in members
    ]


def test_zipf_words_are_balanced_to_a_thousandth():
    pairs = np.minimum(20_000, (400_000 / np.arange(1, 50_001)).astype(np.int64))
    order, bounds = assign_blocks(pairs, 64)
    loads = np.add.reduceat(pairs[order], bounds[:-1])
    assert loads.max() <= 1.001 * loads.mean()


@given(matrices())
def test_pairs_per_word(dense):
    counted = Corpus.from_sparse(dense).pairs_per_word()
    assert counted.tolist() == np.count_nonzero(dense, axis=0).tolist()


def test_bad_parameters():
    with pytest.raises(ParameterError, match="n_shards must be at least 1, got 0"):
        split_documents(np.array([0, 1]), 0)
    with pytest.raises(ParameterError, match="n_blocks must be at least 1, got 0"):
        assign_blocks(np.array([1]), 0)
