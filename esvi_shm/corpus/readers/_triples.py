"""Bodies of lines `row column count`: the part that uci and matrix_market share.

Blocks of the file go through one strict kernel. As long as documents ascend, their numbers are only
counted; the first pair out of order brings them into an array, and a stable counting sort puts the
pairs in order at the end. Memory: the result and one block; for a file out of order, twice the
result.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus import _rows
from esvi_shm.corpus._matrix import Arrays, check_sizes
from esvi_shm.corpus.range import Share
from esvi_shm.corpus.readers._files import LineBlocks
from esvi_shm.corpus.readers._scan import (
    AFTER_BLANK,
    BAD_LINE,
    GOOD,
    NEWLINE,
    NO_COUNT,
    TOO_MANY,
    Id,
    count_fault,
    ends_field,
    scan_integer,
    scan_number,
    shown,
    skip_blanks,
)
from esvi_shm.errors import CorpusError, MemoryShortError


@dataclass(frozen=True)
class Header:
    """What a file says of its body: sizes, the names of its columns, and how to read them."""

    n_first: int
    n_second: int
    n_pairs: int
    line: int
    kind: int
    names: tuple[str, str] = ("document", "word")
    transpose: bool = False
    blank_lines: bool = False

    @property
    def n_documents(self) -> int:
        return self.n_second if self.transpose else self.n_first

    @property
    def shortest(self) -> int:
        """Bytes of the shortest line."""
        return len("1 1\n") if self.kind == NO_COUNT else len("1 1 1\n")

    @property
    def n_words(self) -> int:
        return self.n_first if self.transpose else self.n_second


def read_triples(blocks: LineBlocks, header: Header, share: Share) -> tuple[Arrays, int]:
    """Read the body behind the header; return (indptr, indices, counts) of a range, and its first.

    Where not all documents are kept, what the pairs are is read once before, for their numbers.
    """
    _check_header(blocks, header)
    if share.n == 1:
        return _read(blocks, header, 0, header.n_documents, header.n_pairs), 0
    line, sizes = blocks.line, np.zeros(header.n_documents, dtype=np.int64)
    for docs, _, _ in _scan(blocks, header):
        _rows.count_rows(docs, sizes)
    first, last = share.of(sizes)
    blocks.rewind(line)
    return _read(blocks, header, first, last, int(sizes[first:last].sum())), first


def _read(blocks: LineBlocks, header: Header, first: int, last: int, n_pairs: int) -> Arrays:
    """The pairs of documents first..last-1, of which there are `n_pairs`."""
    try:
        sizes = np.zeros(last - first, dtype=np.int64)
        words = np.empty(n_pairs, dtype=np.int32)
        counts = np.empty(n_pairs, dtype=np.float32)
    except MemoryError:
        where = f"{blocks.path}, line {header.line}"
        raise MemoryShortError(f"{where}: there is no memory for {n_pairs} pairs") from None
    all_docs: np.ndarray | None = None
    n, previous, is_all = 0, 0, last - first == header.n_documents
    # What is all kept is written where it belongs.
    for docs, words_here, counts_here in _scan(blocks, header, (words, counts) if is_all else None):
        if not is_all:
            kept = (docs >= first) & (docs < last)
            docs = docs[kept] - np.int32(first)
            words_here, counts_here = words_here[kept], counts_here[kept]
        if all_docs is None and not _rows.is_ascending(docs, previous):
            all_docs = np.empty(n_pairs, dtype=np.int32)
            all_docs[:n] = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        end = n + len(docs)
        if all_docs is not None:
            all_docs[n:end] = docs
        if not is_all:
            words[n:end], counts[n:end] = words_here, counts_here
        _rows.count_rows(docs, sizes)
        n, previous = end, docs[-1] if len(docs) else previous
    indptr = _rows.offsets(sizes)
    if all_docs is not None:
        words_in, counts_in = words, counts
        words, counts = np.empty_like(words), np.empty_like(counts)
        _rows.scatter(all_docs, words_in, counts_in, indptr[:-1].copy(), words, counts)
        del all_docs, words_in, counts_in
    return _rows.tidy(indptr, words, counts)


def _scan(
    blocks: LineBlocks, header: Header, into: tuple[np.ndarray, np.ndarray] | None = None
) -> Iterator[Arrays]:
    """Documents, words and counts, block by block; to be used before the next is asked for.

    Words and counts of all blocks lie one behind the other in `into`, if that is given.
    """
    # code, line, begin of the line in the block, pairs, line of the first blank line
    state = np.zeros(5, dtype=np.int64)
    docs = words = np.empty(0, dtype=np.int32)
    counts = np.empty(0, dtype=np.float32)
    n = 0
    for block in blocks:
        room = min(header.n_pairs - n, len(block) // header.shortest + 1)
        if room > len(docs):
            docs = np.empty(room, dtype=np.int32)
            if into is None:
                words, counts = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.float32)
        if into is not None:
            words, counts = into[0][n:], into[1][n:]
        first, second = (words, docs) if header.transpose else (docs, words)
        state[1] = blocks.line
        _scan_triples(
            block,
            header.n_first,
            header.n_second,
            header.kind,
            header.blank_lines,
            first,
            second,
            counts,
            room,
            state,
        )
        if state[0] != GOOD:
            raise _explain(blocks, block, header, state)
        blocks.line = int(state[1])
        here = int(state[3])
        n += here
        yield docs[:here], words[:here], counts[:here]
    if n < header.n_pairs:
        raise CorpusError(
            blocks.path,
            f"the header (line {header.line}) says {header.n_pairs} pairs, the file ends after {n}",
            blocks.line - 1,
        )


def _check_header(blocks: LineBlocks, header: Header) -> None:
    """Refuse sizes that cannot be true before anything is allocated for them."""
    check_sizes(header.n_documents, header.n_words, header.n_pairs, blocks.path, header.line)
    if header.n_pairs * header.shortest > blocks.most_bytes + 1:
        raise CorpusError(
            blocks.path,
            f"the header says {header.n_pairs} pairs, which do not fit a file of "
            f"{blocks.size} bytes",
            header.line,
        )


@kernel(fastmath=False)
def _scan_triples(text, n_first, n_second, kind, blank_lines, first, second, counts, room, state):
    """Scan the lines of a block; at a bad one stop, with its number and its begin in `state`."""
    i, n, line = 0, 0, state[1]
    code = GOOD
    begin = 0
    while i < len(text):
        begin = i
        i = skip_blanks(text, i)
        if text[i] == NEWLINE:
            if state[4] == 0:
                state[4] = line
            line += 1
            i += 1
            continue
        if state[4] != 0 and not blank_lines:
            code = AFTER_BLANK
            break
        if n == room:
            code = TOO_MANY
            break
        a, i = scan_integer(text, i)
        if a < 1 or a > n_first or not ends_field(text[i]):
            code = BAD_LINE
            break
        i = skip_blanks(text, i)
        b, i = scan_integer(text, i)
        if b < 1 or b > n_second or not ends_field(text[i]):
            code = BAD_LINE
            break
        count = 1.0
        if kind != NO_COUNT:
            i = skip_blanks(text, i)
            count, i = scan_number(text, i, kind)
            if count < 0.0 or not ends_field(text[i]):
                code = BAD_LINE
                break
        i = skip_blanks(text, i)
        if text[i] != NEWLINE:
            code = BAD_LINE
            break
        first[n] = a - 1
        second[n] = b - 1
        counts[n] = count
        n += 1
        line += 1
        i += 1
    state[0] = code
    state[1] = line
    state[2] = begin
    state[3] = n


def _explain(
    blocks: LineBlocks, block: np.ndarray, header: Header, state: np.ndarray
) -> CorpusError:
    """Return the error for the line at which the kernel stopped."""
    line = block[state[2] :].tobytes().split(b"\n", 1)[0]
    number = int(state[1])
    return CorpusError(blocks.path, _fault(line, header, int(state[0]), int(state[4])), number)


def _fault(line: bytes, header: Header, code: int, blank: int) -> str:
    if code == AFTER_BLANK:
        return f"a line without numbers must not come before {shown(line)}, but line {blank} is one"
    if code == TOO_MANY:
        return (
            f"the header (line {header.line}) says {header.n_pairs} pairs, "
            f"but there is one more: {shown(line)}"
        )
    fields = line.split()
    columns = [*header.names, "count"][: 2 if header.kind == NO_COUNT else 3]
    if len(fields) != len(columns):
        return f"must have {len(columns)} columns ({', '.join(columns)}), got {shown(line)}"
    texts = [field.decode("ascii", "backslashreplace") for field in fields]
    faults = [
        Id(header.names[0], 1, header.n_first).fault(texts[0]),
        Id(header.names[1], 1, header.n_second).fault(texts[1]),
        count_fault(texts[2], header.kind) if len(columns) == 3 else None,
    ]
    found = next((fault for fault in faults if fault), None)
    return found or f"must be {' '.join(columns)}, got {shown(line)}"
