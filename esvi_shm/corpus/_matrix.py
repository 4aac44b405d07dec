"""Any matrix a user may hold -> the three arrays of a `Corpus`.

Works through slices of a million entries, which are checked in their own type and only then
narrowed: besides the caller's matrix there is never more than the result itself.
"""

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np

from esvi_shm.corpus import _rows
from esvi_shm.errors import CorpusError
from esvi_shm.indices import check_indices, check_offsets, check_structure

CHUNK = 1 << 20
INT32_MAX = np.iinfo(np.int32).max

#: More documents or words than this, and than a hundred for each pair, are a slip or a lie: a
#: header or one id says them, and arrays of their length would hold nothing else.
MANY_DOCUMENTS, MANY_WORDS = 10_000_000, 100_000_000

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def compress(matrix: Any, name: str) -> tuple[Arrays, int]:
    """Return ((indptr, indices, counts), n_words) of a documents x words matrix."""
    import scipy.sparse

    sparse = scipy.sparse.issparse(matrix)
    if np.ma.is_masked(matrix):
        raise CorpusError(name, "must have no masked counts: fill them in")
    if not sparse:
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise CorpusError(name, f"a corpus must have 2 dimensions, got {matrix.ndim}")
    if matrix.dtype.kind == "O" and not sparse:
        matrix = _numbers_of(matrix, name)
    if matrix.dtype.kind not in "biuf":
        raise CorpusError(name, f"counts must be integers or floats, got dtype {matrix.dtype}")
    n_words = int(matrix.shape[1])
    if not sparse:
        check_sizes(matrix.shape[0], n_words, matrix.size, name)
        return _from_dense(matrix, name), n_words
    if matrix.format not in ("csr", "csc"):
        check_structure(matrix, name)
        matrix = matrix.tocoo(copy=False)
    check_sizes(matrix.shape[0], n_words, len(matrix.data), name)
    if matrix.format == "csr":
        return _from_csr(matrix, name), n_words
    return _from_triples(matrix, name), n_words


def _numbers_of(matrix: np.ndarray, name: str) -> np.ndarray:
    """An array of Python's numbers, as a data frame of mixed columns gives one, as floats."""
    for (row, column), value in np.ndenumerate(matrix):
        if not isinstance(value, numbers.Real | np.bool_):
            rule = f"counts must be integers or floats, got {value!r}"
            raise CorpusError(name, f"{rule} at row {row}, column {column} (from 0)")
    return matrix.astype(np.float64)


def check_sizes(
    n_documents: int, n_words: int, n_pairs: int, source: object, line: int | None = None
) -> None:
    """Refuse sizes whose indices do not fit int32, or that the pairs do not bear out."""
    for what, size, many in (
        ("documents", n_documents, MANY_DOCUMENTS),
        ("words", n_words, MANY_WORDS),
    ):
        if size > INT32_MAX:
            raise CorpusError(
                source, f"{what} must be at most {INT32_MAX} (int32), got {size}", line
            )
        if size > max(many, 100 * n_pairs):
            rule = f"{what} must be at most {many} where there are only {n_pairs} pairs"
            raise CorpusError(source, f"{rule}, got {size}", line)


def _from_csr(matrix: Any, name: str) -> Arrays:
    indptr = _offsets_of(matrix, name)
    n_pairs = int(indptr[-1])
    # Cut first: scipy lets arrays be longer than indptr says.
    indices = np.empty(n_pairs, dtype=np.int32)
    counts = np.empty(n_pairs, dtype=np.float32)
    for lo in range(0, n_pairs, CHUNK):
        part = slice(lo, min(lo + CHUNK, n_pairs))
        columns, values = matrix.indices[part], matrix.data[part]
        rows = np.empty(len(values), dtype=np.int32)
        _rows.expand(indptr, lo, rows)
        _check(rows, columns, values, matrix.shape, name)
        indices[part] = columns
        counts[part] = values
    return _rows.tidy(indptr, indices, counts)


def _offsets_of(matrix: Any, name: str) -> np.ndarray:
    """Offsets of a CSR or CSC matrix as int64, checked: kernels follow them blindly."""
    n_rows = matrix.shape[0 if matrix.format == "csr" else 1]
    check_offsets(matrix.indptr, n_rows, min(len(matrix.indices), len(matrix.data)), name)
    indptr: np.ndarray = matrix.indptr.astype(np.int64)
    return indptr


def _from_triples(matrix: Any, name: str) -> Arrays:
    sizes = np.zeros(matrix.shape[0], dtype=np.int64)
    for rows, columns, values in _triples(matrix, name):
        _check(rows, columns, values, matrix.shape, name)
        _rows.count_rows(rows.astype(np.int32), sizes)
    indptr = _rows.offsets(sizes)
    indices = np.empty(indptr[-1], dtype=np.int32)
    counts = np.empty(indptr[-1], dtype=np.float32)
    cursor = indptr[:-1].copy()
    for rows, columns, values in _triples(matrix, name):
        _rows.scatter(
            rows.astype(np.int32),
            columns.astype(np.int32),
            values.astype(np.float32),
            cursor,
            indices,
            counts,
        )
    return _rows.tidy(indptr, indices, counts)


def _triples(matrix: Any, name: str) -> Iterator[Arrays]:
    """Slices (rows, columns, values) of a CSC or COO matrix."""
    if matrix.format == "csc":
        indptr = _offsets_of(matrix, name)
        for lo in range(0, int(indptr[-1]), CHUNK):
            part = slice(lo, min(lo + CHUNK, int(indptr[-1])))
            columns = np.empty(part.stop - lo, dtype=np.int32)
            _rows.expand(indptr, lo, columns)
            yield matrix.indices[part], columns, matrix.data[part]
    else:
        for lo in range(0, len(matrix.data), CHUNK):
            part = slice(lo, lo + CHUNK)
            yield matrix.row[part], matrix.col[part], matrix.data[part]


def _from_dense(matrix: np.ndarray, name: str) -> Arrays:
    n_documents, n_words = matrix.shape
    sizes = np.zeros(n_documents, dtype=np.int64)
    step = max(1, CHUNK // max(n_words, 1))
    # NaN and negative numbers are not zero either, so they stay and are found below.
    for lo in range(0, n_documents, step):
        sizes[lo : lo + step] = np.count_nonzero(matrix[lo : lo + step], axis=1)
    indptr = _rows.offsets(sizes)
    indices = np.empty(indptr[-1], dtype=np.int32)
    counts = np.empty(indptr[-1], dtype=np.float32)
    for lo in range(0, n_documents, step):
        block = matrix[lo : lo + step]
        rows, columns = np.nonzero(block)
        values = block[rows, columns]
        _check(rows + lo, columns, values, matrix.shape, name)
        part = slice(indptr[lo], indptr[min(lo + step, n_documents)])
        indices[part] = columns
        counts[part] = values
    return _rows.tidy(indptr, indices, counts)


def _check(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int], name: str
) -> None:
    """Refuse an index out of range and a count that is negative or not finite as float32."""
    if not len(values):
        return
    check_indices("row", rows, shape[0], name)
    check_indices("column", columns, shape[1], name)
    with np.errstate(over="ignore"):
        good = (values >= 0) & np.isfinite(values.astype(np.float32))
    if not good.all():
        i = int(np.argmin(good))
        raise CorpusError(
            name,
            f"counts must be finite (in float32) and at least 0, got {values[i].item()!r} "
            f"at row {rows[i]}, column {columns[i]} (from 0)",
        )
