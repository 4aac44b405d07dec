"""Models of many topics take files by what is not the prior, and are the same to the bit."""

import copy
import hashlib
import json
import pickle

import numpy as np
import pytest

import esvi_shm
from esvi_shm import compact, parameters, store
from esvi_shm.compact import CompactRows
from esvi_shm.errors import ModelError
from esvi_shm.model import FittedModel
from esvi_shm.parameters import Parameters
from tests.families.lda.play import play
from tests.naive import simulate
from tests.stored import make_model

K = compact.MANY_TOPICS
COMPACT = {f"{name}_{part}.npy" for name in ("lambda", "gamma") for part in compact.PARTS}


def many_topics(share: float = 0.05, n_topics: int = K, seed: int = 0) -> FittedModel:
    """A model without a fit; a share of its entries, of some rows none or all, are no prior."""
    rng = np.random.default_rng(seed)
    alpha, eta = rng.uniform(0.01, 1, n_topics), rng.uniform(0.01, 1, 30)
    order = rng.permutation(30)

    def rows(prior):
        made = prior.astype(np.float32)
        live = rng.random(made.shape) < share
        live[0], live[-1] = share == 1, True
        return np.where(live, made + rng.gamma(1, 1, made.shape).astype(np.float32), made)

    model = make_model(1.0)
    model.words = [f"word {v}" for v in range(30)]
    model.parameters = Parameters(
        rows(np.repeat(eta[order, None], n_topics, axis=1)),
        order,
        [rows(np.tile(alpha, (n, 1))) for n in (30, 1, 12)],
        alpha,
        eta,
    )
    return model


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("seed", "n_topics"), [*((seed, K) for seed in range(5)), (5, 65536), (6, 65537)]
)
def test_what_is_loaded_is_what_was_saved(seed, n_topics, tmp_path, monkeypatch):
    monkeypatch.setattr(parameters, "CHUNK", 7)  # rows at a time, which have priors of their own
    model = many_topics(n_topics=n_topics, seed=seed)
    store.save(model, tmp_path / "m")
    loaded = esvi_shm.load(tmp_path / "m")
    for name in ("lambda_", "gamma"):
        found, expected = getattr(loaded, name), getattr(model, name)
        assert found.dtype == expected.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
    store.save(loaded, tmp_path / "again")
    assert files(tmp_path / "again") == files(tmp_path / "m")
    assert set(files(tmp_path / "m")) >= COMPACT


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_fit_whose_documents_are_lists_is_saved_as_what_it_is(n_workers, tmp_path):
    counts, _ = simulate(30, 24, 3, 40, seed=0)
    fit = play(counts, n_topics=K, storage="sparse", n_workers=n_workers, alpha=0.01)
    fit.run_pass()
    model, found = make_model(1.0), fit.layout.model.learned(fit.arrays)
    model.words = [f"word {v}" for v in range(24)]
    model.parameters = Parameters(
        found.lambda_rows, found.word_ids, found.of_units, found.alpha, found.eta
    )
    store.save(model, tmp_path / "m")
    loaded = esvi_shm.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.gamma, fit.gamma)
    np.testing.assert_array_equal(loaded.doc_topic, model.doc_topic)
    assert model.gamma.shape == (30, K)


def test_it_takes_less_and_its_rows_are_read_alone(tmp_path):
    model = many_topics()
    store.save(model, tmp_path / "m")
    size = sum(len(content) for content in files(tmp_path / "m").values())
    assert size < 0.5 * (model.lambda_.nbytes + model.gamma.nbytes)
    loaded = esvi_shm.load(tmp_path / "m")
    found, expected = (m.doc_topic_interval([42, 0], [3, 7]) for m in (loaded, model))
    np.testing.assert_array_equal(found, expected)
    (rows,) = loaded.parameters.gamma_parts
    assert rows[-1].tolist() == model.gamma[-1].tolist()
    assert rows[-3:40].shape == (0, K) and rows[-3:42].tolist() == model.gamma[40:42].tolist()
    with pytest.raises(IndexError):
        rows[43]
    with pytest.raises(ValueError, match="got step -1"):
        rows[::-1]


@pytest.mark.parametrize(("share", "n_topics"), [(0.05, K - 1), (0.4, K), (1.0, K)])
def test_few_topics_or_much_that_is_no_prior_stay_matrices(share, n_topics, tmp_path):
    model = many_topics(share, n_topics)
    store.save(model, tmp_path / "m")
    assert not COMPACT & set(files(tmp_path / "m"))
    np.testing.assert_array_equal(np.load(tmp_path / "m/gamma.npy"), model.gamma)
    np.testing.assert_array_equal(np.load(tmp_path / "m/lambda.npy"), model.lambda_)


