"""A run in a process of its own, to be ended in every way: `python scenario.py WHAT BACKING`.

It says on standard output, in one line of JSON, when all is up; the test then ends it. Standard
error stays open until the resource tracker has ended too: the test reads to its end.
"""

import json
import multiprocessing
import os
import signal
import sys
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from esvi_shm.errors import MemoryShortError
from esvi_shm.shared.preflight import choose_backing
from esvi_shm.shared.segments import Handle, Run, attach
from esvi_shm.shared.table import ArraySpec, Table

TABLE = Table([ArraySpec("x", (1000,), "int64", "the worker", "the parent", "a test")])
context = multiprocessing.get_context("spawn")


def work(handle: Handle, value: int, stays: bool, pipe: Connection) -> None:
    """Attach, write, say so; then end, or live as long as the parent, or longer."""
    segment = attach(handle)
    segment.reserve()
    segment.arrays["x"][:] = value
    pipe.send("written")
    if stays:
        signal.pause()
    elif value:
        multiprocessing.parent_process().join()


def start_worker(run: Run, value: int, stays: bool = False) -> multiprocessing.Process:
    """Start a worker, and wait until it has written."""
    ours, theirs = context.Pipe(duplex=False)
    handle = run.segments["state"].handle
    process = context.Process(target=work, args=(handle, value, stays, theirs), daemon=True)
    process.start()
    theirs.close()
    assert ours.recv() == "written"
    return process


def say(run: Run, **facts: object) -> None:
    print(json.dumps({"run": run.name, **facts}), flush=True)


def scenario(what: str, backing: str) -> None:
    """Set up a run, and end it as told."""
    if what == "full":
        fill(backing)
        return
    run = Run(backing, os.environ["SCRATCH"])
    if what == "unclosed":
        run.create("state", TABLE)
        start_worker(run, 0).join()
        say(run)
        return  # atexit has to close the run
    with run:
        segment = run.create("state", TABLE, reserve=False)
        if what == "normal":
            start_worker(run, 0).join()
            kept = segment.arrays["x"]
        elif what == "removed by hand":
            os.unlink(segment.handle.path)
            say(run)
        elif what == "exception":
            start_worker(run, 1)
            say(run)
            raise RuntimeError("on purpose")
        elif what == "lost worker":
            worker = start_worker(run, 3)
            worker.kill()
            worker.join()
            assert worker.exitcode == -signal.SIGKILL
            assert set(segment.arrays["x"]) == {3}
            start_worker(run, 0).join()
            assert set(segment.arrays["x"]) == {0}
        elif what in ("wait", "orphan"):
            worker = start_worker(run, 5, stays=what == "orphan")
            tracker = resource_tracker._resource_tracker._pid
            say(run, worker=worker.pid, tracker=tracker)
            sys.stdin.read()
    if what in ("normal", "lost worker"):
        say(run)
    if what == "normal":
        kept[:] = 1  # outlives the run


def fill(backing: str) -> None:
    """With a /dev/shm of 1 MiB: too large a segment is an error, and files are chosen instead."""
    table = Table([ArraySpec("x", (2**19,), "int64", "the parent", "the parent", "4 MiB")])
    with Run() as run:
        for reserve_in_create in (True, False):
            try:
                run.create("large", table, reserve=reserve_in_create).reserve()
            except MemoryShortError as error:
                message = str(error)
            else:
                raise AssertionError("4 MiB fitted into 1 MiB")
            run.unlink("large")
        left = os.listdir("/dev/shm")
        small = Table([ArraySpec("x", (2**16,), "int64", "the parent", "the parent", "0.5 MiB")])
        run.create("small", small).arrays["x"][:] = 1  # no SIGBUS
        say(run, message=message, left=left, chosen=choose_backing(table.total_bytes))
    with Run(choose_backing(table.total_bytes)) as run:
        run.create("large", table).arrays["x"][:] = 1


if __name__ == "__main__":
    scenario(*sys.argv[1:])
