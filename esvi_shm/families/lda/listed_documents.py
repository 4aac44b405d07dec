"""gamma and phi_doc as arrays, or as lists: what visits over active sets do with a document's rows.

As in `listed_words`, each of these functions stands for two.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from esvi_shm.families.lda.listed import ROUNDING, prefetch_list, unpack_into
from esvi_shm.families.lda.listing import change_row, has_topics, scale_to_tokens
from esvi_shm.families.lda.thresholds import document_cut
from esvi_shm.sparse import bits_into, prefetch_value
from esvi_shm.vector import unsigned


def peek_at_document(gamma: Any, phi_doc: Any, live: Any, d: int, r: int, ahead: Any) -> int:
    """Ask for rows d of gamma and r of phi_doc; how many topics `ahead` has of the document."""
    raise NotImplementedError("for kernels")


@overload(peek_at_document, inline="always")
def _peek_at_document(gamma, phi_doc, live, d, r, ahead):
    if isinstance(gamma, types.Array):

        def of_arrays(gamma, phi_doc, live, d, r, ahead):
            n_live = bits_into(live, d, ahead)
            for n in range(n_live):
                k = ahead[unsigned(n)]
                prefetch_value(gamma, d, k)
                prefetch_value(phi_doc, r, k)
            return n_live

        return of_arrays

    def of_lists(gamma, phi_doc, live, d, r, ahead):
        prefetch_list(gamma, d)
        prefetch_list(phi_doc, r)
        return np.int64(gamma.size[d])

    return of_lists


def own_of_document(
    gamma: Any, phi_doc: Any, live: Any, d: int, r: int, own: Any, n_live: int, x: Any,
    alpha: Any, most_alpha: Any, cvb0: bool,
) -> tuple[int, float]:  # fmt: skip
    """The topics of a document that are not below `document_cut`, and gamma of them into `x`.

    Returns how many they are, and the largest gamma of another. `own` and `n_live` are those that
    `peek_at_document` gave; written. An array gives back what its row of phi_doc has of the others,
    and forgets that the document lives in those of which nothing is left.
    """
    raise NotImplementedError("for kernels")


@overload(own_of_document, inline="always")
def _own_of_document(gamma, phi_doc, live, d, r, own, n_live, x, alpha, most_alpha, cvb0):
    if isinstance(gamma, types.Array):
        return _own_of_arrays
    return _own_of_lists


def _own_of_arrays(gamma, phi_doc, live, d, r, own, n_live, x, alpha, most_alpha, cvb0):
    old = phi_doc[r]
    largest = np.float32(0.0)
    for n in range(n_live):
        k = unsigned(own[unsigned(n)])
        largest = max(largest, gamma[d, k] - alpha[k])
    cut = document_cut(largest, cvb0)
    beyond = most_alpha + most_alpha * ROUNDING
    n_own = 0
    for n in range(n_live):
        k = unsigned(own[unsigned(n)])
        above = gamma[d, k] - alpha[k]
        rounding = alpha[k] * ROUNDING
        if above > rounding and above >= cut:
            x[unsigned(n_own)] = gamma[d, k]
            own[unsigned(n_own)] = k
            n_own += 1
            continue
        if old[k] > 0.0:
            gamma[d, k] = max(gamma[d, k] - old[k], alpha[k])
            old[k] = 0.0
        if gamma[d, k] - alpha[k] <= rounding:
            live[d, k >> np.uint64(6)] &= ~(np.int64(1) << np.int64(k & np.uint64(63)))
        beyond = max(beyond, gamma[d, k])
    return n_own, beyond


def _own_of_lists(gamma, phi_doc, live, d, r, own, n_live, x, alpha, most_alpha, cvb0):
    first, first_old, n_old = gamma.first[d], phi_doc.first[r], phi_doc.size[r]
    largest = np.float32(0.0)
    for n in range(n_live):
        here = unsigned(first + n)
        largest = max(largest, gamma.values[here] - alpha[unsigned(gamma.topics[here])])
    cut = document_cut(largest, cvb0)
    rest = max(gamma.rest[d] - phi_doc.rest[r], np.float32(0.0))
    beyond = most_alpha + most_alpha * ROUNDING + rest
    n_own = a = 0
    for n in range(n_live if rest < cut else 0):
        here = unsigned(first + n)
        k, value = np.int64(gamma.topics[here]), gamma.values[here]
        is_old = (np.int64(phi_doc.topics[unsigned(first_old + a)]) == k) & (a < n_old)
        old = phi_doc.values[unsigned(first_old + a)] if is_old else phi_doc.rest[r]
        is_own = value - alpha[unsigned(k)] >= cut
        own[unsigned(n_own)], x[unsigned(n_own)] = k, value
        beyond = beyond if is_own else max(beyond, value - old)
        n_own += is_own
        a += is_old
    return n_own, beyond


def whole_rows(gamma: Any) -> Any:
    """The matrix that has a document's row between `open_row` and `close_row`, at `whole_at`."""
    raise NotImplementedError("for kernels")


