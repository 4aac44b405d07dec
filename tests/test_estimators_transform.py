"""`transform` in scikit-learn's idiom: theta of documents in any form, words matched by name."""

import numpy as np
import pytest
import scipy.sparse

from esvi_shm import LDA, metrics
from esvi_shm.corpus import Corpus, as_corpus
from esvi_shm.errors import CorpusError, ParameterError
from tests.naive import simulate
from tests.test_estimators import MATRIX, QUICK, WORDS

pytestmark = pytest.mark.usefixtures("threads")


@pytest.mark.parametrize("inference", ["vb", "cvb0"])
def test_transform_of_the_training_documents_is_their_theta_at_a_fixed_point(inference):
    """Under vb a document may be stuck in its first topics, unless it is folded in afresh."""
    counts, _ = simulate(40, 30, 3, 60, seed=2)
    counts[5] = 0
    lda = LDA(
        n_components=3, inference=inference, leave_out="none", n_workers=2, n_passes=400, tol=0,
        evaluate_every=0, refold_after=(100, 200, 300), random_state=1,
    ).fit(counts)  # fmt: skip
    before = lda.components_.tobytes(), lda.model_.gamma.tobytes()
    theta = lda.transform(counts)
    np.testing.assert_allclose(theta, lda.doc_topic_, atol=1e-3)
    np.testing.assert_allclose(theta[5], 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(theta.sum(axis=1), 1, rtol=1e-6)
    assert (lda.components_.tobytes(), lda.model_.gamma.tobytes()) == before


def test_transform_runs_on_the_workers_that_were_asked_for(monkeypatch):
    lda = LDA(**QUICK, random_state=0).fit(MATRIX)
    asked = []
    monkeypatch.setattr(
        "esvi_shm.metrics.inference.for_documents",
        lambda work, indptr, n_workers: (asked.append(n_workers), work(0, len(indptr) - 1)),
    )
    lda.transform(MATRIX)
    lda.set_params(n_workers=3).transform(MATRIX)
    lda.set_params(n_workers=None).transform(MATRIX)
    # For the words, once, and then for the documents of each call.
    assert asked == [1, 1, 3, None]


def test_words_with_names_are_matched_by_them():
    documents = [["sea", "ship", "sea"], ["hill", "tree"], ["tree", "hill", "hill"]] * 5
    lda = LDA(n_components=2, n_workers=1, n_passes=20, random_state=0).fit(documents)
    theta = lda.transform([["ship", "moss"], ["moss"], ["tree"]])
    alone = lda.transform([["ship"], ["tree"]])
    np.testing.assert_array_equal(theta[[0, 2]], alone)
    np.testing.assert_allclose(theta[1], 0.5)
    # Columns without names are the model's words in order: hill, sea, ship, tree.
    np.testing.assert_array_equal(lda.transform(np.array([[0, 0, 1, 0], [0, 0, 0, 1]])), alone)
    with pytest.raises(CorpusError, match="a column for each of the model's 4 words, got 3"):
        lda.transform(np.ones((1, 3)))


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        ({"inference": "vb"}, {"inference": "vb", "power": 1.0}),
        ({"inference": "cvb0"}, {"inference": "cvb0", "power": 0.9}),
        ({"inference": "cvb0", "power": 1}, {"inference": "cvb0", "power": 1.0}),
        (
            {"n_passes": 4, "cvb0_passes": 2, "temper_passes": 8},
            {"inference": "vb", "power": 0.875},
        ),
    ],
)
def test_the_summary_says_by_what_rule_the_fit_ended_and_transform_follows(
    options, ending, monkeypatch
):
    lda = LDA(**{**QUICK, **options}, random_state=0).fit(MATRIX)
    found = dict(lda.model_.summary["ending"])
    assert found.pop("settle") == (1 if options.get("inference") == "vb" else 2)
    assert found == ending
    seen = []
    prepare = metrics.PreparedTopics

    def watching(*arguments, **given):
        seen.append({name: given[name] for name in ("inference", "power")})
        return prepare(*arguments, **given)

    monkeypatch.setattr(metrics, "PreparedTopics", watching)
    lda.transform(MATRIX)
    # Of a model from before there was such a line.
    del lda.model_.summary["ending"]
    lda.transform(MATRIX)
    default = {"inference": "vb", "power": 1.0}
    assert seen == ([ending] if ending == default else [ending, default])  # kept, where the same


