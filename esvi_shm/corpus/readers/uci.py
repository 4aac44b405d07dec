"""UCI bag of words: `docword.NAME.txt[.gz]`, and the words in `vocab.NAME.txt[.gz]` beside it.

Three lines D, W, NNZ, then NNZ lines `document word count` with ids from 1.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files
from esvi_shm.errors import CorpusError

if TYPE_CHECKING:
    from esvi_shm.corpus.range import Range, Share

FORMAT = "uci"
OPTIONS = frozenset({"transpose", "vocabulary"})
PREFIX = "docword."


def matches(path: Path) -> bool:
    """Whether the name is docword.X.txt or docword.X.txt.gz."""
    return _files.stem(path).startswith(PREFIX) and _files.has_suffix(path, ".txt")


def read_range(
    path: Path, options: ReadOptions, progress: Progress | None, share: "Share"
) -> "Range":
    """Read a range of a UCI bag of words."""
    from esvi_shm.corpus.range import Range
    from esvi_shm.corpus.readers._scan import REAL, header_integer
    from esvi_shm.corpus.readers._triples import Header, read_triples

    with _files.LineBlocks(path, progress, hashing=share.n > 1) as blocks:
        sizes = []
        for what, least in (("D (documents)", 0), ("W (words)", 0), ("NNZ (pairs)", 0)):
            line = blocks.next_line()
            if line is None:
                raise CorpusError(path, f"the header's {what} is missing", blocks.line)
            text = line.decode("ascii", "backslashreplace").strip()
            sizes.append(header_integer(path, blocks.line - 1, what, text, least))
        names = ("word", "document") if options.transpose else ("document", "word")
        header = Header(sizes[0], sizes[1], sizes[2], 3, REAL, names, options.transpose)
        arrays, first = read_triples(blocks, header, share)
    words = options.vocabulary
    if words is None and path.name.lower().startswith(PREFIX):
        plain = path.name[: -len(".gz")] if path.name.lower().endswith(".gz") else path.name
        words = _files.beside(path, "vocab." + plain[len(PREFIX) :])
    vocabulary = None if words is None else _files.read_vocabulary(words)
    corpus = share.corpus(*arrays, header.n_words, vocabulary, str(path))
    return Range(corpus, first, header.n_documents, blocks.digest)
