"""scikit-learn's idiom: parameters stored, attributes fitted, the same fit underneath."""

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from numba.core import event
from scipy.special import digamma
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import esvi_shm
from esvi_shm import LDA, metrics
from esvi_shm.config import FitConfig
from esvi_shm.corpus import Corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.runtime import engine

pytestmark = pytest.mark.usefixtures("threads")
MATRIX = np.random.default_rng(3).poisson(0.5, (30, 12))
QUICK = {"n_components": 3, "n_workers": 1, "n_passes": 4, "deterministic": True}
WORDS = [["sea", "ship", "sea"], ["hill", "tree"], ["tree", "hill", "hill"]] * 5


@pytest.fixture(scope="module")
def components():
    """Of a corpus, by a true process."""
    corpus = Corpus.from_sparse(MATRIX)
    lda = LDA(**QUICK, random_state=0).fit(corpus)
    assert len(corpus.indices) == corpus.n_pairs  # the user's own stays whole
    return lda.components_


def test_the_fit_is_the_engine_s():
    lda = LDA(**QUICK, doc_topic_prior=0.2, topic_word_prior=0.3, random_state=5).fit(MATRIX)
    config = FitConfig(
        n_topics=3, alpha=0.2, eta=0.3, n_workers=1, n_passes=4, deterministic=True, seed=5
    )
    result = engine.fit(Corpus.from_sparse(MATRIX), config)
    lambda_ = np.empty_like(result.learned.lambda_rows)
    lambda_[result.learned.word_ids] = result.learned.lambda_rows
    np.testing.assert_array_equal(lda.components_, lambda_.T)
    assert lda.elbo_ == result.history[-1].elbo
    assert lda.n_passes_ == 4
    assert lda.n_features_in_ == 12
    np.testing.assert_allclose(lda.doc_topic_.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    "form", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array, np.asarray]
)
def test_any_matrix_gives_the_same(form, components):
    given = LDA(**QUICK, random_state=0).fit(form(MATRIX))
    np.testing.assert_array_equal(given.components_, components)


def test_token_lists_and_topics_and_save(tmp_path):
    lda = LDA(n_components=1, n_workers=1, n_passes=2).fit([["b", "a", "b"], ["b"]])
    assert lda.topics(2)[0].words == ("b", "a")
    lda.save(str(tmp_path / "m"))
    np.testing.assert_array_equal(esvi_shm.load(tmp_path / "m").lambda_.T, lda.components_)
    np.testing.assert_array_equal(lda.fit_transform([["a"], ["b"]]), [[1.0], [1.0]])


def test_inference_says_that_it_compiles(monkeypatch, caplog):
    lda = LDA(**QUICK).fit(MATRIX)
    infer_gamma = metrics.PreparedTopics.infer_gamma

    def compiling(*given):
        with event.trigger_event("numba:compile"):
            return infer_gamma(*given)

    monkeypatch.setattr(metrics.PreparedTopics, "infer_gamma", compiling)
    for infer in (lda.transform, lda.score):
        caplog.clear()
        with caplog.at_level(logging.INFO, "esvi_shm"):
            infer(MATRIX)
        assert len([r for r in caplog.records if "compiling kernels" in r.message]) == 1


def test_columns_may_have_their_names_later():
    """As behind a vectorizer, whose matrix has none."""
    lda = LDA(**QUICK, random_state=0).fit(MATRIX)
    names = [f"name{v}" for v in range(MATRIX.shape[1])]
    for plain, named in zip(lda.topics(4), lda.topics(4, words=names), strict=True):
        assert named.words == tuple(f"name{word[1:]}" for word in plain.words)
        assert named.weights == plain.weights
    with pytest.raises(ParameterError, match=rf"words must be a name for each of the {len(names)}"):
        lda.topics(4, words=names[1:])


def test_words_called_alike_are_told(caplog):
    names = ["twin", *(f"w{v}" for v in range(1, MATRIX.shape[1] - 1)), "twin"]
    LDA(**QUICK).fit(Corpus.from_sparse(MATRIX, names))
    told = [r.getMessage() for r in caplog.records if "called like" in r.getMessage()]
    assert len(told) == 1 and "1 words are called like one before them" in told[0]


