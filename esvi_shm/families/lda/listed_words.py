"""The words' margin phi_word as an array, or as lists: what visits do with one of its rows.

Each of these functions stands for two, and which it is is known when a kernel is compiled: with an
array it works on the row itself, with `Listed` on a copy that is listed again. Then what has no
place is given back to lambda and to the sums of what moved, as it is to phi_word: they stay the
sums of the margins.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from esvi_shm.compile import kernel
from esvi_shm.families.lda.listed import choose_among, choose_topics, mark, put_row, unpack_into
from esvi_shm.sparse import bits_into, prefetch_value
from esvi_shm.vector import relax_row, settle_row, unsigned


def settle_word(
    phi_word: Any, i: int, rows: Any, at: Any, length: Any, step: Any, lambda_row: Any,
    prior: Any, frozen: Any, moved: Any, made: Any,
) -> None:  # fmt: skip
    """`vector.relax_row`, where `step` is above 1, and `vector.settle_row` with row i; `made` is
    scratch, float32 (K,).
    """
    raise NotImplementedError("for kernels")


@overload(settle_word, inline="always")
def _settle_word(phi_word, i, rows, at, length, step, lambda_row, prior, frozen, moved, made):
    if isinstance(phi_word, types.Array):

        def of_array(
            phi_word, i, rows, at, length, step, lambda_row, prior, frozen, moved, made
        ):  # fmt: skip
            if step != 1.0:
                relax_row(rows, at, length, phi_word[i], step)
            settle_row(rows, at, length, phi_word[i], lambda_row, prior, frozen, moved)

        return of_array

    def of_lists(phi_word, i, rows, at, length, step, lambda_row, prior, frozen, moved, made):
        for k in range(made.shape[0]):
            made[k] = 0.0
        unpack_into(phi_word, i, made)
        if step != 1.0:
            relax_row(rows, at, length, made, step)
        settle_row(rows, at, length, made, lambda_row, prior, frozen, moved)
        _list_word(phi_word, i, made, lambda_row, prior, frozen, moved)

    return of_lists


@kernel
def _list_word(phi_word, i, row, lambda_row, prior, frozen, moved):
    window = phi_word.window
    n, total = choose_topics(phi_word, i, row, window.bits, window.own)
    window.without_place[2] += put_row(phi_word, i, row, window.own, n, total, True)
    if total < 0.0 or frozen:
        return
    rest, first = phi_word.rest[i], phi_word.first[i]
    for k in range(row.shape[0]):
        lambda_row[k] = max(lambda_row[k] - row[k] + rest, prior + rest)
        moved[k] += rest - row[k]
    for j in range(n):
        k, value = unsigned(window.own[j]), phi_word.values[unsigned(first + j)]
        lambda_row[k] = max(lambda_row[k] - rest + value, prior + value)
        moved[k] += value - rest


def open_word(phi_word: Any, i: int) -> None:
    """Before row i is updated over active sets, which know of no topic that is not listed."""
    raise NotImplementedError("for kernels")


@overload(open_word, inline="always")
def _open_word(phi_word, i):
    if isinstance(phi_word, types.Array):
        return lambda phi_word, i: None
    return lambda phi_word, i: unpack_into(phi_word, i, phi_word.window.word)


def held(phi_word: Any, i: int, k: int) -> Any:
    """What the row that is open, i, has of topic k."""
    raise NotImplementedError("for kernels")


@overload(held, inline="always")
def _held(phi_word, i, k):
    if isinstance(phi_word, types.Array):
        return lambda phi_word, i, k: phi_word[i, k]
    return lambda phi_word, i, k: phi_word.window.word[k]


def hold(phi_word: Any, i: int, k: int, value: Any) -> None:
    """Set it."""
    raise NotImplementedError("for kernels")


@overload(hold, inline="always")
def _hold(phi_word, i, k, value):
    if isinstance(phi_word, types.Array):

        def in_array(phi_word, i, k, value):
            phi_word[i, k] = value

        return in_array

    def in_window(phi_word, i, k, value):
        phi_word.window.word[k] = value

    return in_window


def close_word(
    phi_word: Any, i: int, live_row: Any, lambda_row: Any, prior: Any, moved: Any
) -> None:
    """After that update: `live_row` has a bit for each topic that has come to the row."""
    raise NotImplementedError("for kernels")


@overload(close_word, inline="always")
def _close_word(phi_word, i, live_row, lambda_row, prior, moved):
    if isinstance(phi_word, types.Array):
        return lambda phi_word, i, live_row, lambda_row, prior, moved: None
    return lambda phi_word, i, live_row, lambda_row, prior, moved: _list_word_again(
        phi_word, i, live_row, lambda_row, prior, moved
    )


@kernel
def _list_word_again(phi_word, i, live_row, lambda_row, prior, moved):
    window = phi_word.window
    row, bits, own = window.word, window.bits, window.own
    for w in range(live_row.shape[0]):
        bits[0, w] = live_row[w]
    mark(phi_word, i, bits[0])
    n_had = bits_into(bits, 0, own)
    places = phi_word.first[i + 1] - phi_word.first[i]
    n, total = choose_among(row, phi_word.prior, places, own, n_had)
    window.without_place[2] += put_row(phi_word, i, row, own, n, total, False)
    bits_into(bits, 0, own)
    if total >= 0.0:
        for j in range(n_had):
            k = unsigned(own[unsigned(j)])
            lambda_row[k] -= row[k]
            moved[k] -= row[k]
            row[k] = 0.0
        unpack_into(phi_word, i, row)
        for j in range(n_had):
            k = unsigned(own[unsigned(j)])
            lambda_row[k] = max(lambda_row[k] + row[k], prior + row[k])
            moved[k] += row[k]
    for j in range(n_had):
        row[unsigned(own[unsigned(j)])] = 0.0


def take(phi_word: Any, i: int, k: int) -> Any:
    """What row i has of topic k, which has nothing then."""
    raise NotImplementedError("for kernels")


@overload(take, inline="always")
def _take(phi_word, i, k):
    if isinstance(phi_word, types.Array):

        def of_array(phi_word, i, k):
            taken = phi_word[i, k]
            phi_word[i, k] = 0.0
            return taken

        return of_array
    return lambda phi_word, i, k: _take_listed(phi_word, i, k)


@kernel
def _take_listed(phi_word, i, k):
    low, high = phi_word.first[i], phi_word.first[i] + phi_word.size[i]
    end = high
    while low < high:
        middle = (low + high) // 2
        if phi_word.topics[middle] < k:
            low = middle + 1
        else:
            high = middle
    taken = np.float32(0.0)
    if low < end and phi_word.topics[low] == k:
        taken = phi_word.values[low]
        phi_word.values[low] = 0.0
    return taken


def prefetch_entry(phi_word: Any, i: int, k: int) -> None:
    """Ask for what row i has of topic k; a list comes by itself."""
    raise NotImplementedError("for kernels")


@overload(prefetch_entry, inline="always")
def _prefetch_entry(phi_word, i, k):
    if isinstance(phi_word, types.Array):
        return lambda phi_word, i, k: prefetch_value(phi_word, i, k)
    return lambda phi_word, i, k: None
