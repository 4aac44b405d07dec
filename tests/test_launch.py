"""`python -m esvi_shm.launch`: nodes on this machine, and nothing left of them."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from esvi_shm import launch
from tests.commands import run

PROGRAM = (
    "import sys; from esvi_shm import command, launch; launch.PACKAGE = 'tests.transports'; "
    "launch.COMMANDS = ['launched']; "
    "command.end(launch.main(sys.argv[1:]))"
)


def start(folder, *arguments):
    """A launcher whose temporary files lie in a folder of the test's."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )


@pytest.fixture
def nothing_of_it_left(tmp_path):
    """No process and no file of a launcher."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert os.listdir(tmp_path) == []
    assert set(psutil.Process().children(recursive=True)) <= before


def test_nodes_play_and_their_lines_have_their_numbers(tmp_path, nothing_of_it_left):
    process = start(tmp_path, "--nodes", "3", "--", "launched", "play")
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert sorted(out.splitlines()) == [f"[{j}] played {j}" for j in range(3)]


def test_the_first_failure_ends_the_others_and_is_told(tmp_path, nothing_of_it_left):
    process = start(tmp_path, "--nodes", "3", "--", "launched", "fail")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    lines = error.splitlines()
    assert "[1] rank 1: no such file" in lines
    for j in (0, 2):
        # From node 1, or from the other who has heard of it first.
        (told,) = [line for line in lines if line.startswith(f"[{j}] rank {j}: node ")]
        assert "node 1 (127.0.0.1:" in told and told.endswith("no such file")
    assert lines[-1] == "esvi_shm.launch: error: node 1 ended with exit code 2"


def test_a_node_that_is_killed_is_told(tmp_path, nothing_of_it_left):
    process = start(tmp_path, "--nodes", "2", "--", "launched", "endless")
    assert {process.stdout.readline() for _ in range(2)} == {"[0] visits 0\n", "[1] visits 1\n"}
    (killed,) = [p for p in psutil.Process(process.pid).children() if p.cmdline()[-1] == "1"]
    killed.kill()
    _, error = process.communicate(timeout=15)
    assert process.returncode == 1
    assert "[0] rank 0: node 1 (127.0.0.1:" in error
    assert error.endswith("esvi_shm.launch: error: node 1 ended with signal SIGKILL\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(tmp_path, nothing_of_it_left, number):
    process = start(tmp_path, "--nodes", "2", "--", "launched", "endless")
    assert {process.stdout.readline() for _ in range(2)} == {"[0] visits 0\n", "[1] visits 1\n"}
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode != 0
    assert f"signal {number.name}" in error or "KeyboardInterrupt" in error


def test_a_signal_while_a_node_is_being_started_reaches_it(monkeypatch):
    class Slow(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            signal.raise_signal(signal.SIGTERM)  # before anyone knows of the process

    monkeypatch.setattr(subprocess, "Popen", Slow)
    endless = [sys.executable, "-c", "import signal; signal.pause()"]
    with pytest.raises(launch.NodeError, match="ended with signal SIGTERM"):
        with launch._Nodes([endless, endless]) as running:
            running.wait()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--nodes", "0", "--", "fit"], "--nodes must be from 1 to 64, got 0"),
        (["--nodes", "65", "--", "fit"], "--nodes must be from 1 to 64, got 65"),
        (["--nodes", "2", "--"], "error: a command must follow"),
        (["--nodes", "2", "--", "evaluate", "m"], "must be one of fit, fit_mixture, got 'evalua"),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    done = run("launch", *arguments)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert message in done.stderr


def test_keys_are_for_their_owner_alone():
    with launch._key_file() as path:
        assert os.stat(path).st_mode & 0o777 == 0o600
        with open(path) as file:
            assert len(file.read()) == 64
    assert not os.path.exists(os.path.dirname(path))


def test_addresses_differ():
    assert len(set(launch._addresses(10))) == 10
