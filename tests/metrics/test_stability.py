"""Matched topics: a permuted model is the same model; everything else is less."""

from itertools import permutations

import numpy as np
import pytest

from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics import match_topics, topic_stability, weights_of_words
from esvi_shm.metrics.stability import hellinger

RANDOM = np.random.default_rng(0)
TOPICS = RANDOM.gamma(0.2, size=(40, 6)) + 1e-3


def test_hellinger_is_by_its_definition():
    p, q = TOPICS / TOPICS.sum(axis=0), np.roll(TOPICS, 3, axis=0)[:, :4]
    distance = hellinger(TOPICS, 7 * q)  # of any sum
    q = q / q.sum(axis=0)
    for k in range(6):
        for j in range(4):
            wanted = np.sqrt(((np.sqrt(p[:, k]) - np.sqrt(q[:, j])) ** 2).sum() / 2)
            assert distance[k, j] == pytest.approx(wanted)
    assert hellinger(np.eye(3), np.array([[0.0], [0], [0]])).tolist() == [[1.0]] * 3


def test_a_permuted_model_is_stable():
    order = RANDOM.permutation(6)
    found = topic_stability(TOPICS, [TOPICS[:, order], 3 * TOPICS])
    np.testing.assert_allclose(found.similarity, 1.0, atol=1e-7)
    assert found.jaccard.tolist() == [1.0] * 6
    assert order[found.matchings[0].partner].tolist() == list(range(6))


def test_the_matching_is_the_best_of_all():
    other = RANDOM.gamma(0.2, size=(40, 6)) + 1e-3
    found = match_topics(TOPICS, other)
    distance = hellinger(TOPICS, other)
    best = max(permutations(range(6)), key=lambda order: -distance[range(6), order].sum())
    assert found.partner.tolist() == list(best)
    np.testing.assert_allclose(found.similarity, 1 - distance[range(6), best])
    assert found.similarity.mean() < 0.9


@pytest.mark.parametrize("kept", [[4, 1], [0, 1, 2, 3, 4, 5, 2, 3]])
def test_another_number_of_topics(kept):
    found = match_topics(TOPICS, TOPICS[:, kept])
    for k in range(6):
        there = k in kept
        assert (found.partner[k] >= 0) == there
        assert found.similarity[k] == pytest.approx(float(there), abs=1e-7)
        assert found.jaccard[k] == float(there)
        assert not there or kept[found.partner[k]] == k


def test_jaccard_counts_the_top_words():
    first = np.array([[4.0], [3], [2], [1]])
    second = np.array([[4.0], [1], [3], [2]])
    assert match_topics(first, second, n_top=2).jaccard.tolist() == [1 / 3]
    assert match_topics(first, second, n_top=99).jaccard.tolist() == [1.0]


def test_words_are_matched_by_name():
    topics = np.array([[1.0, 2], [3, 4], [5, 6]])
    there = weights_of_words(topics, ["a", "b", "a"], ["b", "x", "a"])
    assert there.tolist() == [[3, 4], [0, 0], [1, 2]]
    with pytest.raises(CorpusError, match="other: there must be a word in common"):
        weights_of_words(topics, ["a", "b", "c"], ["x"], "other")


@pytest.mark.parametrize(
    "second, options, says",
    [
        (np.ones((4, 2)), {}, "topics must have a row for each of 3 words, got 4"),
        (-np.ones((3, 2)), {}, "topics must be finite and at least 0, got -1.0"),
        (np.full((3, 2), np.nan), {}, "topics must be finite and at least 0, got nan"),
        (np.ones(3), {}, "topics must have two dimensions"),
        (np.ones((3, 2)), {"n_top": 0}, "n_top must be a whole number from 1 on, got 0"),
        (np.ones((3, 2)), {"n_top": -1}, "n_top must be a whole number"),
        (np.ones((3, 2)), {"n_top": 1.5}, "n_top must be a whole number"),
    ],
)
def test_what_cannot_be_matched_is_refused(second, options, says):
    with pytest.raises(ParameterError, match=says):
        match_topics(np.ones((3, 2)), second, **options)


def test_stability_needs_another_model():
    with pytest.raises(ParameterError, match="others must have a model"):
        topic_stability(np.ones((3, 2)), [])
