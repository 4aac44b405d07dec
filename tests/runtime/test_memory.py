"""The plan of all memory: its parts add up, and the private arrays are those that workers make."""

from dataclasses import replace

import pytest

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime import home, memory
from esvi_shm.runtime.engine import plan
from esvi_shm.runtime.serial import SerialFit
from tests.naive import simulate

CORPUS = Corpus.from_sparse(simulate(20, 500, 3, 200, seed=0)[0])
MIB = 2**20


@pytest.mark.parametrize("storage", ["margins", "full", "sparse", "topk"])
@pytest.mark.parametrize("n_topics", [3, 50])
def test_private_arrays_are_those_that_a_worker_makes(storage, n_topics):
    config = FitConfig(n_topics=n_topics, n_workers=2, n_blocks=3, storage=storage)
    fit = SerialFit(CORPUS, config)
    made = 0
    for worker in fit.workers:
        *own, few = worker.scratch
        made += sum(array.nbytes for array in (*own, *few))
        if storage == "sparse":
            made += sum(array.nbytes for array in worker.gamma.window)
    assert made == pytest.approx(memory.scratch_bytes(fit.layout), rel=0.1, abs=10_000)


def test_the_parts_add_up(monkeypatch):
    monkeypatch.setattr(memory, "private_bytes", lambda: 100 * MIB)
    layout = plan(CORPUS, FitConfig(n_topics=50, n_workers=2))
    code = layout.model.code_bytes()
    once = code + memory.TRACKER_BYTES
    processes = 100 * MIB + once + 2 * (memory.WORKER_BYTES + code)
    assert memory.process_bytes(layout) == processes
    peak = layout.total_bytes + memory.scratch_bytes(layout) + processes
    assert memory.peak_bytes(layout) == peak
    *shared, scratch, own, last, place = memory.describe(layout).splitlines()
    assert "\n".join(shared) == layout.describe()
    assert len({len(line) for line in (shared[-1], scratch, own, last)}) == 1  # one column
    assert "(2)" in scratch and "(1 + 2)" in own
    parts = (shared[-1], scratch, own)
    assert sum(float(line.split()[-2]) for line in parts) == pytest.approx(peak / MIB, abs=0.02)
    assert place == "  shared arrays lie in /dev/shm"
    assert last.split() == ["peak,", "about", f"{peak / MIB:.2f}", "MiB"]


def test_what_is_released_is_not_held_beside_the_state(monkeypatch):
    monkeypatch.setattr(memory, "private_bytes", lambda: 100 * MIB)
    config = FitConfig(n_topics=50, n_workers=1)
    kept, released = plan(CORPUS, config), plan(CORPUS, config, release=True)
    pairs = CORPUS.n_pairs * 8
    assert memory.peak_bytes(kept) - memory.peak_bytes(released) == pairs
    # Where the pairs are most of all, the peak is while they are copied.
    monkeypatch.setattr(memory, "private_bytes", lambda: 10**9 * MIB)
    released = replace(released, released_bytes=10**8 * MIB)
    assert memory.peak_bytes(released) == 10**9 * MIB + released.filled_bytes


def test_the_peak_counts_the_pairs_while_they_are_there_twice(threaded_fit, monkeypatch):
    seen = iter([500 * MIB])
    monkeypatch.setattr(home, "private_bytes", lambda: next(seen, MIB))
    ended = threaded_fit(n_passes=1, n_workers=1)
    wanted = 500 * MIB + ended.layout.filled_bytes
    assert ended.result.shared_bytes + ended.result.peak_private_bytes == wanted
