"""What `--plan` says against the memory that the fit then holds, for each storage and worker count.

    python -m esvi_shm.fit DOCWORD --topics 128 --storage S --workers P

The plan is that of the log (`--log-json`). Measured is the largest sum of the shared
arrays once and the anonymous pages of all processes (the tracker of segments among them), looked
at from outside every few milliseconds from the moment when the plan is made: what reading the
corpus took is shown beside it. Kernels are compiled before by a run that does not count.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench import common

#: Share of the measured peak by which the plan may be off.
TARGET = 0.1
#: Seconds between two looks.
LOOK = 0.01
MIB = 2**20


def pages_of(process: psutil.Process, kind: str) -> int:
    """Bytes of one kind of pages of a process, now."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    return 0


def held_bytes(process: psutil.Process, shared: int) -> tuple[int, list[int]]:
    """What a fit holds now: in all, and of its own in each process.

    The shared arrays are all there once there are workers. Until then they are what the main
    process has filled of them.
    """
    own, has_workers = [0], False
    filled = 0
    try:
        ours = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        own, filled = [pages_of(process, "RssAnon")], pages_of(process, "RssShmem")
        for child in process.children():
            name = Path(f"/proc/{child.pid}/cmdline").read_bytes()
            if name != ours:  # else it is not yet another program, and has its parent's pages
                own.append(pages_of(child, "RssAnon"))
                has_workers |= b"runtime.worker" in name
    except (psutil.Error, OSError):
        pass  # it ended just now
    return sum(own) + (shared if has_workers else filled), own


def events_of(log: Path) -> list[dict[str, Any]]:
    """The whole lines of a log so far."""
    text = log.read_text() if log.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def processor_seconds(process: psutil.Process) -> dict[int, float]:
    """Seconds that each child of a process has computed so far."""
    found = {}
    try:
        for one in process.children():
            times = one.cpu_times()
            found[one.pid] = times.user + times.system
    except psutil.Error:
        pass
    return found


def run(command: list[str]) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")
    return done.stdout


def watch(command: list[str], log: Path) -> dict[str, Any]:
    """Run a fit and look at its processes; bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    watched = psutil.Process(process.pid)
    reading = fitting = shared = 0
    parts, computed = list[int](), dict[int, float]()
    while process.poll() is None:
        if not shared:
            shared = sum(e["total_bytes"] for e in events_of(log) if e["event"] == "plan")
        now, own = held_bytes(watched, shared)
        computed |= processor_seconds(watched)
        if not shared:
            reading = max(reading, now)
        elif now > fitting:
            fitting, parts = now, own
        time.sleep(LOOK)
    assert process.stderr is not None
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{process.stderr.read().decode()}")
    events = {event["event"]: event for event in events_of(log)}
    return {
        "planned": events["plan"]["peak_bytes"],
        "measured": fitting,
        "reported": events["summary"]["peak_rss_bytes"],
        "shared": shared,
        "own": parts,
        "reading": reading,
        "processor_seconds": sum(computed.values()),
    }


def measure(options: argparse.Namespace, storage: str, n_workers: int) -> dict[str, Any]:
    """One fit with its plan."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = common.python(
            "-m", "esvi_shm.fit", os.fspath(options.docword), "--topics", str(options.topics),
            "--alpha", str(options.alpha), "--eta", str(options.eta), "--tol", "0",
            "--inference", options.inference, "--passes", str(options.passes),
            "--workers", str(n_workers), "--storage", storage, "--quiet", "--top-words", "0",
            "--out", str(Path(folder, "model")), "--log-json", str(log),
        )  # fmt: skip
        return {"storage": storage, "workers": n_workers, **watch(command, log)}


def draw(figure: Any, rows: list[dict[str, Any]], title: str) -> None:
    """Planned over measured, a bar for each fit, within the band that is allowed."""
    axes = figure.subplots()
    names = [f"{row['storage']}, {row['workers']}" for row in rows]
    axes.bar(names, [row["planned"] / row["measured"] - 1 for row in rows], color="C0")
    for limit in (-TARGET, TARGET):
        axes.axhline(limit, color="k", lw=0.8, ls="--")
    axes.set_xlabel("storage, workers")
    axes.set_ylabel("planned / measured - 1")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, lw=0.5)


def main(arguments: list[str] | None = None) -> None:
    """Measure every storage with every number of workers."""
    parser = common.options_of(__doc__ or "", passes=6)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--storages", nargs="+", default=["margins", "sparse", "full", "topk"])
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    common.load(options.docword)
    rows = []
    print(f"{'MiB':<8}{'workers':>8}{'shared':>9}{'planned':>9}{'measured':>9}{'off':>8}", end="")
    print(f"{'reported':>9}{'reading':>9}  own: main, workers")
    for storage in options.storages:
        measure(options, storage, 1)  # compile
        for n_workers in options.workers:
            row = measure(options, storage, n_workers)
            rows.append(row)
            row["off"] = row["planned"] / row["measured"] - 1
            numbers = "".join(f"{row[n] / MIB:>9.1f}" for n in ("shared", "planned", "measured"))
            rest = "".join(f"{row[n] / MIB:>9.1f}" for n in ("reported", "reading"))
            own = ", ".join(f"{n / MIB:.1f}" for n in row["own"])
            off = f"{row['off']:>+8.1%}"
            print(f"{storage:<8}{n_workers:>8}{numbers}{off}{rest}  {own}", flush=True)
    worst = max(abs(row["off"]) for row in rows)
    print(f"off by at most {worst:.1%}")
    print("  " + common.verdict(worst, TARGET, at_least=False))
    title = f"{common.corpus_name(options.docword)}, {options.topics} topics: plan against measured"
    common.save("plan", options, facts, {"rows": rows}, lambda f: draw(f, rows, title))


if __name__ == "__main__":
    main()
