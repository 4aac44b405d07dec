"""The model directory: what is saved is loaded, and damage is found."""

import hashlib
import io
import json
import os

import numpy as np
import pytest

import esvi_shm
from esvi_shm import store
from esvi_shm.config import FitConfig
from esvi_shm.corpus import Corpus
from esvi_shm.errors import ModelError
from esvi_shm.model import FittedModel
from esvi_shm.runtime import engine
from tests.stored import FILES, make_model, value_of


@pytest.fixture(scope="module")
def model() -> FittedModel:
    random = np.random.default_rng(0)
    matrix = random.poisson(0.3, (40, 9000))  # more words than one chunk of rows
    matrix[:, 17] = 0
    vocabulary = [f"wörd {v}" for v in range(9000)]
    corpus = Corpus.from_sparse(matrix, vocabulary)
    config = FitConfig(n_topics=3, n_workers=2, n_passes=3, evaluate_every=2)
    return FittedModel.from_result(engine.fit(corpus, config), corpus)


def test_round_trip(model, tmp_path):
    target = tmp_path / "deep" / "model"
    model.save(str(target))
    assert {path.name for path in target.iterdir()} == FILES
    assert os.listdir(target.parent) == ["model"]
    loaded = esvi_shm.load(target)
    for name in ("lambda_", "gamma", "alpha", "eta", "topic_word", "doc_topic"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    assert loaded.lambda_.shape == (9000, 3)
    assert isinstance(loaded.lambda_, np.memmap) and isinstance(loaded.gamma, np.memmap)
    assert loaded.words == list(model.words)
    # nan, of a fit without held-out text, is not equal to itself.
    assert repr(loaded.history) == repr(model.history)
    assert loaded.summary == model.summary
    assert loaded.topics(5) == model.topics(5)
    assert loaded.elbo == model.elbo


def test_summary_and_manifest_say_what_was_fitted(model, tmp_path):
    model.save(str(tmp_path / "m"))
    summary = json.loads((tmp_path / "m/summary.json").read_text())
    wanted = (
        "n_documents n_words n_pairs n_tokens n_topics n_workers n_passes elbo elbo_f "
        "elbo_per_token fit_seconds total_seconds pairs_per_second peak_rss_bytes"
    )
    assert set(wanted.split()) <= set(summary)
    assert (summary["n_documents"], summary["n_words"], summary["n_topics"]) == (40, 9000, 3)
    assert summary["n_passes"] == 3
    assert summary["elbo_per_token"] == summary["elbo"] / summary["n_tokens"]
    assert 0 < summary["fit_seconds"] <= summary["total_seconds"]
    manifest = json.loads((tmp_path / "m/manifest.json").read_text())
    assert set(manifest["sha256"]) == FILES - {"manifest.json"}
    assert manifest["config"]["n_topics"] == 3
    assert manifest["corpus_digest"] == summary["corpus_digest"]
    for name, size in manifest["sizes"].items():
        assert size == summary[name]
    assert manifest["versions"]["esvi_shm"] == esvi_shm.__version__


def test_a_model_replaces_a_model(tmp_path):
    for value in (1.0, 2.0):
        store.save(make_model(value), tmp_path / "m")
        assert os.listdir(tmp_path) == ["m"]  # before a load, which would tidy up
        assert value_of(tmp_path / "m") == value


@pytest.mark.parametrize("name", sorted(FILES - {"manifest.json"}))
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_named(name, damage, tmp_path):
    store.save(make_model(1.0), tmp_path / "m")
    path = tmp_path / "m" / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    with pytest.raises(ModelError, match=name):
        esvi_shm.load(tmp_path / "m")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": 1}'])
def test_a_damaged_manifest_is_named(text, tmp_path):
    store.save(make_model(1.0), tmp_path / "m")
    (tmp_path / "m/manifest.json").write_text(text)
    with pytest.raises(ModelError, match="manifest"):
        esvi_shm.load(tmp_path / "m")


def _npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lambda.npy", _npy(np.ones((5, 2), np.float32))),
        ("lambda.npy", _npy(np.ones(3, np.float32))),
        ("lambda.npy", _npy(np.ones((3, 2), np.float32))[:-3]),
        ("gamma.npy", _npy(np.ones((3, 2), np.int64))),
        ("eta.npy", _npy(np.array([{}], dtype=object))),
        ("alpha.npy", b"no array"),
        ("vocabulary.txt", b"a\n"),
        ("vocabulary.txt", b"a\n\xff\nc\n"),
        ("history.csv", b""),
        ("history.csv", b"a,b\n1,2\n"),
        ("summary.json", b"{"),
        ("summary.json", b"[" * 100_000),
    ],
)
def test_files_that_hold_no_model_are_one_error_though_their_sums_are_right(
    name, content, tmp_path
):
    store.save(make_model(1.0), tmp_path / "m")
    (tmp_path / "m" / name).write_bytes(content)
    change_manifest(tmp_path / "m", {name: hashlib.sha256(content).hexdigest()})
    with pytest.raises(ModelError, match="m: the files do not hold a model: "):
        esvi_shm.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["../m/eta.npy", "/etc/hostname", "a" * 5000, "a\0b"])
