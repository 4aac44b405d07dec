"""The model directory: complete or absent at every moment, damage found, no model overwritten by
mistake."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import threading

import numpy as np
import pytest

import esvi_shm
from esvi_shm import store
from esvi_shm.config import FitConfig
from esvi_shm.corpus import Corpus
from esvi_shm.errors import Interrupted, ModelError
from esvi_shm.model import FittedModel, Parameters
from esvi_shm.runtime import engine
from esvi_shm.runtime.record import Record
from esvi_shm.runtime.signals import ASKING_TO_STOP

FILES = {
    "manifest.json",
    "lambda.npy",
    "gamma.npy",
    "alpha.npy",
    "eta.npy",
    "vocabulary.txt",
    "history.csv",
    "summary.json",
}


@pytest.fixture(scope="module")
def model() -> FittedModel:
    random = np.random.default_rng(0)
    matrix = random.poisson(0.3, (40, 9000))  # more words than one chunk of rows
    matrix[:, 17] = 0
    vocabulary = [f"wörd {v}" for v in range(9000)]
    corpus = Corpus.from_sparse(matrix, vocabulary)
    config = FitConfig(n_topics=3, n_workers=2, n_passes=3, evaluate_every=2)
    return FittedModel.from_result(engine.fit(corpus, config), corpus)


def make_model(value: float) -> FittedModel:
    """A small model without a fit; `value` tells one from another."""
    parameters = Parameters(
        np.full((3, 2), value, np.float32),
        np.array([2, 0, 1]),
        [np.ones((1, 2), np.float32), np.ones((2, 2), np.float32)],
        np.ones(2),
        np.ones(3),
    )
    summary = {
        "config": {"family": "lda"},
        "corpus_digest": "",
        **dict.fromkeys(("n_documents", "n_words", "n_pairs", "n_tokens", "n_topics"), 1),
    }
    return FittedModel(
        parameters, ["a", "b", "c"], [Record(1.0, 0.5, 0.6, -1.0, -2.0, -2.0)], summary
    )


def value_of(folder) -> float:
    return float(esvi_shm.load(folder).lambda_[0, 0])


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


@pytest.mark.parametrize(
    "kind", ["file", "folder", "another's manifest", "model and more", "link", "unwritable"]
)
def test_what_is_in_the_way_stays(kind, tmp_path):
    target = tmp_path / "m"
    if kind == "file":
        target.write_text("precious")
    elif kind in ("folder", "another's manifest", "model and more"):
        if kind == "model and more":
            store.save(make_model(2.0), target)
        target.mkdir(exist_ok=True)
        (target / "precious").write_text("precious")
        if kind == "another's manifest":
            (target / "manifest.json").write_text('{"name": "an app", "version": 1}')
    elif kind == "link":
        (tmp_path / "other").mkdir()
        target.symlink_to(tmp_path / "other")
    else:
        target = "/proc/no-model"
    before = sorted(os.listdir(tmp_path))
    for act in (store.check_target, lambda path: store.save(make_model(1.0), path)):
        with pytest.raises(ModelError, match=str(target)):
            act(target)
    assert sorted(os.listdir(tmp_path)) == before
    if kind not in ("file", "link", "unwritable"):
        assert (target / "precious").read_text() == "precious"


def test_places_that_cannot_be_renamed_are_refused_before_the_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for place in ("", ".", "dangling/m"):
        with pytest.raises(ModelError):
            store.check_target(place)
    monkeypatch.setattr(os.path, "ismount", lambda path: os.path.basename(path) == "m")
    with pytest.raises(ModelError, match="mount point"):
        store.check_target("m")


@pytest.mark.parametrize("step", ["write", "first rename", "second rename"])
def test_a_save_that_fails_leaves_the_older_model_alone(step, tmp_path, monkeypatch):
    store.save(make_model(1.0), tmp_path / "m")
    rename, calls = os.rename, []

    def failing(source, target):
        calls.append(source)
        if len(calls) == ["write", "first rename", "second rename"].index(step):
            raise OSError(16, "busy")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    if step == "write":
        monkeypatch.setattr(store, "_write_all", lambda *_: failing_write())

    def failing_write():
        raise OSError(28, "disk full")

    with pytest.raises(OSError):
        store.save(make_model(2.0), tmp_path / "m")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["m"]
    assert value_of(tmp_path / "m") == 1.0


def test_loading_leaves_a_save_that_is_under_way_alone(tmp_path, monkeypatch):
    store.save(make_model(1.0), tmp_path / "m")
    write_all, seen = store._write_all, []

    def write_and_repair(model, folder):
        write_all(model, folder)
        seen.append(folder.exists())
        # As a load does it, but for waiting for the saver, which is this thread.
        monkeypatch.setattr(store, "_locked", lambda *_: contextlib.nullcontext())
        assert value_of(tmp_path / "m") == 1.0
        seen.append(folder.exists())

    monkeypatch.setattr(store, "_write_all", write_and_repair)
    store.save(make_model(2.0), tmp_path / "m")
    assert seen == [True, True]
    assert value_of(tmp_path / "m") == 2.0


def test_savers_and_readers_take_turns(tmp_path, monkeypatch):
    """Two threads save and one reads, over and over; each reads a whole model."""
    store.save(make_model(1.0), tmp_path / "m")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    failed = []

    def again(act):
        try:
            for _ in range(30):
                act()
        except BaseException as error:
            failed.append(error)

    acts = [
        lambda: store.save(make_model(1.0), tmp_path / "m"),
        lambda: store.save(make_model(2.0), tmp_path / "m"),
        lambda: value_of(tmp_path / "m"),
    ]
    threads = [threading.Thread(target=again, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert os.listdir(tmp_path) == ["m"]


def test_a_first_save_cut_off_before_the_swap_is_found(tmp_path):
    store.save(make_model(2.0), tmp_path / ".m.new")
    assert value_of(tmp_path / "m") == 2.0
    assert os.listdir(tmp_path) == ["m"]


def test_a_check_leaves_no_trace(tmp_path):
    store.check_target(tmp_path / "deep" / "er" / "m")
    assert os.listdir(tmp_path) == []


def test_an_empty_folder_is_a_place(tmp_path):
    (tmp_path / "m").mkdir()
    store.save(make_model(3.0), tmp_path / "m")
    assert value_of(tmp_path / "m") == 3.0


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


def test_all_is_on_the_disk_before_the_new_model_is_put_in_place(tmp_path, monkeypatch):
    steps, fsync, rename = [], os.fsync, os.rename

    def noted_fsync(descriptor):
        steps.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def noted_rename(source, target):
        steps.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    store.save(make_model(1.0), tmp_path / "m")
    assert set(steps[:-4]) == FILES - {"manifest.json"}
    assert steps[-4:] == ["manifest.json", ".m.new", "rename", tmp_path.name]


#: What a save does to the file system, in its order; the test ends the process before each.
STEPS = ("os.mkdir", "os.rename", "os.fsync", "shutil.rmtree")


def _save_and_stop_at(folder: str, step: int) -> int:
    """Save model 2.0 in a process that is killed before its `step`-th change of a name."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def counted(function):
            def wrapper(*args, **kwargs):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return function(*args, **kwargs)

            return wrapper

        for name in STEPS:
            module, _, attribute = name.partition(".")
            setattr(
                sys.modules[module], attribute, counted(getattr(sys.modules[module], attribute))
            )
        try:
            store.save(make_model(2.0), folder)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("older", [False, True])
