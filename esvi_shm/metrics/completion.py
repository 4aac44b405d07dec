"""Document completion: how well topics predict one half of each unseen document from the other.

Each token goes to the observed or to the scored half by a coin; theta is found from the observed
half under point topics, the same way whoever fitted them; the scored half is predicted with it.
No term of the topics' own (their prior, their entropy) is in the figure, so it does not depend
on the size of the test set, and systems with different bounds can be compared by it.

The arithmetic is float32 with sums over tokens in float64: probabilities are good to six digits.

Source: Wallach, Murray, Salakhutdinov, Mimno, Evaluation methods for topic models, ICML 2009
(document completion); Asuncion, Welling, Smyth, Teh, On smoothing and inference for topic
models, UAI 2009 (the fixed point).
"""

import zlib
from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.counter import uniform
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.special import log
from esvi_shm.vector import dot_1, dot_4, mix_1, mix_4, padded

#: Fair coins in one number by counter: the bits of its mantissa.
COINS = 52
#: Counts below this are split; it also leaves room for the draws of one pair in a counter.
MOST_TOKENS = 2**31
#: A word whose probability is below this under all topics of a document says nothing of theta.
TINY = np.float32(1e-25)
#: Rows that are converted at a time.
CHUNK = 4096


class Half(NamedTuple):
    """One half of the tokens of a corpus; the fields are those of `Corpus`. May hold no token."""

    indptr: np.ndarray
    indices: np.ndarray
    counts: np.ndarray
    n_words: int
    name: str

    @property
    def n_documents(self) -> int:
        """Number D of documents, empty ones included."""
        return len(self.indptr) - 1

    @property
    def n_tokens(self) -> int:
        """Sum of all counts."""
        return int(self.counts.sum(dtype=np.float64))


class Completion(NamedTuple):
    """What `completion_perplexity` finds; the arrays let it be bootstrapped over documents."""

    perplexity: float
    n_tokens: int
    log_likelihood: np.ndarray  # float64 (D,): sum_v n_dv log p(v | theta_d), in nats
    tokens: np.ndarray  # int64 (D,): scored tokens


