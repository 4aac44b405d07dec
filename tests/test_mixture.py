"""Mixtures as people meet them: the command line, the model directory, the estimator."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.mixture import BayesianGaussianMixture

import esvi_shm
from esvi_shm import evaluate, fit, infer
from esvi_shm.errors import CorpusError, ModelError, ParameterError
from tests.families.mixture.play import FAMILIES, blobs, points_of

pytestmark = pytest.mark.usefixtures("threads")
X, WHICH = blobs(120, 2, 3, seed=11, apart=8.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved mixture, by two processes, and the file of its points."""
    folder = tmp_path_factory.mktemp("mixture")
    np.save(folder / "X.npy", X)
    arguments = [str(folder / "X.npy"), "--family", "gaussian", "--components", "5"]
    arguments += ["--workers", "2", "--passes", "20", "--quiet", "--out", str(folder / "model")]
    assert fit.main(arguments) == 0
    return folder


def test_the_command_saves_what_load_reads(saved):
    model = esvi_shm.load(saved / "model")
    summary = json.loads((saved / "model" / "summary.json").read_text())
    assert summary["n_points"] == 120 and summary["n_components"] == 5
    assert summary["config"]["mixture"]["covariance"] == "diag"
    assert model.elbo == pytest.approx(summary["elbo"])
    z = model.predict_proba(X)
    np.testing.assert_allclose(z.sum(axis=1), 1.0)
    np.testing.assert_array_equal(z.argmax(axis=1), model.predict(X))
    assert (model.predict(X) == model.labels).mean() > 0.98
    assert model.weights.sum() == pytest.approx(1.0)
    drawn, which = model.sample(500, 0)
    assert drawn.shape == (500, 2) and set(which) <= set(range(5))
    np.testing.assert_allclose(drawn.mean(axis=0), X.mean(axis=0), atol=2.0)
    with pytest.raises(CorpusError, match="must have 2 features, as the model has, got 3"):
        model.predict(np.ones((2, 3)))
    with pytest.raises(ModelError, match=r"must be a topic model, and is a mixture \(gaussian\)"):
        esvi_shm.store.load_topics(saved / "model")


def test_infer_writes_the_responsibilities(saved, tmp_path, capsys):
    wanted = esvi_shm.load(saved / "model").predict_proba(X)
    for name in ("z.npy", "z.csv"):
        out = str(tmp_path / name)
        assert infer.main([str(saved / "model"), str(saved / "X.npy"), "--out", out]) == 0
    assert "120 points, 5 components" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), wanted, atol=1e-6)
    lines = (tmp_path / "z.csv").read_text().splitlines()
    assert lines[0] == "point," + ",".join(f"component_{k}" for k in range(5))
    np.testing.assert_allclose(np.array(lines[3].split(","), float)[1:], wanted[2], atol=1e-6)


def test_a_damaged_directory_is_refused(saved, tmp_path):
    import shutil

    shutil.copytree(saved / "model", tmp_path / "model")
    path = tmp_path / "model" / "statistics.npy"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"statistics\.npy: the file is damaged"):
        esvi_shm.load(tmp_path / "model")


