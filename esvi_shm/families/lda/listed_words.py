"""lambda and phi_word as arrays, or as lists: what visits do with one of their rows.

Each of these functions stands for two, and which it is is known when a kernel is compiled. With
lists a row of lambda is changed by what a margin of its word changes: it stays their sum, as long
as it has a place for each topic that one of them lists.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from esvi_shm.compile import kernel
from esvi_shm.families.lda.listed import ROUNDING, prefetch_list, unpack_into, word_row_into
from esvi_shm.families.lda.listing import (
    change_row,
    choose_topics,
    has_topics,
    put_row,
    scale_to_tokens,
    tokens_to_list,
)
from esvi_shm.families.lda.thresholds import word_cut
from esvi_shm.sparse import bits_into, prefetch_value
from esvi_shm.special import log
from esvi_shm.vector import largest_of, relax_row, settle_row, unsigned


def settle_word(
    phi_word: Any, i: int, lambda_: Any, word: int, prior: Any, rows: Any, at: Any, length: Any,
    step: Any, frozen: Any, moved: Any, made: Any,
) -> None:  # fmt: skip
    """`vector.relax_row`, where `step` is above 1, and `vector.settle_row`, with row i of the
    margin and a row of lambda; `made` is scratch, float32 (K,).
    """
    raise NotImplementedError("for kernels")


@overload(settle_word, inline="always")
def _settle_word(
    phi_word, i, lambda_, word, prior, rows, at, length, step, frozen, moved, made
):  # fmt: skip
    if isinstance(phi_word, types.Array):

        def of_array(
            phi_word, i, lambda_, word, prior, rows, at, length, step, frozen, moved, made
        ):  # fmt: skip
            if step != 1.0:
                relax_row(rows, at, length, phi_word[i], step)
            settle_row(rows, at, length, phi_word[i], lambda_[word], prior, frozen, moved)

        return of_array

    def of_lists(
        phi_word, i, lambda_, word, prior, rows, at, length, step, frozen, moved, made
    ):  # fmt: skip
        for k in range(made.shape[0]):
            made[k] = 0.0
        unpack_into(phi_word, i, made)
        if step != 1.0:
            relax_row(rows, at, length, made, step)
        # Beyond the prior, as it is listed.
        lambda_row = phi_word.window.sums
        word_row_into(lambda_, word, np.float32(0.0), lambda_row)
        settle_row(rows, at, length, made, lambda_row, np.float32(0.0), frozen, moved)
        _list_word(phi_word, i, made, lambda_, word, lambda_row, frozen, moved)

    return of_lists


@kernel
def _list_word(phi_word, i, row, lambda_, word, lambda_row, frozen, moved):
    """List a whole row of the margin again, and that of lambda, by a look at all topics."""
    window = phi_word.window
    n, total = choose_topics(phi_word, i, row, window.bits, window.own)
    window.without_place[2] += put_row(phi_word, i, row, window.own, n, total, True)
    if frozen:
        return
    n_topics = row.shape[0]
    if total >= 0.0:
        rest, first = phi_word.rest[i], phi_word.first[i]
        for k in range(n_topics):
            lambda_row[k] = max(lambda_row[k] - row[k] + rest, rest)
            moved[k] += rest - row[k]
        for j in range(n):
            k, value = unsigned(window.own[j]), phi_word.values[unsigned(first + j)]
            lambda_row[k] = max(lambda_row[k] - rest + value, value)
            moved[k] += value - rest
    own, tokens = window.own, np.float32(lambda_.tokens[word])
    n, total = choose_topics(lambda_, word, lambda_row, window.bits, own)
    total = tokens_to_list(lambda_.prior, lambda_row, own, n, total, tokens)
    window.without_place[3] += put_row(lambda_, word, lambda_row, own, n, total, True)


def peek_at_word(lambda_: Any, word: int, live: Any, ahead: Any) -> int:
    """Ask for what is known of a word's topics; how many may be its, as `ahead` lists them."""
    raise NotImplementedError("for kernels")


@overload(peek_at_word, inline="always")
def _peek_at_word(lambda_, word, live, ahead):
    if isinstance(lambda_, types.Array):

        def of_array(lambda_, word, live, ahead):
            n = bits_into(live, word, ahead)
            for j in range(n):
                prefetch_value(lambda_, word, ahead[unsigned(j)])
            return n

        return of_array

    def of_lists(lambda_, word, live, ahead):
        prefetch_list(lambda_, word)
        return np.int64(lambda_.size[word])

    return of_lists


