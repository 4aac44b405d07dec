"""gamma and theta of unseen documents under topics that stay as they are, on all cores.

Under a Dirichlet lambda, as a fit does it for its own documents and peers in their `transform`
(`infer_gamma`, and `PreparedTopics` for many calls); or under point topics of any system
(`fold_in`). One kernel does both: `families.lda.unseen`, which says how. Its arithmetic is float32:
theta is good to six digits.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from esvi_shm.config import choose
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.families.lda import beta, unseen
from esvi_shm.runtime.threads import for_documents
from esvi_shm.vector import padded

if TYPE_CHECKING:
    from esvi_shm.metrics.completion import Half

INFERENCES = ("vb", "cvb0")
#: theta has settled, in `fold_in`.
CLOSE = 1e-6
#: Rows that are converted at a time.
CHUNK = 4096
#: `PreparedTopics` keeps rows of all words up to so many bytes.
MOST_KEPT = 512 << 20


class _Made(NamedTuple):
    """Rows of beta of some words."""

    topics: beta.Topics
    row_of: np.ndarray | None  # int32 (V,): by word, -1 where there is none; None: row v is word v


class PreparedTopics:
    """Topics of a fit in the form that inference reads, made once for many calls.

    Rows are made of the words that the first call needs, and of all when another call needs others:
    so one call on few documents makes little, and of many calls all but two make nothing. Where all
    would take more than 512 MiB each call makes its own. A call gives the same to the bit whatever
    was made before, and calls may be made from several threads.

    Parameters
    ----------
    lambda_, alpha, inference, power, word_ids
        As for `infer_gamma`. lambda must stay as it is from now on.

    Raises
    ------
    ParameterError
        If shapes do not match, or a number is out of its range.

    Examples
    --------
    >>> topics = PreparedTopics(np.array([[3.0], [2.0]]), np.array([0.5]))
    >>> topics.infer_gamma(Corpus.from_tokens([["sea", "ship"], []])).tolist()
    [[2.5], [0.5]]
    """

    def __init__(
        self,
        lambda_: np.ndarray,
        alpha: np.ndarray,
        *,
        inference: str = "vb",
        power: float = 1.0,
        word_ids: np.ndarray | None = None,
    ) -> None:
        choose("inference", inference, INFERENCES)
        if not 0 < power <= 1:
            raise ParameterError("power", "must be greater than 0 and at most 1", power)
        self._rule = unseen.make_rule(checked_prior(alpha), inference == "cvb0", float(power))
        n_words, n_topics = len(lambda_), len(self._rule.alpha)
        if lambda_.shape != (n_words, n_topics):
            rule = f"must have the shape {(n_words, n_topics)}"
            raise ParameterError("lambda_", rule, lambda_.shape)
        self._row_of_word = np.arange(n_words)
        if word_ids is not None:
            self._row_of_word = np.argsort(word_ids)
            if not np.array_equal(np.asarray(word_ids)[self._row_of_word], np.arange(n_words)):
                raise ParameterError("word_ids", "must be each word's number once", word_ids)
        self._lambda, self._pi = beta.frozen(lambda_, np.float32), np.empty(n_topics)
        is_positive = beta.sum_columns(self._lambda, self._pi)
        if not (is_positive and np.isfinite(self._pi).all()):  # a nan makes the sum one
            raise ParameterError("lambda_", "must be finite and greater than 0", self._lambda.min())
        self._kept: _Made | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # What was pickled may be written to, which is another type to compiled code.
        self._lambda = beta.frozen(self._lambda, np.float32)
        rule = self._rule
        self._rule = unseen.make_rule(rule.alpha, rule.cvb0, rule.power)

    def infer_gamma(
        self,
        corpus: Corpus,
        steps: int = 100,
        tol: float = 1e-3,
        n_workers: int | None = None,
    ) -> np.ndarray:
        """gamma of unseen documents under these topics; parameters and result as `infer_gamma`.

        Raises
        ------
        ParameterError
            If the corpus has another number of words than lambda, or a number is out of its range.
        """
        n_words = len(self._lambda)
        if corpus.n_words != n_words:
            raise ParameterError("corpus", f"must have {n_words} words", corpus.n_words)
        stop = _checked_stop(steps, tol, of_theta=False)
        made = self._made_for(corpus.indices, n_workers)
        rows = corpus.indices if made.row_of is None else made.row_of[corpus.indices]
        return _settle(corpus, rows, made.topics, self._rule, stop, n_workers)

    def _made_for(self, indices: np.ndarray, n_workers: int | None) -> _Made:
        """Rows of at least these words."""
        kept = self._kept
        if kept is not None and (kept.row_of is None or (kept.row_of[indices] >= 0).all()):
            return kept
        n_words, n_topics = self._lambda.shape
        may_keep_all = 4 * n_words * padded(n_topics) <= MOST_KEPT
        if kept is not None:
            made = _Made(self._make(np.arange(n_words), n_workers), None)
        else:
            in_use = np.zeros(n_words, bool)
            in_use[indices] = True
            words, row_of = np.flatnonzero(in_use), np.full(n_words, -1, np.int32)
            row_of[words] = np.arange(len(words), dtype=np.int32)
            made = _Made(self._make(words, n_workers), row_of)
        if may_keep_all:
            self._kept = made
        return made

    def _make(self, words: np.ndarray, n_workers: int | None) -> beta.Topics:
        return beta.expected_topics(
            self._lambda, self._pi, self._row_of_word[words], self._rule,
            lambda work, ends: for_documents(work, ends, n_workers),
        )  # fmt: skip


def infer_gamma(
    lambda_: np.ndarray,
    alpha: np.ndarray,
    corpus: Corpus,
    steps: int = 100,
    tol: float = 1e-3,
    *,
    inference: str = "vb",
    power: float = 1.0,
    word_ids: np.ndarray | None = None,
    n_workers: int | None = None,
) -> np.ndarray:
    """gamma of unseen documents by variational inference, as by scikit-learn's `transform`.

    phi_dvk proportional to E(gamma_dk) E(lambda_vk) / E(pi_k), gamma_d = alpha + sum_v n_dv phi_dv,
    pi being the column sums of lambda, from phi uniform, until the mean change of a document's
    gamma is below `tol` in a step. On the way steps go further than they say, and topics that hold
    little are left out: of these only the sum is known, which counts for the change, and is put
    where the prior has it. With a loose `tol` or few `steps` none is left out; with `tol` 0 all
    steps are plain. Under vb a document may have several fixed points; over many documents the
    bound is that of plain steps, or better.

    Parameters
    ----------
    lambda_ : array, shape (V, K)
        Dirichlet parameters of the topics, greater than 0. Not changed.
    alpha : array, shape (K,)
        Prior of the documents, greater than 0.
    corpus : Corpus
        Counts may be fractions.
    steps : int
        Steps at most; 0: gamma from phi uniform.
    tol : float
    inference : str
        "vb": E(x) = exp(digamma(x)); "cvb0": E(x) = x.
    power : float
        Of all factors, where the fit has tempered them to its end; greater than 0, at most 1.
    word_ids : int array, shape (V,), or None
        The word of each row of lambda, each word once; None: row v is word v.
    n_workers : int or None
        Threads; None: one for each core. Their number does not change the result.

    Returns
    -------
    float32 array, shape (D, K)
        alpha for a document without tokens.

    Raises
    ------
    ParameterError
        If shapes do not match, or a number is out of its range.

    Notes
    -----
    Blei, Ng, Jordan 2003; `transform` of scikit-learn's decomposition/_lda.py, whose defaults are
    these and whose start is the same where alpha is symmetric.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["sea", "ship"], []])
    >>> infer_gamma(np.array([[3.0], [2.0]]), np.array([0.5]), corpus).tolist()
    [[2.5], [0.5]]
    """
    if len(lambda_) != corpus.n_words:
        rule = f"must have the shape {(corpus.n_words, len(alpha))}"
        raise ParameterError("lambda_", rule, lambda_.shape)
    topics = PreparedTopics(lambda_, alpha, inference=inference, power=power, word_ids=word_ids)
    return topics.infer_gamma(corpus, steps, tol, n_workers)


def point_topics(lambda_: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """E[beta] in the form that `fold_in` reads.

    Parameters
    ----------
    lambda_ : array, shape (V, K)
        Dirichlet parameters of the topics, or any weights that are not negative. Not changed.
    rows : int array, shape (W,), or None
        Those to give, in this order; None: all.

    Returns
    -------
    float32 array, shape (W, padded(K))
        ``lambda_ / lambda_.sum(axis=0)``, zeros beyond K.

    Raises
    ------
    ParameterError
        For a weight that is negative or not finite, or a topic without any.

    Examples
    --------
    >>> topics = point_topics(np.array([[1.0], [3.0]]))
    >>> topics.shape, topics[:, 0].tolist()
    ((2, 16), [0.25, 0.75])
    """
    if lambda_.ndim != 2:
        raise ParameterError("lambda_", "must have two dimensions, words and topics", lambda_.ndim)
    n_topics = lambda_.shape[1]
    n_words = len(lambda_) if rows is None else len(rows)
    totals = lambda_.sum(axis=0, dtype=np.float64)
    least = lambda_.min(initial=0.0)
    if not (least >= 0 and np.isfinite(totals).all()):
        wrong = least if least < 0 else totals[~np.isfinite(totals)][0]
        raise ParameterError("lambda_", "must be finite and at least 0", float(wrong))
    if not (totals > 0).all():
        rule = "must have a weight above 0 in each topic"
        raise ParameterError("lambda_", rule, f"none in topic {int(np.argmin(totals))} (from 0)")
    topics = np.zeros((n_words, padded(n_topics)), np.float32)
    for first in range(0, n_words, CHUNK):
        some = slice(first, first + CHUNK)
        topics[some, :n_topics] = lambda_[some if rows is None else rows[some]] / totals
    return topics


def fold_in(
    topics: np.ndarray,
    alpha: np.ndarray,
    corpus: "Corpus | Half",
    steps: int = 100,
    tol: float = CLOSE,
    n_workers: int | None = None,
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
    n_workers : int or None
        Threads; None: one for each core. Their number does not change the result.

    Returns
    -------
    float32 array, shape (D, K)
        Rows sum to 1. A document without tokens has the prior mean, alpha / sum(alpha).

    Raises
    ------
    ParameterError
        If the shapes do not match, or a number is out of its range.

    Examples
    --------
    >>> topics = point_topics(np.array([[9.0, 1.0], [1.0, 9.0]]))
    >>> corpus = Corpus.from_sparse(np.array([[50, 0], [0, 0]]))
    >>> fold_in(topics, np.array([0.1, 0.3]), corpus).round(2).tolist()
    [[0.9900000095367432, 0.009999999776482582], [0.25, 0.75]]
    """
    rule = unseen.make_rule(checked_prior(alpha), cvb0=True)
    stop = _checked_stop(steps, tol, of_theta=True)
    packed = pack_topics(topics, len(rule.alpha), corpus.n_words)
    held = beta.given_topics(packed)
    return mean_of(_settle(corpus, corpus.indices, held, rule, stop, n_workers))


