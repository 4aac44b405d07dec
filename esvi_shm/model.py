"""The fitted model: what people look at, save and load.

It holds the Dirichlet parameters as the engine left them (rows of lambda in the order of the
blocks, gamma in the parts of the workers, all still in shared memory) and puts them in order
where they are asked for, so that a large model is never held twice without need.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime.record import Record, Result

#: Rows that are copied at a time where the order changes.
CHUNK = 4096


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


@dataclass(frozen=True)
class Parameters:
    """Dirichlet parameters and how they are stored.

    Attributes
    ----------
    lambda_rows : float array, shape (V, K)
        Rows in the order of `word_ids`.
    word_ids : int array, shape (V,), or None
        The word of each row; None: row v is word v.
    gamma_parts : sequence of float arrays, shapes (D_p, K)
        Together the documents in order.
    alpha, eta : float64 arrays, shapes (K,) and (V,)
    """

    lambda_rows: np.ndarray
    word_ids: np.ndarray | None
    gamma_parts: Sequence[np.ndarray]
    alpha: np.ndarray
    eta: np.ndarray

    def lambda_chunks(self) -> Iterator[np.ndarray]:
        """lambda in the order of the vocabulary, some rows at a time."""
        n_words = len(self.lambda_rows)
        row_of = None if self.word_ids is None else np.argsort(self.word_ids)
        for first in range(0, n_words, CHUNK):
            if row_of is None:
                yield self.lambda_rows[first : first + CHUNK]
            else:
                yield self.lambda_rows[row_of[first : first + CHUNK]]


class FittedModel:
    """A fitted topic model.

    Parameters
    ----------
    parameters : Parameters
    words : sequence of str, length V
    history : list of Record
    summary : dict
        What `summary.json` holds; see the README.

    Examples
    --------
    >>> from esvi_shm.config import FitConfig
    >>> from esvi_shm.corpus import Corpus
    >>> from esvi_shm.runtime import engine
    >>> corpus = Corpus.from_tokens([["sea", "ship"], ["sea", "salt"]] * 5)
    >>> result = engine.fit(corpus, FitConfig(n_topics=1, n_workers=1, n_passes=2))
    >>> model = FittedModel.from_result(result, corpus)
    >>> model.topics(1)[0].words
    ('sea',)
    >>> model.topic_word.shape, model.doc_topic.shape
    ((1, 3), (10, 1))
    >>> model
    FittedModel(1 topics, 3 words, 10 documents, 2 passes, ELBO -27.443)
    """

    def __init__(
        self,
        parameters: Parameters,
        words: Sequence[str],
        history: list[Record],
        summary: dict[str, Any],
    ) -> None:
        self.parameters, self.words = parameters, words
        self.history, self.summary = history, summary

    def __repr__(self) -> str:
        n_words, n_topics = self.parameters.lambda_rows.shape
        n_documents = sum(len(part) for part in self.parameters.gamma_parts)
        text = f"{n_topics} topics, {n_words} words, {n_documents} documents"
        if self.history:
            text += f", {self.history[-1].passes:g} passes, ELBO {self.elbo:.6g}"
        return f"FittedModel({text})"

    @classmethod
    def from_result(cls, result: Result, corpus: Corpus) -> "FittedModel":
        """The model of a finished fit of `corpus`."""
        parameters = Parameters(
            result.lambda_rows, result.word_ids, result.gamma_shards, result.alpha, result.eta
        )
        words = corpus.vocabulary or [corpus.word(v) for v in range(corpus.n_words)]
        return cls(parameters, words, result.history, summarise(result, corpus))

    @property
    def alpha(self) -> np.ndarray:
        """Prior of the documents, float64, shape (K,)."""
        return self.parameters.alpha

    @property
    def eta(self) -> np.ndarray:
        """Prior of the topics, float64, shape (V,)."""
        return self.parameters.eta

    @property
    def lambda_(self) -> np.ndarray:
        """Dirichlet parameters of the topics, float32, shape (V, K)."""
        if self.parameters.word_ids is None:
            return self.parameters.lambda_rows
        return np.concatenate(list(self.parameters.lambda_chunks()))

    @property
    def gamma(self) -> np.ndarray:
        """Dirichlet parameters of the documents, float32, shape (D, K)."""
        parts = self.parameters.gamma_parts
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @property
    def topic_word(self) -> np.ndarray:
        """E[beta]: distribution of each topic over the words, shape (K, V), rows sum to 1."""
        lambda_ = self.lambda_
        return (lambda_ / lambda_.sum(axis=0, dtype=np.float64)).T

    @property
    def doc_topic(self) -> np.ndarray:
        """E[theta]: distribution of each document over the topics, shape (D, K)."""
        gamma = self.gamma
        return gamma / gamma.sum(axis=1, keepdims=True, dtype=np.float64)

    @property
    def elbo(self) -> float:
        """The evidence lower bound L of the training corpus, in nats."""
        return self.history[-1].elbo

    def topics(self, n: int = 10) -> list[Topic]:
        """The `n` most probable words of each topic, as a list; see `iterate_topics`."""
        return list(self.iterate_topics(n))

    def iterate_topics(self, n: int = 10) -> Iterator[Topic]:
        """The `n` most probable words of each topic, in the order of the topics.

        Parameters
        ----------
        n : int

        Yields
        ------
        Topic
            Of equally probable words the one first in the alphabet comes first. A topic that
            nothing uses has none.
        """
        rows, word_ids = self.parameters.lambda_rows, self.parameters.word_ids
        pi = rows.sum(axis=0, dtype=np.float64)
        tokens = np.maximum(pi - self.eta.sum(), 0.0)
        shares = tokens / max(tokens.sum(), 1e-300)
        unused = unused_topics(pi, float(self.eta.sum()))
        n = min(n, len(rows))
        # A column of a row-major array is slow to read alone.
        for first in range(0, rows.shape[1], 16):
            for k, column in enumerate(np.ascontiguousarray(rows[:, first : first + 16].T), first):
                if unused[k]:
                    yield Topic(k, float(shares[k]), (), ())
                    continue
                # All that tie with the last place, so that the choice is the alphabet's.
                least = np.partition(column, -n)[-n] if n else np.inf
                best = np.flatnonzero(column >= least)
                ids = (best if word_ids is None else word_ids[best]).tolist()
                ranked = sorted(
                    zip(-column[best], (self.words[v] for v in ids), strict=True), key=tuple
                )[:n]
                words = tuple(word for _, word in ranked)
                weights = tuple(float(-value / pi[k]) for value, _ in ranked)
                yield Topic(k, float(shares[k]), words, weights)

    def save(self, folder: str) -> None:
        """Write the model directory; see `esvi_shm.store`."""
        from esvi_shm import store

        store.save(self, folder)


def summarise(result: Result, corpus: Corpus) -> dict[str, Any]:
    """The figures of a fit, as `summary.json` holds them."""
    config, last = result.config, result.history[-1]
    column_sums = result.lambda_rows.sum(axis=0, dtype=np.float64)
    known = np.isfinite(last.elbo_f)
    n_passes = round(result.passes, 3)
    return {
        "n_documents": corpus.n_documents,
        "n_words": corpus.n_words,
        "n_pairs": corpus.n_pairs,
        "n_tokens": corpus.n_tokens,
        "n_topics": config.n_topics,
        "n_unused_topics": int(unused_topics(column_sums, float(result.eta.sum())).sum()),
        "n_workers": config.n_workers,
        "n_blocks": config.n_blocks,
        "n_passes": int(n_passes) if float(n_passes).is_integer() else n_passes,
        "stopped": result.stopped,
        "elbo": last.elbo,
        # Not known where visits were cut short between two evaluations.
        "elbo_f": last.elbo_f if known else None,
        "elbo_per_token": last.elbo / corpus.n_tokens,
        "fit_seconds": result.fit_seconds,
        "start_seconds": result.fit_seconds - result.pass_seconds,
        "total_seconds": last.total_seconds,
        "pairs_per_second": result.pairs / result.pass_seconds if result.pass_seconds else 0.0,
        "shared_bytes": result.shared_bytes,
        "peak_rss_bytes": result.shared_bytes + result.peak_private_bytes,
        "corpus": corpus.name,
        "corpus_digest": corpus.digest(),
        "config": config.as_dict(),
    }
