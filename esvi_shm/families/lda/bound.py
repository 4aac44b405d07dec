"""The evidence lower bound, in float64 with all constants, as parts that workers sum.

Two forms, and what cvb0 climbs (see `combine`):

F, at the phi that the engine holds, with gamma and lambda at their sums:

    F = sum_d [lnB(gamma_d) - lnB(alpha)] + sum_k [lnB(lambda_k) - lnB(eta)] + H,
    lnB(x) = sum_i log Gamma(x_i) - log Gamma(sum_i x_i),   H = - sum n phi log phi

L, at the best phi for gamma and lambda, which is what scikit-learn and gensim compute:

    L = sum_dv n_dv log sum_k exp(Elog theta_dk + Elog beta_vk)
      + sum_d [lnB(gamma_d) - lnB(alpha) + sum_k (alpha_k - gamma_dk) Elog theta_dk]
      + sum_k [lnB(lambda_k) - lnB(eta)  + sum_v (eta_v - lambda_vk) Elog beta_vk]

L >= F, and they are equal at a fixed point. Inference cvb0 climbs, at the phi that it holds,

    J = sum n phi log(theta beta / phi) + sum alpha log theta + sum eta log beta
      = sum_d nlogn(gamma_d) + sum_k nlogn(lambda_k) + H,
    nlogn(x) = sum_i x_i log x_i - (sum_i x_i) log(sum_i x_i)

with theta and beta proportional to gamma and lambda, their best for phi: the log posterior under
Dirichlet(alpha + 1) and Dirichlet(eta + 1) but for its constants, and for phi its bound from
below. F and J are alike: log Gamma(x) is about x log x - x.

Source: Blei, Ng, Jordan 2003, eq. 15; Hoffman et al. 2013; F is the same bound with phi and its
own gamma and lambda put in. Asuncion, Welling, Smyth, Teh 2009 for cvb0 and what it climbs.
"""

from math import lgamma

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.contract import Bound
from esvi_shm.families.lda.listed import n_rows_of, row_of, word_row_into
from esvi_shm.special import digamma, exp_negative, log, log_gamma

#: Columns of the workers' rows of partial sums.
PAIRS, DOCUMENTS_LNB, DOCUMENTS_GAP, DOCUMENTS_NLOGN, WORDS_LNB, WORDS_GAP, WORDS_NLOGN = range(7)
ENTROPY, N_PARTS = 7, 8


@kernel(allocates=True)
def digamma_rows(pi, eta_total):
    """digamma(pi_k) from the workers' contributions, shape (P, K) -> (K,), float64."""
    total = np.full(pi.shape[1], eta_total)
    for p in range(pi.shape[0]):
        for k in range(pi.shape[1]):
            total[k] += pi[p, k]
    for k in range(pi.shape[1]):
        total[k] = digamma(total[k])
    return total


@kernel(allocates=True)
def pairs_part(shard, block, gamma, lambda_, eta, digamma_pi):
    """sum over the pairs of a block of n log sum_k E(gamma) E(lambda) / E(pi), E = exp(digamma).

    The documents' - digamma(sum gamma_d) is added by `documents_part`. Rows are scaled by
    their largest value; a sum that underflows all the same is done in the log domain.
    """
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr = shard.row_doc, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    block_word_ptr = shard.block_word_ptr
    n_topics = digamma_pi.shape[0]
    first = block_word_ptr[block]
    n_words = block_word_ptr[block + 1] - first
    factor = np.empty((n_words, n_topics))
    scale = np.empty(n_words)
    theta = np.empty(n_topics)
    made, made_word = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
    for i in range(n_words):
        word = word_row[first + i]
        word_row_into(lambda_, word, eta[word], made_word)
        scale[i] = _relative_factors_into(made_word, digamma_pi, factor[i])
    zero = np.zeros(n_topics)
    total = 0.0
    for r in range(block_row_ptr[block], block_row_ptr[block + 1]):
        gamma_row = row_of(gamma, row_doc[r], made)
        largest = _relative_factors_into(gamma_row, zero, theta)
        for j in range(row_ptr[r], row_ptr[r + 1]):
            i = pair_word[j] - first
            row = factor[i]
            s = 0.0
            for k in range(n_topics):
                s += theta[k] * row[k]
            if s > 1e-280:
                value = log(s) + largest + scale[i]
            else:
                word = word_row[first + i]
                word_row_into(lambda_, word, eta[word], made_word)
                value = _log_sum(gamma_row, made_word, digamma_pi)
            total += pair_count[j] * value
    return total


@kernel
def _relative_factors_into(x, minus, out):
    """out = exp(digamma(x) - minus - m), with m their largest, which is returned."""
    largest = -np.inf
    for k in range(x.shape[0]):
        out[k] = digamma(np.float64(x[k])) - minus[k]
    for k in range(x.shape[0]):
        largest = max(largest, out[k])
    for k in range(x.shape[0]):
        out[k] = exp_negative(out[k] - largest)
    return largest


