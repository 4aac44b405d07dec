"""scikit-learn's idiom: parameters stored, attributes fitted, the same fit underneath."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import esvi_shm
from esvi_shm import LDA
from esvi_shm.config import FitConfig
from esvi_shm.corpus import Corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.runtime import engine

MATRIX = np.random.default_rng(3).poisson(0.5, (30, 12))
QUICK = {"n_components": 3, "n_workers": 1, "n_passes": 4, "deterministic": True}


def test_the_fit_is_the_engine_s():
    lda = LDA(**QUICK, doc_topic_prior=0.2, topic_word_prior=0.3, random_state=5).fit(MATRIX)
    config = FitConfig(
        n_topics=3, alpha=0.2, eta=0.3, n_workers=1, n_passes=4, deterministic=True, seed=5
    )
    result = engine.fit(Corpus.from_sparse(MATRIX), config)
    lambda_ = np.empty_like(result.lambda_rows)
    lambda_[result.word_ids] = result.lambda_rows
    np.testing.assert_array_equal(lda.components_, lambda_.T)
    assert lda.elbo_ == result.history[-1].elbo
    assert lda.n_passes_ == 4
    assert lda.n_features_in_ == 12
    np.testing.assert_allclose(lda.doc_topic_.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    "form", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array, np.asarray]
)
def test_any_matrix_gives_the_same(form):
    given = LDA(**QUICK, random_state=0).fit(form(MATRIX))
    plain = LDA(**QUICK, random_state=0).fit(Corpus.from_sparse(MATRIX))
    np.testing.assert_array_equal(given.components_, plain.components_)


def test_token_lists_and_topics_and_save(tmp_path):
    lda = LDA(n_components=1, n_workers=1, n_passes=2).fit([["b", "a", "b"], ["b"]])
    assert lda.topics(2)[0].words == ("b", "a")
    lda.save(str(tmp_path / "m"))
    np.testing.assert_array_equal(esvi_shm.load(tmp_path / "m").lambda_.T, lda.components_)
    np.testing.assert_array_equal(lda.fit_transform([["a"], ["b"]]), [[1.0], [1.0]])


def test_random_state():
    def fit(state):
        return LDA(**QUICK, random_state=state).fit(MATRIX).components_

    seeds = {LDA(random_state=np.random.RandomState(i))._config().seed for i in range(20)}
    assert len(seeds) == 20
    np.testing.assert_array_equal(fit(1), fit(1))
    np.testing.assert_array_equal(fit(np.random.RandomState(7)), fit(np.random.RandomState(7)))
    assert not np.array_equal(fit(1), fit(2))


def test_parameters_are_stored_and_cloned():
    lda = LDA(n_components=7, route="ring", tol=0.5)
    assert clone(lda).get_params() == lda.get_params()
    assert clone(lda).set_params(route="lap").route == "lap"


def test_defaults_are_the_command_s():
    assert LDA(random_state=0)._config() == FitConfig()


def test_every_parameter_reaches_the_fit():
    given = {
        "n_components": 7, "doc_topic_prior": 0.2, "topic_word_prior": 0.3, "n_workers": 3,
        "n_passes": 11, "tol": 0.0, "evaluate_every": 4, "max_time": 9.0, "inference": "vb",
        "cvb0_passes": 3, "temper_passes": 2, "refold_after": (1, 2),
        "repair_after": (5,), "restarts": 2, "restart_passes": 6,
        "storage": "full", "start": "random", "route": "ring", "n_blocks": 5,
        "deterministic": True, "random_state": np.int64(6),
    }  # fmt: skip
    assert set(given) == set(LDA().get_params())
    assert LDA(**given)._config() == FitConfig(
        n_topics=7, alpha=0.2, eta=0.3, n_workers=3, n_passes=11, tol=0.0, evaluate_every=4,
        max_time=9.0, inference="vb", cvb0_passes=3, temper_passes=2, refold_after=(1, 2),
        repair_after=(5,), restarts=2, restart_passes=6,
        storage="full", start="random", route="ring", n_blocks=5,
        deterministic=True, seed=6,
    )  # fmt: skip


def test_attributes_are_of_the_fit_that_was_not_of_the_one_asked_for():
    lda = LDA(
        n_components=2, inference="vb", n_workers=1, n_passes=50, evaluate_every=2, tol=0.9,
        random_state=0,
    )  # fmt: skip
    assert lda.fit(MATRIX) is lda
    assert lda.n_passes_ == 4
    assert [record.passes for record in lda.history_] == [2, 4]
    assert lda.elbo_ == lda.history_[-1].elbo
    np.testing.assert_array_equal(lda.doc_topic_, lda.model_.doc_topic)
    assert lda.components_.shape == (2, 12)
    np.testing.assert_array_equal(lda.components_, lda.model_.lambda_.T)
    assert [len(topic.words) for topic in lda.topics(3)] == [3, 3]
    transformed = lda.fit_transform(MATRIX)
    np.testing.assert_array_equal(transformed, lda.doc_topic_)
    np.testing.assert_allclose(transformed.sum(axis=1), 1, rtol=1e-6)


def test_bad_input_is_an_error_before_the_fit():
    with pytest.raises(ParameterError, match="n_topics"):
        LDA(n_components=0).fit(MATRIX)
    with pytest.raises(ParameterError, match="alpha must be a number or have 3 values"):
        LDA(n_components=3, doc_topic_prior=[0.1, 0.2]).fit(MATRIX)
    with pytest.raises(CorpusError, match="-1"):
        LDA(n_components=3).fit(-MATRIX)
    for act in (LDA().topics, lambda: LDA().save("nowhere")):
        with pytest.raises(NotFittedError):
            act()
