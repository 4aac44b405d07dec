"""The inner loops of an update as explicit vector code, and what writes such code.

A pair (document, word) costs one dot product and two scaled additions over the topics. Written
as numba loops they run at 0.48 ns per pair and topic (NIPS, K = 128, AVX2): each pair re-reads
the document's row, re-checks that arrays do not overlap, and waits for its own sum. Here four
pairs share the document's row, their four sums run side by side, and the accumulator is read
and written once: 0.30 ns on the same core. The code is LLVM's generic `<16 x float>`, which
becomes one register of AVX-512, two of AVX2, four of NEON: nothing here knows the processor.

Rows live in one flat float32 scratch array and have a length of a multiple of `LANES`; the
places beyond K hold zeros and stay zero. Offsets count float32 elements. Nothing is checked:
callers own the scratch and compute the offsets.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from esvi_shm.compile import kernel

#: Row lengths are rounded up to this many float32.
LANES = 16

_FLOAT = ir.FloatType()
INT64 = ir.IntType(64)
INT32 = ir.IntType(32)
VECTOR = ir.VectorType(_FLOAT, LANES)
ZEROS = ir.Constant(VECTOR, [0.0] * LANES)


@register_jitable
def padded(n_topics: int) -> int:
    """Length of a scratch row that holds `n_topics` values; in kernels too.

    >>> padded(1), padded(16), padded(17)
    (16, 16, 32)
    """
    return -(-n_topics // LANES) * LANES


def aligned(n: int) -> np.ndarray:
    """Zeros, float32, from the beginning of a cache line on: a vector across two takes two loads.

    >>> aligned(3).ctypes.data % 64, aligned(3).tolist()
    (0, [0.0, 0.0, 0.0])
    """
    raw = np.zeros(n + LANES, np.float32)
    first = -(raw.ctypes.data // 4) % LANES
    return raw[first : first + n]


@register_jitable
def floats(n: int) -> np.ndarray:
    """The same in kernels, but not zeros: not written yet."""
    raw = np.empty(n + LANES, np.float32)
    first = -(raw.ctypes.data // 4) % LANES
    return raw[first : first + n]


@register_jitable
def unsigned(index: Any) -> Any:
    """An index that numba does not look at for a sign."""
    return np.uint64(index)


class Emitter:
    """Writes vector code with an llvmlite builder; values are `<16 x float>` unless said."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def constant(self, value: float) -> Any:
        return ir.Constant(VECTOR, [float(np.float32(value))] * LANES)

    def load(self, base: Any, offset: Any) -> Any:
        return self.builder.load(self._place(base, offset), align=4)

    def store(self, value: Any, base: Any, offset: Any) -> None:
        self.builder.store(value, self._place(base, offset), align=4)

    def _place(self, base: Any, offset: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(base, [offset]), VECTOR.as_pointer())

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, fused where the processor can."""
        product = self.builder.fmul(a, b, flags=["contract"])
        return self.builder.fadd(product, c, flags=["contract"])

    def broadcast(self, scalar: Any) -> Any:
        undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
        one = self.builder.insert_element(undefined, scalar, INT32(0))
        mask = ir.Constant(ir.VectorType(INT32, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, undefined, mask)

    def horizontal_sum(self, vector: Any) -> Any:
        start = _FLOAT(0.0)
        return self._call("llvm.vector.reduce.fadd", _FLOAT, [start, vector], flags=("reassoc",))

    def horizontal_maximum(self, vector: Any) -> Any:
        return self._call("llvm.vector.reduce.fmax", _FLOAT, [vector], flags=("nnan",))

    def floor(self, vector: Any) -> Any:
        return self._call("llvm.floor", VECTOR, [vector])

    def power_of_two(self, vector: Any) -> Any:
        """2**n of whole numbers n from -126 to 127."""
        integers = ir.VectorType(INT32, LANES)
        exponent = self.builder.fptosi(vector, integers)
        exponent = self.builder.add(exponent, integers([127] * LANES))
        bits = self.builder.shl(exponent, integers([23] * LANES))
        return self.builder.bitcast(bits, VECTOR)

    def split(self, vector: Any) -> tuple[Any, Any]:
        """e and t of positive normal numbers 2**e (1 + t), 1 + t in [0.7, 1.42)."""
        builder, integers = self.builder, ir.VectorType(INT32, LANES)
        bits = builder.bitcast(vector, integers)
        # Adding the distance from sqrt(1/2) to 1 makes the exponent field count from sqrt(1/2).
        exponent = builder.ashr(
            builder.add(bits, integers([0x004AFB0D] * LANES)), integers([23] * LANES)
        )
        exponent = builder.sub(exponent, integers([127] * LANES))
        bits = builder.sub(bits, builder.shl(exponent, integers([23] * LANES)))
        rest = builder.fsub(builder.bitcast(bits, VECTOR), self.constant(1.0))
        return builder.sitofp(exponent, VECTOR), rest

    def polynomial(self, coefficients: Sequence[float], x: Any) -> Any:
        """c0 + c1 x + c2 x**2 + ..."""
        value = self.constant(coefficients[-1])
        for c in coefficients[-2::-1]:
            value = self.multiply_add(value, x, self.constant(c))
        return value

    def inverse_power_of_two_above(self, vector: Any) -> Any:
        """1 / 2**n, 2**n the smallest power of two above it; from 1 to 1e37."""
        integers = ir.VectorType(INT32, LANES)
        exponent = self.builder.lshr(self.builder.bitcast(vector, integers), integers([23] * LANES))
        exponent = self.builder.sub(integers([253] * LANES), exponent)
        bits = self.builder.shl(exponent, integers([23] * LANES))
        return self.builder.bitcast(bits, VECTOR)

    def maximum(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def above(self, vector: Any, limit: Any) -> Any:
        """A bit for each lane, set where it is above the limit's."""
        above = self.builder.fcmp_ordered(">", vector, limit)
        return self.builder.bitcast(above, ir.IntType(LANES))

    def any_above(self, vector: Any, limit: Any) -> Any:
        """Whether some lane is above the limit's."""
        bits = self.above(vector, limit)
        return self.builder.icmp_unsigned("!=", bits, bits.type(0))

    def each(self, length: Any, body: Callable[..., None], first: Any = None) -> None:
        """Emit `body(load, store, k)` for the vectors at k = first (0), first + `LANES`... of rows.

        `load(base)` and `store(value, base)` work on a row's vector at k. The rows have `length`
        elements, which need not fill the last vector: there 0 is loaded for what lies beyond,
        and nothing stored.
        """
        builder = self.builder
        whole = builder.and_(length, INT64(-LANES))
        start = INT64(0) if first is None else first
        with cgutils.for_range_slice(builder, start, whole, INT64(LANES), INT64) as (k, _):
            body(lambda base: self.load(base, k), lambda value, base: self.store(value, base, k), k)
        with builder.if_then(builder.icmp_signed(">", length, whole), likely=False):
            lane = ir.Constant(ir.VectorType(INT32, LANES), list(range(LANES)))
            rest = self.broadcast(builder.trunc(builder.sub(length, whole), INT32))
            inside = builder.icmp_signed("<", lane, rest)
            body(
                lambda base: self._masked_load(base, whole, inside),
                lambda value, base: self._masked_store(value, base, whole, inside),
                whole,
            )

    def _masked_load(self, base: Any, offset: Any, mask: Any) -> Any:
        arguments = [self._place(base, offset), INT32(4), mask, ZEROS]
        return self._call("llvm.masked.load", VECTOR, arguments, suffix=".p0")

    def _masked_store(self, value: Any, base: Any, offset: Any, mask: Any) -> None:
        arguments = [value, self._place(base, offset), INT32(4), mask]
        self._call("llvm.masked.store", ir.VoidType(), arguments, suffix=".p0")

    def _call(
        self, name: str, result: Any, arguments: list[Any], suffix: str = "", flags: Any = ()
    ) -> Any:
        """Call one of LLVM's own functions on vectors."""
        function = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(result, [argument.type for argument in arguments]),
            f"{name}.v{LANES}f32{suffix}",
        )
        return self.builder.call(function, arguments, fastmath=flags)

    def loop(self, length: Any, carried: list[Any], body: Callable[..., list[Any]]) -> list[Any]:
        """``for k in range(0, length, LANES): carried = body(k, carried)``; length >= LANES."""
        builder = self.builder
        before = builder.block
        inside = builder.append_basic_block("lanes")
        after = builder.append_basic_block("lanes.end")
        builder.branch(inside)
        builder.position_at_end(inside)
        k = builder.phi(INT64)
        k.add_incoming(INT64(0), before)
        values = []
        for start in carried:
            value = builder.phi(start.type)
            value.add_incoming(start, before)
            values.append(value)
        results = body(k, values)
        last = builder.block  # the body may have blocks of its own
        for value, result in zip(values, results, strict=True):
            value.add_incoming(result, last)
        following = builder.add(k, INT64(LANES))
        k.add_incoming(following, last)
        builder.cbranch(builder.icmp_signed("<", following, length), inside, after)
        builder.position_at_end(after)
        return results