def test_evaluate_prints_the_held_out_log_likelihood(saved, tmp_path, capsys):
    arguments = [str(saved / "model"), str(saved / "X.npy"), "--json", str(tmp_path / "f.json")]
    assert evaluate.main(arguments) == 0
    found = json.loads((tmp_path / "f.json").read_text())
    model = esvi_shm.load(saved / "model")
    assert found["log_likelihood"] == pytest.approx(model.score_samples(X).sum())
    assert f"{found['log_likelihood_per_point']:.4f} a point" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--components", "121"], "--components must be at most the number of points, 120"),
        (["--alpha", "0.2"], "--alpha has no meaning with family gaussian"),
        (["--start-from", "m"], "--start-from has no meaning with family gaussian, got 'm'"),
        (["--seed-words", "w"], "--seed-words has no meaning with family gaussian, got 'w'"),
        (["--components", "3", "--topics", "4"], "--topics has no meaning beside components"),
        (["--stop-words", "english"], "--stop-words has no meaning with family gaussian"),
        (["--holdout", "1.5"], "--holdout as a share must lie in (0, 1), got 1.5"),
        (["--covariance", "round"], "--covariance must be one of diag, full, spherical"),
        (["--mean-prior", "1,x"], "--mean-prior must be numbers with commas between"),
        (["--covariance-prior", "none.npy"], "--covariance-prior must be a .npy file of numbers"),
    ],
)
def test_bad_options_are_named(saved, arguments, message, capsys):
    assert fit.main([str(saved / "X.npy"), "--family", "gaussian", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--stability", "m"], ["--left-to-right", "3"], ["--intervals"], ["--reference=x"],
        ["--particles=9"], ["--top-words=4"], ["--workers=1"], ["--format=uci"], ["--transpose"],
    ],
)  # fmt: skip
def test_what_is_asked_of_topics_is_not_asked_of_a_mixture(saved, options, capsys):
    arguments = [str(saved / "model"), str(saved / "X.npy"), *options]
    assert evaluate.main(arguments) == 2
    name = options[0].split("=")[0]
    assert f"{name} has no meaning for a mixture" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--vocabulary=words", "--steps=7", "--workers=3", "--tol=1"])
def test_nor_is_what_is_asked_of_documents(saved, option, tmp_path, capsys):
    arguments = [str(saved / "model"), str(saved / "X.npy"), "--out", str(tmp_path / "z.npy")]
    assert infer.main([*arguments, option]) == 2
    assert f"{option.split('=')[0]} has no meaning for a mixture" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_truth_values_of_numpy_can_be_saved(tmp_path):
    """JSON knows no other truth values than Python's."""
    points = np.random.default_rng(0).normal(size=(30, 2))
    options = {"moves": np.bool_(True), "strict": np.bool_(False)}
    model = esvi_shm.Mixture(3, max_iter=2, n_workers=1, **options).fit(points).model_
    model.save(tmp_path / "m")
    assert esvi_shm.load(tmp_path / "m").options.moves is True


@pytest.mark.parametrize("scale", [1e-30, 1e-13, 1e13, 1e30, 1e200])
@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_what_float32_cannot_square_is_refused(scale, covariance):
    mixture = esvi_shm.Mixture(2, covariance_type=covariance, n_workers=1)
    with pytest.raises(CorpusError, match="must have a standard deviation from 1e-12 to 1e"):
        mixture.fit(X * scale)


@pytest.mark.parametrize("scale", [1e-11, 1e11])
@pytest.mark.parametrize("covariance", ["diag", "spherical", "full"])
def test_what_float32_can_square_gives_the_same_components(scale, covariance):
    options = {"covariance_type": covariance, "n_workers": 1, "random_state": 0}
    plain, scaled = (esvi_shm.Mixture(3, **options).fit(X * s) for s in (1.0, scale))
    np.testing.assert_allclose(scaled.means_ / scale, plain.means_, rtol=1e-3, atol=1e-3)
    assert np.isfinite(scaled.lower_bound_)


def test_the_plan_is_printed(saved, capsys):
    assert fit.main([str(saved / "X.npy"), "--family", "gaussian", "--plan", "--quiet"]) == 0
    assert "statistics" in capsys.readouterr().out


