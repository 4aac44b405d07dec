"""The corpus: documents x words counts in compressed rows, with the words. Immutable.

Strategy: whatever comes in is checked and brought into one form once (`_matrix`, `_rows`), and
everything behind relies on that form: rows sorted by word, no pair twice, every count positive
and finite. Indices are int32 and counts float32, because there may be billions of them.
It never changes an array it was given by a user, and never holds a dense matrix.
"""

import hashlib
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from esvi_shm import frames
from esvi_shm.errors import CorpusError

#: Sums over documents and words must be numbers in float32, and their squares not matter.
MOST_TOKENS = 1e36


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Counts of words in documents.

    The constructor takes over the arrays it is given without a copy and makes them read-only:
    it is for readers. `from_sparse`, `from_tokens` and `as_corpus` leave the caller's data alone.

    Parameters
    ----------
    indptr : ndarray of int64, (D + 1,)
        Document d has the pairs ``indptr[d]:indptr[d + 1]``.
    indices : ndarray of int32, (n_pairs,)
        Words, strictly ascending within a document.
    counts : ndarray of float32, (n_pairs,)
        Counts, finite and greater than 0; fractions are legal.
    n_words : int
        Size V of the vocabulary; words that never occur are legal, as are empty documents.
    vocabulary : sequence of str, (V,), optional
        The words; None calls word v ``"w<v>"``.
    name : str
        Where the corpus is from, for messages.

    Raises
    ------
    CorpusError
        When an array breaks a rule above, the vocabulary has another length, or there is no token.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["tea", "milk", "tea"], [], ["milk"]])
    >>> corpus.n_documents, corpus.n_words, corpus.n_pairs, corpus.n_tokens
    (3, 2, 3, 4)
    >>> corpus.word(1), corpus.as_sparse().toarray().tolist()
    ('tea', [[1.0, 2.0], [0.0, 0.0], [1.0, 0.0]])
    """

    indptr: np.ndarray
    indices: np.ndarray
    counts: np.ndarray
    n_words: int
    vocabulary: tuple[str, ...] | None = None
    name: str = field(default="corpus")
    #: Whether there may be no token: nothing can be fitted to that.
    may_be_empty: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.vocabulary is not None:
            words = tuple(str(word) for word in self.vocabulary)
            object.__setattr__(self, "vocabulary", words)
            self._check_vocabulary(len(words))
        self._check_arrays()
        for values in (self.indptr, self.indices, self.counts):
            values.setflags(write=False)

    def _check_vocabulary(self, length: int) -> None:
        if length != self.n_words:
            hint = ""
            if length == self.n_documents:
                hint = f"; there are {length} documents: is the matrix transposed?"
            raise CorpusError(
                self.name,
                f"the vocabulary must have one entry a word: it has {length}, "
                f"the corpus has {self.n_words} words{hint}",
            )

    def _check_arrays(self) -> None:
        from esvi_shm.corpus import _rows

        for label, kind in (("indptr", np.int64), ("indices", np.int32), ("counts", np.float32)):
            values = getattr(self, label)
            if values.dtype != kind or values.ndim != 1 or not values.flags.c_contiguous:
                raise CorpusError(
                    self.name, f"{label} must be a contiguous vector of {kind.__name__}"
                )
        if len(self.indptr) == 0 or len(self.indices) != len(self.counts):
            raise CorpusError(self.name, "the arrays of a corpus must have matching lengths")
        if len(self.indices) == 0 and not self.may_be_empty:
            raise CorpusError(
                self.name,
                f"a corpus must have at least one token, got none in {self.n_documents} documents",
            )
        what, d, j = _rows.find_fault(self.indptr, self.indices, self.counts, self.n_words)
        if what == _rows.OFFSETS:
            raise CorpusError(self.name, f"indptr must ascend from 0 to n_pairs, fails at row {d}")
        if what != _rows.FINE:
            rule = {
                _rows.RANGE: f"words must be in 0..{self.n_words - 1}",
                _rows.ORDER: "words of a document must ascend without duplicates",
                _rows.COUNT: "counts must be finite (in float32) and greater than 0",
            }[what]
            value = self.counts[j] if what == _rows.COUNT else self.indices[j]
            raise CorpusError(
                self.name,
                f"{rule}, got {value.item()!r} at row {d}, column {self.indices[j]} (from 0)",
            )
        if not self.counts.sum(dtype=np.float64) <= MOST_TOKENS:
            raise CorpusError(self.name, f"the counts must sum to at most {MOST_TOKENS:g}")

    @property
    def n_documents(self) -> int:
        """Number D of documents, empty ones included."""
        return len(self.indptr) - 1

    @cached_property
    def n_pairs(self) -> int:
        """Number of (document, word) pairs with a count."""
        return len(self.indices)

    @cached_property
    def n_tokens(self) -> int | float:
        """Sum of all counts, in float64; an int where it is one."""
        total = float(self.counts.sum(dtype=np.float64))
        return int(total) if total.is_integer() else total

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.indptr.nbytes + self.indices.nbytes + self.counts.nbytes

    def word(self, v: int) -> str:
        """Return what word `v` is called."""
        if not 0 <= v < self.n_words:
            raise IndexError(f"word must be in 0..{self.n_words - 1}, got {v}")
        return f"w{v}" if self.vocabulary is None else self.vocabulary[v]

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256(f"{self.n_documents} {self.n_words} {self.n_pairs}\n".encode())
        for values in (self.indptr, self.indices, self.counts):
            # No copy on a little-endian machine; elsewhere the same digest all the same.
            digest.update(values.astype(values.dtype.newbyteorder("<"), copy=False).data)
        for word in self.vocabulary or ():
            encoded = word.encode("utf-8", "surrogatepass")
            digest.update(b"%d:%s" % (len(encoded), encoded))
        return digest.hexdigest()

    def digest(self) -> str:
        """Return the SHA-256 of sizes, arrays and vocabulary; the name does not count."""
        return self._digest

    def rows(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pairs of some documents, in the order asked for.

        Parameters
        ----------
        documents : ndarray of int64, (n,)
            From 0; one may come several times.

        Returns
        -------
        indptr : ndarray of int64, (n + 1,)
        indices : ndarray of int32
        counts : ndarray of float32
            As the corpus has them: words ascend.
        """
        from esvi_shm.corpus import _rows

        starts, sizes = self.indptr[documents], np.diff(self.indptr)[documents]
        indptr = _rows.offsets(sizes)
        places = np.repeat(starts - indptr[:-1], sizes) + np.arange(indptr[-1])
        return indptr, self.indices[places], self.counts[places]

    def document_tokens(self) -> np.ndarray:
        """Return the tokens of each document, float64 (D,)."""
        from esvi_shm.corpus import _rows

        tokens = np.zeros(self.n_documents)
        words = np.zeros(self.n_words)
        _rows.count_tokens(self.indptr, self.indices, self.counts, tokens, words)
        return tokens

    def of_all(self, array: np.ndarray) -> np.ndarray:
        """A float64 number of each document that is here, as such an array of all documents."""
        return array

    @property
    def whole(self) -> Any:
        """What this is a part of (see `part`), or itself."""
        return self.__dict__.get("_whole", self)

    def pairs_per_word(self) -> np.ndarray:
        """Return in how many documents each word occurs, int64 (V,)."""
        from esvi_shm.corpus import _rows

        sizes = np.zeros(self.n_words, dtype=np.int64)
        # A kernel: np.bincount would first copy all indices to int64.
        _rows.count_rows(self.indices, sizes)
        return sizes

    def release(self) -> None:
        """Give up the pairs, which makes room; sizes, words, name and digest stay.

        For whoever made the corpus, once something else holds them (`held.HeldCorpus`). What
        needs the pairs raises AttributeError afterwards.
        """
        self.digest(), self.n_pairs, self.n_tokens  # they are kept
        object.__delattr__(self, "indices")
        object.__delattr__(self, "counts")

    def as_sparse(self) -> Any:
        """Return a `scipy.sparse.csr_matrix` (D, V) of float32 that shares the arrays, read-only.

        scipy may make an int32 copy of `indptr`.
        """
        import scipy.sparse

        shape = (self.n_documents, self.n_words)
        return scipy.sparse.csr_matrix((self.counts, self.indices, self.indptr), shape, copy=False)

    def __repr__(self) -> str:
        return (
            f"Corpus({self.name!r}: {self.n_documents} documents, {self.n_words} words, "
            f"{self.n_pairs} pairs, {self.n_tokens} tokens)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, so that a copy from a pickle is read-only too.
        arrays = (self.indptr, self.indices, self.counts)
        return type(self), (*arrays, self.n_words, self.vocabulary, self.name)

    @classmethod
    def from_sparse(
        cls, matrix: Any, vocabulary: Iterable[str] | None = None, name: str = "matrix"
    ) -> Self:
        """Make a corpus of a documents x words matrix; the matrix is copied once, never changed.

        Parameters
        ----------
        matrix : sparse matrix, sparse array or ndarray, (D, V)
            Any scipy format, any bool, integer or float type. Counts must be finite and >= 0.
            Duplicates are summed; zeros, and what float32 rounds to zero, are dropped.
        vocabulary : iterable of str, (V,), optional
            The words.
        name : str
            For messages.

        Raises
        ------
        CorpusError
            When a count or an index breaks a rule: names the row, the column and the value.

        Examples
        --------
        >>> Corpus.from_sparse(np.array([[0, 2], [1, 0]]), ["milk", "tea"])
        Corpus('matrix': 2 documents, 2 words, 2 pairs, 3 tokens)
        """
        from esvi_shm.corpus._matrix import compress

        arrays, n_words = compress(matrix, name)
        return cls(*arrays, n_words, None if vocabulary is None else tuple(vocabulary), name)

    @classmethod
    def from_tokens(cls, documents: Iterable[Sequence[str]], name: str = "tokens") -> Self:
        """Make a corpus of documents given as lists of words; the vocabulary is sorted.

        Raises
        ------
        CorpusError
            When a document is a string or a token is not one.

        Examples
        --------
        >>> Corpus.from_tokens([["b", "a", "b"]]).vocabulary
        ('a', 'b')
        """
        from esvi_shm.corpus import _rows

        numbers: dict[str, int] = {}
        tokens, sizes = array("i"), array("q")
        for d, document in enumerate(documents):
            if isinstance(document, str | bytes) or not isinstance(document, Iterable):
                raise CorpusError(
                    name,
                    f"document {d} must be a list of tokens, got {type(document).__name__}"
                    + (" (split it into words)" if isinstance(document, str) else ""),
                )
            before = len(tokens)
            for token in document:
                if not isinstance(token, str):
                    hint = ""
                    if isinstance(token, tuple):  # gensim's
                        hint = "; of pairs (word, count) make a matrix: corpus2csc(bags).T"
                    raise CorpusError(
                        name, f"document {d}: tokens must be strings, got {token!r}{hint}"
                    )
                tokens.append(numbers.setdefault(token, len(numbers)))
            sizes.append(len(tokens) - before)
        words = sorted(numbers)
        rank = np.empty(len(words), dtype=np.int32)
        rank[[numbers[word] for word in words]] = np.arange(len(words), dtype=np.int32)
        indices = rank[np.frombuffer(tokens, dtype=np.int32)] if tokens else rank[:0].copy()
        indptr = _rows.offsets(np.array(sizes, dtype=np.int64))
        arrays = _rows.tidy(indptr, indices, np.ones(len(indices), dtype=np.float32))
        return cls(*arrays, len(words), tuple(words), name)


class Documents(Corpus):
    """A corpus that is only read, and so may hold no token.

    Examples
    --------
    >>> Documents.from_tokens([[], []]).n_tokens
    0
    """

    may_be_empty = True


def numbers_of(words: Sequence[str]) -> dict[str, int]:
    """The number of each word; of words that are called alike it is that of the first.

    Examples
    --------
    >>> numbers_of(["tea", "milk", "tea"])
    {'tea': 0, 'milk': 1}
    """
    return {word: v for v, word in reversed(list(enumerate(words)))}


def _has_numbers(rows: Sequence[Any]) -> bool:
    first = next(iter(rows), None)
    return isinstance(first, list | tuple) and isinstance(next(iter(first), None), Real)


def _matrix_of(rows: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(rows)
    except ValueError as error:  # of different lengths
        raise CorpusError("matrix", f"lists of numbers must be a matrix: {error}") from None


def as_corpus(x: Any, may_be_empty: bool = False) -> Corpus:
    """Make a corpus of whatever holds documents.

    Parameters
    ----------
    x : Corpus, sparse matrix or array, ndarray, data frame, list of token lists, or path
        A corpus is returned as it is; a path goes to `esvi_shm.corpus.readers.read_corpus`. The
        columns of a data frame (of pandas, or alike) are its words, where they have names; a
        series holds token lists. What numpy takes for an array, as a tensor or lists of numbers,
        is one.
    may_be_empty : bool
        Whether a matrix or a list may hold no token; then it becomes `Documents`.

    Raises
    ------
    CorpusError
        When `x` is none of these, or is not a legal corpus.

    Examples
    --------
    >>> as_corpus([["tea", "milk"], ["tea"]]).n_tokens
    3
    """
    if isinstance(x, Corpus):
        return x
    if isinstance(x, str | os.PathLike):
        from esvi_shm.corpus.readers import read_corpus

        return read_corpus(x)
    kind = Documents if may_be_empty else Corpus
    if isinstance(x, np.ndarray):
        return kind.from_sparse(x)
    if isinstance(x, list | tuple):
        return kind.from_sparse(_matrix_of(x)) if _has_numbers(x) else kind.from_tokens(x)
    import scipy.sparse

    if scipy.sparse.issparse(x):
        return kind.from_sparse(x)
    if frames.is_frame(x):
        names = list(x.columns)
        words = names if all(isinstance(name, str) for name in names) else None
        return kind.from_sparse(frames.matrix_of(x), words, type(x).__name__)
    if hasattr(x, "to_list"):
        return kind.from_tokens(x.to_list(), type(x).__name__)
    if hasattr(x, "__array__"):
        return kind.from_sparse(np.asarray(x))
    raise CorpusError(
        type(x).__name__,
        "a corpus must be a Corpus, a sparse matrix, an array, a data frame, a list of token "
        "lists or a path",
    )
