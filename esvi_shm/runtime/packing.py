"""Rows of float32 as few bytes: what most of a row is, is sent once.

Most of a settled row of lambda is its prior, but for rounding: a word lives in few topics, and what
has left a topic leaves some steps of float32 there. So a row is sent as its least value and the
numbers that are more than `NEAR` steps above it; the others come out as the least. That changes
them by at most 4 millionths of it, which is what active sets and models take for rounding too.
Rows of which all differ get longer by a little: see `most`.

    NIPS, 128 topics, from the tenth pass on: 44% of the numbers differ from the prior, 9% by more
    than `NEAR` steps

    row     least value, float32 | a bit for each number | the numbers whose bit is 1

Rows that are lists already (`ListedBlock`) are sent without the places that are not taken:

    row     how many, uint32 | what all others have, float32 | their columns, uint32 | their values
"""

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from esvi_shm.compile import kernel
from esvi_shm.families.contract import ListedBlock
from esvi_shm.sparse import lowest, popcount
from esvi_shm.vector import LANES, Emitter, data_of

#: Steps of float32.
NEAR = np.uint32(32)
#: Numbers whose bits are in one uint32.
BITS = 32
#: The bits of a group.
ALL = np.uint32((1 << LANES) - 1)


def most(arrays: Sequence[np.ndarray]) -> int:
    """Bytes that `pack` gives at most.

    Parameters
    ----------
    arrays : sequence of float32 arrays, shapes (n_i, m_i)
    """
    return sum(array.nbytes + 4 * len(array) * (1 + -(-array.shape[1] // BITS)) for array in arrays)


def pack(arrays: Sequence[np.ndarray]) -> memoryview:
    """The rows of some arrays as bytes.

    Examples
    --------
    >>> rows = np.full((100, 64), 0.1, np.float32)
    >>> rows[3, 7] = 2.0
    >>> packed = pack([rows])
    >>> len(packed), rows.nbytes
    (1204, 25600)
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


def most_of_lists(lists: ListedBlock) -> int:
    """Bytes that `pack_lists` gives at most."""
    return 8 * len(lists.size) + 8 * int(lists.first[-1] - lists.first[0])


def pack_lists(lists: ListedBlock) -> memoryview:
    """ListedBlock as bytes.

    Examples
    --------
    >>> def lists():
    ...     first, size, rest = np.array([0, 3, 5]), np.zeros(2, np.int32), np.zeros(2, np.float32)
    ...     return ListedBlock(first, size, rest, np.zeros(5, np.uint8), np.zeros(5, np.float32), 9)
    >>> here, there = lists(), lists()
    >>> here.size[1], here.columns[3], here.values[3] = 1, 8, 0.5
    >>> packed = pack_lists(here)
    >>> len(packed)
    24
    >>> unpack_lists(packed, there)
    >>> there.size.tolist(), there.columns.tolist(), there.values.tolist()
    ([0, 1], [0, 0, 0, 8, 0], [0.0, 0.0, 0.0, 0.5, 0.0])
    """
    out = np.empty(most_of_lists(lists) // 4, np.uint32)
    first, size, rest, columns, values, _ = lists
    end = _pack_lists(first, size, rest.view(np.uint32), columns, values.view(np.uint32), out)
    return out[:end].data.cast("B")


def unpack_lists(data: memoryview, lists: ListedBlock) -> None:
    """Write lists from their bytes.

    Raises
    ------
    ValueError
        If the bytes are not those of such lists. These may be written in part.
    """
    first, size, rest, columns, values, n_columns = lists
    came = np.frombuffer(data[: len(data) // 4 * 4], np.uint32)
    rest, values = rest.view(np.uint32), values.view(np.uint32)
    is_whole = len(data) % 4 == 0
    if not is_whole or not _unpack_lists(came, first, size, rest, columns, values, n_columns):
        raise ValueError(f"{len(data)} bytes are not those of lists of this block")


@kernel
def _pack_lists(first, size, rest, columns, values, out):
    end = 0
    for i in range(size.shape[0]):
        n = size[i]
        out[end], out[end + 1] = n, rest[i]
        end += 2
        for j in range(n):
            out[end + j], out[end + n + j] = columns[first[i] + j], values[first[i] + j]
        end += 2 * n
    return end


@kernel
def _unpack_lists(came, first, size, rest, columns, values, n_columns):
    """Whether all of `came` was taken, and nothing lacked."""
    end = np.int64(0)
    for i in range(size.shape[0]):
        if end + 2 > came.shape[0]:
            return False
        n = np.int64(came[end])
        if n > first[i + 1] - first[i] or end + 2 + 2 * n > came.shape[0]:
            return False
        size[i], rest[i] = n, came[end + 1]
        end += 2
        for j in range(n):
            if came[end + j] >= n_columns or (j > 0 and came[end + j] <= came[end + j - 1]):
                size[i] = 0
                return False
            columns[first[i] + j], values[first[i] + j] = came[end + j], came[end + n + j]
        end += 2 * n
    return end == came.shape[0]


@intrinsic
def _far_above(typingctx, row, first, least):
    """A bit for each of the `LANES` numbers from `first` on, set where it is not near the least.

    LLVM makes no comparison of vectors of a loop over single bits.
    """

    def codegen(context, builder, signature, args):
        numbers, bits = ir.VectorType(ir.IntType(32), LANES), ir.IntType(LANES)
        start = builder.gep(data_of(context, builder, signature.args[0], args[0]), [args[1]])
        here = builder.load(builder.bitcast(start, numbers.as_pointer()), align=4)
        above = builder.sub(here, Emitter(builder).broadcast(args[2]))
        limit = ir.Constant(numbers, [int(NEAR)] * LANES)
        far = builder.bitcast(builder.icmp_unsigned(">", above, limit), bits)
        return builder.zext(far, ir.IntType(32))

    return types.uint32(row, types.int64, types.uint32), codegen


@kernel
def pack_rows(array, out, end):
    """Append rows to `out` from place `end`; returns where they end.

    All is uint32, the bits of float32: so the least is found, and groups are compared, by vectors.
    Of rows that are positive it is the least number, and a step is one of the bits.
    """
    n_columns = array.shape[1]
    n_words = -(-n_columns // BITS)
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
        for first in range(0, n_columns, LANES):
            bits = np.uint32(0)
            if first + LANES <= n_columns:
                bits = _far_above(row, first, least)
            else:
                for k in range(n_columns - first):
                    bits |= np.uint32(row[first + k] - least > NEAR) << np.uint32(k)
            out[at + first // BITS] |= bits << np.uint32(first % BITS)
            if bits == ALL:
                for k in range(LANES):
                    out[end + k] = row[first + k]
                end += LANES
                continue
            while bits != 0:
                out[end] = row[first + lowest(np.int64(bits))]
                end += 1
                bits &= bits - np.uint32(1)
    return end


@kernel
def unpack_rows(values, end, array):
    """Write rows from `values` from place `end` on; returns where they end, -1 if too few.

    All is uint32, the bits of float32.
    """
    n_columns, n_values = array.shape[1], values.shape[0]
    n_words = -(-n_columns // BITS)
    for i in range(array.shape[0]):
        row = array[i]
        at = end + 1
        end = at + n_words
        if end > n_values:
            return -1
        least = values[at - 1]
        for first in range(0, n_columns, LANES):
            bits = (values[at + first // BITS] >> np.uint32(first % BITS)) & ALL
            whole = first + LANES <= n_columns
            if end + popcount(np.int64(bits)) > n_values or (
                not whole and bits >> (n_columns - first)
            ):
                return -1
            if bits == ALL:
                for k in range(LANES):
                    row[first + k] = values[end + k]
                end += LANES
                continue
            if whole:
                for k in range(LANES):
                    row[first + k] = least
            else:
                for k in range(first, n_columns):
                    row[k] = least
            while bits != 0:
                row[first + lowest(np.int64(bits))] = values[end]
                end += 1
                bits &= bits - np.uint32(1)
    return end
