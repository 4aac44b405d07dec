"""`python -m esvi_shm.gc`: remove the shared memory that dead runs left behind.

Only after every process of a run was killed with SIGKILL at once is there anything to remove.
Runs that are alive are spared, and so is everything of other users.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Python would print where a Ctrl-C struck. Before `command.run`, which takes care of it, there
    # is nothing to clean up: it just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse

from esvi_shm import command


def _run(given: argparse.Namespace) -> None:
    from esvi_shm.shared.runs import remove_leftovers

    removed = remove_leftovers()
    for path in removed:
        print(f"removed {path}")
    if not removed:
        print("nothing to remove")


def main(arguments: list[str] | None = None) -> int:
    """Remove what no live process holds, print it, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m esvi_shm.gc",
        description="Remove the shared memory of your runs that no live process holds.",
    )
    parser.set_defaults(quiet=False)
    return command.run("esvi_shm.gc", _run, parser.parse_args(arguments), {})


if __name__ == "__main__":
    command.end(main())
