"""Nanoseconds a pair of a settled pass of the visit kernel, in one process.

`SerialFit` runs the family's real kernels on one shard, without worker processes and rings. After
`--warm` passes, single passes are timed, the variants taking turns: storages, with and without the
entropy that the bound needs. Compilation and the start are not counted. From 512 topics on passes
after the 20th are over active sets, where those cost less.
"""

import argparse
import time
from typing import Any

from bench import common
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime.serial import SerialFit

STORAGES = ("margins", "full", "sparse")


def time_pass(fit: SerialFit, want_entropy: bool) -> float:
    """Seconds of one pass."""
    began = time.perf_counter()
    for block in range(fit.sizes.n_blocks):
        fit.visit(0, block, want_entropy)
    return time.perf_counter() - began


def measure(corpus: Corpus, options: argparse.Namespace, n_blocks: int) -> list[dict[str, Any]]:
    """Every variant at one number of blocks, their passes in turn."""
    fits = {}
    for storage in options.storages:
        config = FitConfig(
            n_topics=options.topics, alpha=options.alpha, eta=options.eta,
            inference=options.inference, storage=storage,
            n_workers=1, n_blocks=min(n_blocks, corpus.n_words),
        )  # fmt: skip
        fits[storage] = SerialFit(corpus, config)
        for _ in range(options.warm):
            fits[storage].run_pass()
    seconds: dict[tuple[str, bool], list[float]] = {
        (storage, entropy): [] for storage in fits for entropy in (False, True)
    }
    for _ in range(options.repeats):
        for (storage, entropy), taken in seconds.items():
            taken.append(time_pass(fits[storage], entropy))
    rows = []
    for (storage, entropy), taken in seconds.items():
        per_pair = [1e9 * s / corpus.n_pairs for s in taken]
        rows.append(
            {
                "blocks": fits[storage].sizes.n_blocks,
                "storage": storage,
                "entropy": entropy,
                "ns_per_pair": common.median(per_pair),
                "ns_per_pair_min": min(per_pair),
                "ns_per_pair_and_topic": common.median(per_pair) / options.topics,
                "pairs_per_second": 1e9 / common.median(per_pair),
            }
        )
    return rows


def draw(figure: Any, rows: list[dict[str, Any]], title: str) -> None:
    """Bars, or curves over the number of blocks where there are several."""
    axes = figure.subplots()
    blocks = sorted({row["blocks"] for row in rows})
    variants = list(dict.fromkeys((row["storage"], row["entropy"]) for row in rows))
    names = [s + (",\nwith entropy" if entropy else "") for s, entropy in variants]
    values = [[r for r in rows if (r["storage"], r["entropy"]) == variant] for variant in variants]
    if len(blocks) == 1:
        bars = axes.bar(names, [v[0]["ns_per_pair"] for v in values], color="C0", width=0.6)
        axes.bar_label(bars, fmt="%.1f")
        axes.scatter(names, [v[0]["ns_per_pair_min"] for v in values], color="k", marker="_",
                     zorder=3, label="fastest pass")  # fmt: skip
    else:
        for name, several, (storage, entropy) in zip(names, values, variants, strict=True):
            axes.plot([r["blocks"] for r in several], [r["ns_per_pair"] for r in several],
                      "o--" if entropy else "o-", color=f"C{STORAGES.index(storage)}",
                      label=name)  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xticks(blocks, [str(b) for b in blocks])
        axes.set_xlabel("blocks")
    axes.set_ylim(0)
    axes.set_ylabel("ns per pair, median pass")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, axis="y", lw=0.5)
    axes.legend()


def main(arguments: list[str] | None = None) -> None:
    """Measure every number of blocks."""
    parser = common.options_of(__doc__ or "")
    parser.add_argument("--blocks", type=int, nargs="+", default=[8])
    parser.add_argument("--storages", nargs="+", default=list(STORAGES[:2]), choices=STORAGES)
    parser.add_argument("--warm", type=int, default=10, help="passes before the clock runs")
    parser.add_argument("--repeats", type=int, default=9, help="timed passes of each variant")
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    corpus = common.load(options.docword)
    rows = []
    print(
        f"{'blocks':>7} {'storage':<9}{'entropy':<9}{'ns a pair':>10}{'fastest':>9}{'a topic':>9}"
    )
    for n_blocks in options.blocks:
        for row in measure(corpus, options, n_blocks):
            rows.append(row)
            print(
                f"{row['blocks']:>7} {row['storage']:<9}{'yes' if row['entropy'] else 'no':<9}"
                f"{row['ns_per_pair']:>10.1f}{row['ns_per_pair_min']:>9.1f}"
                f"{row['ns_per_pair_and_topic']:>9.3f}"
            )
    title = f"{common.corpus_name(options.docword)}, {options.topics} topics: one core, vb"
    common.save("kernel", options, facts, {"rows": rows}, lambda f: draw(f, rows, title))


if __name__ == "__main__":
    main()
