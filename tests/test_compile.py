"""Kernels are cached on disk, and whoever waits for one to be compiled is told."""

import importlib.util

import pytest

from esvi_shm import compile as compile_module
from esvi_shm.compile import when_compiling
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
    path = tmp_path / "some_kernels.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("some_kernels", path)

    def load():
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


@pytest.mark.parametrize("quiet", [False, True])
def test_a_command_says_so_off_a_terminal_too(fresh, quiet, capsys, tmp_path):
    module, log = fresh(), tmp_path / "log"
    with Progress(quiet, str(log)):
        assert capsys.readouterr().err == ""
        module.twice(1)
        module.twice(1.0)
    line = "compiling kernels (once for each kind of fit, up to a minute)\n"
    assert capsys.readouterr().err == ("" if quiet else line)
    assert log.read_text().count('"event": "stage"') == 1
    assert '"name": "compiling"' in log.read_text()