@pytest.mark.parametrize("name", sorted(COMPACT))
@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_damage_is_named(name, damage, tmp_path):
    store.save(many_topics(), tmp_path / "m")
    path = tmp_path / "m" / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink() if damage == "remove" else path.write_bytes(content)
    with pytest.raises(ModelError, match=name):
        esvi_shm.load(tmp_path / "m")


def wrong(array: np.ndarray, how: str) -> np.ndarray:
    """An array that fits no model, of the same name."""
    changed = array.copy()
    if how == "last":
        changed[-1] = 30_000
    elif how == "first":
        changed[0] = 30_000
    elif how == "shorter":
        changed = changed[:-1]
    elif how == "two axes":
        changed = changed[None]
    elif how == "none":
        changed = changed[:0]
    elif how == "falls":
        changed[2], changed[3] = changed[3] + 1, changed[2]
    elif how == "kind":
        changed = changed.astype(np.int64 if array.dtype.kind == "f" else np.float64) + 1
    return changed


@pytest.mark.parametrize(
    ("name", "how"),
    [
        (name, how)
        for name in sorted(COMPACT)
        for how in ("last", "first", "shorter", "two axes", "none", "kind", "falls")
        # Any value greater than 0 is one, and topics may come in any order.
        if not ("values" in name and how in ("first", "last"))
        and ("indptr" in name or how != "falls")
    ],
)
def test_files_that_do_not_fit_are_one_error_though_their_sums_are_right(name, how, tmp_path):
    store.save(many_topics(), tmp_path / "m")
    path = tmp_path / "m" / name
    np.save(path, wrong(np.load(path), how))
    manifest = json.loads((tmp_path / "m/manifest.json").read_text())
    manifest["sha256"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "m/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="m: the files do not hold a model: "):
        esvi_shm.load(tmp_path / "m")


def test_a_value_that_is_no_dirichlet_parameter_is_named(tmp_path):
    store.save(many_topics(), tmp_path / "m")
    path = tmp_path / "m/gamma_values.npy"
    values = np.load(path)
    values[7] = np.nan
    np.save(path, values)
    manifest = json.loads((tmp_path / "m/manifest.json").read_text())
    manifest["sha256"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "m/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=r"gamma_values\.npy: the numbers must be finite and"):
        esvi_shm.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["lambda", "gamma"])
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_what_the_manifest_does_not_list_is_not_read(name, share, tmp_path):
    """A matrix of the other form that lies beside it, as of an older model."""
    model = many_topics(share)
    store.save(model, tmp_path / "m")
    store.save(many_topics(0.05 if share == 1.0 else 1.0, seed=1), tmp_path / "other")
    for path in (tmp_path / "other").glob(f"{name}*.npy"):
        path.rename(tmp_path / "m" / path.name)
    loaded = esvi_shm.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.lambda_, model.lambda_)
    np.testing.assert_array_equal(loaded.gamma, model.gamma)


def test_indptr_that_falls_by_more_than_an_int64_holds_is_refused(tmp_path):
    store.save(many_topics(), tmp_path / "m")
    path = tmp_path / "m/gamma_indptr.npy"
    indptr = np.load(path)
    indptr[2:4] = 9 * 10**18, -9 * 10**18
    np.save(path, indptr)
    manifest = json.loads((tmp_path / "m/manifest.json").read_text())
    manifest["sha256"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "m/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="gamma_indptr must rise"):
        esvi_shm.load(tmp_path / "m")


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
@pytest.mark.parametrize("of", ["topics", "rows", "entries"])
def test_a_copy_is_the_same_and_no_larger(again, of):
    """A prior that is a view of something smaller is not spread out."""
    prior = np.random.default_rng(0).random((50, K), np.float32)
    prior = {"topics": prior[:1], "rows": prior[:, :1], "entries": prior}[of]
    indptr = np.arange(51).clip(max=3)
    spread = np.broadcast_to(prior, (50, K))
    rows = CompactRows(indptr, np.arange(3, dtype=np.uint16), np.float32([7, 8, 9]), spread)
    made = again(rows)
    np.testing.assert_array_equal(made, rows)
    assert made.shape == rows.shape and made[-1].tolist() == rows[-1].tolist()
    assert len(pickle.dumps(made)) == len(pickle.dumps(rows)) < prior.nbytes + indptr.nbytes + 1000
