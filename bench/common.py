"""What all benchmarks share: options, the corpus or the reason to skip, statistics, output.

A benchmark prints what it finds, and saves it as JSON, with a figure where matplotlib is there.
Nothing here measures anything.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import esvi_shm
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.readers import read_corpus
from esvi_shm.errors import CorpusError

PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "gensim", "tomotopy")


def options_of(doc: str, passes: int | None = None) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark of a corpus; `doc` is the module's."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("docword", type=Path, help="a corpus in any format that the package reads")
    parser.add_argument("--topics", type=int, default=128)
    parser.add_argument("--alpha", type=float, default=0.1, help="prior of each topic")
    parser.add_argument("--eta", type=float, default=0.01, help="prior of each word")
    parser.add_argument("--inference", default="vb", help="of esvi_shm; the peers' is vb")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder to save in")
    if passes is not None:
        parser.add_argument("--passes", type=int, default=passes)
    return parser


def skip(reason: str) -> None:
    """End the benchmark, saying why it does not run."""
    print(f"skipped: {reason}")
    raise SystemExit(0)


def load(path: Path) -> Corpus:
    """The corpus; ends the benchmark with the reason where there is none."""
    try:
        corpus = read_corpus(path)
    except CorpusError as error:
        if path.exists():
            raise
        skip(str(error))
    print(f"{path.name}: {corpus.n_documents} documents, {corpus.n_words} words, ", end="")
    print(f"{corpus.n_pairs} pairs, {corpus.n_tokens} tokens")
    return corpus


def corpus_name(path: Path) -> str:
    """`nips` of `docword.nips.txt.gz`."""
    return path.name.removeprefix("docword.").split(".")[0]


def has(package: str) -> bool:
    """Whether an optional package is there; says so where it is not."""
    if importlib.util.find_spec(package) is None:
        print(f"left out: {package} is not installed (pip install esvi_shm[bench])")
        return False
    return True


def machine() -> dict[str, Any]:
    """Date, processor, cores and versions, as they go into every result."""
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            break
    versions = {"esvi_shm": esvi_shm.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.date.today().isoformat(),
        "processor": name,
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "load_at_start": round(os.getloadavg()[0], 2),
        "versions": versions,
    }


def describe(facts: dict[str, Any]) -> str:
    """The facts of `machine` in a line."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"{facts['date']}, {facts['processor']}, {facts['cores']} cores, {facts['system']}, "
        f"load {facts['load_at_start']}; {versions}"
    )


def median(values: Sequence[float]) -> float:
    """The median, as a plain float."""
    return float(statistics.median(values))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error; nan for the error of a single value.

    >>> mean_and_error([1.0, 2.0, 3.0])[0]
    2.0
    """
    error = math.nan
    if len(values) > 1:
        error = statistics.stdev(values) / math.sqrt(len(values))
    return float(statistics.mean(values)), error


def verdict(value: float, target: float, at_least: bool = True) -> str:
    """How a figure stands against its target."""
    met = value >= target if at_least else value <= target
    return f"target {'>=' if at_least else '<='} {target:g}: {'met' if met else 'NOT met'}"


def save(
    name: str,
    options: argparse.Namespace,
    facts: dict[str, Any],
    results: dict[str, Any],
    draw: Callable[[Any], None] | None = None,
    size: tuple[float, float] = (7.0, 4.5),
) -> None:
    """Write NAME-CORPUS.json, and NAME-CORPUS.png as `draw` paints it on a matplotlib figure."""
    stem = f"{name}-{corpus_name(options.docword)}"
    options.out.mkdir(parents=True, exist_ok=True)
    saved = {
        "benchmark": name,
        "options": {key: str(v) if isinstance(v, Path) else v for key, v in vars(options).items()},
        "machine": facts,
        "results": results,
    }
    path = options.out / f"{stem}.json"
    path.write_text(json.dumps(saved, indent=1) + "\n")
    print(f"saved {path}")
    if draw is not None:
        paint(options.out / f"{stem}.png", facts, draw, size)


def paint(
    path: Path, facts: dict[str, Any], draw: Callable[[Any], None], size: tuple[float, float]
) -> None:
    """Save what `draw` paints on a matplotlib figure of so many inches, where matplotlib is."""
    if not has("matplotlib"):
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=size, layout="constrained")
    line = 0.16 / size[1]  # room for the line below, so that it touches no label
    figure.get_layout_engine().set(rect=(0, line, 1, 1 - line))
    draw(figure)
    made = f"{facts['processor']}, {facts['cores']} cores, {facts['date']}"
    figure.text(0.995, 0.005, made, size=6, color="0.4", ha="right", va="bottom")
    figure.savefig(path, dpi=150)
    print(f"saved {path}")


def python(*arguments: str) -> list[str]:
    """A command of this interpreter."""
    return [sys.executable, *arguments]
