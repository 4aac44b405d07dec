"""The fitted model: what people look at, save and load.

It puts its parameters (see `parameters`) in order where they are asked for, so that a large model
is never held twice without need.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from esvi_shm.config import GivenTopics
from esvi_shm.corpus.corpus import Corpus, as_corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.intervals import doc_topic_interval, topic_word_interval
from esvi_shm.metrics.intervals import Interval
from esvi_shm.parameters import Parameters, Topic, iterate_topics
from esvi_shm.runtime.record import Record, Result
from esvi_shm.summary import summarise

if TYPE_CHECKING:
    from esvi_shm.metrics import Alignment, Completion, PreparedTopics

_log = logging.getLogger(__name__)


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
        self._kept: tuple[Parameters, tuple[str, float], PreparedTopics] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

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
        found = result.learned
        parameters = Parameters(
            found.lambda_rows, found.word_ids, found.of_units, found.alpha, found.eta
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
        """Dirichlet parameters of the documents, float32, shape (D, K).

        Of a fit on many workers or by storage `sparse`, and of a model that is kept compact, it is
        put together at each call: keep it where documents are looked at one by one.
        """
        parts = self.parameters.gamma_parts
        return np.asanyarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)

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

        Returns
        -------
        iterator of Topic
            Of equally probable words the one first in the alphabet comes first. Words that have
            no more than their prior are not among them: a topic that nothing uses has none.

        Raises
        ------
        ParameterError
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer):
            raise ParameterError("n", "must be a whole number", n)
        if n < 0:
            raise ParameterError("n", "must be at least 0", n)
        return iterate_topics(self.parameters, self.words, n)

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

        What it reads of the topics is made by the first call and kept for others: see
        `metrics.PreparedTopics`.

        Parameters
        ----------
        corpus : Corpus, matrix or data frame of shape (D, V), list of lists of words, or path
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
        topics = self._prepared(
            inference or last_inference, power if inference in (None, last_inference) else 1.0
        )
        return metrics.mean_of(topics.infer_gamma(documents, steps, tol, n_workers))

    def _prepared(self, inference: str, power: float) -> "PreparedTopics":
        """The topics for inference, those of the last call if they are the same."""
        from esvi_shm import metrics

        parameters, rule = self.parameters, (inference, power)
        kept = self._kept  # once: other threads may put theirs there
        if kept is not None and kept[0] is parameters and kept[1] == rule:
            return kept[2]
        topics = metrics.PreparedTopics(
            parameters.lambda_rows, parameters.alpha, inference=inference, power=power,
            word_ids=parameters.word_ids,
        )  # fmt: skip
        self._kept = parameters, rule, topics
        return topics

    def completion(self, corpus: Any, seed: int = 0, n_workers: int | None = None) -> "Completion":
        """How well the topics predict one half of each unseen document from the other.

        See `metrics.completion_perplexity`; what `python -m esvi_shm.evaluate` prints.

        Parameters
        ----------
        corpus : as for `transform`
            Whole counts; words that the model does not know are left out.
        seed : int
            Of the coins that send tokens to one half or the other (`metrics.split_tokens`).
        n_workers : int or None
            Threads; None: one for each core.

        Returns
        -------
        metrics.Completion
            With `perplexity`, and the log likelihood of each document.

        Raises
        ------
        CorpusError
            If no word is known, a count is no whole number, or no token is to be scored.
        """
        from esvi_shm import metrics

        observed, scored = metrics.split_tokens(self.aligned(corpus).corpus, seed)
        topics = metrics.point_topics(self.lambda_)
        theta = metrics.fold_in(topics, self.alpha, observed, n_workers=n_workers)
        return metrics.completion_perplexity(theta, topics, scored)

    def aligned(self, corpus: Any, may_be_empty: bool = False) -> "Alignment":
        """Documents in the model's vocabulary; see `metrics.align`.

        Parameters
        ----------
        corpus : Corpus, matrix or data frame of shape (D, V), list of lists of words, or path
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
        if hasattr(corpus, "shape") and given.vocabulary is None:
            # Of a file in which only ids occur columns may be fewer; those of a matrix are said.
            if given.n_words != len(self.words):
                raise CorpusError(
                    given.name,
                    f"a matrix is without names of words: there must be a column for each of the "
                    f"model's {len(self.words)} words, got {given.n_words}",
                )
            given = replace(given, vocabulary=tuple(self.words))
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
        return topic_word_interval(self.parameters, self.words, words, topics, level)

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
        return doc_topic_interval(self.parameters, documents, topics, level)

    def save(self, folder: str) -> None:
        """Write the model directory; see `esvi_shm.store`."""
        from esvi_shm import store

        store.save(self, folder)
