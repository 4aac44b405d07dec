"""P workers against P runs of one worker side by side; and the bound at equal passes.

*Speed.* The workers of one fit share memory bandwidth and caches; so do one-worker fits of the
same corpus that run at the same time, but these need not wait for one another. Their pairs a
second, summed, are what the cores can do; the workers are held against that, in turn, several
times. The clock is the passes' alone; the fits side by side begin their passes together.

*Quality.* From the same start (same seed, same blocks) one and two workers make the same passes;
their ELBO differ only by the order in which the blocks met the documents. Differences are paired
by seed.
"""

import argparse
import multiprocessing
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np

from bench import common
from esvi_shm.config import FitConfig
from esvi_shm.corpus.readers import read_corpus
from esvi_shm.runtime import engine
from esvi_shm.runtime.record import Observer

TARGET = 0.9


class _Together(Observer):
    """Holds a fit at the door of its passes until all are there."""

    def __init__(self, barrier: Barrier) -> None:
        self.barrier = barrier

    def stage(self, name: str) -> None:
        if name == "passes":
            self.barrier.wait()


def _run(path: Any, config: FitConfig, barrier: Barrier, answers: Any) -> None:
    """One fit in a process of its own; answers pairs a second of its passes."""
    result = engine.fit(read_corpus(path), config, _Together(barrier))
    answers.put(result.work / result.pass_seconds)


def rate(options: argparse.Namespace, n_fits: int, n_workers: int) -> float:
    """Pairs a second of all of `n_fits` fits at once, each of `n_workers` workers."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(n_fits), context.Queue()
    config = configure(
        options,
        n_workers,
        n_passes=options.passes,
        n_blocks=options.blocks if n_workers > 1 else None,
    )
    fits = [
        context.Process(target=_run, args=(options.docword, config, barrier, answers))
        for _ in range(n_fits)
    ]
    for process in fits:
        process.start()
    rates = [answers.get(timeout=600) for _ in fits]
    for process in fits:
        process.join()
    return sum(rates)


def configure(options: argparse.Namespace, n_workers: int, **more: Any) -> FitConfig:
    """The configuration of a fit; blocks as the package would choose unless given."""
    return FitConfig(
        n_topics=options.topics, alpha=options.alpha, eta=options.eta,
        inference=options.inference, storage=options.storage, axis=options.axis, tol=0.0,
        evaluate_every=0, n_workers=n_workers, **more,
    )  # fmt: skip


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Rates of one worker, P workers, and P fits side by side, in turn, for each P."""
    numbers = options.workers
    together: dict[int, list[float]] = {n: [] for n in (1, *numbers)}
    apart: dict[int, list[float]] = {n: [] for n in numbers}
    for _ in range(options.repeats):
        together[1].append(rate(options, 1, 1))
        for n in numbers:
            together[n].append(rate(options, 1, n))
            apart[n].append(rate(options, n, 1))
    ratios = {
        n: common.median([a / b for a, b in zip(together[n], apart[n], strict=True)])
        for n in numbers
    }
    return {
        "workers": numbers,
        "pairs_per_second": {"one_fit": together, "side_by_side": apart},
        "of_side_by_side": ratios,
        "of_one": {n: common.median(together[n]) / common.median(together[1]) for n in numbers},
    }


