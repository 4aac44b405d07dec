"""`python -m esvi_shm`: which commands there are. Each is `python -m esvi_shm.NAME`."""

import argparse
import re
import sys

from esvi_shm import command, evaluate, fit, gc, infer, launch, simulate

COMMANDS = {
    "fit": fit,
    "evaluate": evaluate,
    "infer": infer,
    "simulate": simulate,
    "launch": launch,
    "gc": gc,
}


def _parser() -> argparse.ArgumentParser:
    # Of each description what comes before its first stop.
    lines = [
        f"  python -m esvi_shm.{name:10s}{re.split('[.:;]', module._parser().description)[0]}"
        for name, module in COMMANDS.items()
    ]
    parser = argparse.ArgumentParser(
        prog="python -m esvi_shm",
        usage="python -m esvi_shm.COMMAND [options]",
        description="\n".join(["commands:", *lines, "", "--help of a command says more."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command, or print which there are, and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]].main(arguments[1:])
    parser = _parser()
    given = parser.parse_args(arguments)
    return command.run("esvi_shm", lambda _: parser.print_help(), given, {})


if __name__ == "__main__":
    command.end(main())
