"""SVMlight: one document a line, `label id:count id:count ... # comment`; labels are left out.

Ids are taken to begin with 1, as the format says, unless a 0 occurs: files by scikit-learn begin
with 0. Own, and not scikit-learn's reader, because that cannot say in which line a fault is.
"""

from pathlib import Path

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files
from esvi_shm.errors import CorpusError

FORMAT = "svmlight"
OPTIONS = frozenset({"vocabulary"})
SUFFIXES = (".svm", ".svmlight", ".libsvm")


def matches(path: Path) -> bool:
    """Whether the name ends in .svm, .svmlight or .libsvm, or in one of these and .gz."""
    return _files.has_suffix(path, *SUFFIXES)


def read(path: Path, options: ReadOptions, progress: Progress | None) -> Corpus:
    """Read an SVMlight file."""
    from esvi_shm.corpus import _rows
    from esvi_shm.corpus.readers._pairs import Grammar, read_pairs

    words = options.vocabulary
    vocabulary = None if words is None else _files.read_vocabulary(words)
    with _files.LineBlocks(path, progress) as blocks:
        # From 0 or from 1: that shows when all ids are read.
        grammar = Grammar(True) if vocabulary is None else Grammar(True, len(vocabulary) + 1)
        indptr, ids, counts = read_pairs(blocks, grammar)
    if len(ids) and ids.min() > 0:
        ids -= 1
    n_words = int(ids.max(initial=-1)) + 1
    if vocabulary is not None:
        if n_words > len(vocabulary):
            rule = f"the vocabulary {words} has {len(vocabulary)} words"
            raise CorpusError(path, f"{rule}, but a word has number {n_words} (from 1)")
        n_words = len(vocabulary)
    return Corpus(*_rows.tidy(indptr, ids, counts), n_words, vocabulary, str(path))