def test_the_plan_knows_what_the_start_imports(tmp_path):
    """In processes of their own: here all is imported. The first may compile, which takes more."""
    np.save(tmp_path / "X.npy", X)
    for name in ("first", "log"):
        command = [sys.executable, "-m", "esvi_shm.fit", "X.npy", "--family", "gaussian"]
        command += ["--components", "3", "--passes", "2", "--workers", "1", "--quiet"]
        command += ["--out", "model", "--log-json", name]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (planned,) = (event["peak_bytes"] for event in events if event["event"] == "plan")
    summary = json.loads((tmp_path / "model" / "summary.json").read_text())
    assert planned == pytest.approx(summary["peak_rss_bytes"], rel=0.15)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_model_says_of_points_is_what_the_fit_held(family):
    x = points_of(family, 60, 4, seed=12)
    mixture = esvi_shm.Mixture(3, family=family, n_workers=1, tol=0.0, random_state=0).fit(x)
    model = mixture.model_
    u = model.score_samples(x).sum()
    # L = sum of log-sum-exp - KL of q(pi), q(theta) from the prior: the bound is below it.
    assert u > mixture.lower_bound_
    np.testing.assert_allclose(mixture.score(x), u / 60)
    np.testing.assert_array_equal(mixture.labels_, mixture.predict(x))
    sample, which = mixture.sample(2000)
    share = np.bincount(which, minlength=3) / 2000
    np.testing.assert_allclose(share, mixture.weights_, atol=0.05)
    np.testing.assert_allclose(sample.mean(axis=0), x.mean(axis=0), atol=0.6)


def test_full_covariance_agrees_with_scikit_learn():
    """One component after one step of each, from the same priors: where the two must agree."""
    priors = {
        "weight_concentration_prior": 0.7, "mean_precision_prior": 1.3,
        "degrees_of_freedom_prior": 3.5, "covariance_prior": np.array([[2.0, 0.3], [0.3, 1.0]]),
    }  # fmt: skip
    means = np.stack([X[WHICH == k].mean(axis=0) for k in range(3)])
    peer = BayesianGaussianMixture(
        n_components=3, tol=0.0, max_iter=200, reg_covar=0.0, random_state=0,
        weight_concentration_prior_type="dirichlet_distribution", **priors,
    )  # fmt: skip
    with pytest.warns(Warning):
        peer.fit(X)
    ours = esvi_shm.Mixture(
        3, covariance_type="full", means_init=means, n_workers=1, tol=0.0, max_iter=60, **priors
    ).fit(X)
    order = [int(np.argmin(((peer.means_ - m) ** 2).sum(axis=1))) for m in ours.means_]
    np.testing.assert_allclose(ours.means_, peer.means_[order], rtol=1e-5)
    np.testing.assert_allclose(ours.covariances_, peer.covariances_[order], rtol=1e-4)
    np.testing.assert_allclose(ours.weights_, peer.weights_[order], rtol=1e-5)
    np.testing.assert_allclose(ours.score_samples(X), peer.score_samples(X), rtol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X)[:, order], atol=1e-5)


def test_the_estimator_follows_scikit_learn(tmp_path):
    mixture = esvi_shm.Mixture(2, covariance_type="spherical", n_workers=1, random_state=3)
    assert clone(mixture).get_params() == mixture.get_params()
    assert mixture.fit_predict(X).shape == (120,)
    assert mixture.means_.shape == (2, 2) and mixture.covariances_.shape == (2,)
    mixture.save(str(tmp_path / "m"))
    np.testing.assert_array_equal(esvi_shm.load(tmp_path / "m").predict(X), mixture.predict(X))
    with pytest.raises(ParameterError, match="n_components must be at most the number of points"):
        esvi_shm.Mixture(200).fit(X)
    with pytest.raises(ParameterError, match="init_params must be one of k-means"):
        esvi_shm.Mixture(2, init_params="kmeans").fit(X)


def test_numbers_of_numpy_are_taken_and_topics_refused(tmp_path):
    x = blobs(40, 2, 3, seed=1)[0]
    found = esvi_shm.Mixture(
        np.int64(3), n_workers=np.int32(1), max_iter=np.int64(2), tol=np.float32(0), random_state=0
    ).fit(x)
    found.save(str(tmp_path / "model"))
    assert len(esvi_shm.load(tmp_path / "model").weights) == 3
    with pytest.raises(ParameterError, match=r"family must be a mixture: .* got 'lda'"):
        esvi_shm.Mixture(family="lda").fit(x)


def test_scores_are_log_sum_exps():
    model = esvi_shm.Mixture(2, n_workers=1, random_state=0).fit(X).model_
    u = model._scores(X)
    np.testing.assert_allclose(model.score_samples(X), logsumexp(u, axis=1))


