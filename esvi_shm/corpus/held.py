"""The documents of a fit, read back from its shards.

Once the shards are filled they hold all pairs, so the corpus may be released: what starts and
repairs ask of it, some documents and the numbers of pairs, is found here. `Corpus` answers the
same questions, and gives the same answers to the bit.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus import _rows
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.shard import Shard


class HeldCorpus:
    """A corpus whose pairs lie in shards.

    Parameters
    ----------
    corpus : Corpus
        It may be released: its pairs are not looked at.
    document_bounds : ndarray of int64, (P + 1,)
        Shard p has the documents ``document_bounds[p]:document_bounds[p + 1]``.
    word_ids : ndarray of int32, (V,)
        Word of each word row.
    shards : sequence of Shard
        Filled.

    Examples
    --------
    >>> from esvi_shm.corpus.shard import empty_shard, fill_shard, shard_sizes
    >>> corpus = Corpus.from_tokens([["a", "b", "b"], ["b", "c"]])
    >>> word_ids = np.array([0, 2, 1], np.int32)
    >>> cut = (corpus, 0, 2, word_ids, np.array([0, 2, 3]))
    >>> shard = empty_shard(shard_sizes(*cut), 2)
    >>> fill_shard(*cut, shard)
    >>> held = HeldCorpus(corpus, np.array([0, 2]), word_ids, [shard])
    >>> [part.tolist() for part in held.rows(np.array([1, 0]))]
    [[0, 2, 4], [1, 2, 0, 1], [1.0, 1.0, 1.0, 2.0]]
    """

    def __init__(
        self,
        corpus: Corpus,
        document_bounds: np.ndarray,
        word_ids: np.ndarray,
        shards: Sequence[Shard],
    ) -> None:
        self.name, self.vocabulary, self.word = corpus.name, corpus.vocabulary, corpus.word
        self.n_documents, self.n_words = corpus.n_documents, corpus.n_words
        self._bounds, self._word_ids, self._shards = document_bounds, word_ids, shards

    def rows(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Corpus.rows`."""
        sizes = np.zeros(len(documents), np.int64)
        places = []
        for shard, (lo, hi) in zip(self._shards, pairwise(self._bounds.tolist()), strict=True):
            mine = np.flatnonzero((documents >= lo) & (documents < hi))
            places.append((shard, mine, (documents[mine] - lo).astype(np.int32)))
            _count_pairs(shard, *places[-1][1:], sizes)
        indptr = _rows.offsets(sizes)
        indices = np.empty(indptr[-1], np.int32)
        counts = np.empty(indptr[-1], np.float32)
        for shard, mine, local in places:
            _copy_pairs(shard, mine, local, self._word_ids, indptr, indices, counts)
        _rows.sort_rows(indptr, indices, counts)
        return indptr, indices, counts

    def document_tokens(self) -> np.ndarray:
        """See `Corpus.document_tokens`."""
        tokens = np.zeros(int(self._bounds[-1]))
        for shard, (lo, hi) in zip(self._shards, pairwise(self._bounds.tolist()), strict=True):
            _add_tokens(shard, tokens[lo:hi])
        return tokens

    def of_all(self, array: np.ndarray) -> np.ndarray:
        """See `Corpus.of_all`."""
        return array

    def pairs_per_word(self) -> np.ndarray:
        """See `Corpus.pairs_per_word`."""
        by_row = np.zeros(self.n_words, np.int64)
        for shard in self._shards:
            of_shard = np.zeros(len(shard.word_row), np.int64)
            _rows.count_rows(shard.pair_word, of_shard)
            np.add.at(by_row, shard.word_row, of_shard)  # a word may be in several cells
        by_word = np.empty_like(by_row)
        by_word[self._word_ids] = by_row
        return by_word


#: What answers questions about documents: `rows`, `pairs_per_word`, sizes, words and name.
AnyCorpus = Corpus | HeldCorpus


@kernel
def _row_of(shard, block, document):
    """The row of a document in a block, or -1."""
    lo, hi = shard.block_row_ptr[block], shard.block_row_ptr[block + 1]
    r = lo + np.searchsorted(shard.row_doc[lo:hi], document)
    return r if r < hi and shard.row_doc[r] == document else -1


@kernel
def _count_pairs(shard, places, documents, sizes):
    """sizes[places[i]]: pairs of the shard's document number documents[i]."""
    for i in range(documents.shape[0]):
        for block in range(shard.block_row_ptr.shape[0] - 1):
            r = _row_of(shard, block, documents[i])
            if r >= 0:
                sizes[places[i]] += shard.row_ptr[r + 1] - shard.row_ptr[r]


@kernel
def _add_tokens(shard, tokens):
    """Add the tokens of each document of the shard."""
    for r in range(shard.row_doc.shape[0]):
        for j in range(shard.row_ptr[r], shard.row_ptr[r + 1]):
            tokens[shard.row_doc[r]] += shard.pair_count[j]


@kernel
def _copy_pairs(shard, places, documents, word_ids, indptr, indices, counts):
    """Write the pairs of these documents from indptr[places[i]] on, block by block."""
    for i in range(documents.shape[0]):
        at = indptr[places[i]]
        for block in range(shard.block_row_ptr.shape[0] - 1):
            r = _row_of(shard, block, documents[i])
            if r >= 0:
                for j in range(shard.row_ptr[r], shard.row_ptr[r + 1]):
                    indices[at] = word_ids[shard.word_row[shard.pair_word[j]]]
                    counts[at] = shard.pair_count[j]
                    at += 1
