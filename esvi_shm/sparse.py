"""Loops over sparse rows: the topics that a document and a word have in common, and no others.

A word's topics lie one after the other, each with its factor and, beside it, its sum. Which of
all topics they are is in masks of 64 bits, and so are a document's: one AND shows what both have,
and how many bits of the word's mask are set below says where it lies. Of a document's 11 topics a
pair's word has 3 or 4 (NIPS, 1024 topics).

    masks    int64, `width` a word: its topics, 64 to a number
    starts   int32, likewise: where the first of them is, among the topics of all words
    rows     float32, 2 a topic of a word: factor, sum
    slots    int64, 2 for each 64 topics of which the document has some: which 64, the mask of those
             that it has; it has 64 places for each slot in `theta` and in `total`
    entries  int64: where a common topic is in `rows`, a pair within its chunk, a place in `theta`

Not vectors: of 8 topics that lie in the same documents, as far as any do, a document has 1.5, and
a document and a word that have some in common have 1.2. As in `vector`, nothing is checked.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from esvi_shm.compile import kernel
from esvi_shm.vector import INT32, INT64, LANES, Emitter, data_of

#: Pairs whose topics are found, and asked for, at once.
CHUNK = 16
#: Numbers of `slots` for each slot.
SLOT = 2

_FLOAT = ir.FloatType()


def _prefetch(builder: Any, base: Any, at: Any) -> None:
    """Ask for a line that is read and written soon.

    For reading: asked for writing, single numbers of many lines take a tenth longer (AVX-512).
    """
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, INT32, INT32, INT32]),
        "llvm.prefetch.p0",
    )
    place = builder.bitcast(builder.gep(base, [at]), cgutils.voidptr_t)
    builder.call(function, [place, INT32(0), INT32(3), INT32(1)])


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
def prefetch_at(typingctx, array, place):
    """Ask for the line of one number of an array of one dimension."""

    def codegen(context, builder, signature, args):
        _prefetch(builder, data_of(context, builder, signature.args[0], args[0]), args[1])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@intrinsic
def popcount(typingctx, bits):
    """How many bits of an int64 are set."""
    return types.int64(types.int64), lambda context, builder, signature, args: builder.ctpop(
        args[0]
    )


@intrinsic
def lowest(typingctx, bits):
    """The lowest bit that is set in an int64; of 0: 64."""
    return types.int64(types.int64), lambda context, builder, signature, args: builder.cttz(
        args[0], ir.IntType(1)(0)
    )


@kernel
def bits_into(bits, row, places):
    """List which bits of a row are set; returns how many there are.

    Parameters
    ----------
    bits : int64 matrix
    row : int
    places : int32 array
        Written, by fours: long enough for 4 more.
    """
    end = 0
    for w in range(bits.shape[1]):
        left = bits[row, w]
        # Most have up to 4: a loop over single bits would end where nobody foresees it.
        n, end = end, end + popcount(left)
        while True:
            for i in range(4):
                places[n + i] = 64 * w + lowest(left)
                left &= left - 1
            n += 4
            if n >= end:
                break
    return end


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


class _Pairs:
    """Writes code on single topics."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def load(self, base: Any, at: Any) -> Any:
        return self.builder.load(self.builder.gep(base, [at]))

    def store(self, value: Any, base: Any, at: Any) -> None:
        self.builder.store(value, self.builder.gep(base, [at]))

    def add_product(self, a: Any, b: Any, base: Any, at: Any) -> None:
        """base[at] += a b."""
        product = self.builder.fmul(a, b, flags=["contract"])
        self.store(self.builder.fadd(product, self.load(base, at), flags=["contract"]), base, at)

    def entry(self, entries: Any, at: Any) -> tuple[Any, Any, Any]:
        """Where its topic is in `rows`, its pair in the chunk, its place in `theta`."""
        builder = self.builder
        value = self.load(entries, at)
        pair = builder.and_(builder.lshr(value, INT64(24)), INT64(255))
        return builder.lshr(value, INT64(32)), pair, builder.and_(value, INT64(0xFFFFFF))

    def below_lowest(self, bits: Any) -> Any:
        """The bits below the lowest one that is set; all where none is."""
        builder = self.builder
        return builder.and_(builder.not_(bits), builder.sub(bits, INT64(1)))

    def without_lowest(self, bits: Any) -> Any:
        return self.builder.and_(bits, self.builder.sub(bits, INT64(1)))

    def is_not_zero(self, bits: Any) -> Any:
        return self.builder.icmp_unsigned("!=", bits, INT64(0))


