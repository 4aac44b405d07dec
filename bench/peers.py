"""The peers of `bench.lda` and `bench.quality`, each run by its own public fit, noted as it goes.

A subclass stops the clock while it copies the topics after the updates that are asked for, and
that is all that it changes (tomotopy is trained in several calls instead). A state has gamma
besides: the peer's own, inferred under those topics by its own code, outside the clock.
"""

import time
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from esvi_shm.corpus.corpus import Corpus


class Topics(NamedTuple):
    """The topics of a system after so many passes or iterations, and its prior of documents."""

    steps: int
    seconds: float
    cpu: float  # the same in seconds of the processor, which other work beside does not lengthen
    lambda_: np.ndarray  # (V, K)
    alpha: np.ndarray  # (K,)


class Clock:
    """Seconds of the wall and of this process's processor, while it is not paused."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0

    def __enter__(self) -> "Clock":
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began[0]
        self.cpu += time.process_time() - self._began[1]


class State(NamedTuple):
    """What a system has after so many passes or iterations."""

    steps: int
    seconds: float
    lambda_: np.ndarray
    gamma: np.ndarray


def fit_scikit_learn(
    corpus: Corpus, n_topics: int, alpha: float, eta: float, seed: int, at: Collection[int]
) -> tuple[Any, list[Topics]]:
    """LatentDirichletAllocation, batch, one job; the clock counts its iterations alone.

    In float32, which it takes as well and which is the faster for it; left out of its seconds
    are its checks of the input, its initial draw and its final bound.

    Returns
    -------
    model, topics
        Topics after each number of iterations in `at`, whose largest ends the fit.
    """
    from sklearn.decomposition import LatentDirichletAllocation

    noted: list[Topics] = []
    steps, clock = 0, Clock()

    class Timed(LatentDirichletAllocation):
        def _em_step(self, *args: Any, **options: Any) -> None:
            nonlocal steps
            with clock:
                super()._em_step(*args, **options)
            steps += 1
            if steps in at:
                topics, prior = self.components_.T.copy(), np.full(n_topics, alpha)
                noted.append(Topics(steps, clock.seconds, clock.cpu, topics, prior))

        def infer(self, X: Any, components: np.ndarray) -> np.ndarray:
            self.components_ = components
            # transform() itself divides by the sums, which are alpha K + tokens.
            theta = self.transform(X)
            sums = np.asarray(X.sum(axis=1), np.float64) + self.doc_topic_prior * n_topics
            return theta * sums

    model = Timed(
        n_topics, doc_topic_prior=alpha, topic_word_prior=eta, learning_method="batch",
        max_iter=max(at), evaluate_every=0, n_jobs=1, random_state=seed,
    )  # fmt: skip
    model.fit(corpus.as_sparse().copy())
    return model, noted


def scikit_learn(
    corpus: Corpus, n_topics: int, alpha: float, eta: float, seed: int, at: Collection[int]
) -> Iterator[State]:
    """The states of `fit_scikit_learn`."""
    model, noted = fit_scikit_learn(corpus, n_topics, alpha, eta, seed, at)
    matrix = corpus.as_sparse().copy()
    for topics in noted:
        components = np.ascontiguousarray(topics.lambda_.T)
        model.exp_dirichlet_component_ = exp_expectation(components)
        gamma = model.infer(matrix, components)
        yield State(topics.steps, topics.seconds, topics.lambda_, gamma)


def exp_expectation(components: np.ndarray) -> np.ndarray:
    """exp(E[log beta]), (K, V): what scikit-learn derives from its components."""
    from scipy.special import psi

    return np.exp(psi(components) - psi(components.sum(axis=1, keepdims=True)))


def fit_gensim(
    corpus: Corpus,
    n_topics: int,
    alpha: float,
    eta: float,
    seed: int,
    at: Collection[int],
    chunk: int,
) -> tuple[Any, list[Topics]]:
    """LdaModel, online, without evaluation; the clock counts all of its training.

    The corpus is already in gensim's own form, lists of (word, count), when the clock starts.

    Returns
    -------
    model, topics
        Topics after each number of passes in `at`, whose largest ends the fit.
    """
    from gensim.models import LdaModel

    documents = as_lists(corpus)
    updates_a_pass = -(-len(documents) // chunk)
    noted: list[Topics] = []
    updates, clock = 0, Clock()

    class Timed(LdaModel):
        def do_mstep(self, *args: Any, **options: Any) -> None:
            nonlocal updates
            super().do_mstep(*args, **options)
            updates += 1
            if updates % updates_a_pass == 0 and updates // updates_a_pass in at:
                clock.__exit__()
                topics, prior = self.state.get_lambda().T.copy(), np.array(self.alpha)
                steps = updates // updates_a_pass
                noted.append(Topics(steps, clock.seconds, clock.cpu, topics, prior))
                clock.__enter__()

    model = Timed(
        num_topics=n_topics, id2word={v: corpus.word(v) for v in range(corpus.n_words)},
        alpha=np.full(n_topics, alpha), eta=eta, passes=max(at), chunksize=chunk, eval_every=None,
        random_state=seed,
    )  # fmt: skip
    with clock:
        model.update(documents)
    return model, noted


def gensim(
    corpus: Corpus,
    n_topics: int,
    alpha: float,
    eta: float,
    seed: int,
    at: Collection[int],
    chunk: int,
) -> Iterator[State]:
    """The states of `fit_gensim`."""
    model, noted = fit_gensim(corpus, n_topics, alpha, eta, seed, at, chunk)
    documents = as_lists(corpus)
    for topics in noted:
        model.expElogbeta = exp_expectation(topics.lambda_.T).astype(model.dtype)
        gamma, _ = model.inference(documents)
        yield State(topics.steps, topics.seconds, topics.lambda_, gamma)


def fit_tomotopy(
    corpus: Corpus,
    n_topics: int,
    alpha: float,
    eta: float,
    seed: int,
    at: Collection[int],
    learn: bool,
) -> tuple[Any, list[Topics]]:
    """LDAModel, collapsed Gibbs sampling, one worker; the clock counts its training.

    Its topics are counts + eta, of its last sample. With `learn` it fits alpha, one a topic, every
    10 iterations, as it does unless told otherwise.

    Returns
    -------
    model, topics
        Topics after each number of iterations in `at`, whose largest ends the fit.
    """
    import tomotopy

    model = tomotopy.LDAModel(k=n_topics, alpha=alpha, eta=eta, seed=seed)
    if not learn:
        model.optim_interval = 0
    for document in as_lists(corpus):
        if document:
            model.add_doc([str(v) for v, count in document for _ in range(int(count))])
    noted: list[Topics] = []
    done, clock = 0, Clock()
    for steps in sorted(at):
        with clock:
            model.train(steps - done, workers=1)
        done = steps
        # It knows only the words that occur; another one has the prior alone.
        topics = np.full((corpus.n_words, n_topics), eta)
        words = [int(word) for word in model.used_vocabs]
        for k in range(n_topics):
            topics[words, k] = model.get_topic_word_dist(k, normalize=False)
        prior = np.array(model.alpha, np.float64)
        noted.append(Topics(steps, clock.seconds, clock.cpu, topics, prior))
    return model, noted


def as_lists(corpus: Corpus) -> list[list[tuple[int, float]]]:
    """The corpus as gensim wants it."""
    bounds = corpus.indptr.tolist()
    words, counts = corpus.indices.tolist(), corpus.counts.tolist()
    return [list(zip(words[lo:hi], counts[lo:hi], strict=True)) for lo, hi in pairwise(bounds)]