def split_tokens(corpus: Corpus, seed: int = 0) -> tuple[Half, Half]:
    """Send each token of each document to one of two halves by a fair coin.

    The coins of a pair are numbers by counter of (seed, document, word): other documents, and
    the words that a vocabulary has beside, change nothing.

    Parameters
    ----------
    corpus : Corpus
        With whole counts below 2**31.
    seed : int
        From 0 to 2**63 - 1.

    Returns
    -------
    observed, scored : Half
        Together the corpus; each has all its documents, some of them perhaps empty.

    Raises
    ------
    CorpusError
        For a count that is no whole number: there is no half to send a part of a token to.
    ParameterError
        For a seed out of range.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["tea"] * 8 + ["milk"] * 4])
    >>> observed, scored = split_tokens(corpus, seed=1)
    >>> observed.n_tokens + scored.n_tokens
    12
    """
    if not 0 <= seed < 2**63:
        raise ParameterError("seed", "must be from 0 to 2**63 - 1", seed)
    wrong = np.flatnonzero((corpus.counts % 1 != 0) | (corpus.counts >= MOST_TOKENS))
    if len(wrong):
        j = int(wrong[0])
        d = int(np.searchsorted(corpus.indptr, j, side="right")) - 1
        raise CorpusError(
            corpus.name,
            "tokens are split one by one, so counts must be whole numbers below 2**31, not "
            f"fractions: got {float(corpus.counts[j])!r} in document {d} (from 0), "
            f"word {corpus.word(int(corpus.indices[j]))!r}",
        )
    # By its name a word has the same coins in every vocabulary.
    words = (corpus.word(v) for v in range(corpus.n_words))
    keys = np.fromiter(
        (zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.int64
    )
    heads = np.empty_like(corpus.counts)
    _toss(corpus.indptr, corpus.indices, corpus.counts, keys, seed, heads)
    return _half(corpus, heads), _half(corpus, corpus.counts - heads)


def _half(corpus: Corpus, counts: np.ndarray) -> Half:
    kept = counts > 0
    before = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    indptr = before[corpus.indptr]
    return Half(indptr, corpus.indices[kept], counts[kept], corpus.n_words, corpus.name)


@kernel
def _toss(indptr, indices, counts, keys, seed, heads):
    """Heads of `counts` coins for each pair: numpy's ``binomial(counts, 0.5)``, by counter."""
    for d in range(indptr.shape[0] - 1):
        for j in range(indptr[d], indptr[d + 1]):
            left = np.int64(counts[j])
            place = keys[indices[j]] << 30
            found = 0
            while left > 0:
                coins = np.int64(uniform(seed, d, place) * 4503599627370496.0)
                place += 1
                if left < COINS:
                    coins >>= COINS - left
                left -= COINS
                while coins != 0:
                    coins &= coins - 1
                    found += 1
            heads[j] = found


def point_topics(lambda_: np.ndarray) -> np.ndarray:
    """E[beta] in the form that `fold_in` reads.

    Parameters
    ----------
    lambda_ : array, shape (V, K)
        Dirichlet parameters of the topics, or any weights that are not negative. Not changed.

    Returns
    -------
    float32 array, shape (V, padded(K))
        ``lambda_ / lambda_.sum(axis=0)``, zeros beyond K.

    Examples
    --------
    >>> topics = point_topics(np.array([[1.0], [3.0]]))
    >>> topics.shape, topics[:, 0].tolist()
    ((2, 16), [0.25, 0.75])
    """
    n_words, n_topics = lambda_.shape
    totals = lambda_.sum(axis=0, dtype=np.float64)
    topics = np.zeros((n_words, padded(n_topics)), np.float32)
    for first in range(0, n_words, CHUNK):
        topics[first : first + CHUNK, :n_topics] = lambda_[first : first + CHUNK] / totals
    return topics


def fold_in(
    topics: np.ndarray,
    alpha: np.ndarray,
    corpus: Corpus | Half,
    steps: int = 100,
    tol: float = 1e-6,
) -> np.ndarray:
    """theta of unseen documents, by the cvb0 fixed point under topics that stay as they are.

    gamma_d = alpha + sum_v n_dv phi_dv with phi_dvk proportional to gamma_dk beta_vk, from
    gamma_d = alpha + n_d / K. The fixed point is the only one where alpha > 0: it is the mode of
    a concave function.

    Parameters
    ----------
    topics : array, shape (V, K) or (V, padded(K))
        Probability of each word in each topic; what `point_topics` returns is not copied.
    alpha : array, shape (K,)
        Prior of the documents, greater than 0.
    corpus : Corpus or Half
        Counts may be fractions.
    steps : int
        Steps at most.
    tol : float
        A document is done when theta moves by less than this in a step (sum of all topics).

    Returns
    -------
    float32 array, shape (D, K)
        Rows sum to 1. A document without tokens has the prior mean, alpha / sum(alpha).

    Raises
    ------
    ParameterError
        If the shapes do not match, or a prior is not greater than 0.

    Examples
    --------
    >>> topics = point_topics(np.array([[9.0, 1.0], [1.0, 9.0]]))
    >>> corpus = Corpus.from_sparse(np.array([[50, 0], [0, 0]]))
    >>> fold_in(topics, np.array([0.1, 0.3]), corpus).round(2).tolist()
    [[0.9900000095367432, 0.009999999776482582], [0.25, 0.75]]
    """
    priors = np.array(alpha, dtype=np.float32)
    if priors.ndim != 1 or not (np.isfinite(priors) & (priors > 0)).all():
        raise ParameterError("alpha", "must be a vector of numbers greater than 0", alpha)
    packed = _packed(topics, len(priors), corpus.n_words)
    theta = np.empty((len(corpus.indptr) - 1, len(priors)), np.float32)
    csr = (corpus.indptr, corpus.indices, corpus.counts)
    # An int would be another signature, and compile the kernel again.
    _fold_in(*csr, packed.ravel(), packed.shape[1], priors, int(steps), float(tol), theta)
    return theta


def _packed(topics: np.ndarray, n_topics: int, n_words: int) -> np.ndarray:
    """Topics as contiguous float32 rows of a length that vector code can read."""
    length = padded(n_topics)
    if topics.ndim != 2 or len(topics) != n_words or topics.shape[1] not in (n_topics, length):
        rule = f"must have the shape ({n_words}, {n_topics}), padded or not"
        raise ParameterError("topics", rule, topics.shape)
    if topics.shape[1] == length:
        if topics[:, n_topics:].any():
            raise ParameterError("topics", f"must be 0 beyond the {n_topics} topics", topics.shape)
        return np.ascontiguousarray(topics, dtype=np.float32)
    packed = np.zeros((n_words, length), np.float32)
    packed[:, :n_topics] = topics
    return packed


@kernel
def _fold_in(indptr, indices, counts, rows, length, alpha, steps, tol, theta):
    """Write theta of each document.

    Equivalent, for a document of words v and counts n, to ``gamma = alpha + n.sum() / K``; up to
    `steps` times ``gamma = alpha + gamma * ((n / (topics[v] @ gamma)) @ topics[v])``; and
    ``theta = gamma / gamma.sum()``.
    """
    n_topics = alpha.shape[0]
    gamma, total = np.zeros(length, np.float32), np.zeros(length, np.float32)
    prior_sum = 0.0
    for k in range(n_topics):
        prior_sum += alpha[k]
    for d in range(theta.shape[0]):
        first, last = indptr[d], indptr[d + 1]
        tokens = 0.0
        for j in range(first, last):
            tokens += counts[j]
        for k in range(n_topics):
            gamma[k] = alpha[k] + tokens / n_topics
        for _ in range(steps if last > first else 0):
            total[:] = 0.0
            j = first
            while j < last:
                if j + 4 <= last:
                    at = (
                        length * indices[j],
                        length * indices[j + 1],
                        length * indices[j + 2],
                        length * indices[j + 3],
                    )
                    s = dot_4(gamma, rows, at, length)
                    if min(min(s[0], s[1]), min(s[2], s[3])) >= TINY:
                        weights = (
                            counts[j] / s[0],
                            counts[j + 1] / s[1],
                            counts[j + 2] / s[2],
                            counts[j + 3] / s[3],
                        )
                        mix_4(gamma, total, rows, at, weights, length)
                        j += 4
                        continue
                at_1 = (length * indices[j],)
                (s_1,) = dot_1(gamma, rows, at_1, length)
                if s_1 >= TINY:
                    mix_1(gamma, total, rows, at_1, (counts[j] / s_1,), length)
                j += 1
            change = 0.0
            for k in range(n_topics):
                new = alpha[k] + gamma[k] * total[k]
                change += abs(new - gamma[k])
                gamma[k] = new
            if change < tol * (prior_sum + tokens):
                break
        gamma_sum = 0.0
        for k in range(n_topics):
            gamma_sum += gamma[k]
        for k in range(n_topics):
            theta[d, k] = gamma[k] / gamma_sum


def completion_perplexity(
    theta: np.ndarray, topics: np.ndarray, scored: Corpus | Half
) -> Completion:
    """Perplexity of the scored half: exp(- sum_dv n_dv log sum_k theta_dk beta_vk / sum n).

    Documents whose scored half is empty count for nothing.

    Parameters
    ----------
    theta : array, shape (D, K)
        From the observed halves, as by `fold_in`; rows sum to 1.
    topics : array, shape (V, K) or (V, padded(K))
        As for `fold_in`; columns sum to 1.
    scored : Corpus or Half

    Returns
    -------
    Completion
        The perplexity is infinite where a word has probability 0.

    Raises
    ------
    CorpusError
        If there is no token to score.
    ParameterError
        If the shapes do not match.

    Examples
    --------
    >>> topics = point_topics(np.array([[1.0], [3.0]]))
    >>> scored = Corpus.from_sparse(np.array([[1, 1]]))
    >>> found = completion_perplexity(np.ones((1, 1)), topics, scored)
    >>> round(found.perplexity, 4), found.n_tokens  # 1 / sqrt(1/4 * 3/4)
    (2.3094, 2)
    """
    n_documents = len(scored.indptr) - 1
    if theta.ndim != 2 or len(theta) != n_documents:
        raise ParameterError(
            "theta", f"must have a row for each of {n_documents} documents", theta.shape
        )
    packed = _packed(topics, theta.shape[1], scored.n_words)
    if not len(scored.counts):
        raise CorpusError(
            scored.name, "there must be a token to score: the scored half of the documents is empty"
        )
    likelihood = np.zeros(n_documents)
    tokens = np.zeros(n_documents)
    weights = np.ascontiguousarray(theta, dtype=np.float32)
    csr = (scored.indptr, scored.indices, scored.counts)
    _score(*csr, packed.ravel(), packed.shape[1], weights, likelihood, tokens)
    n_tokens = tokens.sum()
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(-likelihood.sum() / n_tokens))
    return Completion(perplexity, int(n_tokens), likelihood, tokens.astype(np.int64))


@kernel
def _score(indptr, indices, counts, rows, length, theta, likelihood, tokens):
    """Add each document's ``n @ log(topics[v] @ theta)`` to `likelihood`, its n to `tokens`."""
    mixture = np.zeros(length, np.float32)
    for d in range(theta.shape[0]):
        for k in range(theta.shape[1]):
            mixture[k] = theta[d, k]
        for j in range(indptr[d], indptr[d + 1]):
            (p,) = dot_1(mixture, rows, (length * indices[j],), length)
            count = np.float64(counts[j])
            tokens[d] += count
            if p > 0.0:
                likelihood[d] += count * log(np.float64(p))
            else:
                likelihood[d] = -np.inf