@intrinsic
def find_common(
    typingctx, pair_word, first, last, first_word, slots, n_slots, masks, starts, width, rows,
    items, entries, at,
):  # fmt: skip
    """Enter the topics that a document and a word have in common; ask for their lines.

    Of pairs `first` to `last` - 1, at most `CHUNK`, from `entries[at]` on; returns the end.
    `items` is scratch: int64, 2 for each pair and slot, for each entry, and 2 more.
    """

    def codegen(context, builder, signature, args):
        pair_data, slot_data, mask_data, start_data, row_data, item_data, entry_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 4, 6, 7, 9, 10, 11)
        )
        _, first, last, first_word, _, n_slots, _, _, width, _, _, _, at = args
        pairs = _Pairs(builder)
        n_items = cgutils.alloca_once_value(builder, INT64(0))

        def put(bits, item):
            """An item, which stays where it has bits."""
            n = builder.load(n_items)
            pairs.store(bits, item_data, n)
            pairs.store(item, item_data, builder.add(n, INT64(1)))
            found = builder.zext(pairs.is_not_zero(bits), INT64)
            builder.store(builder.add(n, builder.shl(found, INT64(1))), n_items)

        words = cgutils.alloca_once(builder, INT64, CHUNK)
        n_pairs = builder.sub(last, first)
        with cgutils.for_range_slice(builder, INT64(0), n_pairs, INT64(1), INT64) as (c, _):
            word = builder.sext(pairs.load(pair_data, builder.add(first, c)), INT64)
            where = builder.mul(builder.sub(word, first_word), width)
            own = builder.or_(builder.shl(where, INT64(32)), builder.shl(c, INT64(24)))
            pairs.store(own, words, c)
        with cgutils.for_range_slice(builder, INT64(0), n_slots, INT64(1), INT64) as (m, _):
            slot = builder.mul(m, INT64(SLOT))
            which = pairs.load(slot_data, slot)
            mask = pairs.load(slot_data, builder.add(slot, INT64(1)))
            of_slot = builder.gep(mask_data, [which])
            item = builder.or_(builder.shl(which, INT64(32)), builder.shl(m, INT64(6)))
            with cgutils.for_range_slice(builder, INT64(0), n_pairs, INT64(1), INT64) as (c, _):
                own = pairs.load(words, c)
                theirs = pairs.load(of_slot, builder.lshr(own, INT64(32)))
                put(builder.and_(theirs, mask), builder.add(own, item))
        end = cgutils.alloca_once_value(builder, at)
        # What is left of an item is put behind the others: a loop over its bits would end where
        # nobody foresees it.
        i = cgutils.alloca_once_value(builder, INT64(0))
        check, body = (builder.append_basic_block(name) for name in ("items", "item"))
        after = builder.append_basic_block("items.end")
        builder.branch(check)
        builder.position_at_end(check)
        here = builder.load(i)
        builder.cbranch(builder.icmp_signed("<", here, builder.load(n_items)), body, after)
        builder.position_at_end(body)
        both, item = pairs.load(item_data, here), builder.add(here, INT64(1))
        builder.store(builder.add(here, INT64(2)), i)
        value = pairs.load(item_data, item)
        where = builder.lshr(value, INT64(32))
        below = pairs.below_lowest(both)
        row = builder.ctpop(builder.and_(pairs.load(mask_data, where), below))
        row = builder.add(builder.zext(pairs.load(start_data, where), INT64), row)
        row = builder.shl(row, INT64(1))
        _prefetch(builder, row_data, row)
        # The pair and the slot's first place are in the item as they are in an entry.
        place = builder.add(builder.and_(value, INT64(0xFFFFFFFF)), builder.ctpop(below))
        n = builder.load(end)
        pairs.store(builder.or_(builder.shl(row, INT64(32)), place), entry_data, n)
        builder.store(builder.add(n, INT64(1)), end)
        put(pairs.without_lowest(both), value)
        builder.branch(check)
        builder.position_at_end(after)
        return builder.load(end)

    return types.int64(
        pair_word, types.int64, types.int64, types.int64, slots, types.int64, masks, starts,
        types.int64, rows, items, entries, types.int64,
    ), codegen  # fmt: skip


@intrinsic
def dot_entries(typingctx, theta, rows, entries, first, last, norms):
    """Add the dot product of theta and the word's factors, for each pair of a chunk.

    Equivalent to, for each entry (row, pair, place), ``norms[pair] += theta[place] * rows[row]``.
    """

    def codegen(context, builder, signature, args):
        pairs = _Pairs(builder)
        theta_data, row_data, entry_data, norm_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 5)
        )
        with cgutils.for_range_slice(builder, args[3], args[4], INT64(1), INT64) as (e, _):
            row, pair, place = pairs.entry(entry_data, e)
            here, beta = pairs.load(theta_data, place), pairs.load(row_data, row)
            pairs.add_product(here, beta, norm_data, pair)
        return context.get_dummy_value()

    return types.void(theta, rows, entries, types.int64, types.int64, norms), codegen


