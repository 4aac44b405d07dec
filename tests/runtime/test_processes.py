"""What the main process notes of its workers; how they end is in `test_ends`."""

import logging
import os
import types

import numpy as np
import psutil
import pytest

from esvi_shm.runtime import processes
from esvi_shm.runtime.blocks import BEAT
from esvi_shm.runtime.processes import STALE, Workers


class Watched(Workers):
    """Two workers that stand in for processes, and a clock that the test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(processes, "time", types.SimpleNamespace(monotonic=lambda: self.now))
        self._descriptor = os.eventfd(0)
        super().__init__([None, None], self._descriptor)
        self.rows = np.zeros((2, BEAT + 1), np.int64)

    def _start(self, setup: None) -> None:
        self._processes.append(
            types.SimpleNamespace(pid=os.getpid(), kill=lambda: None, wait=lambda: None)
        )

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        os.close(self._descriptor)

    def look(self, beating: list[int], seconds: float = 1.0, times: int = 1) -> None:
        """Watch at intervals in which some workers have shown a sign of life."""
        for _ in range(times):
            self.now += seconds
            self.rows[beating, BEAT] += 1
            self.watch(self.rows)


@pytest.fixture
def watched(monkeypatch, caplog):
    with caplog.at_level(logging.WARNING), Watched(monkeypatch) as workers:
        workers.look([0, 1])
        yield workers


def test_a_worker_that_stands_still_is_named_once(watched, caplog):
    watched.look([0], times=int(STALE))
    assert caplog.messages == []
    watched.look([0])
    status = psutil.Process().status()
    assert caplog.messages == [
        f"worker 1 (process {os.getpid()}, {status}) has shown no sign of life for 31 s"
    ]
    watched.look([0], times=100)
    assert len(caplog.messages) == 1


def test_a_sign_of_life_begins_the_count_again(watched, caplog):
    for _ in range(3):
        watched.look([0], times=int(STALE))
        watched.look([1])
    assert caplog.messages == []


def test_time_in_which_nobody_looked_is_not_held_against_a_worker(watched, caplog):
    """The main process itself may have been stopped, and all of them with it."""
    watched.look([], seconds=10 * STALE)
    assert caplog.messages == []


def test_a_worker_that_is_gone_is_said_to_be(watched, caplog):
    watched._processes[1].pid = 2**22 + 1  # more than the system gives
    watched.look([0], times=int(STALE) + 1)
    assert f"worker 1 (process {2**22 + 1}, gone)" in caplog.text


def test_the_most_memory_of_a_worker_is_kept(watched, monkeypatch):
    watched.peak_private_bytes = [0, 0]
    held = iter([5, 7, 9, 3])
    monkeypatch.setattr(processes, "private_bytes", lambda pid: next(held))
    watched.look([0, 1], times=2)
    assert watched.peak_private_bytes == [9, 7]
