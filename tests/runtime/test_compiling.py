"""Where no cache has the kernels, another process compiles what the main one would come to last."""

import os
import pickle
import subprocess
import sys

import pytest

from esvi_shm import compile as compile_module
from esvi_shm.compile import kernel
from esvi_shm.config import FitConfig
from esvi_shm.runtime import compiling, serial
from tests.runtime.test_warm_up import kernels, loaded


@pytest.fixture
def started(monkeypatch):
    """The processes that were started."""
    found, popen = [], subprocess.Popen

    def start(*arguments, **options):
        found.append(popen(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return found


def compile_one(monkeypatch, tmp_path) -> None:
    """Have the kernels of a fit be one, which no cache has."""
    monkeypatch.setattr(compile_module, "CACHE_FOLDER", str(tmp_path))
    monkeypatch.setattr(compiling, "warm_up", lambda config: kernel(lambda x: x + 1)(1))


@pytest.mark.parametrize(("cores", "n_started"), [(2, 1), (1, 0)])
def test_another_process_is_started_and_ended(started, monkeypatch, tmp_path, cores, n_started):
    monkeypatch.setattr(compiling, "available_cores", lambda: cores)
    compile_one(monkeypatch, tmp_path)
    compiling.compile_kernels(FitConfig(2))
    assert [process.returncode is not None for process in started] == [True] * n_started


def test_where_a_cache_has_them_none_is_started(started, monkeypatch):
    monkeypatch.setattr(compiling, "available_cores", lambda: 2)
    monkeypatch.setattr(compiling, "warm_up", lambda config: None)
    compiling.compile_kernels(FitConfig(2))
    assert started == []


def test_it_is_ended_by_an_error_too(started, monkeypatch, tmp_path):
    monkeypatch.setattr(compiling, "available_cores", lambda: 2)
    compile_one(monkeypatch, tmp_path)
    one = compiling.warm_up

    def fails(config):
        one(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "warm_up", fails)
    with pytest.raises(KeyboardInterrupt):
        compiling.compile_kernels(FitConfig(2))
    assert [process.returncode is not None for process in started] == [True]


def test_what_it_does():
    """By its own command, with what a fit would hand it; it ends well."""
    config = FitConfig(2, inference="vb")
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from esvi_shm.runtime.compiling import main; main()"],
        input=pickle.dumps((os.getpid(), config)),
        env=compiling.of_interpreter(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_what_comes_last_is_part_of_all():
    for each in kernels().values():
        each._reset_overloads()
    serial.warm_up_last(FitConfig(2, inference="vb"))
    last = loaded()
    for each in kernels().values():
        each._reset_overloads()
    serial.warm_up(FitConfig(2, inference="vb"))
    assert len(last) > 15
    assert last - loaded() == set()
