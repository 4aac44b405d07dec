"""The loops of merging and splitting components; see `moves`."""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.special import exp_negative

#: Responsibilities below this take no part in entropies.
_LEAST = 1e-30


@kernel(inline="always")
def _share(score):
    """The share of a point that goes to the new half, by how much better it scores there."""
    e = exp_negative(-abs(np.float64(score)))
    return (1.0 if score >= 0 else e) / (1.0 + e)


@kernel
def lean(t, best, weights, rows, whole, share, sums, mixing):
    """How much of each point would go to the new half of its best component.

    Parameters
    ----------
    t : float array, shape (n, 1 + T)
    best : int array, shape (n,)
    weights : float32 array, shape (n,)
        Its responsibility.
    rows : float array, shape (K, 1 + T)
        By how much the new half scores better.
    whole : bool
        A point goes as a whole.
    share : float64 array, shape (n,); written
    sums : float64 array, shape (K, 1 + T)
        Adds up what the new halves get.
    mixing : float64 array, shape (K,)
        Adds up by how much that raises the entropy of the responsibilities.
    """
    n, width = t.shape
    for i in range(n):
        k, x = best[i], t[i]
        theta, into = rows[k], sums[k]
        score = theta[0]
        for j in range(1, width):
            score += x[j] * theta[j]
        share[i] = _weigh(score, whole, weights[i], mixing, k)
        gets = share[i] * weights[i]
        if gets > 0.0:
            for j in range(width):
                into[j] += gets * x[j]


@kernel
def lean_sparse(ptr, index, value, lo, best, weights, theta, whole, share, sums, mixing):
    """The same of sparse t(X) from point `lo` on; theta and sums have shape (1 + T, K)."""
    for i in range(len(best)):
        k = best[i]
        score = theta[0, k]
        for at in range(ptr[lo + i], ptr[lo + i + 1]):
            score += value[at] * theta[1 + index[at], k]
        share[i] = _weigh(score, whole, weights[i], mixing, k)
        gets = share[i] * weights[i]
        if gets > 0.0:
            sums[0, k] += gets
            for at in range(ptr[lo + i], ptr[lo + i + 1]):
                sums[1 + index[at], k] += gets * value[at]


@kernel
def _weigh(score, whole, weight, mixing, k):
    """The share that goes to the new half; what that adds to the entropy is noted."""
    if whole:
        return 1.0 if score > 0 else 0.0
    share = _share(score)
    for part in (share, 1.0 - share):
        if part > _LEAST:
            mixing[k] -= weight * part * np.log(part)
    return share


@kernel
def mix(z, partner, mixing):
    """mixing[l] += what the entropy of z changes by if l is merged into partner[l] (-1: none)."""
    for i in range(z.shape[0]):
        for k in range(z.shape[1]):
            if z[i, k] > _LEAST and partner[k] >= 0:
                mixing[k] += _merged(z[i, k], z[i, partner[k]])


@kernel
def mix_kept(ids, z, partner, mixing):
    """The same of responsibilities that are kept by number."""
    C = ids.shape[1]
    for i in range(z.shape[0]):
        for c in range(C):
            other = partner[ids[i, c]]
            if z[i, c] > _LEAST and other >= 0:
                for d in range(C):
                    if ids[i, d] == other:
                        mixing[ids[i, c]] += _merged(z[i, c], z[i, d])


@kernel
def _merged(a, b):
    """The entropy of a + b less that of a and b, each -x log x."""
    if b <= _LEAST:
        return 0.0
    x, y = np.float64(a), np.float64(b)
    return x * np.log(x) + y * np.log(y) - (x + y) * np.log(x + y)


@kernel
def merge(z, into):
    """Responsibilities of merged components go to the ones they are merged into (-1: not)."""
    for i in range(z.shape[0]):
        for k in range(z.shape[1]):
            if into[k] >= 0 and z[i, k] != 0.0:
                z[i, into[k]] += z[i, k]
                z[i, k] = 0.0


@kernel
def merge_kept(ids, z, into):
    """The same of responsibilities that are kept by number."""
    C = ids.shape[1]
    for i in range(z.shape[0]):
        for c in range(C):
            other = into[ids[i, c]]
            if other < 0:
                continue
            at = -1
            for d in range(C):
                if ids[i, d] == other:
                    at = d
            if at < 0:
                ids[i, c] = other
            else:
                z[i, at] += z[i, c]
                z[i, c] = 0.0


def try_sparse(dtype):
    """Call the kernel of sparse points once, so that it is compiled."""
    ptr, index, value = np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.float32)
    best, weights, theta = np.zeros(1, np.int64), np.ones(1, np.float32), np.zeros((2, 1), dtype)
    data = ptr, index, value, 0, best, weights, theta, False
    lean_sparse(*data, np.zeros(1), np.zeros((2, 1)), np.zeros(1))
