"""Every end of a fit: what it says, and that no process and no memory is left.

Each test first makes sure that work was under way when its fault struck.
"""

import contextlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import psutil
import pytest

from esvi_shm.config import FitConfig
from esvi_shm.errors import Interrupted, ParameterError, WorkerError
from esvi_shm.families.contract import Sizes
from esvi_shm.runtime import engine, home
from esvi_shm.runtime.blocks import STOP
from esvi_shm.runtime.record import Observer
from esvi_shm.runtime.worker import Setup
from tests.runtime.fits import COUNTS

SCENARIO = Path(__file__).with_name("scenario.py")
ROOT = SCENARIO.parents[2]
TIME_LIMIT = 60
ENDLESS = {"n_passes": 10**9, "evaluate_every": 0}


pytestmark = pytest.mark.usefixtures("signals_interrupt")


def in_shm(run: str) -> list[str]:
    """Names of a run's segments; other runs may be alive beside the test."""
    return [path.name for path in Path("/dev/shm").glob(f"{run}*")]


def assert_nothing_left(fit) -> None:
    assert len(fit.runs) >= 1
    for run in fit.runs:
        assert in_shm(run) == []
    for pid in fit.pids:
        assert not psutil.pid_exists(pid)


class Striking(Observer):
    """Does something, once or twice, when pairs have been updated."""

    def __init__(self, *actions) -> None:
        self.actions = list(actions)
        self.pairs = 0

    def progress(self, pairs, total_pairs, fit_seconds):
        if pairs > 0 and self.actions:
            self.pairs = pairs
            self.actions.pop(0)()


