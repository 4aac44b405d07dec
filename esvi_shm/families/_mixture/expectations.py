"""E[theta] of normal distributions, for many components at once.

Statistics have a row for each feature and a column for each component, and so the innermost loops
run over components, side by side: that is vector code whatever the number of features. With numpy's
functions, array by array, these few formulas took as long as the products of the points.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.special import digamma, log, log_gamma

#: Components that are worked on at a time with full covariance: their matrices stay in the cache.
LANES = 32
#: Variances of so many features are multiplied before a logarithm is taken: none is outside 1e-30
#: to 1e40.
_FACTORS = 4
_LOG_2, _LOG_2PI = np.log(2.0), np.log(2.0 * np.pi)


@kernel(allocates=True)
def expect_diagonal(n, s, m0, beta0, a0, b0, log_prior, theta, constant, gain):
    """Of Normal-Gammas what `kind.Expected` holds.

    Equivalent to::

        m = (beta0 * m0 + s[:D]) / (beta0 + n)
        b = maximum(b0 + (s[D:] + beta0 * m0**2 - (beta0 + n) * m**2) / 2, b0)
        p = (a0 + n / 2) / b
        theta[:] = p * m, -p / 2
        constant[:] = -E[g], of m, p, log(b).sum(0), digamma(a0 + n / 2)

    Parameters
    ----------
    n : float64 array, shape (k,)
    s : float64 array, shape (2 D, k)
    m0, b0 : float64 arrays, shape (D,)
    beta0, a0 : float
    log_prior : float
        log of the prior's normaliser, as of a posterior in `gain`, but for what cancels.
    theta : float64 array, shape (2 D, k); written
    constant, gain : float64 arrays, shape (k,); written
    """
    D, k = len(m0), len(n)
    beta, a, share, product = np.empty(k), np.empty(k), np.empty(k), np.ones(k)
    log_b, squares = np.zeros(k), np.zeros(k)
    for c in range(k):
        beta[c] = beta0 + n[c]
        share[c] = 1.0 / beta[c]
        a[c] = a0 + 0.5 * n[c]
    for d in range(D):
        sums, square_sums, located, precision = s[d], s[D + d], theta[d], theta[D + d]
        shift, square, least = beta0 * m0[d], beta0 * m0[d] * m0[d], b0[d]
        for c in range(k):
            m = (shift + sums[c]) * share[c]
            b = least + 0.5 * (square_sums[c] + square - beta[c] * m * m)
            # What is added to b0 is a sum of squares, whatever rounding says.
            b = max(b, least)
            p = a[c] / b
            located[c] = p * m
            precision[c] = -0.5 * p
            squares[c] += p * m * m
            product[c] *= b
        if d % _FACTORS == _FACTORS - 1 or d == D - 1:
            for c in range(k):
                log_b[c] += log(product[c])
                product[c] = 1.0
    for c in range(k):
        log_precision = D * digamma(a[c]) - log_b[c]
        constant[c] = 0.5 * (log_precision - D * (share[c] + _LOG_2PI) - squares[c])
        log_z = D * log_gamma(a[c]) - a[c] * log_b[c] - 0.5 * D * log(beta[c])
        gain[c] = log_z - log_prior - 0.5 * D * _LOG_2PI * n[c]


@kernel(inline="always")
def _at(i, j, D):
    """The place of entry i <= j among those on and above the diagonal, row by row."""
    return i * D - (i * (i - 1)) // 2 + j - i


@kernel(allocates=True)
def expect_full(n, s, m0, beta0, nu0, base, least, log_prior, theta, constant, gain):
    """Of Normal-Wisharts what `kind.Expected` holds.

    A = base + S - beta m m' is the inverse of W, R'R its Cholesky factors, X = R^-1:
    E[Lambda] = nu X X'. All is done for `LANES` components side by side, entry by entry.

    Parameters
    ----------
    n : float64 array, shape (k,)
    s : float64 array, shape (T, k)
        Sums of x, and of x_i x_j for i <= j.
    m0 : float64 array, shape (D,)
    beta0, nu0 : float
    base : float64 array, shape (T - D,)
        The prior's scale + beta0 m0 m0', on and above the diagonal.
    least : float
        The scale's least eigenvalue: as S is a sum of squares about m, no pivot is less.
    log_prior : float
        As for `expect_diagonal`.
    theta : float64 array, shape (T, k); written
        -E[Lambda_ij] / 2 on the diagonal; off it, where t(x) has each product once, twice that.
    constant, gain : float64 arrays, shape (k,); written
    """
    D, k = len(m0), len(n)
    a, m, inverse = np.empty((len(base), LANES)), np.empty((D, LANES)), np.empty(LANES)
    beta, nu, total = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    log_det, squares = np.empty(LANES), np.empty(LANES)
    for first in range(0, k, LANES):
        w = min(LANES, k - first)
        for c in range(w):
            beta[c], nu[c] = beta0 + n[first + c], nu0 + n[first + c]
        for d in range(D):
            for c in range(w):
                m[d, c] = (beta0 * m0[d] + s[d, first + c]) / beta[c]
        for i in range(D):
            for j in range(i, D):
                at = _at(i, j, D)
                for c in range(w):
                    a[at, c] = base[at] + s[D + at, first + c] - beta[c] * m[i, c] * m[j, c]
        _factorise(a, D, w, least, inverse, log_det)
        _invert(a, D, w, inverse)
        _square(a, D, w)
        for c in range(w):
            squares[c] = 0.0
        for i in range(D):
            for c in range(w):
                total[c] = 0.0
            for j in range(D):
                at = _at(min(i, j), max(i, j), D)
                for c in range(w):
                    total[c] += a[at, c] * m[j, c]
            for c in range(w):
                located = nu[c] * total[c]
                theta[i, first + c] = located
                squares[c] += located * m[i, c]
            for j in range(i, D):
                at, times = _at(i, j, D), -0.5 if i == j else -1.0
                for c in range(w):
                    theta[D + at, first + c] = times * nu[c] * a[at, c]
        for c in range(w):
            digammas, log_gammas = 0.0, 0.0
            for d in range(D):
                digammas += digamma(0.5 * (nu[c] - d))
                log_gammas += log_gamma(0.5 * (nu[c] - d))
            log_precision = digammas + D * _LOG_2 - log_det[c]
            known = log_precision - D / beta[c] - squares[c] - D * _LOG_2PI
            constant[first + c] = 0.5 * known
            log_z = 0.5 * nu[c] * (D * _LOG_2 - log_det[c]) + log_gammas - 0.5 * D * log(beta[c])
            gain[first + c] = log_z - log_prior - 0.5 * D * _LOG_2PI * n[first + c]


@kernel
def _factorise(a, D, w, least, inverse, log_det):
    """A to R, 1 / R_ii on the diagonal; log |A|."""
    for c in range(w):
        log_det[c] = 0.0
    for i in range(D):
        at = _at(i, i, D)
        for c in range(w):
            pivot = max(a[at, c], least)
            log_det[c] += log(pivot)
            inverse[c] = 1.0 / np.sqrt(pivot)
            a[at, c] = inverse[c]
        for j in range(i + 1, D):
            row = a[_at(i, j, D)]
            for c in range(w):
                row[c] *= inverse[c]
        for i2 in range(i + 1, D):
            left = a[_at(i, i2, D)]
            for j in range(i2, D):
                into, right = a[_at(i2, j, D)], a[_at(i, j, D)]
                for c in range(w):
                    into[c] -= left[c] * right[c]


@kernel
def _invert(a, D, w, total):
    """R, with 1 / R_ii on its diagonal, to X = R^-1: from the last row up, from the right."""
    for i in range(D - 1, -1, -1):
        diagonal = a[_at(i, i, D)]
        for j in range(D - 1, i, -1):
            for c in range(w):
                total[c] = 0.0
            for l in range(i + 1, j + 1):  # noqa: E741
                left, right = a[_at(i, l, D)], a[_at(l, j, D)]
                for c in range(w):
                    total[c] += left[c] * right[c]
            into = a[_at(i, j, D)]
            for c in range(w):
                into[c] = -diagonal[c] * total[c]


@kernel
def _square(a, D, w):
    """X to X X', on and above the diagonal."""
    for i in range(D):
        for j in range(i, D):
            into, last = a[_at(i, j, D)], a[_at(j, j, D)]
            for c in range(w):
                into[c] *= last[c]
            for l in range(j + 1, D):  # noqa: E741
                left, right = a[_at(i, l, D)], a[_at(j, l, D)]
                for c in range(w):
                    into[c] += left[c] * right[c]
