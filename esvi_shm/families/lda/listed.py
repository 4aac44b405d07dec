"""Rows of which few topics are far from a prior: a list of these, and one number for the others.

    row[k] = values[first[i] + j]   where topics[first[i] + j] = k, for a j below size[i]
             prior[k] + rest[i]     elsewhere

A row has a fixed number of places, one or two for each pair and `SPARE` more, whatever the number
of topics. A row in which no more topics are above the prior is kept to the bit. Of another
those are listed that are above `LEAST_SHARE` of it, or as many of the largest as there are places;
what has no place goes evenly to all others, or to the listed topics in proportion (`put_row`). How
much that was is counted in `Window.without_place`.

Visits of all topics work on whole rows: some rows at a time are unpacked into a window, which is at
the prior before and after. Visits over active sets change lists as they are (`change_row`).

lambda is listed without its prior, which is another one for each word: `word_row_into` adds it.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from esvi_shm.arrays import MadeRows
from esvi_shm.compile import kernel
from esvi_shm.families.lda.few import BATCH
from esvi_shm.shared.table import ArraySpec
from esvi_shm.sparse import prefetch_at
from esvi_shm.vector import aligned, padded, prefetch_row, unsigned

#: Places of a row for each of its pairs, of phi_doc and of gamma, and how many more there are. A
#: pair lives in 3 or 4 topics, most of which it shares with the other pairs of its row.
ROW_PLACES, DOCUMENT_PLACES, SPARE = 2, 1, 8
#: The same of lambda: of words of few pairs each worker's margin has places of its own.
LAMBDA_PLACES, LAMBDA_SPARE = 2, 32
#: What is no more above its prior is rounding.
ROUNDING = np.float32(4e-6)


class Listed(NamedTuple):
    """N rows of K topics as lists."""

    first: np.ndarray  # int64 (N + 1,): where the places of a row begin
    size: np.ndarray  # int32 (N,): how many of them are taken
    rest: np.ndarray  # float32 (N,): what each topic that is not listed has beyond the prior
    topics: np.ndarray  # uint8 to uint32 (places,)
    values: np.ndarray  # float32 (places,): with the prior
    # Not shared:
    prior: np.ndarray  # float32 (K,)
    tokens: np.ndarray  # float64 (N,): what each row of sums has beyond the prior; else (0,)
    window: Any  # of the worker; None where rows are only looked at


class Window(NamedTuple):
    """A worker's private arrays: `BATCH` rows as whole rows, and what it takes to list them."""

    word: np.ndarray  # float32 (K,): 0 between words
    sums: np.ndarray  # float32 (K,): scratch
    gamma: np.ndarray  # float32 (BATCH, K): at the prior between visits
    phi: np.ndarray  # float32 (BATCH, K): 0 between visits
    rows: np.ndarray  # int32 (BATCH,): 0, 1, ...
    words: np.ndarray  # float32 (BATCH, K): rows of lambda at hand
    priors: np.ndarray  # float32 (BATCH,): their priors
    word_ids: np.ndarray  # int32 (BATCH,): their words
    bits: np.ndarray  # int64 (1, ceil(K / 64))
    own: np.ndarray  # int32 (K + 16,): topics of the row at hand
    values: np.ndarray  # float32 (K + 16,): what they have
    # float64 (4,): tokens that had no place in a visit, of gamma (by the rows' shares of them),
    # phi_doc, phi_word and lambda
    without_place: np.ndarray


#: The fields of `Listed` that are shared arrays; and those that change.
SHARED = Listed._fields[:5]
TRAVELLING = SHARED[1:]


def make_window(alpha: np.ndarray) -> Window:
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
        sums=np.zeros(n_topics, np.float32),
        gamma=gamma,
        phi=phi,
        rows=np.arange(BATCH, dtype=np.int32),
        words=np.zeros((BATCH, n_topics), np.float32),
        priors=np.zeros(BATCH, np.float32),
        word_ids=np.zeros(BATCH, np.int32),
        bits=np.zeros((1, width), np.int64),
        own=np.zeros(padded(n_topics) + 16, np.int32),
        values=np.zeros(padded(n_topics) + 16, np.float32),
        without_place=np.zeros(4),
    )


def window_bytes(n_topics: int) -> int:
    """Bytes of a window, nearly."""
    return 4 * (3 * BATCH + 4) * padded(n_topics)


def n_places(n_pairs: int, n_rows: int, per_pair: int, n_topics: int) -> int:
    """Places of so many rows with so many pairs together."""
    return min(per_pair * n_pairs + SPARE * n_rows, n_topics * n_rows)


def n_word_places(pairs_per_word: np.ndarray, n_topics: int) -> int:
    """Places of the words of a shard, one for each pair: a word may have most of the pairs."""
    found = pairs_per_word[pairs_per_word > 0]
    return int(np.minimum(found, n_topics - min(SPARE, n_topics)).sum(dtype=np.int64)) + (
        min(SPARE, n_topics) * len(found)
    )


def lambda_places(pairs: np.ndarray, n_topics: int) -> np.ndarray:
    """Places of each word's row of lambda, int64 (V,), by its pairs in the whole corpus.

    >>> lambda_places(np.array([0, 1, 1000]), 500).tolist()
    [32, 34, 500]
    """
    return np.minimum(LAMBDA_PLACES * pairs.astype(np.int64) + LAMBDA_SPARE, n_topics)