@kernel
def _log_sum(gamma_row, lambda_row, digamma_pi):
    """log sum_k exp(digamma(gamma_k) + digamma(lambda_k) - digamma(pi_k)) without underflow."""
    n_topics = gamma_row.shape[0]
    largest = -np.inf
    for k in range(n_topics):
        u = digamma(np.float64(gamma_row[k])) + digamma(np.float64(lambda_row[k])) - digamma_pi[k]
        largest = max(largest, u)
    total = 0.0
    for k in range(n_topics):
        u = digamma(np.float64(gamma_row[k])) + digamma(np.float64(lambda_row[k])) - digamma_pi[k]
        total += exp_negative(u - largest)
    return largest + log(total)


@kernel(allocates=True)
def documents_part(gamma, document_tokens, alpha):
    """Over the shard's documents: sum lnB(gamma_d), the rest that L alone has, sum nlogn(gamma_d).

    The rest is sum_k (alpha_k - gamma_dk) Elog theta_dk - n_d digamma(sum_k gamma_dk): the
    last term belongs to the pairs, see `pairs_part`.
    """
    n_topics = alpha.shape[0]
    made = np.empty(n_topics, np.float32)
    lnb = 0.0
    rest = 0.0
    nlogn = 0.0
    for d in range(n_rows_of(gamma)):
        row = row_of(gamma, d, made)
        total = 0.0
        for k in range(n_topics):
            total += np.float64(row[k])
        digamma_total = digamma(total)
        row_lnb = 0.0
        row_rest = 0.0
        row_nlogn = 0.0
        for k in range(n_topics):
            g = np.float64(row[k])
            row_lnb += log_gamma(g)
            row_rest += (alpha[k] - g) * (digamma(g) - digamma_total)
            row_nlogn += g * log(g)
        lnb += row_lnb - log_gamma(total)
        rest += row_rest - document_tokens[d] * digamma_total
        nlogn += row_nlogn - total * log(total)
    return lnb, rest, nlogn


@kernel(allocates=True)
def words_part(lambda_, first, last, eta, digamma_pi):
    """Over word rows first..last-1: sums of log Gamma(lambda_vk), (eta_v - lambda) Elog beta, and
    lambda log lambda.
    """
    n_topics = digamma_pi.shape[0]
    made = np.empty(n_topics, np.float32)
    lnb = 0.0
    gap = 0.0
    nlogn = 0.0
    for v in range(first, last):
        word_row_into(lambda_, v, np.float32(eta[v]), made)
        row_lnb = 0.0
        row_gap = 0.0
        row_nlogn = 0.0
        for k in range(n_topics):
            x = np.float64(made[k])
            row_lnb += log_gamma(x)
            row_gap += (eta[v] - x) * (digamma(x) - digamma_pi[k])
            row_nlogn += x * log(x)
        lnb += row_lnb
        gap += row_gap
        nlogn += row_nlogn
    return lnb, gap, nlogn


def combine(
    total: np.ndarray,
    alpha: np.ndarray,
    eta: np.ndarray,
    pi: np.ndarray,
    n_documents: int,
    cvb0: bool,
    power: float,
) -> Bound:
    """The bounds and the objective from the sum of the workers' parts.

    Parameters
    ----------
    total : float64 array, shape (N_PARTS,)
        `ENTROPY`, which is H, may be nan where it is not known, and then `elbo_f` and the objective
        are nan.
    alpha, eta, pi : float64 arrays, shapes (K,), (V,), (K,)
    n_documents : int
    cvb0 : bool
        Whether the objective is J, not F. Updates that leave something out do not climb it.
    power : float
        Of the last updates. phi proportional to (theta beta)**power is the best one for an
        objective in which its entropy weighs 1 / power.
    """
    entropy, n_topics = float(total[ENTROPY]), len(alpha)
    lnb_alpha = sum(map(lgamma, alpha)) - lgamma(float(alpha.sum()))
    values, counts = np.unique(eta, return_counts=True)
    lnb_eta = sum(n * lgamma(x) for x, n in zip(values, counts, strict=True)) - lgamma(
        float(eta.sum())
    )
    priors = -n_documents * lnb_alpha - n_topics * lnb_eta
    lnb = total[DOCUMENTS_LNB] + total[WORDS_LNB] - sum(map(lgamma, pi)) + priors
    elbo = lnb + total[PAIRS] + total[DOCUMENTS_GAP] + total[WORDS_GAP]
    elbo_f = float(lnb + entropy)
    weighted = entropy / power
    if not cvb0:
        return Bound(float(elbo), elbo_f, float(lnb + weighted))
    nlogn = total[DOCUMENTS_NLOGN] + total[WORDS_NLOGN] - float(pi @ np.log(pi))
    return Bound(float(elbo), elbo_f, float(nlogn + weighted))
