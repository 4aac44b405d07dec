"""Which topics of a fit are dead or double, and which documents the topics explain badly.

    dead      fewer tokens than its prior stands for: sum_v (lambda_vk - eta_v) < sum_v eta_v
    double    two topics with like words (the cosine of their columns of lambda - eta is at least
              `LIKE_WORDS`) in the same documents (the correlation of gamma - alpha is positive)

How badly a document is explained is its excess, sum_v n_dv log((n_dv / n_d) / p_dv) with
p_dv = sum_k E[theta_dk] E[beta_kv]: the nats that a topic of its own would gain at most.
`repair` acts on both.
"""

from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.special import log

#: Cosine from which on the words of two topics are alike.
LIKE_WORDS = 0.5
#: What `moves` holds for a topic that stays.
STAYS = -1
#: Rows of a product at a time, in float64.
ROWS = 1024


class Likeness(NamedTuple):
    """What tells which topics to free; all float64, shapes (K, K), (K, K), (K,), (K,)."""

    words: np.ndarray  # products of the columns of lambda - eta
    documents: np.ndarray  # products of the columns of gamma - alpha
    document_sums: np.ndarray  # sums of the columns of gamma - alpha
    tokens: np.ndarray  # sums of the columns of lambda - eta


def choose_moves(
    likeness: Likeness, n_documents: int, eta_total: float, random: np.random.Generator
) -> np.ndarray:
    """Which topics to free, and which topic takes over what each of them holds.

    Parameters
    ----------
    likeness : Likeness
    n_documents : int
    eta_total : float
        Sum of eta over the vocabulary.
    random : numpy.random.Generator
        Draws the pair, so that one that was tried in vain is not tried for ever.

    Returns
    -------
    int64 array, shape (K,)
        `STAYS`; or the topic that takes over, which is the topic itself if it is dead. All dead
        topics are freed, unless all topics are dead, and the lesser one of one double pair.
    """
    n_topics = len(likeness.tokens)
    moves = np.full(n_topics, STAYS, np.int64)
    dead = likeness.tokens < eta_total
    if n_topics == 1 or dead.all():
        return moves
    moves[dead] = np.flatnonzero(dead)
    cosine = _normalised(likeness.words)
    means = likeness.document_sums / n_documents
    covariance = likeness.documents / n_documents - np.outer(means, means)
    double = (cosine >= LIKE_WORDS) & (covariance > 0) & ~np.tri(n_topics, dtype=bool)
    double[dead] = double[:, dead] = False
    pairs = np.argwhere(double)
    if len(pairs):
        weights = cosine[double]
        pair = pairs[random.choice(len(pairs), p=weights / weights.sum())]
        less, more = pair[np.argsort(likeness.tokens[pair], kind="stable")]
        moves[less] = more
    return moves


def _normalised(products: np.ndarray) -> np.ndarray:
    """Cosines from products."""
    norms = np.sqrt(np.maximum(np.diag(products), 1e-300))
    return products / np.outer(norms, norms)


def choose_documents(excess: np.ndarray, n: int, random: np.random.Generator) -> np.ndarray:
    """`n` documents, drawn by their excess without replacement; fewer if so few have any.

    Parameters
    ----------
    excess : float64 array, shape (D,)
    n : int
    random : numpy.random.Generator

    Returns
    -------
    int64 array
    """
    weights = np.maximum(excess, 0.0)
    n = min(n, int(np.count_nonzero(weights)))
    if n == 0:
        return np.empty(0, np.int64)
    return random.choice(len(weights), n, replace=False, p=weights / weights.sum())


@kernel(allocates=True)
def excess_into(out, shard, block, gamma, lambda_, pi, document_tokens):
    """out_d += sum over the words of a block of n log((n / n_d) / sum_k theta_dk beta_vk).

    Parameters
    ----------
    out : float64 array, shape (D_p,)
    shard : Shard
    block : int
    gamma, lambda_ : float32 arrays, shapes (D_p, K) and (V, K)
    pi : float64 array, shape (K,)
        Column sums of lambda.
    document_tokens : float64 array, shape (D_p,)
    """
    n_topics = gamma.shape[1]
    theta = np.empty(n_topics)
    for r in range(shard.block_row_ptr[block], shard.block_row_ptr[block + 1]):
        d = shard.row_doc[r]
        total = 0.0
        for k in range(n_topics):
            total += np.float64(gamma[d, k])
        for k in range(n_topics):
            theta[k] = np.float64(gamma[d, k]) / (total * pi[k])
        for j in range(shard.row_ptr[r], shard.row_ptr[r + 1]):
            row = lambda_[shard.word_row[shard.pair_word[j]]]
            s = 0.0
            for k in range(n_topics):
                s += theta[k] * row[k]
            count = np.float64(shard.pair_count[j])
            out[d] += count * log(count / (document_tokens[d] * s))


def products(rows: np.ndarray, priors: np.ndarray) -> np.ndarray:
    """(rows - priors)' (rows - priors), float64, shape (K, K).

    Parameters
    ----------
    rows : float32 array, shape (n, K)
    priors : float64 array, shape (n, 1) or (1, K)
    """
    total = np.zeros((rows.shape[1], rows.shape[1]))
    priors = np.broadcast_to(priors, rows.shape)
    for first in range(0, len(rows), ROWS):
        chunk = rows[first : first + ROWS] - priors[first : first + ROWS]
        total += chunk.T @ chunk
    return total