def test_a_share_of_the_points_judges_and_ends_the_fit(saved, tmp_path, capsys):
    arguments = [
        str(saved / "X.npy"),
        "--family",
        "gaussian",
        "--components",
        "9",
        "--workers",
        "1",
    ]
    arguments += ["--holdout", "0.25", "--patience", "2", "--tol", "0"]
    arguments += ["--evaluate-every", "1", "--passes", "200", "--out", str(tmp_path / "m")]
    assert fit.main(arguments) == 0
    said = capsys.readouterr()
    model = esvi_shm.load(tmp_path / "m")
    assert model.summary["n_points"] == 90 and model.summary["stopped"] == "patience"
    assert model.summary["holdout"] == {
        "source": f"{saved / 'X.npy'}, 30 points held out", "n_points": 30
    }  # fmt: skip
    found = [record.log_likelihood for record in model.history]
    assert len(found) - 1 - int(np.argmax(found)) == 2
    assert model.summary["holdout_log_likelihood"] == found[-1]
    assert f"held-out log likelihood {found[-1]:.4f} a point (30 points)" in said.out
    assert f"held-out log likelihood {found[0]:.4f}" in said.err
    assert len(model.labels) == 90


def test_other_points_judge_a_mixture():
    new = X[:40] + 0.1
    mixture = esvi_shm.Mixture(3, holdout=new, n_workers=1, random_state=0).fit(X)
    found = mixture.history_[-1].log_likelihood
    assert found == pytest.approx(mixture.score_samples(new).mean())
    drawn = esvi_shm.Mixture(3, holdout=0.5, n_workers=1, random_state=0).fit(X)
    np.testing.assert_array_equal(drawn.labels_, drawn.predict(X))
    assert len(drawn.model_.labels) == 60


@pytest.mark.parametrize(
    ("holdout", "options", "error", "message"),
    [
        (1.5, {}, ParameterError, r"holdout as a share must lie in \(0, 1\)"),
        (0.001, {}, ParameterError, "holdout must set aside some and not all of 120 points"),
        (np.ones((3, 5)), {}, CorpusError, "must have 2 features, as the points of the fit have"),
        (np.ones((3, 2)) * np.nan, {}, CorpusError, "must be finite, got nan in row 0"),
        (None, {"patience": 3}, ParameterError, "patience must come with holdout, got 3"),
        (0.5, {"patience": 0}, ParameterError, "patience must be at least 1, got 0"),
    ],
)
def test_bad_points_held_out_are_refused(holdout, options, error, message):
    with pytest.raises(error, match=message):
        esvi_shm.Mixture(3, holdout=holdout, n_workers=1, **options).fit(X)


def test_points_too_far_to_be_scored_are_refused(saved):
    model = esvi_shm.load(saved / "model")
    with pytest.raises(CorpusError, match="row 1 must lie nearer to the components"):
        model.predict_proba([[0.0, 0.0], [1e300, 0.0]])


def test_a_fitted_mixture_takes_columns_by_their_names(tmp_path):
    pandas = pytest.importorskip("pandas")
    X = blobs(120, 2, 3, seed=4)[0] * [1.0, 30.0]
    frame = pandas.DataFrame(X, columns=["sea", "hill"])
    model = esvi_shm.Mixture(3, n_workers=1, random_state=0).fit(frame)
    turned = frame[["hill", "sea"]]
    model.save(tmp_path / "m")
    for fitted in (model, esvi_shm.load(tmp_path / "m")):
        np.testing.assert_array_equal(fitted.predict(turned), model.predict(X))
        np.testing.assert_array_equal(fitted.score_samples(turned), model.score_samples(X))
        with pytest.raises(CorpusError, match="must have the features sea, hill; got sea, hull"):
            fitted.predict(frame.rename(columns={"hill": "hull"}))
    options = {"n_workers": 1, "random_state": 0, "max_iter": 3}
    held_out = [
        esvi_shm.Mixture(3, holdout=points, **options).fit(frame).history_[-1].log_likelihood
        for points in (frame, turned)
    ]
    assert held_out[0] == held_out[1]