def data_of(context: Any, builder: Any, array_type: Any, value: Any) -> Any:
    """The address of an array's first element."""
    return context.make_array(array_type)(context, builder, value).data


def _make_dots(group: int) -> Any:
    offsets_type = types.UniTuple(types.int64, group)
    result_type = types.UniTuple(types.float32, group)

    @intrinsic
    def dots(typingctx, x, rows, offsets, length):
        def codegen(context, builder, signature, args):
            emit = Emitter(builder)
            x_data = data_of(context, builder, signature.args[0], args[0])
            rows_data = data_of(context, builder, signature.args[1], args[1])
            starts = cgutils.unpack_tuple(builder, args[2], group)

            def body(k, sums):
                here = emit.load(x_data, k)
                return [
                    emit.multiply_add(here, emit.load(rows_data, builder.add(start, k)), total)
                    for start, total in zip(starts, sums, strict=True)
                ]

            sums = emit.loop(args[3], [ZEROS] * group, body)
            return context.make_tuple(
                builder, signature.return_type, [emit.horizontal_sum(total) for total in sums]
            )

        return result_type(x, rows, offsets_type, types.int64), codegen

    dots.__doc__ = f"""The dot products of `x` with {group} rows.

    Equivalent to ``[x @ rows[o : o + length] for o in offsets]``.
    """
    return dots


