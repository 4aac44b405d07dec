"""ELBO against seconds: esvi_shm, scikit-learn and gensim on one corpus.

The same corpus, priors and cores for all (peers: one job, BLAS with one thread), one after the
other in turn, `--repeats` times, repeat r with seed r. Counted as seconds of fitting:

    esvi_shm      the fit's clock: its start and its passes, once its workers are ready; starting
                  processes, loading compiled kernels and the final bound are told apart (`wall`)
    scikit-learn  its iterations alone
    gensim        its training, on a corpus already in its own form

Each point of esvi_shm is a fit of its own with that many passes. All states are scored by
`score.elbo`. The peers' gamma is inferred by their own code and then iterated to its fixed point,
outside the clock, which can only raise their bound; esvi_shm's gamma is taken as it is.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bench import common, peers, score
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime import engine

PASSES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
SPEED_TARGET = 50.0
#: ELBO per token after 100 passes at 128 topics, alpha = 0.1, eta = 0.01.
QUALITY_TARGETS = {"ap": -8.19, "nips": -7.39}


class Point(NamedTuple):
    """One state, scored: ELBO in nats per token."""

    steps: int
    seconds: float
    elbo: float
    wall: float


def fit_points(
    corpus: Corpus, options: argparse.Namespace, seed: int, passes: list[int]
) -> list[Point]:
    """A fit of each number of passes, scored."""
    points = []
    for n in passes:
        config = FitConfig(
            n_topics=options.topics, alpha=options.alpha, eta=options.eta,
            inference=options.inference, n_passes=n, tol=0.0,
            n_workers=options.workers, evaluate_every=0, seed=seed,
        )  # fmt: skip
        began = time.perf_counter()
        result = engine.fit(corpus, config)
        wall = time.perf_counter() - began
        lambda_ = np.empty_like(result.learned.lambda_rows)
        lambda_[result.learned.word_ids] = result.learned.lambda_rows
        gamma = np.concatenate(result.learned.of_units)
        elbo = score.elbo(corpus, gamma, lambda_, options.alpha, options.eta) / corpus.n_tokens
        own = result.history[-1].elbo / corpus.n_tokens
        if abs(elbo - own) > 1e-5 * abs(elbo):
            raise RuntimeError(f"the fit says {own}, the scorer {elbo} after {n} passes")
        points.append(Point(n, result.fit_seconds, elbo, wall))
    return points


def peer_points(
    states: Iterator[peers.State], corpus: Corpus, options: argparse.Namespace
) -> list[Point]:
    """The states of a peer, scored with gamma at its fixed point."""
    points = []
    for state in states:
        gamma = score.settle_documents(corpus, state.gamma, state.lambda_, options.alpha)
        elbo = score.elbo(corpus, gamma, state.lambda_, options.alpha, options.eta)
        points.append(Point(state.steps, state.seconds, elbo / corpus.n_tokens, state.seconds))
    return points


def systems(corpus: Corpus, options: argparse.Namespace) -> dict[str, Callable[[int], list[Point]]]:
    """What is compared: for each system, seed -> points."""
    priors = (options.topics, options.alpha, options.eta)
    passes = [n for n in PASSES if n < options.passes] + [options.passes]

    def scikit_learn(seed: int) -> list[Point]:
        states = peers.scikit_learn(corpus, *priors, seed, range(1, options.iterations + 1))
        return peer_points(states, corpus, options)

    def gensim(seed: int) -> list[Point]:
        at = range(1, options.gensim_passes + 1)
        states = peers.gensim(corpus, *priors, seed, at, options.chunk)
        return peer_points(states, corpus, options)

    compared: dict[str, Callable[[int], list[Point]]] = {
        "esvi_shm": lambda seed: fit_points(corpus, options, seed, passes),
        "scikit-learn": scikit_learn,
    }
    if common.has("gensim"):
        compared["gensim"] = gensim
    return compared


def speed(ours: list[list[Point]], theirs: list[list[Point]]) -> dict[str, Any]:
    """Seconds to pass the last ELBO of a peer, repeat by repeat; None where it is not passed."""
    rows = []
    for our, their in zip(ours, theirs, strict=True):
        goal = their[-1]
        passing = next((point for point in our if point.elbo >= goal.elbo), None)
        if passing is None:
            return {"passed": False, "peer_elbo": goal.elbo}
        rows.append((passing, goal))
    return {
        "passed": True,
        "passes": common.median([our.steps for our, _ in rows]),
        "seconds": common.median([our.seconds for our, _ in rows]),
        "wall": common.median([our.wall for our, _ in rows]),
        "peer_seconds": common.median([their.seconds for _, their in rows]),
        "peer_elbo": common.median([their.elbo for _, their in rows]),
        "ratio": common.median([their.seconds / our.seconds for our, their in rows]),
        "ratio_wall": common.median([their.seconds / our.wall for our, their in rows]),
    }


def medians(runs: list[list[Point]]) -> list[Point]:
    """The medians of several runs, step by step."""
    return [
        Point(
            same[0].steps,
            *(common.median([getattr(p, field) for p in same]) for field in Point._fields[1:]),
        )
        for same in zip(*runs, strict=True)
    ]


def report(name: str, points: list[Point]) -> None:
    """Print a system's table."""
    print(f"\n{name:<14}{'steps':>6}{'seconds':>10}{'ELBO a token':>15}")
    for point in points:
        print(f"{'':<14}{point.steps:>6}{point.seconds:>10.3f}{point.elbo:>15.4f}")


