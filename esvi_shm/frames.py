"""Data frames, of pandas or alike, as matrices of numbers: sparse where all columns are."""

import numbers
import textwrap
from typing import Any

import numpy as np

from esvi_shm.errors import CorpusError


def is_frame(x: Any) -> bool:
    """Whether it has columns with names, and can become an array."""
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def matrix_of(frame: Any) -> Any:
    """The numbers of a data frame.

    Parameters
    ----------
    frame : data frame, (N, D)

    Returns
    -------
    ndarray or scipy.sparse.coo_matrix, (N, D)
        Columns of different types, or of a type that has missing values, become float64.

    Raises
    ------
    CorpusError
        Names the first column, and its first row, that holds something else than a real number.

    Examples
    --------
    >>> import pandas
    >>> matrix_of(pandas.DataFrame({"sea": [1, 2], "hill": [0.5, 0]})).tolist()
    [[1.0, 0.5], [2.0, 0.0]]
    """
    if len(frame.columns) and hasattr(frame, "sparse"):  # pandas has it where all columns are
        if all(kind.fill_value == 0 for kind in frame.dtypes):
            return frame.sparse.to_coo()
        frame = frame.sparse.to_dense()
    matrix = frame.to_numpy()
    if matrix.dtype.kind in "biuf":
        return matrix
    for column, values in zip(frame.columns, matrix.T, strict=True):
        for row, value in enumerate(values):
            if not isinstance(value, numbers.Real | np.bool_):
                told = textwrap.shorten(repr(value), 60, placeholder="...")
                rule = f"column {column!r} must hold numbers, got {told} in row {row} (from 0)"
                if isinstance(value, str) and " " in value:
                    rule += "; scikit-learn's CountVectorizer makes counts of texts"
                raise CorpusError(type(frame).__name__, rule)
    return matrix.astype(np.float64)
