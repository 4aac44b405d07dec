"""scikit-learn's idiom for the same fit.

The names here are scikit-learn's; `_PARAMETERS` translates them, and nothing else does.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from esvi_shm import metrics, store
from esvi_shm.compile import compiling_is_told
from esvi_shm.config import FitConfig, GivenTopics
from esvi_shm.corpus.corpus import as_corpus
from esvi_shm.errors import ParameterError
from esvi_shm.metrics.holdout import set_aside
from esvi_shm.model import FittedModel
from esvi_shm.parameters import Topic, iterate_topics
from esvi_shm.runtime import engine

_log = logging.getLogger(__name__)
#: Name here: name in FitConfig. Names that are the same are not listed.
_PARAMETERS = {
    "n_components": "n_topics",
    "doc_topic_prior": "alpha",
    "topic_word_prior": "eta",
    "random_state": "seed",
}


def _given_topics(given: Any) -> GivenTopics | None:
    """The topics to start from of whatever holds some."""
    if isinstance(given, str | os.PathLike):
        return store.load_topics(given).given_topics(os.fspath(given))
    if isinstance(given, FittedModel):
        return given.given_topics()
    if given is not None:
        raise ParameterError("start_from", "must be a model (as an LDA's model_) or a path", given)
    return None


@contextlib.contextmanager
def own_names(parameters: Mapping[str, str]) -> Iterator[None]:
    """Errors call a parameter as the estimator does.

    Parameters
    ----------
    parameters : dict of str
        The estimator's name: that of the parameter it sets, where they differ.
    """
    try:
        yield
    except ParameterError as error:
        here = {there: name for name, there in parameters.items()}
        raise error.renamed(lambda name: here.get(name, name)) from None


def seed_of(random_state: Any) -> Any:
    """A seed of whatever scikit-learn takes for `random_state`."""
    if isinstance(random_state, bool | int | np.integer):
        return random_state if isinstance(random_state, bool) else int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError:
        rule = "must be None, a whole number or a numpy RandomState"
        raise ParameterError("random_state", rule, random_state) from None


class LDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Latent Dirichlet allocation, fitted by worker processes that pass blocks of words around.

    Parameters
    ----------
    n_components : int
        Number of topics K.
    doc_topic_prior, topic_word_prior : float, array of shape (K,) and (V,), or "auto"
        Dirichlet priors alpha and eta, per topic and per word: not divided by K or V. "auto":
        begins with the default, and is learned.
    learn_priors : str
        Which of them the fit learns, from what is given: none, alpha (by topic), eta (one number),
        both. By the ELBO; under inference cvb0 by `holdout`.
    symmetric_alpha : bool
        A learned alpha is one number for all topics.
    n_workers : int or None
        Worker processes; None: one for each core this process may use.
    n_passes : int
        Passes over the corpus at most.
    tol : float
        Stop when the relative change of the objective (under vb, the ELBO) between two evaluations
        is smaller, once the updates have settled; 0: never.
    evaluate_every : int
        Passes between evaluations; 0: at the end only.
    holdout : float, documents as for `fit`, or None
        Documents that the fit does not see: a share drawn by `random_state`, or others. Their
        perplexity by document completion is recorded at each evaluation.
    patience : int or None
        Stop when so many evaluations in a row bring no lower perplexity of `holdout`.
    max_time : float or None
        Seconds of fitting at most.
    inference, axis, residual, start, route : str
    storage : str or None
    cvb0_passes, temper_passes, noise_passes, dense_passes, seed_documents, topk : int or None
    power : float or None
    leave_out : str or None
    settle : int or None
    relax : float or None
    refold_after, repair_after : sequence of int
    restarts, restart_passes : int
    noise : float
        See ``python -m esvi_shm.fit --help``.
    start_from : FittedModel, path or None
        A model (another LDA's `model_`), matched by word; where it has fewer topics, the others
        start by `start`.
    seed_words : list of lists of words
        Words that the first topics start from; an empty list leaves a topic to `start`.
    n_blocks : int or None
        Blocks of words; None: by the length of the documents and the number of workers.
    max_memory : int, str or None
        Bytes that all processes together may take by the plan, or a number with K, M, G or T
        ("8G"). Where that is too little, and `storage`, `topk` or `n_blocks` is None, what fits is
        taken, and told by the logger `esvi_shm`.
    scratch : path or None
        Folder for files that hold the shared arrays where /dev/shm or memory has no room.
    deterministic : bool
        The same bits for the same seed, numbers of workers and blocks, versions and kind of
        processor. Without it the order in which blocks meet shards varies, and with it the
        last digits (and sometimes the optimum).
    random_state : int, RandomState or None

    Notes
    -----
    It goes into a `Pipeline` behind a `CountVectorizer`, and into `GridSearchCV`, which parts a
    matrix or a list of lists of words; a `Corpus` or a path has no rows that it could take. Errors
    are in words of this package, all `errors.InputError`, a ValueError. Without `deterministic`
    two fits with more than one worker differ in the last digits, whatever `random_state`.

    Attributes
    ----------
    components_ : float32 array, shape (K, V)
        Dirichlet parameters lambda of the topics.
    doc_topic_ : array, shape (D, K)
        E[theta] of the documents it was fitted to. `fit_transform` returns what `transform` does,
        of all documents, the held-out ones too: the same theta where the fit has settled.
    training_documents_ : int array, shape (D,)
        Which documents of X those are: all but what `holdout` drew from it.
    perplexity_ : float
        Of the held-out documents at the end; nan without.
    elbo_ : float
        Evidence lower bound, in nats.
    history_ : list of Record
    n_passes_ : float
    stopped_ : str
        Why the fit ended: "passes", "tol", "patience", "max_time", or the name of a signal: a
        Ctrl-C ("SIGINT") ends a fit early with what it has, and is told by a warning of the logger
        `esvi_shm`; a second one raises `errors.Interrupted`.
    n_features_in_ : int
    model_ : FittedModel

    Examples
    --------
    >>> documents = [["sea", "ship", "sea"], ["salt", "sea"], ["hill", "tree"], ["tree", "path"]]
    >>> lda = LDA(n_components=2, n_workers=1, random_state=0).fit(documents * 5)
    >>> lda.components_.shape
    (2, 6)
    >>> [len(topic.words) for topic in lda.topics(3)]
    [3, 3]
    >>> lda.transform([["sea", "ship"], ["tree", "moss"]]).shape
    (2, 2)
    """

    def __init__(
        self,
        n_components: int = FitConfig.n_topics,
        *,
        doc_topic_prior: Any = FitConfig.alpha,
        topic_word_prior: Any = FitConfig.eta,
        learn_priors: str = FitConfig.learn_priors,
        symmetric_alpha: bool = FitConfig.symmetric_alpha,
        n_workers: int | None = None,
        n_passes: int = FitConfig.n_passes,
        tol: float = FitConfig.tol,
        evaluate_every: int = FitConfig.evaluate_every,
        holdout: Any = None,
        patience: int | None = FitConfig.patience,
        max_time: float | None = None,
        inference: str = FitConfig.inference,
        cvb0_passes: int | None = FitConfig.cvb0_passes,
        temper_passes: int | None = FitConfig.temper_passes,
        power: float | None = FitConfig.power,
        leave_out: str | None = FitConfig.leave_out,
        settle: int | None = FitConfig.settle,
        relax: float | None = FitConfig.relax,
        refold_after: Sequence[int] = FitConfig.refold_after,
        noise: float = FitConfig.noise,
        noise_passes: int | None = FitConfig.noise_passes,
        dense_passes: int | None = FitConfig.dense_passes,
        repair_after: Sequence[int] = FitConfig.repair_after,
        storage: str | None = FitConfig.storage,
        axis: str = FitConfig.axis,
        topk: int | None = FitConfig.topk,
        residual: str = FitConfig.residual,
        start: str = FitConfig.start,
        seed_documents: int | None = FitConfig.seed_documents,
        start_from: Any = None,
        seed_words: Sequence[Sequence[str]] = FitConfig.seed_words,
        restarts: int = FitConfig.restarts,
        restart_passes: int = FitConfig.restart_passes,
        route: str = FitConfig.route,
        n_blocks: int | None = None,
        max_memory: int | str | None = FitConfig.max_memory,
        scratch: Any = FitConfig.scratch,
        deterministic: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.learn_priors = learn_priors
        self.symmetric_alpha = symmetric_alpha
        self.n_workers = n_workers
        self.n_passes = n_passes
        self.tol = tol
        self.evaluate_every = evaluate_every
        self.holdout = holdout
        self.patience = patience
        self.max_time = max_time
        self.inference = inference
        self.cvb0_passes = cvb0_passes
        self.temper_passes = temper_passes
        self.power = power
        self.leave_out = leave_out
        self.settle = settle
        self.relax = relax
        self.refold_after = refold_after
        self.noise = noise
        self.noise_passes = noise_passes
        self.dense_passes = dense_passes
        self.repair_after = repair_after
        self.storage = storage
        self.axis = axis
        self.topk = topk
        self.residual = residual
        self.start = start
        self.seed_documents = seed_documents
        self.start_from = start_from
        self.seed_words = seed_words
        self.restarts = restarts
        self.restart_passes = restart_passes
        self.route = route
        self.n_blocks = n_blocks
        self.max_memory = max_memory
        self.scratch = scratch
        self.deterministic = deterministic
        self.random_state = random_state

    def _config(self) -> FitConfig:
        given = self.get_params(deep=False)
        given["random_state"] = seed_of(given["random_state"])
        del given["holdout"]
        given["start_from"] = _given_topics(given["start_from"])
        return FitConfig(**{_PARAMETERS.get(name, name): value for name, value in given.items()})

    def fit(self, X: Any, y: Any = None) -> "LDA":
        """Fit the model.

        Parameters
        ----------
        X : Corpus, matrix or data frame of shape (D, V), list of lists of words, or path
            Counts >= 0 of words in documents.
        y : ignored

        Returns
        -------
        LDA
            Itself.

        Raises
        ------
        InputError
            For a bad parameter or corpus, before anything is allocated.
        WorkerError
            If a worker died.
        """
        with own_names(_PARAMETERS), compiling_is_told(_log):
            config = self._config()
            engine.check(config, self.holdout is not None)
            corpus, judge, documents = as_corpus(X), None, None
            if self.holdout is not None:
                corpus, judge, documents = set_aside(corpus, self.holdout, config.seed)
            # What is ours alone is not needed twice.
            result = engine.fit(corpus, config, judge=judge, release=corpus is not X)
        self.model_ = FittedModel.from_result(result, corpus, judge.describe() if judge else None)
        self.training_documents_ = np.arange(corpus.n_documents) if judge is None else documents
        self.perplexity_ = result.history[-1].perplexity
        self.components_ = self.model_.lambda_.T
        self.doc_topic_ = self.model_.doc_topic
        self.elbo_ = self.model_.elbo
        self.history_ = self.model_.history
        self.n_passes_ = result.passes
        self.stopped_ = result.stopped
        self.n_features_in_ = corpus.n_words
        return self

    def transform(self, X: Any) -> np.ndarray:
        """E[theta] of documents under the fitted topics, on `n_workers` threads.

        Parameters
        ----------
        X : Corpus, matrix or data frame of shape (D, V), list of lists of words, or path
            Words with names are matched by them; see `FittedModel.transform`.

        Returns
        -------
        float32 array, shape (D, K)
            Rows sum to 1. A document without known words has the prior mean.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        InputError
            For a bad parameter or corpus.
        """
        check_is_fitted(self)
        with compiling_is_told(_log):
            return self.model_.transform(X, self.n_workers)

    def score(self, X: Any, y: Any = None) -> float:
        """The evidence lower bound L of documents, in nats, as by scikit-learn's `score`.

        L = sum_dv n_dv log sum_k exp(Elog theta_dk + Elog beta_vk)
        + sum_d [lnB(gamma_d) - lnB(alpha) + sum_k (alpha_k - gamma_dk) Elog theta_dk]
        + sum_k [lnB(lambda_k) - lnB(eta) + sum_v (eta_v - lambda_vk) Elog beta_vk],
        gamma inferred by vb with the topics fixed. The last line is the topics' own, whatever the
        number of documents: compare scores of the same documents only. More is better.

        Parameters
        ----------
        X : as for `transform`
            With a word that the model knows.
        y : ignored

        Returns
        -------
        float

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        InputError
            For a bad corpus.
        """
        return self._held_out_bound(X).bound

    def perplexity(self, X: Any) -> float:
        """exp(-L / tokens), as scikit-learn's `perplexity`, with L as `score` has it.

        The topics' own terms in L are divided by the tokens of X, so the same topics look worse on
        fewer documents. The figure to go by is that of document completion: `perplexity_` has it of
        the documents of `holdout`, `completion_score` of any others.

        Parameters
        ----------
        X : as for `score`

        Returns
        -------
        float

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        InputError
            For a bad corpus.
        """
        return self._held_out_bound(X).scikit_learn

    def completion_score(self, X: Any, y: Any = None) -> float:
        """Minus the perplexity of document completion: how well topics predict unseen text.

        Half of the tokens of each document are predicted from the others, by the topics alone, so
        fits with any number of topics can be compared by it, as in ``GridSearchCV(LDA(),
        {"n_components": [50, 100]}, scoring=LDA.completion_score)``. More is better.

        Parameters
        ----------
        X : as for `transform`
            Whole counts, of documents that the fit has not seen; see `FittedModel.completion`.
        y : ignored

        Returns
        -------
        float

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        InputError
            For a bad corpus.
        """
        check_is_fitted(self)
        with compiling_is_told(_log):
            return -self.model_.completion(X, n_workers=self.n_workers).perplexity

    def _held_out_bound(self, X: Any) -> metrics.HeldOutBound:
        check_is_fitted(self)
        model = self.model_
        lambda_, corpus = model.lambda_, model.aligned(X).corpus
        with compiling_is_told(_log):
            gamma = metrics.infer_gamma(lambda_, model.alpha, corpus, n_workers=self.n_workers)
        return metrics.held_out_bound(lambda_, model.alpha, model.eta, corpus, gamma)

    @property
    def _n_features_out(self) -> int:
        """What `get_feature_names_out` counts: "lda0", "lda1"..."""
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def topics(self, n: int = 10, words: Sequence[str] | None = None) -> list[Topic]:
        """The `n` most probable words of each topic.

        `words` names the columns of a matrix that had no names, as those of a vectorizer have.
        """
        check_is_fitted(self)
        if words is None:
            return self.model_.topics(n)
        if len(words) != self.n_features_in_:
            rule = f"must be a name for each of the {self.n_features_in_} columns"
            raise ParameterError("words", rule, len(words))
        return list(iterate_topics(self.model_.parameters, words, n))

    def save(self, folder: str) -> None:
        """Write the model directory, which ``esvi_shm.load`` reads."""
        check_is_fitted(self)
        self.model_.save(folder)
