"""Rows of which few topics are far from a prior: a list of these, and one number for the others.

    row[k] = values[first[i] + j]   where topics[first[i] + j] = k, for a j below size[i]
             prior[k] + rest[i]     elsewhere

A row has a fixed number of places, one or two for each pair and `SPARE` more, whatever the number
of topics. A row in which no more topics are above the prior is kept to the bit. Of another
those are listed that are above `LEAST_SHARE` of it, or as many of the largest as there are places;
what has no place goes evenly to all others, or to the listed topics in proportion (`put_row`). How
much that was is counted in `Window.without_place`.

Visits work on whole rows: some rows at a time are unpacked into a window, which is at the prior
before and after.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from esvi_shm.arrays import MadeRows
from esvi_shm.compile import kernel
from esvi_shm.families.lda.few import BATCH
from esvi_shm.shared.table import ArraySpec
from esvi_shm.sparse import above_into, lowest, popcount
from esvi_shm.vector import aligned, largest_of, padded, prefetch_row, unsigned

#: Places of a row for each of its pairs, of phi_doc and of gamma, and how many more there are. A
#: pair lives in 3 or 4 topics, most of which it shares with the other pairs of its row.
ROW_PLACES, DOCUMENT_PLACES, SPARE = 2, 1, 8
#: A share of a row that is not worth a place where not all topics have one.
LEAST_SHARE = np.float32(1e-5)
#: Looks for the limit above which a row has no more topics than places; fewer where it is so near.
LOOKS, NEARLY = 12, 7 / 8


class Listed(NamedTuple):
    """N rows of K topics as lists."""

    first: np.ndarray  # int64 (N + 1,): where the places of a row begin
    size: np.ndarray  # int32 (N,): how many of them are taken
    rest: np.ndarray  # float32 (N,): what each topic that is not listed has beyond the prior
    topics: np.ndarray  # uint8 to uint32 (places,)
    values: np.ndarray  # float32 (places,): with the prior
    # Not shared:
    prior: np.ndarray  # float32 (K,)
    window: Any  # of the worker; None where rows are only looked at


class Window(NamedTuple):
    """A worker's private arrays: `BATCH` rows as whole rows, and what it takes to list them."""

    word: np.ndarray  # float32 (K,): 0 between words
    gamma: np.ndarray  # float32 (BATCH, K): at the prior between visits
    phi: np.ndarray  # float32 (BATCH, K): 0 between visits
    rows: np.ndarray  # int32 (BATCH,): 0, 1, ...
    live: np.ndarray  # int64 (BATCH, ceil(K / 64)): topics that a row may have, see `active`
    had: np.ndarray  # int64, the same: those that were listed when it was unpacked
    bits: np.ndarray  # int64 (1, ceil(K / 64))
    own: np.ndarray  # int32 (K + 16,): topics of the row at hand
    tokens: np.ndarray  # float64 (documents,): of each document
    # float64 (3,): tokens that had no place in a visit, of gamma (by the rows' shares of them),
    # phi_doc and phi_word
    without_place: np.ndarray


#: The fields of `Listed` that are shared arrays.
SHARED = Listed._fields[:5]


