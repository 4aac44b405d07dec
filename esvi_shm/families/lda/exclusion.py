"""Taking a pair's own share out of the counts that decide on it, as collapsed inference does.

Under cvb0 a token is to be placed by the *other* tokens:

    phi_k  is proportional to  (gamma_k - m phi_k) (lambda_k - m phi_k) / pi_k

with m the tokens that are taken out: one (Asuncion, Welling, Smyth, Teh 2009), or all of the pair,
which takes a word that is used again and again in a document for one choice, or `EXCESS_SHARE`
times as many. Of that last the topics predict better on six of seven corpora (`bench/RESULTS.md`),
and vb goes on from them to a lower bound, so only inference `cvb0` has it. Without it rare words
and short documents stay where they were first put, since they vote for themselves.

phi is not kept, so it cannot be subtracted. But it is the fixed point of its own equation, which to
first order in phi / gamma and phi / lambda is solved in one line. With w = theta beta, the factors
as they are without exclusion, relative:

    m phi = (m / s) w f,    f = 1 / (1 + (m / s) w o),    s = sum_k w f,
    o = 1 / gamma + 1 / lambda

This is solved for s as far as it goes without f: with s_0 = sum_k w, and w o put at its mean
a / s_0, a = sum_k w^2 o, the sum of w / (1 + (m / s_0) w o) is s_1 = s_0 / (1 + m a / s_0^2). From
it f is computed, once, and w f kept, phi but for its sum. That is nearer to the equation's solution
than to begin at s_0 and put s in twice, which needs another division for each topic; to put it in
once more would change perplexity by nothing (`bench/RESULTS.md`). f lies in (0, 1], so nothing can
become negative; pi is so large that its own share is left in. Under tempering w has the power and f
has not. All pairs' f are computed afresh in each visit, so both storages have the same iterates.
"""

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from esvi_shm.compile import kernel
from esvi_shm.special import LN2, log2_32
from esvi_shm.vector import INT64, Emitter, data_of, dot_1

#: What may be taken out, by name; the numbers are those of `update.Rule.leave_out`.
CHOICES = ("none", "token", "pair", "excess")
NONE, TOKEN, PAIR, EXCESS = range(4)
#: Times a pair's tokens. By 2 five corpora gain a little more; NIPS and 20news lose by it.
EXCESS_SHARE = np.float32(1.5)


@kernel(inline="always")
def amount_of(count, leave_out):
    """m: the tokens of a pair that are taken out; of a fraction of a token no more than that."""
    if leave_out == TOKEN:
        return min(count, np.float32(1.0))
    return count * EXCESS_SHARE if leave_out == EXCESS else count


@register_jitable
def scale_of(amount, s, a):
    """m / s_1, of s_0 and a; at most 1e30, as infinity times 0 is no number."""
    one, most = type(s)(1.0), type(s)(1e30)  # of their type: an int would make all float64
    inverse = one / s
    scale = min(amount * inverse, most)
    return min(scale * (one + scale * (a * inverse)), most)


@intrinsic
def _inverse_row(typingctx, x, n_topics, out):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data = data_of(context, builder, signature.args[0], args[0])
        out_data = data_of(context, builder, signature.args[2], args[2])

        def body(load, store, k):
            store(builder.fdiv(emit.constant(1.0), load(x_data)), out_data)

        emit.each(args[1], body)
        return context.get_dummy_value()

    return types.void(x, types.int64, out), codegen


@kernel
def inverse_row_into(x, out):
    """1 / x, float32 (K,) into (padded(K),), which is 0 beyond K and stays so."""
    _inverse_row(x, x.shape[0], out)


@kernel
def inverse_words_into(lambda_, word_row, first, last, length, inverse):
    """1 / lambda of the words first..last-1, `length` apart; beyond K as `inverse_row_into`."""
    for i in range(last - first):
        row = inverse[length * i : length * (i + 1)]
        inverse_row_into(lambda_[word_row[first + i]], row)


