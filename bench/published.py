"""A corpus of a published size, drawn, read and fitted: seconds, pairs a second, and memory.

    python -m bench.published --like nytimes --topics 64 --passes 20

The corpus is drawn by `python -m esvi_shm.simulate --like NAME --scale S` into a temporary folder,
which takes 8 bytes a pair twice while it is written, and fitted by `python -m esvi_shm.fit`, the
bound evaluated at the end only. Seconds of fitting are those the fit reports (start and passes).
What its workers computed, from their start to their end, says how far the machine's load stretched
them. The peak is the larger one of reading and fitting, of all processes, as `bench.plan` counts.
Kernels are compiled before by a fit of a few documents, which does not count.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import common, plan

#: Seconds of fitting and bytes of all processes, at most, of whole corpora on 2 cores: 20 passes
#: with 64 topics; 10 passes with 128.
TARGETS = {"nytimes": (90.0, 4 * 2**30), "pubmed": (480.0, 20 * 2**30)}


def draw_corpus(folder: str, options: argparse.Namespace, name: str, sizes: list[str]) -> str:
    """The path of a corpus that is drawn into a folder."""
    path = os.path.join(folder, f"{name}.npz")
    began = time.perf_counter()
    plan.run(
        common.python(
            "-m", "esvi_shm.simulate", *sizes, "--topics", str(options.topics), "--quiet", path
        )
    )
    print(f"{name}: drawn in {time.perf_counter() - began:.1f} s", flush=True)
    return path


def fit_command(path: str, options: argparse.Namespace, *more: str) -> list[str]:
    """The fit of a corpus; `more` are options of its own."""
    limit = [] if options.max_memory is None else ["--max-memory", options.max_memory]
    return common.python(
        "-m", "esvi_shm.fit", path, "--topics", str(options.topics), "--tol", "0",
        "--passes", str(options.passes), "--workers", str(options.workers),
        "--inference", options.inference, "--evaluate-every", "0", "--top-words", "0",
        *limit, *more,
    )  # fmt: skip


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Draw, read and fit."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        toy = draw_corpus(folder, options, "toy", ["--like", "ap", "--scale", "0.01"])
        plan.run(fit_command(toy, options, "--quiet"))
        sizes = ["--like", options.like, "--scale", str(options.scale)]
        path = draw_corpus(folder, options, options.like, sizes)
        if options.plan:
            print(plan.run(fit_command(path, options, "--plan")), end="")
            return {}
        log = Path(folder, "log")
        began = time.perf_counter()
        found = plan.watch(fit_command(path, options, "--quiet", "--log-json", str(log)), log)
        found["seconds"] = time.perf_counter() - began
        events = [json.loads(line) for line in log.read_text().splitlines()]
    summary = next(event for event in events if event["event"] == "summary")
    names = ("n_documents", "n_words", "n_pairs", "n_tokens", "fit_seconds", "pairs_per_second",
             "elbo_per_token", "config")  # fmt: skip
    found |= {name: summary[name] for name in names}
    found["read_seconds"] = next(e["seconds"] for e in events if e["event"] == "plan")
    found["peak"] = max(found["measured"], found["reading"])
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measure one corpus once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--like", default="nytimes")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--topics", type=int, default=64)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--inference", default="vb")
    parser.add_argument("--max-memory", metavar="SIZE", help="as of esvi_shm.fit")
    parser.add_argument("--folder", help="where the corpus is drawn (default: temporary)")
    parser.add_argument("--plan", action="store_true", help="draw, and only print the plan")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder to save in")
    options = parser.parse_args(arguments)
    options.docword = Path(f"{options.like}.npz")
    facts = common.machine()
    print(common.describe(facts))
    found = measure(options)
    if options.plan:
        return
    config, gib = found["config"], 2**30
    print(
        f"{found['n_documents']:,} documents, {found['n_words']:,} words, {found['n_pairs']:,} "
        f"pairs; {options.topics} topics, {options.passes} passes, {options.workers} workers, "
        f"{config['n_blocks']} blocks, storage {config['storage']}"
    )
    print(
        f"read in {found['read_seconds']:.1f} s, fitted in {found['fit_seconds']:.1f} s "
        f"({found['pairs_per_second'] / 1e6:.2f} million pairs/s; the workers computed for "
        f"{found['processor_seconds']:.1f} s), in all {found['seconds']:.1f} s"
    )
    print(
        f"peak {found['peak'] / gib:.2f} GiB: reading {found['reading'] / gib:.2f}, fitting "
        f"{found['measured'] / gib:.2f} (planned {found['planned'] / gib:.2f}), shared "
        f"{found['shared'] / gib:.2f}; ELBO a token {found['elbo_per_token']:.4f}"
    )
    if options.like in TARGETS and options.scale == 1:
        seconds, n_bytes = TARGETS[options.like]
        print("  seconds: " + common.verdict(found["fit_seconds"], seconds, at_least=False))
        print("  GiB: " + common.verdict(found["peak"] / gib, n_bytes / gib, at_least=False))
    common.save("published", options, facts, found)


if __name__ == "__main__":
    main()
