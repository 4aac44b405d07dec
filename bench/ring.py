"""How many ids a second one ring carries between two processes: `python -m bench.ring`.

Both sides run batched compiled loops, each pinned to a core of its own where there are two. The
clock is the consumer's, from its first id to its last, so that starting up is left out. The
consumer checks that every id arrives once and in order.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

from bench import common
from esvi_shm.compile import kernel
from esvi_shm.shared.ring import EMPTY, initialise, ring_words, try_pop, try_push
from esvi_shm.shared.segments import Handle, Run, attach
from esvi_shm.shared.table import ArraySpec, Table

TARGET = 40e6  # ids a second
SPINS = 1000


@kernel
def push_numbers(ring, first, stop):
    """Push first, first + 1, ... until stop, or until the ring stays full; return the next."""
    tries = 0
    while first < stop and tries < SPINS:
        if try_push(ring, first):
            first += 1
            tries = 0
        else:
            tries += 1
    return first


@kernel
def pop_numbers(ring, first, stop):
    """Pop first, first + 1, ... until stop, or until the ring stays empty; return the next."""
    tries = 0
    while first < stop and tries < SPINS:
        value = try_pop(ring)
        if value == EMPTY:
            tries += 1
        elif value != first:
            raise ValueError("an id is lost, repeated or out of order")
        else:
            first += 1
            tries = 0
    return first


def run_side(pushes: bool, core: int | None, handle: Handle, n_ids: int, pipe: Connection) -> None:
    """Be the producer or the consumer of `n_ids` ids, and send how long it took."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    ring = attach(handle).arrays["ring"]
    move = push_numbers if pushes else pop_numbers
    move(ring, 0, 0)  # compile
    pipe.send("ready")
    pipe.recv()
    done = 0 if pushes else move(ring, 0, 1)
    while not pushes and done == 0:
        done = move(ring, 0, 1)
    started = time.perf_counter()
    while done < n_ids:
        before = done
        done = move(ring, done, n_ids)
        if done == before:
            os.sched_yield()
    pipe.send(time.perf_counter() - started)


def measure(n_ids: int, capacity: int) -> float:
    """Return the ids a second of one run."""
    table = Table([ArraySpec("ring", (ring_words(capacity),), "int64", "both", "both", "the ring")])
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        cores = [None, None]  # type: ignore[list-item]
    context = multiprocessing.get_context("spawn")
    with Run() as run:
        segment = run.create("bench", table)
        initialise(segment.arrays["ring"], capacity)
        pipes, processes = [], []
        for pushes, core in zip((True, False), cores, strict=True):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=run_side, args=(pushes, core, segment.handle, n_ids, theirs), daemon=True
            )
            process.start()
            pipes.append(ours)
            processes.append(process)
        for pipe in pipes:
            pipe.recv()
        for pipe in reversed(pipes):
            pipe.send("go")
        seconds = [pipe.recv() for pipe in pipes][1]
        for process in processes:
            process.join()
    return n_ids / seconds


def main() -> None:
    """Measure, and print each run, the median and the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", type=int, default=100_000_000, help="ids a run")
    parser.add_argument("--capacity", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rates = [measure(options.ids, options.capacity) for _ in range(options.runs)]
    print(f"machine:  {common.describe(common.machine())}")
    print(f"capacity: {options.capacity}, ids a run: {options.ids}")
    print("runs:     " + ", ".join(f"{rate / 1e6:.1f}" for rate in rates) + " million ids/s")
    median = statistics.median(rates)
    print(f"median:   {median / 1e6:.1f} million ids/s (target {TARGET / 1e6:.0f})")


if __name__ == "__main__":
    main()
