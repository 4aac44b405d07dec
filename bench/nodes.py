"""Two nodes of one worker against one node of two, on this machine; bounds and memory by nodes.

*Speed.* The same workers on the same corpus; the nodes move blocks by a transport, one machine by
its rings. Rates are pairs a second of the passes, of runs in turn.

*Quality.* From the same start (same seed, same blocks), the ELBO after the same passes; differences
are paired by seed.

*Memory.* The largest share of lambda that any node has held at once, on 2, 3 and 4 nodes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import common
from esvi_shm.runtime.layout import MOST_HELD

TARGET = 0.85


def command(transport: str, n_nodes: int) -> list[str]:
    """What starts a fit on so many nodes."""
    python = [sys.executable, "-m"]
    if transport == "mpi":
        return ["mpiexec", "-n", str(n_nodes), *python, "esvi_shm.fit"]
    if transport == "tcp":
        return [*python, "esvi_shm.launch", "--nodes", str(n_nodes), "--", "fit"]
    return [*python, "esvi_shm.fit"]


def fit(options: argparse.Namespace, transport: str, n_nodes: int, **more: Any) -> dict[str, Any]:
    """The summary of a fit; two workers in all where there are one or two nodes."""
    given = {
        "topics": options.topics, "alpha": options.alpha, "eta": options.eta,
        "inference": options.inference, "passes": options.passes, "blocks": options.blocks,
        "workers": max(2 // n_nodes, 1), "tol": 0, "evaluate-every": 0, **more,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model"
        arguments = [str(options.docword), "--out", str(out), "--quiet", "--top-words", "0"]
        if transport == "mpi":
            arguments += ["--transport", "mpi"]
        for name, value in given.items():
            arguments += [f"--{name}", str(value)]
        subprocess.run([*command(transport, n_nodes), *arguments], check=True, capture_output=True)
        found: dict[str, Any] = json.loads((out / "summary.json").read_text())
        return found


def speed(options: argparse.Namespace, transports: list[str]) -> dict[str, list[float]]:
    """Pairs a second of one node of two workers, and of two nodes of one by each transport."""
    rates: dict[str, list[float]] = {name: [] for name in ("one node", *transports)}
    for _ in range(options.repeats):
        for name, found in rates.items():
            n_nodes = 1 if name == "one node" else 2
            found.append(fit(options, name, n_nodes)["pairs_per_second"])
    return rates


def draw(figure: Any, results: dict[str, Any], title: str) -> None:
    """Rates on the left, memory on the right."""
    left, right = figure.subplots(1, 2)
    for i, (name, values) in enumerate(results["pairs_per_second"].items()):
        left.bar(i, common.median(values) / 1e6, color=f"C{i}", width=0.6)
        left.plot([i] * len(values), [v / 1e6 for v in values], "k_", ms=12)
        if name != "one node":
            ratio = results["of_one_node"][name]
            left.annotate(f"{ratio:.2f}", (i, common.median(values) / 2e6), ha="center", color="w")
    left.set_xticks(range(len(results["pairs_per_second"])), [*results["pairs_per_second"]])
    left.set_ylabel("million pairs a second")
    left.set_title("one node of two workers, two nodes of one", fontsize=9)
    nodes = [int(n) for n in results["most_held"]]
    right.plot(nodes, list(results["most_held"].values()), "o-", label="measured")
    right.plot(nodes, [min(MOST_HELD / n, 1.0) for n in nodes], "k--", lw=0.8, label="limit")
    right.plot(nodes, [1 / n for n in nodes], "k:", lw=0.8, label="1 / nodes")
    right.set_xticks(nodes)
    right.set_ylim(0, 1.05)
    right.set_xlabel("nodes")
    right.set_ylabel("largest share of lambda at a node")
    right.legend(fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.3, lw=0.5)
    figure.suptitle(title, fontsize=10)


def main(arguments: list[str] | None = None) -> None:
    """Measure all three."""
    parser = common.options_of(__doc__ or "", passes=40)
    parser.add_argument("--repeats", type=int, default=5, help="of the rates")
    parser.add_argument("--seeds", type=int, default=5, help="of the paired differences")
    parser.add_argument("--blocks", type=int, default=16, help="in all runs")
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    common.load(options.docword)
    transports = ["tcp"]
    if common.has("mpi4py"):
        transports.append("mpi")
    rates = speed(options, transports)
    one = rates["one node"]
    ratios = {}
    for name, values in rates.items():
        listed = ", ".join(f"{value / 1e6:.2f}" for value in values)
        print(f"{name:<12}{common.median(values) / 1e6:>8.2f} million pairs/s ({listed})")
        if name != "one node":
            ratios[name] = common.median([a / b for a, b in zip(values, one, strict=True)])
            print(f"  {ratios[name]:.3f} of one node: {common.verdict(ratios[name], TARGET)}")
    differences = []
    for seed in range(options.seeds):
        nodes, single = (fit(options, t, n, seed=seed) for t, n in (("tcp", 2), ("one", 1)))
        differences.append(nodes["elbo_per_token"] - single["elbo_per_token"])
    mean, error = common.mean_and_error(differences)
    print(f"ELBO a token, two nodes minus one, {options.seeds} seeds: {mean:+.5f} +- {error:.5f}")
    held = {}
    for n in (2, 3, 4):
        held[str(n)] = fit(options, "tcp", n)["most_rows_at_a_node"]
        within = "met" if held[str(n)] <= MOST_HELD / n else "NOT met"
        print(f"{n} nodes: at most {held[str(n)]:.3f} of lambda at one ({within})")
    results = {
        "pairs_per_second": rates, "of_one_node": ratios, "elbo_difference": differences,
        "most_held": held,
    }  # fmt: skip
    title = f"{common.corpus_name(options.docword)}, {options.topics} topics"
    common.save(
        "nodes", options, facts, results, lambda f: draw(f, results, title), size=(9.0, 4.0)
    )


if __name__ == "__main__":
    main()
