"""SVMlight: one document a line, `label qid:n id:count id:count ... # comment`.

Labels and query ids are left out. Word ids are taken to begin with 1, as the format says, unless
a 0 occurs: files by scikit-learn begin with 0. Where word 0 of such a file occurs in no document
that is wrong, so the decision is logged, and the option `first_id` makes it. Own, and not
scikit-learn's reader, because that cannot say in which line a fault is.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files
from esvi_shm.errors import CorpusError, ParameterName

if TYPE_CHECKING:
    from esvi_shm.corpus.range import Range, Share

FORMAT = "svmlight"
OPTIONS = frozenset({"vocabulary", "first_id"})
SUFFIXES = (".svm", ".svmlight", ".libsvm")

_log = logging.getLogger(__name__)


def matches(path: Path) -> bool:
    """Whether the name ends in .svm, .svmlight or .libsvm, or in one of these and .gz."""
    return _files.has_suffix(path, *SUFFIXES)


def read_range(
    path: Path, options: ReadOptions, progress: Progress | None, share: "Share"
) -> "Range":
    """Read a range of an SVMlight file."""
    from esvi_shm.corpus import _rows
    from esvi_shm.corpus.range import Range
    from esvi_shm.corpus.readers._pairs import Grammar, read_pairs

    words = options.vocabulary
    vocabulary = None if words is None else _files.read_vocabulary(words)
    with _files.LineBlocks(path, progress, hashing=share.n > 1) as blocks:
        # From 0 or from 1: that shows when all ids are read.
        grammar = Grammar(True) if vocabulary is None else Grammar(True, len(vocabulary) + 1)
        found = read_pairs(blocks, grammar, share)
    (indptr, ids, counts), most, zero_occurs = found.arrays, max(found.largest, 0), not found.least
    first = options.first_id
    if first is None:
        first = 0 if zero_occurs else 1
        why = "a 0 occurs" if zero_occurs else "no 0 occurs"
        _log.info(
            "%s: word ids begin with %d, since %s (else give %s); labels and query ids are left "
            "out", path, first, why, ParameterName("first_id"),
        )  # fmt: skip
    else:
        if first == 1 and zero_occurs:
            raise CorpusError(path, "with first_id 1 word ids must be at least 1, got 0")
        _log.info("%s: labels and query ids are left out", path)
    ids -= first
    n_words = most + 1 - first
    if vocabulary is not None:
        if n_words > len(vocabulary):
            rule = f"the vocabulary {words} has {len(vocabulary)} words"
            raise CorpusError(path, f"{rule}, but with ids from {first} a word has id {most}")
        n_words = len(vocabulary)
    corpus = share.corpus(*_rows.tidy(indptr, ids, counts), n_words, vocabulary, str(path))
    return Range(corpus, found.first, len(found.sizes), blocks.digest)
