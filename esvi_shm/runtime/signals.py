"""Requests to stop that reach the main process as signals.

    Signals()                in a fit, in a save: the first is noted, the second raises Interrupted
    Signals(at_once=True)    around a command: the first raises KeyboardInterrupt
    finishing()              what is inside is finished first, then the signal does what it does
    end(code)                the end of a command

They nest; the innermost has the word. The same signal within a fifth of a second is the same
request: `timeout` sends one to the process and one to its group. So is a SIGHUP right behind a
SIGTERM, as systemd ends what a user has left running. Once one has raised, so is all
that follows within a second (a key held down, a batch system that sends to all): an exception
more, out of the middle of the cleaning up, would leave something behind.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, ClassVar, NoReturn

from esvi_shm.errors import Interrupted

#: Signals that ask the main process to stop; workers leave them to it.
ASKING_TO_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Seconds in which a signal that comes again is the same request; a hand takes longer.
SAME = 0.2
#: Seconds in which signals belong to the one that has raised.
BURST = 1.0
#: Seconds until a signal that came at a bad moment is tried again.
AGAIN = 0.02

#: What signals have broken off, with its frames. It may have been within compiled code's own Python
#: (llvmlite's), and what is half made there must not be finalised: it was freed twice.
broken_off: list[BaseException] = []


class Signals:
    """Takes care of signals while its context lasts; only in the main thread.

    Parameters
    ----------
    at_once : bool
        The first signal raises KeyboardInterrupt, but never within an import: C code there
        prints it and goes on, or fails with an error of its own.

    Attributes
    ----------
    received : signal.Signals or None
        The first request.
    may_abort : bool
        False: what is under way now is finished, however many signals come.
    """

    # Handlers belong to the process, and so does what the contexts know of each other.
    _depth = 0
    _raised = -BURST
    _asked: ClassVar[dict[bool, float]] = {}  # when a SIGINT, or another, was last a request
    _innermost: ClassVar["Signals | None"] = None

    def __init__(self, at_once: bool = False) -> None:
        self.received: signal.Signals | None = None
        self.may_abort = True
        self._at_once = at_once
        self._before: dict[signal.Signals, Any] = {}
        self._frame: FrameType | None = None
        self._told_before: Any = None
        self._outer: Signals | None = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now, kind = time.monotonic(), number == signal.SIGINT
        if now - Signals._raised < BURST or now - Signals._asked.get(kind, -SAME) < SAME:
            return
        Signals._asked[kind] = now
        first = self.received is None
        self.received = self.received or signal.Signals(number)
        if self._at_once:
            self._interrupt(number, frame)
        elif self.may_abort and not first:
            Signals._raised = time.monotonic()
            interrupted = Interrupted("stopped by the second signal; its result was not saved")
            interrupted.exit_code = 128 + number
            raise interrupted

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise now, or later where that would be lost."""
        if self._is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
            return
        Signals._raised = time.monotonic()
        raise KeyboardInterrupt

    def _try_again(self, number: int, frame: FrameType | None) -> None:
        inner = Signals._innermost
        if self.received is not None and inner is not None and inner is not self:
            inner.received = inner.received or self.received  # it has the word
        elif self.received is not None:
            self._interrupt(self.received, frame)

    def _lost(self, told: Any) -> None:
        """A finaliser cannot raise: Python would only print what the signal raised there.

        After it has raised, what it left half made may not be finalised well, which is no news.
        """
        if told.exc_type is KeyboardInterrupt:
            Signals._raised = -BURST
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        elif time.monotonic() - Signals._raised >= BURST:
            self._told_before(told)

    def _is_importing(self, frame: FrameType | None) -> bool:
        while frame is not None and frame is not self._frame:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                return True
            frame = frame.f_back
        return False

    def __enter__(self) -> "Signals":
        if threading.current_thread() is not threading.main_thread():
            return self
        if Signals._depth == 0:
            Signals._raised = -BURST
            Signals._asked.clear()
        Signals._depth += 1
        self._outer, Signals._innermost = Signals._innermost, self
        for number in ASKING_TO_STOP:
            # A signal that is ignored (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        if self._at_once:
            self._frame = sys._getframe(1)
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._try_again)
            self._told_before, sys.unraisablehook = sys.unraisablehook, self._lost
        return self

    def __exit__(self, *exception: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if self._at_once:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook, self._frame = self._told_before, None
        for number, handler in self._before.items():
            signal.signal(number, handler)
        Signals._depth -= 1
        Signals._innermost = self._outer


@contextlib.contextmanager
def finishing() -> Iterator[Signals]:
    """Finish what is inside before a signal takes its effect; a second one raises Interrupted."""
    with Signals() as signals:
        yield signals
    if signals.received is not None:
        Signals._asked.clear()  # what comes now is not its twin but itself
        signal.raise_signal(signals.received)


def end(code: int) -> NoReturn:
    """End the process with an exit code, which a Ctrl-C that comes only now does not change."""
    for number in ASKING_TO_STOP:
        signal.signal(number, signal.SIG_IGN)
    if broken_off:
        atexit._run_exitfuncs()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
    sys.exit(code)