def own_topics(
    lambda_: Any, phi_word: Any, live: Any, word: int, i: Any, n_live: int, prior: Any, cvb0: bool,
    lists: Any, at: int, pi_own: Any,
) -> int:  # fmt: skip
    """The topics of a word that are not below `word_cut`; returns how many they are.

    Into `topics` of `lists` from place `at` on, lambda of them into `x`, their bits into `masks`
    for word i of the visit. `n_live` as `peek_at_word` gave it. An array gives back what the margin
    has of the others, and forgets that the word lives in those of which nothing is left.
    """
    raise NotImplementedError("for kernels")


@overload(own_topics, inline="always")
def _own_topics(lambda_, phi_word, live, word, i, n_live, prior, cvb0, lists, at, pi_own):
    if isinstance(lambda_, types.Array):
        return _own_of_array
    return _own_of_list


def _own_of_array(lambda_, phi_word, live, word, i, n_live, prior, cvb0, lists, at, pi_own):
    x, topics, masks, listed = lists.x, lists.topics, lists.masks, lists.listed[i[0] % 2]
    width = live.shape[1]
    own = width * i[0]
    largest, least = np.float32(0.0), np.float32(np.inf)
    for n in range(n_live):
        j, here = unsigned(n), unsigned(at + n)
        k = listed[j]
        value = lambda_[word, unsigned(k)]
        x[j], topics[here] = value, k
        largest, least = max(largest, value - prior), min(least, value - prior)
    rounding = prior * ROUNDING
    cut = max(word_cut(largest, cvb0), rounding)
    for w in range(width):
        masks[own + w] = live[word, w]
    n_own = n_live if least >= cut and least > rounding else 0
    for j in range(n_own, n_live):
        k, value = listed[j], x[j]
        if value - prior >= cut and value - prior > rounding:
            x[n_own] = value
            topics[at + n_own] = k
            n_own += 1
            continue
        bit = np.int64(1) << np.int64(k & 63)
        masks[own + (k >> 6)] &= ~bit
        taken = phi_word[i[1], k]
        phi_word[i[1], k] = 0.0
        if taken > 0.0:
            value = max(value - taken, prior)
            lambda_[word, k] = value
            pi_own[k] -= taken
        if value - prior <= rounding:
            live[word, k >> 6] &= ~bit
    return n_own


def _own_of_list(lambda_, phi_word, live, word, i, n_live, prior, cvb0, lists, at, pi_own):
    x, topics, masks = lists.x, lists.topics, lists.masks
    width = live.shape[1]
    own, first = width * i[0], lambda_.first[word]
    for w in range(width):
        masks[own + w] = 0
    largest = largest_of(lambda_.values, first, first + n_live)
    cut = max(word_cut(largest, cvb0), prior * ROUNDING)
    n_own = np.int64(0)
    if lambda_.rest[word] - phi_word.rest[i[1]] < cut:
        for j in range(n_live):
            here = unsigned(first + j)
            k, value = np.int64(lambda_.topics[here]), lambda_.values[here]
            is_own = np.int64(value >= cut)
            topics[unsigned(at + n_own)], x[unsigned(n_own)] = k, prior + value
            masks[unsigned(own + (k >> 6))] |= is_own << (k & 63)
            n_own += is_own
    return n_own


def put_word(
    lambda_: Any, phi_word: Any, live: Any, word: int, i: Any, prior: Any, want_entropy: bool,
    lists: Any, spill: Any, spilled: Any, moved: Any,
) -> float:  # fmt: skip
    """Turn a word's sums into its row of phi_word, and the change into lambda and `moved`.

    i: (of the visit, of the shard); `spill`, `spilled` as in `update.Scratch`. Returns its part of
    the entropy.
    """
    raise NotImplementedError("for kernels")


@overload(put_word, inline="always")
def _put_word(
    lambda_, phi_word, live, word, i, prior, want_entropy, lists, spill, spilled, moved
):  # fmt: skip
    if isinstance(lambda_, types.Array):
        return _put_into_array
    return _put_into_list


