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
exp_digamma_values   relative 1e-6 + 3e-7 (1 / x), for x from `LEAST_VALUE` on
power_row            relative 1e-5
===================  =====================================================
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from esvi_shm.compile import kernel
from esvi_shm.vector import Emitter, data_of


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

LN2 = float(np.log(2.0))
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
    return e * LN2 + 2.0 * (s + s * z * series)


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

#: exp(t) is taken to be 0 from here on: 1e-19.
_CUT = 44.0
#: From here on exp(digamma(x)) is above 1e-20, and what is below is left alone by the updates.
LEAST_VALUE = 1.0 / _CUT
#: x times reach of the largest value of a row must pass, whatever the rounding.
_SLACK = 1.0 - 1e-6
#: 2**f = 1 + f (c0 + c1 f + ...) for f in [-1/2, 1/2], relative error 1e-7; a least-squares fit
#: at Chebyshev nodes.
_POWER_OF_TWO = (
    0.6931468559416908, 0.24022238002741148, 0.055508929524513306, 0.009671697938397505,
    0.0013218672481563436,
)  # fmt: skip
#: log2(1 + t) = t (c0 + c1 t + ...), t in [sqrt(1/2) - 1, sqrt(2) - 1], absolute error 2e-6; fitted
#: to the largest error being least.
_LOG2 = (
    1.4427134210330403, -0.7211322681750479, 0.47934966903744497, -0.3674837429146317,
    0.32214306910841467, -0.2066052684140128,
)  # fmt: skip
#: exp(digamma(y)) / y = 1 + r (c0 + c1 r + ...), r = 1 / y in (0, 1], relative error 1e-7. The
#: function is smooth, 1 - r / 2 + r**2 / 24 + ...; fitted in the same way.
_EXP_DIGAMMA = (
    -0.49999739990988407, 0.041637016535128274, 0.020844015979933357, 0.004799087735616089,
    -0.007835413419841574, 0.002012229332308678,
)  # fmt: skip


class _Row:
    """The arithmetic of `exp_digamma_row` on one vector."""

    def __init__(self, emit: Emitter) -> None:
        self.emit, self.builder = emit, emit.builder

    def inverses(self, x: Any) -> tuple[Any, Any]:
        """1 / x and 1 / (1 + x), from one division."""
        builder = self.builder
        y = builder.fadd(x, self.emit.constant(1.0))
        both = builder.fdiv(self.emit.constant(1.0), builder.fmul(x, y))
        return builder.fmul(y, both), builder.fmul(x, both)

    def exp_digamma(self, x: Any, inverse_largest: Any) -> Any:
        """exp(digamma(x) + 1 / largest): digamma(x) = digamma(1 + x) - 1 / x."""
        builder = self.builder
        inverse, r = self.inverses(x)
        # Rounded values, not fused: where 1 / x is a million, equal x must give exactly 0.
        power = self.exp(builder.fsub(inverse_largest, inverse))
        y = builder.fadd(x, self.emit.constant(1.0))
        return builder.fmul(builder.fmul(power, y), self._polynomial(_EXP_DIGAMMA, r))

    def value(self, x: Any) -> Any:
        """exp(digamma(x))."""
        builder = self.builder
        inverse, r = self.inverses(x)
        power = self.exp(builder.fneg(inverse))
        y = builder.fadd(x, self.emit.constant(1.0))
        return builder.fmul(builder.fmul(power, y), self._polynomial(_EXP_DIGAMMA, r))

    def exp(self, t: Any) -> Any:
        """exp(t) for t <= 0; of -60 below that."""
        emit, builder = self.emit, self.builder
        t = builder.fmul(emit.maximum(t, emit.constant(-60.0)), emit.constant(1.0 / LN2))
        n = emit.floor(builder.fadd(t, emit.constant(0.5)))
        power = emit.power_of_two(n)
        return builder.fmul(self._polynomial(_POWER_OF_TWO, builder.fsub(t, n)), power)

    def power(self, x: Any, less_one: Any) -> Any:
        """x to a power, which is given less 1: what it changes of x needs fewer digits."""
        emit, builder = self.emit, self.builder
        exponent, t = emit.split(emit.maximum(x, emit.constant(1.2e-38)))
        log2 = emit.multiply_add(t, emit.polynomial(_LOG2, t), exponent)
        y = builder.fmul(less_one, log2)
        n = emit.floor(builder.fadd(y, emit.constant(0.5)))
        change = self._polynomial(_POWER_OF_TWO, builder.fsub(y, n))
        return builder.fmul(builder.fmul(x, emit.power_of_two(n)), change)

    def _polynomial(self, coefficients: tuple[float, ...], x: Any) -> Any:
        """1 + c0 x + c1 x**2 + ..."""
        return self.emit.polynomial((1.0, *coefficients), x)

    def each(self, x_data: Any, n_topics: Any, write: Any) -> None:
        """Emit `write(load, k, result)` for the vectors of a row; None: zeros."""
        emit, builder = self.emit, self.builder
        largest = cgutils.alloca_once_value(builder, emit.constant(0.0))

        def find_largest(load, store, k):
            builder.store(emit.maximum(load(x_data), builder.load(largest)), largest)

        emit.each(n_topics, find_largest)
        largest = emit.broadcast(emit.horizontal_maximum(builder.load(largest)))
        inverse_largest, _ = self.inverses(largest)
        # 1 / x - 1 / largest reaches the cut where x reach = 1.
        reach = builder.fadd(inverse_largest, emit.constant(_CUT))
        scale = emit.inverse_power_of_two_above(builder.fadd(largest, emit.constant(1.0)))

        def convert(load, store, k):
            x = load(x_data)
            reached = builder.fmul(x, reach)
            # Most words are in few topics: many vectors hold nothing.
            with builder.if_else(emit.any_above(reached, emit.constant(_SLACK))) as (some, none):
                with some:
                    result = builder.fmul(self.exp_digamma(x, inverse_largest), scale)
                    above = builder.fcmp_ordered(">", reached, emit.constant(_SLACK))
                    write(load, k, builder.select(above, result, emit.constant(0.0)))
                with none:
                    write(load, k, None)

        emit.each(n_topics, convert)