def test_a_path_is_read(tmp_path):
    path = tmp_path / "documents.txt"
    path.write_text("tea milk\ntea\n")
    for given in (path, str(path)):
        assert LDA(n_components=1, n_workers=1, n_passes=1).fit(given).n_features_in_ == 2


def test_random_state():
    def fit(state):
        return LDA(**QUICK, random_state=state).fit(MATRIX).components_

    seeds = {LDA(random_state=np.random.RandomState(i))._config().seed for i in range(20)}
    assert len(seeds) == 20
    seeds = [LDA(random_state=np.random.RandomState(7))._config().seed for _ in range(2)]
    assert seeds[0] == seeds[1]
    np.testing.assert_array_equal(fit(1), fit(1))
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
        "holdout": 0.2, "patience": 6, "learn_priors": "eta", "symmetric_alpha": True,
        "cvb0_passes": 3, "temper_passes": 2, "refold_after": (1, 2), "noise": 0.5, "power": 0.7,
        "leave_out": "token", "settle": 3, "relax": 1.5, "dense_passes": 4, "topk": 4,
        "residual": "drop",
        "noise_passes": 8, "storage": "topk", "start": "spread", "seed_documents": 3,
        "seed_words": [["a"], [], ["b", "c"]], "start_from": None, "route": "ring", "n_blocks": 5,
        "axis": "topics", "repair_after": (5,), "restarts": 2, "restart_passes": 6,
        "deterministic": True, "random_state": np.int64(6), "max_memory": "3G", "scratch": "/tmp",
    }  # fmt: skip
    assert set(given) == set(LDA().get_params())
    assert LDA(**given)._config() == FitConfig(
        n_topics=7, alpha=0.2, eta=0.3, n_workers=3, n_passes=11, tol=0.0, evaluate_every=4,
        learn_priors="eta", symmetric_alpha=True, patience=6,
        max_time=9.0, inference="vb", cvb0_passes=3, temper_passes=2, refold_after=(1, 2),
        repair_after=(5,), restarts=2, restart_passes=6, power=0.7, leave_out="token",
        settle=3, relax=1.5,
        noise=0.5, noise_passes=8, storage="topk", axis="topics", start="spread", seed_documents=3,
        dense_passes=4, topk=4, residual="drop",
        seed_words=(("a",), (), ("b", "c")), route="ring", n_blocks=5,
        max_memory=3 * 2**30, scratch="/tmp", deterministic=True, seed=6,
    )  # fmt: skip


def test_attributes_are_of_the_fit_that_was_not_of_the_one_asked_for():
    lda = LDA(
        n_components=2, inference="vb", n_workers=1, n_passes=50, evaluate_every=2, tol=0.9,
        random_state=0,
    )  # fmt: skip
    assert lda.fit(MATRIX) is lda
    assert (lda.n_passes_, lda.stopped_) == (4, "tol")
    assert [record.passes for record in lda.history_] == [2, 4]
    assert lda.elbo_ == lda.history_[-1].elbo
    np.testing.assert_array_equal(lda.doc_topic_, lda.model_.doc_topic)
    assert lda.components_.shape == (2, 12)
    np.testing.assert_array_equal(lda.components_, lda.model_.lambda_.T)
    assert [len(topic.words) for topic in lda.topics(3)] == [3, 3]
    transformed = lda.fit_transform(MATRIX)
    np.testing.assert_array_equal(transformed, lda.transform(MATRIX))
    np.testing.assert_allclose(transformed.sum(axis=1), 1, rtol=1e-6)


def test_documents_held_out_are_not_trained_on():
    lda = LDA(**QUICK, holdout=0.3, evaluate_every=2, random_state=4).fit(MATRIX)
    kept = lda.training_documents_
    assert len(kept) == 21 and lda.doc_topic_.shape == (21, 3)
    alone = LDA(**QUICK, evaluate_every=2, random_state=4).fit(MATRIX[kept])
    np.testing.assert_array_equal(lda.components_, alone.components_)
    np.testing.assert_array_equal(lda.doc_topic_, alone.doc_topic_)
    assert [r[3:6] for r in lda.history_] == [r[3:6] for r in alone.history_]
    assert np.isnan([alone.perplexity_, *(r.perplexity for r in alone.history_)]).all()
    np.testing.assert_array_equal(alone.training_documents_, np.arange(21))
    # The same figure as for the same documents given as others.
    rest = np.setdiff1d(np.arange(30), kept)
    other = LDA(**QUICK, holdout=MATRIX[rest], evaluate_every=2, random_state=4).fit(MATRIX[kept])
    assert len(other.training_documents_) == 21
    found = [r.perplexity for r in lda.history_]
    assert found == [r.perplexity for r in other.history_]
    assert lda.perplexity_ == found[-1] == lda.model_.summary["holdout_perplexity"]
    assert 1 < lda.perplexity_ < 20
    assert lda.model_.summary["n_documents"] == 21
    assert lda.model_.summary["holdout"]["n_documents"] == 9