def _put_into_array(
    lambda_, phi_word, live, word, i, prior, want_entropy, lists, spill, spilled, moved
):  # fmt: skip
    topics, rows, more = lists.topics, lists.rows, spill[i[0]]
    is_spilled, bound = spilled[i[0]], 0.0
    for n in range(lists.first[i[0]], lists.first[i[0] + 1]):
        at = unsigned(n)
        k = unsigned(topics[at])
        factor = rows[unsigned(2 * n)]
        new = factor * rows[unsigned(2 * n + 1)]
        if is_spilled:
            new += np.float32(more[k])
            more[k] = 0.0
        if want_entropy:
            bound -= np.float64(new) * log(max(np.float64(factor), 1e-300))
        if new > 0.0:
            live[word, k >> np.uint64(6)] |= np.int64(1) << np.int64(k & np.uint64(63))
        change = new - phi_word[i[1], k]
        moved[k] += change
        lambda_[word, k] = max(lambda_[word, k] + change, prior + new)
        phi_word[i[1], k] = new
    if is_spilled:  # and of topics that are not in its list
        spilled[i[0]] = False
        for k in range(more.shape[0]):
            if more[k] > 0.0:
                new, more[k] = np.float32(more[k]), 0.0
                live[word, k >> 6] |= np.int64(1) << np.int64(k & 63)
                moved[k] += new
                phi_word[i[1], k] += new
                lambda_[word, k] = max(lambda_[word, k] + new, prior + phi_word[i[1], k])
    return bound


def _put_into_list(
    lambda_, phi_word, live, word, i, prior, want_entropy, lists, spill, spilled, moved
):  # fmt: skip
    topics, rows, x, more = lists.topics, lists.rows, lists.x, spill[i[0]]
    first, bound = lists.first[i[0]], 0.0
    n, row, begin = lists.first[i[0] + 1] - first, i[1], phi_word.first[i[1]]
    is_same = has_topics(lambda_, word, topics, first, n) and not spilled[i[0]]
    if is_same and has_topics(phi_word, row, topics, first, n):  # as most often: as it is
        begin_sums, has = lambda_.first[word], np.float32(0.0)
        for j in range(n):
            place, at = unsigned(first + j), unsigned(2 * (first + j))
            here, there = unsigned(begin_sums + j), unsigned(begin + j)
            factor = rows[at]
            new = factor * rows[at + np.uint64(1)]
            if want_entropy:
                bound -= np.float64(new) * log(max(np.float64(factor), 1e-300))
            change = new - phi_word.values[there]
            value = max(lambda_.values[here] + change, new)
            moved[unsigned(topics[place])] += change
            lambda_.values[here], phi_word.values[there] = value, new
            has += value
        scale_to_tokens(lambda_, word, has)
        return bound
    for j in range(n):
        at = unsigned(2 * (first + j))
        factor = rows[at]
        new = factor * rows[at + np.uint64(1)]
        if want_entropy:
            bound -= np.float64(new) * log(max(np.float64(factor), 1e-300))
        x[unsigned(j)] = new
    for j in range(phi_word.size[row]):
        at = unsigned(begin + j)
        moved[unsigned(phi_word.topics[at])] -= phi_word.values[at]
    if phi_word.rest[row] > 0.0:
        rest = phi_word.rest[row]
        for k in range(moved.shape[0]):
            moved[k] -= rest
        for j in range(phi_word.size[row]):
            moved[phi_word.topics[begin + j]] += rest
    rounding = prior * ROUNDING
    if spilled[i[0]]:  # other topics may have some too
        spilled[i[0]] = False
        for j in range(n):
            more[topics[first + j]] += np.float64(x[j])
        n, listed = 0, lists.listed[0]
        for k in range(more.shape[0]):
            if more[k] > 0.0:
                listed[n], x[n] = k, more[k]
                more[k] = 0.0
                n += 1
        change = change_row(lambda_, word, phi_word, row, listed, 0, x, n, rounding, True)
    else:
        change = change_row(lambda_, word, phi_word, row, topics, first, x, n, rounding, True)
    phi_word.window.without_place[2] += change[1]
    phi_word.window.without_place[3] += change[0]
    for j in range(phi_word.size[row]):
        at = unsigned(begin + j)
        moved[unsigned(phi_word.topics[at])] += phi_word.values[at]
    return bound


def prefetch_word(lambda_: Any, phi_word: Any, word: int, i: Any, lists: Any) -> None:
    """Ask for what `put_word` changes."""
    raise NotImplementedError("for kernels")


@overload(prefetch_word, inline="always")
def _prefetch_word(lambda_, phi_word, word, i, lists):
    if isinstance(lambda_, types.Array):

        def of_arrays(lambda_, phi_word, word, i, lists):
            for n in range(lists.first[i[0]], lists.first[i[0] + 1]):
                k = lists.topics[unsigned(n)]
                prefetch_value(lambda_, word, k)
                prefetch_value(phi_word, i[1], k)

        return of_arrays

    def of_lists(lambda_, phi_word, word, i, lists):
        prefetch_list(lambda_, word)
        prefetch_list(phi_word, i[1])

    return of_lists