def test_a_normal_end_leaves_nothing(fit):
    ended = fit(n_passes=3)
    assert len(fit.pids) == 2
    assert_nothing_left(fit)
    ended.assert_consistent()  # the arrays outlive the segments


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_limit_of_open_files_is_refused_before_or_enough(fit, n_workers, monkeypatch):
    """The least limit that is not refused is one that a fit can live with."""
    with monkeypatch.context() as patched:
        patched.setattr(engine, "free_descriptors", lambda: 0)
        with pytest.raises(ParameterError, match=f"n_workers takes .*, got {n_workers}") as caught:
            fit(n_workers=n_workers)
    assert fit.runs == []
    needed = int(re.search(r"takes (\d+) open files", str(caught.value))[1])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = len(os.listdir("/proc/self/fd")) + needed
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        fit(n_workers=n_workers, n_passes=2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert_nothing_left(fit)


def test_a_worker_that_ends_before_another_is_not_taken_for_dead(fit, monkeypatch):
    send_all, join = home.Traffic._send_all, home.Workers.join

    def hold_back_one(self, index):
        if index == STOP:
            os.kill(fit.pids[1], signal.SIGSTOP)
        send_all(self, index)
        if index == STOP:
            os.waitid(os.P_PID, fit.pids[0], os.WEXITED | os.WNOWAIT)

    def let_go(self):
        os.kill(self.pids[1], signal.SIGCONT)
        join(self)

    monkeypatch.setattr(home.Traffic, "_send_all", hold_back_one)
    monkeypatch.setattr(home.Workers, "join", let_go)
    fit(n_passes=2).assert_consistent()
    assert_nothing_left(fit)


def test_an_exception_in_an_observer_leaves_nothing(fit):
    def explode():
        assert in_shm(fit.runs[0])
        assert all(map(psutil.pid_exists, fit.pids))
        raise LookupError("on purpose")

    with pytest.raises(LookupError, match="on purpose"):
        fit(observer=Striking(explode), **ENDLESS)
    assert_nothing_left(fit)


def test_a_killed_worker_is_named_with_its_signal(fit):
    observer = Striking(lambda: os.kill(fit.pids[1], signal.SIGKILL))
    with pytest.raises(WorkerError) as caught:
        fit(observer=observer, **ENDLESS)
    assert observer.pairs > 0
    message = str(caught.value)
    assert message.startswith(f"worker 1 (process {fit.pids[1]}) was ended by signal SIGKILL")
    assert "memory" in message
    assert_nothing_left(fit)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_fit_early_with_its_result(threaded_fit, number):
    handler = signal.getsignal(number)
    observer = Striking(lambda: os.kill(os.getpid(), number))
    ended = threaded_fit(observer=observer, **ENDLESS)
    assert observer.pairs > 0
    assert ended.result.stopped == number.name
    assert 0 < ended.result.passes < 10**9
    assert len(ended.result.history) == 1
    ended.assert_consistent()
    assert signal.getsignal(number) == handler
    assert_nothing_left(threaded_fit)


def test_a_signal_with_true_processes_leaves_nothing(fit):
    ended = fit(observer=Striking(lambda: os.kill(os.getpid(), signal.SIGTERM)), **ENDLESS)
    assert ended.result.stopped == "SIGTERM"
    ended.assert_consistent()
    assert_nothing_left(fit)


def test_a_signal_that_is_ignored_stays_ignored(threaded_fit):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    observer = Striking(lambda: os.kill(os.getpid(), signal.SIGHUP))
    ended = threaded_fit(observer=observer, n_passes=2000, evaluate_every=0)
    assert observer.pairs > 0
    assert ended.result.stopped == "passes"


def test_the_second_signal_aborts(fit):
    def strike():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught:
        fit(observer=Striking(strike), **ENDLESS)
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == handler
    assert_nothing_left(fit)


FAILING = """
from esvi_shm.families import lda

def explode(*arguments):
    raise ArithmeticError("on purpose")

class Model(lda.Model):
    def worker(self, worker, *rest):
        made = super().worker(worker, *rest)
        if worker == 1:
            made.PLACE = explode
        return made
"""


@pytest.mark.parametrize("place", ["visit", "_bound_own"])
def test_a_failing_family_is_reported_with_its_traceback(fit, place, tmp_path, monkeypatch):
    """The family is one from out of the tree, found by its entry point."""
    (tmp_path / "failing_family.py").write_text(FAILING.replace("PLACE", place))
    facts = tmp_path / "failing_family-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: failing-family\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[esvi_shm.families]\nfailing = failing_family:Model\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkerError) as caught:
        fit(family="failing", n_passes=2)
    message = str(caught.value)
    assert message.startswith("worker 1 failed: ArithmeticError: on purpose\n")
    assert f'{tmp_path / "failing_family.py"}", line 5, in explode' in message
    assert_nothing_left(fit)


def test_a_fit_in_another_thread_ends_like_any_other(fit):
    """There it cannot take care of signals, and leaves them alone."""
    handler, ended = signal.getsignal(signal.SIGINT), []
    thread = threading.Thread(target=lambda: ended.append(fit(n_passes=3)))
    thread.start()
    thread.join()
    ended[0].assert_consistent()
    ended[0].assert_passes_are_whole(3)
    assert signal.getsignal(signal.SIGINT) == handler
    assert_nothing_left(fit)


def without_warning_of_cores(errors: str) -> list[str]:
    """Lines of standard error; a machine of one core is told that two workers are too many."""
    return [line for line in errors.splitlines() if "available cores" not in line]


@contextlib.contextmanager
def scenario(*arguments: str, **options):
    """A scenario in a session of its own, which is killed if it is still there at the end."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_kill_of_the_main_process_leaves_nothing(n_workers):
    """A worker alone never has to wait for a block, and has no time to look after its parent."""
    arguments = ["alone"] if n_workers == 1 else []
    with scenario(str(SCENARIO), *arguments) as process:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        facts = json.loads(line)
        assert len(facts["workers"]) == n_workers
        assert in_shm(facts["run"])
        ends = [os.pidfd_open(pid) for pid in facts["workers"]]
        process.kill()
        for descriptor in ends:
            assert select.select([descriptor], [], [], TIME_LIMIT)[0]
            os.close(descriptor)
        process.communicate(timeout=TIME_LIMIT)  # to the end of the resource tracker
        assert process.returncode == -signal.SIGKILL
        assert in_shm(facts["run"]) == []


@pytest.mark.parametrize("told", [False, True], ids=["before", "after"])
def test_a_worker_whose_main_process_is_gone_at_its_start_ends_without_a_word(told):
    """It was killed before it told the worker anything, or just after."""
    ours, theirs = Pipe()
    code = f"from esvi_shm.runtime.worker import main; main({theirs.fileno()})"
    if told:
        nobody = 2**22 + 1  # a process id that the system does not give
        ours.send(Setup(0, FitConfig(), Sizes(1, 1, 1), {}, nobody, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, pass_fds=[theirs.fileno()], text=True
    )
    theirs.close()
    ours.close()
    assert process.communicate(timeout=TIME_LIMIT)[1] == ""
    assert process.returncode == 1


def test_a_script_needs_no_main_guard(tmp_path):
    """Nor a file: workers do not run the main module again. (As a file the examples run.)"""
    assert "__main__" not in SCENARIO.read_text()
    with open(SCENARIO) as script:
        with scenario("-", "short", stdin=script, cwd=tmp_path) as process:
            said, errors = process.communicate(timeout=TIME_LIMIT)
    assert (process.returncode, without_warning_of_cores(errors)) == (0, [])
    assert json.loads(said.splitlines()[-1]) == {"stopped": "passes", "passes": 3.0}


def test_ctrl_c_in_a_terminal_reaches_the_main_process_only():
    """The terminal sends SIGINT to the whole group; workers leave it to the main process."""
    with scenario(str(SCENARIO)) as process:
        facts = json.loads(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=TIME_LIMIT)
        (told,) = without_warning_of_cores(errors)
        assert process.returncode == 0
        assert json.loads(said)["stopped"] == "SIGINT"
        # Nothing else tells a program, which would go on with a model that is not what it wants.
        assert re.fullmatch(r"the fit was ended by SIGINT after [\de+.]+ passes", told)
        assert in_shm(facts["run"]) == []


def apart(n_documents: int = 40) -> np.ndarray:
    """Half of the words occur in the first half of the documents only, half in the second."""
    random = np.random.default_rng(0)
    counts = np.kron(np.eye(2), random.integers(1, 9, (n_documents // 2, 6)))
    counts[:, 0] = 1
    return counts


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("counts", [COUNTS, apart()], ids=["together", "apart"])
def test_a_recall_ends_a_deterministic_fit_too(threaded_fit, counts, seed):
    """A worker may hold blocks whose turn never comes, since one before them was recalled."""
    observer = Striking(lambda: os.kill(os.getpid(), signal.SIGINT))
    options = {"deterministic": True, "n_workers": 3, "n_blocks": 8, **ENDLESS}
    ended = threaded_fit(counts, observer=observer, seed=seed, **options)
    assert ended.result.stopped == "SIGINT"
    ended.assert_consistent(counts)
