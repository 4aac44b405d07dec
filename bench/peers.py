"""The peers of `bench.lda`, each run by its own public fit, with the topics noted as it goes.

A subclass stops the clock while it copies the topics after each update, and that is all that it
changes. A state is (updates, seconds so far, lambda (V, K), gamma (D, K)); gamma is the peer's
own, inferred under those topics by its own code, outside the clock.
"""

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from esvi_shm.corpus.corpus import Corpus


class State(NamedTuple):
    """What a system has after so many passes or iterations."""

    steps: int
    seconds: float
    lambda_: np.ndarray
    gamma: np.ndarray


def scikit_learn(
    corpus: Corpus, n_topics: int, alpha: float, eta: float, iterations: int, seed: int
) -> Iterator[State]:
    """LatentDirichletAllocation, batch, one job; the clock counts its iterations alone.

    In float32, which it takes as well and which is the faster for it; left out of its seconds
    are its checks of the input, its initial draw and its final bound.
    """
    from sklearn.decomposition import LatentDirichletAllocation

    noted: list[tuple[float, np.ndarray]] = []

    class Timed(LatentDirichletAllocation):
        def _em_step(self, *args: Any, **options: Any) -> None:
            began = time.perf_counter()
            super()._em_step(*args, **options)
            seconds = time.perf_counter() - began + (noted[-1][0] if noted else 0.0)
            noted.append((seconds, self.components_.copy()))

        def infer(self, X: Any, components: np.ndarray) -> np.ndarray:
            self.components_ = components
            # transform() itself divides by the sums, which are alpha K + tokens.
            theta = self.transform(X)
            sums = np.asarray(X.sum(axis=1), np.float64) + self.doc_topic_prior * n_topics
            return theta * sums

    model = Timed(
        n_topics, doc_topic_prior=alpha, topic_word_prior=eta, learning_method="batch",
        max_iter=iterations, evaluate_every=0, n_jobs=1, random_state=seed,
    )  # fmt: skip
    matrix = corpus.as_sparse().copy()
    model.fit(matrix)
    for step, (seconds, components) in enumerate(noted, start=1):
        model.exp_dirichlet_component_ = exp_expectation(components)
        gamma = model.infer(matrix, components)
        yield State(step, seconds, components.T, gamma)


def exp_expectation(components: np.ndarray) -> np.ndarray:
    """exp(E[log beta]), (K, V): what scikit-learn derives from its components."""
    from scipy.special import psi

    return np.exp(psi(components) - psi(components.sum(axis=1, keepdims=True)))


def gensim(
    corpus: Corpus, n_topics: int, alpha: float, eta: float, passes: int, chunk: int, seed: int
) -> Iterator[State]:
    """LdaModel, online, without evaluation; the clock counts all of its training.

    The corpus is already in gensim's own form, lists of (word, count), when the clock starts.
    """
    from gensim.models import LdaModel

    documents = as_lists(corpus)
    updates_a_pass = -(-len(documents) // chunk)
    noted: list[tuple[float, np.ndarray]] = []
    updates = 0
    began = paused = 0.0

    class Timed(LdaModel):
        def do_mstep(self, *args: Any, **options: Any) -> None:
            nonlocal updates, paused
            super().do_mstep(*args, **options)
            updates += 1
            if updates % updates_a_pass == 0:
                now = time.perf_counter()
                noted.append((now - began - paused, self.state.get_lambda().copy()))
                paused += time.perf_counter() - now

    model = Timed(
        num_topics=n_topics, id2word={v: corpus.word(v) for v in range(corpus.n_words)},
        alpha=np.full(n_topics, alpha), eta=eta, passes=passes, chunksize=chunk, eval_every=None,
        random_state=seed,
    )  # fmt: skip
    began = time.perf_counter()
    model.update(documents)
    for step, (seconds, topics) in enumerate(noted, start=1):
        model.expElogbeta = exp_expectation(topics).astype(model.dtype)
        gamma, _ = model.inference(documents)
        yield State(step, seconds, topics.T, gamma)


def as_lists(corpus: Corpus) -> list[list[tuple[int, float]]]:
    """The corpus as gensim wants it."""
    bounds = corpus.indptr.tolist()
    words, counts = corpus.indices.tolist(), corpus.counts.tolist()
    return [list(zip(words[lo:hi], counts[lo:hi], strict=True)) for lo, hi in pairwise(bounds)]
