"""The loops of mixtures that are no dense products: responsibilities, sparse products, seqlocks."""

import numpy as np

from esvi_shm.compile import FASTMATH, kernel
from esvi_shm.shared.atomics import fence, load_acquire, store_release
from esvi_shm.shared.ring import LINE_WORDS
from esvi_shm.special import digamma, exp2_32, exp_negative, log_gamma

#: Mass of a point on the components at hand below which it is left alone (strict form).
LEAST_MASS = 1e-12


#: Where one of so many components gains or loses by a point, they are gone through by number.
_SPARSE = 8
#: Shares of a point below 2**-CUT are taken to be 0, so that no product meets subnormal numbers.
CUT = 100.0
_LOG2_E = np.float32(1.0 / np.log(2.0))
#: Scores are finite, and only then is a search for the largest of a row vector code.
_FINITE = FASTMATH | {"nnan"}


@kernel(fastmath=_FINITE)
def largest_of(row, lo, hi):
    """``row[lo:hi].max()`` of finite numbers."""
    largest = row[lo]
    for j in range(lo + 1, hi):
        largest = max(largest, row[j])
    return largest


@kernel
def exp_from(row, largest):
    """``row = exp(row - largest)`` in place, in float32; the sum."""
    total = np.float32(0.0)
    for j in range(row.shape[0]):
        y = np.float32(row[j] - largest) * _LOG2_E
        # Computed in any case: a branch would keep the loop scalar.
        e = exp2_32(max(y, np.float32(-CUT)))
        e = e if y > np.float32(-CUT) else np.float32(0.0)
        row[j] = e
        total += e
    return total


@kernel
def respond(u, z, columns, hard):
    """Responsibilities of some points: softmax of each row of scores, times the mass it had.

    Equivalent to ``new = mass * softmax(u); u = new - old; old = new`` (Lemma 1), with the mass
    ``z[:, columns].sum(1)``; where `columns` is empty, all components with mass 1. `hard`: all of
    it to the best one, at a start.

    Parameters
    ----------
    u : float array, shape (n, k); afterwards what has changed
    z : float32 array, shape (n, K)
    columns : int64 array, shape (k,) or (0,)
    hard : bool
    """
    n, k = u.shape
    some = len(columns) > 0
    for i in range(n):
        row, held = u[i], z[i]
        mass = 1.0
        if some:
            mass = 0.0
            for j in range(k):
                mass += held[columns[j]]
            if mass < LEAST_MASS:
                for j in range(k):
                    row[j] = 0.0
                continue
        largest = largest_of(row, 0, k)
        if hard:
            only = False
            for j in range(k):
                is_best = row[j] == largest and not only
                only = only or is_best
                row[j] = 1.0 if is_best else 0.0
            scale = np.float32(mass)
        else:
            scale = np.float32(mass / exp_from(row, largest))
        if some:
            for j in range(k):
                new = np.float32(row[j] * scale)
                row[j] = new - held[columns[j]]
                held[columns[j]] = new
        else:
            for j in range(k):
                new = np.float32(row[j] * scale)
                row[j] = new - held[j]
                held[j] = new


@kernel
def sum_bounds(u, z):
    """Over some points: sums of log-sum-exp of u, of H(z), and of KL(z || softmax(u)).

    Each in float64 from the scores relative to the row's log-sum-exp: the scores themselves are
    large, and z sums to 1 only to 1e-7.
    """
    n, k = u.shape
    total, entropy, gap = 0.0, 0.0, 0.0
    for i in range(n):
        largest = largest_of(u[i], 0, k)
        mass, held = 0.0, 0.0
        for j in range(k):
            mass += exp_negative(np.float64(u[i, j] - largest))
            held += z[i, j]
        normaliser = np.log(mass)
        total += largest + normaliser
        for j in range(k):
            z_ij = z[i, j] / held
            if z_ij > 1e-37:
                log_z = np.log(z_ij)
                entropy -= z_ij * log_z
                gap += z_ij * (log_z - (np.float64(u[i, j] - largest) - normaliser))
    return total, entropy, gap


@kernel
def sparse_scores(ptr, index, value, lo, hi, theta, constant, u):
    """u = t(X)[lo:hi] @ theta + constant, of sparse t(X); theta float, shape (T, k)."""
    k = theta.shape[1]
    for i in range(lo, hi):
        row = u[i - lo]
        for j in range(k):
            row[j] = constant[j]
        for at in range(ptr[i], ptr[i + 1]):
            x, features = value[at], theta[index[at]]
            for j in range(k):
                row[j] += x * features[j]


@kernel(allocates=True)
def sparse_statistics(ptr, index, value, lo, hi, change, pending, columns):
    """pending[1:, columns] += t(X)[lo:hi].T @ change, of sparse t(X); no columns: all."""
    k, some = change.shape[1], len(columns) > 0
    moved = np.empty(k, np.int64)
    for i in range(lo, hi):
        row, n = change[i - lo], 0
        for j in range(k):
            moved[n] = j
            n += row[j] != 0.0
        if n == 0:
            continue
        for at in range(ptr[i], ptr[i + 1]):
            x, sums = np.float64(value[at]), pending[1 + index[at]]
            if _SPARSE * n < k:
                for a in range(n):
                    j = moved[a]
                    sums[columns[j] if some else j] += x * row[j]
            elif some:
                for j in range(k):
                    sums[columns[j]] += x * row[j]
            else:
                for j in range(k):
                    sums[j] += x * row[j]