@intrinsic
def dot_own_entries(typingctx, theta, mine, rows, inverse, entries, first, last, norms, squares):
    """`dot_entries`, and the sums of w^2 o of `families.lda.exclusion` into `squares`.

    Equivalent to, for each entry (row, pair, place), ``w = theta[place] * rows[row];
    norms[pair] += w; squares[pair] += w * w * (mine[place] + inverse[row // 2])``.
    """

    def codegen(context, builder, signature, args):
        pairs = _Pairs(builder)
        theta_data, mine_data, row_data, inverse_data, entry_data, norm_data, square_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 3, 4, 7, 8)
        )
        with cgutils.for_range_slice(builder, args[5], args[6], INT64(1), INT64) as (e, _):
            row, pair, place = pairs.entry(entry_data, e)
            w = builder.fmul(pairs.load(theta_data, place), pairs.load(row_data, row))
            theirs = pairs.load(inverse_data, builder.lshr(row, INT64(1)))
            both = builder.fadd(pairs.load(mine_data, place), theirs)
            pairs.add_product(w, _FLOAT(1.0), norm_data, pair)
            pairs.add_product(builder.fmul(w, w), both, square_data, pair)
        return context.get_dummy_value()

    return types.void(
        theta, mine, rows, inverse, entries, types.int64, types.int64, norms, squares
    ), codegen


@intrinsic
def weigh_entries(typingctx, theta, mine, rows, inverse, entries, first, last, scales, kept, norms):
    """f of `families.lda.exclusion`, for each entry; add the sums of w f of each pair of a chunk.

    Equivalent to, for entry i (row, pair, place), i from 0, ``w = theta[place] * rows[row];
    f = 1 / (1 + scales[pair] * w * (mine[place] + inverse[row // 2])); kept[i] = f;
    norms[pair] += w * f``.
    """

    def codegen(context, builder, signature, args):
        pairs = _Pairs(builder)
        (
            theta_data,
            mine_data,
            row_data,
            inverse_data,
            entry_data,
            scale_data,
            kept_data,
            norm_data,
        ) = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 3, 4, 7, 8, 9)
        )
        with cgutils.for_range_slice(builder, args[5], args[6], INT64(1), INT64) as (e, _):
            row, pair, place = pairs.entry(entry_data, e)
            w = builder.fmul(pairs.load(theta_data, place), pairs.load(row_data, row))
            theirs = pairs.load(inverse_data, builder.lshr(row, INT64(1)))
            share = builder.fadd(pairs.load(mine_data, place), theirs)
            share = builder.fmul(builder.fmul(pairs.load(scale_data, pair), w), share)
            f = builder.fdiv(_FLOAT(1.0), builder.fadd(_FLOAT(1.0), share))
            pairs.store(f, kept_data, builder.sub(e, args[5]))
            pairs.add_product(w, f, norm_data, pair)
        return context.get_dummy_value()

    return types.void(
        theta, mine, rows, inverse, entries, types.int64, types.int64, scales, kept, norms
    ), codegen


def _mix(
    pairs: _Pairs, weight: Any, theta: Any, total: Any, rows: Any, place: Any, row: Any
) -> None:
    """Add weighted theta to a word's sum, and the weighted factor to `total`, of one topic."""
    here, beta = pairs.load(theta, place), pairs.load(rows, row)
    pairs.add_product(weight, here, rows, pairs.builder.add(row, INT64(1)))
    pairs.add_product(weight, beta, total, place)


@intrinsic
def mix_kept_entries(typingctx, theta, total, rows, entries, first, last, weights, kept):
    """`mix_entries`, with the weight of entry i times ``kept[i]``, i from 0."""

    def codegen(context, builder, signature, args):
        pairs = _Pairs(builder)
        theta_data, total_data, row_data, entry_data, weight_data, kept_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 3, 6, 7)
        )
        with cgutils.for_range_slice(builder, args[4], args[5], INT64(1), INT64) as (e, _):
            row, pair, place = pairs.entry(entry_data, e)
            share = pairs.load(kept_data, builder.sub(e, args[4]))
            weight = builder.fmul(pairs.load(weight_data, pair), share)
            _mix(pairs, weight, theta_data, total_data, row_data, place, row)
        return context.get_dummy_value()

    return types.void(theta, total, rows, entries, types.int64, types.int64, weights, kept), codegen


@intrinsic
def mix_entries(typingctx, theta, total, rows, entries, first, last, weights):
    """Add each pair's weighted theta to the word's sums, its weighted factors to `total`.

    Equivalent to, for each entry (row, pair, place), ``w = weights[pair];
    rows[row + 1] += w * theta[place]; total[place] += w * rows[row]``.
    """

    def codegen(context, builder, signature, args):
        pairs = _Pairs(builder)
        theta_data, total_data, row_data, entry_data, weight_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 3, 6)
        )
        with cgutils.for_range_slice(builder, args[4], args[5], INT64(1), INT64) as (e, _):
            row, pair, place = pairs.entry(entry_data, e)
            weight = pairs.load(weight_data, pair)
            _mix(pairs, weight, theta_data, total_data, row_data, place, row)
        return context.get_dummy_value()

    return types.void(theta, total, rows, entries, types.int64, types.int64, weights), codegen
