"""What a fit shows while it runs: a bar on a terminal, plain lines elsewhere, JSON lines in a file.

Everything goes to standard error (or the JSON file); standard output belongs to the results.
"""

import contextlib
import json
import logging
import math
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

from tqdm import tqdm

from esvi_shm.compile import COMPILING, when_compiling
from esvi_shm.errors import ParameterError
from esvi_shm.runtime import memory
from esvi_shm.runtime.layout import Layout
from esvi_shm.runtime.record import Observer, Record, Restart

_logger = logging.getLogger(__name__)


class Progress(Observer):
    """Progress of reading and fitting; a context that closes its bar and its file.

    Nothing that goes wrong with telling ends the fit: what nobody takes any more is lost.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    log_json : str or None
        File to write one JSON object a line to.

    Raises
    ------
    ParameterError
        When that file cannot be written.
    """

    def __init__(self, quiet: bool, log_json: str | None) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty() and not quiet
        self.n_tokens, self.unit = 1.0, "token"
        self.began = time.perf_counter()
        self.has_compiled = False
        self._bar: Any = None
        self._log = None if log_json is None else _opened(log_json)
        self._open = contextlib.ExitStack()

    def say(self, text: str) -> None:
        """A line for people; lost where nobody takes it any more."""
        if not self.quiet:
            with contextlib.suppress(OSError):
                tqdm.write(text, file=sys.stderr)

    def log(self, event: str, **values: Any) -> None:
        """A line for programs."""
        if self._log is None:
            return
        line = {"event": event, "seconds": time.perf_counter() - self.began, **values}
        try:
            print(json.dumps(line), file=self._log, flush=True)
        except OSError as error:
            _logger.warning("%s: %s: the log ends here", self._log.name, error.strerror)
            self._close_log()

    def reading(self, done: int, total: int) -> None:
        """Bytes (or files) of the corpus read so far."""
        self._move_bar("reading", done, total, "B")

    def drawing(self, done: int, total: int) -> None:
        """Documents of a simulated corpus written so far."""
        self._move_bar("drawing", done, total, "documents")

    def planned(self, layout: Layout) -> None:
        peak = memory.peak_bytes(layout)
        config = layout.config.as_dict()
        self.log("plan", total_bytes=layout.total_bytes, peak_bytes=peak, config=config)
        self.say(
            f"plan: {layout.sizes.n_workers} workers, {layout.sizes.n_blocks} blocks, "
            f"{layout.total_bytes / 2**20:,.1f} MiB of shared arrays, "
            f"about {peak / 2**20:,.0f} MiB with all processes"
        )

    def stage(self, name: str) -> None:
        self._close_bar()
        self.log("stage", name=name)
        if self.terminal and name in ("compile", "workers", "start"):
            texts = {
                "compile": "loading kernels",
                "workers": "starting workers",
                "start": "finding a start",
            }
            self.say(texts[name])

    def progress(self, pairs: int, total_pairs: int, fit_seconds: float) -> None:
        if total_pairs:
            unit = "pairs" if self.unit == "token" else "points"
            self._move_bar("fitting", pairs, total_pairs, unit)

    def evaluated(self, record: Record) -> None:
        figures = record._asdict().items()
        self.log("evaluation", **{k: v if math.isfinite(v) else None for k, v in figures})
        per_token = record.elbo / self.n_tokens
        perplexity = record.perplexity
        held_out = f"held-out perplexity {perplexity:.2f}, "
        if self.unit == "point":  # of which the judge says minus the log likelihood
            held_out = f"held-out log likelihood {-perplexity:.4f}, "
        held_out = "" if math.isnan(perplexity) else held_out
        if self.terminal and self._bar is not None:
            short = held_out.replace("held-out ", "").rstrip(", ")
            parts = [f"ELBO/{self.unit} {per_token:.4f}", short]
            with contextlib.suppress(OSError):
                self._bar.set_postfix_str(", ".join(part for part in parts if part))
        else:
            self.say(
                f"pass {record.passes:g}: ELBO {record.elbo:.6g} nats "
                f"({per_token:.4f} a {self.unit}), {held_out}{record.fit_seconds:.2f} s of fitting"
            )

    def restarted(self, restart: Restart) -> None:
        self.log("restart", **restart._asdict())
        per_token = restart.objective / self.n_tokens
        self.say(f"start with seed {restart.seed}: objective {per_token:.4f} a {self.unit}")

    def rested(self, passes: int, counts: Mapping[str, int]) -> None:
        self.log("rest", passes=passes, **counts)
        if counts:
            said = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items())
            self.say(f"pass {passes}: {said}")

    def _move_bar(self, name: str, done: int, total: int, unit: str) -> None:
        if not self.terminal:
            return
        with contextlib.suppress(OSError):
            if self._bar is None or self._bar.desc != name:
                self._close_bar()
                about = {"desc": name, "total": total, "unit": unit, "unit_scale": True}
                self._bar = tqdm(**about, file=sys.stderr)
            self._bar.update(done - self._bar.n)

    def _close_bar(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            with contextlib.suppress(OSError):
                bar.close()

    def _close_log(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            with contextlib.suppress(OSError):
                log.close()

    def _compiling(self) -> None:
        self.has_compiled = True
        self.log("stage", name="compiling")
        self.say(COMPILING)

    def __enter__(self) -> "Progress":
        # Wherever it is needed first: a reader has kernels too.
        self._open.enter_context(when_compiling(self._compiling))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()
        self._close_bar()
        self._close_log()


def _opened(log_json: str) -> TextIO:
    try:
        return open(log_json, "w")
    except OSError as error:
        rule = f"must be a file that can be written ({error.strerror})"
        raise ParameterError("log_json", rule, log_json) from None
