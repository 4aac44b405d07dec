"""The fitted model: what it says of its topics follows from lambda and gamma."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from esvi_shm import metrics
from esvi_shm import parameters as parameters_module
from esvi_shm.config import FitConfig
from esvi_shm.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.families.lda import Learned
from esvi_shm.model import FittedModel
from esvi_shm.parameters import Parameters, unused_topics
from esvi_shm.runtime.record import Record, Result
from esvi_shm.summary import summarise

WORDS = ["ash", "bay", "cap", "den"]
LAMBDA = np.array([[5.0, 0.5], [1.0, 2.0], [1.0, 2.0], [3.0, 0.5]], np.float32)


def model_of(order: list[int] | None) -> FittedModel:
    rows = LAMBDA if order is None else LAMBDA[order]
    gamma = [np.array([[1.0, 3.0]], np.float32), np.array([[2.0, 2.0], [4.0, 0.0]], np.float32)]
    word_ids = None if order is None else np.array(order)
    parameters = Parameters(rows, word_ids, gamma, np.full(2, 0.1), np.full(4, 0.5))
    history = [Record(1.0, 0.1, 0.1, -9.0, -9.5, -9.5), Record(2.0, 0.2, 0.3, -7.0, -8.0, -8.0)]
    return FittedModel(parameters, WORDS, history, {})


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
    assert second.words == ("bay", "cap")  # the others have their prior
    # Tokens of a topic: the column sum of lambda less eta's.
    assert (first.share, second.share) == pytest.approx((8 / 11, 3 / 11))
    assert (first.number, second.number) == (0, 1)


def test_a_topic_that_nothing_uses_has_no_words(monkeypatch):
    """Whatever is left of it is rounding, of which a ranking would be chance."""
    eta, noise = np.full(4, 0.3), np.array([3e-9, -3e-9, 6e-9, 0])
    for tokens, unused in [(0.0, True), (1e-3, True), (0.4, True), (0.6, False), (20.0, False)]:
        lambda_ = np.column_stack([eta + noise, eta + 1e6, eta + tokens / 4]).astype(np.float32)
        parameters = Parameters(lambda_, None, [np.ones((1, 3))], np.ones(3), eta)
        topics = FittedModel(parameters, WORDS, [], {}).topics(2)
        assert [len(topic.words) for topic in topics] == [0, 2, 0 if unused else 2]
        assert [len(topic.weights) for topic in topics] == [0, 2, 0 if unused else 2]
        assert [topic.number for topic in topics] == [0, 1, 2]
        # Where counts are small fractions, half of one is not little.
        small = unused_topics(1e-3 * np.array([1.2, 4e6, 1.2 + tokens]), 1.2e-3)
        assert small.tolist() == [True, False, tokens < 4 * 1e-6 * 1e6]


@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]])
def test_words_with_no_more_than_their_prior_are_not_of_a_topic(order):
    """Their order would be the alphabet's; each word has its own prior."""
    lambda_ = np.array([[0.5, 0.5], [0.2, 3.0], [9.0, 0.1], [7.0, 7.0 * (1 + 1e-7)]], np.float32)
    eta = np.array([0.5, 0.1, 0.1, 7.0])
    rows = lambda_ if order is None else lambda_[order]
    word_ids = None if order is None else np.array(order)
    parameters = Parameters(rows, word_ids, [np.ones((1, 2))], np.ones(2), eta)
    first, second = FittedModel(parameters, WORDS, [], {}).topics(4)
    assert first.words == (WORDS[2], WORDS[1])
    assert second.words == (WORDS[1],)
    assert len(second.weights) == 1


@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]])
def test_parameters_are_read_only_and_stay_so(order):
    model = model_of(order)
    for held in (model, pickle.loads(pickle.dumps(model))):
        for array in (held.parameters.lambda_rows, held.alpha, held.eta):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1.0