def test_a_manifest_of_other_files_is_refused(name, tmp_path):
    store.save(make_model(1.0), tmp_path / "m")
    change_manifest(tmp_path / "m", {name: ""})
    with pytest.raises(ModelError, match=r"manifest\.json: must list the files alpha\.npy, "):
        esvi_shm.load(tmp_path / "m")


def change_manifest(folder, sums) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["sha256"] |= sums
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_folder_can_have(name):
    for act in (esvi_shm.load, store.check_target):
        with pytest.raises(ModelError, match="cannot be a folder"):
            act(name)


def test_no_model_and_a_newer_format_are_refused(tmp_path):
    with pytest.raises(ModelError, match="not a model"):
        esvi_shm.load(tmp_path / "none")
    store.save(make_model(1.0), tmp_path / "m")
    manifest = tmp_path / "m/manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 1', '"format_version": 9'))
    with pytest.raises(ModelError, match="version 9"):
        esvi_shm.load(tmp_path / "m")


@pytest.mark.parametrize("word", ["b\x0bc", "b\x85c", "b\u2028c", "b\u2028"])
def test_other_separators_are_part_of_a_word(word, tmp_path):
    model = make_model(1.0)
    model.words = ["a", word, "d"]
    store.save(model, tmp_path / "m")
    assert esvi_shm.load(tmp_path / "m").words == ["a", word, "d"]


@pytest.mark.parametrize("word", ["\ud800", "b\nc", "b\rc", "b\n", "b\r", "b\r\n"])
def test_a_word_that_a_file_cannot_hold_is_refused(word, tmp_path):
    model = make_model(1.0)
    model.words = ["a", word, "d"]
    with pytest.raises(ModelError, match="word 1"):
        store.save(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_can_only_be_read_is_loaded(tmp_path, monkeypatch):
    store.save(make_model(1.0), tmp_path / "m")

    def refuse(folder):
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(store, "repair", refuse)
    assert value_of(tmp_path / "m") == 1.0


@pytest.mark.parametrize("name", ["lambda", "gamma", "alpha", "eta"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -1.0])
@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_a_number_that_is_no_dirichlet_parameter_is_named(name, value, dtype, tmp_path):
    """In files whose sums are right, as of a fit that went wrong; wherever it stands."""
    store.save(make_model(1.0), tmp_path / "m")
    path = tmp_path / "m" / f"{name}.npy"
    array = np.load(path).astype(dtype)
    array.flat[array.size - 1] = value
    content = _npy(array)
    path.write_bytes(content)
    change_manifest(tmp_path / "m", {path.name: hashlib.sha256(content).hexdigest()})
    row, column = (2, 1) if array.ndim == 2 else (array.size - 1, 0)
    with pytest.raises(ModelError) as caught:
        esvi_shm.load(tmp_path / "m")
    assert str(caught.value) == (
        f"{path}: the numbers must be finite and greater than 0, got {value!r} in row {row}, "
        f"column {column} (from 0)"
    )


@pytest.mark.parametrize("piece", [16, 48, 2**20])
def test_every_number_is_looked_at_and_the_file_read_once(piece, tmp_path, monkeypatch):
    array = np.arange(1, 61, dtype=np.float32).reshape(20, 3)
    path = tmp_path / "a.npy"
    monkeypatch.setattr(store, "PIECE", piece)
    for at in range(60):
        wrong = array.copy()
        wrong.flat[at] = np.nan
        path.write_bytes(_npy(wrong))
        found, fault = store._look_through(path)
        assert found == hashlib.sha256(path.read_bytes()).hexdigest()
        assert fault is not None and f"row {at // 3}, column {at % 3} " in fault
    path.write_bytes(_npy(array))
    assert store._look_through(path)[1] is None
    path.write_bytes(_npy(array)[:-2])  # damaged, and no number is half read
    assert store._look_through(path) == (hashlib.sha256(path.read_bytes()).hexdigest(), None)