def _make_mix(group: int, both: bool) -> Any:
    offsets_type = types.UniTuple(types.int64, group)
    weights_type = types.UniTuple(types.float32, group)

    @intrinsic
    def mix(typingctx, x, total, rows, offsets, weights, length):
        def codegen(context, builder, signature, args):
            emit = Emitter(builder)
            x_data = data_of(context, builder, signature.args[0], args[0])
            total_data = data_of(context, builder, signature.args[1], args[1])
            rows_data = data_of(context, builder, signature.args[2], args[2])
            starts = cgutils.unpack_tuple(builder, args[3], group)
            scales = [emit.broadcast(w) for w in cgutils.unpack_tuple(builder, args[4], group)]
            length = args[5]

            def body(k, _):
                here = emit.load(x_data, k) if both else None
                running = emit.load(total_data, k)
                changed = []
                for start, scale in zip(starts, scales, strict=True):
                    at = builder.add(start, k)
                    running = emit.multiply_add(scale, emit.load(rows_data, at), running)
                    if both:
                        beside = builder.add(at, length)
                        old = emit.load(rows_data, beside)
                        changed.append((emit.multiply_add(scale, here, old), beside))
                emit.store(running, total_data, k)
                for value, beside in changed:
                    emit.store(value, rows_data, beside)
                return []

            emit.loop(length, [], body)
            return context.get_dummy_value()

        signature = types.void(x, total, rows, offsets_type, weights_type, types.int64)
        return signature, codegen

    mix.__doc__ = f"""Add {group} weighted rows to `total`{
        ", and `x` to the rows beside" if both else ""
    }.

    Equivalent to, for each offset o and weight w,
    ``total += w * rows[o : o + length]``{
        " and ``rows[o + length : o + 2 * length] += w * x``" if both else " (`x` is not used)"
    }. The offsets must differ.
    """
    return mix


dot_1, dot_4 = _make_dots(1), _make_dots(4)
mix_1, mix_4 = _make_mix(1, both=False), _make_mix(4, both=False)
mix_both_1, mix_both_4 = _make_mix(1, both=True), _make_mix(4, both=True)


@intrinsic
def largest_of(typingctx, values, first, last):
    """The largest of `values[first:last]`, which are positive; 0 if there is none."""

    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        data = data_of(context, builder, signature.args[0], args[0])
        largest = cgutils.alloca_once_value(builder, ZEROS)
        builder.store(ZEROS, largest)

        def body(load, store, k):
            base = builder.gep(data, [args[1]])
            builder.store(emit.maximum(load(base), builder.load(largest)), largest)

        emit.each(builder.sub(args[2], args[1]), body)
        return emit.horizontal_maximum(builder.load(largest))

    return types.float32(values, types.int64, types.int64), codegen


@intrinsic
def _settle_row(typingctx, rows, at, length, old, lambda_row, n_topics, prior, frozen, moved):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        rows_data, old_data, lambda_data, moved_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 3, 4, 8)
        )
        _, at, length, _, _, n_topics, prior, frozen, _ = args
        prior = emit.broadcast(prior)

        def body(load, store, k):
            here = builder.add(at, k)
            beside = builder.add(here, length)
            beta, before = emit.load(rows_data, here), load(old_data)
            with builder.if_then(emit.any_above(emit.maximum(beta, before), ZEROS)):
                after = builder.fmul(beta, emit.load(rows_data, beside))
                change = builder.fsub(after, before)
                emit.store(builder.fadd(emit.load(moved_data, k), change), moved_data, k)
                store(after, old_data)
                with builder.if_then(builder.not_(frozen)):
                    value = builder.fadd(load(lambda_data), change)
                    store(emit.maximum(value, builder.fadd(prior, after)), lambda_data)
            emit.store(ZEROS, rows_data, beside)

        emit.each(n_topics, body)
        return context.get_dummy_value()

    signature = types.void(
        rows, types.int64, types.int64, old, lambda_row, types.int64, types.float32,
        types.boolean, moved,
    )  # fmt: skip
    return signature, codegen


