"""Rows of an array in a file of numpy's, or of a sparse matrix of scipy's, without the rest.

And rows of a matrix that is held in another form (`MadeRows`).

What is not asked for is read past, never held. A file that is another one, cut, or lies about its
sizes raises what numpy, scipy and zipfile do: a ValueError, KeyError, EOFError, OSError, BadZipFile
or MemoryError; nothing is allocated by what a header says of more than the rows asked for.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

#: Bytes that are read past at a time.
CHUNK = 1 << 20
#: Numbers of a matrix in another form that are made at a time.
MADE = 1 << 20
#: The first and the last row (exclusive) to take, by the number of all, or by how long each is.
Bounds = Callable[[np.ndarray], tuple[int, int]]


def digest_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class MadeRows:
    """A matrix that is held in another form; rows of it are made when they are asked for.

    Attributes
    ----------
    shape : tuple of int
        Of the matrix; its numbers are float32.
    """

    dtype = np.dtype(np.float32)
    ndim = 2
    shape: tuple[int, ...]

    def make(self, first: int, last: int) -> np.ndarray:
        """Rows first to last - 1, as an array of their own."""
        raise NotImplementedError

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Rows of these numbers, from 0 on, as an array of their own."""
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for i, row in enumerate(rows.tolist()):
            found[i] = self.make(row, row + 1)[0]
        return found

    def chunks(self) -> Iterator[np.ndarray]:
        """All rows, some at a time."""
        size = max(MADE // max(self.shape[1], 1), 1)
        for first in range(0, len(self), size):
            yield self.make(first, min(first + size, len(self)))

    def columns(self, first: int, last: int) -> np.ndarray:
        """Columns first to last - 1 of all rows, as an array of their own."""
        none = np.empty((0, last - first), self.dtype)
        return np.concatenate([none, *(rows[:, first:last].copy() for rows in self.chunks())])

    def sum(self, axis: int, dtype: Any = None) -> np.ndarray:
        """The sums of the columns."""
        assert axis == 0
        total = np.zeros(self.shape[1], dtype or self.dtype)
        for rows in self.chunks():
            total += rows.sum(axis=0, dtype=dtype)
        return total

    def min(self, initial: float) -> float:
        """The least number, or `initial` where that is less."""
        return min([initial, *(float(rows.min(initial=initial)) for rows in self.chunks())])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: int | slice | np.ndarray) -> np.ndarray:
        if isinstance(which, slice):
            first, last, step = which.indices(len(self))
            if step != 1:
                raise ValueError(f"rows must be asked for one after another, got step {step}")
            return self.make(first, max(first, last))
        if isinstance(which, np.ndarray):
            return self.take(which)
        i = range(len(self))[which]  # the last one is -1 too
        return self.make(i, i + 1)[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a matrix that is held in another form must be made")
        return self.make(0, len(self)).astype(dtype or self.dtype, copy=False)


class Rows:
    """An array that a stream goes on with, in numpy's format; its rows are taken in order.

    Examples
    --------
    >>> import io
    >>> stream = io.BytesIO()
    >>> np.save(stream, np.arange(6).reshape(3, 2))
    >>> _ = stream.seek(0)
    >>> Rows(stream).take(1, 2).tolist()
    [[2, 3]]
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._next = stream, 0
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"version {version} of numpy's format is not known")
        self.shape, self.by_columns, self.dtype = read(stream)
        if self.dtype.hasobject:
            raise ValueError("objects are not read: they may be code")
        if len(self.shape) < 2:
            self.by_columns = False

    def take(self, first: int, last: int) -> np.ndarray:
        """Rows first..last-1 of an array that does not lie by columns; none before the last taken.

        Raises
        ------
        EOFError
            If the stream ends before.
        """
        assert not self.by_columns and self._next <= first <= last <= self.shape[0]
        rest = self.shape[1:]
        row = int(np.prod(rest, dtype=object)) * self.dtype.itemsize
        self._skip((first - self._next) * row)
        self._next = last
        found = np.empty((last - first, *rest), self.dtype)
        room = found.reshape(-1).view(np.uint8).data if found.size else memoryview(b"")
        while len(room):
            data = self._stream.read(min(len(room), CHUNK))
            if not data:
                raise EOFError("the end is missing")
            room[: len(data)] = data
            room = room[len(data) :]
        return found

    def finish(self) -> None:
        """Read to the end, where an archive says whether the bytes are those that were written."""
        while self._stream.read(CHUNK):
            pass

    def _skip(self, n_bytes: int) -> None:
        while n_bytes:
            data = self._stream.read(min(n_bytes, CHUNK))
            if not data:
                raise EOFError("the end is missing")
            n_bytes -= len(data)


def take_from(archive: zipfile.ZipFile, name: str, bounds: Bounds) -> tuple[np.ndarray, int] | None:
    """Rows of a matrix in an .npz, and how many it has; None of one by columns, or of no matrix.

    `bounds` is asked with a vector of ones, one a row.
    """
    with archive.open(f"{name}.npy") as stream:
        stored = Rows(stream)
        if stored.by_columns or len(stored.shape) != 2:
            return None
        first, last = bounds(np.broadcast_to(np.int8(1), stored.shape[:1]))
        found = stored.take(first, last)
        stored.finish()
    return found, stored.shape[0]


def take_csr(
    archive: zipfile.ZipFile, bounds: Bounds, by_columns: bool = False
) -> tuple[Any, int, int] | None:
    """Rows of a CSR matrix that `scipy.sparse.save_npz` wrote, or columns of a CSC one as rows.

    Parameters
    ----------
    archive : zipfile.ZipFile
    bounds : callable
        Of the numbers of entries that are stored of each row.
    by_columns : bool
        Whether columns are asked for.

    Returns
    -------
    scipy.sparse.csr_matrix
        Unchecked but for its offsets.
    first, n_rows : int
        Which row its first one is, and how many there are in all.
    None
        In place of these where the matrix has another format: then nothing but it was read.
    """
    import scipy.sparse

    kind = _small(archive, "format").item()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind != ("csc" if by_columns else "csr"):
        return None
    shape = [int(n) for n in _small(archive, "shape")]
    if len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"the shape must be that of a matrix, it says {shape}")
    n_rows, n_columns = shape[::-1] if by_columns else shape
    with archive.open("indptr.npy") as stream:
        stored = Rows(stream)
        if stored.shape != (n_rows + 1,) or stored.dtype.kind not in "iu":
            raise ValueError(f"indptr must be {n_rows + 1} whole numbers")
        indptr = stored.take(0, n_rows + 1).astype(np.int64)
        stored.finish()
    if indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError("indptr must ascend from 0")
    first, last = bounds(np.diff(indptr))
    lo, hi = int(indptr[first]), int(indptr[last])
    parts = []
    for name in ("data", "indices"):
        with archive.open(f"{name}.npy") as stream:
            stored = Rows(stream)
            if len(stored.shape) != 1 or stored.shape[0] < indptr[-1]:
                raise ValueError(f"{name} must be as long as indptr says, {indptr[-1]}")
            parts.append(stored.take(lo, hi))
            stored.finish()
    rows = (*parts, indptr[first : last + 1] - lo)
    return scipy.sparse.csr_matrix(rows, shape=(last - first, n_columns)), first, n_rows


def _small(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """A whole array of a few numbers."""
    with archive.open(f"{name}.npy") as stream:
        stored = Rows(stream)
        if np.prod(stored.shape, dtype=object) * stored.dtype.itemsize > CHUNK:
            raise ValueError(f"{name} must be a few numbers")
        data = stream.read(CHUNK)
    return np.frombuffer(data, stored.dtype).reshape(stored.shape)
