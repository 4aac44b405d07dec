"""Vector loops over tiles: 8 topics' factors and, beside them, their sums, in one cache line.

A word has only the tiles in which it has a topic, one after the other; a document has only the
tiles (*slots*) in which it has a topic. What both have is found without a branch, since branches
here cannot be foreseen: a pair's tiles are 3 of a document's 7, in no order that repeats.

    table    int64, 2 `width` a word: for each 64 tiles a mask of those that the word has, and the
             number of the first of them among all tiles of all words
    lanes    uint8, by that number: which of the tile's 8 topics the word has
    rows     float32, 16 by that number: factors, sums. Tile 0 is nobody's, without a topic.
    slots    int64, 5 a slot of the document: where its mask is in `table`, its bit there, the bits
             below, its place in `theta` and `total`, which of its 8 topics the document has
    entries  int64: a tile in `rows`, a pair within its chunk, a place in `theta`

A tile of 16 topics would be a whole register of AVX-512, but two cache lines: half as fast (NIPS,
1024 topics, AVX2), since a pair waits for its lines. As in `vector`, nothing is checked.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from esvi_shm.compile import kernel
from esvi_shm.vector import INT32, INT64, LANES, Emitter, data_of

#: Topics of a tile; TILE = 2**TILE_BITS.
TILE, TILE_BITS = 8, 3
#: Pairs whose tiles are found, and asked for, at once.
CHUNK = 16
#: Numbers of `slots` for each slot.
SLOT = 5

_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, TILE)
_ZEROS = ir.Constant(_VECTOR, [0.0] * TILE)


def n_tiles(n_topics: int) -> int:
    """How many tiles so many topics fill."""
    return -(-n_topics // TILE)


def aligned(n: int) -> np.ndarray:
    """Zeros, float32, from the beginning of a cache line on."""
    line = 64 // 4
    raw = np.zeros(n + line, np.float32)
    first = (-raw.ctypes.data // 4) % line
    return raw[first : first + n]


class _Tiles:
    """Writes code on one tile; values are `<8 x float>`."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def _place(self, base: Any, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(base, [at]), _VECTOR.as_pointer())

    def load(self, base: Any, at: Any) -> Any:
        return self.builder.load(self._place(base, at), align=4)

    def store(self, value: Any, base: Any, at: Any) -> None:
        self.builder.store(value, self._place(base, at), align=4)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        product = self.builder.fmul(a, b, flags=["contract"])
        return self.builder.fadd(product, c, flags=["contract"])

    def broadcast(self, scalar: Any) -> Any:
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        one = self.builder.insert_element(undefined, scalar, INT32(0))
        mask = ir.Constant(ir.VectorType(INT32, TILE), [0] * TILE)
        return self.builder.shuffle_vector(one, undefined, mask)

    def sum(self, vector: Any) -> Any:
        function = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR]),
            f"llvm.vector.reduce.fadd.v{TILE}f32",
        )
        return self.builder.call(function, [_FLOAT(0.0), vector], fastmath=("reassoc",))

    def entry(self, entries: Any, at: Any) -> tuple[Any, Any, Any]:
        """Its tile in `rows`, its pair in the chunk, its place in `theta`."""
        builder = self.builder
        value = builder.load(builder.gep(entries, [at]))
        pair = builder.and_(builder.lshr(value, INT64(24)), INT64(255))
        return builder.lshr(value, INT64(32)), pair, builder.and_(value, INT64(0xFFFFFF))


def _prefetch(builder: Any, base: Any, at: Any) -> None:
    """Ask for a line that is read and written soon."""
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [base.type, INT32, INT32, INT32]),
        "llvm.prefetch.p0",
    )
    builder.call(function, [builder.gep(base, [at]), INT32(1), INT32(3), INT32(1)])


