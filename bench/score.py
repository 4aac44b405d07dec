"""The bound L of any system's LDA state, in float64 NumPy: the one scorer of all that is compared.

It shares no code with the package. Memory stays small: pairs and words are taken in chunks.
Source: Blei, Ng, Jordan 2003; Hoffman et al. 2013. Priors are per topic and per word.
"""

import numpy as np
from scipy.special import gammaln, logsumexp, psi

from esvi_shm.corpus.corpus import Corpus

CHUNK = 4096


def elbo(corpus: Corpus, gamma: np.ndarray, lambda_: np.ndarray, alpha: float, eta: float) -> float:
    """The evidence lower bound L, with the best phi for (gamma, lambda), in nats.

    Parameters
    ----------
    corpus : Corpus
    gamma : array, shape (D, K)
        Dirichlet parameters of the documents.
    lambda_ : array, shape (V, K)
        Dirichlet parameters of the topics, a row per word.
    alpha, eta : float
        Priors, of each topic and of each word.
    """
    gamma = np.asarray(gamma, np.float64)
    elog_theta = psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))
    elog_beta = expected_logs(lambda_)
    total = _pairs_part(corpus, elog_theta, elog_beta)
    # sum_d [lnB(gamma_d) - lnB(alpha) + sum_k (alpha - gamma_dk) Elog theta_dk]
    n_documents, n_topics = gamma.shape
    total += gammaln(gamma).sum() - gammaln(gamma.sum(axis=1)).sum()
    total -= n_documents * (n_topics * gammaln(alpha) - gammaln(n_topics * alpha))
    total += ((alpha - gamma) * elog_theta).sum()
    # sum_k [lnB(lambda_k) - lnB(eta) + sum_v (eta - lambda_vk) Elog beta_vk]
    n_words = len(lambda_)
    for first in range(0, n_words, CHUNK):
        rows = np.asarray(lambda_[first : first + CHUNK], np.float64)
        total += gammaln(rows).sum()
        total += ((eta - rows) * elog_beta[first : first + CHUNK]).sum()
    total -= gammaln(np.sum(lambda_, axis=0, dtype=np.float64)).sum()
    total -= n_topics * (n_words * gammaln(eta) - gammaln(n_words * eta))
    return float(total)


def expected_logs(lambda_: np.ndarray) -> np.ndarray:
    """Elog beta = digamma(lambda_vk) - digamma(sum_v lambda_vk), float64, shape (V, K)."""
    out = psi(np.asarray(lambda_, np.float64))
    out -= psi(np.sum(lambda_, axis=0, dtype=np.float64))
    return out


def _pairs_part(corpus: Corpus, elog_theta: np.ndarray, elog_beta: np.ndarray) -> float:
    """sum_dv n_dv log sum_k exp(Elog theta_dk + Elog beta_vk)."""
    documents = np.repeat(np.arange(corpus.n_documents), np.diff(corpus.indptr))
    total = 0.0
    for first in range(0, corpus.n_pairs, CHUNK):
        chunk = slice(first, first + CHUNK)
        logs = elog_theta[documents[chunk]]
        logs += elog_beta[corpus.indices[chunk]]
        total += float(corpus.counts[chunk] @ logsumexp(logs, axis=1))
    return total


def settle_documents(
    corpus: Corpus,
    gamma: np.ndarray,
    lambda_: np.ndarray,
    alpha: float,
    tol: float = 1e-3,
    most: int = 500,
) -> np.ndarray:
    """gamma iterated to its fixed point under lambda, from the gamma given; L never falls by it.

    Each step is phi at its best for gamma, then gamma = alpha + sum_v n_dv phi_dv, until no
    gamma_dk of the document moves by more than `tol`.
    """
    out = np.array(gamma, np.float64)
    elog_beta = expected_logs(lambda_)
    # A word's row may be divided by its largest value: it cancels in phi.
    beta = np.exp(elog_beta - elog_beta.max(axis=1, keepdims=True))
    for d in range(corpus.n_documents):
        pairs = slice(corpus.indptr[d], corpus.indptr[d + 1])
        rows, counts = beta[corpus.indices[pairs]], corpus.counts[pairs].astype(np.float64)
        row = out[d]
        for _ in range(most):
            log_theta = psi(row)
            theta = np.exp(log_theta - log_theta.max())
            new = alpha + theta * ((counts / np.maximum(rows @ theta, 1e-300)) @ rows)
            change = np.abs(new - row).max()
            row[:] = new
            if change < tol:
                break
    return out
