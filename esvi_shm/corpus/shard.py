"""Shards: the part of a corpus that one worker holds, and the order of its pairs.

A worker holds one shard, a contiguous range of documents, and is visited by one block of words at
a time. So the pairs of a shard lie in the order (block, document, word row): a visit reads one
contiguous stretch, and within it one document after the other.

A visit may go in several turns, and the words' parameters settle after each: turn t of T has the
documents d with d % T = t. A block and a turn make a cell, c = b T + t, and the order is (cell,
document, word row); with one turn a cell is a block.

    cell c       rows       block_row_ptr[c] : block_row_ptr[c + 1]
      row r      document   row_doc[r];  pairs row_ptr[r] : row_ptr[r + 1]
        pair j   word row   pair_word[j], with pair_count[j]
    cell c       word rows  block_word_ptr[c] : block_word_ptr[c + 1] of word_row

Documents are read in ascending order and cells are written by one cursor each, so every array
is filled in one linear pass without a sort; the temporaries are two vectors over the vocabulary,
one more for each turn, and a few over the cells. Nothing here allocates a shard: the caller does,
in shared memory, from `shard_sizes` and `shard_shapes`.
"""

from typing import Any, NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus import _rows
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.split import assign_blocks, split_documents
from esvi_shm.errors import ParameterError

__all__ = [
    "Shard",
    "ShardSizes",
    "assign_blocks",
    "empty_shard",
    "fill_shard",
    "shard_shapes",
    "shard_sizes",
    "split_documents",
]


class ShardSizes(NamedTuple):
    """Sizes of a shard's arrays."""

    n_pairs: int
    n_rows: int
    n_word_rows: int


class Shard(NamedTuple):
    """The arrays of a shard; written by `fill_shard`, only read afterwards.

    A pair takes 8 bytes. Narrower ones have been weighed: a word in 2 bytes has to be counted from
    its block's first word row, since shards of more than 65,536 words are those that are large, and
    would save 1.0 of the 17.5 GB that 483 million pairs take with 128 topics (2 blocks, 2 workers);
    a count in 1 byte 1.4 GB, where all are whole and below 256, at the price of a second set of
    kernels for those that are not. With the state at 4 K bytes a row neither decides what fits.
    """

    pair_word: np.ndarray  # int32 (n_pairs,): index into word_row, ascending within a row
    pair_count: np.ndarray  # float32 (n_pairs,)
    row_doc: np.ndarray  # int32 (n_rows,): document, from 0 within the shard
    row_ptr: np.ndarray  # int64 (n_rows + 1,): pairs of each row
    block_row_ptr: np.ndarray  # int64 (B T + 1,): rows of each cell
    word_row: np.ndarray  # int32 (n_word_rows,): positions in word_order, ascending within a cell
    block_word_ptr: np.ndarray  # int64 (B T + 1,): word rows of each cell


def shard_sizes(
    corpus: Corpus,
    doc_lo: int,
    doc_hi: int,
    word_order: np.ndarray,
    block_bounds: np.ndarray,
    n_turns: int = 1,
    pairs_per_word: np.ndarray | None = None,
) -> ShardSizes:
    """Return how large the arrays of the shard of documents ``doc_lo:doc_hi`` are.

    Parameters
    ----------
    corpus : Corpus
        Of D documents and V words.
    doc_lo, doc_hi : int
        Range of documents, as from `split_documents`; may be empty.
    word_order, block_bounds : ndarray
        From `assign_blocks`.
    n_turns : int
    pairs_per_word : int32 array, shape (n_turns, V), optional
        Zeros; written: in how many documents of the shard each word occurs, by turn.

    Raises
    ------
    ParameterError
        When the range is not within the corpus.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["a", "b"], ["b", "c"]])
    >>> shard_sizes(corpus, 1, 2, *assign_blocks(corpus.pairs_per_word(), 2))
    ShardSizes(n_pairs=2, n_rows=2, n_word_rows=2)
    """
    _check_range(corpus, doc_lo, doc_hi)
    _, block_of = _rows_and_blocks(word_order, block_bounds)
    indptr, indices = corpus.indptr, corpus.indices
    found = pairs_per_word
    if found is None:
        found = np.zeros((n_turns, corpus.n_words), dtype=np.int32)
    n_rows = _count_rows(indptr, indices, doc_lo, doc_hi, block_of, len(block_bounds) - 1, found)
    n_pairs = int(indptr[doc_hi] - indptr[doc_lo])
    return ShardSizes(n_pairs, int(n_rows), int(np.count_nonzero(found)))


