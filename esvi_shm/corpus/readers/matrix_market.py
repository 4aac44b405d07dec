"""Matrix Market, `.mtx[.gz]`: a coordinate matrix of documents x words, of real, integer or pattern
entries, general. With the option `transpose`, words x documents.

Own, and not scipy's `mmread`, because that takes `3abc` for 3 and does not see a fourth column.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files
from esvi_shm.errors import CorpusError

if TYPE_CHECKING:
    from esvi_shm.corpus.range import Range, Share

FORMAT = "matrix_market"
OPTIONS = frozenset({"transpose", "vocabulary"})
BANNER = "%%MatrixMarket matrix coordinate real|integer|pattern general"


def matches(path: Path) -> bool:
    """Whether the name ends in .mtx or .mtx.gz."""
    return _files.has_suffix(path, ".mtx")


def read_range(
    path: Path, options: ReadOptions, progress: Progress | None, share: "Share"
) -> "Range":
    """Read a range of a Matrix Market file."""
    from esvi_shm.corpus.range import Range
    from esvi_shm.corpus.readers._scan import header_integer, shown
    from esvi_shm.corpus.readers._triples import Header, read_triples

    with _files.LineBlocks(path, progress, hashing=share.n > 1) as blocks:
        kind = _read_banner(blocks)
        line: bytes | None = b"%"
        while line is not None and (line.startswith(b"%") or not line.strip()):
            line = blocks.next_line()
        number = blocks.line - 1
        if line is None:
            raise CorpusError(path, "the line with rows, columns and entries is missing", number)
        fields = line.decode("ascii", "backslashreplace").split()
        if len(fields) != 3:
            rule = "must have 3 columns (rows, columns, entries)"
            raise CorpusError(path, f"{rule}, got {shown(line)}", number)
        n_rows, n_columns, n_pairs = (
            header_integer(path, number, what, text, 0)
            for what, text in zip(("rows", "columns", "entries"), fields, strict=True)
        )
        names = ("word", "document") if options.transpose else ("document", "word")
        header = Header(n_rows, n_columns, n_pairs, number, kind, names, options.transpose, True)
        arrays, first = read_triples(blocks, header, share)
    vocabulary = None if options.vocabulary is None else _files.read_vocabulary(options.vocabulary)
    corpus = share.corpus(*arrays, header.n_words, vocabulary, str(path))
    return Range(corpus, first, header.n_documents, blocks.digest)


def _read_banner(blocks: _files.LineBlocks) -> int:
    """Read the first line; return what the entries' counts look like."""
    from esvi_shm.corpus.readers._scan import INTEGER, NO_COUNT, REAL, shown

    line = blocks.next_line() or b""
    fields = line.decode("ascii", "backslashreplace").lower().split()
    kinds = {"real": REAL, "integer": INTEGER, "pattern": NO_COUNT}
    if (
        len(fields) != 5
        or fields[:3] != ["%%matrixmarket", "matrix", "coordinate"]
        or fields[3] not in kinds
        or fields[4] != "general"
    ):
        raise CorpusError(blocks.path, f"must be {BANNER!r}, got {shown(line)}", 1)
    return kinds[fields[3]]
