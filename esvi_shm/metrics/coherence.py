"""What topics are to a reader: whether their top words keep company, and whether they differ.

Source: Bouma, Normalized (pointwise) mutual information in collocation extraction, 2009;
Roeder, Both, Hinneburg, Exploring the space of topic coherence measures, WSDM 2015; Dieng, Ruiz,
Blei, Topic modeling in embedding spaces, TACL 2020 (diversity).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError


class Coherence(NamedTuple):
    """Coherence of each topic, and the top words that the reference never uses."""

    npmi: np.ndarray  # float64 (K,), from -1 to 1; nan for a topic with fewer than two words
    missing: tuple[str, ...]


def coherence_npmi(
    top_words: Sequence[Sequence[str]], corpus: Corpus, n_top: int = 10
) -> Coherence:
    """Mean NPMI of the pairs of each topic's top words, from documents that hold both.

    NPMI(i, j) = log(p_ij / (p_i p_j)) / -log p_ij, p being shares of the documents (empty ones
    included): 1 for words that only come together (also where that is in every document), 0 for
    independent words, -1 for words that never meet. A word that the corpus does not use meets
    none.

    Parameters
    ----------
    top_words : sequence of sequences of str
        The words of each topic, best first.
    corpus : Corpus
        The reference; words are found in it by name.
    n_top : int
        Words of each topic that count, at least 2.

    Returns
    -------
    Coherence

    Raises
    ------
    ParameterError
        If `n_top` is below 2.

    Examples
    --------
    >>> corpus = Corpus.from_tokens([["sea", "ship"], ["sea", "ship"], ["tea"], ["milk"]])
    >>> coherence_npmi([["sea", "ship"], ["tea", "milk"]], corpus).npmi.tolist()
    [1.0, -1.0]
    """
    if n_top < 2:
        raise ParameterError("n_top", "must be at least 2", n_top)
    # A vocabulary may have a name twice.
    lists = [list(dict.fromkeys(words))[:n_top] for words in top_words]
    wanted = {word for words in lists for word in words}
    number = {
        corpus.word(v): v for v in reversed(range(corpus.n_words)) if corpus.word(v) in wanted
    }
    presence = corpus.as_sparse().tocsc()
    presence.data = np.ones(presence.nnz)
    in_documents = np.diff(presence.indptr)
    npmi = np.array([_mean_npmi(words, presence, number) for words in lists])
    missing = tuple(
        word for word in sorted(wanted) if word not in number or not in_documents[number[word]]
    )
    return Coherence(npmi, missing)


def _mean_npmi(words: list[str], presence: Any, number: dict[str, int]) -> float:
    """Of one topic; only its own columns are multiplied, so memory does not grow with K."""
    if len(words) < 2:
        return float("nan")
    known = [i for i, word in enumerate(words) if word in number]
    columns = presence[:, [number[words[i]] for i in known]]
    joint = np.zeros((len(words), len(words)))
    joint[np.ix_(known, known)] = (columns.T @ columns).toarray() / presence.shape[0]
    first, second = np.triu_indices(len(words), 1)
    alone = joint.diagonal()
    both, apart = joint[first, second], alone[first] * alone[second]
    values = np.full(len(both), -1.0)
    values[both == 1] = 1.0
    usual = (both > 0) & (both < 1)
    values[usual] = np.log(both[usual] / apart[usual]) / -np.log(both[usual])
    return float(values.mean())


def topic_diversity(top_words: Sequence[Sequence[str]], n_top: int = 25) -> float:
    """Share of different words among the top words of all topics.

    Parameters
    ----------
    top_words : sequence of sequences of str
        The words of each topic, best first.
    n_top : int
        Words of each topic that count, at least 1.

    Returns
    -------
    float
        1: no word is in two topics; 1 / K: all topics have the same.

    Raises
    ------
    ParameterError
        If `n_top` is below 1, or there is no word.

    Examples
    --------
    >>> topic_diversity([["sea", "ship"], ["sea", "salt"]])
    0.75
    """
    if n_top < 1:
        raise ParameterError("n_top", "must be at least 1", n_top)
    all_words = [word for words in top_words for word in words[:n_top]]
    if not all_words:
        raise ParameterError("top_words", "must hold a word", top_words)
    return len(set(all_words)) / len(all_words)