def specs(
    name: str, n_rows: int, places: int, n_topics: int, writer: str, readers: str, text: str
) -> list[ArraySpec]:
    """The shared arrays of rows, as `of_arrays` finds them."""
    shapes = {
        "first": ((n_rows + 1,), np.int64, "where the places of each row begin"),
        "size": ((n_rows,), np.int32, "how many places of each row are taken"),
        "rest": ((n_rows,), np.float32, "what topics that are not listed have beyond the prior"),
        # One more: who looks whether a list goes on may look at what lies behind the last.
        "topics": ((places + 1,), np.min_scalar_type(n_topics - 1), "the topics listed"),
        "values": ((places + 1,), np.float32, "their values"),
    }
    return [
        ArraySpec(f"{name}_{part}", shape, dtype, writer, readers, f"{text}: {what}")
        for part, (shape, dtype, what) in shapes.items()
    ]


def of_arrays(
    name: str,
    arrays: Any,
    prior: np.ndarray,
    window: Window | None = None,
    tokens: np.ndarray | None = None,
) -> Listed:
    """Rows by their shared arrays, and their prior, float32, shape (K,)."""
    parts = {part: arrays[f"{name}_{part}"] for part in SHARED}
    tokens = np.zeros(0) if tokens is None else tokens
    return Listed(**parts, prior=prior, tokens=tokens, window=window)


class ListedRows(MadeRows):
    """The matrix that lists are, to be looked at; rows are made when they are asked for."""

    def __init__(self, listed: Listed, levels: np.ndarray | None = None) -> None:
        self._listed, self._levels = listed, levels  # the latter: priors of the rows
        self.shape = len(listed.size), len(listed.prior)

    def make(self, first: int, last: int) -> np.ndarray:
        """See `arrays.MadeRows`."""
        return self.take(np.arange(first, last))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """See `arrays.MadeRows`."""
        listed = self._listed
        made = np.empty((len(rows), self.shape[1]), np.float32)
        np.add(listed.prior, listed.rest[rows, None], out=made)
        row, at = self._entries(rows)
        made[row, listed.topics[at]] = listed.values[at]
        if self._levels is not None:
            made += self._levels[rows, None]
        return made

    def columns(self, first: int, last: int) -> np.ndarray:
        """See `arrays.MadeRows`."""
        listed, rows = self._listed, np.arange(len(self))
        made = np.empty((len(rows), last - first), np.float32)
        np.add(listed.prior[first:last], listed.rest[:, None], out=made)
        row, at = self._entries(rows)
        here = (listed.topics[at] >= first) & (listed.topics[at] < last)
        row, at = row[here], at[here]
        made[row, listed.topics[at].astype(np.int64) - first] = listed.values[at]
        if self._levels is not None:
            made += self._levels[:, None]
        return made

    def _entries(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is listed of some rows: whose it is, and where."""
        size = self._listed.size[rows]
        row = np.repeat(np.arange(len(rows)), size)
        # Place j of a row is so far behind the entries of the rows before it.
        begins = self._listed.first[rows] - np.cumsum(size) + size
        return row, np.arange(len(row)) + np.repeat(begins, size)


def words_of_arrays(shared: Any, tokens: np.ndarray | None = None) -> Listed:
    """lambda without the priors, by the shared arrays; `tokens` of the words, to change it."""
    return of_arrays("lambda", shared, np.zeros(len(shared["alpha"]), np.float32), None, tokens)


def lambda_of(shared: Any) -> np.ndarray | ListedRows:
    """lambda, to be looked at, however it is kept."""
    if "lambda_" in shared:
        whole: np.ndarray = shared["lambda_"]
        return whole
    return ListedRows(words_of_arrays(shared), shared["eta"].astype(np.float32))


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


@kernel(inline="always")
def prefetch_list(listed, i):
    """Ask for the lines of what a row lists."""
    first, size = listed.first[i], listed.size[i]
    for j in range(0, size, 16):
        prefetch_at(listed.values, first + j)
    for j in range(0, size, 32):
        prefetch_at(listed.topics, first + j)


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


def word_row_into(lambda_: Any, word: int, prior: Any, out: np.ndarray) -> None:
    """Row of lambda into `out`, float32 (K,), in kernels; `Listed` lacks the prior."""
    raise NotImplementedError("for kernels")


@overload(word_row_into, inline="always")
def _word_row_into(lambda_, word, prior, out):
    if isinstance(lambda_, types.Array):

        def of_array(lambda_, word, prior, out):
            for k in range(out.shape[0]):
                out[k] = lambda_[word, k]

        return of_array

    def of_lists(lambda_, word, prior, out):
        level = prior + lambda_.rest[word]
        for k in range(out.shape[0]):
            out[k] = level
        first = lambda_.first[word]
        for j in range(lambda_.size[word]):
            at = unsigned(first + j)
            out[unsigned(lambda_.topics[at])] = prior + lambda_.values[at]

    return of_lists


def prefetch_row_of(matrix: Any, i: int) -> None:
    """Ask for row i, in kernels; lists come by themselves."""
    raise NotImplementedError("for kernels")


@overload(prefetch_row_of, inline="always")
def _prefetch_row_of(matrix, i):
    if isinstance(matrix, types.Array):
        return lambda matrix, i: prefetch_row(matrix, i)
    return lambda matrix, i: None
