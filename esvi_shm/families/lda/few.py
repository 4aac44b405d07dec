"""exp(digamma) of rows of which few values are far from their prior, many rows at once.

After some passes of vb a word has tokens in 6 to 12 of 128 topics, and a document in 15 to 25 (AP,
NIPS); the rest of a row of lambda or gamma lies at the prior, or hardly above. So what is far is
listed, without its places, for a batch of rows; all of the list is computed at once, in whole
vectors that do not wait for each other; and put back over a row of what the prior gives:

    a word        E(eta_v): above it by rounding at most, or not at all
    a document    E(alpha_k + d), d up to `NEAR` alpha**2: a parabola through d = 0, a half of that,
                  and all of it, off by less than 1e-6 of E

That takes 0.5 to 0.8 of the time of whole rows (128 topics, AVX2); one row at a time takes a third
more than those, since each waits for its own list and its own division. Rows with more than half of
their values far from the prior are computed whole, and those whose largest E is below
`LEAST_LARGEST`: float32 has no room below it. The factors are relative, 1 at the largest.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from esvi_shm.compile import kernel
from esvi_shm.sparse import above_into, lowest, popcount
from esvi_shm.special import (
    LEAST_VALUE,
    digamma,
    exp_digamma_row,
    exp_digamma_values,
    exp_digamma_word,
    power_row,
)
from esvi_shm.vector import INT64, Emitter, aligned, data_of, largest_of, padded, prefetch_row

#: Rows of a batch: their lists stay in the nearest cache.
BATCH = 16
#: A value of a document is near its prior up to this times alpha**2, or times 1 if that is less.
NEAR = 0.05
#: What is no more above a word's prior is rounding.
ROUNDING = np.float32(1e-6)
LEAST_LARGEST = np.float32(0.1)
_LEAST = np.float32(LEAST_VALUE)


class Few(NamedTuple):
    """Scratch of a batch; n = padded(K)."""

    bits: np.ndarray  # int64 (ceil(K / 64),): which values of a row are far
    first: np.ndarray  # int64 (BATCH + 1,): where each row's list begins
    places: np.ndarray  # int32 (BATCH (n / 2 + 1),): topics listed
    x: np.ndarray  # float32, the same: their values
    values: np.ndarray  # float32, the same: E of them
    thetas: np.ndarray  # float32 (BATCH, n): factors of a batch of documents
    zeros: np.ndarray  # float32 (K,)
    # Of the prior of documents, by topic; 0 beyond K:
    near: np.ndarray  # float32 (K,): up to here a value is near it
    terms: np.ndarray  # float32 (3 n,): E = terms[k] + d (terms[n + k] + d terms[2 n + k])
    most: np.ndarray  # float32 (1,): the largest E of what is near


def make_few(n_topics: int) -> Few:
    """Scratch for rows of so many topics; its prior must be set before use."""
    length = padded(n_topics)
    most = BATCH * (length // 2 + 1)
    return Few(
        bits=np.zeros(-(-n_topics // 64), np.int64),
        first=np.zeros(BATCH + 1, np.int64),
        places=np.zeros(most, np.int32),
        x=aligned(most),
        values=aligned(most),
        thetas=aligned(BATCH * length).reshape(BATCH, length),
        zeros=np.zeros(n_topics, np.float32),
        near=np.zeros(n_topics, np.float32),
        terms=np.zeros(3 * length, np.float32),
        most=np.zeros(1, np.float32),
    )


def few_bytes(n_topics: int) -> int:
    """Bytes of that scratch, nearly."""
    length = padded(n_topics)
    return 4 * (3 * BATCH * (length // 2 + 1) + (BATCH + 5) * length)


@kernel
def set_prior(alpha, power, few):
    """Take over a prior of documents, float32, shape (K,), and the power of their factors."""
    length = few.terms.shape[0] // 3
    few.most[0] = 0.0
    for k in range(alpha.shape[0]):
        prior = np.float64(alpha[k])
        reach = NEAR * min(prior * prior, 1.0)
        at_0 = np.exp(power * digamma(prior))
        half = np.exp(power * digamma(prior + 0.5 * reach))
        full = np.exp(power * digamma(prior + reach))
        few.near[k] = max(alpha[k] + np.float32(reach), _LEAST)
        near_0 = prior < LEAST_VALUE  # E is 0 to float32
        if not near_0:
            few.most[0] = max(few.most[0], np.float32(full))
        few.terms[k] = 0.0 if near_0 else at_0
        few.terms[length + k] = 0.0 if near_0 else (4.0 * half - 3.0 * at_0 - full) / reach
        curve = 2.0 * (full + at_0 - 2.0 * half) / (reach * reach)
        few.terms[2 * length + k] = 0.0 if near_0 else curve


@intrinsic
def _put_back(typingctx, values, places, first, last, scale, out):
    """``out[places[first:last]] = values[first:last] * scale``."""

    def codegen(context, builder, signature, args):
        values_data, places_data, out_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 5)
        )
        with cgutils.for_range_slice(builder, args[2], args[3], INT64(1), INT64) as (i, _):
            k = builder.zext(builder.load(builder.gep(places_data, [i])), INT64)
            value = builder.load(builder.gep(values_data, [i]))
            builder.store(builder.fmul(value, args[4]), builder.gep(out_data, [k]))
        return context.get_dummy_value()

    return types.void(values, places, types.int64, types.int64, types.float32, out), codegen


@kernel(inline="always")  # to hand over all of `few` takes four times as long as what it does
def _list_far(x, base, limit, few, n):
    """List what is above base + limit in a row behind the n values listed; how many are then.

    The same n where there is none, or more than half of the row.
    """
    bits = few.bits
    above_into(x, base, limit, bits)
    n_far = 0
    for w in range(bits.shape[0]):
        n_far += popcount(bits[w])
    places, listed = few.places, few.x
    for w in range(bits.shape[0] if 2 * n_far <= x.shape[0] else 0):
        left = bits[w]
        while left != 0:
            # Unsigned: to look whether an index is negative takes a third of this loop's time.
            k, end = np.uint64(64 * w + lowest(left)), np.uint64(n)
            places[end] = k
            listed[end] = x[k]
            n += 1
            left &= left - 1
    return n


@intrinsic
def _fill_word(typingctx, edge, factor, rows, at):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        factor_data, rows_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (1, 2)
        )
        length = builder.extract_value(
            context.make_array(signature.args[1])(context, builder, args[1]).shape, 0
        )
        edge = emit.broadcast(args[0])

        def body(load, store, k):
            here = builder.add(args[3], k)
            emit.store(builder.fmul(edge, load(factor_data)), rows_data, here)

        emit.each(length, body)
        return context.get_dummy_value()

    return types.void(types.float32, factor, rows, types.int64), codegen


@intrinsic
def _fill_document(typingctx, x, prior, n_topics, terms, length, scale, out):
    def codegen(context, builder, signature, args):
        emit = Emitter(builder)
        x_data, prior_data, terms_data, out_data = (
            data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 3, 6)
        )
        scale, length = emit.broadcast(args[5]), args[4]

        def body(load, store, k):
            d = builder.fsub(load(x_data), load(prior_data))
            constant, slope, curve = (
                emit.load(terms_data, builder.add(k, builder.mul(length, length.type(i))))
                for i in range(3)
            )
            value = emit.multiply_add(d, emit.multiply_add(d, curve, slope), constant)
            emit.store(builder.fmul(value, scale), out_data, k)

        emit.each(args[2], body)
        return context.get_dummy_value()

    return types.void(
        x, prior, types.int64, terms, types.int64, types.float32, out
    ), codegen  # fmt: skip


@kernel(inline="always")
def _values_of(few, n, power):
    """E to the power of the n values listed."""
    exp_digamma_values(few.x, n, few.values)
    if power != 1.0:
        power_row(few.values[:n], power)


@kernel
def _whole_word(x, power, topic_factor, rows, at):
    """The factors of a word by a look at all topics."""
    if power == 1.0:
        exp_digamma_word(x, topic_factor, rows, at)
        return
    length = topic_factor.shape[0]
    row = rows[at : at + length]
    exp_digamma_row(x, row)
    power_row(row, power)
    for k in range(length):
        row[k] *= topic_factor[k]


@kernel
def word_factors_of(lambda_, word_row, first, last, eta, power, topic_factor, few, rows):
    """beta_vk = E(lambda_vk) / E(pi_k) of words first..last-1, relative.

    Equivalent, but for the scale of a row, to `special.exp_digamma_word` of each; E to the power.
    """
    length = topic_factor.shape[0]
    places, listed, values, starts = few.places, few.x, few.values, few.first
    for batch in range(first, last, BATCH):
        size, n = min(BATCH, last - batch), 0
        for j in range(size):
            word = word_row[batch + j]
            if batch + j + 2 < last:
                prefetch_row(lambda_, word_row[batch + j + 2])
            starts[j] = n
            limit = max(eta[word] + eta[word] * ROUNDING, _LEAST)
            n = _list_far(lambda_[word], few.zeros, limit, few, n)
            if n > starts[j]:
                listed[n] = max(eta[word], _LEAST)
                n += 1
        starts[size] = n
        _values_of(few, n, power)
        for j in range(size):
            word, at = word_row[batch + j], 2 * length * (batch + j - first)
            begin, end = starts[j], starts[j + 1] - 1
            largest = np.float32(0.0)
            if begin < end:
                largest = largest_of(values, begin, end)
            if largest < LEAST_LARGEST:
                _whole_word(lambda_[word], power, topic_factor, rows, at)
                continue
            scale = np.float32(1.0) / largest
            edge = values[end] * scale if eta[word] >= _LEAST else np.float32(0.0)
            _fill_word(edge, topic_factor, rows, at)
            start = np.uint64(at)
            for i in range(begin, end):
                k, value = np.uint64(places[np.uint64(i)]), values[np.uint64(i)]
                rows[start + k] = value * scale * topic_factor[k]


@kernel
def document_factors_of(gamma, row_doc, first, last, alpha, power, few):
    """theta_dk = E(gamma_dk) of rows first..last-1, at most `BATCH`, relative, into `few.thetas`.

    Equivalent, but for the scale of a row, to `special.exp_digamma_row` of each; E to the power.
    """
    n_topics, length = gamma.shape[1], few.thetas.shape[1]
    values, starts = few.values, few.first
    n = 0
    for j in range(last - first):
        starts[j] = n
        n = _list_far(gamma[row_doc[first + j]], few.near, np.float32(0.0), few, n)
    starts[last - first] = n
    _values_of(few, n, power)
    for j in range(last - first):
        x, theta = gamma[row_doc[first + j]], few.thetas[j]
        largest = max(largest_of(values, starts[j], starts[j + 1]), few.most[0])
        if starts[j] == starts[j + 1] or largest < LEAST_LARGEST:
            exp_digamma_row(x, theta)
            if power != 1.0:
                power_row(theta, power)
            continue
        scale = np.float32(1.0) / largest
        _fill_document(x, alpha, n_topics, few.terms, length, scale, theta)
        _put_back(values, few.places, starts[j], starts[j + 1], scale, theta)