@pytest.mark.parametrize("damage", [np.nan, np.inf, -1.0, 0.0])
def test_damaged_topics_infer_nothing(damage):
    lambda_ = np.ones((12, 2))
    lambda_[3, 1] = damage
    with pytest.raises(ParameterError, match="lambda_ must be finite and greater than 0"):
        metrics.infer_gamma(lambda_, np.ones(2), Corpus.from_sparse(MATRIX))


@pytest.mark.parametrize(
    ("documents", "form"),
    [
        (WORDS, [["moss"]]),
        (WORDS, [["moss"], ["reed", "moss"], []]),
        (WORDS, [[]]),
        (WORDS, np.zeros((2, 4))),
        (WORDS, scipy.sparse.csr_array((3, 4))),
        (WORDS, Corpus.from_tokens([["moss"], [], []])),
        (MATRIX, np.zeros((1, 12), int)),
        (MATRIX, [[], []]),
    ],
)  # fmt: skip
def test_documents_without_known_words_have_the_prior_mean(documents, form, caplog):
    """All of them, too; and one warning says how many."""
    lda = LDA(n_components=2, doc_topic_prior=np.array([0.1, 0.3]), n_workers=1, n_passes=2)
    lda.fit(documents)
    caplog.clear()
    theta = lda.transform(form)
    n = as_corpus(form, may_be_empty=True).n_documents
    assert theta.dtype == np.float32
    np.testing.assert_allclose(theta, np.tile([0.25, 0.75], (n, 1)), rtol=1e-6)
    told = [text for text in caplog.messages if "have no word that the model knows" in text]
    assert len(told) == 1 and f": {n} of {n} documents have" in told[0]
    # A score of nothing is none.
    with pytest.raises(CorpusError):
        lda.score(form)


def test_the_warning_counts_only_those_without_known_words(caplog):
    lda = LDA(n_components=2, n_workers=1, n_passes=2).fit(WORDS)
    caplog.clear()
    lda.transform([["sea"], ["moss"], ["tree", "moss"], []])
    (message,) = caplog.messages
    assert message.startswith("tokens: 2 of 4 documents have no word")
    caplog.clear()
    lda.transform([["sea"]])
    assert caplog.messages == []


def test_columns_with_names_are_matched_by_them_however_many_they_are():
    pandas = pytest.importorskip("pandas")
    words = ["sea", "ship", "hill", "tree"]
    frame = pandas.DataFrame(np.asarray(MATRIX)[:, :4] + 1, columns=words)
    lda = LDA(n_components=2, n_workers=1, n_passes=5, random_state=0).fit(frame)
    theta = lda.transform(frame)
    np.testing.assert_allclose(lda.transform(frame[words[::-1]]), theta, rtol=1e-4)
    np.testing.assert_array_equal(lda.transform(frame.assign(moss=1)), theta)
    some = lda.transform(frame[["ship", "sea"]])
    np.testing.assert_array_equal(lda.transform(frame[["ship", "sea"]].assign(moss=3)), some)
    texts = pandas.Series([["sea", "ship"], ["tree", "moss"]])
    np.testing.assert_array_equal(lda.transform(texts), lda.transform(texts.tolist()))


def test_columns_without_names_are_the_models_words_without_a_warning(caplog):
    lda = LDA(n_components=2, n_workers=1, n_passes=2).fit(WORDS)
    caplog.clear()
    lda.transform(np.ones((2, 4)))
    assert caplog.messages == []


def test_a_matrix_has_a_column_for_each_word():
    """Also where neither side has names, and a file of ids might have fewer."""
    lda = LDA(**QUICK).fit(MATRIX)
    for act in (lda.transform, lda.score, lda.perplexity):
        with pytest.raises(ValueError, match="a column for each of the model's 12 words, got 11"):
            act(MATRIX[:, 1:])
