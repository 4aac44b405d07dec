"""Where a fit begins: topics to fold the documents into, or random responsibilities.

A start gives point topics, written into lambda_ by the workers; every worker then folds its own
documents in (gamma from uniform, a few sweeps with the topics held still) and the last sweep
leaves the margins of phi, from which gamma, lambda and pi are set. `random` sets phi directly.

==============  ==================================================================
seeded          topic k is a random document, smoothed by the corpus at equal weight
scikit-learn    E(lambda) with lambda drawn from Gamma(100, 1/100), as scikit-learn does
random          phi of each pair uniform on the simplex
==============  ==================================================================
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.counter import uniform
from esvi_shm.special import digamma, log

#: Relative noise on seeded topics. A word that a seed document lacks has the same weight in
#: every topic, and exact ties are saddle points of coordinate ascent.
NOISE = 0.01


@kernel
def corpus_topics_into(topics, first, last, word_tokens, n_tokens, word_ids, seed):
    """Rows first..last-1: half the corpus distribution, with a little noise, in every topic."""
    for v in range(first, last):
        weight = 0.5 * word_tokens[v] / n_tokens
        for k in range(topics.shape[1]):
            noise = 1.0 + NOISE * (2.0 * uniform(seed, word_ids[v], k) - 1.0)
            topics[v, k] = weight * noise


@kernel
def add_seed_documents(topics, seeds, first_document, shard, document_tokens):
    """Add half the word distribution of each seed document of this shard to its topic."""
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr = shard.row_doc, shard.row_ptr
    word_row = shard.word_row
    n_documents = document_tokens.shape[0]
    # topic_of[d]: chain of the topics that document d seeds (more topics than documents).
    head = np.full(n_documents, -1, np.int64)
    chain = np.full(seeds.shape[0], -1, np.int64)
    for k in range(seeds.shape[0]):
        d = seeds[k] - first_document
        if 0 <= d < n_documents:
            chain[k] = head[d]
            head[d] = k
    for r in range(row_doc.shape[0]):
        d = row_doc[r]
        if head[d] >= 0:
            for j in range(row_ptr[r], row_ptr[r + 1]):
                weight = np.float32(0.5 * pair_count[j] / document_tokens[d])
                k = head[d]
                while k >= 0:
                    topics[word_row[pair_word[j]], k] += weight
                    k = chain[k]


@kernel
def random_phi_into(phi, pair, seed):
    """phi of one pair, uniform on the simplex: normalised exponentials. `pair` counts in all."""
    total = 0.0
    for k in range(phi.shape[0]):
        phi[k] = -log(uniform(seed, pair, k))
        total += phi[k]
    for k in range(phi.shape[0]):
        phi[k] /= total


def expected_topics_into(
    topics: np.ndarray, word_ids: np.ndarray, random: np.random.Generator
) -> None:
    """E(lambda) / E(pi) with lambda drawn from Gamma(100, 1/100): where scikit-learn begins.

    Drawn in the order of the word ids, so that the number of blocks makes no difference.

    Parameters
    ----------
    topics : float32 array, shape (V, K)
        Written.
    word_ids : int32 array, shape (V,)
    random : numpy.random.Generator
    """
    row_of_word = np.argsort(word_ids)
    pi = np.zeros(topics.shape[1])
    for first in range(0, len(word_ids), 4096):
        rows = row_of_word[first : first + 4096]
        drawn = random.gamma(100.0, 0.01, (len(rows), topics.shape[1]))
        topics[rows] = drawn
        pi += drawn.sum(axis=0)
    expected_rows(topics, pi)


@kernel
def expected_rows(topics, pi):
    """topics_vk = exp(digamma(topics_vk) - digamma(pi_k)), in place."""
    for v in range(topics.shape[0]):
        for k in range(topics.shape[1]):
            topics[v, k] = np.exp(digamma(np.float64(topics[v, k])) - digamma(pi[k]))


def choose_seed_documents(
    document_tokens: np.ndarray, n_topics: int, random: np.random.Generator
) -> np.ndarray:
    """`n_topics` documents, distinct as long as there are enough that are not empty.

    Parameters
    ----------
    document_tokens : array, shape (D,)
    n_topics : int
    random : numpy.random.Generator

    Returns
    -------
    int64 array, shape (K,)
    """
    filled = np.flatnonzero(document_tokens > 0)
    rounds = -(-n_topics // len(filled))
    chosen = np.concatenate([random.permutation(filled) for _ in range(rounds)])
    return chosen[:n_topics].astype(np.int64)