def mean_of(gamma: np.ndarray) -> np.ndarray:
    """E[theta] in place of gamma, shape (D, K): rows over their sums."""
    gamma /= gamma.sum(axis=1, keepdims=True, dtype=np.float64)
    return gamma


def pack_topics(topics: np.ndarray, n_topics: int, n_words: int) -> np.ndarray:
    """Topics as contiguous float32 rows of a length that vector code can read."""
    length = padded(n_topics)
    if topics.ndim != 2 or len(topics) != n_words or topics.shape[1] not in (n_topics, length):
        rule = f"must have the shape ({n_words}, {n_topics}), padded or not"
        raise ParameterError("topics", rule, topics.shape)
    if topics.shape[1] == length:
        packed = np.ascontiguousarray(topics, dtype=np.float32)
    else:
        packed = np.zeros((n_words, length), np.float32)
        packed[:, :n_topics] = topics
    least, most = packed.min(initial=0.0), packed.max(initial=0.0)
    if not (least >= 0 and most < np.inf):  # a nan is neither
        wrong = float(least if not least >= 0 else most)
        raise ParameterError("topics", "must be finite and at least 0", wrong)
    if packed[:, n_topics:].any():
        raise ParameterError("topics", f"must be 0 beyond the {n_topics} topics", topics.shape)
    return packed