def make_window(alpha: np.ndarray, tokens: np.ndarray) -> Window:
    """A window for rows of gamma with this prior, float32 (K,), and of the margins."""
    n_topics = len(alpha)
    width = -(-n_topics // 64)
    # Rows from a cache line on, as in a segment.
    gamma, phi = (
        aligned(BATCH * padded(n_topics))[: BATCH * n_topics].reshape(BATCH, n_topics)
        for _ in range(2)
    )
    gamma[:] = alpha
    return Window(
        word=np.zeros(n_topics, np.float32),
        gamma=gamma,
        phi=phi,
        rows=np.arange(BATCH, dtype=np.int32),
        live=np.zeros((BATCH, width), np.int64),
        had=np.zeros((BATCH, width), np.int64),
        bits=np.zeros((1, width), np.int64),
        own=np.zeros(padded(n_topics) + 16, np.int32),
        tokens=tokens,
        without_place=np.zeros(3),
    )


def window_bytes(n_topics: int) -> int:
    """Bytes of a window, nearly."""
    return 4 * (2 * BATCH + 2) * padded(n_topics) + 16 * BATCH * -(-n_topics // 64)


def n_places(n_pairs: int, n_rows: int, per_pair: int, n_topics: int) -> int:
    """Places of so many rows with so many pairs together."""
    return min(per_pair * n_pairs + SPARE * n_rows, n_topics * n_rows)


def n_word_places(pairs_per_word: np.ndarray, n_topics: int) -> int:
    """Places of the words of a shard, one for each pair: a word may have most of the pairs."""
    found = pairs_per_word[pairs_per_word > 0]
    return int(np.minimum(found, n_topics - min(SPARE, n_topics)).sum(dtype=np.int64)) + (
        min(SPARE, n_topics) * len(found)
    )


def specs(
    name: str, n_rows: int, places: int, n_topics: int, writer: str, readers: str, text: str
) -> list[ArraySpec]:
    """The shared arrays of rows, as `of_arrays` finds them."""
    shapes = {
        "first": ((n_rows + 1,), np.int64, "where the places of each row begin"),
        "size": ((n_rows,), np.int32, "how many places of each row are taken"),
        "rest": ((n_rows,), np.float32, "what topics that are not listed have beyond the prior"),
        "topics": ((places,), np.min_scalar_type(n_topics - 1), "the topics listed"),
        "values": ((places,), np.float32, "their values"),
    }
    return [
        ArraySpec(f"{name}_{part}", shape, dtype, writer, readers, f"{text}: {what}")
        for part, (shape, dtype, what) in shapes.items()
    ]


def of_arrays(name: str, arrays: Any, prior: np.ndarray, window: Window | None = None) -> Listed:
    """Rows by their shared arrays, and their prior, float32, shape (K,)."""
    parts = {part: arrays[f"{name}_{part}"] for part in SHARED}
    return Listed(**parts, prior=prior, window=window)


class ListedRows(MadeRows):
    """The matrix that lists are, to be looked at; rows are made when they are asked for."""

    def __init__(self, listed: Listed) -> None:
        self._listed = listed
        self.shape = len(listed.size), len(listed.prior)

    def make(self, first: int, last: int) -> np.ndarray:
        """See `arrays.MadeRows`."""
        listed = self._listed
        made = np.empty((last - first, self.shape[1]), np.float32)
        np.add(listed.prior, listed.rest[first:last, None], out=made)
        size = listed.size[first:last]
        row = np.repeat(np.arange(last - first), size)
        # Place j of a row is so far behind the entries of the rows before it.
        at = np.arange(len(row)) + np.repeat(
            listed.first[first:last] - np.cumsum(size) + size, size
        )
        made[row, listed.topics[at]] = listed.values[at]
        return made


@kernel
def lay_out(first, per_pair, n_topics, all_places):
    """Turn the numbers of pairs of all rows, from `first[1]` on, into where their places begin."""
    n_rows = first.shape[0] - 1
    first[0] = 0
    all_fit = all_places >= n_topics * n_rows
    for i in range(n_rows):
        places = n_topics if all_fit else per_pair * first[i + 1] + SPARE
        first[i + 1] = first[i] + places


@kernel(inline="always")
def mark(listed, i, bits):
    """Set the bits of the topics that a row lists, in int64 (ceil(K / 64),)."""
    first = listed.first[i]
    for j in range(listed.size[i]):
        k = np.int64(listed.topics[unsigned(first + j)])
        bits[unsigned(k >> 6)] |= np.int64(1) << (k & 63)


def row_of(matrix: Any, i: int, out: np.ndarray) -> np.ndarray:
    """Row i of a matrix, in kernels; of `Listed` it is made in `out`, float32, shape (K,)."""
    raise NotImplementedError("for kernels")


def n_rows_of(matrix: Any) -> int:
    """How many rows a matrix, or `Listed`, has; in kernels."""
    raise NotImplementedError("for kernels")


@overload(row_of, inline="always")
def _row_of(matrix, i, out):
    if isinstance(matrix, types.Array):
        return lambda matrix, i, out: matrix[i]

    def made(matrix, i, out):
        for k in range(out.shape[0]):
            out[k] = matrix.prior[k]
        unpack_into(matrix, i, out)
        return out

    return made


@overload(n_rows_of, inline="always")
def _n_rows_of(matrix):
    if isinstance(matrix, types.Array):
        return lambda matrix: matrix.shape[0]
    return lambda matrix: matrix.size.shape[0]


@kernel(inline="always")
def unpack_into(listed, i, row):
    """Row i, into a row that is at the prior."""
    topics, values, rest = listed.topics, listed.values, listed.rest[i]
    if rest > 0.0:
        for k in range(row.shape[0]):
            row[k] = listed.prior[k] + rest
    first = listed.first[i]
    for j in range(listed.size[i]):
        at = unsigned(first + j)
        row[unsigned(topics[at])] = values[at]


def prefetch_row_of(matrix: Any, i: int) -> None:
    """Ask for row i, in kernels; lists come by themselves."""
    raise NotImplementedError("for kernels")


@overload(prefetch_row_of, inline="always")
def _prefetch_row_of(matrix, i):
    if isinstance(matrix, types.Array):
        return lambda matrix, i: prefetch_row(matrix, i)
    return lambda matrix, i: None


@kernel(inline="always")
def _count(bits):
    n = 0
    for w in range(bits.shape[1]):
        n += popcount(bits[0, w])
    return n


@kernel
def choose_topics(listed, i, row, bits, own):
    """Choose the topics of a row that get a place, by a look at all of them.

    Parameters
    ----------
    listed : Listed
    i : int
        The row's number. What is listed of it gives a first guess of the limit.
    row : float32 array, shape (K,)
    bits : int64 array, shape (1, ceil(K / 64))
        Scratch.
    own : int32 array, shape (K + 16,)
        Written: the topics, ascending.

    Returns
    -------
    tuple
        How many they are; what all topics have beyond the prior, or -1 where those chosen have all.
    """
    prior, places = listed.prior, listed.first[i + 1] - listed.first[i]
    above_into(row, prior, np.float32(0.0), bits[0])
    n, total = _count(bits), np.float32(-1.0)
    if n > places:
        total = np.float32(0.0)
        for k in range(row.shape[0]):
            total += row[k] - prior[k]
        # A row's largest value is not below what it has beyond the prior.
        least, high = LEAST_SHARE * total, largest_of(row, 0, row.shape[0])
        low, middle = least, max(_least_listed(listed, i), least)
        for look in range(LOOKS):
            above_into(row, prior, middle, bits[0])
            n = _count(bits)
            if n > places:
                low = middle
            elif n >= max(np.int64(NEARLY * places), 1) or middle == least:
                break
            else:
                high = middle
            middle = np.float32(np.sqrt(np.float64(low) * np.float64(high)))
            if look == 0 and n <= places:
                middle = least  # most often there are places for all that are worth one
        if n > places:
            above_into(row, prior, high, bits[0])
            n = _count(bits)
        if n == 0:  # the largest are all the same, and no limit tells them apart: the first of them
            above_into(row, prior, low, bits[0])
    end = 0
    for w in range(bits.shape[1]):
        left = bits[0, w]
        while left != 0 and end < places:
            own[unsigned(end)] = 64 * w + lowest(left)
            left &= left - 1
            end += 1
    return end, total


@kernel(inline="always")
def _least_listed(listed, i):
    """The least that a listed topic of a row has beyond the prior; 0 where none is."""
    least = np.float32(np.inf)
    first = listed.first[i]
    for j in range(listed.size[i]):
        at = unsigned(first + j)
        least = min(least, listed.values[at] - listed.prior[unsigned(listed.topics[at])])
    return least if listed.size[i] > 0 else np.float32(0.0)


@kernel
def choose_among(row, prior, places, own, n):
    """The same among n topics, outside of which the row is at the prior; `own` has them first."""
    m = 0
    total = largest = np.float32(0.0)
    for j in range(n):
        k = unsigned(own[unsigned(j)])
        value = row[k] - prior[k]
        if value > 0.0:
            own[unsigned(m)] = k
            m += 1
            total += value
            largest = max(largest, value)
    if m <= places:
        return m, np.float32(-1.0)
    low, high = min(LEAST_SHARE * total, np.float32(0.5) * largest), largest
    found = _above(row, prior, low, own, m)
    if found > places:
        for _ in range(LOOKS):
            middle = np.float32(np.sqrt(np.float64(low) * np.float64(high)))
            found = _above(row, prior, middle, own, m)
            if found > places:
                low = middle
                continue
            high = middle
            if found >= max(np.int64(NEARLY * places), 1):
                break
        # Where the largest are all the same no limit tells them apart: the first of them.
        low = high if _above(row, prior, high, own, m) > 0 else low
    n = 0
    for j in range(m):
        k = unsigned(own[unsigned(j)])
        if row[k] - prior[k] > low and n < places:
            own[unsigned(n)] = k
            n += 1
    return n, total


@kernel(inline="always")
def _above(row, prior, limit, own, n):
    found = 0
    for j in range(n):
        k = unsigned(own[unsigned(j)])
        found += row[k] - prior[k] > limit
    return found


@kernel(inline="always")
def put_row(listed, i, row, own, n, total, spread):
    """List n topics of a row; what has no place goes to them in proportion, or (`spread`) evenly
    to the others. Returns how much that is.
    """
    topics, values, prior = listed.topics, listed.values, listed.prior
    n_topics = row.shape[0]
    rest, scale, outside = np.float32(0.0), np.float32(1.0), np.float32(0.0)
    if total >= 0.0:
        inside = np.float32(0.0)
        for j in range(n):
            k = unsigned(own[unsigned(j)])
            inside += row[k] - prior[k]
        outside = max(total - inside, np.float32(0.0))
        if inside > 0.0 and (inside > total or n == n_topics or not spread):
            scale = total / inside
        else:
            rest = outside / np.float32(n_topics - n)
    first = listed.first[i]
    for j in range(n):
        k, at = unsigned(own[unsigned(j)]), unsigned(first + j)
        value = row[k]
        if scale != 1.0:
            value = prior[k] + (value - prior[k]) * scale
        topics[at], values[at] = k, value
    listed.size[i], listed.rest[i] = n, rest
    return outside