def test_a_save_cut_off_anywhere_leaves_one_whole_model(older, tmp_path):
    seen = set()
    for step in range(100):
        folder = tmp_path / str(step) / "m"
        folder.parent.mkdir()
        if older:
            store.save(make_model(1.0), folder)
        code = _save_and_stop_at(str(folder), step)
        assert code in (0, -signal.SIGKILL)
        # The next save finds nothing in its way and leaves nothing behind, after a load or not.
        unseen = tmp_path / f"{step} unseen" / "m"
        shutil.copytree(folder.parent, unseen.parent)
        store.save(make_model(3.0), unseen)
        assert os.listdir(unseen.parent) == ["m"]
        assert value_of(unseen) == 3.0
        try:
            value = value_of(folder)
        except ModelError:
            assert not older
            value = None
        seen.add(value)
        store.save(make_model(3.0), folder)
        assert value_of(folder) == 3.0
        assert os.listdir(folder.parent) == ["m"]
        shutil.rmtree(folder.parent)
        if code == 0:
            break
    assert code == 0
    assert step > 10
    assert seen == ({1.0, 2.0} if older else {None, 2.0})


def test_a_new_model_without_its_manifest_does_not_count(tmp_path):
    for value, name in ((1.0, ".m.old"), (2.0, ".m.new")):
        store.save(make_model(value), tmp_path / name)
    (tmp_path / ".m.new/manifest.json").unlink()
    assert value_of(tmp_path / "m") == 1.0
    assert os.listdir(tmp_path) == ["m"]


