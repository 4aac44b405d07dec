"""Cost of a pair against the number of topics: all topics, active sets alone, these by lists.

For each number of topics three fits of one core in this process (`SerialFit`: the family's real
kernels, without worker processes) make the same passes from the same start. After `--dense` passes
two of them go over to active sets: with storage margins, and with sparse. From `--warm` passes on
passes are timed, by the time of the processor, the three taking turns of `--turn` passes; the first
of a turn is not counted: it finds the caches full of other arrays. Compilation, start and
evaluations are not counted either. The bounds are taken at equal passes at the end.
"""

import argparse
import time
from typing import Any

from bench import common
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime.serial import SerialFit

#: Nanoseconds a pair at these numbers of topics over those at --topics, at most.
TARGETS = {1024: 1.5, 8192: 3.0}


#: Ways, with the storage of each; the first one goes on with all topics.
WAYS = {"all topics": "margins", "active sets": "margins", "lists": "sparse"}


def measure(corpus: Corpus, options: argparse.Namespace, n_topics: int) -> dict[str, Any]:
    """All ways at one number of topics, some passes of each in turn."""
    fits: dict[str, SerialFit] = {}
    taken: dict[str, list[float]] = {}
    for name, storage in WAYS.items():
        config = FitConfig(
            n_topics=n_topics, alpha=options.alpha, eta=options.eta, inference=options.inference,
            n_passes=options.passes, noise=options.noise, storage=storage,
            dense_passes=options.passes if name == "all topics" else options.dense,
            n_workers=1, n_blocks=options.blocks,
        )  # fmt: skip
        fits[name], taken[name] = SerialFit(corpus, config), []
    for first in range(0, options.passes, options.turn):
        for name, fit in fits.items():
            for n in range(first, min(first + options.turn, options.passes)):
                last = n == options.passes - 1  # the bound needs the entropy
                began = time.thread_time()  # the core's, whatever else it is given to
                for block in range(fit.sizes.n_blocks):
                    fit.visit(0, block, last)
                if n >= options.warm and n > first and not last:
                    taken[name].append(time.thread_time() - began)
                fit.passes += 1
    found: dict[str, Any] = {"topics": n_topics}
    for name, fit in fits.items():
        found[name] = {
            "ns_per_pair": common.median(taken[name]) / corpus.n_pairs * 1e9,
            "ns_per_pair_all": [seconds / corpus.n_pairs * 1e9 for seconds in taken[name]],
            "elbo_per_token": fit.bound().elbo / corpus.n_tokens,
        }
    return found


def draw(figure: Any, rows: list[dict[str, Any]], title: str) -> None:
    """Nanoseconds a pair on the left, the bound on the right, both over the number of topics."""
    left, right = figure.subplots(1, 2)
    topics = [row["topics"] for row in rows]
    for name, color in zip(WAYS, ("C7", "C0", "C1"), strict=True):
        for axes, what in ((left, "ns_per_pair"), (right, "elbo_per_token")):
            axes.plot(topics, [row[name][what] for row in rows], "o-", color=color, label=name)
    left.set_yscale("log")
    left.set_ylabel("ns per pair, median pass")
    right.set_ylabel("ELBO per token, nats")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(topics, [str(n) for n in topics])
        axes.set_xlabel("topics")
        axes.grid(alpha=0.3, lw=0.5, which="both")
    left.legend()
    figure.suptitle(title, fontsize=10)


def main(arguments: list[str] | None = None) -> None:
    """Measure every number of topics."""
    parser = common.options_of(__doc__ or "", passes=30)
    parser.add_argument(
        "--many", type=int, nargs="+", default=[256, 512, 1024], help="more numbers of topics"
    )
    parser.add_argument("--dense", type=int, default=10, help="passes of all topics at first")
    parser.add_argument("--warm", type=int, default=20, help="passes before the clock runs")
    parser.add_argument("--turn", type=int, default=5, help="passes of a fit before the next one")
    parser.add_argument("--noise", type=float, default=0.01, help="which breaks ties at the start")
    parser.add_argument("--blocks", type=int, default=8)
    options = parser.parse_args(arguments)
    if options.passes < options.warm + 2:
        parser.error("--passes must be at least 2 more than --warm")
    facts = common.machine()
    print(common.describe(facts))
    corpus = common.load(options.docword)
    options.blocks = min(options.blocks, corpus.n_words)
    rows = []
    print(f"{'topics':>7}{'':>14}{'ns a pair':>11}{'ELBO a token':>14}{'tokens/s, millions':>20}")
    for n_topics in (options.topics, *options.many):
        rows.append(measure(corpus, options, n_topics))
        for name in WAYS:
            one = rows[-1][name]
            rate = corpus.n_tokens / corpus.n_pairs / one["ns_per_pair"] * 1e3
            print(
                f"{n_topics:>7}{name:>14}{one['ns_per_pair']:>11.1f}"
                f"{one['elbo_per_token']:>14.4f}{rate:>20.1f}"
            )
    base = min(rows[0][name]["ns_per_pair"] for name in WAYS)
    for row in rows:
        if row["topics"] in TARGETS:
            ratios = {name: row[name]["ns_per_pair"] / base for name in WAYS}
            told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
            print(f"{row['topics']} topics over {options.topics}: {told}")
            least = min(ratios.values())
            print("  " + common.verdict(least, TARGETS[row["topics"]], at_least=False))
    title = f"{common.corpus_name(options.docword)}: one core, {options.inference}"
    common.save(
        "scale", options, facts, {"rows": rows}, lambda f: draw(f, rows, title), size=(9.0, 4.5)
    )


if __name__ == "__main__":
    main()
