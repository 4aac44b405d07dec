"""What a cluster would do: the protocol's own code on modelled machines, `python -m bench.cluster`.

    python -m bench.cluster --shape umbc --nodes 1 2 4 8 16 32 --workers 16

Nodes decide by the real `transports.protocol`; workers, home's processor and the wire take the time
that the options say (see `bench.cluster_model`), on a corpus of a published shape (see
`bench.cluster_shape`). Nothing of it is measured here. The defaults were, on the machine of
RESULTS.md: `bench.kernel` for visits, `bench.wire` for frames and bytes.

Of each number of nodes: pairs a second from rest to rest, for blocks go at their own pace and the
last one is waited for (those of the middle half of the visits are saved as `settled`); the speed-up
over the first number of nodes; and how much of the time four things are busy: the workers, the
slowest block (which one worker after another has), home's processor, and a node's wire. The
busiest of them is what limits. Then, at `--vary-at` nodes, one thing is varied at a time.
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import common
from bench.cluster_model import Costs, simulate
from bench.cluster_shape import Visit, load_of, shape_of
from esvi_shm.simulate import LIKE

#: What may be busy, as printed.
LIMITS = ("workers", "slowest block", "home", "wire")
#: One at a time: the option, and what it is multiplied by.
VARIED = [
    ("blocks_per_worker", 0.5),
    ("blocks_per_worker", 2),
    ("bandwidth", 0.1),
    ("bandwidth", 10),
    ("latency", 100),
    ("topics", 0.25),
    ("topics", 4),
    ("home", 0.1),
    ("most_common", 0.25),
]


def run(options: argparse.Namespace, n_nodes: int, **changes: float) -> dict[str, Any]:
    """What is found at so many nodes, with some options multiplied."""
    given = argparse.Namespace(**vars(options))
    for name, factor in changes.items():
        for changed in ("look", "frame", "byte", "packing") if name == "home" else (name,):
            value = getattr(given, changed)
            setattr(given, changed, type(value)(value * factor))
    costs = Costs(**{name: getattr(given, name) for name in Costs.__dataclass_fields__})
    visit = Visit(
        given.ns_pair, given.ns_word, given.ns_document, given.topics,
        given.word_topics if given.rows == "packed" else 0.0,
    )  # fmt: skip
    shape = shape_of(given.shape, given.most_common, given.scale)
    n_blocks = given.blocks or min(
        round(given.blocks_per_worker * given.workers * n_nodes), shape.words
    )
    load = load_of(shape, visit, n_blocks, n_nodes, given.workers, given.passes)
    began = time.process_time()
    found: dict[str, Any] = simulate(load, n_nodes, given.workers, given.passes, costs, given.seed)
    busy = [found["efficiency"], load.longest * found["efficiency"], found["home"], found["wire"]]
    found |= {
        "nodes": n_nodes,
        "blocks": n_blocks,
        "slowest_block": min(busy[1], 1.0),
        "limit": LIMITS[busy.index(max(busy))],
        "margins": load.margins,
        "packed": 1 / load.dense_by_wire,
        "visit_ns_a_pair": 1e9 * sum(load.seconds) / sum(load.pairs),
        "simulated_in": time.process_time() - began,
        "options": {"shape": asdict(shape), "visit": asdict(visit), "costs": asdict(costs)},
    }
    return found


def show(found: dict[str, Any], first: dict[str, Any]) -> None:
    """A line of the table."""
    print(
        f"{found['nodes']:>5}{found['blocks']:>7}{found['pairs_per_second'] / 1e6:>9.1f}"
        f"{found['pairs_per_second'] / first['pairs_per_second']:>8.2f}{found['efficiency']:>8.2f}"
        f"{found['slowest_block']:>7.2f}{found['home']:>6.2f}{found['wire']:>6.2f}"
        f"{found['bytes'] / 1e6:>8.1f}{1e3 * found['age']:>7.1f}{found['unseen']:>8.4f}"
        f"{found['margins'] / 2**30:>8.1f}{found['simulated_in']:>6.0f}  {found['limit']}",
        flush=True,
    )


def draw(figure: Any, results: dict[str, Any], title: str) -> None:
    """Speed-up, what is busy, and what one option changes."""
    rows = results["nodes"]
    nodes = [row["nodes"] for row in rows]
    left, middle, right = figure.subplots(1, 3)
    first = rows[0]
    rates = [row["pairs_per_second"] / first["pairs_per_second"] for row in rows]
    left.loglog(nodes, rates, "o-", label="modelled")
    left.loglog(nodes, [n / nodes[0] for n in nodes], "k--", lw=0.8, label="ideal")
    left.set_ylabel(f"speed-up over {nodes[0]} node{'s' * (nodes[0] > 1)}")
    left.legend(fontsize=8)
    for name, key in zip(LIMITS, ("efficiency", "slowest_block", "home", "wire"), strict=True):
        middle.semilogx(nodes, [row[key] for row in rows], "o-", ms=4, label=name)
    # Curves may be anywhere up to 1: room for the legend above it.
    middle.set_ylim(0, 1.25)
    middle.set_yticks([0, 0.25, 0.5, 0.75, 1])
    middle.set_ylabel("share of the time that it is busy")
    middle.legend(fontsize=8, loc="upper center", ncols=2)
    for axes in (left, middle):
        axes.set_xticks(nodes, [str(n) for n in nodes])
        axes.minorticks_off()
        axes.set_xlabel("nodes")
        axes.grid(alpha=0.3, lw=0.5)
    varied = results["varied"]
    right.barh(range(len(varied)), list(varied.values()), color="C0", height=0.6)
    right.axvline(1, color="k", lw=0.8)
    right.set_yticks(range(len(varied)), list(varied), fontsize=8)
    right.invert_yaxis()
    right.set_xlabel(f"pairs a second at {results['varied_at']} nodes,\nof those without")
    figure.suptitle(title, fontsize=10)


def parser() -> argparse.ArgumentParser:
    """All options; times in seconds, rates in bytes a second."""
    found = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = found.add_argument
    add("--nodes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    add("--workers", type=int, default=16, help="of each node")
    add("--shape", choices=list(LIKE), default="umbc")
    add("--scale", type=float, default=1.0, help="of the documents")
    add("--most-common", type=float, default=0.4, help="share of documents with the first word")
    add("--topics", type=int, default=128)
    add("--passes", type=int, default=2)
    add("--blocks-per-worker", type=float, default=2.0)
    add("--blocks", type=int, help="in all, instead")
    add("--latency", type=float, default=20e-6)
    add("--bandwidth", type=float, default=1.25e9, help="out of a node, and into one")
    add("--rows", choices=("packed", "dense"), default="packed")
    add("--word-topics", type=float, default=5.3, help="topics that a word lives in, if packed")
    add("--ns-pair", type=float, default=45.0, help="of a visit, at 128 topics")
    add("--ns-word", type=float, default=250.0, help="for each word in block and shard")
    add("--ns-document", type=float, default=300.0, help="for each document in both")
    add("--look", type=float, default=40e-6, help="of home: a round")
    add("--frame", type=float, default=45e-6, help="of home: a frame written or taken")
    add("--byte", type=float, default=0.5e-9, help="of home: a byte of it")
    add("--packing", type=float, default=0.3e-9, help="of home: a byte of rows, before packing")
    add("--noise", type=float, default=0.1, help="of a visit's time, log-normal")
    add("--own-core", action="store_true", help="home has a core that no worker needs")
    add("--seed", type=int, default=0)
    add("--vary-at", type=int, help="nodes (default: the last of --nodes)")
    add("--no-vary", action="store_true", help="only the numbers of nodes")
    add("--out", type=Path, default=Path("bench-results"), help="folder to save in")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Model each number of nodes, then vary one option at a time."""
    options = parser().parse_args(arguments)
    options.docword = Path(f"{options.shape}.npz")
    facts = common.machine()
    print(common.describe(facts))
    print(
        "nodes blocks  Mpair/s speedup workers slowest  home  wire    MB/s age, ms  unseen margins"
        f"   cpu  limit\n{'':>44}block{'':>12}a node{'':>8}passes  GiB a     s\n{'':>83}node"
    )
    rows = []
    for n_nodes in options.nodes:
        rows.append(run(options, n_nodes))
        show(rows[-1], rows[0])
    vary_at = options.vary_at or options.nodes[-1]
    base = next((row for row in rows if row["nodes"] == vary_at), None) or run(options, vary_at)
    varied, details = {}, []
    for name, factor in [] if options.no_vary else VARIED:
        found = run(options, vary_at, **{name: factor})
        label = f"{name.replace('_', ' ')} x {factor:g}"
        varied[label] = found["pairs_per_second"] / base["pairs_per_second"]
        details.append({"varied": label, **found})
        print(f"{label}: {varied[label]:.2f} of the pairs a second at {vary_at} nodes")
        show(found, rows[0])
    results = {"nodes": rows, "varied_at": vary_at, "varied": varied, "details": details}
    title = (
        f"Modelled: {options.shape}, {options.topics} topics, {options.workers} workers a node, "
        f"{options.bandwidth / 1e9:g} GB/s, {options.rows} rows"
    )
    common.save(
        "cluster", options, facts, results, lambda f: draw(f, results, title), size=(11.0, 3.8)
    )


if __name__ == "__main__":
    main()
