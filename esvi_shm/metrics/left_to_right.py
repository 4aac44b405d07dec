"""The probability of whole unseen documents, by left-to-right estimates on a sample of them.

p(w | topics, alpha) sums over every assignment of a document's tokens to topics. The estimate goes
through the tokens once: p(w_n | w_<n) is the mean over some particles, each an assignment z_<n of
the tokens before; then token n gets a topic in each. Before every token each particle's earlier
topics are drawn again, once around (a Gibbs sweep); and particles are drawn in proportion to what
they gave the token (systematic resampling). With that the product of the means is an unbiased
estimate of the probability of the document, whatever the number of particles (Del Moral,
Feynman-Kac Formulae, 2004, theorem 7.4.2). Wallach et al. keep all particles, whose product of
means is biased where there are several. The logarithm of the estimate is too low on average, by
less the more particles there are.

A bag of words has no order, and every order has the same probability: one is drawn at random. The
work grows with the square of the tokens of a document.

Source: Wallach, Murray, Salakhutdinov, Mimno, Evaluation methods for topic models, ICML 2009,
Algorithm 3; see also Buntine, Estimating likelihoods for topic models, ACML 2009.
"""

import math
from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.counter import shuffled, uniform
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.families.lda.unseen import frozen
from esvi_shm.metrics.completion import check_whole_counts
from esvi_shm.metrics.inference import checked_prior, pack_topics
from esvi_shm.runtime.threads import for_documents
from esvi_shm.special import log

#: Keeps the random numbers of a document apart from those of its coins in `split_tokens`.
STREAM = 2**62


class LeftToRight(NamedTuple):
    """What `left_to_right` finds; the arrays are of the documents in the sample."""

    perplexity: float
    n_tokens: int
    documents: np.ndarray  # int64 (N,): their numbers in the corpus, ascending
    log_likelihood: np.ndarray  # float64 (N,): estimates of log p(w_d), in nats
    tokens: np.ndarray  # int64 (N,)
    standard_error: float  # of the perplexity


def left_to_right(
    topics: np.ndarray,
    alpha: np.ndarray,
    corpus: Corpus,
    n_documents: int | None = None,
    particles: int = 20,
    seed: int = 0,
    n_workers: int | None = None,
) -> LeftToRight:
    """Perplexity of unseen documents, exp(- sum_d log p(w_d) / sum of tokens), p by estimates.

    Parameters
    ----------
    topics : array, shape (V, K) or (V, padded(K))
        Probability of each word in each topic, as for `fold_in`.
    alpha : array, shape (K,)
        Prior of the documents, greater than 0.
    corpus : Corpus
        With whole counts.
    n_documents : int or None
        Documents that are drawn from those with tokens; None: all.
    particles : int
    seed : int
        From 0 to 2**63 - 1: of the sample and of the estimates.
    n_workers : int or None
        Threads; None: one for each core. Their number does not change the result.

    Returns
    -------
    LeftToRight
        The perplexity is infinite where a word has probability 0. Its standard error is that over
        documents, h being the logarithm of the perplexity,
        perplexity * sqrt(N / (N - 1) * sum_d (log p(w_d) + h n_d)^2) / sum_d n_d,
        as for any ratio of sums (the delta method): how far the figure of other documents of the
        kind would be from it. It holds the chance of the particles, which are each document's own,
        but not that few of them make the perplexity too high on average. nan for one document.

    Raises
    ------
    CorpusError
        For a count that is no whole number, or if there is no token.
    ParameterError
        If the shapes do not match, or a number is out of its range.

    Examples
    --------
    >>> corpus = Corpus.from_sparse(np.array([[2, 0], [0, 0], [0, 1]]))
    >>> found = left_to_right(np.array([[0.25], [0.75]]), np.ones(1), corpus)
    >>> found.documents.tolist(), np.exp(found.log_likelihood).round(4).tolist()
    ([0, 2], [0.0625, 0.75])
    >>> round(found.perplexity, 4), round(found.standard_error, 4)
    (2.7734, 1.3542)
    """
    if not 0 <= seed < 2**63:
        raise ParameterError("seed", "must be from 0 to 2**63 - 1", seed)
    for name, value in (("particles", particles), ("n_documents", n_documents)):
        if value is not None and value < 1:
            raise ParameterError(name, "must be at least 1", value)
    check_whole_counts(corpus)
    priors = checked_prior(alpha).astype(np.float64)
    packed = pack_topics(topics, len(priors), corpus.n_words)
    rows = frozen(packed, np.float32)
    documents = np.flatnonzero(np.diff(corpus.indptr))
    if not len(documents):
        raise CorpusError(corpus.name, "there must be a token to estimate the probability of")
    tokens = np.add.reduceat(corpus.counts, corpus.indptr[documents], dtype=np.float64)
    if n_documents is not None and n_documents < len(documents):
        random = np.random.default_rng([seed, STREAM])
        sample = np.sort(random.choice(len(documents), n_documents, replace=False))
        documents, tokens = documents[sample], tokens[sample]
    likelihood = np.empty(len(documents))

    def estimate(first: int, last: int) -> None:
        for i in range(first, last):
            d = documents[i]
            pairs = slice(corpus.indptr[d], corpus.indptr[d + 1])
            words = np.repeat(corpus.indices[pairs], corpus.counts[pairs].astype(np.int64))
            likelihood[i] = _estimate(
                shuffled(words, seed, d + STREAM, 0), rows, priors, int(particles), seed,
                d + STREAM,
            )  # fmt: skip

    for_documents(estimate, np.concatenate([[0], np.cumsum(tokens**2)]).astype(np.int64), n_workers)
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(-likelihood.sum() / tokens.sum()))
    return LeftToRight(
        perplexity, int(tokens.sum()), documents, likelihood, tokens.astype(np.int64),
        perplexity * _relative_error(likelihood, tokens),
    )  # fmt: skip


