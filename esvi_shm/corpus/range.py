"""A range of a corpus's documents, read from the file of all of them.

One of several nodes has to know how long all documents are, to find the range that is its own, and
keeps only that: a reader that has `read_range` goes through the file twice, first for the lengths.
What a reader without one has read is cut here.
"""

from typing import NamedTuple

import numpy as np

from esvi_shm.corpus import _rows
from esvi_shm.corpus.corpus import Corpus, Documents
from esvi_shm.corpus.split import split_documents


class Share(NamedTuple):
    """Which one of `n` ranges, from 0, with about the same number of pairs each."""

    which: int
    n: int

    def of(self, sizes: np.ndarray) -> tuple[int, int]:
        """First document, and the one behind the last, by the pairs of every document.

        >>> Share(1, 3).of(np.array([2, 2, 2, 2, 2, 2]))
        (2, 4)
        """
        bounds = split_documents(_rows.offsets(sizes), self.n)
        return int(bounds[self.which]), int(bounds[self.which + 1])

    def corpus(self, *arguments: object) -> Corpus:
        """A `Corpus` of these arguments, which only a share may have without a token."""
        return (Corpus if self.n == 1 else Documents)(*arguments)  # type: ignore[arg-type]


#: All documents.
EVERYTHING = Share(0, 1)


class Range(NamedTuple):
    """Documents, and what is known of the others.

    Attributes
    ----------
    corpus : Corpus
        The documents of the range; its vocabulary is that of all. It may hold no token.
    first, n_documents : int
        Which document of all the first one is, and how many there are.
    digest : str
        Of all documents: the same for whoever has read the same.
    """

    corpus: Corpus
    first: int
    n_documents: int
    digest: str


def take(corpus: Corpus, first: int, last: int) -> Corpus:
    """Documents first..last-1 of a corpus, copied, as a corpus that may hold no token."""
    lo, hi = int(corpus.indptr[first]), int(corpus.indptr[last])
    arrays = (
        corpus.indptr[first : last + 1] - lo,
        corpus.indices[lo:hi].copy(),
        corpus.counts[lo:hi].copy(),
    )
    return Documents(*arrays, corpus.n_words, corpus.vocabulary, corpus.name)


def cut(corpus: Corpus, share: Share) -> Range:
    """The range of a corpus that is there as a whole.

    >>> cut(Corpus.from_tokens([["tea"], ["milk"], ["tea"], ["rum"]]), Share(1, 2))[:3]
    (Corpus('tokens': 2 documents, 3 words, 2 pairs, 2 tokens), 2, 4)
    """
    first, last = share.of(np.diff(corpus.indptr))
    return Range(take(corpus, first, last), first, corpus.n_documents, corpus.digest())
