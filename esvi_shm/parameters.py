"""Dirichlet parameters as the engine left them, and the topics that are read off them.

Rows of lambda are in the order of the blocks, gamma in the parts of the workers, all still in
shared memory; nothing here copies them whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from esvi_shm.arrays import MadeRows
from esvi_shm.compact import CompactRows

#: Rows that are copied at a time where the order changes.
CHUNK = 4096
#: Columns that are made contiguous at a time; of rows that are made, for which all entries are gone
#: through, as many as have so many numbers.
COLUMNS, MADE_NUMBERS = 16, 1 << 23
#: What is no more above its prior, as a share of it, is rounding.
ROUNDING = 4e-6


@dataclass(frozen=True)
class Parameters:
    """Dirichlet parameters and how they are stored.

    lambda, alpha and eta are read only: what is made of them may be kept.

    Attributes
    ----------
    lambda_rows : float array or MadeRows, shape (V, K)
        Rows in the order of `word_ids`.
    word_ids : int array, shape (V,), or None
        The word of each row; None: row v is word v.
    gamma_parts : sequence of float arrays or CompactRows, shapes (D_p, K)
        Together the documents in order.
    alpha, eta : float64 arrays, shapes (K,) and (V,)
    """

    lambda_rows: Any
    word_ids: np.ndarray | None
    gamma_parts: Sequence[np.ndarray | CompactRows]
    alpha: np.ndarray
    eta: np.ndarray

    def __post_init__(self) -> None:
        for name in ("lambda_rows", "alpha", "eta"):
            if isinstance(getattr(self, name), MadeRows):
                continue
            view = getattr(self, name)[...]
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # what was pickled may be written to

    def lambda_chunks(self) -> Iterator[np.ndarray]:
        """lambda in the order of the vocabulary, some rows at a time."""
        n_words = len(self.lambda_rows)
        row_of = None if self.word_ids is None else np.argsort(self.word_ids)
        for first in range(0, n_words, CHUNK):
            if row_of is None:
                yield self.lambda_rows[first : first + CHUNK]
            else:
                yield self.lambda_rows[row_of[first : first + CHUNK]]

    def gamma_chunks(self) -> Iterator[np.ndarray]:
        """gamma in the order of the documents, some rows at a time."""
        for part in self.gamma_parts:
            for first in range(0, len(part), CHUNK):
                yield part[first : first + CHUNK]


class Topic(NamedTuple):
    """A topic: its share of the corpus's tokens, and its most probable words, best first.

    No words where no tokens came to it: what is left is the prior, and any order of it chance.
    """

    number: int
    share: float
    words: tuple[str, ...]
    weights: tuple[float, ...]


def unused_topics(column_sums: np.ndarray, eta_total: float) -> np.ndarray:
    """Which topics have no tokens: what is in lambda is the prior, up to what rounding leaves.

    That is less than half a token, and less than a millionth of all (counts may be fractions).

    Parameters
    ----------
    column_sums : float64 array, shape (K,)
        Of lambda.
    eta_total : float
        Sum of the topics' prior.

    Returns
    -------
    bool array, shape (K,)

    Examples
    --------
    >>> unused_topics(np.array([2.0, 5.0]), 2.0).tolist()
    [True, False]
    """
    tokens = column_sums - eta_total
    rounding = eta_total * np.finfo(np.float32).eps
    return tokens <= max(min(0.5, 1e-6 * tokens.sum()), rounding)


def used_topics(model: Any) -> np.ndarray:
    """The numbers of a fitted model's topics that have tokens, or of all if none has."""
    pi = model.lambda_.sum(axis=0, dtype=np.float64)
    used = np.flatnonzero(~unused_topics(pi, float(model.eta.sum())))
    return used if len(used) else np.arange(len(pi))


def iterate_topics(parameters: Parameters, words: Sequence[str], n: int) -> Iterator[Topic]:
    """The `n` most probable words of each topic, in the order of the topics.

    Parameters
    ----------
    parameters : Parameters
    words : sequence of str, length V
    n : int

    Yields
    ------
    Topic
        Of equally probable words the one first in the alphabet comes first. Words that have no
        more than their prior are not among them: a topic that nothing uses has none.
    """
    rows, word_ids = parameters.lambda_rows, parameters.word_ids
    eta_total = float(parameters.eta.sum())
    pi = rows.sum(axis=0, dtype=np.float64)
    tokens = np.maximum(pi - eta_total, 0.0)
    shares = tokens / max(tokens.sum(), 1e-300)
    unused = unused_topics(pi, eta_total)
    n = min(n, len(rows))
    is_made = isinstance(rows, MadeRows)
    step = max(MADE_NUMBERS // len(rows), COLUMNS) if is_made else COLUMNS
    for first in range(0, rows.shape[1], step):
        last = min(first + step, rows.shape[1])
        columns = rows.columns(first, last) if is_made else rows[:, first:last]
        for k, column in enumerate(np.ascontiguousarray(columns.T), first):
            if unused[k]:
                yield Topic(k, float(shares[k]), (), ())
                continue
            # All that tie with the last place, so that the choice is the alphabet's.
            least = np.partition(column, -n)[-n] if n else np.inf
            best = np.flatnonzero(column >= least)
            numbers = best if word_ids is None else word_ids[best]
            has_more = column[best] > parameters.eta[numbers] * (1.0 + ROUNDING)
            best, ids = best[has_more], numbers[has_more].tolist()
            named = zip(-column[best], (words[v] for v in ids), strict=True)
            ranked = sorted(named, key=tuple)[:n]
            weights = tuple(float(-value / pi[k]) for value, _ in ranked)
            yield Topic(k, float(shares[k]), tuple(word for _, word in ranked), weights)