def test_topics_are_prepared_once_for_the_same_rule(monkeypatch):
    prepare, seen = metrics.PreparedTopics, []

    def watching(*arguments, **given):
        seen.append(given["inference"])
        return prepare(*arguments, **given)

    monkeypatch.setattr(metrics, "PreparedTopics", watching)
    model, documents = model_of(None), [["ash", "bay"], ["cap"]]
    first = model.transform(documents)
    np.testing.assert_array_equal(model.transform(documents), first)
    assert seen == ["vb"]
    other = model.transform(documents, inference="cvb0")
    assert seen == ["vb", "cvb0"] and not np.array_equal(other, first)
    # What is kept belongs to the parameters, and is not saved with them.
    model.parameters = replace(model.parameters, lambda_rows=LAMBDA[::-1])
    assert not np.array_equal(model.transform(documents, inference="cvb0"), other)
    assert seen == ["vb", "cvb0", "cvb0"]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.transform(documents, inference="cvb0"), model.transform(documents, inference="cvb0")
    )
    assert seen == ["vb", "cvb0", "cvb0", "cvb0"]


def test_what_is_kept_is_looked_at_once():
    """Another thread may put its own there between two looks."""
    model = model_of(None)
    rules = ("vb", 1.0), ("cvb0", 1.0)
    looks = iter([(model.parameters, rule, rule[0]) for rule in rules])

    class Raced(type(model)):
        @property
        def _kept(self):
            return next(looks)

    model.__class__ = Raced
    assert model._prepared(*rules[0]) == "vb"


def test_the_repr_tells_its_sizes():
    text = "2 topics, 4 words, 3 documents, 2 passes, ELBO -7"
    assert repr(model_of(None)) == repr(model_of([2, 0, 3, 1])) == f"FittedModel({text})"
    model = model_of(None)
    model.history = []
    assert repr(model) == "FittedModel(2 topics, 4 words, 3 documents)"


def test_any_number_of_top_words():
    model = model_of(None)
    assert [len(topic.words) for topic in model.topics(99)] == [4, 2]
    assert [topic.words for topic in model.topics(0)] == [(), ()]


def test_more_topics_than_a_slab_of_columns():
    lambda_ = np.eye(40, dtype=np.float32) + 0.1
    parameters = Parameters(lambda_, None, [np.ones((1, 40))], np.ones(40), np.full(40, 0.1))
    model = FittedModel(parameters, [f"w{v}" for v in range(40)], [], {})
    topics = model.topics(1)
    assert [topic.words for topic in topics] == [(f"w{v}",) for v in range(40)]
    assert [topic.number for topic in topics] == list(range(40))


def test_a_topic_without_tokens_has_no_share():
    """Rounding may leave a topic a little less than its prior; nor may all of them be empty."""
    for lambda_ in (np.array([[0.5 - 1e-6, 3], [0.5, 1]]), np.full((2, 2), 0.5)):
        parameters = Parameters(lambda_, None, [np.ones((1, 2))], np.ones(2), np.full(2, 0.5))
        shares = [topic.share for topic in FittedModel(parameters, ["a", "b"], [], {}).topics(1)]
        assert shares == [0.0, float(lambda_[0, 1] > 0.5)]


@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]])
def test_lambda_comes_in_chunks_without_gaps(order, monkeypatch):
    monkeypatch.setattr(parameters_module, "CHUNK", 3)
    chunks = list(model_of(order).parameters.lambda_chunks())
    assert [len(chunk) for chunk in chunks] == [3, 1]
    np.testing.assert_array_equal(np.concatenate(chunks), LAMBDA)