def _relative_error(likelihood: np.ndarray, tokens: np.ndarray) -> float:
    """The standard error of sum(likelihood) / sum(tokens), over documents."""
    n, rate = len(tokens), likelihood.sum() / tokens.sum()
    if n < 2 or not np.isfinite(rate):
        return math.nan
    residuals = likelihood - rate * tokens
    return float(np.sqrt(n / (n - 1) * residuals @ residuals) / tokens.sum())


@kernel(allocates=True)
def _estimate(words, topics, alpha, particles, seed, document):
    """The estimate of log p(words)."""
    n_tokens, n_topics = words.shape[0], alpha.shape[0]
    held = np.zeros((particles, n_topics))  # tokens of each topic
    z = np.zeros((particles, n_tokens), np.int32)
    next_held, next_z = held.copy(), z.copy()
    given = np.zeros(particles)
    weights = np.zeros(n_topics)
    alpha_sum = alpha.sum()
    # The first numbers ordered the words.
    draw = n_tokens
    likelihood = 0.0
    for n in range(n_tokens):
        beta = topics[words[n]]
        total = 0.0
        for r in range(particles):
            for m in range(n):
                held[r, z[r, m]] -= 1.0
                _weigh(topics[words[m]], alpha, held[r], weights)
                z[r, m] = _pick(weights, uniform(seed, document, draw))
                held[r, z[r, m]] += 1.0
                draw += 1
            given[r] = _weigh(beta, alpha, held[r], weights)
            total += given[r]
        if not total > 0.0:
            return -np.inf
        likelihood += log(total / (particles * (alpha_sum + n)))
        # Particle r goes on from the one at (r + u) / R of the sum of what they gave.
        start = uniform(seed, document, draw)
        draw += 1
        source, reached = 0, given[0]
        for r in range(particles):
            while reached < (r + start) / particles * total and source < particles - 1:
                source += 1
                reached += given[source]
            next_held[r] = held[source]
            next_z[r, :n] = z[source, :n]
        held, next_held = next_held, held
        z, next_z = next_z, z
        for r in range(particles):
            _weigh(beta, alpha, held[r], weights)
            z[r, n] = _pick(weights, uniform(seed, document, draw))
            held[r, z[r, n]] += 1.0
            draw += 1
    return likelihood


@kernel
def _weigh(beta, alpha, held, weights):
    """weights = beta (alpha + held), over the topics; returns their sum."""
    total = 0.0
    for k in range(alpha.shape[0]):
        weights[k] = np.float64(beta[k]) * (alpha[k] + held[k])
        total += weights[k]
    return total


@kernel
def _pick(weights, u):
    """A topic in proportion to the weights, by a number in (0, 1)."""
    total = 0.0
    for k in range(weights.shape[0]):
        total += weights[k]
    goal, reached, last = u * total, 0.0, 0
    for k in range(weights.shape[0]):
        if weights[k] > 0.0:
            last = k
            reached += weights[k]
            if reached >= goal:
                break
    return last
