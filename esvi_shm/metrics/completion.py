"""Document completion: how well topics predict one half of each unseen document from the other.

Each token goes to the observed or to the scored half by a coin; theta is found from the observed
half under point topics, the same way whoever fitted them (`inference.fold_in`); the scored half is
predicted with it.
No term of the topics' own (their prior, their entropy) is in the figure, so it does not depend
on the size of the test set, and systems with different bounds can be compared by it.

The arithmetic is float32 with sums over tokens in float64: probabilities are good to six digits.

Source: Wallach, Murray, Salakhutdinov, Mimno, Evaluation methods for topic models, ICML 2009.
"""

import zlib
from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.counter import uniform
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics.inference import pack_topics
from esvi_shm.special import log
from esvi_shm.vector import dot_1

#: Fair coins in one number by counter: the bits of its mantissa.
COINS = 52
#: Counts below this are split; it also leaves room for the draws of one pair in a counter.
MOST_TOKENS = 2**31


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
        For a seed that is no whole number or out of range.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["tea"] * 8 + ["milk"] * 4])
    >>> observed, scored = split_tokens(corpus, seed=1)
    >>> observed.n_tokens + scored.n_tokens
    12
    """
    is_whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not is_whole or not 0 <= seed < 2**63:
        raise ParameterError("seed", "must be a whole number from 0 to 2**63 - 1", seed)
    check_whole_counts(corpus)
    # By its name a word has the same coins in every vocabulary.
    words = (corpus.word(v) for v in range(corpus.n_words))
    keys = np.fromiter(
        (zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.int64
    )
    heads = np.empty_like(corpus.counts)
    _toss(corpus.indptr, corpus.indices, corpus.counts, keys, seed, heads)
    return _half(corpus, heads), _half(corpus, corpus.counts - heads)


def check_whole_counts(corpus: Corpus) -> None:
    """Raise CorpusError for a count that is no whole number, or too large to go through."""
    wrong = np.flatnonzero((corpus.counts % 1 != 0) | (corpus.counts >= MOST_TOKENS))
    if len(wrong):
        j = int(wrong[0])
        d = int(np.searchsorted(corpus.indptr, j, side="right")) - 1
        raise CorpusError(
            corpus.name,
            "tokens are taken one by one, so counts must be whole numbers below 2**31: "
            f"got {float(corpus.counts[j])!r} in document {d} (from 0), "
            f"word {corpus.word(int(corpus.indices[j]))!r}",
        )


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
    >>> topics = np.array([[0.25], [0.75]])
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
    packed = pack_topics(topics, theta.shape[1], scored.n_words)
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


@kernel(allocates=True)
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
