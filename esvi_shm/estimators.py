"""scikit-learn's idiom for the same fit.

The names here are scikit-learn's; `_PARAMETERS` translates them, and nothing else does.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import as_corpus
from esvi_shm.errors import ParameterError
from esvi_shm.model import FittedModel, Topic
from esvi_shm.runtime import engine

#: Name here: name in FitConfig. Names that are the same are not listed.
_PARAMETERS = {
    "n_components": "n_topics",
    "doc_topic_prior": "alpha",
    "topic_word_prior": "eta",
    "random_state": "seed",
}


@contextlib.contextmanager
def _own_names() -> Iterator[None]:
    """Errors call a parameter as it is called here."""
    try:
        yield
    except ParameterError as error:
        here = {there: name for name, there in _PARAMETERS.items()}
        raise error.renamed(here.get(error.name, error.name)) from None


def _seed(random_state: Any) -> Any:
    if isinstance(random_state, bool | int | np.integer):
        return random_state if isinstance(random_state, bool) else int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError:
        rule = "must be None, a whole number or a numpy RandomState"
        raise ParameterError("random_state", rule, random_state) from None


class LDA(BaseEstimator):
    """Latent Dirichlet allocation, fitted by worker processes that pass blocks of words around.

    Parameters
    ----------
    n_components : int
        Number of topics K.
    doc_topic_prior, topic_word_prior : float or array, shape (K,) and (V,)
        Dirichlet priors alpha and eta, per topic and per word: not divided by K or V.
    n_workers : int or None
        Worker processes; None: one for each core this process may use.
    n_passes : int
        Passes over the corpus at most.
    tol : float
        Stop when the relative change of the objective (under vb, the ELBO) between two evaluations
        is smaller, once the updates have settled; 0: never.
    evaluate_every : int
        Passes between evaluations; 0: at the end only.
    max_time : float or None
        Seconds of fitting at most.
    inference, storage, start, route : str
    cvb0_passes, temper_passes : int or None
    refold_after : sequence of int
        See ``python -m esvi_shm.fit --help``.
    n_blocks : int or None
        Blocks of words; None: by the length of the documents and the number of workers.
    deterministic : bool
        The same bits for the same seed, numbers of workers and blocks, versions and kind of
        processor. Without it the order in which blocks meet shards varies, and with it the
        last digits (and sometimes the optimum).
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : float32 array, shape (K, V)
        Dirichlet parameters lambda of the topics.
    doc_topic_ : array, shape (D, K)
        E[theta] of the documents it was fitted to.
    elbo_ : float
        Evidence lower bound, in nats.
    history_ : list of Record
    n_passes_ : float
    stopped_ : str
        Why the fit ended: "passes", "tol", "max_time", or the name of a signal: a Ctrl-C ("SIGINT")
        ends a fit early with what it has, and is told by a warning of the logger `esvi_shm`; a
        second one raises `errors.Interrupted`.
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
    """

    def __init__(
        self,
        n_components: int = FitConfig.n_topics,
        *,
        doc_topic_prior: Any = FitConfig.alpha,
        topic_word_prior: Any = FitConfig.eta,
        n_workers: int | None = None,
        n_passes: int = FitConfig.n_passes,
        tol: float = FitConfig.tol,
        evaluate_every: int = FitConfig.evaluate_every,
        max_time: float | None = None,
        inference: str = FitConfig.inference,
        cvb0_passes: int | None = FitConfig.cvb0_passes,
        temper_passes: int | None = FitConfig.temper_passes,
        refold_after: Sequence[int] = FitConfig.refold_after,
        storage: str = FitConfig.storage,
        start: str = FitConfig.start,
        route: str = FitConfig.route,
        n_blocks: int | None = None,
        deterministic: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.n_workers = n_workers
        self.n_passes = n_passes
        self.tol = tol
        self.evaluate_every = evaluate_every
        self.max_time = max_time
        self.inference = inference
        self.cvb0_passes = cvb0_passes
        self.temper_passes = temper_passes
        self.refold_after = refold_after
        self.storage = storage
        self.start = start
        self.route = route
        self.n_blocks = n_blocks
        self.deterministic = deterministic
        self.random_state = random_state

    def _config(self) -> FitConfig:
        given = self.get_params()
        given["random_state"] = _seed(given["random_state"])
        return FitConfig(**{_PARAMETERS.get(name, name): value for name, value in given.items()})

    def fit(self, X: Any, y: Any = None) -> "LDA":
        """Fit the model.

        Parameters
        ----------
        X : Corpus, sparse matrix or array of shape (D, V), list of lists of words, or path
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
        with _own_names():
            config, corpus = self._config(), as_corpus(X)
            result = engine.fit(corpus, config)
        self.model_ = FittedModel.from_result(result, corpus)
        self.components_ = self.model_.lambda_.T
        self.doc_topic_ = self.model_.doc_topic
        self.elbo_ = self.model_.elbo
        self.history_ = self.model_.history
        self.n_passes_ = result.passes
        self.stopped_ = result.stopped
        self.n_features_in_ = corpus.n_words
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and return E[theta] of the documents, shape (D, K)."""
        return self.fit(X).doc_topic_

    def topics(self, n: int = 10) -> list[Topic]:
        """The `n` most probable words of each topic."""
        check_is_fitted(self)
        return self.model_.topics(n)

    def save(self, folder: str) -> None:
        """Write the model directory, which ``esvi_shm.load`` reads."""
        check_is_fitted(self)
        self.model_.save(folder)
