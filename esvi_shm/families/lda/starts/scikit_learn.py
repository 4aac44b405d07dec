"""Start `scikit-learn`: E(lambda) / E(pi) with lambda drawn from Gamma(100, 1/100)."""

from collections.abc import Generator

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.config import FitConfig
from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.families.contract import Arrays
from esvi_shm.families.lda.cut import row_of_word
from esvi_shm.families.lda.totals import FOLD_SWEEPS, fold_in
from esvi_shm.special import digamma


def start(
    config: FitConfig, corpus: AnyCorpus, arrays: Arrays, shared: Arrays
) -> Generator[str, bool, None]:
    """See `starts`."""
    random = np.random.default_rng([config.seed, 0x5EED])
    expected_topics_into(shared["lambda_"], row_of_word(arrays), random)
    yield from fold_in("unfold", FOLD_SWEEPS)


def expected_topics_into(
    topics: np.ndarray, row_of_word: np.ndarray, random: np.random.Generator
) -> None:
    """E(lambda) / E(pi) with lambda drawn from Gamma(100, 1/100): where scikit-learn begins.

    Drawn in the order of the word ids, so that the number of blocks makes no difference.

    Parameters
    ----------
    topics : float32 array, shape (V, K)
        Written.
    row_of_word : int array, shape (V,)
        -1: of a word whose row is not to be written.
    random : numpy.random.Generator
    """
    pi = np.zeros(topics.shape[1])
    for first in range(0, len(row_of_word), 4096):
        rows = row_of_word[first : first + 4096]
        drawn = random.gamma(100.0, 0.01, (len(rows), topics.shape[1]))
        topics[rows[rows >= 0]] = drawn[rows >= 0]
        pi += drawn.sum(axis=0)
    for first in range(0, len(row_of_word), 4096):
        rows = row_of_word[first : first + 4096]
        expected = topics[rows[rows >= 0]]
        expected_rows(expected, pi, False)
        topics[rows[rows >= 0]] = expected


@kernel
def expected_rows(topics, pi, relative):
    """topics_vk = exp(digamma(topics_vk) - digamma(pi_k)), in place.

    `relative`: over the row's largest. A word that is at a small prior in all topics would else be
    0 in all of them to float32.
    """
    for v in range(topics.shape[0]):
        largest = -np.inf if relative else 0.0
        for k in range(topics.shape[1] if relative else 0):
            largest = max(largest, digamma(np.float64(topics[v, k])) - digamma(pi[k]))
        for k in range(topics.shape[1]):
            log_topic = digamma(np.float64(topics[v, k])) - digamma(pi[k])
            topics[v, k] = np.exp(log_topic - largest)
