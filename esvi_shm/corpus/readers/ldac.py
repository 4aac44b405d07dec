"""LDA-C: one document a line, `M id:count id:count ...` with M pairs and ids from 0.

The words, if not given, are in `NAME.vocab` or `vocab.txt` beside it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files

if TYPE_CHECKING:
    from esvi_shm.corpus.range import Range, Share

FORMAT = "ldac"
OPTIONS = frozenset({"vocabulary"})
SUFFIXES = (".ldac", ".lda-c", ".dat")


def matches(path: Path) -> bool:
    """Whether the name ends in .ldac, .lda-c or .dat, or in one of these and .gz."""
    return _files.has_suffix(path, *SUFFIXES)


def read_range(
    path: Path, options: ReadOptions, progress: Progress | None, share: "Share"
) -> "Range":
    """Read a range of an LDA-C file."""
    from esvi_shm.corpus import _rows
    from esvi_shm.corpus.range import Range
    from esvi_shm.corpus.readers._pairs import Grammar, read_pairs

    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    words = options.vocabulary or _files.beside(path, plain.stem + ".vocab", "vocab.txt")
    vocabulary = None if words is None else _files.read_vocabulary(words)
    grammar = Grammar(False) if vocabulary is None else Grammar(False, len(vocabulary))
    with _files.LineBlocks(path, progress, hashing=share.n > 1) as blocks:
        found = read_pairs(blocks, grammar, share)
    n_words = len(vocabulary or ()) or found.largest + 1
    corpus = share.corpus(*_rows.tidy(*found.arrays), n_words, vocabulary, str(path))
    return Range(corpus, found.first, len(found.sizes), blocks.digest)