def checked_prior(alpha: np.ndarray) -> np.ndarray:
    """A prior of documents as float32, all of it greater than 0."""
    priors = np.array(alpha, dtype=np.float32)
    if priors.ndim != 1 or not (np.isfinite(priors) & (priors > 0)).all():
        raise ParameterError("alpha", "must be a vector of numbers greater than 0", alpha)
    return priors


def _checked_stop(steps: int, tol: float, of_theta: bool) -> unseen.Stop:
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer):
        raise ParameterError("steps", "must be a whole number", steps)
    if steps < 0:
        raise ParameterError("steps", "must be at least 0", steps)
    if steps >= 2**63:
        raise ParameterError("steps", "must be less than 2**63", steps)
    if isinstance(tol, bool) or not isinstance(tol, int | float | np.integer | np.floating):
        raise ParameterError("tol", "must be a number", tol)
    if not tol >= 0:
        raise ParameterError("tol", "must be at least 0", tol)
    # An int would be another signature, and compile the kernel again.
    return unseen.Stop(int(steps), float(tol), of_theta)


def _settle(
    corpus: "Corpus | Half",
    rows: np.ndarray,
    topics: beta.Topics,
    rule: unseen.Rule,
    stop: unseen.Stop,
    n_workers: int | None,
) -> np.ndarray:
    """gamma of all documents; `rows` are the numbers of their words' rows in the topics."""
    gamma = np.empty((len(corpus.indptr) - 1, len(rule.alpha)), np.float32)
    indptr, counts = (
        beta.frozen(corpus.indptr, np.int64), beta.frozen(corpus.counts, np.float32),
    )  # fmt: skip
    numbers = beta.frozen(rows, np.int32)

    def settle(first: int, last: int) -> None:
        unseen.settle_documents(first, last, indptr, numbers, counts, topics, rule, stop, gamma)

    for_documents(settle, indptr, n_workers)
    return gamma
