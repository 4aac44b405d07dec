"""Saving a model: complete or absent at every moment, no model overwritten by mistake."""

import contextlib
import os
import shutil
import signal
import sys
import threading

import pytest

from esvi_shm import store
from esvi_shm.errors import Interrupted, ModelError
from esvi_shm.runtime.signals import ASKING_TO_STOP
from tests.stored import FILES, make_model, value_of


@pytest.mark.parametrize(
    "kind",
    [
        "file",
        "folder",
        "another's manifest",
        "model and more",
        "link",
        "unwritable",
        "model around",
    ],
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
    elif kind == "model around":
        store.save(make_model(2.0), target)
        target = target / "deep" / "er"
    else:
        target = "/proc/no-model"
    before = sorted(os.listdir(tmp_path))
    for act in (store.check_target, lambda path: store.save(make_model(1.0), path)):
        with pytest.raises(ModelError, match=str(target)):
            act(target)
    assert sorted(os.listdir(tmp_path)) == before
    if kind == "model around":
        assert value_of(tmp_path / "m") == 2.0
    elif kind not in ("file", "link", "unwritable"):
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
    with pytest.raises(OSError, match=rf"disk full: '{tmp_path}/m'"):
        store.save(make_model(2.0), tmp_path / "m")
    assert os.listdir(tmp_path) == ["m"]
    assert value_of(tmp_path / "m") == 1.0


def test_a_place_that_is_too_full_is_refused(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(store, "free_space", lambda folder: asked.append(folder) or 2**20)
    store.check_room(tmp_path / "deep" / "m", 2**20)
    with pytest.raises(ModelError, match=r"takes about 2\.0 MiB, 1\.0 MiB are free in /"):
        store.check_room(tmp_path / "deep" / "m", 2**21)
    assert asked == [tmp_path] * 2


@pytest.mark.usefixtures("signals_interrupt")
@pytest.mark.parametrize("number", ASKING_TO_STOP)
@pytest.mark.parametrize("step", [0, 3, 9])
def test_the_first_signal_takes_effect_when_the_model_is_saved(number, step, tmp_path, monkeypatch):
    store.save(make_model(1.0), tmp_path / "m")
    strike_at(step, [number], monkeypatch)
    with pytest.raises(KeyboardInterrupt):  # what the handler does that was there before
        store.save(make_model(2.0), tmp_path / "m")
    assert os.listdir(tmp_path) == ["m"]
    assert value_of(tmp_path / "m") == 2.0


@pytest.mark.usefixtures("signals_interrupt")
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("step", [0, 3, 8])
def test_a_burst_of_signals_leaves_nothing_half_saved(step, older, tmp_path, monkeypatch):
    """The second one aborts, and those behind do not disturb the cleaning up."""
    if older:
        store.save(make_model(1.0), tmp_path / "m")
    numbers = [signal.SIGTERM, signal.SIGINT, *ASKING_TO_STOP]
    left = strike_at(step, numbers, monkeypatch)
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


@pytest.mark.usefixtures("signals_interrupt")
def test_a_swap_that_has_begun_is_finished_whatever_comes(tmp_path, monkeypatch):
    store.save(make_model(1.0), tmp_path / "m")
    rename, calls = os.rename, []

    def struck(source, target):
        calls.append(source)
        for number in (signal.SIGTERM, *ASKING_TO_STOP):
            signal.raise_signal(number)
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
