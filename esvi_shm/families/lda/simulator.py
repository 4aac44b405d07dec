"""Documents drawn from the model itself, with known topics, in the sizes of real corpora.

Strategy: what a token costs depends neither on the number of topics nor on the vocabulary.

- Words follow Zipf's law: in every topic the word of rank r has the probability r**-s over its
  sum, and the topics differ in the order of the words. So one table of the law serves them all. A
  topic sorts the words by log(rank in the corpus) + `SPREAD` x normal: topics are far apart, and
  word frequencies in the corpus are skewed too, with a few words that many topics use.
- Topics of a document, theta being integrated out, are Polya's urn: token i has a new topic with
  probability A / (A + i), A = K alpha, and else that of one of the tokens before. That is LDA.
- Lengths are log-normal, and scaled so that all of them together are the tokens asked for. The
  exponent s is searched for, on documents of all lengths, so that they have as many distinct words
  as the pairs asked for; a larger s repeats words more often.

A token's random numbers are functions of (seed, document, token), not of who draws them or when.
It holds no corpus: documents are drawn range by range.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus import _rows
from esvi_shm.counter import uniform
from esvi_shm.errors import ParameterError

#: Standard deviation of the noise on the logarithm of a word's rank, by topic.
SPREAD = 3.0
#: Standard deviation of the logarithm of a document's length: about that of KOS and Reuters-21578.
LENGTH_DEVIATION = 0.7
#: Exponent of Zipf's law where no number of pairs is asked for, and the range that is searched.
EXPONENT, MOST_EXPONENT = 1.0, 2.0
#: Documents, and their tokens about, on which the exponent is searched for; the steps of halving.
SEARCH_DOCUMENTS, SEARCH_TOKENS, SEARCH_STEPS = 2000, 1_000_000, 20

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


@kernel
def draw_tokens(key, first, offsets, mass, guide, cumulated, orders, topics, words):
    """Draw the words of documents `first`, `first` + 1, ...; those of one lie side by side.

    Parameters
    ----------
    key, first : int
    offsets : int64 array, shape (documents + 1,)
        Of the documents' tokens in `words`, from 0.
    mass : float
        A, the sum of the prior of a document's topics.
    guide : int32 array, shape (V + 1,)
        For j / V, the first rank whose cumulated probability is larger.
    cumulated : float64 array, shape (V,)
        Cumulated probabilities of the ranks.
    orders : int32 array, shape (K, V)
        The word of each rank in each topic.
    topics : int32 array, shape (longest document,)
        Scratch: the topics of a document's tokens.
    words : int32 array, shape (tokens,)
        Written.
    """
    n_topics, n_words = orders.shape
    for row in range(len(offsets) - 1):
        lo = offsets[row]
        for i in range(offsets[row + 1] - lo):
            ball = uniform(key, first + row, 2 * i) * (mass + i)
            # Products may round up to what they are less than.
            if i == 0 or ball < mass:
                topics[i] = min(np.int64(ball / mass * n_topics), n_topics - 1)
            else:
                topics[i] = topics[min(np.int64(ball - mass), i - 1)]
            u = uniform(key, first + row, 2 * i + 1)
            rank = guide[np.int64(u * n_words)]
            while cumulated[rank] <= u:
                rank += 1
            words[lo + i] = orders[topics[i], rank]


class Simulator:
    """A corpus that can be drawn from, range by range. Made by `simulator`.

    Parameters
    ----------
    key : int
        Of the random numbers of its tokens.
    offsets : int64 array, shape (D + 1,)
        Of the documents' tokens, from 0.
    orders : int32 array, shape (K, V)
        The word of each rank in each topic.
    mass : float
        The sum of the prior of a document's topics.
    exponent : float
        Of Zipf's law.
    """

    def __init__(
        self, key: int, offsets: np.ndarray, orders: np.ndarray, mass: float, exponent: float
    ) -> None:
        self.key, self.offsets, self.orders = key, offsets, orders
        self.mass, self.exponent = mass, exponent
        n_words = orders.shape[1]
        law = np.arange(1, n_words + 1, dtype=np.float64) ** -exponent
        self._law = law / law.sum()
        self._cumulated = np.cumsum(self._law)
        self._cumulated[-1] = 1.0
        # One place more than there are words: a uniform number times V may round up to V.
        places = np.minimum(np.arange(n_words + 1), n_words - 1) / n_words
        guide = np.searchsorted(self._cumulated, places, side="right")
        self._guide = guide.astype(np.int32)

    def draw(self, first: int, last: int) -> Rows:
        """Draw documents; safe to run on several threads at once, and the same whenever it is run.

        Parameters
        ----------
        first, last : int
            From `first` to before `last`.

        Returns
        -------
        indptr : int64 array, shape (last - first + 1,)
            From 0.
        indices : int32 array
            Words, strictly ascending in each document.
        counts : float32 array
        """
        indptr = self.offsets[first : last + 1] - self.offsets[first]
        words = np.empty(indptr[-1], dtype=np.int32)
        topics = np.empty(np.diff(indptr).max(initial=0), dtype=np.int32)
        draw_tokens(
            self.key, first, indptr, self.mass, self._guide, self._cumulated, self.orders,
            topics, words,
        )  # fmt: skip
        return _rows.tidy(indptr, words, np.ones(len(words), dtype=np.float32))

    def topics(self) -> np.ndarray:
        """The true topics: float32 array, shape (V, K), each column a distribution over words."""
        n_topics, n_words = self.orders.shape
        topics = np.empty((n_words, n_topics), dtype=np.float32)
        for k, order in enumerate(self.orders):
            topics[order, k] = self._law
        return topics


def simulator(
    n_documents: int,
    n_words: int,
    n_tokens: int,
    n_pairs: int | None = None,
    n_topics: int = 128,
    alpha: float | None = None,
    seed: int = 0,
) -> Simulator:
    """A corpus of so many documents, words, tokens and (about so many) pairs, to draw from.

    Parameters
    ----------
    n_documents, n_words, n_tokens : int
        At least one token a document.
    n_pairs : int, optional
        The exponent of Zipf's law is chosen for it; 1 without it.
    n_topics : int
    alpha : float, optional
        Dirichlet prior of a document, per topic; 5 / K without it, which gives a document of 300
        tokens some 20 topics whatever K is.
    seed : int

    Raises
    ------
    ParameterError
        If a number is out of its range, or no exponent gives so many pairs.

    Examples
    --------
    >>> corpus = simulator(n_documents=100, n_words=50, n_tokens=3000, n_topics=4)
    >>> indptr, indices, counts = corpus.draw(0, 100)
    >>> int(counts.sum()), corpus.topics().shape
    (3000, (50, 4))
    """
    check(n_documents, n_words, n_tokens, n_pairs, n_topics, alpha, seed)
    key = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1))
    mass = 5.0 if alpha is None else alpha * n_topics
    offsets = _offsets(n_documents, n_tokens, np.random.default_rng([seed, 0]))
    orders = _orders(n_topics, n_words, seed)

    def corpus(exponent: float) -> Simulator:
        return Simulator(key, offsets, orders, mass, exponent)

    if n_pairs is None:
        return corpus(EXPONENT)
    searched = _of_all_lengths(offsets)
    share = sum(offsets[d + 1] - offsets[d] for d in searched) / n_tokens

    def pairs(exponent: float) -> int:
        drawn = corpus(exponent)
        return round(sum(len(drawn.draw(d, d + 1)[1]) for d in searched) / share)

    most, least = pairs(0.0), pairs(MOST_EXPONENT)
    if not least <= n_pairs <= most:
        rule = f"must be from about {least} to {most} for these documents, words and tokens"
        raise ParameterError("n_pairs", rule, n_pairs)
    lo, hi = 0.0, MOST_EXPONENT
    for _ in range(SEARCH_STEPS):
        middle = (lo + hi) / 2
        lo, hi = (middle, hi) if pairs(middle) > n_pairs else (lo, middle)
    return corpus(hi)


def check(
    n_documents: int,
    n_words: int,
    n_tokens: int,
    n_pairs: int | None,
    n_topics: int,
    alpha: float | None,
    seed: int,
) -> None:
    """Refuse what `simulator` cannot make, before anything is allocated."""
    for name, value in (("n_documents", n_documents), ("n_words", n_words), ("n_topics", n_topics)):
        if not 1 <= value < 2**31:
            raise ParameterError(name, "must be from 1 to 2**31 - 1", value)
    # A document of more tokens than this could hold a count that float32 rounds.
    if not n_documents <= n_tokens <= n_documents * 2**16:
        rule = f"must be from 1 to 2**16 for each of the {n_documents} documents"
        raise ParameterError("n_tokens", rule, n_tokens)
    if n_pairs is not None and not n_documents <= n_pairs <= n_tokens:
        rule = f"must be at least one for each of the {n_documents} documents, at most the tokens"
        raise ParameterError("n_pairs", rule, n_pairs)
    if alpha is not None and not 1e-6 <= alpha <= 1e6:
        raise ParameterError("alpha", "must lie between 1e-6 and 1e6", alpha)
    if not 0 <= seed < 2**63:
        raise ParameterError("seed", "must be from 0 to 2**63 - 1", seed)


def _offsets(n_documents: int, n_tokens: int, random: np.random.Generator) -> np.ndarray:
    """Offsets of the documents' tokens: log-normal lengths of at least 1, `n_tokens` in all."""
    ends = np.cumsum(random.lognormal(0.0, LENGTH_DEVIATION, n_documents))
    ends *= (n_tokens - n_documents) / ends[-1]
    offsets = np.zeros(n_documents + 1, dtype=np.int64)
    offsets[1:] = np.rint(ends)
    return offsets + np.arange(n_documents + 1)


def _of_all_lengths(offsets: np.ndarray) -> list[int]:
    """Some documents, evenly from the shortest to the longest."""
    n_documents = len(offsets) - 1
    n = min(SEARCH_DOCUMENTS, n_documents * SEARCH_TOKENS // int(offsets[-1]), n_documents)
    places = (np.arange(max(n, 1)) + 0.5) * (n_documents / max(n, 1))
    found: list[int] = np.argsort(np.diff(offsets), kind="stable")[places.astype(np.int64)].tolist()
    return found


def _orders(n_topics: int, n_words: int, seed: int) -> np.ndarray:
    """The word of each rank in each topic; word numbers say nothing of how frequent a word is."""
    ranks = np.log1p(np.random.default_rng([seed, 1]).permutation(n_words))
    orders = np.empty((n_topics, n_words), dtype=np.int32)
    for k in range(n_topics):
        noise = np.random.default_rng([seed, 2, k]).standard_normal(n_words)
        orders[k] = np.argsort(ranks + SPREAD * noise)
    return orders
