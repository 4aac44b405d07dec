"""Rows of Dirichlet parameters of which most entries are the prior, in files: only the others.

With many topics a document lives in a few of them, and so does a word (`families.lda.active`); what
is elsewhere is the prior to the bit. A matrix NAME is three files then:

    NAME_indptr.npy    int64 (N + 1,)           row i has the entries indptr[i] to indptr[i + 1] - 1
    NAME_topics.npy    uint16 or int32 (n,)     their topics, in order within a row
    NAME_values.npy    float32 (n,)             their values

Nothing is rounded: what is read is what was written, to the bit.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from esvi_shm.arrays import MadeRows

#: Fewer topics stay one matrix, which anyone can read, and which is small enough.
MANY_TOPICS = 512
PARTS = ("indptr", "topics", "values")

#: The rows of a matrix in order, some at a time; asked for more than once.
Chunks = Callable[[], Iterable[np.ndarray]]


class CompactRows(MadeRows):
    """A matrix whose entries are a prior where nothing is held; what reads it makes rows of it.

    Parameters
    ----------
    indptr, topics, values : arrays
        See the module.
    prior : float32 array, shape (N, K)
        Most often a view of something smaller.

    Examples
    --------
    >>> prior = np.broadcast_to(np.float32([0.5, 0.25]), (3, 2))
    >>> rows = CompactRows(np.array([0, 0, 1, 1]), np.array([1]), np.float32([7]), prior)
    >>> rows[1].tolist(), np.asarray(rows).tolist()
    ([0.5, 7.0], [[0.5, 0.25], [0.5, 7.0], [0.5, 0.25]])
    """

    def __init__(
        self, indptr: np.ndarray, topics: np.ndarray, values: np.ndarray, prior: np.ndarray
    ) -> None:
        self.indptr, self.topics, self.values, self.prior = indptr, topics, values, prior
        self.shape = prior.shape

    def __reduce__(self) -> Any:
        # A view of something smaller would be pickled and copied whole, as large as the matrix.
        first = (slice(1) if step == 0 else slice(None) for step in self.prior.strides)
        smaller = np.array(self.prior[tuple(first)])
        return _unpickled, (self.indptr, self.topics, self.values, smaller, self.shape)

    def make(self, first: int, last: int) -> np.ndarray:
        """See `arrays.MadeRows`."""
        begin, end = self.indptr[first], self.indptr[last]
        made = np.array(self.prior[first:last])
        of_entry = np.repeat(np.arange(last - first), np.diff(self.indptr[first : last + 1]))
        made[of_entry, self.topics[begin:end]] = self.values[begin:end]
        return made


def _unpickled(
    indptr: np.ndarray,
    topics: np.ndarray,
    values: np.ndarray,
    prior: np.ndarray,
    shape: tuple[int, int],
) -> CompactRows:
    return CompactRows(indptr, topics, values, np.broadcast_to(prior, shape))


def write_rows(writer: Any, name: str, chunks: Chunks, prior: np.ndarray) -> None:
    """Write a matrix whole or, where that takes at most half as much, compact.

    Parameters
    ----------
    writer : store's writer
    name : str
    chunks : function that returns an iterable of float32 arrays
    prior : float32 array, shape (N, K)
    """
    if prior.shape[1] >= MANY_TOPICS:
        indptr = np.zeros(len(prior) + 1, np.int64)
        first = 1
        for apart, _ in _apart(chunks(), prior):
            indptr[first : first + len(apart)] = apart.sum(axis=1)
            first += len(apart)
        np.cumsum(indptr, out=indptr)
        kind = np.uint16 if prior.shape[1] <= 1 << 16 else np.int32
        entry_bytes = np.dtype(kind).itemsize + prior.itemsize
        if 2 * (indptr[-1] * entry_bytes + indptr.nbytes) <= prior.size * prior.itemsize:
            topics = (np.nonzero(apart)[1] for apart, _ in _apart(chunks(), prior))
            values = (part[apart] for apart, part in _apart(chunks(), prior))
            writer.array(f"{name}_indptr.npy", indptr.shape, np.int64, [indptr])
            writer.array(f"{name}_topics.npy", (int(indptr[-1]),), kind, topics)
            writer.array(f"{name}_values.npy", (int(indptr[-1]),), np.float32, values)
            return
    writer.array(f"{name}.npy", prior.shape, np.float32, chunks())


def _apart(
    chunks: Iterable[np.ndarray], prior: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What is not the prior, and the values, some rows at a time."""
    first = 0
    for chunk in chunks:
        yield chunk != prior[first : first + len(chunk)], chunk
        first += len(chunk)


def names(name: str, listed: Iterable[str]) -> set[str]:
    """The files of a matrix, by those that there are."""
    compact = {f"{name}_{part}.npy" for part in PARTS}
    return compact if compact & set(listed) else {f"{name}.npy"}


def read_rows(
    folder: Path, name: str, listed: Iterable[str], prior: np.ndarray, n_topics: int
) -> Any:
    """A matrix from its files, mapped: an array, or CompactRows.

    Parameters
    ----------
    folder : Path
    name : str
    listed : iterable of str
        The files of the model: what else may lie there is no part of it.
    prior : float array, shape (K,) or (N, 1)
    n_topics : int

    Raises
    ------
    ValueError
        If the files do not fit each other, or the prior.
    """
    if f"{name}.npy" in names(name, listed):
        return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    indptr, topics, values = (
        np.load(folder / f"{name}_{part}.npy", mmap_mode="r", allow_pickle=False) for part in PARTS
    )
    if not all(part.ndim == 1 for part in (indptr, topics, values)):
        raise ValueError(f"{name}_{', '.join(PARTS)} must have one axis each")
    if indptr.dtype.kind != "i" or topics.dtype.kind not in "iu" or values.dtype.kind != "f":
        raise ValueError(f"{name}_indptr and _topics must be whole numbers, _values floats")
    indptr = np.array(indptr)
    ends = len(indptr) and (int(indptr[0]), int(indptr[-1]))
    falls = (indptr[1:] < indptr[:-1]).any()  # a difference may overflow
    if ends != (0, len(topics)) or falls or len(topics) != len(values):
        raise ValueError(f"{name}_indptr must rise from 0 to the number of topics and of values")
    if len(topics) and not (topics.min() >= 0 and topics.max() < n_topics):
        raise ValueError(f"{name}_topics must be from 0 to {n_topics - 1}")
    prior = np.broadcast_to(prior.astype(np.float32), (len(indptr) - 1, n_topics))
    return CompactRows(indptr, topics, values, prior)
