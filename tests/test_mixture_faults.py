"""What can befall a mixture: signals, killed workers, damaged model directories, odd points."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import esvi_shm
from esvi_shm.errors import CorpusError, ModelError
from esvi_shm.points import as_points, read_points
from tests.commands import command
from tests.families.mixture.play import FAMILIES, blobs, bounds, play

X, _ = blobs(40, 2, 3, seed=1)


def _start_long_fit(tmp_path: Path, *options: str) -> tuple[subprocess.Popen, Path]:
    """A fit that would take very long, with its passes under way."""
    np.save(tmp_path / "X.npy", blobs(3000, 4, 5, seed=2)[0])
    arguments = command(
        "fit", tmp_path / "X.npy", "--family", "gaussian", "--components", "12", "--passes",
        "100000000", "--tol", "0", "--evaluate-every", "5", "--workers", "2", "--out",
        tmp_path / "model", *options,
    )  # fmt: skip
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    for line in process.stderr:
        if line.startswith("pass 10: ELBO"):
            return process, tmp_path / "model"
    raise AssertionError("the fit ended before its work was under way")


@pytest.mark.usefixtures("nothing_left")
def test_a_ctrl_c_saves_what_there_is(tmp_path):
    process, out = _start_long_fit(tmp_path, "--topk", "3", "--dense-passes", "4")
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert "stopped by SIGINT" in stdout
    model = esvi_shm.load(out)
    assert model.counts.sum() == pytest.approx(3000, rel=1e-5)
    assert model.summary["ending"]["scored"] == "near"
    assert model.summary["at_rest"]["merges"] >= 0


@pytest.mark.slow  # as of topic models, in test_fit_signals
@pytest.mark.usefixtures("nothing_left")
def test_a_killed_worker_is_named(tmp_path):
    process, out = _start_long_fit(tmp_path)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [
        pid for pid in children if b"runtime.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(workers) == 2
    os.kill(int(workers[1]), signal.SIGKILL)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert f"worker 1 (process {workers[1]}) was ended by signal SIGKILL" in stderr
    assert not out.exists()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The directory of a saved mixture."""
    mixture = esvi_shm.Mixture(3, n_workers=1, random_state=0, max_iter=3).fit(X)
    folder = tmp_path_factory.mktemp("faults") / "model"
    mixture.save(str(folder))
    return folder


def _array(name, change):
    return lambda folder: np.save(folder / name, change(np.load(folder / name)))


def _summary(change):
    def write(folder):
        path = folder / "summary.json"
        summary = json.loads(path.read_text())
        change(summary)
        path.write_text(json.dumps(summary))

    return write


@pytest.mark.parametrize(
    "damage",
    [
        _array("statistics.npy", lambda a: a[:-1]),
        _array("statistics.npy", lambda a: a[0]),
        _array("statistics.npy", lambda a: a * np.nan),
        _array("statistics.npy", lambda a: a.astype("U9")),
        _array("centre.npy", lambda a: a[:1]),
        _array("centre.npy", lambda a: a * np.inf),
        _array("prior_mean.npy", lambda a: a[:1]),
        _array("prior_scale.npy", lambda a: a * np.nan),
        _array("labels.npy", lambda a: a[:, None]),
        _array("labels.npy", lambda a: a[:-1]),
        _array("labels.npy", lambda a: a + 7),
        _summary(lambda s: s["config"].update(family="none")),
        _summary(lambda s: s["config"].update(family="poisson")),
        _summary(lambda s: s["config"]["mixture"].update(covariance="full")),
        _summary(lambda s: s["config"]["mixture"].update(another=1)),
        _summary(lambda s: s.pop("config")),
        lambda folder: (folder / "prior_scale.npy").unlink(),
        lambda folder: (folder / "history.csv").write_text("passes,unknown\n1,2\n"),
        lambda folder: (folder / "history.csv").write_text("passes\n"),
    ],
)
def test_a_directory_that_does_not_agree_with_itself_is_refused(model, damage, tmp_path):
    """Every file is what its digest says, as if another program had written them."""
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    assert esvi_shm.load(folder).predict(X).shape == (40,)
    damage(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in manifest["sha256"]
        if (folder / name).exists()
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError):
        esvi_shm.load(folder)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("x", "n_topics"),
    [
        (np.ones((1, 3)), 1),
        (np.eye(6), 6),
        (np.zeros((9, 2)), 4),
        (np.ones((9, 1)), 4),
        (scipy.sparse.csr_matrix((9, 2)), 4),
    ],
    ids=["one point", "a component each", "zeros", "one feature, all equal", "sparse, empty"],
)
@pytest.mark.parametrize("topk", [None, 1])
def test_odd_points_are_fitted(family, x, n_topics, topk):
    fit = play(x, family, n_topics, topk=topk, dense_passes=None if topk is None else 1)
    found = np.array(bounds(fit, 4))
    assert np.isfinite(found).all()
    assert (np.diff(found) >= -1e-6 * abs(found[0]) - 1e-5).all()


@pytest.mark.parametrize("covariance", ["diag", "spherical", "full"])
@pytest.mark.parametrize(
    "x", [np.vstack([X, [[1e6, 1e6]]]), X + 1e6, X[:, :1]], ids=["outlier", "far", "one feature"]
)
def test_points_far_out_are_fitted(covariance, x):
    found = np.array(bounds(play(x, n_topics=5, covariance=covariance), 6))
    assert np.isfinite(found).all() and (np.diff(found) >= -1e-5 * abs(found[0])).all()


@pytest.mark.parametrize("covariance", ["diag", "spherical"])
def test_sparse_points_far_from_zero_are_refused_and_dense_ones_are_fitted(covariance):
    near, far = X + np.array([1e2, 0.0]), X + np.array([0.0, 1e6])
    found = bounds(play(scipy.sparse.csr_matrix(near), covariance=covariance), 3)
    np.testing.assert_allclose(found, bounds(play(near, covariance=covariance), 3), atol=0.1)
    bounds(play(far, covariance=covariance), 1)
    with pytest.raises(CorpusError, match=r"within 1000 standard .*; got .* in column 1 \(from 0"):
        play(scipy.sparse.csr_matrix(far), covariance=covariance)


@pytest.mark.filterwarnings("error")
def test_points_too_large_to_be_squared_are_refused_without_warnings():
    with pytest.raises(CorpusError, match="the widest feature must have a standard deviation"):
        play(scipy.sparse.csr_matrix(X * 1e200))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X + 1j, "must be real numbers, got type complex128"),
        (X.astype(object), "must be real numbers, got type object"),
        (X.astype(str), "must be real numbers, got type <U"),
        (np.zeros((3, 2), "M8[s]"), "must be real numbers, got type datetime64"),
        (X[None], "must have two dimensions"),
        (np.empty((0, 2)), r"must have points and features, got shape \(0, 2\)"),
        (np.ma.masked_array(X, X > 5), "must have no masked numbers"),
        (np.where(X > 5, np.nan, X), "must be finite, got nan in row"),
    ],
)
def test_points_of_other_types_are_refused(x, message):
    with pytest.raises(CorpusError, match=message):
        as_points(x)


@pytest.mark.parametrize(
    "text", ["a,b,label\n1,2,x\n3,4,y\n", "1,2,x\n3,4,y\n", "a,b\n1,2\n3\n", "a,b\n1;2\n", "a\n"]
)
def test_a_csv_with_labels_or_holes_is_refused(text, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(CorpusError, match=r"x\.csv(: must|, line 2: column .* must hold numbers)"):
        read_points(tmp_path / "x.csv")