def quality(options: argparse.Namespace) -> dict[str, Any]:
    """ELBO per token by passes, for one and two workers, and the paired differences."""
    corpus = read_corpus(options.docword)
    blocks = min(16, corpus.n_words)
    curves: dict[int, list[list[float]]] = {1: [], 2: []}
    passes: list[float] = []
    for seed in range(options.seeds):
        for workers, found in curves.items():
            config = FitConfig(
                n_topics=options.topics, alpha=options.alpha, eta=options.eta,
                inference=options.inference, storage=options.storage, axis=options.axis, tol=0.0,
                n_workers=workers, n_blocks=blocks, n_passes=options.passes, seed=seed,
                evaluate_every=max(options.passes // 20, 1),
            )  # fmt: skip
            history = engine.fit(corpus, config).history
            found.append([record.elbo / corpus.n_tokens for record in history])
            passes = [record.passes for record in history]
    one, two = np.array(curves[1]), np.array(curves[2])
    errors = [common.mean_and_error(column) for column in (two - one).T.tolist()]
    return {
        "blocks": blocks,
        "passes": passes,
        "elbo": {str(workers): found for workers, found in curves.items()},
        "difference": [mean for mean, _ in errors],
        "standard_error": [error for _, error in errors],
        "spread_over_seeds": float(one[:, -1].std(ddof=1)) if len(one) > 1 else 0.0,
    }


def draw(figure: Any, speeds: dict[str, Any], bounds: dict[str, Any], title: str) -> None:
    """Rates on the left, paired differences on the right."""
    left, right = figure.subplots(1, 2)
    rates = speeds["pairs_per_second"]
    shown = {"side_by_side": ("C7", "fits of one worker side by side"),
             "one_fit": ("C0", "workers of one fit")}  # fmt: skip
    for name, (color, label) in shown.items():
        curve = {n: [v / 1e6 for v in values] for n, values in rates[name].items()}
        if name == "side_by_side":
            curve = {1: [v / 1e6 for v in rates["one_fit"][1]], **curve}
        left.plot(list(curve), [common.median(v) for v in curve.values()], "o-", color=color,
                  label=label)  # fmt: skip
        for n, values in curve.items():
            left.plot([n] * len(values), values, "_", ms=9, color=color)
    for n, ratio in speeds["of_side_by_side"].items():
        top = common.median(rates["one_fit"][n]) / 1e6
        left.annotate(f"{ratio:.2f}", (n, top), (0, -14), textcoords="offset points", ha="center")
    left.set_xlabel("workers, or fits")
    left.set_xticks([1, *speeds["workers"]])
    left.set_ylim(bottom=0)
    left.set_ylabel("million pairs a second, all together")
    left.legend(fontsize=8, loc="lower right")
    left.grid(alpha=0.3, lw=0.5)
    one, two = (np.array(bounds["elbo"][workers]) for workers in "12")
    for difference in two - one:
        right.plot(bounds["passes"], difference, color="0.75", lw=0.8)
    right.errorbar(bounds["passes"], bounds["difference"], bounds["standard_error"], fmt="o-",
                   ms=3, color="C1", capsize=2, label="mean and its standard error")  # fmt: skip
    right.axhline(0.0, color="k", lw=0.6)
    right.set_xlabel("passes")
    right.set_ylabel("ELBO of two workers minus one, nats per token")
    right.set_title(f"same start, {len(one)} seeds (grey)", fontsize=9)
    right.grid(alpha=0.3, lw=0.5)
    right.legend(fontsize=8)
    figure.suptitle(title, fontsize=10)


def main(arguments: list[str] | None = None) -> None:
    """Measure both."""
    parser = common.options_of(__doc__ or "", passes=60)
    parser.add_argument("--seeds", type=int, default=5, help="of the paired differences")
    parser.add_argument("--repeats", type=int, default=5, help="of the rates")
    parser.add_argument("--blocks", type=int, help="of the workers whose rate is taken")
    parser.add_argument("--storage", default="margins")
    parser.add_argument("--axis", default="words", help="words or topics (with --storage full)")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="numbers of workers")
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: a standard error needs two")
    facts = common.machine()
    print(common.describe(facts))
    common.load(options.docword)
    if facts["cores"] < max(options.workers):
        common.skip(f"{max(options.workers)} workers need as many cores")
    speeds = speed(options)
    for kind, of_kind in speeds["pairs_per_second"].items():
        for n, values in of_kind.items():
            listed = ", ".join(f"{value / 1e6:.2f}" for value in values)
            name = f"{n} workers" if kind == "one_fit" else f"{n} fits of one worker"
            median = common.median(values) / 1e6
            print(f"{name:<24}{median:>8.2f} million pairs/s ({listed})")
    for n, ratio in speeds["of_side_by_side"].items():
        print(f"{n} workers: {speeds['of_one'][n]:.2f} times one; {ratio:.3f} of {n} fits")
        print("  " + common.verdict(ratio, TARGET))
    bounds = quality(options)
    last, error = bounds["difference"][-1], bounds["standard_error"][-1]
    print(
        f"ELBO a token after {options.passes} passes, two workers minus one, {options.seeds} "
        f"seeds: {last:+.5f} +- {error:.5f} "
        f"(the seeds themselves: sd {bounds['spread_over_seeds']:.5f})"
    )
    title = f"{common.corpus_name(options.docword)}, {options.topics} topics"
    common.save(
        "scaling", options, facts, {"speed": speeds, "quality": bounds},
        lambda f: draw(f, speeds, bounds, title), size=(9.0, 4.5),
    )  # fmt: skip


if __name__ == "__main__":
    main()
