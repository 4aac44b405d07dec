"""Signals that strike ``python -m esvi_shm.fit``, or its workers, and what is left then."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import esvi_shm
from tests.commands import command, write_uci

pytestmark = pytest.mark.usefixtures("nothing_left")


def _start_long_fit(tmp_path: Path, *options: str) -> tuple[subprocess.Popen, Path]:
    """A fit that would take very long, with its work under way."""
    out = tmp_path / "model"
    arguments = command(
        "fit", write_uci(tmp_path, 400, 200), "--topics", "8", "--passes", "100000000", "--tol",
        "0", "--evaluate-every", "20", "--workers", "2", "--out", out, *options,
    )  # fmt: skip
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    for line in process.stderr:
        if line.startswith("pass 20:"):
            return process, out
    raise AssertionError("the fit ended before its work was under way")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_saves_what_there_is(number, tmp_path):
    process, out = _start_long_fit(tmp_path)
    if number == signal.SIGTERM:
        os.kill(process.pid, number)  # as `timeout` does: to the process, and to all of them
        while _pending(process.pid, number):
            pass
    os.killpg(process.pid, number)  # as a terminal or a batch system does: to all of them
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert f"stopped by {number.name}" in stdout
    assert stderr.count(f"WARNING: the fit was ended by {number.name} after ") == 1
    model = esvi_shm.load(out)
    assert model.summary["stopped"] == number.name
    np.testing.assert_allclose(
        (model.lambda_ - model.eta[:, None]).sum(), model.summary["n_tokens"], rtol=1e-5
    )


def test_the_second_signal_aborts(tmp_path):
    process, out = _start_long_fit(tmp_path)
    # Stop the workers so that the first signal cannot end the fit before the second comes.
    # (Not the resource tracker: it would stay stopped.)
    children = [int(pid) for pid in _children(process.pid) if _is_worker(pid)]
    assert len(children) == 2
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGINT)
    while _pending(process.pid, signal.SIGINT):
        pass
    os.kill(process.pid, signal.SIGTERM)
    _, stderr = process.communicate()
    assert process.returncode == 143, stderr
    assert "second signal" in stderr
    assert not out.exists()
    assert not any(_alive(pid) for pid in children)


def test_a_burst_of_signals_in_the_passes_aborts_with_one_line(tmp_path):
    process, out = _start_long_fit(tmp_path)
    children = [int(pid) for pid in _children(process.pid) if _is_worker(pid)]
    for pid in children:
        os.kill(pid, signal.SIGSTOP)  # see above
    for number in [signal.SIGTERM] * 2 + [signal.SIGINT] * 4:
        os.kill(process.pid, number)
        while _alive(process.pid) and _pending(process.pid, number):
            pass
    _, stderr = process.communicate()
    # A shell says 130 of both; the second is for one in the moment before the interpreter ends. 143
    # where the machine stood still between the first two: the same signal counts after 0.2 s.
    assert process.returncode in (130, -signal.SIGINT, 143), stderr
    last = stderr.splitlines()[-1]
    assert last == "esvi_shm.fit: error: stopped by the second signal; its result was not saved"
    assert "Traceback" not in stderr
    assert not out.exists()
    assert not any(_alive(pid) for pid in children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("imported", ["numpy.random._common", "numba"])
def test_a_burst_of_signals_among_the_imports_ends_with_one_line(number, imported, tmp_path):
    """Raised within the import of compiled code, an exception would be printed by that code."""
    code = (
        "import os, runpy, sys\n"
        "class Striking:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {imported!r}:\n"
        f"            for _ in range(6): os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Striking())\n"
        f"sys.argv[1:] = [{str(write_uci(tmp_path))!r}, '--out', {str(tmp_path / 'model')!r}]\n"
        "runpy.run_module('esvi_shm.fit', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert done.stderr == "esvi_shm.fit: interrupted\n"
    assert sorted(os.listdir(tmp_path)) == ["docword.tea.txt", "vocab.tea.txt"]


@pytest.mark.parametrize("second", [False, True])
def test_what_a_signal_left_half_made_is_not_finalised(second):
    code = (
        "import argparse, atexit, os, signal\n"
        "from esvi_shm import command\n"
        "from esvi_shm.runtime.signals import Signals\n"
        "class HalfMade:\n"
        "    def __del__(self): os.abort()\n"
        "def work(given):\n"
        "    made = HalfMade()\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "def work_of_a_fit(given):\n"
        "    with Signals():\n"
        "        made = HalfMade()\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "atexit.register(print, 'ended')\n"
        f"work = {'work_of_a_fit' if second else 'work'}\n"
        "command.end(command.run('esvi_shm.fit', work, argparse.Namespace(), {}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (143, "ended\n")
    assert done.stderr.startswith("esvi_shm.fit: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["fit", "evaluate", "gc"])
def test_a_ctrl_c_before_all_is_imported_just_ends_the_command(module):
    code = (
        "import os, runpy, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Striking:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'argparse': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.modules.pop('argparse', None)\n"
        "sys.meta_path.insert(0, Striking())\n"
        f"runpy.run_module('esvi_shm.{module}', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _pending(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [int(m, 16) for m in re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", status, re.M)]
    return any(mask >> (number - 1) & 1 for mask in masks)


def _alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_killed_worker_is_named(tmp_path):
    process, out = _start_long_fit(tmp_path)
    workers = [pid for pid in _children(process.pid) if _is_worker(pid)]
    assert len(workers) == 2
    os.kill(int(workers[1]), signal.SIGKILL)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert f"worker 1 (process {workers[1]}) was ended by signal SIGKILL" in stderr
    assert "likely cause" in stderr
    assert not out.exists()
    assert not any(_alive(int(pid)) for pid in workers)


def test_what_was_saved_on_the_way_outlives_a_fit_that_breaks_off(tmp_path):
    process, out = _start_long_fit(tmp_path, "--save-every", "10")
    workers = [int(pid) for pid in _children(process.pid) if _is_worker(pid)]
    os.kill(workers[0], signal.SIGKILL)
    _, stderr = process.communicate()
    assert process.returncode == 1, stderr
    assert sorted(os.listdir(tmp_path)) == ["docword.tea.txt", "model", "vocab.tea.txt"]
    model = esvi_shm.load(out)
    assert model.summary["stopped"] == "under way"
    assert model.summary["n_passes"] == model.history[-1].passes >= 10
    assert model.summary["n_passes"] % 10 == 0
    np.testing.assert_allclose(
        (model.lambda_ - model.eta[:, None]).sum(), model.summary["n_tokens"], rtol=1e-5
    )


def _is_worker(pid: str) -> bool:
    return b"runtime.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
