"""``python -m esvi_shm``: the list of commands."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import esvi_shm
from esvi_shm import __main__ as listing


def test_it_lists_every_command_with_what_it_does(capsys):
    assert listing.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = dict(line.split(maxsplit=3)[2:] for line in lines if line.startswith("  python -m"))
    modules = [module.name for module in pkgutil.iter_modules(esvi_shm.__path__)]
    commands = [
        name
        for name in modules
        if name != "__main__" and hasattr(importlib.import_module(f"esvi_shm.{name}"), "main")
    ]
    assert told.keys() == {f"esvi_shm.{name}" for name in commands}
    for name in commands:
        description = importlib.import_module(f"esvi_shm.{name}")._parser().description
        assert description.startswith(told[f"esvi_shm.{name}"])
        assert max(map(len, lines)) <= 120


def test_from_the_shell_it_answers_at_once():
    code = (
        "import runpy, sys\n"
        "try: runpy.run_module('esvi_shm', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "assert not {'numpy', 'numba', 'scipy', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: python -m esvi_shm.COMMAND [options]\n\ncommands:\n")


def test_a_command_may_be_its_argument(capsys):
    for arguments in (["gc", "--help"], ["fit", "--help"]):
        with pytest.raises(SystemExit) as caught:
            listing.main(arguments)
        assert caught.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: python -m esvi_shm.{arguments[0]} ")
    assert listing.main(["infer", "no-model", "x.txt", "--out", "theta.txt"]) == 2
    assert "--out must end with" in capsys.readouterr().err


def test_it_takes_nothing_else(capsys):
    with pytest.raises(SystemExit) as caught:
        listing.main(["fitt", "x.txt"])
    assert caught.value.code == 2
    assert "unrecognized arguments: fitt x.txt" in capsys.readouterr().err