@overload(whole_rows, inline="always")
def _whole_rows(gamma):
    if isinstance(gamma, types.Array):
        return lambda gamma: gamma
    return lambda gamma: gamma.window.gamma


def whole_at(gamma: Any, d: int) -> int:
    """Which of its rows that is."""
    raise NotImplementedError("for kernels")


@overload(whole_at, inline="always")
def _whole_at(gamma, d):
    if isinstance(gamma, types.Array):
        return lambda gamma, d: d
    return lambda gamma, d: 0


def open_row(gamma: Any, d: int) -> None:
    """Make a document's row whole."""
    raise NotImplementedError("for kernels")


@overload(open_row, inline="always")
def _open_row(gamma, d):
    if isinstance(gamma, types.Array):
        return lambda gamma, d: None
    return lambda gamma, d: unpack_into(gamma, d, gamma.window.gamma[0])


def close_row(gamma: Any, d: int) -> None:
    """Have the window at the prior again; the document's row is as it was when it was opened."""
    raise NotImplementedError("for kernels")


@overload(close_row, inline="always")
def _close_row(gamma, d):
    if isinstance(gamma, types.Array):
        return lambda gamma, d: None

    def of_lists(gamma, d):
        row = gamma.window.gamma[0]
        for j in range(gamma.size[d]):
            k = unsigned(gamma.topics[unsigned(gamma.first[d] + j)])
            row[k] = gamma.prior[k]
        if gamma.rest[d] > 0.0:
            for k in range(row.shape[0]):
                row[k] = gamma.prior[k]

    return of_lists


def put_document(
    gamma: Any, phi_doc: Any, live: Any, d: int, r: int, own: Any, values: Any, n: int, alpha: Any
) -> None:
    """Put a new row r into phi_doc, n topics and their values, and the change into gamma."""
    raise NotImplementedError("for kernels")


@overload(put_document, inline="always")
def _put_document(gamma, phi_doc, live, d, r, own, values, n, alpha):
    if isinstance(gamma, types.Array):

        def of_arrays(gamma, phi_doc, live, d, r, own, values, n, alpha):
            old = phi_doc[r]
            for j in range(n):
                k, new = unsigned(own[unsigned(j)]), values[unsigned(j)]
                if new > 0.0:
                    live[d, k >> np.uint64(6)] |= np.int64(1) << np.int64(k & np.uint64(63))
                gamma[d, k] = max(gamma[d, k] + (new - old[k]), alpha[k] + new)
                old[k] = new

        return of_arrays

    def of_lists(gamma, phi_doc, live, d, r, own, values, n, alpha):
        if has_topics(gamma, d, own, 0, n) and has_topics(phi_doc, r, own, 0, n):
            first, begin, has = gamma.first[d], phi_doc.first[r], np.float32(0.0)
            for j in range(n):
                here, there = unsigned(first + j), unsigned(begin + j)
                new, least = values[unsigned(j)], alpha[unsigned(own[unsigned(j)])]
                value = max(gamma.values[here] + (new - phi_doc.values[there]), least + new)
                gamma.values[here], phi_doc.values[there] = value, new
                has += value - least
            scale_to_tokens(gamma, d, has)
            return
        window = gamma.window
        outside = change_row(gamma, d, phi_doc, r, own, 0, values, n, np.float32(0.0), False)
        if outside[0] > 0.0:
            of_row = 0.0
            for j in range(n):
                of_row += np.float64(values[unsigned(j)])
            window.without_place[0] += outside[0] * of_row / gamma.tokens[d]
        window.without_place[1] += outside[1]

    return of_lists