def test_a_full_disk_leaves_the_older_model(tmp_path, monkeypatch):
    store.save(make_model(1.0), tmp_path / "m")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        store.save(make_model(2.0), tmp_path / "m")
    assert os.listdir(tmp_path) == ["m"]
    assert value_of(tmp_path / "m") == 1.0


@pytest.fixture
def signals_are_not_ignored():
    """As they are for tests that a shell runs in the background."""
    before = {number: signal.getsignal(number) for number in ASKING_TO_STOP}
    for number in ASKING_TO_STOP:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_are_not_ignored")
@pytest.mark.parametrize("number", ASKING_TO_STOP)
@pytest.mark.parametrize("step", [0, 3, 9])
def test_the_first_signal_takes_effect_when_the_model_is_saved(number, step, tmp_path, monkeypatch):
    store.save(make_model(1.0), tmp_path / "m")
    strike_at(step, [number], monkeypatch)
    with pytest.raises(KeyboardInterrupt):  # what the handler does that was there before
        store.save(make_model(2.0), tmp_path / "m")
    assert os.listdir(tmp_path) == ["m"]
    assert value_of(tmp_path / "m") == 2.0


@pytest.mark.usefixtures("signals_are_not_ignored")
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("step", [0, 3, 8])
def test_a_burst_of_signals_leaves_nothing_half_saved(step, older, tmp_path, monkeypatch):
    """The second one aborts, and those behind do not disturb the cleaning up."""
    if older:
        store.save(make_model(1.0), tmp_path / "m")
    left = strike_at(step, [signal.SIGINT] * 5, monkeypatch)
    remove, removals = shutil.rmtree, []

    def struck_too(*arguments, **options):
        if left[0] < 0:
            removals.append(arguments)
            signal.raise_signal(signal.SIGINT)
        remove(*arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", struck_too)
    with pytest.raises(Interrupted) as caught:
        store.save(make_model(2.0), tmp_path / "m")
    monkeypatch.undo()
    assert caught.value.exit_code == 130
    assert removals
    assert os.listdir(tmp_path) == ["m"] * older
    if older:
        assert value_of(tmp_path / "m") == 1.0


@pytest.mark.usefixtures("signals_are_not_ignored")
def test_a_swap_that_has_begun_is_finished_whatever_comes(tmp_path, monkeypatch):
    store.save(make_model(1.0), tmp_path / "m")
    rename, calls = os.rename, []

    def struck(source, target):
        calls.append(source)
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        rename(source, target)

    monkeypatch.setattr(os, "rename", struck)
    with pytest.raises(KeyboardInterrupt):
        store.save(make_model(2.0), tmp_path / "m")
    assert len(calls) == 2
    assert os.listdir(tmp_path) == ["m"]
    assert value_of(tmp_path / "m") == 2.0


def strike_at(step, numbers, monkeypatch):
    """Raise signals before the given file of a save reaches the disk; return what is left to it."""
    fsync, left = os.fsync, [step]

    def struck(descriptor):
        left[0] -= 1
        if left[0] == -1:
            for number in numbers:
                signal.raise_signal(number)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", struck)
    return left


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
