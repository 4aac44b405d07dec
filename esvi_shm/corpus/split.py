"""Where a corpus is cut: its documents into ranges, its vocabulary into blocks.

Both balance pairs, because a pair is the unit of work, and both give the same cut for the same
corpus on any machine: nodes that read the same corpus agree on it.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus import _rows
from esvi_shm.errors import ParameterError


def split_documents(indptr: np.ndarray, n_shards: int) -> np.ndarray:
    """Cut documents into contiguous ranges with about the same number of pairs.

    Parameters
    ----------
    indptr : ndarray of int64, (D + 1,)
        Row offsets of a corpus.
    n_shards : int
        Number P of ranges.

    Returns
    -------
    bounds : ndarray of int64, (P + 1,)
        Range p is ``bounds[p]:bounds[p + 1]``; none is empty as long as D >= P. Where there are
        fewer documents than ranges, each of the first D ranges gets one.

    Raises
    ------
    ParameterError
        When `n_shards` is less than 1.

    Examples
    --------
    >>> split_documents(np.array([0, 5, 6, 7, 8, 10]), 2).tolist()
    [0, 1, 5]
    """
    if n_shards < 1:
        raise ParameterError("n_shards", "must be at least 1", n_shards)
    n_documents = len(indptr) - 1
    p = np.arange(n_shards + 1, dtype=np.int64)
    if n_documents < n_shards:
        return np.minimum(p, n_documents)
    total = int(indptr[-1])
    # Python integers: pairs times shards may pass 2**53, where floats would round.
    targets = np.array([total * int(i) // n_shards for i in p], dtype=np.int64)
    after = np.minimum(np.searchsorted(indptr, targets), n_documents)
    before = np.maximum(after - 1, 0)
    bounds = np.where(indptr[after] - targets < targets - indptr[before], after, before)
    bounds[0], bounds[-1] = 0, n_documents
    # At least one document each: push up from the left, then hold room for those on the right.
    bounds = np.maximum.accumulate(bounds - p) + p
    return np.minimum(bounds, n_documents - n_shards + p)


def assign_blocks(pairs_per_word: np.ndarray, n_blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut the vocabulary into blocks with about the same number of pairs.

    Longest processing time first: each word, from the most frequent on, goes to the block that
    has the fewest pairs so far. No block gets more than 4/3 of the best possible maximum
    (Graham 1969). Words without pairs even out the numbers of words.

    Parameters
    ----------
    pairs_per_word : ndarray of int, (V,)
        As from `Corpus.pairs_per_word`.
    n_blocks : int
        Number B of blocks.

    Returns
    -------
    word_order : ndarray of int32, (V,)
        All words, block after block, ascending within a block. The position of a word in it is
        its word row.
    block_bounds : ndarray of int64, (B + 1,)
        Block b has the words ``word_order[block_bounds[b]:block_bounds[b + 1]]``.

    Raises
    ------
    ParameterError
        When `n_blocks` is less than 1.

    Examples
    --------
    >>> order, bounds = assign_blocks(np.array([9, 3, 3, 3, 0]), 2)
    >>> order.tolist(), bounds.tolist()
    ([0, 4, 1, 2, 3], [0, 2, 5])
    """
    if n_blocks < 1:
        raise ParameterError("n_blocks", "must be at least 1", n_blocks)
    pairs = np.asarray(pairs_per_word, dtype=np.int64)
    by_pairs = np.argsort(-pairs, kind="stable")
    n_used = int(np.count_nonzero(pairs))
    block_of = np.empty(len(pairs), dtype=np.int32)
    used, unused = by_pairs[:n_used], by_pairs[n_used:]
    loads = np.zeros(n_blocks, dtype=np.int64)
    _fill_lightest(used, pairs[used], loads, np.arange(n_blocks), block_of)
    n_words = np.bincount(block_of[used], minlength=n_blocks)
    heap = np.argsort(n_words, kind="stable")  # sorted, hence a heap of (load, block)
    _fill_lightest(unused, np.ones(len(unused), dtype=np.int64), n_words, heap, block_of)
    word_order = np.argsort(block_of, kind="stable").astype(np.int32)
    return word_order, _rows.offsets(np.bincount(block_of, minlength=n_blocks))


@kernel
def _fill_lightest(words, weights, loads, heap, block_of):
    """Give each word in turn to the block of least load; ties go to the lowest block."""
    n = len(loads)
    for i in range(len(words)):
        b = heap[0]
        block_of[words[i]] = b
        loads[b] += weights[i]
        # Sift the root down: only its load has changed.
        at = 0
        while True:
            child = 2 * at + 1
            if child >= n:
                break
            right = child + 1
            if right < n and (loads[heap[right]], heap[right]) < (loads[heap[child]], heap[child]):
                child = right
            if (loads[heap[child]], heap[child]) >= (loads[b], b):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = b
