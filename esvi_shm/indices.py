"""Index arrays of sparse matrices, checked before compiled code (scipy's too) follows them."""

from typing import Any

import numpy as np

from esvi_shm.errors import CorpusError


def check_offsets(indptr: np.ndarray, n_rows: int, n_entries: int, name: str) -> None:
    """Refuse an indptr that does not ascend from 0 to no more than there are entries.

    Raises
    ------
    CorpusError

    Examples
    --------
    >>> check_offsets(np.array([0, 2, 2]), 2, 2, "matrix")
    """
    is_sound = len(indptr) == n_rows + 1 and indptr[0] == 0 and indptr[-1] <= n_entries
    if not is_sound or (indptr[1:] < indptr[:-1]).any():
        raise CorpusError(name, "indptr must ascend from 0 and end within the indices")


def check_indices(what: str, indices: np.ndarray, size: int, name: str) -> None:
    """Refuse an index out of range; `what` is row or column.

    Raises
    ------
    CorpusError

    Examples
    --------
    >>> check_indices("row", np.array([0, 2]), 2, "matrix")
    Traceback (most recent call last):
    esvi_shm.errors.CorpusError: matrix: row indices must be in 0..1, got 2
    """
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        wrong = indices[(indices < 0) | (indices >= size)][0]
        raise CorpusError(name, f"{what} indices must be in 0..{size - 1}, got {wrong}")


def check_structure(matrix: Any, name: str) -> None:
    """Refuse a scipy matrix whose index arrays do not fit it; forms without such are sound.

    Raises
    ------
    CorpusError

    Examples
    --------
    >>> import scipy.sparse
    >>> check_structure(scipy.sparse.eye(3, format="csc"), "matrix")
    """
    if matrix.format == "coo":
        if not len(matrix.row) == len(matrix.col) == len(matrix.data):
            raise CorpusError(name, "row, col and data must have the same length")
        check_indices("row", matrix.row, matrix.shape[0], name)
        check_indices("column", matrix.col, matrix.shape[1], name)
    elif matrix.format in ("csr", "csc", "bsr"):
        block = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        sizes = [size // side for size, side in zip(matrix.shape, block, strict=True)]
        what = ("row", "column")
        if matrix.format == "csc":
            sizes, what = sizes[::-1], what[::-1]
        n_entries = min(len(matrix.indices), len(matrix.data))
        check_offsets(matrix.indptr, sizes[0], n_entries, name)
        check_indices(what[1], matrix.indices[: matrix.indptr[-1]], sizes[1], name)