def test_priors_are_learned_and_saved(tmp_path):
    options = {**QUICK, "inference": "vb", "n_passes": 20, "random_state": 0}
    lda = LDA(**options, doc_topic_prior="auto", topic_word_prior="auto").fit(MATRIX)
    model = lda.model_
    assert (model.alpha != 0.1).all() and np.ptp(model.alpha) > 0
    assert model.eta[0] != 0.05 and np.ptp(model.eta) == 0
    assert lda.elbo_ > LDA(**options).fit(MATRIX).elbo_ + 1
    lda.save(str(tmp_path / "m"))
    loaded = esvi_shm.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.alpha, model.alpha)
    np.testing.assert_array_equal(loaded.eta, model.eta)
    last = loaded.history[-1]
    assert (last.alpha_mean, last.eta_mean) == (model.alpha.mean(), model.eta.mean())
    assert loaded.summary["alpha_mean"] == model.alpha.mean()
    assert loaded.summary["config"]["learn_priors"] == "both"


def test_a_fit_goes_on_from_a_model_or_its_folder(tmp_path):
    options = {"n_components": 3, "n_workers": 1, "n_passes": 30, "inference": "vb", "tol": 0}
    lda = LDA(**options, random_state=0).fit(MATRIX)
    lda.save(str(tmp_path / "m"))
    for source in (lda.model_, tmp_path / "m"):
        options["n_passes"] = 0
        again = LDA(**options, start_from=source, random_state=1).fit(MATRIX)
        # The topics are the same, in the same order.
        nearest = np.argmax(again.components_ @ lda.components_.T, axis=0)
        assert nearest.tolist() == [0, 1, 2]
        assert again.elbo_ == pytest.approx(lda.elbo_, rel=2e-3)
    with pytest.raises(ParameterError, match=r"start_from must be a model .*got 5"):
        LDA(start_from=5).fit(MATRIX)


@pytest.mark.parametrize("wrong", [np.array([1.0, 2.0]), np.array(2), [], {}, "", 0])
@pytest.mark.parametrize(
    "name", ["inference", "learn_priors", "axis", "residual", "start", "route", "storage"]
)
def test_what_is_no_name_is_refused(name, wrong):
    with pytest.raises(ParameterError, match=f"^{name} must be one of "):
        LDA(2, **{name: wrong}).fit(MATRIX)


@pytest.mark.parametrize("wrong", [np.array([1.0, 2.0]), [], {}, None])
@pytest.mark.parametrize("name", ["family", "init_params", "covariance_type", "route"])
def test_nor_of_a_mixture(name, wrong):
    with pytest.raises(ParameterError, match=f"^{name} must be one of "):
        esvi_shm.Mixture(2, **{name: wrong}).fit(MATRIX)


def test_seed_words_are_lists():
    with pytest.raises(ParameterError, match="seed_words must be a list of words"):
        FitConfig(seed_words=np.array(2))


def test_seed_words_may_come_once():
    """From a generator, or several of them."""
    lines = ["path time", "ship"]
    assert FitConfig(seed_words=map(str.split, lines)).seed_words == (("path", "time"), ("ship",))
    assert FitConfig(seed_words=(iter(["a"]), ["b"])).seed_words == (("a",), ("b",))


