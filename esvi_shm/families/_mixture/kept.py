"""Responsibilities of which each point keeps the C largest: scores, choice, what it changes.

In a pass over all components the scores of a tile of points are one product, as where all are kept.
In one over those *near*, a point is scored only against those that it keeps, the neighbours of its
two best, and a few drawn at random: its cost does not depend on K. Of all z with at most C
components among those scored the best are those of the C largest scores, divided by their sum; the
z it had are among these, so the bound rises as it does with all.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.counter import uniform
from esvi_shm.families._mixture.kernels import exp_from, largest_of

#: A point whose responsibilities all change by less is left as it was: the bound then neither rises
#: nor falls by it, and its statistics stay true.
LEAST_CHANGE = 1e-6


@kernel
def keep_largest(u, ids, z, hard, found):
    """Of each row of scores the C largest, as responsibilities.

    Those kept so far set the mark that others must pass: few do, once a fit has settled.

    Parameters
    ----------
    u : float array, shape (n, K)
    ids : int32 array, shape (n, C)
    z : float32 array, shape (n, C); written
    hard : bool
        All of it to the best one, whatever the others.
    found : int32 array, shape (K + 1,); used
    """
    K, C = u.shape[1], ids.shape[1]
    for i in range(u.shape[0]):
        row = u[i]
        if hard:
            least = largest_of(row, 0, K)
        else:
            least = row[ids[i, 0]]
            for c in range(1, C):
                least = min(least, row[ids[i, c]])
        n = _find_above(row, least, found)
        if n < C and not hard:  # one is held twice
            n = _find_above(row, -np.inf, found)
        if hard:
            best = found[0]
            for c in range(C):
                ids[i, c] = c if c != best else 0
                z[i, c] = 0.0
            ids[i, 0], z[i, 0] = best, 1.0
        else:
            _choose(row, found[:n], ids[i], z[i])


@kernel
def _find_above(row, least, found):
    """The places of numbers that are at least so large; how many."""
    n = 0
    for j in range(len(row)):
        # No branch: which ones they are cannot be foretold.
        found[n] = j
        n += row[j] >= least
    return n


@kernel
def keep_near(t, rows, near, seed, pass_, first, n_drawn, ids, z, marks, found, row):
    """The same, of the scores of those near each point.

    Parameters
    ----------
    t : float array, shape (n, 1 + T)
        1 and t(x).
    rows : float array, shape (K, 1 + T)
        The constant and E[theta] of each component.
    near : int32 array, shape (K, M)
    seed, pass_, first : int
        Those drawn are a function of these; `first` is the number of the first point.
    n_drawn : int
    ids, z : as for `keep_largest`
    marks : int64 array, shape (K + 1,)
        Its last number counts the points ever seen.
    found : int32 array, shape (K + 1,); used
    row : float array, shape (K,); used
    """
    n_rows, width = t.shape
    for i in range(n_rows):
        n = _find(near, seed, pass_, first + i, n_drawn, ids[i], z[i], marks, found)
        x = t[i]
        for c in range(n):
            theta = rows[found[c]]
            u = theta[0]  # x[0] is 1
            for j in range(1, width):
                u += x[j] * theta[j]
            row[found[c]] = u
        _choose(row, found[:n], ids[i], z[i])


@kernel
def keep_near_sparse(
    ptr, index, value, lo, theta, near, seed, pass_, first, n_drawn, ids, z, marks, found, row
):
    """The same of sparse t(X), point `lo` and those after it; theta has shape (1 + T, K)."""
    for i in range(ids.shape[0]):
        n = _find(near, seed, pass_, first + i, n_drawn, ids[i], z[i], marks, found)
        for c in range(n):
            row[found[c]] = theta[0, found[c]]
        for at in range(ptr[lo + i], ptr[lo + i + 1]):
            x, features = value[at], theta[1 + index[at]]
            for c in range(n):
                row[found[c]] += x * features[found[c]]
        _choose(row, found[:n], ids[i], z[i])


@kernel
def _find(near, seed, pass_, point, n_drawn, ids, z, marks, found):
    """Those to score for a point, each once; how many."""
    K, C = near.shape[0], len(ids)
    mark = marks[K] = marks[K] + 1
    n, best, second = 0, 0, 0
    for c in range(C):
        n = _add(ids[c], mark, marks, found, n)
        if z[c] > z[best]:
            best, second = c, best
        elif c != best and (second == best or z[c] > z[second]):
            second = c
    for c in (best, second):
        for m in range(near.shape[1]):
            n = _add(near[ids[c], m], mark, marks, found, n)
    for d in range(n_drawn):
        drawn = np.int64(uniform(seed, pass_, point * n_drawn + d) * K)
        n = _add(drawn, mark, marks, found, n)
    # Those kept may be fewer than C where one is held twice; the next ones make up for it.
    k = 0
    while n < C:
        n = _add(k, mark, marks, found, n)
        k += 1
    return n


@kernel(inline="always")
def _add(k, mark, marks, found, n):
    """Add a component to those found, if it is not there; how many there are."""
    if marks[k] != mark:
        marks[k] = mark
        found[n] = k
        n += 1
    return n


@kernel
def _choose(row, found, ids, z):
    """Of those found the C of the largest scores, as responsibilities."""
    n, C = len(found), len(ids)
    for c in range(C):
        ids[c] = found[c]
    if n > C:  # a heap, of the least score on top
        for c in range(C // 2 - 1, -1, -1):
            _sink(row, ids, c)
        for at in range(C, n):
            if row[found[at]] > row[ids[0]]:
                ids[0] = found[at]
                _sink(row, ids, 0)
    largest = row[ids[0]]
    for c in range(1, C):
        largest = max(largest, row[ids[c]])
    for c in range(C):
        z[c] = np.float32(row[ids[c]] - largest)
    total = exp_from(z, np.float32(0.0))
    for c in range(C):
        z[c] /= total


@kernel(inline="always")
def _sink(row, heap, at):
    """Move an entry of a heap, ordered by `row`, down to its place."""
    moved, n = heap[at], len(heap)
    score = row[moved]
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and row[heap[child + 1]] < row[heap[child]]:
            child += 1
        if row[heap[child]] >= score:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moved


@kernel
def add_changes(t, ids, z, old_ids, old_z, change, sums):
    """sums += (z_new - z_old)' t; points that hardly change get their old z again.

    Parameters
    ----------
    t : float array, shape (n, 1 + T)
        1 and t(x).
    ids, z, old_ids, old_z : arrays, shape (n, C)
    change : float32 array, shape (K,)
        Zeros, and zeros afterwards.
    sums : float64 array, shape (K, 1 + T)
    """
    n_rows, width = t.shape
    for i in range(n_rows):
        if _differ(ids[i], z[i], old_ids[i], old_z[i], change):
            x = t[i]
            for which in (old_ids[i], ids[i]):
                for c in range(len(which)):
                    k = which[c]
                    moved = np.float64(change[k])
                    if moved != 0.0:
                        change[k] = 0.0
                        into = sums[k]
                        for j in range(width):
                            into[j] += moved * x[j]


@kernel
def add_sparse_changes(ptr, index, value, lo, ids, z, old_ids, old_z, change, sums):
    """The same of sparse t(X), point `lo` and those after it; sums have shape (1 + T, K)."""
    for i in range(ids.shape[0]):
        if _differ(ids[i], z[i], old_ids[i], old_z[i], change):
            for which in (old_ids[i], ids[i]):
                for c in range(len(which)):
                    k = which[c]
                    moved = np.float64(change[k])
                    if moved != 0.0:
                        change[k] = 0.0
                        sums[0, k] += moved
                        for at in range(ptr[lo + i], ptr[lo + i + 1]):
                            sums[1 + index[at], k] += moved * value[at]


@kernel
def _differ(ids, z, old_ids, old_z, change):
    """Whether z has changed enough to count: by how much is then in `change`; else it is undone."""
    C = len(ids)
    for c in range(C):
        change[old_ids[c]] -= old_z[c]
    for c in range(C):
        change[ids[c]] += z[c]
    largest = np.float32(0.0)
    for c in range(C):
        largest = max(largest, abs(change[ids[c]]), abs(change[old_ids[c]]))
    if largest >= LEAST_CHANGE:
        return True
    for c in range(C):
        change[ids[c]] = change[old_ids[c]] = 0.0
    for c in range(C):
        ids[c], z[c] = old_ids[c], old_z[c]
    return False


@kernel(allocates=True)
def sum_kept_bounds(u, ids, z):
    """`kernels.sum_bounds` of what is kept; u is used up."""
    total, entropy, gap = 0.0, 0.0, 0.0
    C = ids.shape[1]
    scores = np.empty(C, np.float64)
    for i in range(u.shape[0]):
        row = u[i]
        largest = largest_of(row, 0, len(row))
        held = 0.0
        for c in range(C):
            scores[c] = row[ids[i, c]] - largest
            held += z[i, c]
        normaliser = np.log(np.float64(exp_from(row, largest)))
        total += largest + normaliser
        for c in range(C):
            z_ic = z[i, c] / held
            if z_ic > 1e-37:
                log_z = np.log(z_ic)
                entropy -= z_ic * log_z
                gap += z_ic * (log_z - (scores[c] - normaliser))
    return total, entropy, gap


def try_sparse(dtype):
    """Call the kernels of sparse points once, so that they are compiled."""
    ptr, index, value = np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.float32)
    near, ids, z = np.zeros((1, 0), np.int32), np.zeros((1, 1), np.int32), np.ones((1, 1), "f4")
    used = np.zeros(2, np.int64), np.zeros(2, np.int32), np.zeros(1, dtype)
    data = ptr, index, value, 0
    keep_near_sparse(*data, np.zeros((2, 1), dtype), near, 0, 0, 0, 0, ids, z, *used)
    change = np.zeros(1, np.float32)
    add_sparse_changes(*data, ids, z, ids.copy(), z.copy(), change, np.zeros((2, 1)))
