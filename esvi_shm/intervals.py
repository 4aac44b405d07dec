"""Credible intervals of a fitted model: which rows and columns are asked for, and in what order.

What an interval is says `metrics.intervals`; see `FittedModel.topic_word_interval`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from esvi_shm.corpus.corpus import numbers_of
from esvi_shm.errors import ParameterError
from esvi_shm.metrics.intervals import Interval, dirichlet_interval
from esvi_shm.parameters import Parameters


def topic_word_interval(
    parameters: Parameters,
    words: Sequence[str],
    asked: Sequence[str],
    topics: Sequence[int] | None,
    level: float,
) -> Interval:
    """Intervals, shape (topics, asked); `words` are those of the model."""
    rows, word_ids = parameters.lambda_rows, parameters.word_ids
    chosen = _topics(parameters, topics)
    asked = _listed("words", asked)
    known = numbers_of(words)
    for word in asked:
        if not isinstance(word, str) or word not in known:
            raise ParameterError("words", "must be words of the model", word)
    ids = np.array([known[word] for word in asked], np.int64)
    if word_ids is not None:
        ids = np.argsort(word_ids)[ids]
    pi = rows.sum(axis=0, dtype=np.float64)[chosen]
    return dirichlet_interval(rows[ids][:, chosen].T, pi[:, None], level)


def doc_topic_interval(
    parameters: Parameters, documents: Sequence[int], topics: Sequence[int] | None, level: float
) -> Interval:
    """Intervals, shape (documents, topics)."""
    chosen = _topics(parameters, topics)
    ends = np.cumsum([len(part) for part in parameters.gamma_parts])
    numbers = _numbers("documents", documents, int(ends[-1]))
    parts = np.searchsorted(ends, numbers, side="right")
    gamma = np.empty((len(numbers), len(parameters.alpha)))
    for i, (d, p) in enumerate(zip(numbers, parts, strict=True)):
        gamma[i] = parameters.gamma_parts[p][d - ends[p]]  # from the end: ends[p] > d
    return dirichlet_interval(gamma[:, chosen], gamma.sum(axis=1, keepdims=True), level)


def _topics(parameters: Parameters, topics: Sequence[int] | None) -> np.ndarray:
    n_topics = len(parameters.alpha)
    return _numbers("topics", range(n_topics) if topics is None else topics, n_topics)


def _numbers(name: str, given: Sequence[int], n: int) -> np.ndarray:
    """Whole numbers from 0 to n - 1, or an error."""
    numbers = _listed(name, given)
    for value in numbers:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not (is_whole and 0 <= value < n):
            raise ParameterError(name, f"must be whole numbers from 0 to {n - 1}", value)
    return np.array(numbers, np.int64)


def _listed(name: str, given: Any) -> list[Any]:
    """What is given, to be gone through more than once."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ParameterError(name, "must be a list", given)
    return list(given)
