"""The held-out figures of scikit-learn and gensim, for people who compare with them.

Both take the bound L of the held-out documents, gamma being inferred with the topics fixed, and
divide it by their tokens. L holds the topics' own terms (their prior and entropy), which do not
shrink with the test set: the same topics get another figure on half as many documents. That is
why `completion` has the figure to go by, and these are for comparison only.

- scikit-learn: ``LatentDirichletAllocation.perplexity(X)`` is exp(-L / tokens), without
  sub-sampling; gamma starts at 1 and has `max_doc_update_iter` steps or until the mean change is
  below `mean_change_tol`.
- gensim: ``2 ** -LdaModel.log_perplexity(chunk)``, as its log prints it: L is in nats, and still
  a power of 2 is taken. gamma starts at random, which changes little.

The bound is float64, with the words of some documents at a time; gamma is inferred in float32,
which changes the figures by less than a millionth.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp, psi

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics.inference import infer_gamma

#: Pairs (or rows of lambda) that are taken at a time.
CHUNK = 8192


class HeldOutBound(NamedTuple):
    """The bound L of held-out documents in nats, and what the peers make of it."""

    bound: float
    n_tokens: float
    scikit_learn: float
    gensim: float


def held_out_bound(
    lambda_: np.ndarray,
    alpha: np.ndarray,
    eta: np.ndarray,
    corpus: Corpus,
    gamma: np.ndarray | None = None,
) -> HeldOutBound:
    """The bound L of held-out documents, as scikit-learn and gensim report it.

    L = sum_dv n_dv log sum_k exp(Elog theta_dk + Elog beta_vk)
    + sum_d [lnB(gamma_d) - lnB(alpha) + sum_k (alpha_k - gamma_dk) Elog theta_dk]
    + sum_k [lnB(lambda_k) - lnB(eta) + sum_v (eta_v - lambda_vk) Elog beta_vk],
    with lnB(x) = sum_i log Gamma(x_i) - log Gamma(sum_i x_i).

    Parameters
    ----------
    lambda_ : array, shape (V, K)
        Dirichlet parameters of the topics. Not changed.
    alpha, eta : arrays, shapes (K,) and (V,)
        Priors of the documents and of the topics.
    corpus : Corpus
        All its tokens count, none is split off.
    gamma : array, shape (D, K), optional
        Dirichlet parameters of its documents; by default those of `infer_gamma`.

    Returns
    -------
    HeldOutBound
        Perplexities are infinite where they overflow.

    Raises
    ------
    ParameterError
        If shapes do not match.
    CorpusError
        If there is no token.

    Notes
    -----
    Blei, Ng, Jordan 2003; Hoffman, Blei, Bach 2010; `_approx_bound` of scikit-learn's
    decomposition/_lda.py; `bound` and `log_perplexity` of gensim's models/ldamodel.py.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["sea", "ship"], ["sea"]])
    >>> found = held_out_bound(np.array([[3.0], [2.0]]), np.ones(1), np.ones(2), corpus)
    >>> round(found.bound, 4), round(found.scikit_learn, 4), round(found.gensim, 4)
    (-2.4849, 2.2894, 1.7756)
    """
    _check(lambda_, alpha, corpus)
    if eta.shape != (len(lambda_),):
        raise ParameterError("eta", f"must have {len(lambda_)} values", eta.shape)
    if not corpus.n_pairs:
        raise CorpusError(corpus.name, "there must be a token to have a bound of")
    if gamma is None:
        gamma = infer_gamma(lambda_, alpha, corpus)
    gamma = np.asarray(gamma, np.float64)
    if gamma.shape != (corpus.n_documents, len(alpha)):
        rule = f"must have the shape {(corpus.n_documents, len(alpha))}"
        raise ParameterError("gamma", rule, gamma.shape)
    elog_theta = psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))
    bound = float((gammaln(gamma) + (alpha - gamma) * elog_theta).sum())
    bound -= float(gammaln(gamma.sum(axis=1)).sum())
    bound -= len(gamma) * float(gammaln(alpha).sum() - gammaln(alpha.sum()))
    pi = lambda_.sum(axis=0, dtype=np.float64)
    bound += _topics_part(lambda_, pi, eta)
    documents = np.repeat(np.arange(corpus.n_documents), np.diff(corpus.indptr))
    for first in range(0, corpus.n_pairs, CHUNK):
        pairs = slice(first, first + CHUNK)
        words, of_pair = np.unique(corpus.indices[pairs], return_inverse=True)
        logs = _elog_beta(lambda_[words], pi)[of_pair]
        logs += elog_theta[documents[pairs]]
        bound += float(corpus.counts[pairs].astype(np.float64) @ logsumexp(logs, axis=1))
    with np.errstate(over="ignore"):
        per_token = bound / float(corpus.n_tokens)
        figures = float(np.exp(-per_token)), float(np.exp2(-per_token))
    return HeldOutBound(bound, corpus.n_tokens, *figures)


def _check(lambda_: np.ndarray, alpha: np.ndarray, corpus: Corpus) -> None:
    shape = (corpus.n_words, len(alpha))
    if lambda_.shape != shape:
        raise ParameterError("lambda_", f"must have the shape {shape}", lambda_.shape)


def _elog_beta(rows: np.ndarray, pi: np.ndarray) -> np.ndarray:
    """Elog beta_vk = digamma(lambda_vk) - digamma(pi_k) of some rows, float64."""
    return psi(np.asarray(rows, np.float64)) - psi(pi)


def _topics_part(lambda_: np.ndarray, pi: np.ndarray, eta: np.ndarray) -> float:
    """sum_k [lnB(lambda_k) - lnB(eta) + sum_v (eta_v - lambda_vk) Elog beta_vk]."""
    total = -float(gammaln(pi).sum())
    total -= len(pi) * float(gammaln(eta).sum() - gammaln(eta.sum()))
    for first in range(0, len(lambda_), CHUNK):
        rows = np.asarray(lambda_[first : first + CHUNK], np.float64)
        weights = eta[first : first + CHUNK, None] - rows
        total += float((gammaln(rows) + weights * _elog_beta(rows, pi)).sum())
    return total
