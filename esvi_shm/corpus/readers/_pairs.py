"""Documents of one line each, `field id:count id:count ...`: the part that ldac and svmlight share.

svmlight may have a query id, `qid:n`, behind the label; it is left out.

Blocks of the file go through one strict kernel that writes to arrays which grow as needed:
neither format says its sizes. Memory: the result, at most half as much again while an array
grows, and one block.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus import _rows
from esvi_shm.corpus._matrix import INT32_MAX, Arrays, check_sizes
from esvi_shm.corpus.range import Share
from esvi_shm.corpus.readers._files import LineBlocks
from esvi_shm.corpus.readers._scan import (
    AFTER_BLANK,
    BAD_LINE,
    COLON,
    GOOD,
    HASH,
    NEWLINE,
    REAL,
    TOO_LITTLE_ROOM,
    Id,
    count_fault,
    ends_field,
    scan_integer,
    scan_number,
    shown,
    skip_blanks,
)
from esvi_shm.errors import CorpusError

LOW_Q, LOW_I, LOW_D = (ord(c) for c in "qid")


@dataclass(frozen=True)
class Grammar:
    """Which of the two formats: LDA-C counts the pairs of a line, svmlight gives it a label."""

    labelled: bool
    n_words: int = INT32_MAX


class Pairs(NamedTuple):
    """Some documents, the first of them, and the lengths and the least and largest id of all."""

    arrays: Arrays  # indptr, ids as they stand, counts; rows not yet in order
    first: int
    sizes: np.ndarray
    least: int  # INT32_MAX where there is no pair
    largest: int  # -1 there


def read_pairs(blocks: LineBlocks, grammar: Grammar, share: Share) -> Pairs:
    """Read the documents of a range; where that is not all, their lengths are read before."""
    if share.n == 1:
        return _read(blocks, grammar, 0, INT32_MAX)
    sizes = _read(blocks, grammar, 0, 0).sizes
    blocks.rewind()
    return _read(blocks, grammar, *share.of(sizes))


def _read(blocks: LineBlocks, grammar: Grammar, first: int, last: int) -> Pairs:
    """Read all documents, and keep the pairs of documents first..last-1."""
    # The least bytes of a pair are " 0:1"; most files have about twice that.
    room = max(blocks.size // 8, 1024) if last == INT32_MAX else 1024
    ids = np.empty(room, dtype=np.int32)
    counts = np.empty(room, dtype=np.float32)
    all_lengths = [np.zeros(0, dtype=np.int32)]
    # code, line, begin of the line in the block, pairs, documents, line of the first blank line,
    # the largest id and its line, the least id
    state = np.array([0, 0, 0, 0, 0, 0, -1, 0, INT32_MAX])
    done = n_pairs = 0
    for block in blocks:
        state[1:3] = blocks.line, 0
        while True:
            lengths = np.empty(len(block) // 2 + 1, dtype=np.int32)
            begin, state[4] = int(state[3]), 0
            _scan_pairs(block, grammar.labelled, grammar.n_words, ids, counts, lengths, state)
            lengths = lengths[: state[4]].copy()
            n_pairs += int(state[3]) - begin
            # What lies before the range goes, and what lies behind it is written over.
            here = np.cumsum([0, *lengths])
            lo, hi = (min(max(d - done, 0), len(lengths)) for d in (first, last))
            state[3] = begin + here[hi] - here[lo]
            if lo and hi > lo:
                for array in (ids, counts):
                    array[begin : state[3]] = array[begin + here[lo] : begin + here[hi]]
            all_lengths.append(lengths)
            done += len(lengths)
            if state[0] != TOO_LITTLE_ROOM:
                break
            # numpy reallocates in place where it can; what it adds is one line at least.
            more = len(ids) + len(ids) // 2 + len(block) // 4
            ids.resize(more, refcheck=False)
            counts.resize(more, refcheck=False)
        if state[0] != GOOD:
            line = block[state[2] :].tobytes().split(b"\n", 1)[0]
            fault = _fault(line, grammar, int(state[0]), int(state[5]))
            raise CorpusError(blocks.path, fault, int(state[1]))
        blocks.line = int(state[1])
    n, largest, line_of_it, least = (int(number) for number in state[[3, 6, 7, 8]])
    if grammar.n_words == INT32_MAX:  # no vocabulary vouches for the largest id
        check_sizes(done, largest + 1, n_pairs, blocks.path, line_of_it)
    ids.resize(n, refcheck=False)
    counts.resize(n, refcheck=False)
    sizes = np.concatenate(all_lengths)
    return Pairs((_rows.offsets(sizes[first:last]), ids, counts), first, sizes, least, largest)


@kernel(fastmath=False)
def _scan_pairs(text, labelled, n_words, ids, counts, lengths, state):
    """Scan lines from ``state[2]`` on; at a bad one stop, with its number and begin in `state`."""
    i, line, n, n_docs = state[2], state[1], state[3], state[4]
    code = GOOD
    begin = i
    while i < len(text):
        begin = i
        i = skip_blanks(text, i)
        if labelled and text[i] == HASH:
            while text[i] != NEWLINE:
                i += 1
            line += 1
            i += 1
            continue
        if text[i] == NEWLINE:
            if state[5] == 0:
                state[5] = line
            line += 1
            i += 1
            continue
        if state[5] != 0:
            code = AFTER_BLANK
            break
        said = np.int64(-1)
        if labelled:
            while (48 <= text[i] <= 57) or text[i] | 32 == 101 or 43 <= text[i] <= 46:
                i += 1  # digits, e, E, and + , - . : a number, or several
        else:
            said, i = scan_integer(text, i)
        if not ends_field(text[i]) or (said < 0 and not labelled):
            code = BAD_LINE
            break
        first = n
        i = skip_blanks(text, i)
        # A line ends with a newline, so each letter that fits has another byte behind it.
        if labelled and text[i] == LOW_Q and text[i + 1] == LOW_I and text[i + 2] == LOW_D:
            query = np.int64(-1)
            if text[i + 3] == COLON:
                query, i = scan_integer(text, i + 4)
            if query < 0:
                code = BAD_LINE
                break
            i = skip_blanks(text, i)
        while text[i] != NEWLINE and not (labelled and text[i] == HASH):
            if n == len(ids):
                code = TOO_LITTLE_ROOM
                break
            v, i = scan_integer(text, i)
            if v < 0 or v >= n_words or text[i] != COLON:
                code = BAD_LINE
                break
            count, i = scan_number(text, i + 1, REAL)
            if count < 0.0 or not ends_field(text[i]):
                code = BAD_LINE
                break
            if v > state[6]:
                state[6] = v
                state[7] = line
            state[8] = min(state[8], v)
            ids[n] = v
            counts[n] = count
            n += 1
            i = skip_blanks(text, i)
        if code == GOOD and not labelled and said != n - first:
            code = BAD_LINE
        if code != GOOD:
            n = first
            break
        while text[i] != NEWLINE:
            i += 1
        lengths[n_docs] = n - first
        n_docs += 1
        line += 1
        i += 1
    state[0] = code
    state[1] = line
    state[2] = begin
    state[3] = n
    state[4] = n_docs


def _fault(line: bytes, grammar: Grammar, code: int, blank: int) -> str:
    """Return what is wrong with the line at which the kernel stopped."""
    if code == AFTER_BLANK:
        return f"a blank line is no document, but line {blank} is one before {shown(line)}"
    if grammar.labelled:
        line = line.split(b"#", 1)[0]
    head, *pairs = line.decode("ascii", "backslashreplace").split() or [""]
    if grammar.labelled:
        if not set(head) <= set("0123456789eE.,+-"):
            return f"the label must be a number, got {head!r}"
    elif not (head.isascii() and head.isdigit()):
        return f"the number of pairs must be an integer, got {head!r}"
    if grammar.labelled and pairs and pairs[0].startswith("qid"):
        query = pairs.pop(0)
        if not (query.isascii() and query[3:4] == ":" and query[4:].isdigit()):
            return f"the query id must be qid: and an integer, got {query!r}"
    for pair in pairs:
        word, colon, count = pair.partition(":")
        if not colon:
            return f"must have pairs id:count, got {pair!r}"
        fault = Id("word", 0, grammar.n_words - 1).fault(word) or count_fault(count, REAL)
        if fault:
            return f"{fault} in {pair!r}"
    if not grammar.labelled and int(head) != len(pairs):
        return f"the line says {head} pairs, but has {len(pairs)}"
    return f"must be id:count pairs, got {shown(line)}"
