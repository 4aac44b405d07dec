"""Start `scikit-learn`: E(lambda) / E(pi) with lambda drawn from Gamma(100, 1/100)."""

from collections.abc import Generator, Iterator

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.config import FitConfig
from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.families.contract import Arrays
from esvi_shm.families.lda.cut import row_of_word
from esvi_shm.families.lda.starts import _topics
from esvi_shm.families.lda.totals import FOLD_SWEEPS, fold_in
from esvi_shm.special import digamma


def start(
    config: FitConfig, corpus: AnyCorpus, arrays: Arrays, shared: Arrays
) -> Generator[str, bool, None]:
    """See `starts`."""
    random = np.random.default_rng([config.seed, 0x5EED])
    for rows, topics in expected_topics(row_of_word(arrays), config.n_topics, random):
        _topics.write(shared, rows, topics)
    yield from fold_in("unfold", FOLD_SWEEPS)


def expected_topics(
    row_of_word: np.ndarray, n_topics: int, random: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """E(lambda) / E(pi) with lambda drawn from Gamma(100, 1/100): where scikit-learn begins.

    Drawn in the order of the word ids, so that the number of blocks makes no difference; and twice,
    so that no more than some rows are held.

    Parameters
    ----------
    row_of_word : int array, shape (V,)
        -1: of a word whose row is not asked for.
    n_topics : int
    random : numpy.random.Generator

    Yields
    ------
    tuple of arrays
        Rows, and their topics: float32, shape (n, K).
    """
    pi, state = np.zeros(n_topics), random.bit_generator.state
    for is_last in (False, True):
        random.bit_generator.state = state
        for first in range(0, len(row_of_word), 4096):
            rows = row_of_word[first : first + 4096]
            drawn = random.gamma(100.0, 0.01, (len(rows), n_topics))
            if not is_last:
                pi += drawn.sum(axis=0)
                continue
            expected = drawn[rows >= 0].astype(np.float32)
            expected_rows(expected, pi, False)
            yield rows[rows >= 0], expected


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
