"""digamma, its exponential, log and log-gamma as arithmetic that the compiler turns into vectors.

libm calls keep a loop scalar, so nothing here calls libm: every function is a fixed sequence of
adds, multiplies, at most three divisions and bit casts, without branches, and is inlined into
the loops that use it. The scalar functions work in float64 (for the bound) unless their name
ends in 32 (for the updates). Arguments are positive and finite; nothing is checked.

The recurrences pair the outermost factors: with t = x (x + 2m + 1) the product
(x + i)(x + 2m + 1 - i) is t + i (2m + 1 - i), so a sum of reciprocals needs few divisions.

Error bounds, tested against scipy over [1e-3, 1e12]:

===================  =====================================================
digamma              absolute 1e-13 + relative 1e-13
log_gamma            absolute 1e-12 + relative 1e-13
log                  relative 1e-14 (absolute 1e-15 near 1)
exp_negative         relative 1e-13, for x in [-700, 0]
exp_digamma_row      relative 1e-6 + 3e-7 (1 / x), of values above 1e-19 of the largest
===================  =====================================================
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from esvi_shm.compile import kernel


def _bitcast(source: types.Type, target: types.Type, llvm_target: ir.Type):
    @intrinsic
    def cast(typingctx, value):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], llvm_target)

        return target(source), codegen

    return cast


_bits_of_float32 = _bitcast(types.float32, types.int32, ir.IntType(32))
_float32_of_bits = _bitcast(types.int32, types.float32, ir.FloatType())
_bits_of_float64 = _bitcast(types.float64, types.int64, ir.IntType(64))
_float64_of_bits = _bitcast(types.int64, types.float64, ir.DoubleType())

_LN2 = float(np.log(2.0))
_HALF_LOG_2PI = float(0.5 * np.log(2.0 * np.pi))

# ------------------------------------------------------------------ float64, for the bound


@kernel(inline="always")
def log(x):
    """log x: x = 2**e m with m in [0.7, 1.42), log m = 2 atanh((m - 1) / (m + 1)) as a series."""
    bits = _bits_of_float64(x)
    # Adding the distance from sqrt(1/2) to 1 makes the exponent field count from sqrt(1/2).
    exponent = (bits + np.int64(0x00095F619980C433)) >> np.int64(52)
    e = np.float64(np.int32(exponent - np.int64(1023)))
    m = _float64_of_bits(bits - ((exponent - np.int64(1023)) << np.int64(52)))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = 1.0 / 21.0
    series = series * z + 1.0 / 19.0
    series = series * z + 1.0 / 17.0
    series = series * z + 1.0 / 15.0
    series = series * z + 1.0 / 13.0
    series = series * z + 1.0 / 11.0
    series = series * z + 1.0 / 9.0
    series = series * z + 1.0 / 7.0
    series = series * z + 1.0 / 5.0
    series = series * z + 1.0 / 3.0
    return e * _LN2 + 2.0 * (s + s * z * series)


@kernel(inline="always")
def exp_negative(x):
    """exp(x) for x <= 0, exactly 0 below -700: 2**n exp(r) with |r| <= log(2) / 2, by series."""
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r * r + r + 1.0
    power = _float64_of_bits((np.int64(np.int32(n)) + np.int64(1023)) << np.int64(52))
    return p * power if x >= -700.0 else 0.0


@kernel(inline="always")
def digamma(x):
    """digamma(x) = digamma(x + 8) - sum of 1 / (x + i), i < 8, and the asymptotic series."""
    t = x * (x + 7.0)
    steps = (2.0 * x + 7.0) * (
        (2.0 * t + 6.0) / (t * (t + 6.0)) + (2.0 * t + 22.0) / ((t + 10.0) * (t + 12.0))
    )
    y = x + 8.0
    r = 1.0 / y
    z = r * r
    series = 1.0 / 12.0
    series = series * z - 691.0 / 32760.0
    series = series * z + 1.0 / 132.0
    series = series * z - 1.0 / 240.0
    series = series * z + 1.0 / 252.0
    series = series * z - 1.0 / 120.0
    series = series * z + 1.0 / 12.0
    return log(y) - 0.5 * r - z * series - steps


@kernel(inline="always")
def log_gamma(x):
    """log Gamma(x) = log Gamma(x + 8) - log(x (x + 1) ... (x + 7)), by Stirling's series."""
    t = x * (x + 7.0)
    y = x + 8.0
    r = 1.0 / y
    z = r * r
    series = 1.0 / 156.0
    series = series * z - 691.0 / 360360.0
    series = series * z + 1.0 / 1188.0
    series = series * z - 1.0 / 1680.0
    series = series * z + 1.0 / 1260.0
    series = series * z - 1.0 / 360.0
    series = series * z + 1.0 / 12.0
    stirling = (y - 0.5) * log(y) - y + _HALF_LOG_2PI + r * series
    # Two products, so that x up to 1e70 does not overflow.
    return stirling - log(t * (t + 6.0)) - log((t + 10.0) * (t + 12.0))


# ------------------------------------------------------------------ float32, for the updates


@kernel(inline="always")
def _exp32(x):
    """exp(x) for x <= 0; exactly 0 below -44, so that no product of two factors is subnormal."""
    n = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - n * np.float32(0.693359375)
    r = r + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    power = _float32_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))
    return p * power if x > np.float32(-44.0) else np.float32(0.0)


@kernel(inline="always")
def _inverses32(x):
    """1 / x and 1 / (1 + x).

    Not both from one division by x (1 + x): where 1 / x is a million, the difference of two
    rows' values must not depend on how a compiler fuses the products.
    """
    one = np.float32(1.0)
    return one / x, one / (one + x)


@kernel(inline="always")
def _shifted32(x, r):
    """exp(digamma(1 + x)), r = 1 / (1 + x), as (1 + x) times a polynomial in r.

    E(y) / y = 1 - 1 / (2 y) + 1 / (24 y**2) + ... is smooth in 1 / y; the coefficients are a
    least-squares fit over (0, 1] at Chebyshev nodes, relative error 1e-7.
    """
    h = np.float32(0.002012229332308678)
    h = h * r - np.float32(0.007835413419841574)
    h = h * r + np.float32(0.004799087735616089)
    h = h * r + np.float32(0.020844015979933357)
    h = h * r + np.float32(0.041637016535128274)
    h = h * r - np.float32(0.49999739990988407)
    return (np.float32(1.0) + x) * (h * r + np.float32(1.0))


@kernel
def exp_digamma_row(x, out):
    """exp(digamma(x)) over its largest value.

    Equivalent to ``e = psi(x); out[:K] = exp(e - e.max())`` with values below
    1e-19 of the largest set to 0 (so the updates meet no subnormal number). Relative values
    are all that the update needs, and they cannot underflow as a row the way exp(digamma)
    itself does (exp(digamma(0.01)) is 2e-44).

    Parameters
    ----------
    x : float32 array, shape (K,)
        Positive.
    out : float32 array, shape (K',), K' >= K
        Its first K places are written.
    """
    n = x.shape[0]
    # Positive floats are ordered as their bits are, and an integer maximum vectorises.
    bits = np.int32(0)
    for k in range(n):
        bits = max(bits, _bits_of_float32(x[k]))
    largest = _float32_of_bits(bits)
    top, r = _inverses32(largest)
    scale = np.float32(1.0) / _shifted32(largest, r)
    for k in range(n):
        # digamma(x) = digamma(1 + x) - 1 / x
        inverse, r = _inverses32(x[k])
        out[k] = _exp32(top - inverse) * (_shifted32(x[k], r) * scale)