@kernel
def add_products(products, pending, adding, worker):
    """pending += products, float32 or float64, under a sequence lock as that of `publish`."""
    word = worker * LINE_WORDS
    version = adding[word]
    store_release(adding, word, version + 1)
    fence()
    for t in range(pending.shape[0]):
        sums, more = pending[t], products[t]
        for j in range(len(sums)):
            sums[j] += more[j]
    store_release(adding, word, version + 2)


@kernel
def look(pendings, adding, n_workers, worker, columns, own, part, found, tries):
    """found = own + what the other workers have pending in these columns; False: one was adding.

    Each one's whole, as `copy_block` reads: half of an addition would have counts of points whose
    sums are still to come. Nobody but the columns' holder, who alone may call this, takes pending
    statistics out.

    Parameters
    ----------
    pendings : float64 array, shape (P or more, 1 + T, K)
    adding : int64 array, shape (P * LINE_WORDS,)
    n_workers, worker : int
        P, and who asks.
    columns : int64 array, shape (k,)
    own, part, found : float64 arrays, shape (1 + T, k)
    tries : int
    """
    for i in range(own.shape[0]):
        for j in range(own.shape[1]):
            found[i, j] = own[i, j]
    for q in range(n_workers):
        if q == worker:
            continue
        is_whole = False
        for _ in range(tries):
            before = load_acquire(adding, q * LINE_WORDS)
            if before % 2 == 1:
                continue
            _take(pendings[q], columns, part)
            fence()
            is_whole = load_acquire(adding, q * LINE_WORDS) == before
            if is_whole:
                break
        if not is_whole:
            return False
        for t in range(found.shape[0]):
            sums, more = found[t], part[t]
            for j in range(len(sums)):
                sums[j] += more[j]
    return True


@kernel
def _take(array, columns, into):
    """into = array[:, columns]."""
    lo, n = columns[0], len(columns)
    together = columns[-1] - lo + 1 == n
    for t in range(array.shape[0]):
        to = into[t]
        if together:
            # A slice: what is counted from its beginning needs no look at the sign, and is
            # vector code.
            part = array[t, lo : lo + n]
            for j in range(n):
                to[j] = part[j]
        else:
            row = array[t]
            for j in range(n):
                to[j] = row[columns[j]]


@kernel
def merge(pending, columns, own):
    """own += pending[:, columns], which becomes 0; `own` has a column for each of these."""
    lo, n = columns[0], len(columns)
    together = columns[-1] - lo + 1 == n
    for t in range(pending.shape[0]):
        sums = own[t]
        if together:
            part = pending[t, lo : lo + n]
            for j in range(n):
                sums[j] += part[j]
                part[j] = 0.0
        else:
            row = pending[t]
            for j in range(n):
                sums[j] += row[columns[j]]
                row[columns[j]] = 0.0


@kernel
def publish(versions, block, columns, constant, fresh, theta, known):
    """Write the columns of a block into theta, and into `known`; the block's owner alone does.

    A sequence lock: the version is odd while the columns change. `store_release` of the odd one and
    a fence keep the columns' stores behind it; the even one is released after them. `copy_block`
    pairs with both.
    """
    word = block * LINE_WORDS
    version = versions[word]
    store_release(versions, word, version + 1)
    fence()
    _put(constant, fresh, columns, theta)
    store_release(versions, word, version + 2)
    _put(constant, fresh, columns, known)


@kernel
def _put(constant, fresh, columns, into):
    """into[0, columns], into[1:, columns] = constant, fresh."""
    lo, n = columns[0], len(columns)
    together = columns[-1] - lo + 1 == n
    for t in range(into.shape[0]):
        source = constant if t == 0 else fresh[t - 1]
        if together:
            part = into[t, lo : lo + n]
            for j in range(n):
                part[j] = source[j]
        else:
            row = into[t]
            for j in range(n):
                row[columns[j]] = source[j]


@kernel
def copy_block(versions, block, columns, theta, buffer, known, tries):
    """Copy the columns of a block whole into `known`; the version that was copied, or -1.

    Reads the version (`load_acquire`), the columns, and behind a fence the version again: only if
    it is the same, and even, were the columns of one piece, and go from `buffer` into `known`. It
    does not wait for an owner that was interrupted while it wrote: after some tries the copy stays
    the old one.
    """
    word = block * LINE_WORDS
    for _ in range(tries):
        before = load_acquire(versions, word)
        if before % 2 == 1:
            continue
        _take(theta, columns, buffer)
        fence()
        if load_acquire(versions, word) == before:
            _put(buffer[0], buffer[1:], columns, known)
            return before
    return np.int64(-1)


@kernel
def digamma_into(x, out):
    """digamma of a float64 vector."""
    for i in range(x.shape[0]):
        out[i] = digamma(x[i])


@kernel
def log_gamma_into(x, out):
    """log Gamma of a float64 vector."""
    for i in range(x.shape[0]):
        out[i] = log_gamma(x[i])


def try_sparse(dtype):
    """Call the kernels of sparse points once, so that they are compiled."""
    ptr, index, value = np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.float32)
    theta, u, pending = np.zeros((2, 1), dtype), np.zeros((1, 1), dtype), np.zeros((2, 1))
    sparse_scores(ptr, index, value, 0, 1, theta[1:], theta[0], u)
    sparse_statistics(ptr, index, value, 0, 1, u, pending, np.empty(0, np.int64))


def try_look():
    """Call the kernel of several workers once, so that it is compiled: a toy fit has one."""
    own, part, found = np.zeros((3, 2, 1))
    adding = np.zeros(2 * LINE_WORDS, np.int64)
    look(np.zeros((2, 2, 1)), adding, 2, 0, np.zeros(1, np.int64), own, part, found, 1)
