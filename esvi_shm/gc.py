"""`python -m esvi_shm.gc`: remove the shared memory that dead runs left behind.

Only after every process of a run was killed with SIGKILL at once is there anything to remove.
Runs that are alive are spared, and so is everything of other users.
"""

import argparse


def main(arguments: list[str] | None = None) -> int:
    """Remove what no live process holds, print it, and return 0."""
    parser = argparse.ArgumentParser(
        prog="python -m esvi_shm.gc",
        description="Remove the shared memory of your runs that no live process holds.",
    )
    parser.parse_args(arguments)

    from esvi_shm.shared.runs import remove_leftovers

    removed = remove_leftovers()
    for path in removed:
        print(f"removed {path}")
    if not removed:
        print("nothing to remove")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
