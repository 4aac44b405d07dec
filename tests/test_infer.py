"""The command: ``python -m esvi_shm.infer``, as a user runs it."""

import os
from pathlib import Path

import numba
import numpy as np
import pytest

from esvi_shm import infer, store
from esvi_shm.corpus import read_corpus
from esvi_shm.model import FittedModel
from tests import commands


@pytest.fixture
def new(tmp_path) -> Path:
    """Three documents; the second has no word that the model knows."""
    path = tmp_path / "new.txt"
    path.write_text("word1 word2 word2 unheard\nunheard of\nword3\n")
    return path


def test_theta_from_the_shell(model, new, tmp_path):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    out = tmp_path / "theta.npy"
    done = commands.run("infer", model, new, "--out", out, "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    theta = np.load(out, allow_pickle=False)
    loaded = store.load(model)
    np.testing.assert_array_equal(theta, loaded.transform(read_corpus(new)))
    assert theta.shape == (3, 4) and theta.dtype == np.float32
    np.testing.assert_allclose(theta[1], 0.25, rtol=1e-6)
    lines = done.stdout.splitlines()
    assert lines[0] == "3 documents, 4 tokens of known words, 3 tokens of 2 unknown ones"
    assert lines[1].startswith("4 topics, ") and lines[1].endswith(f"saved in {out}")
    assert "new.txt: 3 documents" in done.stderr
    warning = f"WARNING: {new}: 1 of 3 documents have no word that the model knows"
    assert done.stderr.count(warning) == done.stderr.count("WARNING") == 1


def test_csv_holds_the_same_numbers(model, new, tmp_path, capsys):
    for name in ("theta.npy", "theta.csv"):
        assert infer.main([str(model), str(new), "--out", str(tmp_path / name), "--quiet"]) == 0
    assert "documents," not in capsys.readouterr().err
    lines = (tmp_path / "theta.csv").read_text().splitlines()
    assert lines[0] == "document,topic_0,topic_1,topic_2,topic_3"
    rows = np.array([line.split(",") for line in lines[1:]])
    assert rows[:, 0].tolist() == ["0", "1", "2"]
    np.testing.assert_array_equal(rows[:, 1:].astype(np.float32), np.load(tmp_path / "theta.npy"))


def test_seconds_that_went_into_compiling_are_not_taken_for_those_of_inference(
    model, new, tmp_path, monkeypatch, capsys
):
    transform = FittedModel.transform

    def compiling(*arguments, **options):
        numba.njit(lambda x: x + 1)(1)
        return transform(*arguments, **options)

    arguments = [str(model), str(new), "--out", str(tmp_path / "theta.npy"), "--quiet"]
    assert infer.main(arguments) == infer.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1].count("s of inference, saved in") == 1
    monkeypatch.setattr(FittedModel, "transform", compiling)
    assert infer.main(arguments) == 0
    assert "s of inference (with compiling), saved in" in capsys.readouterr().out


def test_steps_and_tolerance_are_honoured(model, new, tmp_path):
    out = tmp_path / "theta.npy"
    found = []
    for options in ([], ["--steps", "1"], ["--tol", "9"]):
        assert infer.main([str(model), str(new), "--out", str(out), *options, "--quiet"]) == 0
        found.append(np.load(out))
    np.testing.assert_array_equal(found[1], found[2])
    assert np.abs(found[0] - found[1]).max() > 0.01


def test_a_failed_write_leaves_the_older_file(model, new, tmp_path, monkeypatch, capsys):
    out = tmp_path / "theta.csv"
    out.write_text("older")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert infer.main([str(model), str(new), "--out", str(out), "--quiet"]) == 1
    assert f"No space left on device: '{out}'" in capsys.readouterr().err
    assert out.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.txt", "theta.csv"]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--out", "theta.txt"], "--out must end with .npy or .csv, got 'theta.txt'"),
        (["--out", "/nowhere/t.npy"], "--out must be a file in a folder that exists"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--steps", "-1"], "--steps must be at least 0, got -1"),
        (["--tol", "nan"], "--tol must be at least 0, got nan"),
        (["--format", "x"], "--format must be one of"),
        (["--transpose"], "--transpose is not for the format text"),
    ],
)
def test_bad_options(arguments, says, model, new, tmp_path, capsys):
    out = ["--out", str(tmp_path / "theta.npy")]
    assert infer.main([str(model), str(new), *out, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"esvi_shm.infer: error: {says}")
    assert not (tmp_path / "theta.npy").exists()


def test_bad_models_and_corpora(model, new, tmp_path, capsys):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    for given, says in (
        ((tmp_path / "gone", new), "gone: not a model"),
        ((model, tmp_path / "gone.txt"), "gone.txt: there is no such file"),
        ((model, empty), "empty.txt: a text must have words"),
        ((model, model), f"{model}: must be a corpus, and is a model that a fit has saved"),
    ):
        assert infer.main([*map(str, given), "--out", str(tmp_path / "t.npy"), "--quiet"]) == 2
        assert says in capsys.readouterr().err


def test_the_help_has_the_formula():
    assert "gamma_dk = alpha_k + sum_v n_dv phi_dvk" in infer._parser().format_help()


def test_documents_without_known_words_have_the_prior_mean(model, tmp_path, capsys, caplog):
    foreign, out = tmp_path / "foreign.txt", tmp_path / "theta.npy"
    foreign.write_text("ash bay\n\nash\n")
    assert infer.main([str(model), str(foreign), "--out", str(out), "--quiet"]) == 0
    np.testing.assert_allclose(np.load(out), np.full((3, 4), 0.25), rtol=1e-6)
    (message,) = caplog.messages
    assert message.startswith(f"{foreign}: 3 of 3 documents have no word that the model knows")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 documents, 0 tokens of known words, 3 tokens of 2 unknown ones"
