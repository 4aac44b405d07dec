"""`python -m esvi_shm.launch --nodes N -- COMMAND ...`: a run of several nodes on this machine.

For trying out what several machines would do: every node is a process of its own, joined to the
others over TCP at ports of 127.0.0.1, with a key that is gone when they are. What a node prints
has its number in front. The first node that fails ends the others.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Python would print where a Ctrl-C struck. Before `command.run`, which takes care of it, there
    # is nothing to clean up: it just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from esvi_shm import command
from esvi_shm.errors import EsviError, InputError, ParameterError
from esvi_shm.runtime.signals import ASKING_TO_STOP

#: What holds the commands, and those that run on several nodes.
PACKAGE, COMMANDS = "esvi_shm", ("fit", "fit_mixture")
#: More on one machine is a mistake.
MOST_NODES = 64
#: Seconds that nodes have to end by themselves when one has failed: they hear of it, and name it.
PATIENCE = 15.0
#: Seconds between two looks at the nodes.
LOOK = 0.05


class NodeError(EsviError):
    """A node failed; the exit code is the node's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def _addresses(n_nodes: int) -> list[str]:
    """Addresses with ports that are free now: all are taken at once, so that they differ."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(n_nodes)]
        for found in taken:
            found.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{found.getsockname()[1]}" for found in taken]


@contextlib.contextmanager
def _key_file() -> Iterator[str]:
    """A new key that only its owner can read, while the context lasts."""
    with tempfile.TemporaryDirectory(prefix="esvi-launch-") as folder:
        path = os.path.join(folder, "key")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        yield path


def _pass_on(rank: int, source: IO[bytes], target: IO[str]) -> None:
    """Print the lines of a node with its number in front."""
    for line in source:
        text = line.decode(errors="backslashreplace")
        with contextlib.suppress(OSError, ValueError):
            # In one piece, so that lines of different nodes do not mix.
            target.write(f"[{rank}] {text.rstrip(chr(10))}\n")
            target.flush()


class _Nodes:
    """The processes of a run; a context that leaves none behind."""

    def __init__(self, commands: list[list[str]]) -> None:
        self.received: int | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        for number in ASKING_TO_STOP:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._send)
        try:
            for rank, line in enumerate(commands):
                # Of a session of its own: a Ctrl-C comes through `_send`, once.
                process = subprocess.Popen(
                    line,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
                self._processes.append(process)
                if self.received is not None:  # while there was no process yet to send it to
                    process.send_signal(self.received)
                for source, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                    assert source is not None
                    thread = threading.Thread(target=_pass_on, args=(rank, source, target))
                    thread.start()
                    self._threads.append(thread)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> "_Nodes":
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._kill()

    def _send(self, number: int, frame: object) -> None:
        """Every node sees to a signal itself: at the first one it ends early, and saves."""
        self.received = number
        for process in self._processes:
            # One that has ended may have its number taken by another.
            if process.poll() is None:
                process.send_signal(number)

    def wait(self) -> None:
        """Return when all nodes have ended well.

        Raises
        ------
        NodeError
            For the first one that did not; the others have ended, too.
        """
        limit = float("inf")
        while any(process.poll() is None for process in self._processes):
            time.sleep(LOOK)
            if limit == float("inf") and self._failed() is not None:
                limit = time.monotonic() + PATIENCE
            if time.monotonic() > limit:
                break
        failed = self._failed()
        self._kill()
        if failed is not None:
            rank, code = failed
            how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
            raise NodeError(f"node {rank} ended with {how}", code if code > 0 else 1)

    def _failed(self) -> tuple[int, int] | None:
        """Number and exit code of the node that has failed.

        Those that end because another has failed do so with 1, and may end before it does.
        """
        codes = [(rank, process.poll()) for rank, process in enumerate(self._processes)]
        failed = [(rank, code) for rank, code in codes if code]
        return min(failed, key=lambda found: found[1] == 1, default=None)

    def _kill(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        for process in self._processes:
            process.wait()
        for thread in self._threads:
            thread.join()


def _run(given: argparse.Namespace) -> None:
    if not 1 <= given.nodes <= MOST_NODES:
        raise ParameterError("nodes", f"must be from 1 to {MOST_NODES}", given.nodes)
    line = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not line:
        raise InputError("a command must follow, as in: --nodes 3 -- fit corpus.mtx")
    if line[0] not in COMMANDS:
        raise ParameterError("command", f"must be one of {', '.join(COMMANDS)}", line[0])
    nodes = ",".join(_addresses(given.nodes))
    with _key_file() as key:
        joined = ["--transport", "tcp", "--nodes", nodes, "--key-file", key]
        commands = [
            [sys.executable, "-m", f"{PACKAGE}.{line[0]}", *line[1:], *joined, "--rank", str(rank)]
            for rank in range(given.nodes)
        ]
        with _Nodes(commands) as running:
            running.wait()


def _parser() -> argparse.ArgumentParser:
    parser = command.make_parser(
        "launch",
        "Run a command on several nodes that are all this machine, joined over TCP. What each "
        "prints has the node's number in front; the first that fails ends the others.",
        "example: python -m esvi_shm.launch --nodes 3 -- fit docword.nips.txt.gz --workers 1",
    )
    parser.add_argument("--nodes", type=int, required=True, metavar="N", help="how many nodes")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...",
        help="what python -m esvi_shm. is followed by; --transport, --nodes, --rank and "
        "--key-file are added",
    )  # fmt: skip
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code, or that of the node that failed."""
    return command.run("esvi_shm.launch", _run, _parser().parse_args(arguments), {})


if __name__ == "__main__":
    command.end(main())
