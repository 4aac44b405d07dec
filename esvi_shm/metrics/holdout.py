"""Documents set aside from a fit, and how well its topics predict them while it runs.

    corpus, share -> set_aside -> the documents to train on, HeldOut
    corpus, held-out corpus -> set_aside -> the corpus, HeldOut (in the words of the corpus)

The split into observed and scored halves is made once, so that the figures of a fit can be
compared with each other, and with those of `python -m esvi_shm.evaluate` for the same seed.
Nothing of the documents set aside reaches the fit but the figure.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from esvi_shm.corpus.corpus import Corpus, as_corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics.alignment import align
from esvi_shm.metrics.completion import completion_perplexity, split_tokens
from esvi_shm.metrics.inference import CLOSE, fold_in, point_topics

#: Part of the seed of the draw, so that it is not that of a start.
DRAW = 0x401D
#: How far theta may be from its fixed point (`fold_in`) where figures are only compared: it takes
#: half the time, and moves the perplexity by 0.01%, in one direction.
ROUGH = 1e-4


class HeldOut:
    """Held-out documents that judge topics: calling it gives the perplexity of completion.

    Parameters
    ----------
    corpus : Corpus
        Whole counts; words that `vocabulary` does not have are left out and counted.
    vocabulary : sequence of str, length V
        The words of the fit.
    seed : int
        Of the coins that send tokens to the observed or to the scored half.

    Attributes
    ----------
    n_documents : int
    outside_words, outside_tokens : int, float
        Words that occur in `corpus` and not in `vocabulary`, and their tokens.

    Raises
    ------
    CorpusError
        If no word is in the vocabulary, a count is no whole number, or no token is to be scored.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["sea", "ship", "rum"] * 4])
    >>> held_out = HeldOut(corpus, ["sea", "ship"], seed=0)
    >>> held_out.outside_words, held_out.outside_tokens
    (1, 4)
    >>> round(held_out(np.ones((2, 1), np.float32), np.arange(2), np.ones(1)), 3)
    2.0
    """

    def __init__(self, corpus: Corpus, vocabulary: Any, seed: int) -> None:
        aligned = align(corpus, vocabulary)
        self.name, self.n_documents = corpus.name, corpus.n_documents
        self.n_tokens = aligned.corpus.n_tokens
        self.outside_words, self.outside_tokens = aligned.outside_words, aligned.outside_tokens
        self.observed, self.scored = halves = split_tokens(aligned.corpus, seed)
        if not len(self.scored.counts):
            raise CorpusError(
                corpus.name, "there must be a token to score: give more held-out documents"
            )
        # Only the rows of these words are looked at, and the halves number them.
        self._words = np.unique(np.concatenate([half.indices for half in halves]))
        place_of = np.zeros(len(vocabulary), np.int32)
        place_of[self._words] = np.arange(len(self._words), dtype=np.int32)
        self._halves = [
            half._replace(indices=place_of[half.indices], n_words=len(self._words))
            for half in halves
        ]

    def __call__(
        self,
        lambda_rows: np.ndarray,
        word_ids: np.ndarray,
        alpha: np.ndarray,
        *,
        roughly: bool = False,
    ) -> float:
        """Perplexity of the scored halves under E[beta], theta from the observed halves.

        Parameters
        ----------
        lambda_rows : array, shape (V, K)
            Dirichlet parameters of the topics; row i is word `word_ids[i]`. Not changed.
        word_ids : int array, shape (V,)
        alpha : array, shape (K,)
        roughly : bool
            To compare it with others that are asked for roughly.
        """
        row_of = np.empty(len(word_ids), np.int64)
        row_of[word_ids] = np.arange(len(word_ids))
        topics = point_topics(lambda_rows, row_of[self._words])
        observed, scored = self._halves
        theta = fold_in(topics, alpha, observed, tol=ROUGH if roughly else CLOSE)
        return completion_perplexity(theta, topics, scored).perplexity

    def describe(self) -> dict[str, Any]:
        """What was held out, as `summary.json` has it."""
        return {
            "source": self.name,
            "n_documents": self.n_documents,
            "n_tokens": self.n_tokens,
            "n_scored_tokens": self.scored.n_tokens,
            "outside_words": self.outside_words,
            "outside_tokens": self.outside_tokens,
        }


class SetAside(NamedTuple):
    """What `set_aside` gives."""

    training: Corpus
    held_out: HeldOut
    documents: np.ndarray  # int64: the documents of the corpus that are in `training`


def check_share(value: float) -> float:
    """`value` if it can be a share of the documents.

    Raises
    ------
    ParameterError
    """
    if isinstance(value, bool) or not 0 < value < 1:
        raise ParameterError("holdout", "as a share must lie in (0, 1)", value)
    return value


def set_aside(corpus: Corpus, holdout: Any, seed: int) -> SetAside:
    """Part a corpus into documents to train on and documents that judge.

    Parameters
    ----------
    corpus : Corpus
    holdout : float, or anything that `as_corpus` takes
        A share of the documents, drawn by `seed` alone; or other documents, in any vocabulary,
        and then all of `corpus` is trained on.
    seed : int

    Returns
    -------
    SetAside

    Raises
    ------
    ParameterError
        For a share that is not in (0, 1), or that leaves no document on one of the sides.
    CorpusError
        As by `HeldOut`, or if a side has no token.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["sea", "ship", "sea", "ship"]] * 10)
    >>> training, held_out, documents = set_aside(corpus, 0.2, seed=0)
    >>> training.n_documents, held_out.n_documents, len(documents)
    (8, 2, 8)
    """
    words = corpus.vocabulary or [corpus.word(v) for v in range(corpus.n_words)]
    everything = np.arange(corpus.n_documents)
    if not isinstance(holdout, int | float | np.number):
        return SetAside(corpus, HeldOut(as_corpus(holdout), words, seed), everything)
    held, kept = draw(corpus.n_documents, float(holdout), seed)
    aside = take(corpus, held, aside_name(corpus.name, len(held)))
    training = take(corpus, kept, corpus.name)
    return SetAside(training, HeldOut(aside, words, seed), kept)


def draw(n_documents: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which documents are held out, and which are trained on, both ascending.

    Raises
    ------
    ParameterError
        As by `set_aside`.

    Examples
    --------
    >>> held, kept = draw(5, 0.4, seed=0)
    >>> len(held), sorted([*held.tolist(), *kept.tolist()])
    (2, [0, 1, 2, 3, 4])
    """
    n_held = math.floor(check_share(share) * n_documents + 0.5)
    if not 0 < n_held < n_documents:
        rule = f"must set aside some and not all of {n_documents} documents"
        raise ParameterError("holdout", rule, share)
    drawn = np.random.default_rng([seed, DRAW]).permutation(n_documents)
    return np.sort(drawn[:n_held]), np.sort(drawn[n_held:])


def aside_name(name: str, n_documents: int) -> str:
    """What documents that were set aside are called."""
    return f"{name}, {n_documents} documents held out"


def take(corpus: Corpus, documents: np.ndarray, name: str) -> Corpus:
    """Some documents of a corpus, ascending, as a corpus of the same kind."""
    lengths = np.diff(corpus.indptr)[documents]
    indptr = np.zeros(len(documents) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    inside = np.zeros(corpus.n_documents, bool)
    inside[documents] = True
    pairs = np.repeat(inside, np.diff(corpus.indptr))
    arrays = indptr, corpus.indices[pairs], corpus.counts[pairs]
    return type(corpus)(*arrays, corpus.n_words, corpus.vocabulary, name)
