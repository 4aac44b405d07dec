"""Seconds of the shell command that reads, fits, saves and prints; and where they go.

    python -m esvi_shm.fit DOCWORD --topics 128 --passes 20 --workers 2 --out NEW

The clock is the wall's, from before the interpreter starts until it has ended, kernels compiled
before by a first run that does not count. The stages are those the command logs itself
(`--log-json`); what it does before it opens its log (starting, importing) and after its last
event (printing, ending) is the rest. Imports are timed on their own.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import common

TARGET = 10.0


def seconds_of(command: list[str]) -> float:
    """Wall seconds of a command, which must end well."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return seconds


def run(options: argparse.Namespace) -> tuple[float, dict[str, float]]:
    """The command once: its seconds, and by stage."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        total = seconds_of(
            common.python(
                "-m", "esvi_shm.fit", os.fspath(options.docword), "--topics", str(options.topics),
                "--alpha", str(options.alpha), "--eta", str(options.eta), "--tol", "0",
                "--passes", str(options.passes), "--workers", str(options.workers),
                "--out", str(Path(folder, "model")), "--log-json", str(log),
            )
        )  # fmt: skip
        return total, stages(log.read_text(), total)


def stages(log: str, total: float) -> dict[str, float]:
    """Seconds between the events of the log; each stage ends where the next begins."""
    at: dict[str, float] = {}
    for line in log.splitlines():
        event = json.loads(line)
        name = event.get("name", event["event"])
        at[name] = event["seconds"]
    marks = [
        ("read the corpus, plan", "plan"),
        ("load kernels", "compile"),
        ("start workers", "workers"),
        ("find a start", "start"),
        ("passes, evaluations", "passes"),
    ]
    ends = [at["plan"], at["workers"], at["start"], at["passes"], at["evaluation"]]
    parts, before = {}, 0.0
    for (label, _), end in zip(marks, ends, strict=True):
        parts[label], before = end - before, end
    parts["end workers, save"] = at["summary"] - before
    parts["interpreter, imports, exit"] = total - at["summary"]
    return parts


def imports(repeats: int) -> dict[str, float]:
    """Seconds of bare interpreters that import, the median of several."""
    wanted = {
        "nothing": "pass",
        "numpy": "import numpy",
        "numba": "import numba",
        "a worker": "import esvi_shm.runtime.worker",
        "a worker, kernels loaded": "from esvi_shm.runtime.worker import warm_up; "
        "from esvi_shm.config import FitConfig; warm_up(FitConfig())",
    }
    taken: dict[str, list[float]] = {name: [] for name in wanted}
    for _ in range(repeats):
        for name, code in wanted.items():
            taken[name].append(seconds_of(common.python("-c", code)))
    return {name: common.median(values) for name, values in taken.items()}


def draw(figure: Any, parts: dict[str, float], total: float, title: str) -> None:
    """One bar, cut into stages."""
    axes = figure.subplots()
    left = 0.0
    for i, (name, seconds) in enumerate(parts.items()):
        axes.barh(0, seconds, left=left, color=f"C{i}", label=f"{name}: {seconds:.2f} s")
        left += seconds
    axes.axvline(TARGET, color="k", lw=0.8, ls="--", label=f"target {TARGET:g} s")
    axes.set_yticks([])
    axes.set_xlim(0, max(TARGET, total) * 1.05)
    axes.set_xlabel("wall seconds")
    axes.set_title(title, fontsize=10)
    figure.legend(loc="outside right center", fontsize=8)


def main(arguments: list[str] | None = None) -> None:
    """Time the command several times."""
    parser = common.options_of(__doc__ or "", passes=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    common.load(options.docword)
    if importlib.util.find_spec("esvi_shm.fit") is None:
        common.skip("there is no esvi_shm.fit")
    run(options)  # compile, and warm the caches
    runs = [run(options) for _ in range(options.repeats)]
    totals = [total for total, _ in runs]
    total = common.median(totals)
    parts = {name: common.median([parts[name] for _, parts in runs]) for name in runs[0][1]}
    print(f"{'in all':<28}{total:>8.2f} s  ({', '.join(f'{t:.2f}' for t in totals)})")
    print("  " + common.verdict(total, TARGET, at_least=False))
    for name, seconds in parts.items():
        print(f"  {name:<26}{seconds:>8.2f} s")
    loading = imports(options.repeats)
    print("a bare interpreter that imports")
    for name, seconds in loading.items():
        print(f"  {name:<26}{seconds:>8.2f} s")
    results = {"seconds": totals, "median": total, "stages": parts, "imports": loading}
    title = (
        f"python -m esvi_shm.fit, {common.corpus_name(options.docword)}, {options.topics} topics, "
        f"{options.passes} passes, {options.workers} workers: {total:.2f} s"
    )
    common.save(
        "end_to_end", options, facts, results, lambda f: draw(f, parts, total, title),
        size=(9.0, 2.8),
    )  # fmt: skip


if __name__ == "__main__":
    main()