def test_seed_words_reach_the_fit():
    documents = [["sea", "ship", "salt"], ["hill", "tree", "path"]] * 10
    lda = LDA(
        n_components=2, n_workers=1, n_passes=10, random_state=0, seed_words=[["path"], ["ship"]]
    )
    first, second = (set(topic.words) for topic in lda.fit(documents).topics(3))
    assert first == {"hill", "tree", "path"} and second == {"sea", "ship", "salt"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_components": 0}, "n_components must be at least 1, got 0"),
        ({"doc_topic_prior": 0.0}, "doc_topic_prior must be greater than 0, got 0.0"),
        ({"doc_topic_prior": [0.1, 0.2]}, "doc_topic_prior must be a number or have 50 values"),
        ({"topic_word_prior": -1}, "topic_word_prior must be greater than 0, got -1"),
        ({"topic_word_prior": np.ones(3)}, "topic_word_prior must be a number or have 12 values"),
        ({"random_state": -1}, "random_state must be at least 0, got -1"),
        ({"random_state": True}, "random_state must be a whole number, got True"),
        ({"random_state": "x"}, "random_state must be None, a whole number or a .*, got 'x'"),
        ({"deterministic": "no"}, "deterministic must be True or False, got 'no'"),
        ({"deterministic": 1}, "deterministic must be True or False, got 1"),
        ({"n_workers": -1}, "n_workers must be at least 1, got -1"),
        ({"n_components": np.True_}, r"n_components must be a whole number, got (np\.)?True"),
        ({"route": "x"}, "route must be one of"),
    ],
)
def test_errors_call_parameters_as_they_are_called_here(given, message):
    with pytest.raises(ParameterError, match=f"^{message}"):
        LDA(**{"n_workers": 1, "random_state": 0, **given}).fit(MATRIX)


def test_a_numpy_flag_is_a_flag():
    config = LDA(deterministic=np.True_, random_state=0)._config()
    assert config.deterministic is True
    assert config == FitConfig(deterministic=True)


def test_bad_input_is_an_error_before_the_fit():
    with pytest.raises(ParameterError, match="holdout as a share must lie"):
        LDA(holdout=1.0).fit(MATRIX)
    with pytest.raises(ParameterError, match="patience must come with holdout, got 2"):
        LDA(patience=2).fit(MATRIX)
    with pytest.raises(CorpusError, match="-1"):
        LDA(n_components=3).fit(-MATRIX)
    for nothing in ("", None, "no/such/file.txt", Path("no/such/file.txt")):
        with pytest.raises(CorpusError):
            LDA(n_components=3).fit(nothing)
    acts = (
        LDA().topics, lambda: LDA().save("nowhere"), lambda: LDA().transform(MATRIX),
        lambda: LDA().score(MATRIX), lambda: LDA().perplexity(MATRIX), LDA().get_feature_names_out,
    )  # fmt: skip
    for act in acts:
        with pytest.raises(NotFittedError):
            act()


@pytest.mark.parametrize(
    "prior", [[1j, 2.0], ["1", "2"], [True, False], np.zeros(2, "M8[D]"), [[1.0], [1.0, 2.0]]]
)
def test_priors_must_be_numbers(prior):
    with pytest.raises(ParameterError, match="doc_topic_prior must be a number or a vector"):
        LDA(n_components=2, doc_topic_prior=prior).fit(MATRIX)


def test_score_and_perplexity_are_scikit_learn_s():
    lda = LDA(**QUICK, doc_topic_prior=0.2, topic_word_prior=0.3, random_state=0).fit(MATRIX)
    peer = LatentDirichletAllocation(
        3, doc_topic_prior=0.2, topic_word_prior=0.3, max_iter=1, random_state=0
    ).fit(MATRIX)
    peer.components_ = lda.components_.astype(float)
    logs = digamma(peer.components_) - digamma(peer.components_.sum(axis=1))[:, None]
    peer.exp_dirichlet_component_ = np.exp(logs)
    other = np.random.default_rng(1).poisson(1.0, (9, 12))
    assert lda.score(other) == pytest.approx(peer.score(other), rel=1e-4)
    assert lda.perplexity(other) == pytest.approx(peer.perplexity(other), rel=1e-4)
    assert lda.perplexity(other) == pytest.approx(np.exp(-lda.score(other) / other.sum()))


def test_names_of_features_and_frames():
    lda = LDA(**QUICK).fit(MATRIX)
    assert lda.get_feature_names_out().tolist() == ["lda0", "lda1", "lda2"]
    pandas = pytest.importorskip("pandas")
    frame = lda.set_output(transform="pandas").transform(MATRIX)
    assert isinstance(frame, pandas.DataFrame)
    assert frame.columns.tolist() == ["lda0", "lda1", "lda2"]


