"""What a fit shows while it runs: a bar on a terminal, plain lines elsewhere, JSON lines in a file.

Everything goes to standard error (or the JSON file); standard output belongs to the results.
"""

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

from tqdm import tqdm

from esvi_shm.runtime.layout import Layout
from esvi_shm.runtime.record import Observer, Record, Restart


class Progress(Observer):
    """Progress of reading and fitting; a context that closes its bar and its file.

    Parameters
    ----------
    n_tokens : float
        For the ELBO per token; set by `corpus_read`.
    quiet : bool
        Show nothing.
    log_json : str or None
        File to write one JSON object a line to.
    """

    def __init__(self, quiet: bool, log_json: str | None) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty() and not quiet
        self.n_tokens = 1.0
        self.began = time.perf_counter()
        self._bar: Any = None
        self._log: TextIO | None = open(log_json, "w") if log_json else None

    def say(self, text: str) -> None:
        """A line for people; lost where nobody takes it any more."""
        if not self.quiet:
            with contextlib.suppress(OSError):
                tqdm.write(text, file=sys.stderr)

    def log(self, event: str, **values: Any) -> None:
        """A line for programs."""
        if self._log is not None:
            line = {"event": event, "seconds": time.perf_counter() - self.began, **values}
            print(json.dumps(line), file=self._log, flush=True)

    def reading(self, done: int, total: int) -> None:
        """Bytes (or files) of the corpus read so far."""
        if self.terminal:
            bar = self._bar_for("reading", total, "B")
            bar.update(done - bar.n)

    def planned(self, layout: Layout) -> None:
        self.log("plan", total_bytes=layout.total_bytes, config=layout.config.as_dict())
        self.say(
            f"plan: {layout.sizes.n_workers} workers, {layout.sizes.n_blocks} blocks, "
            f"{layout.total_bytes / 2**20:,.1f} MB of shared arrays"
        )

    def stage(self, name: str) -> None:
        self._close_bar()
        self.log("stage", name=name)
        if self.terminal and name in ("compile", "workers", "start"):
            texts = {
                "compile": "loading kernels (compiling them the first time takes half a minute)",
                "workers": "starting workers",
                "start": "finding a start",
            }
            self.say(texts[name])

    def progress(self, pairs: int, total_pairs: int, fit_seconds: float) -> None:
        if self.terminal and total_pairs:
            bar = self._bar_for("fitting", total_pairs, "pairs")
            bar.update(pairs - bar.n)

    def evaluated(self, record: Record) -> None:
        self.log("evaluation", **{k: v if v == v else None for k, v in record._asdict().items()})
        per_token = record.elbo / self.n_tokens
        if self.terminal and self._bar is not None:
            self._bar.set_postfix_str(f"ELBO/token {per_token:.4f}")
        else:
            self.say(
                f"pass {record.passes:g}: ELBO {record.elbo:.6g} nats ({per_token:.4f} a token), "
                f"{record.fit_seconds:.2f} s of fitting"
            )

    def restarted(self, restart: Restart) -> None:
        self.log("restart", **restart._asdict())
        per_token = restart.objective / self.n_tokens
        self.say(f"start with seed {restart.seed}: objective {per_token:.4f} a token")

    def rested(self, passes: int, counts: Mapping[str, int]) -> None:
        self.log("rest", passes=passes, **counts)
        if counts:
            said = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items())
            self.say(f"pass {passes}: {said}")

    def _bar_for(self, name: str, total: int, unit: str) -> Any:
        if self._bar is None or self._bar.desc != name:
            self._close_bar()
            self._bar = tqdm(desc=name, total=total, unit=unit, unit_scale=True, file=sys.stderr)
        return self._bar

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close_bar()
        if self._log is not None:
            self._log.close()