def draw(figure: Any, curves: dict[str, list[Point]], title: str, quality: float | None) -> None:
    """ELBO per token against seconds of fitting."""
    from matplotlib.ticker import LogLocator

    axes = figure.subplots()
    for (name, points), marker in zip(curves.items(), "osD", strict=False):
        axes.plot([p.seconds for p in points], [p.elbo for p in points], marker + "-", label=name,
                  markersize=4)  # fmt: skip
    goal = curves["scikit-learn"][-1]
    axes.axhline(goal.elbo, color="0.6", lw=0.8, ls="--")
    axes.annotate(f"scikit-learn after {goal.steps} iterations", (0.3, goal.elbo), va="bottom",
                  xycoords=axes.get_yaxis_transform(), fontsize=7, color="0.4")  # fmt: skip
    if quality is not None:
        axes.axhline(quality, color="0.6", lw=0.8, ls=":")
        axes.annotate("target after 100 passes", (0.01, quality), va="bottom", fontsize=7,
                      xycoords=axes.get_yaxis_transform(), color="0.4")  # fmt: skip
    best = max(p.elbo for points in curves.values() for p in points)
    # A first iteration far below would hide what matters.
    axes.set_ylim(min(goal.elbo, curves["esvi_shm"][0].elbo) - 1.0, best + 0.1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("seconds of fitting (log scale)")
    axes.set_ylabel("ELBO, nats per token")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, which="both", lw=0.5)
    axes.legend(loc="lower right")


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison."""
    parser = common.options_of(__doc__ or "", passes=100)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5, help="fits for the median of the ELBO")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each system, in turn")
    parser.add_argument("--iterations", type=int, default=10, help="of scikit-learn")
    parser.add_argument("--gensim-passes", type=int, default=10)
    parser.add_argument("--chunk", type=int, default=2000, help="documents an update of gensim")
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    corpus = common.load(options.docword)

    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        compared = systems(corpus, options)
        fit_points(corpus, options, 0, [1])  # compile, and warm the caches
        runs: dict[str, list[list[Point]]] = {name: [] for name in compared}
        for seed in range(options.repeats):
            for name, run in compared.items():
                runs[name].append(run(seed))
                last = runs[name][-1][-1]
                print(f"  {name}, seed {seed}: {last.seconds:.2f} s, {last.elbo:.4f}", flush=True)
        final = [points[-1].elbo for points in runs["esvi_shm"]][: options.seeds]
        for seed in range(len(final), options.seeds):
            final.append(fit_points(corpus, options, seed, [options.passes])[-1].elbo)

    curves = {name: medians(several) for name, several in runs.items()}
    for name, points in curves.items():
        report(name, points)
    results: dict[str, Any] = {
        "curves": {name: [p._asdict() for p in points] for name, points in curves.items()},
        "runs": {
            name: [[p._asdict() for p in points] for points in several]
            for name, several in runs.items()
        },
        "final_elbo": final,
        "final_elbo_median": common.median(final),
    }
    print()
    for name in curves:
        if name == "esvi_shm":
            continue
        found = results[f"against {name}"] = speed(runs["esvi_shm"], runs[name])
        if not found["passed"]:
            print(f"esvi_shm does not pass {name}'s {found['peer_elbo']:.4f}")
            continue
        print(
            f"passes {name}'s last {found['peer_elbo']:.4f} ({found['peer_seconds']:.2f} s) in "
            f"{found['seconds']:.3f} s ({found['passes']:g} passes): {found['ratio']:.0f} times "
            f"sooner; with its processes started, {found['wall']:.2f} s, "
            f"{found['ratio_wall']:.1f} times"
        )
        if name == "scikit-learn":
            print("  " + common.verdict(found["ratio"], SPEED_TARGET))
    middle = results["final_elbo_median"]
    print(f"ELBO after {options.passes} passes, {len(final)} seeds: median {middle:.4f}, ", end="")
    print(f"from {min(final):.4f} to {max(final):.4f}")
    standard = (options.topics, options.alpha, options.eta, options.passes) == (128, 0.1, 0.01, 100)
    quality = QUALITY_TARGETS.get(common.corpus_name(options.docword)) if standard else None
    if quality is not None:
        print("  " + common.verdict(middle, quality))
    title = (
        f"{common.corpus_name(options.docword)}, {options.topics} topics, alpha "
        f"{options.alpha:g}, eta {options.eta:g}, {options.workers} worker(s) against one job; "
        f"medians of {options.repeats}"
    )
    common.save("lda", options, facts, results, lambda f: draw(f, curves, title, quality))


if __name__ == "__main__":
    main()
