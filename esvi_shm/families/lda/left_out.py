"""How much active sets leave out, measured on a sample of documents against updates of all topics.

What `active` promises is a bound; this is the amount, in float64 and by the same rules, at the
gamma and lambda of the end.
"""

from typing import Any

import numpy as np

from esvi_shm.families.lda.listed import ROUNDING
from esvi_shm.families.lda.thresholds import (
    DOCUMENT_CUT,
    EDGE_CUT,
    TOKENS_CUT,
    WORD_CUT,
    least_concentrated,
    scattered,
)

#: Documents of the sample.
SAMPLE = 100


def draw(n_documents: int, seed: int) -> np.ndarray:
    """Documents for the sample, int64, ascending."""
    n = min(SAMPLE, n_documents)
    return np.sort(np.random.default_rng(seed).choice(n_documents, n, replace=False))


def of_fit(
    held: Any, learned: Any, n_documents: int, seed: int, tolerance: float
) -> dict[str, float] | None:
    """What `measure` finds at the end of a fit; None at a node that has not the whole of it.

    `held` fetches documents from all nodes: so all call this, node 0 for the answer.
    """
    sample = draw(n_documents, seed)
    documents = held.rows(sample)
    ends = np.cumsum([len(gamma) for gamma in learned.of_units])
    if ends[-1] < n_documents:
        return None
    part = np.searchsorted(ends, sample, "right")
    first = np.concatenate([[0], ends])[part]
    gamma = [learned.of_units[p][d] for p, d in zip(part, sample - first, strict=True)]
    row_of_word = np.argsort(learned.word_ids)
    return measure(
        documents,
        np.stack(gamma),
        learned.lambda_rows,
        row_of_word,
        learned.alpha,
        learned.eta,
        tolerance,
    )


def measure(
    documents: tuple[np.ndarray, np.ndarray, np.ndarray],
    gamma: np.ndarray,
    lambda_rows: np.ndarray,
    row_of_word: np.ndarray,
    alpha: np.ndarray,
    eta: np.ndarray,
    tolerance: float,
) -> dict[str, float]:
    """Compare phi over active sets with phi over all topics, for some documents.

    Parameters
    ----------
    documents : tuple
        Those that `draw` gives, n of them, as `Corpus.rows` has them: indptr, indices, counts.
    gamma : array, shape (n, K)
        Theirs.
    lambda_rows : array, shape (V, K)
    row_of_word : int array, shape (V,)
        Of `lambda_rows`, by word.
    alpha : array, shape (K,)
    eta : array, shape (V,)
        By word.
    tolerance : float
        What a pair may leave out, at most, as `schedule.TOLERANCE`.

    Returns
    -------
    dict
        `documents` and `tokens` of the sample; `mass`, the share of the tokens that updates of all
        topics would put elsewhere; `elbo_gap`, the nats a token by which the bound at this phi is
        below that at the best phi for these gamma and lambda.

    Examples
    --------
    >>> from esvi_shm.corpus.corpus import Corpus
    >>> corpus = Corpus.from_tokens([["a", "b", "b"]])
    >>> rows, alpha, eta = np.array([[9, 0.1], [8, 5]]), np.full(2, 0.1), np.full(2, 0.1)
    >>> gamma = np.array([[90, 0.101]])
    >>> found = measure(corpus.rows(draw(1, 0)), gamma, rows, np.arange(2), alpha, eta, 1e-3)
    >>> found["tokens"], 0 < found["mass"] < 1e-3
    (3.0, True)
    """
    from scipy.special import psi

    elog_pi = psi(lambda_rows.sum(axis=0, dtype=np.float64))
    inverse_pi = np.exp(elog_pi.min() - elog_pi)
    tokens = mass = gap = 0.0
    indptr, indices, all_counts = documents
    for i in range(len(gamma)):
        pairs = slice(indptr[i], indptr[i + 1])
        words, counts = indices[pairs], all_counts[pairs].astype(np.float64)
        rows, prior = lambda_rows[row_of_word[words]].astype(np.float64), eta[words, None]
        elog = psi(rows)
        highest = elog.max(axis=1, keepdims=True)
        edge = np.exp(psi(prior) - highest)[:, 0]
        beta = np.exp(elog - highest) * inverse_pi
        above = rows - prior
        lives = above > ROUNDING * prior
        lives &= above >= WORD_CUT * above.max(axis=1, keepdims=True)
        everywhere = edge > EDGE_CUT * (beta * lives).sum(axis=1)
        everywhere |= ~lives.any(axis=1) | lives.all(axis=1)
        lives[everywhere], edge[everywhere] = True, 0.0

        theta = np.exp(psi(gamma[i].astype(np.float64)) - psi(gamma[i].max()))
        above = gamma[i] - alpha
        own = above > ROUNDING * alpha
        own &= above >= min(DOCUMENT_CUT * above.max(), TOKENS_CUT)
        if not own.any():
            own[:] = True
        beyond = 0.0
        if not own.all():
            beyond = float(
                np.exp(psi(max(alpha.max(), gamma[i, ~own].max())) - psi(gamma[i].max()))
            )

        in_word = beta * lives
        everything, few, more = beta @ theta, in_word @ (theta * own), in_word @ theta
        of_word = _kept(in_word * theta, tolerance, lives.sum(axis=1, keepdims=True))
        apart = edge * (theta[own] @ inverse_pi[own] + beyond * inverse_pi.sum())
        over_all = _kept(beta * theta, tolerance, len(alpha))
        placed = np.where(apart > tolerance * more, over_all, of_word)
        peak = np.maximum(in_word.max(axis=1), edge)
        enough = beyond * in_word.sum(axis=1) + apart <= scattered(tolerance) * tolerance * few
        enough &= beyond * peak + edge * (theta[own] @ inverse_pi[own]) <= tolerance * few
        share = np.clip(1.0 - np.where(enough, few, placed) / everything, 0.0, None)
        tokens += float(counts.sum())
        mass += float(counts @ share)
        gap -= float(counts @ np.log1p(-share))
    return {
        "documents": len(gamma),
        "tokens": tokens,
        "mass": mass / tokens if tokens else 0.0,
        "elbo_gap": gap / tokens if tokens else 0.0,
    }


def _kept(products: np.ndarray, tolerance: float, n_topics: Any) -> np.ndarray:
    """Sum over topics of those that a pair keeps of so many, see `active`."""
    sums = products.sum(axis=1, keepdims=True)
    above, more = (
        np.where(products >= least * sums, products, 0.0).sum(axis=1)
        for least in (tolerance, tolerance / n_topics)
    )
    return np.where(above >= least_concentrated(tolerance) * sums[:, 0], above, more)
