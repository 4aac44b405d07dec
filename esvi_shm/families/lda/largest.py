"""The C largest of a row of numbers, found by counting.

A min-heap of size C takes the numbers one by one: 0.8 us for 8 of 128, 2.6 us for 32 (measured
on a busy core, where a whole update of `full` takes 0.2 us). Here a limit is looked for that has
C numbers above it. Counting is a matter of a few vectors, and from one visit to the next the C
largest mostly stay the same, which a single count shows: then nothing is looked for at all.

The numbers are float32, not negative, in rows of `vector.padded(K)` with zeros beyond K. They are
compared by their bits, read as int32, whose order is the same: so there is a next larger limit.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from esvi_shm.compile import kernel
from esvi_shm.sparse import lowest
from esvi_shm.vector import LANES, ZEROS, Emitter, data_of

_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_NONE = ir.Constant(_INTEGERS, [0] * LANES)

#: Bits of infinity: no number lies above.
_INFINITY = 0x7F800000
#: How far the first limit that is tried lies above the last one: a sixteenth, in bits.
_FIRST_STEP = 1 << 19


def _above(emit: Emitter, bits, k, limit):
    """Which lanes at k are above a broadcast limit."""
    place = emit.builder.bitcast(emit.builder.gep(bits, [k]), _INTEGERS.as_pointer())
    return emit.builder.icmp_signed(">", emit.builder.load(place, align=4), limit)


def _counted(builder, counts, above):
    """Counts by lane, with those that are above: such a lane is -1 as a number."""
    return builder.sub(counts, builder.sext(above, _INTEGERS))


def _total(builder, counts):
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.IntType(32), [_INTEGERS]),
        f"llvm.vector.reduce.add.v{LANES}i32",
    )
    return builder.sext(builder.call(function, [counts]), ir.IntType(64))


@intrinsic
def _count_above(typingctx, bits, limit, length):
    """How many are above a limit."""

    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        data = data_of(context, builder, signature.args[0], args[0])
        limit = emit.broadcast(args[1])

        def body(k, counts):
            return [_counted(builder, counts[0], _above(emit, data, k, limit))]

        (counts,) = emit.loop(args[2], [_NONE], body)
        return _total(builder, counts)

    return types.int64(bits, types.int32, types.int64), codegen


@intrinsic
def _mask_above(typingctx, bits, k, limit):
    """The lanes at k that are above a limit, as the bits of a number."""

    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        data = data_of(context, builder, signature.args[0], args[0])
        above = _above(emit, data, args[1], emit.broadcast(args[2]))
        return builder.zext(builder.bitcast(above, ir.IntType(LANES)), ir.IntType(64))

    return types.int64(bits, types.int64, types.int32), codegen


@intrinsic
def _divide(typingctx, x, bits, limit, length):
    """How many are above a limit, their sum, and that of the others."""

    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, data = (data_of(context, builder, signature.args[i], args[i]) for i in (0, 1))
        limit = emit.broadcast(args[2])

        def body(k, carried):
            counts, sum_above, sum_others = carried
            above, here = _above(emit, data, k, limit), emit.load(x_data, k)
            return [
                _counted(builder, counts, above),
                builder.fadd(sum_above, builder.select(above, here, ZEROS)),
                builder.fadd(sum_others, builder.select(above, ZEROS, here)),
            ]

        counts, *sums = emit.loop(args[3], [_NONE, ZEROS, ZEROS], body)
        values = [_total(builder, counts), *(emit.horizontal_sum(total) for total in sums)]
        return context.make_tuple(builder, signature.return_type, values)

    result = types.Tuple((types.int64, types.float32, types.float32))
    return result(x, bits, types.int32, types.int64), codegen


@intrinsic
def multiply_into(typingctx, x, rows, at, out, length):
    """The products of a row with the one at an offset, and their sum.

    Equivalent to ``out[:] = x * rows[at : at + length]; return out.sum()``.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, rows_data, out_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 3)
        )

        def body(k, sums):
            there = emit.load(rows_data, builder.add(args[2], k))
            product = builder.fmul(emit.load(x_data, k), there)
            emit.store(product, out_data, k)
            return [builder.fadd(sums[0], product)]

        (total,) = emit.loop(args[4], [ZEROS], body)
        return emit.horizontal_sum(total)

    return types.float32(x, rows, types.int64, out, types.int64), codegen


