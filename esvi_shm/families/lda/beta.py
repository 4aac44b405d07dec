"""beta of words for documents that the fit has not seen: rows of E(lambda) / E(pi), read only.

With many topics most words are nothing in most of them: such a row is a list. Of NIPS with 1024
topics a list has 229 numbers (a mean over pairs), and all rows together are 5 MB instead of 50, so
that they come from nearer caches.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.update import Rule, row_factors_into, topic_factors_into
from esvi_shm.sparse import above_into, bits_into
from esvi_shm.vector import aligned, floats, largest_of, padded, prefetch_row

#: Under vb E of up to `LITTLE` is 0 beside E of `SOMETHING`, as `exp_digamma_row` has it.
LITTLE, SOMETHING = np.float32(0.02), np.float32(0.5)
#: Rows with at most 1 in so many numbers that are not 0 are lists: to go through a list takes as
#: long for each number as so many take in whole rows.
SPARSE = 3
#: In place of how many numbers a row lists: it is whole.
ALL = np.int32(-1)


class Topics(NamedTuple):
    """What documents need of the topics: a row of beta for each of U words.

    Row u begins at `begins[u]` of `values`: padded(K) numbers, zeros beyond K, or, where most of
    them would be 0, only the `listed[u]` others; whose topics stand from `numbered[u]` on.
    Arrays are as `frozen` returns them.
    """

    begins: np.ndarray  # int64 (U,)
    listed: np.ndarray  # int32 (U,): how many are listed; ALL where the row is whole
    values: np.ndarray  # float32
    numbered: np.ndarray  # int64 (U,): where its topics begin in `topics`, if it is a list
    topics: np.ndarray  # int32, ascending in a row
    words: np.ndarray  # int64 (U,): the row of lambda_ behind each row of beta
    # All empty where beta was given:
    sums: np.ndarray  # float32 (U,): of the rows
    apart: np.ndarray  # float32 (U,): of_prior @ row
    of_prior: np.ndarray  # float32 (padded(K),): E(alpha), relative: 1 at the largest
    lambda_: np.ndarray  # float32 (V, K)
    log_topic: np.ndarray  # float64 (K,): -log E(pi)


def frozen(array: np.ndarray, dtype: type) -> np.ndarray:
    """A read-only view, or a copy where type or order differ: one type for compiled code."""
    view = np.ascontiguousarray(array, dtype).view(np.ndarray)[...]
    view.setflags(write=False)
    return view


def given_topics(beta: np.ndarray) -> Topics:
    """Point topics, float32 (V, padded(K)); row v is word v."""
    n_words, length = beta.shape
    nothing = frozen(np.zeros(0), np.float32)
    return Topics(
        begins=frozen(length * np.arange(n_words), np.int64),
        listed=frozen(np.full(n_words, ALL), np.int32),
        values=frozen(beta, np.float32).reshape(-1),
        numbered=frozen(np.zeros(n_words), np.int64),
        topics=frozen(np.zeros(0), np.int32),
        words=frozen(np.arange(n_words), np.int64),
        sums=nothing,
        apart=nothing,
        of_prior=nothing,
        lambda_=frozen(np.zeros((0, length)), np.float32),
        log_topic=frozen(np.zeros(0), np.float64),
    )


def expected_topics(
    lambda_: np.ndarray,
    pi: np.ndarray,
    words: np.ndarray,
    rule: Rule,
    spread: Callable[[Callable[[int, int], object], np.ndarray], object] | None = None,
) -> Topics:
    """beta of some words, from lambda (V, K) and its column sums.

    `spread(work, ends)` calls `work(first, last)` for ranges of words, on threads if it likes, as
    `runtime.threads.for_documents` does.
    """
    n_words, length = len(words), padded(len(pi))
    held, numbers = frozen(lambda_, np.float32), frozen(words, np.int64)
    begins, numbered = np.empty(n_words, np.int64), np.empty(n_words, np.int64)
    listed = np.empty(n_words, np.int32)
    sums, apart = np.empty(n_words, np.float32), np.empty(n_words, np.float32)
    of_prior, factor, log_topic = aligned(length), aligned(length), np.empty(len(pi))
    _expect_topics(frozen(pi, np.float64), rule, of_prior, factor, log_topic)
    parts: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def expect(first: int, last: int) -> None:
        parts[first, last] = _expect_words(
            first, last, held, numbers, rule, of_prior, factor,
            begins, listed, numbered, sums, apart,
        )  # fmt: skip

    if spread is None:
        expect(0, n_words)
    else:
        spread(expect, length * np.arange(n_words + 1))
    all_values = aligned(sum(len(values) for values, _ in parts.values()))
    all_topics = np.empty(sum(len(topics) for _, topics in parts.values()), np.int32)
    end = end_topics = 0
    for first, last in list(parts):
        values, topics = parts.pop((first, last))
        begins[first:last] += end
        numbered[first:last] += end_topics
        all_values[end : end + len(values)] = values
        all_topics[end_topics : end_topics + len(topics)] = topics
        end, end_topics = end + len(values), end_topics + len(topics)
    return Topics(
        begins=frozen(begins, np.int64),
        listed=frozen(listed, np.int32),
        values=frozen(all_values, np.float32),
        numbered=frozen(numbered, np.int64),
        topics=frozen(all_topics, np.int32),
        words=numbers,
        sums=frozen(sums, np.float32),
        apart=frozen(apart, np.float32),
        of_prior=frozen(of_prior, np.float32),
        lambda_=held,
        log_topic=frozen(log_topic, np.float64),
    )


@kernel
def _expect_topics(pi, rule, of_prior, factor, log_topic):
    """What belongs to topics: E(alpha) over the largest, E(pi)**-1 over the largest, its log."""
    # Of one worker, whose contribution is all of pi.
    topic_factors_into(pi.reshape(1, -1), pi, 0, rule, log_topic, factor)
    row_factors_into(rule.alpha, of_prior, rule)
    scale = largest_of(of_prior, 0, of_prior.shape[0])
    for k in range(pi.shape[0]):
        of_prior[k] /= scale


@kernel(allocates=True)
def _expect_words(
    first, last, lambda_, words, rule, of_prior, factor, begins, listed, numbered, sums, apart
):
    """Rows of words first..last-1; returns `values`, whole lines of them, and `topics` of these."""
    n_topics, length = lambda_.shape[1], factor.shape[0]
    zeros, x, expected = floats(n_topics), floats(length), floats(length)
    zeros[:] = 0.0
    bits, numbers = np.empty((1, -(-n_topics // 64)), np.int64), np.empty(length + 4, np.int32)
    n = (last - first) * length
    values, topics = floats(n), np.empty(n // SPARSE, np.int32)
    end = end_topics = 0
    for i in range(first, last):
        row = lambda_[words[i]]
        if i + 1 < last:
            prefetch_row(lambda_, words[i + 1])
        n = _list_above(np.float32(0.0) if rule.cvb0 else LITTLE, row, zeros, bits, numbers, x)
        if not rule.cvb0 and largest_of(x, 0, n) < SOMETHING:
            n = _list_above(np.float32(0.0), row, zeros, bits, numbers, x)
        row_factors_into(x[:n], expected[: padded(n)], rule)
        is_list = SPARSE * n <= n_topics
        if not is_list:
            end = padded(end)
            values[end : end + length] = 0.0
        begins[i], listed[i], numbered[i] = end, n if is_list else ALL, end_topics
        row_sum = row_apart = np.float32(0.0)
        for j in range(n):
            k = numbers[j]
            value = expected[j] * factor[k]
            row_sum += value
            row_apart += value * of_prior[k]
            if is_list:
                values[end + j], topics[end_topics + j] = value, k
            else:
                values[end + k] = value
        sums[i], apart[i] = row_sum, row_apart
        if is_list:
            end, end_topics = end + n, end_topics + n
        else:
            end += length
    return values[: padded(end)].copy(), topics[:end_topics].copy()


@kernel
def _list_above(least, row, zeros, bits, numbers, x):
    """List which numbers of a row are above the least, and these; returns how many there are."""
    above_into(row, zeros, least, bits[0])
    n = bits_into(bits, 0, numbers)
    for j in range(n):
        x[j] = row[numbers[j]]
    return n


@kernel
def sum_columns(lambda_, pi):
    """Write the column sums of lambda (V, K), float64; returns whether all of it is above 0.

    In one go: numpy takes three times as long for both.
    """
    n_words = lambda_.shape[0]
    pi[:] = 0.0
    wrong = 0
    for v in range(0, n_words - 3, 4):
        a, b, c, d = lambda_[v], lambda_[v + 1], lambda_[v + 2], lambda_[v + 3]
        for k in range(pi.shape[0]):
            pi[k] += (np.float64(a[k]) + b[k]) + (np.float64(c[k]) + d[k])
            # Not of a nan, which makes the sum one.
            wrong += (a[k] <= 0.0) | (b[k] <= 0.0) | (c[k] <= 0.0) | (d[k] <= 0.0)
    for v in range(n_words - n_words % 4, n_words):
        for k in range(pi.shape[0]):
            pi[k] += lambda_[v, k]
            wrong += lambda_[v, k] <= 0.0
    return wrong == 0
