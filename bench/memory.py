"""Peak memory of a fit, all its processes together, against what it must hold.

    (peak of the fit - peak of a tiny fit) / (corpus + lambda + gamma + margins)

The peak is counted twice: as the fit reports it (shared arrays once, plus each process's own peak,
looked at once a second), and by looking at the process and its workers from outside every few
milliseconds (the largest sum of their anonymous pages, plus the shared arrays). The larger one
counts. Each fit is a process of its own, which reads the corpus and fits it. The tiny fit takes
off what the interpreters, the libraries and the compiled kernels take: it is of one document for
each worker, so that it has as many processes. The denominator is the sizes of the arrays in the
fit's layout.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench import common
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime import engine
from esvi_shm.runtime.layout import Layout

TARGET = 1.25
#: Seconds between two looks from outside.
LOOK = 0.005


def needed(layout: Layout) -> dict[str, int]:
    """Bytes of the corpus, the parameters and the margins, from the tables."""
    sizes = {"corpus": 0, "lambda": 0, "gamma": 0, "phi": 0, "other": 0}
    for label, table in layout.tables.items():
        for spec in table:
            if label == "corpus" or label.startswith("shard_"):
                kind = "corpus"
            elif spec.name.startswith("phi"):
                kind = "phi"
            elif spec.name.startswith("gamma"):
                kind = "gamma"
            else:
                kind = "lambda" if spec.name.startswith("lambda_") else "other"
            sizes[kind] += spec.n_bytes
    return sizes


def fit_once(options: argparse.Namespace) -> None:
    """The process that is measured: read, fit, print what the fit says as JSON."""
    from esvi_shm.corpus.readers import read_corpus

    corpus = read_corpus(options.docword)
    if options.tiny:
        corpus = shortened(corpus, options.workers)
    config = FitConfig(
        n_topics=options.topics, alpha=options.alpha, eta=options.eta,
        inference=options.inference, n_workers=options.workers,
        n_passes=options.passes, storage=options.storage, tol=0.0,
    )  # fmt: skip
    sizes = needed(engine.plan(corpus, config))
    result = engine.fit(corpus, config, release=True)  # as the command does
    print(
        json.dumps(
            {
                "shared": result.shared_bytes,
                "private": result.peak_private_bytes,
                "needed": sizes,
            }
        )
    )


def shortened(corpus: Corpus, n_documents: int) -> Corpus:
    """The shortest documents that have a word, with their own words as the vocabulary."""
    lengths = np.diff(corpus.indptr)
    filled = np.flatnonzero(lengths)
    chosen = filled[np.argsort(lengths[filled], kind="stable")[:n_documents]]
    matrix = corpus.as_sparse()[chosen]
    return Corpus.from_sparse(matrix[:, np.unique(matrix.indices)])


def measure(options: argparse.Namespace, tiny: bool) -> dict[str, Any]:
    """Run `fit_once` in a process of its own and look at it from outside."""
    command = common.python(
        "-m", "bench.memory", str(options.docword), f"--topics={options.topics}",
        f"--alpha={options.alpha}", f"--eta={options.eta}", f"--workers={options.workers}",
        f"--passes={options.passes}", f"--storage={options.storage}",
        f"--inference={options.inference}", "--inner",
        *(["--tiny"] if tiny else []),
    )  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watched = psutil.Process(process.pid)
    seen, moments = 0, []
    began = time.perf_counter()
    while process.poll() is None:
        now = anonymous_bytes(watched)
        moments.append((time.perf_counter() - began, now))
        seen = max(seen, now)
        time.sleep(LOOK)
    if process.returncode != 0 or process.stdout is None:
        raise RuntimeError(f"the fit ended with exit code {process.returncode}")
    found = json.loads(process.stdout.read().splitlines()[-1])
    found["private_seen"] = seen
    found["peak"] = found["shared"] + max(found["private"], seen)
    found["moments"] = moments[:: max(len(moments) // 500, 1)]
    return found


def anonymous_bytes(process: psutil.Process) -> int:
    """Anonymous pages of a process and its children, now."""
    total = 0
    try:
        for one in (process, *process.children(recursive=True)):
            for line in Path(f"/proc/{one.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) * 1024
    except (psutil.Error, OSError):
        pass  # it ended just now
    return total


def draw(figure: Any, whole: dict[str, Any], base: dict[str, Any], title: str) -> None:
    """What must be held beside what was held, and the processes' own memory over time."""
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    bottom = 0.0
    for i, (name, n_bytes) in enumerate(whole["needed"].items()):
        if name != "other":
            left.bar("must hold", n_bytes / 2**20, bottom=bottom, label=name, color=f"C{i}")
            bottom += n_bytes / 2**20
    left.bar("peak - peak of\nthe tiny fit", (whole["peak"] - base["peak"]) / 2**20, color="0.6")
    left.axhline(TARGET * bottom, color="k", lw=0.8, ls="--", label=f"{TARGET:g} times")
    left.set_ylabel("MiB")
    left.legend(fontsize=8)
    for found, name in ((whole, "the corpus"), (base, "the tiny fit")):
        seconds, values = zip(*found["moments"], strict=True)
        right.plot(seconds, [value / 2**20 for value in values], label=name)
    right.set_xlabel("seconds from the start of the process")
    right.set_ylabel("own (anonymous) memory of all processes, MiB")
    right.set_ylim(0)
    right.legend(fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.3, lw=0.5)
    figure.suptitle(title, fontsize=10)


def main(arguments: list[str] | None = None) -> None:
    """Measure the fit of the corpus and the tiny one."""
    parser = common.options_of(__doc__ or "", passes=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", default="margins")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inner:
        fit_once(options)
        return
    facts = common.machine()
    print(common.describe(facts))
    corpus = common.load(options.docword)
    options.workers = min(options.workers, corpus.n_documents)
    measure(options, tiny=True)  # compile
    base, whole = measure(options, tiny=True), measure(options, tiny=False)
    must = sum(n_bytes for name, n_bytes in whole["needed"].items() if name != "other")
    ratio = (whole["peak"] - base["peak"]) / must
    for name, n_bytes in whole["needed"].items():
        print(f"{name:<24}{n_bytes / 2**20:>10.1f} MiB")
    for name, found in (("fit of the corpus", whole), ("tiny fit", base)):
        print(
            f"{name:<24}{found['peak'] / 2**20:>10.1f} MiB: shared {found['shared'] / 2**20:.1f}, "
            f"own {found['private'] / 2**20:.1f} as reported, "
            f"{found['private_seen'] / 2**20:.1f} as seen"
        )
    print(f"(peak - the tiny fit's) / (corpus + lambda + gamma + phi): {ratio:.3f}")
    print("  " + common.verdict(ratio, TARGET, at_least=False))
    title = (
        f"{common.corpus_name(options.docword)}, {options.topics} topics, "
        f"{options.workers} workers, {options.storage}: {ratio:.2f} times what must be held"
    )
    results = {"ratio": ratio, "must_hold": must, "corpus": whole, "tiny": base}
    common.save(
        "memory", options, facts, results, lambda f: draw(f, whole, base, title), size=(9.0, 4.5)
    )


if __name__ == "__main__":
    main()
