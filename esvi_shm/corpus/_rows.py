"""Kernels on the rows of a CSR matrix: bring them into order, sum duplicates, find faults.

All take arrays of one type each (int64 offsets, int32 indices, float32 counts), so that each is
compiled once; none allocates more than the longest row that is out of order.
"""

import numpy as np

from esvi_shm.compile import kernel

#: What `find_fault` can find.
FINE, OFFSETS, RANGE, ORDER, COUNT = range(5)


@kernel(allocates=True)
def sort_rows(indptr, indices, counts):
    """Sort the pairs of each row by index, stably and in place; rows in order are only read."""
    # Not np.argsort: numba takes seven seconds to compile it.
    spare_indices, spare_counts = indices[:0].copy(), counts[:0].copy()
    for d in range(len(indptr) - 1):
        start, stop = indptr[d], indptr[d + 1]
        for j in range(start + 1, stop):
            if indices[j] < indices[j - 1]:
                if len(spare_indices) < stop - start:
                    spare_indices = np.empty(stop - start, indices.dtype)
                    spare_counts = np.empty(stop - start, counts.dtype)
                _merge_sort(indices[start:stop], counts[start:stop], spare_indices, spare_counts)
                break


@kernel
def _merge_sort(indices, counts, spare_indices, spare_counts):
    """Sort one row by index, stably, from runs of 1, 2, 4, ... pairs upwards."""
    n = len(indices)
    width = 1
    while width < n:
        for lo in range(0, n, 2 * width):
            middle, hi = min(lo + width, n), min(lo + 2 * width, n)
            left, right = lo, middle
            for out in range(lo, hi):
                take_left = right >= hi or (left < middle and indices[left] <= indices[right])
                source = left if take_left else right
                spare_indices[out] = indices[source]
                spare_counts[out] = counts[source]
                if take_left:
                    left += 1
                else:
                    right += 1
        for out in range(n):
            indices[out] = spare_indices[out]
            counts[out] = spare_counts[out]
        width *= 2


@kernel
def merge_rows(indptr, indices, counts):
    """Sum duplicates (in float64) and drop zeros of sorted rows, in place; return the new NNZ.

    Equivalent to scipy's ``sum_duplicates(); eliminate_zeros()``. The caller cuts the arrays.
    """
    n = 0
    start = indptr[0]
    for d in range(len(indptr) - 1):
        stop = indptr[d + 1]
        indptr[d] = n
        j = start
        while j < stop:
            index = indices[j]
            total = np.float64(counts[j])
            j += 1
            while j < stop and indices[j] == index:
                total += counts[j]
                j += 1
            narrow = np.float32(total)
            if narrow != 0.0:
                indices[n] = index
                counts[n] = narrow
                n += 1
        start = stop
    indptr[-1] = n
    return n


@kernel
def find_fault(indptr, indices, counts, n_words):
    """Return (what, row, position) of the first pair that breaks a rule of `Corpus`."""
    if indptr[0] != 0 or indptr[-1] != len(indices):
        return OFFSETS, 0, 0
    for d in range(len(indptr) - 1):
        if indptr[d] > indptr[d + 1] or indptr[d + 1] > len(indices):
            return OFFSETS, d, 0
        for j in range(indptr[d], indptr[d + 1]):
            if indices[j] < 0 or indices[j] >= n_words:
                return RANGE, d, j
            if j > indptr[d] and indices[j] <= indices[j - 1]:
                return ORDER, d, j
            if not (counts[j] > 0.0 and counts[j] < np.inf):
                return COUNT, d, j
    return FINE, 0, 0


@kernel
def is_ascending(rows, last):
    """Whether `rows` never falls, nor below `last` at its start."""
    for row in rows:
        if row < last:
            return False
        last = row
    return True


@kernel
def count_rows(rows, sizes):
    """Add the pairs of each row to `sizes`: ``sizes += np.bincount(rows)``."""
    for row in rows:
        sizes[row] += 1


@kernel
def scatter(rows, columns, values, cursor, indices, counts):
    """Put pairs to where their row's cursor stands, and move it: a stable counting sort."""
    for i in range(len(rows)):
        at = cursor[rows[i]]
        indices[at] = columns[i]
        counts[at] = values[i]
        cursor[rows[i]] = at + 1


@kernel
def expand(indptr, lo, out):
    """Write the row of each of the pairs lo, lo + 1, ... into `out`."""
    row = np.searchsorted(indptr, lo, side="right") - 1
    for i in range(len(out)):
        while indptr[row + 1] <= lo + i:
            row += 1
        out[i] = row


def offsets(sizes: np.ndarray) -> np.ndarray:
    """Return int64 row offsets (len(sizes) + 1,) for rows of the given sizes."""
    indptr = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return indptr


def tidy(
    indptr: np.ndarray, indices: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort rows, sum duplicates, drop zeros; works in place and cuts the arrays it was given."""
    sort_rows(indptr, indices, counts)
    n = merge_rows(indptr, indices, counts)
    if n < len(indices):
        # Shrinks the allocation itself; a slice would keep all of it alive, a copy double it.
        indices.resize(n, refcheck=False)
        counts.resize(n, refcheck=False)
    return indptr, indices, counts


@kernel
def count_tokens(indptr, indices, counts, document_tokens, word_tokens):
    """Add the tokens of each document and of each word, float64."""
    for d in range(indptr.shape[0] - 1):
        total = 0.0
        for j in range(indptr[d], indptr[d + 1]):
            total += counts[j]
            word_tokens[indices[j]] += counts[j]
        document_tokens[d] = total
