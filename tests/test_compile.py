"""Kernels are cached on disk, and whoever waits for one to be compiled is told."""

import importlib.util
import sys

import numpy as np
import pytest

from esvi_shm import compile as compile_module
from esvi_shm.compile import Holder, holder, kernel, when_compiling
from esvi_shm.progress import Progress

SOURCE = """
from esvi_shm.compile import kernel

@kernel
def twice(x):
    return 2 * x
"""


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A module with a kernel that no cache has; each call imports it as a new process would."""
    monkeypatch.setattr(compile_module, "CACHE_FOLDER", str(tmp_path / "cache"))

    def load(folder="here"):
        path = tmp_path / folder / "some_kernels.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(SOURCE)
        spec = importlib.util.spec_from_file_location("some_kernels", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_it_is_told_once_and_only_if_no_cache_has_the_kernel(fresh):
    told, module = [], fresh()
    with when_compiling(lambda: told.append(1)):
        assert told == []
        assert module.twice(2) == 4
        assert module.twice(2.0) == 4.0
        assert told == [1]
    with when_compiling(lambda: told.append(2)):
        assert fresh().twice(2) == 4
    assert told == [1]
    fresh().twice(2j)  # outside
    assert told == [1]


@pytest.mark.skipif(compile_module._LOCATORS is None, reason="this numba goes by paths alone")
def test_the_package_finds_them_wherever_it_is_installed(fresh, tmp_path, monkeypatch):
    told = []
    for package in ("one", "another"):
        monkeypatch.setattr(compile_module, "_PACKAGE", tmp_path / package)
        with when_compiling(lambda package=package: told.append(package)):
            assert fresh(package).twice(2) == 4
    assert told == ["one"]
    # What is not part of it is not taken for what has the same name in it, nor for another.
    for outside in ("two", "three"):
        with when_compiling(lambda outside=outside: told.append(outside)):
            assert fresh(outside).twice(2) == 4
    assert told == ["one", "two", "three"]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_command_says_so_off_a_terminal_too(fresh, quiet, capsys, tmp_path):
    module, log = fresh(), tmp_path / "log"
    with Progress(quiet, str(log)):
        assert capsys.readouterr().err == ""
        module.twice(1)
        module.twice(1.0)
    line = "compiling kernels (once for each kind of fit; the first takes a minute or so)\n"
    assert capsys.readouterr().err == ("" if quiet else line)
    assert log.read_text().count('"event": "stage"') == 1
    assert '"name": "compiling"' in log.read_text()


@holder("x", "scale")
class Scaled(Holder):
    """An array and its scale."""


@kernel(allocates=True)
def hold(x, scale):
    return Scaled(x, scale)


@kernel(allocates=True)
def rescale(scaled, scale):
    scaled.scale = scale


@kernel(allocates=True)
def total(scaled):
    return scaled.scale * scaled.x.sum()


def test_a_holder_holds_arrays_not_copies():
    x = np.ones(3)
    scaled = hold(x, 2.0)
    assert total(scaled) == 6.0
    x[0] = 5.0
    assert total(scaled) == 14.0
    rescale(scaled, 3.0)
    assert total(scaled) == 21.0


def test_a_holder_keeps_its_arrays_and_lets_them_go():
    x = np.ones(3)
    before = sys.getrefcount(x)
    scaled = hold(x, 1.0)
    assert sys.getrefcount(x) == before + 1
    del scaled
    assert sys.getrefcount(x) == before