@intrinsic
def prefetch_value(typingctx, matrix, row, column):
    """Ask for the line of one value of a C-contiguous matrix."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        first = builder.mul(args[1], builder.extract_value(array.shape, 1))
        _prefetch(builder, array.data, builder.add(first, args[2]))
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64), codegen


@intrinsic
def popcount(typingctx, bits):
    """How many bits of an int64 are set."""
    return types.int64(types.int64), lambda context, builder, signature, args: builder.ctpop(
        args[0]
    )


@intrinsic
def lowest(typingctx, bits):
    """The lowest bit that is set in an int64 other than 0."""
    return types.int64(types.int64), lambda context, builder, signature, args: builder.cttz(
        args[0], ir.IntType(1)(1)
    )


@kernel
def bits_into(bits, row, places):
    """List which bits of a row are set; returns how many there are.

    Parameters
    ----------
    bits : int64 matrix
    row : int
    places : int32 array
        Written; long enough.
    """
    n = 0
    for w in range(bits.shape[1]):
        left = bits[row, w]
        while left != 0:
            places[n] = 64 * w + lowest(left)
            n += 1
            left &= left - 1
    return n


@intrinsic
def _above(typingctx, x, base, limit, length, bits):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, base_data, bits_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 4)
        )
        parts = builder.bitcast(bits_data, ir.IntType(LANES).as_pointer())
        limit, length = emit.broadcast(args[2]), args[3]
        whole = builder.and_(length, INT64(-64))
        # Put together in a register: who reads 64 bits waits for stores of fewer to come through.
        with cgutils.for_range_slice(builder, INT64(0), whole, INT64(64), INT64) as (k, _):
            bits = INT64(0)
            for lane in range(0, 64, LANES):
                at = builder.add(k, INT64(lane))
                d = builder.fsub(emit.load(x_data, at), emit.load(base_data, at))
                found = builder.zext(emit.above(d, limit), INT64)
                bits = builder.or_(bits, builder.shl(found, INT64(lane)))
            builder.store(bits, builder.gep(bits_data, [builder.lshr(k, INT64(6))]))

        def body(load, store, k):
            found = emit.above(builder.fsub(load(x_data), load(base_data)), limit)
            builder.store(found, builder.gep(parts, [builder.udiv(k, INT64(LANES))]))

        with builder.if_then(builder.icmp_signed(">", length, whole)):
            builder.store(INT64(0), builder.gep(bits_data, [builder.lshr(whole, INT64(6))]))
            emit.each(length, body, whole)
        return context.get_dummy_value()

    return types.void(x, base, types.float32, types.int64, bits), codegen


@kernel
def above_into(x, base, limit, bits):
    """A bit for each place, set where x - base is above a limit.

    Equivalent to ``bits.view(np.uint8)[:] = np.packbits(x - base > limit, bitorder="little")``,
    with zeros beyond.

    Parameters
    ----------
    x, base : float32 arrays, shape (K,)
    limit : float32
        At least 0.
    bits : int64 array, shape (ceil(K / 64),)
        Written.
    """
    _above(x, base, limit, x.shape[0], bits)


@intrinsic
def find_common(
    typingctx,
    pair_word,
    first,
    last,
    first_word,
    slots,
    n_slots,
    table,
    width,
    lanes,
    rows,
    entries,
    at,
):
    """Enter the tiles in which a document and a word have a topic in common; ask for their lines.

    Of pairs `first` to `last` - 1, at most `CHUNK`, from `entries[at]` on, which is written one
    beyond the end too; returns the end.
    """

    def codegen(context, builder, signature, args):
        pair_data, slot_data, table_data, lane_data, row_data, entry_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 4, 6, 8, 9, 10)
        )
        _, first, last, first_word, _, n_slots, _, width, _, _, _, at = args
        end = cgutils.alloca_once_value(builder, at)
        stride = builder.shl(width, INT64(1))
        all_slots = builder.mul(n_slots, INT64(SLOT))

        def number(base, place):
            return builder.load(builder.gep(base, [place]))

        with cgutils.for_range_slice(builder, first, last, INT64(1), INT64) as (j, _):
            word = builder.sub(builder.sext(number(pair_data, j), INT64), first_word)
            own = builder.gep(table_data, [builder.mul(word, stride)])
            pair = builder.shl(builder.sub(j, first), INT64(24))
            with cgutils.for_range_slice(builder, INT64(0), all_slots, INT64(SLOT), INT64) as (
                m,
                _,
            ):
                where, bit, below, place, document_lanes = (
                    number(slot_data, builder.add(m, INT64(i))) for i in range(SLOT)
                )
                mask, base = number(own, where), number(own, builder.add(where, INT64(1)))
                has = builder.icmp_unsigned("!=", builder.and_(mask, bit), INT64(0))
                tile = builder.add(base, builder.ctpop(builder.and_(mask, below)))
                tile = builder.select(has, tile, INT64(0))
                row = builder.mul(tile, INT64(2 * TILE))
                _prefetch(builder, row_data, row)
                word_lanes = builder.zext(number(lane_data, tile), INT64)
                both = builder.and_(word_lanes, document_lanes)
                found = builder.icmp_unsigned("!=", both, INT64(0))
                n = builder.load(end)
                entry = builder.or_(builder.shl(row, INT64(32)), builder.or_(pair, place))
                builder.store(entry, builder.gep(entry_data, [n]))
                builder.store(builder.add(n, builder.zext(found, INT64)), end)
        return builder.load(end)

    return types.int64(
        pair_word, types.int64, types.int64, types.int64, slots, types.int64, table, types.int64,
        lanes, rows, entries, types.int64,
    ), codegen  # fmt: skip


@intrinsic
def dot_entries(typingctx, theta, rows, entries, first, last, partial, n_pairs, norms):
    """The dot product of theta and the word's factors, for each pair of a chunk.

    Equivalent to ``norms[:n_pairs] = 0`` and, for each entry (tile, pair, place),
    ``norms[pair] += theta[place:][:TILE] @ rows[tile:][:TILE]``. `partial`, float32
    (CHUNK TILE,), is 0 before and after.
    """

    def codegen(context, builder, signature, args):
        tiles = _Tiles(builder)
        theta_data, row_data, entry_data, partial_data, norm_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 5, 7)
        )
        with cgutils.for_range_slice(builder, args[3], args[4], INT64(1), INT64) as (e, _):
            tile, pair, place = tiles.entry(entry_data, e)
            # In memory: a loop over the entries of one pair would end where nobody foresees it.
            own = builder.mul(pair, INT64(TILE))
            total = tiles.load(partial_data, own)
            here, beta = tiles.load(theta_data, place), tiles.load(row_data, tile)
            tiles.store(tiles.multiply_add(here, beta, total), partial_data, own)
        _sum_partial(builder, tiles, partial_data, norm_data, args[6])
        return context.get_dummy_value()

    return types.void(
        theta, rows, entries, types.int64, types.int64, partial, types.int64, norms
    ), codegen


@intrinsic
def weigh_entries(
    typingctx, theta, mine, rows, inverse, entries, first, last, scales, kept, partial, n_pairs,
    norms,
):  # fmt: skip
    """f of `families.lda.exclusion`, for each entry, and the sums of w f of each pair of a chunk.

    Equivalent to ``norms[:n_pairs] = 0`` and, for entry i (tile, pair, place),
    ``w = theta[place:][:TILE] * rows[tile:][:TILE]; f = 1 / (1 + scales[pair] * w *
    (mine[place:][:TILE] + inverse[tile // 2:][:TILE])); kept[TILE * i:][:TILE] = f;
    norms[pair] += w @ f``, i from 0. `partial` as for `dot_entries`.
    """

    def codegen(context, builder, signature, args):
        tiles = _Tiles(builder)
        theta_data, mine_data, row_data, inverse_data, entry_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in range(5)
        )
        scale_data, kept_data, partial_data, norm_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (7, 8, 9, 11)
        )
        one = ir.Constant(_VECTOR, [1.0] * TILE)
        with cgutils.for_range_slice(builder, args[5], args[6], INT64(1), INT64) as (e, _):
            tile, pair, place = tiles.entry(entry_data, e)
            scale = tiles.broadcast(builder.load(builder.gep(scale_data, [pair])))
            w = builder.fmul(tiles.load(theta_data, place), tiles.load(row_data, tile))
            theirs = tiles.load(inverse_data, builder.lshr(tile, INT64(1)))
            share = builder.fadd(tiles.load(mine_data, place), theirs)
            share = builder.fmul(builder.fmul(scale, w), share)
            f = builder.fdiv(one, builder.fadd(one, share))
            at = builder.mul(builder.sub(e, args[5]), INT64(TILE))
            tiles.store(f, kept_data, at)
            own = builder.mul(pair, INT64(TILE))
            total = tiles.load(partial_data, own)
            tiles.store(tiles.multiply_add(w, f, total), partial_data, own)
        _sum_partial(builder, tiles, partial_data, norm_data, args[10])
        return context.get_dummy_value()

    return types.void(
        theta, mine, rows, inverse, entries, types.int64, types.int64, scales, kept, partial,
        types.int64, norms,
    ), codegen  # fmt: skip


def _sum_partial(builder: Any, tiles: _Tiles, partial: Any, norms: Any, n_pairs: Any) -> None:
    """The sum of each pair's tile of `partial`, which starts at 0 again."""
    with cgutils.for_range_slice(builder, INT64(0), n_pairs, INT64(1), INT64) as (pair, _):
        own = builder.mul(pair, INT64(TILE))
        builder.store(tiles.sum(tiles.load(partial, own)), builder.gep(norms, [pair]))
        tiles.store(_ZEROS, partial, own)


def _mix_tile(
    tiles: _Tiles, weight: Any, theta: Any, total: Any, rows: Any, place: Any, tile: Any
) -> None:
    """Add weighted theta to a word's sums, and the weighted factors to `total`, of one tile."""
    here, beta = tiles.load(theta, place), tiles.load(rows, tile)
    beside = tiles.builder.add(tile, INT64(TILE))
    tiles.store(tiles.multiply_add(weight, here, tiles.load(rows, beside)), rows, beside)
    tiles.store(tiles.multiply_add(weight, beta, tiles.load(total, place)), total, place)


@intrinsic
def mix_kept_entries(typingctx, theta, total, rows, entries, first, last, weights, kept):
    """`mix_entries`, with the weight of entry i times ``kept[TILE * i:][:TILE]``, i from 0."""

    def codegen(context, builder, signature, args):
        tiles = _Tiles(builder)
        theta_data, total_data, row_data, entry_data, weight_data, kept_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 3, 6, 7)
        )
        with cgutils.for_range_slice(builder, args[4], args[5], INT64(1), INT64) as (e, _):
            tile, pair, place = tiles.entry(entry_data, e)
            weight = tiles.broadcast(builder.load(builder.gep(weight_data, [pair])))
            at = builder.mul(builder.sub(e, args[4]), INT64(TILE))
            weight = builder.fmul(weight, tiles.load(kept_data, at))
            _mix_tile(tiles, weight, theta_data, total_data, row_data, place, tile)
        return context.get_dummy_value()

    return types.void(theta, total, rows, entries, types.int64, types.int64, weights, kept), codegen


@intrinsic
def mix_entries(typingctx, theta, total, rows, entries, first, last, weights):
    """Add each pair's weighted theta to the word's sums, its weighted factors to `total`.

    Equivalent to, for each entry (tile, pair, place), ``w = weights[pair];
    rows[tile + TILE:][:TILE] += w * theta[place:][:TILE]; total[place:][:TILE] +=
    w * rows[tile:][:TILE]``.
    """

    def codegen(context, builder, signature, args):
        tiles = _Tiles(builder)
        theta_data, total_data, row_data, entry_data, weight_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 3, 6)
        )
        with cgutils.for_range_slice(builder, args[4], args[5], INT64(1), INT64) as (e, _):
            tile, pair, place = tiles.entry(entry_data, e)
            weight = tiles.broadcast(builder.load(builder.gep(weight_data, [pair])))
            _mix_tile(tiles, weight, theta_data, total_data, row_data, place, tile)
        return context.get_dummy_value()

    return types.void(theta, total, rows, entries, types.int64, types.int64, weights), codegen
