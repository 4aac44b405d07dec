"""Rows of float32 as few bytes: what most of a row is, is sent once.

Most of a settled row of lambda is its prior, to the bit: a word lives in few topics. So a row is
sent as its least value, which is that, and the groups of `LANES` numbers that are not all equal
to it. Rows without such groups get longer by a little: see `most`.

    row     least value, float32 | a bit for each group | the groups whose bit is 1
"""

from collections.abc import Sequence

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.vector import LANES


def _sizes(array: np.ndarray) -> tuple[int, int]:
    """Groups of a row, and bytes of its bits, whole float32."""
    n_groups = -(-array.shape[1] // LANES)
    return n_groups, 4 * -(-n_groups // 32)


def most(arrays: Sequence[np.ndarray]) -> int:
    """Bytes that `pack` gives at most.

    Parameters
    ----------
    arrays : sequence of float32 arrays, shapes (n_i, m_i)
    """
    return sum(array.nbytes + len(array) * (4 + _sizes(array)[1]) for array in arrays)


def pack(arrays: Sequence[np.ndarray]) -> memoryview:
    """The rows of some arrays as bytes.

    Examples
    --------
    >>> rows = np.full((100, 64), 0.1, np.float32)
    >>> rows[3, 7] = 2.0
    >>> packed = pack([rows])
    >>> len(packed), rows.nbytes
    (864, 25600)
    >>> there = np.empty_like(rows)
    >>> unpack(packed, [there])
    >>> bool((there == rows).all())
    True
    """
    out = np.empty(most(arrays) // 4, np.uint32)
    end = 0
    for array in arrays:
        end = pack_rows(array.view(np.uint32), out, end)
    return out[:end].data.cast("B")


def unpack(data: memoryview, arrays: Sequence[np.ndarray]) -> None:
    """Write the rows of some arrays from their bytes.

    Raises
    ------
    ValueError
        If the bytes are not those of arrays of these shapes. The arrays may be written in part.
    """
    if len(data) % 4:
        raise ValueError(f"packed rows must be whole numbers of 4 bytes, got {len(data)}")
    values, end = np.frombuffer(data, np.uint32), 0
    for array in arrays:
        end = unpack_rows(values, end, array.view(np.uint32))
        if end < 0:
            break
    if end != len(values):
        raise ValueError(f"{len(data)} bytes are not those of rows of this block")


@kernel
def pack_rows(array, out, end):
    """Append rows to `out` from place `end`; returns where they end.

    All is uint32, the bits of float32: so the least is found, and groups are compared, by vectors.
    Of rows that are positive it is the least number; of others it is one of theirs, which will do.
    """
    n_columns = array.shape[1]
    n_full, n_groups = n_columns // LANES, -(-n_columns // LANES)
    n_words = -(-n_groups // 32)
    for i in range(array.shape[0]):
        row = array[i]
        least = row[0]
        for k in range(n_columns):
            least = min(least, row[k])
        out[end] = least
        at = end + 1
        end = at + n_words
        for w in range(n_words):
            out[at + w] = np.uint32(0)
        for group in range(n_groups):
            first = group * LANES
            differs = np.uint32(0)
            if group < n_full:
                for k in range(LANES):
                    differs |= row[first + k] ^ least
            else:
                for k in range(first, n_columns):
                    differs |= row[k] ^ least
            if differs != 0:
                out[at + (group >> 5)] |= np.uint32(1) << np.uint32(group & 31)
                if group < n_full:
                    for k in range(LANES):
                        out[end + k] = row[first + k]
                    end += LANES
                else:
                    for k in range(first, n_columns):
                        out[end + k - first] = row[k]
                    end += n_columns - first
    return end


@kernel
def unpack_rows(values, end, array):
    """Write rows from `values` from place `end` on; returns where they end, -1 if too few.

    All is uint32, the bits of float32.
    """
    n_columns, n_values = array.shape[1], values.shape[0]
    n_full, n_groups = n_columns // LANES, -(-n_columns // LANES)
    n_words = -(-n_groups // 32)
    for i in range(array.shape[0]):
        row = array[i]
        at = end + 1
        end = at + n_words
        if end > n_values:
            return -1
        least = values[at - 1]
        for group in range(n_groups):
            first = group * LANES
            size = min(LANES, n_columns - first)
            if (values[at + (group >> 5)] >> np.uint32(group & 31)) & np.uint32(1):
                if end + size > n_values:
                    return -1
                if group < n_full:
                    for k in range(LANES):
                        row[first + k] = values[end + k]
                else:
                    for k in range(size):
                        row[first + k] = values[end + k]
                end += size
            elif group < n_full:
                for k in range(LANES):
                    row[first + k] = least
            else:
                for k in range(size):
                    row[first + k] = least
    return end
