"""Which topics of a model are found again by other fits: matched one to one, by their words.

The distance of two topics is Hellinger's, H(p, q) = sqrt(1 - sum_v sqrt(p_v q_v)), from 0 for the
same distribution to 1 for distributions without a word in common; the similarity is 1 - H. The
matching has the least sum of distances (Hungarian method). Where the other model has fewer topics,
some topics stay without a partner.

Source: Greene, O'Callaghan, Cunningham 2014, How many topics? (matching by the Hungarian method,
Jaccard index of the top words).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from esvi_shm.corpus.corpus import numbers_of
from esvi_shm.errors import CorpusError, ParameterError


class Matching(NamedTuple):
    """The partner of each topic in another model; -1, similarity 0 and Jaccard 0 for none."""

    partner: np.ndarray
    similarity: np.ndarray
    jaccard: np.ndarray


class Stability(NamedTuple):
    """Means over the other models, for each topic; shapes (K,)."""

    similarity: np.ndarray
    jaccard: np.ndarray
    #: One for each of the other models.
    matchings: tuple[Matching, ...]


def hellinger(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Hellinger's distance of each topic of one model to each of another.

    Parameters
    ----------
    first, second : arrays, shapes (V, K) and (V, L)
        Columns are weights >= 0 of the same words, of any positive sum, or all 0 for a topic that
        none of these words belongs to; its distance to everything is 1.

    Returns
    -------
    float64 array, shape (K, L)

    Raises
    ------
    ParameterError
        For other words, or weights that are negative or not finite.

    Examples
    --------
    >>> hellinger(np.eye(2), np.eye(2)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    weights = [_checked(x) for x in (first, second)]
    if len(weights[0]) != len(weights[1]):
        rule = f"must have a row for each of {len(weights[0])} words"
        raise ParameterError("topics", rule, len(weights[1]))
    roots = [np.sqrt(x) for x in weights]
    norms = [np.sqrt(np.maximum((root * root).sum(axis=0), 1e-300)) for root in roots]
    affinity = (roots[0] / norms[0]).T @ (roots[1] / norms[1])
    return np.sqrt(np.clip(1.0 - affinity, 0.0, 1.0))


def _checked(topics: np.ndarray) -> np.ndarray:
    weights = np.asarray(topics, np.float64)
    if weights.ndim != 2:
        raise ParameterError("topics", "must have two dimensions, words and topics", weights.ndim)
    is_sound = (weights >= 0) & np.isfinite(weights)
    if not is_sound.all():
        wrong = float(weights[~is_sound][0])
        raise ParameterError("topics", "must be finite and at least 0", wrong)
    return weights


def match_topics(first: np.ndarray, second: np.ndarray, n_top: int = 10) -> Matching:
    """Match the topics of one model with those of another.

    Parameters
    ----------
    first, second : arrays, shapes (V, K) and (V, L)
        Weights of the same words, as for `hellinger`.
    n_top : int
        Words of a topic that its Jaccard index is of, |A & B| / |A | B|; fewer where there are
        fewer words.

    Returns
    -------
    Matching
        Arrays of shape (K,).

    Raises
    ------
    ParameterError
        As by `hellinger`, or for `n_top` that is no whole number from 1 on.

    Examples
    --------
    >>> topics = np.array([[5.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 5.0]])
    >>> match_topics(topics, topics[:, [2, 0, 1]], n_top=1).partner.tolist()
    [1, 2, 0]
    """
    from scipy.optimize import linear_sum_assignment

    if isinstance(n_top, bool) or not isinstance(n_top, int | np.integer) or n_top < 1:
        raise ParameterError("n_top", "must be a whole number from 1 on", n_top)
    distance = hellinger(first, second)
    n_topics = len(distance)
    rows, columns = linear_sum_assignment(distance)
    partner = np.full(n_topics, -1)
    similarity, jaccard = np.zeros(n_topics), np.zeros(n_topics)
    partner[rows] = columns
    similarity[rows] = 1.0 - distance[rows, columns]
    tops = [_top_words(x, n_top) for x in (first, second)]
    for k, j in zip(rows, columns, strict=True):
        a, b = tops[0][k], tops[1][j]
        jaccard[k] = len(a & b) / max(len(a | b), 1)
    return Matching(partner, similarity, jaccard)


def _top_words(weights: np.ndarray, n: int) -> list[set[int]]:
    """The `n` words of most weight of each topic; of equal ones the first."""
    order = np.argsort(-np.asarray(weights), axis=0, kind="stable")[:n]
    return [set(column.tolist()) for column in order.T]


def topic_stability(first: np.ndarray, others: Sequence[np.ndarray], n_top: int = 10) -> Stability:
    """How alike the topics of a model and their partners in other models are.

    Parameters
    ----------
    first : array, shape (V, K)
    others : sequence of arrays, shapes (V, L)
        The same words in the same order; L may differ.
    n_top : int

    Returns
    -------
    Stability

    Raises
    ------
    ParameterError
        As by `match_topics`, or without another model.

    Examples
    --------
    >>> topics = np.array([[5.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 5.0]])
    >>> found = topic_stability(topics, [topics[:, ::-1], topics[:, :2]])
    >>> found.similarity.round(6).tolist()
    [1.0, 1.0, 0.5]
    """
    if not len(others):
        raise ParameterError("others", "must have a model", "none")
    matchings = tuple(match_topics(first, other, n_top) for other in others)
    return Stability(
        np.mean([m.similarity for m in matchings], axis=0),
        np.mean([m.jaccard for m in matchings], axis=0),
        matchings,
    )


def weights_of_words(
    topics: np.ndarray, words: Sequence[str], wanted: Sequence[str], name: str = "model"
) -> np.ndarray:
    """The rows of a model's topics in the order of another model's words; 0 for those it lacks.

    Parameters
    ----------
    topics : array, shape (V, K)
    words : sequence of str, length V
    wanted : sequence of str
    name : str
        Of the model, for the error.

    Returns
    -------
    array, shape (len(wanted), K)

    Raises
    ------
    CorpusError
        If no word is in common.

    Examples
    --------
    >>> weights_of_words(np.array([[1.0], [2.0]]), ["tea", "rum"], ["rum", "sea"]).tolist()
    [[2.0], [0.0]]
    """
    # Of words that are called the same the first one counts.
    row_of = numbers_of(words)
    rows = np.array([row_of.get(word, -1) for word in wanted])
    if not (rows >= 0).any():
        raise CorpusError(name, "there must be a word in common with the model it is compared to")
    out = np.asarray(topics)[rows]
    out[rows < 0] = 0.0
    return out
