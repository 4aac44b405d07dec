"""A corpus with another vocabulary, brought to the words of a model by their names."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from esvi_shm.corpus.corpus import Corpus, Documents, numbers_of
from esvi_shm.errors import CorpusError

_log = logging.getLogger(__name__)


class Alignment(NamedTuple):
    """A corpus in a model's vocabulary, and what of it that vocabulary does not have."""

    corpus: Corpus
    #: Words that occur in the corpus and not in the vocabulary, and their tokens.
    outside_words: int
    outside_tokens: float


def align(corpus: Corpus, words: Sequence[str], may_be_empty: bool = False) -> Alignment:
    """Number the words of a corpus as a model does.

    Words are matched by name. Word v of a corpus or a model without names is called ``"w<v>"``;
    where only one of the two has names, and none in common, column v is taken for word v, if there
    is a column for each word, and a warning says so.

    Parameters
    ----------
    corpus : Corpus
    words : sequence of str, length V
        The model's vocabulary. Of words that are called the same the first one counts.
    may_be_empty : bool
        Whether no token of a known word is as good as any: what is inferred of such documents is
        the prior. The corpus of the result is `Documents` then.

    Returns
    -------
    Alignment
        Its corpus has the same documents in the same order, without the words outside the
        vocabulary; documents may become empty.

    Raises
    ------
    CorpusError
        Unless `may_be_empty`, if no word of the corpus is in the vocabulary, or none of those
        occurs. In any case, if columns without names are not as many as the words.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["tea", "milk", "tea"], ["rum"]])
    >>> aligned = align(corpus, ["tea", "sea", "milk"])
    >>> aligned.corpus.as_sparse().toarray().tolist()
    [[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    >>> aligned.outside_words, aligned.outside_tokens
    (1, 1)
    """
    words = tuple(words)
    names, at = corpus.vocabulary, corpus.indices
    if not corpus.n_pairs and not may_be_empty:
        raise CorpusError(corpus.name, "there must be a token")
    if names == words:
        return Alignment(corpus, 0, 0)
    numbered = all(f"w{v}" == word for v, word in enumerate(words))
    if names is None:
        if corpus.n_words == len(words) and numbered:
            return _by_column(corpus, words)
        # Words that never occur need no name: one large id may be all there is of them.
        used, at = np.unique(corpus.indices, return_inverse=True)
        names = tuple(corpus.word(v) for v in used.tolist())
    number = numbers_of(words)
    if len(number) < len(words):
        _log.warning(
            "%s: %d words of the model are called like one before them, to which all tokens of "
            "that name go", corpus.name, len(words) - len(number),
        )  # fmt: skip
    number_of = np.array([number.get(name, -1) for name in names], dtype=np.int64)
    if not (number_of >= 0).any():
        if (corpus.vocabulary is None) != numbered and corpus.n_words:
            return _by_column_for_want_of_names(corpus, words)
        if not may_be_empty:
            raise CorpusError(
                corpus.name,
                "there must be a word in common with the vocabulary of the model: "
                f"the corpus has {_some(names)}, the model has {_some(words)}",
            )
    columns = number_of[at]
    inside = columns >= 0
    if not inside.any() and not may_be_empty:
        raise CorpusError(
            corpus.name,
            "there must be a token of a word that the model knows: all "
            f"{corpus.n_tokens:,} are of others, {_some([names[v] for v in at[:9]])}",
        )
    outside_tokens = float(corpus.counts[~inside].sum(dtype=np.float64))
    return Alignment(
        _renumbered(corpus, columns, inside, words, Documents if may_be_empty else Corpus),
        len(np.unique(corpus.indices[~inside])),
        int(outside_tokens) if outside_tokens.is_integer() else outside_tokens,
    )


def _by_column(corpus: Corpus, words: tuple[str, ...]) -> Alignment:
    """Word v of the corpus is word v of the model."""
    arrays = (corpus.indptr, corpus.indices, corpus.counts)
    return Alignment(type(corpus)(*arrays, corpus.n_words, words, corpus.name), 0, 0)


def _by_column_for_want_of_names(corpus: Corpus, words: tuple[str, ...]) -> Alignment:
    nameless = "the corpus" if corpus.vocabulary is None else "the model"
    if corpus.n_words != len(words):
        raise CorpusError(
            corpus.name,
            f"{nameless} has no names of words, and without names there must be a column for each "
            f"of the model's {len(words)} words, got {corpus.n_words}",
        )
    _log.warning(
        "%s: %s has no names of words: columns are taken for the model's words in order",
        corpus.name, nameless,
    )  # fmt: skip
    return _by_column(corpus, words)


def _renumbered(
    corpus: Corpus,
    columns: np.ndarray,
    inside: np.ndarray,
    words: tuple[str, ...],
    kind: type[Corpus],
) -> Corpus:
    """The pairs inside the vocabulary; `columns` are the numbers of their words in it."""
    import scipy.sparse

    before = np.zeros(corpus.n_pairs + 1, np.int64)
    np.cumsum(inside, out=before[1:])
    shape = (corpus.n_documents, len(words))
    matrix = scipy.sparse.csr_matrix(
        (corpus.counts[inside], columns[inside], before[corpus.indptr]), shape=shape
    )
    return kind.from_sparse(matrix, words, corpus.name)


def _some(words: Sequence[str]) -> str:
    """The first three different words, for a message."""
    first = [repr(word) for word in dict.fromkeys(words)]
    return ", ".join(first[:3]) + (", ..." if len(first) > 3 else "")