@intrinsic
def _exp_digamma_row(typingctx, x, n_topics, out):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, out_data = (data_of(context, builder, signature.args[i], args[i]) for i in (0, 2))

        def write(load, k, result):
            emit.store(emit.constant(0.0) if result is None else result, out_data, k)

        _Row(emit).each(x_data, args[1], write)
        return context.get_dummy_value()

    return types.void(x, types.int64, out), codegen


@intrinsic
def _exp_digamma_word(typingctx, x, n_topics, factor, rows, at):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, factor_data, rows_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 2, 3)
        )

        def write(load, k, result):
            value = emit.constant(0.0)
            if result is not None:
                value = builder.fmul(result, load(factor_data))
            emit.store(value, rows_data, builder.add(args[4], k))

        _Row(emit).each(x_data, args[1], write)
        return context.get_dummy_value()

    return types.void(x, types.int64, factor, rows, types.int64), codegen


@intrinsic
def _exp_digamma_values(typingctx, x, n, out):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, out_data = (data_of(context, builder, signature.args[i], args[i]) for i in (0, 2))

        def body(load, store, k):
            store(_Row(emit).value(load(x_data)), out_data)

        emit.each(args[1], body)
        return context.get_dummy_value()

    return types.void(x, types.int64, out), codegen


@kernel
def exp_digamma_values(x, n, out):
    """exp(digamma(x)) of the first n of many values, which belong to different rows.

    Equivalent to ``out[:n] = exp(psi(x[:n]))``.

    Parameters
    ----------
    x : float32 array
        From `LEAST_VALUE` on.
    n : int
    out : float32 array
        Written.
    """
    _exp_digamma_values(x, n, out)


@kernel
def exp_digamma_row(x, out):
    """exp(digamma(x)), divided by a number near its largest value.

    Equivalent to ``largest = x.max(); n = 1 + floor(log2(1 + largest)); out[K:] = 0;
    out[:K] = exp(psi(x) + 1 / largest) / 2**n`` with values below 1e-19 set to 0 (so the updates
    meet no subnormal number); the largest value lies between 1/4 and 1. Relative values are all
    that the update needs, and they cannot underflow as a row the way exp(digamma) itself does
    (exp(digamma(0.01)) is 2e-44).

    Parameters
    ----------
    x : float32 array, shape (K,)
        Positive.
    out : float32 array, shape (padded(K),)
        Written.
    """
    _exp_digamma_row(x, x.shape[0], out)


@kernel
def exp_digamma_word(x, factor, rows, at):
    """`exp_digamma_row` times the factors of the topics, in one go.

    Equivalent to ``exp_digamma_row(x, rows[at : at + n]); rows[at : at + n] *= factor``,
    n = len(factor): in pieces it takes twice as long.

    Parameters
    ----------
    x : float32 array, shape (K,)
        Positive.
    factor : float32 array, shape (padded(K),)
    rows : float32 array
        Written from `at` on.
    at : int
    """
    _exp_digamma_word(x, x.shape[0], factor, rows, at)


@kernel(inline="always")
def log2_32(x):
    """log2 x of a positive normal number: x = 2**e m with m in [0.7, 1.42)."""
    bits = _bits_of_float32(x)
    # Adding the distance from sqrt(1/2) to 1 makes the exponent field count from sqrt(1/2).
    e = ((bits + np.int32(0x004AFB0D)) >> np.int32(23)) - np.int32(127)
    m = _float32_of_bits(bits - (e << np.int32(23)))
    s = (m - np.float32(1.0)) / (m + np.float32(1.0))
    z = s * s
    series = np.float32(0.4121985831)
    series = series * z + np.float32(0.5770780164)
    series = series * z + np.float32(0.9617966939)
    return np.float32(e) + s * (series * z + np.float32(2.8853900818))


@kernel(inline="always")
def exp2_32(y):
    """2**y of y from -126 to 127, relative error 1e-7 beside that of y."""
    n = np.floor(y + np.float32(0.5))
    f = y - n
    p = np.float32(_POWER_OF_TWO[4])
    p = p * f + np.float32(_POWER_OF_TWO[3])
    p = p * f + np.float32(_POWER_OF_TWO[2])
    p = p * f + np.float32(_POWER_OF_TWO[1])
    p = p * f + np.float32(_POWER_OF_TWO[0])
    p = p * f + np.float32(1.0)
    return p * _float32_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))


@intrinsic
def _power_row(typingctx, row, n, less_one):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        data, less_one = data_of(context, builder, signature.args[0], args[0]), args[2]
        less_one = emit.broadcast(less_one)

        def body(load, store, k):
            store(_Row(emit).power(load(data), less_one), data)

        emit.each(args[1], body)
        return context.get_dummy_value()

    return types.void(row, types.int64, types.float32), codegen


@kernel
def power_row(row, power):
    """Raise each number of a row, normal and positive, to a power in (0, 1], in place; 0 stays 0.

    Parameters
    ----------
    row : float32 array
    power : float
    """
    _power_row(row, row.shape[0], np.float32(power - 1.0))
