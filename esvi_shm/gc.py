"""`python -m esvi_shm.gc`: remove what dead runs left behind, and kernels of other versions.

Shared memory and lock files are left only where every process of a run was killed with SIGKILL at
once. Runs that are alive are spared, with their kernels, and so is everything of other users.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Python would print where a Ctrl-C struck. Before `command.run`, which takes care of it, there
    # is nothing to clean up: it just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse

from esvi_shm import command


def _run(given: argparse.Namespace) -> None:
    from esvi_shm.cache import remove_other_versions
    from esvi_shm.shared.runs import remove_leftovers

    removed = remove_leftovers() + remove_other_versions()
    for path in removed:
        print(f"removed {path}")
    if not removed:
        print("nothing to remove")


def _parser() -> argparse.ArgumentParser:
    parser = command.make_parser(
        "gc",
        "Remove what no live process of yours holds: shared memory of dead runs\n"
        "(/dev/shm/esvi-*), their lock files (esvi-*/*.lock in $XDG_RUNTIME_DIR,\n"
        "/run/user/UID or /tmp), and compiled kernels of other versions of this package\n"
        "(kernels-* in $XDG_CACHE_HOME/esvi_shm or ~/.cache/esvi_shm).",
        "",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Remove what no live process holds, print it, and return the exit code."""
    return command.run("esvi_shm.gc", _run, _parser().parse_args(arguments), {})


if __name__ == "__main__":
    command.end(main())