#: 5 pairs, 9 tokens; nothing of the result below follows from it.
CORPUS = Corpus.from_sparse(np.array([[1, 2, 0, 3], [0, 0, 2, 1]]))
RESULT = Result(
    config=FitConfig(n_topics=2, n_workers=3, n_blocks=4),
    learned=Learned(
        word_ids=np.array([2, 0, 3, 1]),
        lambda_rows=LAMBDA[[2, 0, 3, 1]],
        of_units=[np.array([[1, 3]], np.float32), np.array([[2, 2]], np.float32)],
        alpha=np.full(2, 0.1),
        eta=np.full(4, 0.5),
    ),
    history=[
        Record(1.0, 2.0, 3.0, -90.0, -91.0, -91.0),
        Record(2.0, 5.0, 7.0, -45.0, -46.0, -46.0, 321.0),
    ],
    passes=2.0,
    fit_seconds=5.0,
    pass_seconds=4.0,
    work=20,
    shared_bytes=1000,
    peak_private_bytes=50,
    stopped="tol",
)


def test_the_summary_is_of_the_last_evaluation():
    expected = {
        "n_documents": 2, "n_words": 4, "n_pairs": 5, "n_tokens": 9,
        "n_topics": 2, "n_unused_topics": 0, "n_workers": 3, "n_blocks": 4, "n_passes": 2,
        "stopped": "tol", "n_nodes": 1, "most_rows_at_a_node": 1.0,
        "elbo": -45.0, "elbo_f": -46.0, "elbo_per_token": -5.0,
        "holdout_perplexity": 321.0, "holdout": {"source": "other"},
        "alpha_mean": 0.1, "eta_mean": 0.5,
        "fit_seconds": 5.0, "start_seconds": 1.0, "total_seconds": 7.0, "pairs_per_second": 5.0,
        "shared_bytes": 1000, "peak_rss_bytes": 1050,
        "restarts": [], "at_rest": {}, "ending": {},
        "corpus": CORPUS.name, "corpus_digest": CORPUS.digest(), "config": RESULT.config.as_dict(),
    }  # fmt: skip
    summary = summarise(RESULT, CORPUS, {"source": "other"})
    assert summary == expected
    assert isinstance(summary["n_passes"], int)
    assert json.loads(json.dumps(summary)) == expected


def test_the_summary_counts_unused_topics():
    rows = np.column_stack([RESULT.learned.lambda_rows, RESULT.learned.eta]).astype(np.float32)
    result = replace(RESULT, learned=replace(RESULT.learned, lambda_rows=rows))
    assert summarise(result, CORPUS)["n_unused_topics"] == 1


def test_the_summary_of_a_fit_cut_short():
    last = Record(1.25, 0.0, 0.0, -45.0, np.nan, np.nan)
    summary = summarise(replace(RESULT, history=[last], passes=1.23456, pass_seconds=0.0), CORPUS)
    assert summary["n_passes"] == 1.235
    assert summary["elbo_f"] is None
    assert summary["holdout_perplexity"] is None and summary["holdout"] is None
    assert summary["pairs_per_second"] == 0.0


@pytest.mark.parametrize("words", [None, WORDS])
def test_a_model_is_made_of_what_the_engine_leaves(words):
    corpus = Corpus.from_sparse(CORPUS.as_sparse(), words)
    model = FittedModel.from_result(RESULT, corpus)
    np.testing.assert_array_equal(model.lambda_, LAMBDA)
    np.testing.assert_array_equal(model.gamma, [[1, 3], [2, 2]])
    assert (model.alpha.tolist(), model.eta.tolist()) == ([0.1] * 2, [0.5] * 4)
    assert list(model.words) == (words or [corpus.word(v) for v in range(4)])
    assert model.history == RESULT.history
    assert model.summary == summarise(RESULT, corpus)


@pytest.mark.parametrize(
    ("n", "says"),
    [
        (-1, "at least 0"),
        (1.5, "a whole number"),
        (None, "a whole number"),
        ("3", "a whole number"),
        (True, "a whole number"),
    ],
)
def test_a_number_of_top_words_that_is_none_is_refused(n, says):
    model = model_of(None)
    for ask in (model.topics, model.iterate_topics):  # at once, not at the first topic
        with pytest.raises(ParameterError, match=f"n must be {says}, got"):
            ask(n)
