"""Starting, watching and ending the worker processes.

Workers are fresh interpreters, as multiprocessing's "spawn" makes them, but started here: spawn
runs the user's main module again in every worker, which needs a main guard in each script and
imports in each worker whatever that module imports. These know nothing of the main module, so a
fit works in a script without a guard, in a notebook, from standard input. BLAS and OpenMP are
held to one thread by their environment, which the main process keeps for itself.

A worker's end shows at once through its pidfd; a worker that stands still shows by its `BEAT`.
"""

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from typing import Any

import numpy as np
import psutil

from esvi_shm.errors import MemoryShortError, WorkerError
from esvi_shm.runtime.blocks import BEAT
from esvi_shm.runtime.environment import of_interpreter
from esvi_shm.runtime.signals import ASKING_TO_STOP
from esvi_shm.runtime.waiting import readable
from esvi_shm.runtime.worker import Setup

#: Seconds without a sign of life after which a worker is named in a warning.
STALE = 30.0

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def asking_blocked() -> Iterator[None]:
    """The signals that ask to stop are blocked, and stay so in processes that are started inside.

    A Ctrl-C is for the main process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKING_TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Workers:
    """The worker processes of one fit; a context that leaves none behind.

    Parameters
    ----------
    setups : list of Setup
    bell : int
        The eventfd that workers write to when they have put something into a ring of home's:
        home sleeps on it instead of polling, and the rings stay without a lock.
    wakes : sequence of int
        Other file descriptors that end that sleep when they become readable.
    """

    def __init__(self, setups: list[Setup], bell: int, wakes: Sequence[int] = ()) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Any] = []
        self._bell = bell
        self._descriptors = [bell, *wakes]
        self._of_descriptor: dict[int, int] = {}
        self._pidfds: list[int] = []
        self._beats = np.zeros(len(setups), np.int64)
        self._still_for = np.zeros(len(setups))
        self._warned = [False] * len(setups)
        self._last_look = time.monotonic()
        self.peak_private_bytes = [0] * len(setups)
        try:
            for setup in setups:
                self._start(setup)
        except BaseException:
            self.kill()
            raise

    def _start(self, setup: Setup) -> None:
        ours, theirs = Pipe()
        code = f"from esvi_shm.runtime.worker import main; main({theirs.fileno()})"
        with asking_blocked():
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), setup.bell],
                env=of_interpreter(),
            )
            self._processes.append(process)
            self._pipes.append(ours)
        theirs.close()
        pidfd = os.pidfd_open(process.pid)
        self._pidfds.append(pidfd)
        self._of_descriptor[pidfd] = setup.worker
        self._descriptors.append(pidfd)
        try:
            ours.send(setup)
        except OSError:
            raise self._death(setup.worker) from None

    @property
    def pids(self) -> list[int]:
        """Process ids, by worker."""
        return [process.pid for process in self._processes]

    def wait_ready(self) -> None:
        """Return when all workers are ready.

        Raises
        ------
        MemoryShortError
            When a worker found no room for its arrays.
        WorkerError
            When one failed or died.
        """
        for p, pipe in enumerate(self._pipes):
            while not pipe.poll(0.05):
                self.check()
            self._read(p)

    def _read(self, worker: int) -> None:
        try:
            kind, text = self._pipes[worker].recv()
        except (EOFError, OSError):
            raise self._death(worker) from None
        if kind == "error":
            first, _, rest = text.partition("\n")
            if first.startswith("MemoryShortError: "):
                raise MemoryShortError(first.removeprefix("MemoryShortError: "))
            raise WorkerError(f"worker {worker} failed: {first}\n{rest}")

    def check(self, seconds: float = 0.0) -> None:
        """Wait up to `seconds` for the bell; raise if a worker has ended.

        Raises
        ------
        WorkerError
        """
        for descriptor in readable(self._descriptors, seconds):
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
                continue
            if descriptor not in self._of_descriptor:
                continue  # it is for others to read
            worker = self._of_descriptor[descriptor]
            if self._pipes[worker].poll():
                self._read(worker)
            raise self._death(worker)

    def _death(self, worker: int) -> WorkerError:
        code = self._processes[worker].wait()
        peak = self.peak_private_bytes[worker]
        held = f"; it held up to {peak / 2**20:.0f} MiB of its own" if peak else ""
        if code >= 0:
            how, why = f"ended with exit code {code}", "see its message above, if there is one"
        else:
            how = f"was ended by signal {signal.Signals(-code).name}"
            why = {
                signal.SIGKILL: "the system ran out of memory (see dmesg), or someone killed it",
                signal.SIGBUS: "shared memory or its disk is full",
                signal.SIGSEGV: "a fault in compiled code",
                signal.SIGILL: "the kernel cache was made by another kind of processor",
            }.get(signal.Signals(-code), "someone sent it that signal")
        pid = self._processes[worker].pid
        return WorkerError(f"worker {worker} (process {pid}) {how}{held}; likely cause: {why}")

    def watch(self, rows: np.ndarray) -> None:
        """Note signs of life and memory; warn of a worker that stands still. Call now and then.

        Parameters
        ----------
        rows : int64 array, shape (P, n)
            The shared words of the workers.
        """
        now = time.monotonic()
        # Time in which this process itself was stopped says nothing about the workers.
        passed, self._last_look = min(now - self._last_look, 1.0), now
        beats = rows[:, BEAT].copy()
        self._still_for = np.where(beats == self._beats, self._still_for + passed, 0.0)
        self._beats = beats
        for p in range(len(self._processes)):
            self._note_memory(p)
            if self._still_for[p] > STALE and not self._warned[p]:
                self._warned[p] = True
                _log.warning(
                    "worker %d (process %d, %s) has shown no sign of life for %.0f s",
                    p, self.pids[p], self._status(p), self._still_for[p],
                )  # fmt: skip

    def _status(self, worker: int) -> str:
        try:
            return psutil.Process(self.pids[worker]).status()
        except psutil.Error:
            return "gone"

    def _note_memory(self, worker: int) -> None:
        private = private_bytes(self.pids[worker])
        self.peak_private_bytes[worker] = max(self.peak_private_bytes[worker], private)

    def join(self) -> None:
        """Wait for the workers to end after they were told to."""
        for process in self._processes:
            process.wait()
        self._close()

    def kill(self) -> None:
        """End all workers now; repeatable."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for descriptor in self._pidfds:
            os.close(descriptor)
        self._pipes, self._pidfds, self._processes = [], [], []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


def give_back_freed() -> None:
    """Have the C library give freed memory back to the system.

    glibc keeps freed blocks of up to 32 MiB, as those of a small corpus, where malloc finds them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other libraries have none
    if trim is not None:
        trim(0)


def private_bytes(pid: int | str = "self") -> int:
    """Memory of a process that it shares with nobody (anonymous pages), now; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