@kernel
def settle_row(rows, at, length, old, lambda_row, prior, frozen, moved):
    """Put the factors times the sums of one word in place of an old margin.

    Equivalent to ``new = rows[at : at + length] * rows[at + length : at + 2 * length]``,
    cut to K, ``moved += new - old; lambda_row[:] = maximum(lambda_row + new - old, prior + new);
    old[:] = new``, and the sums are put to 0; `lambda_row` stays where `frozen`. Vectors without a
    positive factor or old value, most of a rare word's, are passed over.

    Parameters
    ----------
    rows : float32 array
        Scratch; at `at` the word's factors, at `at + length` its sums, which are put to 0.
    at, length : int
    old, lambda_row : float32 arrays, shape (K,)
        Non-negative; updated.
    prior : float32
    frozen : bool
    moved : float32 array, shape (length,)
        Updated.
    """
    _settle_row(rows, at, length, old, lambda_row, old.shape[0], prior, frozen, moved)


@intrinsic
def _relax_row(typingctx, rows, at, length, old, n_topics, step):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        rows_data, old_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 3)
        )
        _, at, length, _, n_topics, step = args
        step = emit.broadcast(step)
        wanted, found = (cgutils.alloca_once_value(builder, ZEROS) for _ in range(2))

        def go_further(load, store, k):
            here = builder.add(at, k)
            beside = builder.add(here, length)
            beta, before = emit.load(rows_data, here), load(old_data)
            after = builder.fmul(beta, emit.load(rows_data, beside))
            change = builder.fsub(after, before)
            further = emit.maximum(emit.multiply_add(step, change, before), ZEROS)
            emit.store(further, rows_data, beside)
            builder.store(builder.fadd(builder.load(wanted), after), wanted)
            builder.store(builder.fadd(builder.load(found), further), found)

        emit.each(n_topics, go_further)
        tokens, total = (emit.horizontal_sum(builder.load(sums)) for sums in (wanted, found))
        scale = emit.broadcast(builder.fdiv(tokens, total))

        def scale_all(load, store, k):
            here = builder.add(at, k)
            further = emit.load(rows_data, builder.add(here, length))
            is_there = builder.fcmp_ordered(">", further, ZEROS)
            emit.store(builder.select(is_there, scale, ZEROS), rows_data, here)

        emit.each(n_topics, scale_all)
        return context.get_dummy_value()

    signature = types.void(rows, types.int64, types.int64, old, types.int64, types.float32)
    return signature, codegen


@kernel
def relax_row(rows, at, length, old, step):
    """Have the factors times the sums of one word go further than from an old margin to the new.

    Equivalent to ``new = factors * sums; further = maximum(old + step * (new - old), 0);
    sums[:] = further; factors[:] = where(further > 0, new.sum() / further.sum(), 0)``.

    Parameters
    ----------
    rows : float32 array
        Scratch; at `at` the word's factors, at `at + length` its sums. Updated.
    at, length : int
    old : float32 array, shape (K,)
        Non-negative, of the same sum as new: so there is a `further` above 0.
    step : float32
    """
    _relax_row(rows, at, length, old, old.shape[0], step)


def _emit_prefetch(builder: Any, data: Any, first: Any, n: Any) -> None:
    """Ask for the lines of n float32 from `first` on."""
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, INT32, INT32, INT32]),
        "llvm.prefetch.p0",
    )
    with cgutils.for_range_slice(builder, INT64(0), n, INT64(16), INT64) as (k, _):
        place = builder.bitcast(builder.gep(data, [builder.add(first, k)]), cgutils.voidptr_t)
        # To be written; to be kept in all caches; data.
        builder.call(function, [place, INT32(1), INT32(3), INT32(1)])


@intrinsic
def _prefetch_row(typingctx, rows, row):
    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        n = builder.extract_value(array.shape, 1)
        _emit_prefetch(builder, array.data, builder.mul(args[1], n), n)
        return context.get_dummy_value()

    return types.void(rows, types.int64), codegen


@intrinsic
def prefetch_lines(typingctx, values, first, n):
    """Ask for the lines of `n` float32 of an array that are read and written soon."""

    def codegen(context, builder, signature, args):
        data = data_of(context, builder, signature.args[0], args[0])
        _emit_prefetch(builder, data, args[1], args[2])
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64), codegen


@kernel
def prefetch_row(rows, row):
    """Ask for a row of a matrix that is read and written soon; a row beyond the last is legal.

    Parameters
    ----------
    rows : float32 array, shape (n, K), C-contiguous
    row : int
    """
    _prefetch_row(rows, row)
