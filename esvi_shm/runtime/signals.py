"""Requests to stop that reach the main process as signals."""

import signal
import threading
from typing import Any

from esvi_shm.errors import Interrupted

#: Signals that ask the main process to stop; workers leave them to it.
ASKING_TO_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """The first request to stop sets `received`; the second raises Interrupted."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def _handle(self, number: int, frame: Any) -> None:
        if self.received is not None:
            interrupted = Interrupted("stopped by the second signal; nothing was saved")
            interrupted.exit_code = 128 + number
            raise interrupted
        self.received = signal.Signals(number)

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in ASKING_TO_STOP:
                # A signal that is ignored (nohup) stays ignored.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