@intrinsic
def exchange(typingctx, x, bits, limit, scale, rest, old, count, total, rows, at, length):
    """Put what is kept of `x` in place of `old` in two running sums.

    Equivalent to ``change = count * (where(bits > limit, scale * x, rest) - old); total += change;
    rows[at : at + length] += change``.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, data, old_data, total_data, rows_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 5, 7, 8)
        )
        limit, scale, rest, count = (emit.broadcast(args[i]) for i in (2, 3, 4, 6))

        def body(k, _):
            scaled = builder.fmul(emit.load(x_data, k), scale)
            new = builder.select(_above(emit, data, k, limit), scaled, rest)
            change = builder.fsub(new, emit.load(old_data, k))
            emit.store(emit.multiply_add(count, change, emit.load(total_data, k)), total_data, k)
            here = builder.add(args[9], k)
            emit.store(
                emit.multiply_add(count, change, emit.load(rows_data, here)), rows_data, here
            )
            return []

        emit.loop(args[10], [], body)
        return context.get_dummy_value()

    signature = types.void(
        x, bits, types.int32, types.float32, types.float32, old, types.float32, total, rows,
        types.int64, types.int64,
    )  # fmt: skip
    return signature, codegen


@kernel
def _search(bits, n_kept, low, length):
    """A limit with exactly n_kept numbers above it, above `low`, which has more.

    Of equal numbers that only fit in part the first ones are raised by a bit, in place.
    """
    high = np.int64(_INFINITY)
    # From 0 the middle of all floats is nearer.
    between = low == 0
    step = np.int64(_FIRST_STEP)
    while high - low > 1:
        limit = low + step
        if between or limit >= high:
            limit = (low + high) >> 1
        n_above = _count_above(bits, np.int32(limit), length)
        if n_above == n_kept:
            return np.int32(limit)
        if n_above > n_kept:
            low = limit
            step <<= 1
        else:
            high = limit
            between = True
    free = n_kept - _count_above(bits, np.int32(high), length)
    for k in range(length):
        if free > 0 and bits[k] == high:
            bits[k] += 1
            free -= 1
    return np.int32(high)


@kernel
def _replace(bits, topics, pair, low, n_above):
    """Have a row of `topics` name the C largest, where more or less than those are above `low`."""
    n_kept, limit = topics.shape[1], np.int32(low)
    if n_above > n_kept:
        limit = _search(bits, n_kept, low, bits.shape[0])
    n = 0
    for k in range(0, bits.shape[0], LANES):
        mask = _mask_above(bits, k, limit)
        while mask != 0:
            topics[pair, n] = k + lowest(mask)
            n += 1
            mask &= mask - 1
    k = 0
    while n < n_kept:
        if bits[k] == 0:
            topics[pair, n] = k
            n += 1
        k += 1
    return limit


# Inlined by numba: a call with arrays counts references, which takes as long as the work here.
@kernel(inline="always")
def keep_largest(x, bits, topics, values, pair, n_topics, drop):
    """Keep the C largest of a row as shares, and what each of the others has.

    Where fewer than C are positive, zeros make up the number.

    Parameters
    ----------
    x : float32 array, shape (padded(K),)
        Not negative, with a positive sum, 0 beyond K. Equal ones may be raised by a bit.
    bits : int32 array, shape (padded(K),)
        A view of `x`.
    topics : unsigned integer array, shape (n, C), 1 <= C <= K
        Row `pair` has C different numbers below K, best those that were the largest before, and
        has those of the largest afterwards.
    values : float32 array, shape (n, C)
        Written, row `pair`: the shares of those.
    pair, n_topics : int
        The row; K.
    drop : bool
        What is not kept is dropped, and the kept ones are divided by their sum; else it is
        spread evenly over the other K - C.

    Returns
    -------
    int32, float32, float32
        The limit that those above 0 lie above, what they were multiplied by, and the share of
        each of the others.
    """
    n_kept = topics.shape[1]
    least, n_positive = np.int32(_INFINITY), 0
    for c in range(n_kept):
        here = bits[topics[pair, c]]
        least = min(least, here)
        n_positive += here > 0
    # Those C are at least `least`. If no others are, they are the largest still.
    limit = np.int32(least - 1 if least > 0 else 0)
    n_above, above, others = _divide(x, bits, limit, bits.shape[0])
    if n_above != n_positive:
        limit = _replace(bits, topics, pair, np.int64(limit), n_above)
        _, above, others = _divide(x, bits, limit, bits.shape[0])
    rest = np.float32(0.0)
    if drop:
        scale = np.float32(1.0) / above
    else:
        scale = np.float32(1.0) / (above + others)
        if n_kept < n_topics:
            rest = others * scale / np.float32(n_topics - n_kept)
    for c in range(n_kept):
        values[pair, c] = x[topics[pair, c]] * scale
    return limit, scale, rest
