"""Storage `topk`: the ELBO against passes and seconds for several C, and the memory of phi.

    python -m bench.topk docword.X.txt.gz --kept 1 8 32 64 128

The paper's figure of C, and `full` beside it. Every fit starts alike, with one worker; `SerialFit`
runs the family's real kernels in this process. Seconds are those of the processor (other programs
do not count in them, but slow them down), of the passes alone: no compiling, start or evaluation.
"""

import argparse
import time
from typing import Any

from bench import common
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.lda.cut import choose_n_blocks
from esvi_shm.families.lda.worker import find_storage
from esvi_shm.runtime.layout import lay_out
from esvi_shm.runtime.serial import SerialFit

#: ELBO of C = K / 4 over that of `full` may be larger by this share.
MOST_LOSS = 0.005
#: Passes that are evaluated, beside the last one.
EVALUATED = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70)


def variants(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Parameters of each fit, by its name; `full` first."""
    found: dict[str, dict[str, Any]] = {"full": {"storage": "full"}}
    for residual in options.residuals:
        for n_kept in options.kept:
            name = f"{n_kept}, {residual}"
            found[name] = {"storage": "topk", "topk": n_kept, "residual": residual}
    return found


def phi_bytes(corpus: Corpus, config: FitConfig) -> int:
    """Bytes of what the storage keeps of phi, before anything is allocated."""
    table = lay_out(corpus, config).tables["state_0"]
    return sum(table[name].n_bytes for name, *_ in find_storage(config.storage).ARRAYS)


def measure(corpus: Corpus, config: FitConfig) -> dict[str, Any]:
    """One fit: a point for each evaluation, and the time of a pair in its last passes."""
    fit = SerialFit(corpus, config)
    points, seconds, passes = [], 0.0, []
    for n in range(1, config.n_passes + 1):
        evaluated = n in EVALUATED or n == config.n_passes
        began = time.process_time()
        for block in range(fit.sizes.n_blocks):
            fit.visit(0, block, want_entropy=evaluated)
        taken = time.process_time() - began
        fit.passes += 1
        seconds += taken
        if evaluated:
            bound = fit.bound()
            points.append(
                {
                    "passes": n,
                    "seconds": seconds,
                    "elbo": bound.elbo / corpus.n_tokens,
                    "elbo_f": bound.elbo_f / corpus.n_tokens,
                }
            )
        else:
            passes.append(taken)
    settled = passes[len(passes) // 2 :]
    return {
        "points": points,
        "phi_bytes": phi_bytes(corpus, config),
        "ns_per_pair": 1e9 * common.median(settled) / corpus.n_pairs if settled else None,
    }


def draw(figure: Any, rows: dict[str, dict[str, Any]], title: str) -> None:
    """The ELBO against passes and against seconds, and the memory of phi."""
    panels = figure.subplots(1, 3, gridspec_kw={"width_ratios": [3, 3, 2]})
    colours: dict[str, str] = {"full": "k"}
    for axes, quantity in zip(panels[:2], ("passes", "seconds"), strict=True):
        for name, row in rows.items():
            kept, _, residual = name.partition(", ")
            colour = colours.setdefault(kept, f"C{len(colours) - 1}")
            axes.plot([p[quantity] for p in row["points"]], [p["elbo"] for p in row["points"]],
                      ":" if residual == "drop" else "-", color=colour, label=name,
                      marker="o", ms=2.5, lw=1.2)  # fmt: skip
        axes.set_xscale("log")
        axes.grid(alpha=0.3, lw=0.5)
        axes.set_xlabel({"passes": "passes", "seconds": "seconds of the processor"}[quantity])
    panels[0].set_ylabel("ELBO a token, nats")
    panels[0].legend(fontsize=7)
    memory = {name.partition(",")[0]: row["phi_bytes"] / 2**20 for name, row in rows.items()}
    bars = panels[2].bar(list(memory), list(memory.values()), width=0.6,
                         color=[colours[name] for name in memory])  # fmt: skip
    panels[2].bar_label(bars, fmt="%.0f", fontsize=7)
    panels[2].set_ylabel("phi, MiB")
    panels[2].set_xlabel("C")
    panels[2].tick_params(labelsize=8)
    figure.suptitle(title, fontsize=10)


def main(arguments: list[str] | None = None) -> None:
    """Fit with every C."""
    parser = common.options_of(__doc__ or "", passes=50)
    parser.add_argument("--kept", type=int, nargs="+", default=[1, 8, 32, 64, 128], metavar="C")
    parser.add_argument("--residuals", nargs="+", default=["spread"], metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    corpus = common.load(options.docword)
    rows: dict[str, dict[str, Any]] = {}
    for name, chosen in variants(options).items():
        config = FitConfig(
            n_topics=options.topics, alpha=options.alpha, eta=options.eta, seed=options.seed,
            inference=options.inference, n_passes=options.passes, n_workers=1,
            n_blocks=choose_n_blocks(corpus, 1), **chosen,
        )  # fmt: skip
        row = rows[name] = measure(corpus, config)
        last = row["points"][-1]
        speed = "" if row["ns_per_pair"] is None else f", {row['ns_per_pair']:.0f} ns a pair"
        print(
            f"{name:<12} ELBO a token {last['elbo']:.4f} (F {last['elbo_f']:.4f}) after "
            f"{last['passes']} passes, {last['seconds']:.2f} s{speed}, "
            f"phi {row['phi_bytes'] / 2**20:.1f} MiB",
            flush=True,
        )
    full = rows["full"]["points"][-1]["elbo"]
    for name, row in rows.items():
        if name.startswith(f"{options.topics // 4},"):
            loss = (full - row["points"][-1]["elbo"]) / abs(full)
            said = common.verdict(loss, MOST_LOSS, at_least=False)
            print(f"C = K/4 ({name}): {100 * loss:.2f}% below `full`, {said}")
    title = f"{common.corpus_name(options.docword)}, {options.topics} topics, {options.inference}"
    common.save(
        "topk", options, facts, {"rows": rows}, lambda f: draw(f, rows, title), size=(10.0, 4.0)
    )


if __name__ == "__main__":
    main()
