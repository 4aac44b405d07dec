"""Points: N rows of D numbers, dense or sparse, that mixtures are fitted to.

Whatever comes in is checked once; a sparse matrix is never made dense, and the caller's arrays are
neither changed nor copied where they can be used as they are.
"""

import hashlib
import itertools
import logging
import os
import re
import warnings
import zipfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esvi_shm import arrays, frames
from esvi_shm.errors import CorpusError
from esvi_shm.indices import check_structure

#: Columns whose names are told.
MOST_NAMES = 20

_log = logging.getLogger(__name__)

#: What numpy says of a cell that holds no number.
_NO_NUMBER = re.compile(r"could not convert string (.*) to float64 at row (\d+), column (\d+)")

#: What numpy and scipy raise of a file that is another one, cut, or lies about its sizes.
_DAMAGED = (
    OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, TypeError, MemoryError,
    OverflowError, RuntimeError,  # of zipfile, where it is encrypted
)  # fmt: skip


class Points:
    """N points of D features.

    Parameters
    ----------
    values : float32 or float64 array of shape (N, D), or scipy.sparse.csr_matrix of them
        Finite. Taken over without a copy: `as_points` is for users.
    name : str
    features : sequence of str, length D, or None
        What the columns are called.

    Examples
    --------
    >>> points = as_points([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> points.n_points, points.n_features, points.is_sparse
    (3, 2, False)
    >>> points.rows(np.array([2])).tolist()
    [[4.0, 5.0]]
    """

    def __init__(
        self, values: Any, name: str = "points", features: Sequence[str] | None = None
    ) -> None:
        self.values, self.name, self.features = values, name, features
        self.n_points, self.n_features = (int(n) for n in values.shape)
        self.is_sparse = not isinstance(values, np.ndarray)
        self._digest: str | None = None

    @property
    def whole(self) -> Any:
        """What a fit is to: these, and those of other nodes where there are some."""
        return self

    @property
    def n_values(self) -> int:
        """Numbers that are stored."""
        return int(self.values.nnz) if self.is_sparse else int(self.values.size)

    @property
    def n_bytes(self) -> int:
        """Bytes of the numbers."""
        if self.is_sparse:
            parts = (self.values.data, self.values.indices, self.values.indptr)
            return sum(int(part.nbytes) for part in parts)
        return int(self.values.nbytes)

    def rows(self, numbers: np.ndarray) -> Any:
        """The points of these numbers, in their order; dense or sparse, as all are."""
        return self.values[numbers]

    def in_order_of(self, features: Sequence[str] | None) -> "Points":
        """The same points with columns in this order, where both have names.

        Raises
        ------
        CorpusError
            If the names are not the same.

        Examples
        --------
        >>> points = Points(np.array([[1.0, 2.0]]), features=["sea", "hill"])
        >>> points.in_order_of(["hill", "sea"]).values.tolist()
        [[2.0, 1.0]]
        """
        if features is None or self.features is None or list(features) == list(self.features):
            return self
        if sorted(features) != sorted(self.features):
            told = [", ".join(names[:MOST_NAMES]) for names in (features, self.features)]
            raise CorpusError(self.name, f"must have the features {told[0]}; got {told[1]}")
        order = [self.features.index(feature) for feature in features]
        return Points(self.values[:, order], self.name, features)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (divided by N) of each feature, float64."""
        if not self.is_sparse:
            mean = self.values.mean(axis=0, dtype=np.float64)
            # About the mean: two passes, for large means would eat the digits of the variance.
            variance = np.zeros(self.n_features)
            for first in range(0, self.n_points, 4096):
                part = self.values[first : first + 4096] - mean
                variance += np.einsum("nd,nd->d", part, part)
            return mean, variance / self.n_points
        mean = np.asarray(self.values.sum(axis=0, dtype=np.float64)).ravel() / self.n_points
        data = self.values.data.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers too large to be squared
            square = np.bincount(self.values.indices, data * data, minlength=self.n_features)
            return mean, np.maximum(square / self.n_points - mean**2, 0.0)

    def covariance(self) -> np.ndarray:
        """Covariance of the features of dense points (divided by N - 1), float64, shape (D, D)."""
        if self.n_points == 1:
            return np.zeros((self.n_features,) * 2)
        return np.atleast_2d(np.cov(np.asarray(self.values, np.float64).T))

    def digest(self) -> str:
        """SHA-256 of sizes and numbers."""
        if self._digest is None:
            digest = hashlib.sha256(repr((self.n_points, self.n_features)).encode())
            parts = (
                (self.values.indptr, self.values.indices, self.values.data)
                if self.is_sparse
                else (self.values,)
            )
            for part in parts:
                digest.update(np.ascontiguousarray(part).data.cast("B") if part.size else b"")
            self._digest = digest.hexdigest()
        return self._digest

    def release(self) -> None:
        """Give up the numbers; sizes, name and digest stay."""
        self.digest()
        del self.values


def as_points(given: Any, name: str | None = None) -> Points:
    """Points of an array, a sparse matrix, a data frame, lists of numbers, or a path; checked.

    Parameters
    ----------
    given : Points, array-like or data frame of shape (N, D), sparse matrix, or path
    name : str, optional
        What messages call them.

    Raises
    ------
    CorpusError
        For what is not a matrix of finite real numbers; row and column are named, from 0.
    """
    if isinstance(given, Points):
        return given
    if isinstance(given, str | os.PathLike):
        return read_points(given)
    if frames.is_frame(given):
        names = list(given.columns)
        points = as_points(frames.matrix_of(given), name or type(given).__name__)
        points.features = _told_apart(names)
        return points
    name = name or "points"
    if hasattr(given, "tocsr"):
        return _sparse(given, name)
    if np.ma.is_masked(given):
        raise CorpusError(name, "must have no masked numbers: fill them in, or leave points out")
    try:
        array = np.asarray(given)
    except ValueError as error:  # lists of different lengths
        raise CorpusError(name, f"must be a matrix of numbers: {error}") from None
    array = _real(array, name)
    if array.ndim != 2:
        rule = "must have two dimensions, points and features (one feature: shape (N, 1))"
        raise CorpusError(name, f"{rule}, got shape {array.shape}")
    _check_sizes(array.shape, name)
    _check_finite(array, name)
    return Points(np.ascontiguousarray(array), name)


def _real(array: np.ndarray, name: str) -> np.ndarray:
    """The numbers as float32 where that holds them, else float64."""
    if array.dtype.kind not in "biuf":
        raise CorpusError(name, f"must be real numbers, got type {array.dtype}")
    if array.dtype in (np.float32, np.float64):
        return array
    small = array.dtype.kind == "b" or array.dtype.itemsize <= 2
    return array.astype(np.float32 if small else np.float64)


def _check_sizes(shape: tuple[int, ...], name: str) -> None:
    if 0 in shape:
        raise CorpusError(name, f"must have points and features, got shape {tuple(shape)}")


def _check_finite(array: np.ndarray, name: str) -> None:
    for first in range(0, len(array), 4096):
        part = array[first : first + 4096]
        if not np.isfinite(part).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(part))[0])
            value = float(part[row, column])
            raise CorpusError(
                name,
                f"must be finite, got {value} in row {first + row}, column {column} (from 0)",
            )


def _sparse(given: Any, name: str) -> Points:
    import scipy.sparse

    if given.ndim != 2:
        raise CorpusError(name, f"must have two dimensions, got shape {given.shape}")
    _check_sizes(given.shape, name)
    check_structure(given, name)
    matrix = scipy.sparse.csr_matrix(given)
    matrix = scipy.sparse.csr_matrix(
        (_real(matrix.data, name), matrix.indices, matrix.indptr), shape=matrix.shape
    )
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    finite = np.isfinite(matrix.data)
    if not finite.all():
        at = int(np.argmin(finite))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        where = f"in row {row}, column {int(matrix.indices[at])} (from 0)"
        raise CorpusError(name, f"must be finite, got {float(matrix.data[at])} {where}")
    return Points(matrix, name)


def read_points(path: str | os.PathLike[str]) -> Points:
    """Points of a file: .npy, .npz (sparse, or with an array X), .csv, or Matrix Market.

    A .csv may begin with a line of names. Of an .npz with several arrays the one called X is taken
    (labels beside it are left alone), else there must be one alone.

    Raises
    ------
    CorpusError
        Where the file is missing, damaged, or not what its name says, or has another name.
    """
    values, features = _read(Path(path), None)
    points = as_points(values, str(path))
    points.features = features
    return points


def read_share(path: str | os.PathLike[str], which: int, n: int) -> tuple[Points, str]:
    """One of n ranges of the points of a file, of about the same number, and a digest of the file.

    Only these are held, but of Matrix Market and of arrays that lie by columns. There may be none.

    Raises
    ------
    CorpusError
        As `read_points`, but for what is wrong with other points alone.
    """
    path = Path(path)
    values, features = _read(path, (which, n))
    try:
        digest = arrays.digest_of(path)
    except OSError as error:
        raise CorpusError(path, error.strerror or str(error)) from None
    if 0 in values.shape[:1]:
        return Points(values, str(path), features), digest
    # Rows are told of by their number in the share.
    points = as_points(values, f"{path}, share {which + 1} of {n}" if which else str(path))
    points.name, points.features = str(path), features
    return points, digest


def _read(path: Path, share: tuple[int, int] | None) -> tuple[Any, list[str] | None]:
    """What a file has, or a share of its rows, and names of its columns."""
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".mtx": _read_mtx}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        rule = f"a file of points must end in one of {', '.join(sorted(readers))}"
        raise CorpusError(path, rule)
    try:
        with open(path, "rb") as file:
            found = reader(file, share)
            return found if isinstance(found, tuple) else (found, None)
    except CorpusError:
        raise
    except OSError as error:
        raise CorpusError(path, error.strerror or str(error)) from None
    except _DAMAGED as error:
        raise CorpusError(path, f"must be a whole {path.suffix} file, but: {error}") from None


def bounds_of(n_points: int, share: tuple[int, int] | None) -> tuple[int, int]:
    """First point of a share (which, of how many), and the one behind its last; None: of all.

    >>> bounds_of(5, (1, 2))
    (2, 5)
    """
    which, n = share or (0, 1)
    return n_points * which // n, n_points * (which + 1) // n


def _cut(array: Any, share: tuple[int, int] | None) -> Any:
    """A share of the rows of what has been read as a whole; nothing of the rest is held."""
    if share is None or len(getattr(array, "shape", ())) != 2:
        return array
    first, last = bounds_of(array.shape[0], share)
    return (array.tocsr() if hasattr(array, "tocsr") else array)[first:last].copy()


def _read_npy(file: Any, share: tuple[int, int] | None) -> Any:
    if share is not None:
        stored = arrays.Rows(file)
        if len(stored.shape) == 2 and not stored.by_columns:
            return stored.take(*bounds_of(stored.shape[0], share))
        file.seek(0)
    return _cut(np.load(file, allow_pickle=False), share)


def _read_npz(file: Any, share: tuple[int, int] | None) -> Any:
    with np.load(file, allow_pickle=False) as held:
        names = list(held)
        if {"format", "shape", "data"} <= set(names):
            import scipy.sparse

            found = None
            if share is not None:
                found = arrays.take_csr(held.zip, lambda sizes: bounds_of(len(sizes), share))
            file.seek(0)
            return found[0] if found else _cut(scipy.sparse.load_npz(file), share)
        if "X" not in names and len(names) != 1:
            raise ValueError(f"one of its arrays must be called X, it has {', '.join(names)}")
        name = "X" if "X" in names else names[0]
        rows = None
        if share is not None:
            rows = arrays.take_from(held.zip, name, lambda ones: bounds_of(len(ones), share))
        return rows[0] if rows else _cut(held[name], share)


def _read_csv(file: Any, share: tuple[int, int] | None) -> tuple[Any, list[str] | None]:
    begins = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
    file.seek(begins)
    cells = file.readline().decode().split(",")
    numbers, features = sum(_is_number(cell) for cell in cells), None
    if numbers == len(cells):
        file.seek(begins)
    elif numbers:  # a point with a wrong field must not go for a line of names
        raise ValueError("line 1 must be names or numbers, not some of both")
    else:  # among them may be a label, which nobody wants for a feature
        begins = file.tell()
        features = [cell.strip().strip('"') for cell in cells]
        more = ", ..." if len(cells) > MOST_NAMES else ""
        names = ", ".join(features[:MOST_NAMES])
        _log.info("%s: every column is a feature: %s%s", file.name, names, more)
    first, last = 0, None
    if share is not None:
        n_points = sum(1 for _ in _filled(file))
        file.seek(begins)
        first, last = bounds_of(n_points, share)
        if first == last:
            return np.empty((0, len(cells))), features
    try:
        array = _numbers_of(itertools.islice(_filled(file), first, last))
    except ValueError as error:
        found = _NO_NUMBER.match(str(error))
        if found is None:
            raise ValueError(f"{error} (counted from row {first})" if first else error) from None
        value, row, column = found[1], first + int(found[2]), int(found[3]) - 1
        where = repr(features[column]) if features else f"{column} (from 0)"
        rule = f"column {where} must hold numbers, got {value}"
        raise CorpusError(file.name, rule, _line_of(file, row, features is not None)) from None
    if features is not None and array.size and array.shape[1] != len(features):
        rule = f"must name each of the {array.shape[1]} columns, got {len(features)} names"
        raise CorpusError(file.name, rule, 1)
    return array, _told_apart(features or [])


def _told_apart(names: list[Any]) -> list[str] | None:
    """Names of columns, if there are some and each is another."""
    are_names = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    return names if names and are_names else None


def _line_of(file: Any, row: int, has_names: bool) -> int:
    """The number of the line, from 1, that has a row of the numbers."""
    file.seek(0)
    line = 0
    for line, text in enumerate(file, 1):
        row -= bool(text.strip(b"\r\n")) and not (line == 1 and has_names)
        if row < 0:
            break
    return line


def _filled(lines: Any) -> Iterator[bytes]:
    """The lines that numpy does not pass over."""
    return (line for line in lines if line.strip(b"\r\n"))


def _numbers_of(lines: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of no points, which is refused
        # No comments: what a stray mark cuts off would be lost unseen.
        return np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_mtx(file: Any, share: tuple[int, int] | None) -> Any:
    import scipy.io

    return _cut(scipy.io.mmread(file), share)