def shard_shapes(sizes: ShardSizes, n_cells: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """Return (shape, dtype) of each array of `Shard`, by name, in its order.

    Examples
    --------
    >>> shard_shapes(ShardSizes(9, 4, 5), 2)["row_ptr"]
    ((5,), <class 'numpy.int64'>)
    """
    return {
        "pair_word": ((sizes.n_pairs,), np.int32),
        "pair_count": ((sizes.n_pairs,), np.float32),
        "row_doc": ((sizes.n_rows,), np.int32),
        "row_ptr": ((sizes.n_rows + 1,), np.int64),
        "block_row_ptr": ((n_cells + 1,), np.int64),
        "word_row": ((sizes.n_word_rows,), np.int32),
        "block_word_ptr": ((n_cells + 1,), np.int64),
    }


def empty_shard(sizes: ShardSizes, n_cells: int) -> Shard:
    """Return unset arrays for `fill_shard` in private memory."""
    return Shard(**{n: np.empty(*spec) for n, spec in shard_shapes(sizes, n_cells).items()})


def fill_shard(
    corpus: Corpus,
    doc_lo: int,
    doc_hi: int,
    word_order: np.ndarray,
    block_bounds: np.ndarray,
    shard: Shard,
    n_turns: int = 1,
) -> None:
    """Write the pairs of documents ``doc_lo:doc_hi`` into the arrays of `shard`.

    Parameters are those of `shard_sizes`, and `shard` has arrays of exactly those sizes.

    Raises
    ------
    ValueError
        When an array of `shard` has another shape or dtype.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["a", "b", "b"], ["b", "c"]])
    >>> cut = (corpus, 0, 2, np.array([0, 2, 1], np.int32), np.array([0, 2, 3]))
    >>> shard = empty_shard(shard_sizes(*cut), 2)
    >>> fill_shard(*cut, shard)
    >>> shard.pair_word.tolist(), shard.pair_count.tolist(), shard.row_doc.tolist()
    ([0, 1, 2, 2], [1.0, 1.0, 2.0, 1.0], [0, 1, 0, 1])
    """
    sizes = shard_sizes(corpus, doc_lo, doc_hi, word_order, block_bounds, n_turns)
    for name, (shape, dtype) in shard_shapes(sizes, n_turns * (len(block_bounds) - 1)).items():
        given = getattr(shard, name)
        if given.shape != shape or given.dtype != dtype:
            raise ValueError(
                f"{name} must be {np.dtype(dtype)} {shape}, got {given.dtype} {given.shape}"
            )
    word_rows, block_of = _rows_and_blocks(word_order, block_bounds)
    indptr, indices = corpus.indptr, corpus.indices
    local = np.full((n_turns, corpus.n_words), -1, dtype=np.int32)
    _number_words(
        indptr,
        indices,
        doc_lo,
        doc_hi,
        word_rows,
        np.asarray(block_bounds, dtype=np.int64),
        local,
        shard.word_row,
        shard.block_word_ptr,
    )
    documents = (indptr, indices, corpus.counts, doc_lo, doc_hi)
    _place_pairs(*documents, word_rows, local, block_of, *shard[:5])
    # Reads only where word_order ascends within its blocks, as that of assign_blocks does.
    _rows.sort_rows(shard.row_ptr, shard.pair_word, shard.pair_count)


def _check_range(corpus: Corpus, doc_lo: int, doc_hi: int) -> None:
    if not 0 <= doc_lo <= doc_hi <= corpus.n_documents:
        rule = f"must be a range of documents within 0..{corpus.n_documents}"
        raise ParameterError("(doc_lo, doc_hi)", rule, (doc_lo, doc_hi))


def _rows_and_blocks(word_order: np.ndarray, block_bounds: np.ndarray) -> tuple[Any, Any]:
    """Word row and block of each word, int32 (V,) both."""
    word_rows = np.empty(len(word_order), dtype=np.int32)
    block_of = np.empty(len(word_order), dtype=np.int32)
    word_rows[word_order] = np.arange(len(word_order), dtype=np.int32)
    blocks = np.arange(len(block_bounds) - 1, dtype=np.int32)
    block_of[word_order] = np.repeat(blocks, np.diff(block_bounds))
    return word_rows, block_of


@kernel(allocates=True)
def _count_rows(indptr, indices, doc_lo, doc_hi, block_of, n_blocks, found):
    """Count (block, document) rows, and the documents of each turn that each word occurs in."""
    last_doc = np.full(n_blocks, -1, dtype=np.int64)
    n_rows = 0
    for d in range(doc_lo, doc_hi):
        for j in range(indptr[d], indptr[d + 1]):
            found[(d - doc_lo) % found.shape[0], indices[j]] += 1
            b = block_of[indices[j]]
            if last_doc[b] != d:
                last_doc[b] = d
                n_rows += 1
    return n_rows


@kernel
def _number_words(
    indptr, indices, doc_lo, doc_hi, word_rows, block_bounds, local, word_row, block_word_ptr
):
    """List the word rows that occur in each cell; `local`, (T, V), says where: -1 if not."""
    n_turns = local.shape[0]
    for d in range(doc_lo, doc_hi):
        for j in range(indptr[d], indptr[d + 1]):
            local[(d - doc_lo) % n_turns, word_rows[indices[j]]] = 0
    n = 0
    block_word_ptr[0] = 0
    for c in range(len(block_word_ptr) - 1):
        b, t = c // n_turns, c % n_turns
        for row in range(block_bounds[b], block_bounds[b + 1]):
            if local[t, row] == 0:
                word_row[n] = row
                local[t, row] = n
                n += 1
        block_word_ptr[c + 1] = n


@kernel(allocates=True)
def _place_pairs(
    indptr,
    indices,
    counts,
    doc_lo,
    doc_hi,
    word_rows,
    local,
    block_of,
    pair_word,
    pair_count,
    row_doc,
    row_ptr,
    block_row_ptr,
):
    """Write pairs and rows in the order (cell, document): one cursor a cell, one pass."""
    n_turns, n_cells = local.shape[0], len(block_row_ptr) - 1
    last_doc = np.full(n_cells, -1, dtype=np.int64)
    n_pairs = np.zeros(n_cells, dtype=np.int64)
    n_rows = np.zeros(n_cells, dtype=np.int64)
    for d in range(doc_lo, doc_hi):
        turn = (d - doc_lo) % n_turns
        for j in range(indptr[d], indptr[d + 1]):
            c = block_of[indices[j]] * n_turns + turn
            n_pairs[c] += 1
            if last_doc[c] != d:
                last_doc[c] = d
                n_rows[c] += 1
    # Where each cell's pairs and rows begin; from here on these are its cursors.
    pair_at, row_at = 0, 0
    for c in range(n_cells):
        block_row_ptr[c] = row_at
        row_at, n_rows[c] = row_at + n_rows[c], row_at
        pair_at, n_pairs[c] = pair_at + n_pairs[c], pair_at
    block_row_ptr[n_cells] = row_at
    row_ptr[row_at] = pair_at
    last_doc[:] = -1
    for d in range(doc_lo, doc_hi):
        turn = (d - doc_lo) % n_turns
        for j in range(indptr[d], indptr[d + 1]):
            v = indices[j]
            c = block_of[v] * n_turns + turn
            at = n_pairs[c]
            if last_doc[c] != d:
                last_doc[c] = d
                row_doc[n_rows[c]] = d - doc_lo
                row_ptr[n_rows[c]] = at
                n_rows[c] += 1
            pair_word[at] = local[turn, word_rows[v]]
            pair_count[at] = counts[j]
            n_pairs[c] = at + 1