def test_fit_transform_has_a_row_for_each_document_held_out_ones_too():
    lda = LDA(**QUICK, random_state=0, holdout=0.4)
    theta = lda.fit_transform(MATRIX)
    assert len(lda.doc_topic_) < len(theta) == MATRIX.shape[0]
    np.testing.assert_array_equal(theta, lda.transform(MATRIX))


def test_it_goes_into_a_pipeline():
    texts = [" ".join(words) for words in WORDS]
    pipeline = make_pipeline(CountVectorizer(), LDA(**QUICK, random_state=0))
    theta = pipeline.fit_transform(texts)
    lda = LDA(**QUICK, random_state=0).fit(CountVectorizer().fit_transform(texts))
    np.testing.assert_array_equal(theta, lda.transform(CountVectorizer().fit_transform(texts)))
    transformed = pipeline.transform(["ship at sea", "moss"])
    np.testing.assert_array_equal(transformed, lda.transform(np.array([[0, 1, 1, 0], [0] * 4])))
    assert pipeline.get_feature_names_out().tolist() == ["lda0", "lda1", "lda2"]
    assert pipeline.set_params(lda__n_components=2).fit_transform(texts).shape == (15, 2)
    assert np.isfinite(pipeline.score(texts))


@pytest.mark.parametrize("documents", [scipy.sparse.csr_matrix(MATRIX), WORDS])
def test_a_grid_search_chooses_by_score(documents):
    search = GridSearchCV(
        LDA(**QUICK, random_state=0), {"n_components": [1, 2], "doc_topic_prior": [0.1]}, cv=2
    )  # fmt: skip
    search.fit(documents)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all() and scores[0] != scores[1]
    assert search.best_params_["n_components"] == 1 + int(np.argmax(scores))
    assert search.best_estimator_.components_.shape[0] == search.best_params_["n_components"]


def test_a_grid_search_may_choose_by_completion():
    lda, grid = LDA(**QUICK, random_state=0), {"n_components": [1, 2, 3]}
    search = GridSearchCV(lda, grid, cv=2, scoring=LDA.completion_score).fit(MATRIX)
    found = search.cv_results_["mean_test_score"]
    first, second = MATRIX[:15], MATRIX[15:]
    for n, score in zip([1, 2, 3], found, strict=True):
        of_folds = []
        for train, test in ((second, first), (first, second)):
            fitted = clone(lda).set_params(n_components=n).fit(train)
            of_folds.append(-fitted.model_.completion(test).perplexity)
        assert score == pytest.approx(np.mean(of_folds), rel=1e-12)
    with pytest.raises(NotFittedError):
        lda.completion_score(MATRIX)


def test_completion_is_that_of_the_metrics():
    model, documents = LDA(**QUICK).fit(WORDS).model_, [["ship", "sea", "rum"] * 3, ["moss", "sea"]]
    found = model.completion(documents, seed=3)
    corpus = metrics.align(Corpus.from_tokens(documents), model.words).corpus
    observed, scored = metrics.split_tokens(corpus, 3)
    topics = metrics.point_topics(model.lambda_)
    theta = metrics.fold_in(topics, model.alpha, observed)
    expected = metrics.completion_perplexity(theta, topics, scored)
    assert found.perplexity == expected.perplexity > 1
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    with pytest.raises(CorpusError, match="there must be a word in common"):
        model.completion([["xyz"]])
    for seed in (-1, 2**63, 1.5, "a", None, True):
        with pytest.raises(ParameterError, match="seed must be a whole number from 0 to 2"):
            model.completion(documents, seed=seed)
    assert model.completion(documents, seed=4).tokens.tolist() != found.tokens.tolist()


def test_a_fitted_one_comes_back_from_a_pickle():
    lda = LDA(**QUICK, random_state=0).fit(MATRIX)
    again = pickle.loads(pickle.dumps(lda))
    np.testing.assert_array_equal(again.components_, lda.components_)
    np.testing.assert_array_equal(again.transform(MATRIX), lda.transform(MATRIX))
    assert clone(again).get_params() == lda.get_params()
