"""The fitted model: what people look at, save and load.

It holds the Dirichlet parameters as the engine left them (rows of lambda in the order of the
blocks, gamma in the parts of the workers, all still in shared memory) and puts them in order
where they are asked for, so that a large model is never held twice without need.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from esvi_shm.config import GivenTopics
from esvi_shm.corpus.corpus import Corpus, as_corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics.intervals import Interval, dirichlet_interval
from esvi_shm.runtime.record import Record, Result

if TYPE_CHECKING:
    from esvi_shm.metrics import Alignment

_log = logging.getLogger(__name__)

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
    def from_result(
        cls, result: Result, corpus: Corpus, holdout: dict[str, Any] | None = None
    ) -> "FittedModel":
        """The model of a finished fit of `corpus`; `holdout` describes what judged it."""
        parameters = Parameters(
            result.lambda_rows, result.word_ids, result.gamma_shards, result.alpha, result.eta
        )
        words = corpus.vocabulary or [corpus.word(v) for v in range(corpus.n_words)]
        return cls(parameters, words, result.history, summarise(result, corpus, holdout))

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

    def given_topics(self, source: str = "a model") -> GivenTopics:
        """Its topics as what another fit may start from; `source` is what messages call them."""
        return GivenTopics(self.lambda_, self.words, source)

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

    def transform(
        self,
        corpus: Any,
        n_workers: int | None = None,
        *,
        inference: str | None = None,
        steps: int = 100,
        tol: float = 1e-3,
    ) -> np.ndarray:
        """E[theta] of unseen documents, the topics being as they are; see `metrics.infer_gamma`.

        Parameters
        ----------
        corpus : Corpus, sparse matrix or array of shape (D, V), list of lists of words, or path
            Words are matched by name where both sides have names, and those that the model does
            not know are left out; else the columns are the model's words in order. A file must
            have a token.
        n_workers : int or None
            Threads; None: one for each core.
        inference : str or None
            "vb" or "cvb0"; None: the one that the fit ended with, so that the documents it was
            fitted to get the theta that they have.
        steps : int
            Steps at most.
        tol : float
            A document is done when its gamma moves by less than this in a step, on average.

        Returns
        -------
        float32 array, shape (D, K)
            Rows sum to 1. A document without known words has the prior mean; a warning says how
            many have none.

        Raises
        ------
        InputError
            For a bad corpus or parameter, or other columns than the model has words.

        Examples
        --------
        >>> parameters = Parameters(
        ...     np.array([[9.0, 1], [1, 9]], np.float32), None, [], np.full(2, 0.5), np.ones(2)
        ... )
        >>> model = FittedModel(parameters, ["sea", "hill"], [], {})
        >>> model.transform([["sea", "sea", "salt"], ["salt"]]).round(2).tolist()
        [[0.8299999833106995, 0.17000000178813934], [0.5, 0.5]]
        """
        from esvi_shm import metrics

        documents = self.aligned(corpus, may_be_empty=True).corpus
        n_unknown = int((np.diff(documents.indptr) == 0).sum())
        if n_unknown:
            _log.warning(
                "%s: %d of %d documents have no word that the model knows, and get the prior mean",
                documents.name, n_unknown, documents.n_documents,
            )  # fmt: skip
        last_inference, power = self._last_rule()
        gamma = metrics.infer_gamma(
            self.lambda_,
            self.alpha,
            documents,
            steps,
            tol,
            inference=inference or last_inference,
            power=power if inference in (None, last_inference) else 1.0,
            n_workers=n_workers,
        )
        return metrics.mean_of(gamma)

    def aligned(self, corpus: Any, may_be_empty: bool = False) -> "Alignment":
        """Documents in the model's vocabulary; see `metrics.align`.

        Parameters
        ----------
        corpus : Corpus, sparse matrix or array of shape (D, V), list of lists of words, or path
        may_be_empty : bool
            Whether there may be no token of a known word.

        Returns
        -------
        Alignment

        Raises
        ------
        CorpusError
        """
        from esvi_shm.metrics import align

        given = as_corpus(corpus, may_be_empty)
        # The columns of a file in which only ids occur may be fewer; those of a matrix are said.
        if hasattr(corpus, "shape") and given.n_words != len(self.words):
            raise CorpusError(
                given.name,
                f"a matrix is without names of words: there must be a column for each of the "
                f"model's {len(self.words)} words, got {given.n_words}",
            )
        return align(given, self.words, may_be_empty)

    def _last_rule(self) -> tuple[str, float]:
        """The inference of the last pass of the fit, and its power."""
        ending = self.summary.get("ending", {})
        return ending.get("inference", "vb"), ending.get("power", 1.0)

    def topic_word_interval(
        self,
        words: Sequence[str],
        topics: Sequence[int] | None = None,
        level: float = 0.95,
    ) -> Interval:
        """Central credible intervals of the weights of words in topics, under q(beta).

        They are those of the fitted Dirichlets, and too narrow for the uncertainty that there is:
        mean-field inference leaves out how topics and assignments depend on each other, and all is
        conditional on the optimum that this fit has found (of which `evaluate --stability` tells
        more). After inference `cvb0` lambda is counts plus priors, read as a Dirichlet likewise.

        Parameters
        ----------
        words : sequence of str
        topics : sequence of int, optional
            Default: all.
        level : float
            Probability inside.

        Returns
        -------
        Interval
            `lower` and `upper`, float64, shape (topics, words).

        Raises
        ------
        ParameterError
            For a word or a topic that the model does not have.

        Examples
        --------
        >>> lambda_ = np.array([[1.0, 30.0], [1.0, 10.0]])
        >>> parameters = Parameters(lambda_, None, [np.ones((1, 2))], np.ones(2), np.ones(2))
        >>> model = FittedModel(parameters, ["sea", "hill"], [], {})
        >>> found = model.topic_word_interval(["sea"], level=0.5)
        >>> found.lower.round(2).tolist(), found.upper.round(2).tolist()
        ([[0.25], [0.71]], [[0.75], [0.8]])
        """
        rows, word_ids = self.parameters.lambda_rows, self.parameters.word_ids
        chosen = self._chosen_topics(topics)
        known = {word: v for v, word in reversed(list(enumerate(self.words)))}
        for word in words:
            if word not in known:
                raise ParameterError("words", "must be words of the model", word)
        ids = np.array([known[word] for word in words], np.int64)
        if word_ids is not None:
            ids = np.argsort(word_ids)[ids]
        pi = rows.sum(axis=0, dtype=np.float64)[chosen]
        return dirichlet_interval(rows[np.ix_(ids, chosen)].T, pi[:, None], level)

    def doc_topic_interval(
        self,
        documents: Sequence[int],
        topics: Sequence[int] | None = None,
        level: float = 0.95,
    ) -> Interval:
        """Central credible intervals of the shares of topics in documents, under q(theta).

        Too narrow, and conditional on the topics as they are: see `topic_word_interval`.

        Parameters
        ----------
        documents : sequence of int
            Numbers of training documents, from 0.
        topics, level : as for `topic_word_interval`

        Returns
        -------
        Interval
            `lower` and `upper`, float64, shape (documents, topics).

        Raises
        ------
        ParameterError
            For a document or a topic that the model does not have.
        """
        chosen = self._chosen_topics(topics)
        ends = np.cumsum([len(part) for part in self.parameters.gamma_parts])
        numbers = _numbers("documents", documents, int(ends[-1]))
        parts = np.searchsorted(ends, numbers, side="right")
        gamma = np.empty((len(numbers), len(self.alpha)))
        for i, (d, p) in enumerate(zip(numbers, parts, strict=True)):
            gamma[i] = self.parameters.gamma_parts[p][d - ends[p]]  # from the end: ends[p] > d
        return dirichlet_interval(gamma[:, chosen], gamma.sum(axis=1, keepdims=True), level)

    def _chosen_topics(self, topics: Sequence[int] | None) -> np.ndarray:
        n_topics = len(self.alpha)
        return _numbers("topics", range(n_topics) if topics is None else topics, n_topics)

    def save(self, folder: str) -> None:
        """Write the model directory; see `esvi_shm.store`."""
        from esvi_shm import store

        store.save(self, folder)


def _numbers(name: str, given: Sequence[int], n: int) -> np.ndarray:
    """Whole numbers from 0 to n - 1, or an error."""
    for value in given:
        if not (isinstance(value, int | np.integer) and 0 <= value < n):
            raise ParameterError(name, f"must be whole numbers from 0 to {n - 1}", value)
    return np.array(given, np.int64)


def summarise(
    result: Result, corpus: Corpus, holdout: dict[str, Any] | None = None
) -> dict[str, Any]:
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
        "holdout_perplexity": last.perplexity if np.isfinite(last.perplexity) else None,
        "holdout": holdout,
        "alpha_mean": float(result.alpha.mean()),
        "eta_mean": float(result.eta.mean()),
        "fit_seconds": result.fit_seconds,
        "start_seconds": result.fit_seconds - result.pass_seconds,
        "total_seconds": last.total_seconds,
        "pairs_per_second": result.pairs / result.pass_seconds if result.pass_seconds else 0.0,
        "shared_bytes": result.shared_bytes,
        "peak_rss_bytes": result.shared_bytes + result.peak_private_bytes,
        "restarts": [restart._asdict() for restart in result.restarts],
        "at_rest": result.at_rest,
        "ending": result.ending,
        "corpus": corpus.name,
        "corpus_digest": corpus.digest(),
        "config": config.as_dict(),
    }
