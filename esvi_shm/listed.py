"""Vector loops over lists of places: the topics of a document or a word out of all.

A list's values lie one after the other; a table has a value for every topic. What a loop takes from
the table it takes by the list's places, 16 at a time, as in `vector`.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from esvi_shm.compile import kernel
from esvi_shm.vector import INT32, INT64, LANES, VECTOR, ZEROS, Emitter, data_of


@intrinsic
def _above_into(typingctx, x, base, limit, length, places):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, base_data, places_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 4)
        )
        limit = emit.broadcast(args[2])
        found = cgutils.alloca_once_value(builder, INT64(0))

        def body(load, store, k):
            def put(lane):
                n = builder.load(found)
                place = builder.trunc(builder.add(k, lane), INT32)
                builder.store(place, builder.gep(places_data, [n]))
                builder.store(builder.add(n, INT64(1)), found)

            emit.each_bit(emit.above(builder.fsub(load(x_data), load(base_data)), limit), put)

        emit.each(args[3], body)
        return builder.load(found)

    return types.int64(x, base, types.float32, types.int64, places), codegen


@kernel
def above_into(x, base, limit, places):
    """List where x - base is above a limit; returns how many there are.

    Equivalent to ``found = np.flatnonzero(x - base > limit); places[:len(found)] = found``.

    Parameters
    ----------
    x, base : float32 arrays, shape (K,)
    limit : float32
        At least 0.
    places : int32 array, shape (K,) or longer
        Written.
    """
    return _above_into(x, base, limit, x.shape[0], places)


@intrinsic
def dot_listed(typingctx, x, x_at, table, table_at, places, places_at, n, taken):
    """The dot product of a list's values and those of a table at the list's places.

    Equivalent to ``taken[:n] = table[table_at:][places[places_at : places_at + n]]`` and
    ``x[x_at : x_at + n] @ taken[:n]``, n rounded up to a multiple of `LANES`.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, table_data, places_data, taken_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 2, 4, 7)
        )
        _, x_at, _, table_at, _, places_at, n, _ = args
        table_data = builder.gep(table_data, [table_at])

        def body(k, sums):
            found = ir.Constant(VECTOR, ir.Undefined)
            for lane in range(LANES):
                at = builder.add(builder.add(places_at, k), INT64(lane))
                place = builder.load(builder.gep(places_data, [at]))
                value = builder.load(builder.gep(table_data, [place]))
                found = builder.insert_element(found, value, INT32(lane))
            emit.store(found, taken_data, k)
            return [emit.multiply_add(emit.load(x_data, builder.add(x_at, k)), found, sums[0])]

        return emit.horizontal_sum(emit.loop(n, [ZEROS], body)[0])

    return types.float32(
        x, types.int64, table, types.int64, places, types.int64, types.int64, taken
    ), codegen


@intrinsic
def mix_listed(
    typingctx, x, x_at, sums, sums_at, table, table_at, places, places_at, n, taken, weight
):
    """Add to the sums beside a list and to a table at the list's places, after `dot_listed`.

    Equivalent to ``sums[sums_at : sums_at + n] += weight * taken[:n]`` and, where `taken` is not
    0, ``table[table_at:][places[places_at : places_at + n]] += weight * x[x_at : x_at + n]``, n
    rounded up to a multiple of `LANES`.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, sums_data, table_data, places_data, taken_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 2, 4, 6, 9)
        )
        _, x_at, _, sums_at, _, table_at, _, places_at, n, _, weight = args
        table_data = builder.gep(table_data, [table_at])
        scale = emit.broadcast(weight)

        def body(k, _):
            found = emit.load(taken_data, k)
            here = builder.add(sums_at, k)
            emit.store(emit.multiply_add(scale, found, emit.load(sums_data, here)), sums_data, here)

            def add(lane):
                at = builder.add(k, lane)
                place = builder.load(builder.gep(places_data, [builder.add(places_at, at)]))
                value = builder.load(builder.gep(x_data, [builder.add(x_at, at)]))
                total = builder.gep(table_data, [place])
                value = builder.fmul(weight, value, flags=["contract"])
                builder.store(builder.fadd(builder.load(total), value, flags=["contract"]), total)

            values = emit.load(x_data, builder.add(x_at, k))
            emit.each_bit(emit.above(builder.fmul(found, values), ZEROS), add)
            return []

        emit.loop(n, [], body)
        return context.get_dummy_value()

    return types.void(
        x, types.int64, sums, types.int64, table, types.int64, places, types.int64, types.int64,
        taken, types.float32,
    ), codegen  # fmt: skip
