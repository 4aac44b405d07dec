"""Kernels that no cache has are compiled by two processes at once.

The main process needs the visits first, and they take half of the time. From the first kernel on
that it finds in no cache, another process compiles what it would come to last, and puts it into the
same cache. Nothing depends on the other one: what it has not made the main process makes.
"""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

from esvi_shm.compile import when_compiling
from esvi_shm.config import FitConfig
from esvi_shm.runtime.cores import available_cores
from esvi_shm.runtime.environment import die_with_parent, of_interpreter
from esvi_shm.runtime.processes import asking_blocked
from esvi_shm.runtime.serial import warm_up, warm_up_last


def compile_kernels(config: FitConfig) -> None:
    """Have every kernel of a fit compiled and loaded."""
    with contextlib.ExitStack() as beside:

        def begin() -> None:
            if available_cores() > 1:
                beside.enter_context(_another(config))

        with when_compiling(begin):
            warm_up(config)


@contextlib.contextmanager
def _another(config: FitConfig) -> Iterator[None]:
    """A process that compiles; ended on leaving, whatever it is at."""
    with asking_blocked():
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from esvi_shm.runtime.compiling import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=of_interpreter(),
        )
    assert process.stdin is not None
    try:
        # What only a real start needs may be large.
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            config = replace(config, start_from=None, seed_words=())
            pickle.dump((os.getpid(), config), pipe)
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Compile what the configuration on standard input needs last."""
    parent, config = pickle.load(sys.stdin.buffer)
    die_with_parent(parent)
    warm_up_last(config)