def _make_dot_own(group: int) -> Any:
    offsets_type = types.UniTuple(types.int64, group)
    result_type = types.UniTuple(types.float32, 2 * group)

    @intrinsic
    def dot_own(typingctx, theta, own, rows, inverse, offsets, kept, length):
        def codegen(context, builder, signature, args):
            emit = Emitter(builder)
            theta_data, own_data, rows_data, inverse_data, kept_data = (
                data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 3, 5)
            )
            starts = cgutils.unpack_tuple(builder, args[4], group)
            halves = [builder.lshr(start, INT64(1)) for start in starts]
            length = args[6]

            def body(k, sums):
                here, mine = emit.load(theta_data, k), emit.load(own_data, k)
                firsts, seconds, place = [], [], k
                for i, (start, half) in enumerate(zip(starts, halves, strict=True)):
                    w = builder.fmul(here, emit.load(rows_data, builder.add(start, k)))
                    both = builder.fadd(mine, emit.load(inverse_data, builder.add(half, k)))
                    share = builder.fmul(w, both)
                    for value in (w, share):
                        emit.store(value, kept_data, place)
                        place = builder.add(place, length)
                    firsts.append(builder.fadd(sums[i], w))
                    seconds.append(emit.multiply_add(w, share, sums[group + i]))
                return firsts + seconds

            sums = emit.loop(length, [emit.constant(0.0)] * (2 * group), body)
            return context.make_tuple(
                builder, signature.return_type, [emit.horizontal_sum(total) for total in sums]
            )

        return result_type(theta, own, rows, inverse, offsets_type, kept, types.int64), codegen

    dot_own.__doc__ = f"""The sums s_0 and a of {group} pairs: first all s_0, then all a.

    Equivalent to, for pair i with offset o and `kept` as rows of `length`,
    ``w = kept[2 * i] = theta * rows[o : o + length];
    share = kept[2 * i + 1] = w * (own + inverse[o // 2 : o // 2 + length])`` and the sums of ``w``
    and ``w * share``: a word's row of 1 / lambda is where half of its offset points, as its others
    come in twos.
    """
    return dot_own


def _make_weigh(group: int) -> Any:
    floats_type = types.UniTuple(types.float32, group)

    @intrinsic
    def weigh(typingctx, scales, kept, length):
        def codegen(context, builder, signature, args):
            emit = Emitter(builder)
            kept_data = data_of(context, builder, signature.args[1], args[1])
            scales = [emit.broadcast(c) for c in cgutils.unpack_tuple(builder, args[0], group)]
            length, one = args[2], emit.constant(1.0)

            def body(k, sums):
                place, changed = k, []
                for scale, total in zip(scales, sums, strict=True):
                    share = emit.load(kept_data, builder.add(place, length))
                    less = emit.multiply_add(scale, share, one)
                    value = builder.fdiv(emit.load(kept_data, place), less)
                    emit.store(value, kept_data, place)
                    place = builder.add(place, builder.shl(length, INT64(1)))
                    changed.append(builder.fadd(total, value))
                return changed

            sums = emit.loop(length, [emit.constant(0.0)] * group, body)
            return context.make_tuple(
                builder, signature.return_type, [emit.horizontal_sum(total) for total in sums]
            )

        return floats_type(floats_type, kept, types.int64), codegen

    weigh.__doc__ = f"""w f of {group} pairs in place of w, and its sums.

    Equivalent to, for pair i with scale c and `kept` as rows of `length`,
    ``kept[2 * i] /= 1 + c * kept[2 * i + 1]`` and its sum.
    """
    return weigh


def _make_mix_kept(group: int, both: bool) -> Any:
    offsets_type = types.UniTuple(types.int64, group)
    weights_type = types.UniTuple(types.float32, group)

    @intrinsic
    def mix_kept(typingctx, total, rows, kept, offsets, weights, length):
        def codegen(context, builder, signature, args):
            emit = Emitter(builder)
            total_data, rows_data, kept_data = (
                data_of(context, builder, signature.args[i], args[i]) for i in range(3)
            )
            starts = cgutils.unpack_tuple(builder, args[3], group)
            scales = [emit.broadcast(w) for w in cgutils.unpack_tuple(builder, args[4], group)]
            length = args[5]

            def body(k, _):
                running, place, changed = emit.load(total_data, k), k, []
                for start, scale in zip(starts, scales, strict=True):
                    value = builder.fmul(scale, emit.load(kept_data, place))
                    place = builder.add(place, builder.shl(length, INT64(1)))
                    running = builder.fadd(running, value)
                    if both:
                        beside = builder.add(builder.add(start, k), length)
                        changed.append((builder.fadd(emit.load(rows_data, beside), value), beside))
                emit.store(running, total_data, k)
                for value, beside in changed:
                    emit.store(value, rows_data, beside)
                return []

            emit.loop(length, [], body)
            return context.get_dummy_value()

        signature = types.void(total, rows, kept, offsets_type, weights_type, types.int64)
        return signature, codegen

    mix_kept.__doc__ = f"""Add n phi of {group} pairs to `total`{
        " and the words' sums" if both else ""
    }.

    Equivalent to, for pair i with offset o, weight w and `kept` as rows of `length`,
    ``total += w * kept[2 * i]``{
        " and ``rows[o + length : o + 2 * length] += w * kept[2 * i]``" if both else ""
    }. The offsets must differ.
    """
    return mix_kept


