"""The fitted model: what it says of its topics follows from lambda and gamma."""

import numpy as np
import pytest

from esvi_shm.model import FittedModel, Parameters
from esvi_shm.runtime.engine import Record

WORDS = ["ash", "bay", "cap", "den"]
LAMBDA = np.array([[5.0, 0.5], [1.0, 2.0], [1.0, 2.0], [3.0, 0.5]], np.float32)


def model_of(order: list[int] | None) -> FittedModel:
    rows = LAMBDA if order is None else LAMBDA[order]
    gamma = [np.array([[1.0, 3.0]], np.float32), np.array([[2.0, 2.0], [4.0, 0.0]], np.float32)]
    word_ids = None if order is None else np.array(order)
    parameters = Parameters(rows, word_ids, gamma, np.full(2, 0.1), np.full(4, 0.5))
    return FittedModel(parameters, WORDS, [Record(1.0, 0.1, 0.1, -7.0, -8.0, -8.0)], {})


@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]])
def test_everything_is_in_the_order_of_vocabulary_and_documents(order):
    model = model_of(order)
    np.testing.assert_array_equal(model.lambda_, LAMBDA)
    np.testing.assert_array_equal(model.gamma, [[1, 3], [2, 2], [4, 0]])
    np.testing.assert_allclose(model.topic_word, (LAMBDA / [10, 5]).T)
    np.testing.assert_allclose(model.doc_topic, [[0.25, 0.75], [0.5, 0.5], [1, 0]])
    assert model.elbo == -7.0


@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]])
def test_topics_are_ranked_and_ties_go_by_the_alphabet(order):
    first, second = model_of(order).topics(3)
    assert first.words == ("ash", "den", "bay")
    assert first.weights == pytest.approx((0.5, 0.3, 0.1))
    assert second.words == ("bay", "cap", "ash")
    # Tokens of a topic: the column sum of lambda less eta's.
    assert (first.share, second.share) == pytest.approx((8 / 11, 3 / 11))
    assert (first.number, second.number) == (0, 1)


def test_any_number_of_top_words():
    model = model_of(None)
    assert [len(topic.words) for topic in model.topics(99)] == [4, 4]
    assert [topic.words for topic in model.topics(0)] == [(), ()]


def test_more_topics_than_a_slab_of_columns():
    lambda_ = np.eye(40, dtype=np.float32) + 0.1
    parameters = Parameters(lambda_, None, [np.ones((1, 40))], np.ones(40), np.full(40, 0.1))
    model = FittedModel(parameters, [f"w{v}" for v in range(40)], [], {})
    assert [topic.words for topic in model.topics(1)] == [(f"w{v}",) for v in range(40)]