_dot_own_1, _dot_own_4 = _make_dot_own(1), _make_dot_own(4)
_weigh_1, _weigh_4 = _make_weigh(1), _make_weigh(4)
mix_kept_1, mix_kept_4 = _make_mix_kept(1, both=False), _make_mix_kept(4, both=False)
mix_both_kept_1, mix_both_kept_4 = _make_mix_kept(1, both=True), _make_mix_kept(4, both=True)


@kernel
def dot_own_1(theta, own, rows, inverse, at, kept, length):
    """s_0 and a of one pair, a tuple each.

    Parameters
    ----------
    theta, own : float32 arrays, shape (length,)
        The document's factors, and 1 / gamma.
    rows, inverse : float32 arrays
        Scratch: the words' factors and sums, and 1 / lambda.
    at : tuple of int
        The place of the word's factors in `rows`.
    kept : float32 array, shape (8 length,)
        Written: w and w o of each pair.
    length : int
    """
    sums = _dot_own_1(theta, own, rows, inverse, at, kept, length)
    return sums[:1], sums[1:]


@kernel
def dot_own_4(theta, own, rows, inverse, at, kept, length):
    """`dot_own_1` of four pairs at once."""
    sums = _dot_own_4(theta, own, rows, inverse, at, kept, length)
    return sums[:4], sums[4:]


@kernel
def weigh_1(amount, s, a, kept, length):
    """w f of one pair in place of w in `kept`; returns its s.

    Parameters
    ----------
    amount, s, a : tuples of float32
        m, and what `dot_own_1` returns.
    kept : float32 array, shape (8 length,)
        As `dot_own_1` has left it.
    length : int
    """
    scales = (scale_of(amount[0], s[0], a[0]),)
    return _weigh_1(scales, kept, length)


@kernel(inline="always")
def sum_1(theta, own, rows, inverse, at, amount, excluding, least, kept, length):
    """s of one pair; where something is left out and s_0 is not too small, its w f leads `kept`.

    Parameters as for `dot_own_1` and `weigh_1`, and

    excluding : bool
    least : float32
        Below it s_0 is returned as it is.
    """
    if not excluding:
        return dot_1(theta, rows, at, length)[0]
    s, a = dot_own_1(theta, own, rows, inverse, at, kept, length)
    if s[0] >= least:
        s = weigh_1((amount,), s, a, kept, length)
    return s[0]


@kernel
def weigh_4(amount, s, a, kept, length):
    """`weigh_1` of four pairs at once."""
    scales = (
        scale_of(amount[0], s[0], a[0]),
        scale_of(amount[1], s[1], a[1]),
        scale_of(amount[2], s[2], a[2]),
        scale_of(amount[3], s[3], a[3]),
    )
    return _weigh_4(scales, kept, length)


@kernel
def leave_out_of(phi, gamma_row, lambda_row, amount):
    """The same for one phi, float64 (K,), that was computed without exclusion; in place."""
    n_topics = phi.shape[0]
    a = s = 0.0
    for k in range(n_topics):
        a += phi[k] * phi[k] * (1.0 / np.float64(gamma_row[k]) + 1.0 / np.float64(lambda_row[k]))
    scale = scale_of(amount, 1.0, a)
    for k in range(n_topics):
        own = 1.0 / np.float64(gamma_row[k]) + 1.0 / np.float64(lambda_row[k])
        phi[k] /= 1.0 + scale * phi[k] * own
        s += phi[k]
    for k in range(n_topics):
        phi[k] /= s


@kernel
def kept_entropy(kept, pair, count, s, n_topics, length):
    """n times the entropy of phi = w f / s of a pair in `kept`.

    In float32, as w f is: to 1e-7 nats a token over a corpus. In float64 it took four fifths of a
    pass by cvb0 that asks for the entropy, as one in ten does (64 topics).
    """
    total, inverse = np.float32(0.0), np.float32(1.0) / s
    # As a row of its own: a place that may be negative is no vector's.
    row = kept[2 * length * pair : 2 * length * pair + n_topics]
    for k in range(n_topics):
        phi = row[k] * inverse
        total -= phi * log2_32(max(phi, np.float32(1.2e-38)))
    return np.float64(count) * np.float64(total) * LN2
