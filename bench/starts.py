"""Starts and noise compared: the ELBO after equal passes, and the perplexity of unseen text.

    python -m bench.starts docword.X.txt.gz --topics 64 --eta 0.05

Every start, written as `--start`, or as `seeded:3` with its documents a topic, or as `seeded:3+1`
with noise of strength 1, is fitted to nine tenths of the documents, one worker, under each
inference. The other tenth is scored by document completion: each token goes by a coin to an
observed or a scored half, theta comes from the observed one. All starts of a seed have the same
documents, coins and scorer. `SerialFit` runs the family's real kernels in this process.
"""

import argparse
import math
from typing import Any

import numpy as np

from bench import common
from esvi_shm import metrics
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.lda.cut import choose_n_blocks
from esvi_shm.runtime.serial import SerialFit

STARTS = ("seeded:1", "seeded:3", "seeded:10", "spread:1", "spread:3", "scikit-learn", "random")


def parse(label: str) -> dict[str, Any]:
    """The parameters of `start[:documents][+noise]`.

    >>> parse("seeded:3+0.5")
    {'start': 'seeded', 'seed_documents': 3, 'noise': 0.5}
    """
    start, _, noise = label.partition("+")
    start, _, documents = start.partition(":")
    found: dict[str, Any] = {"start": start}
    if documents:
        found["seed_documents"] = int(documents)
    if noise:
        found["noise"] = float(noise)
    return found


def split(corpus: Corpus, seed: int) -> tuple[Corpus, Corpus]:
    """Nine tenths of the documents and the other tenth, at random."""
    order = np.random.default_rng(seed).permutation(corpus.n_documents)
    n_held_out = max(corpus.n_documents // 10, 1)
    matrix = corpus.as_sparse()
    train, held_out = np.sort(order[n_held_out:]), np.sort(order[:n_held_out])
    return (
        Corpus.from_sparse(matrix[train], corpus.vocabulary, corpus.name),
        Corpus.from_sparse(matrix[held_out], corpus.vocabulary, corpus.name),
    )


def measure(corpus: Corpus, options: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """Every start under every inference, from one seed."""
    train, held_out = split(corpus, seed)
    observed, scored = metrics.split_tokens(held_out, seed)
    alpha = np.full(options.topics, options.alpha)
    rows = []
    for inference in options.inferences:
        for label in options.starts:
            config = FitConfig(
                n_topics=options.topics, alpha=options.alpha, eta=options.eta,
                inference=inference, n_passes=options.passes, seed=seed,
                n_workers=1, n_blocks=choose_n_blocks(train, 1), **parse(label),
            )  # fmt: skip
            fit = SerialFit(train, config)
            first = fit.bound().elbo / train.n_tokens
            for _ in range(options.passes):
                fit.run_pass()
            topics = metrics.point_topics(fit.lambda_)
            theta = metrics.fold_in(topics, alpha, observed)
            row = {
                "inference": inference,
                "start": label,
                "seed": seed,
                "elbo_at_start": first,
                "elbo": fit.bound().elbo / train.n_tokens,
                "perplexity": metrics.completion_perplexity(theta, topics, scored).perplexity,
            }
            print(
                f"{inference:<8}{label:<16} seed {seed}: ELBO a token {first:.4f} at the start, "
                f"{row['elbo']:.4f} after {options.passes} passes, "
                f"perplexity {row['perplexity']:.1f}",
                flush=True,
            )
            rows.append(row)
    return rows


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the seeds, and of the differences from the first start, paired by seed."""
    summary = []
    for inference in dict.fromkeys(row["inference"] for row in rows):
        of_it = [row for row in rows if row["inference"] == inference]
        base = {row["seed"]: row for row in of_it if row["start"] == of_it[0]["start"]}
        for label in dict.fromkeys(row["start"] for row in of_it):
            these = [row for row in of_it if row["start"] == label]
            elbo = [row["elbo"] - base[row["seed"]]["elbo"] for row in these]
            ratio = [math.log(row["perplexity"] / base[row["seed"]]["perplexity"]) for row in these]
            summary.append(
                {
                    "inference": inference,
                    "start": label,
                    "elbo": common.mean_and_error([row["elbo"] for row in these])[0],
                    "perplexity": common.mean_and_error([r["perplexity"] for r in these])[0],
                    "elbo_difference": common.mean_and_error(elbo),
                    "log_perplexity_difference": common.mean_and_error(ratio),
                }
            )
    return summary


def draw(figure: Any, rows: list[dict[str, Any]], title: str) -> None:
    """ELBO and perplexity of each start, a dot a seed."""
    panels = figure.subplots(1, 2, sharey=True)
    labels = list(dict.fromkeys(row["start"] for row in rows))
    for axes, quantity in zip(panels, ("elbo", "perplexity"), strict=True):
        for i, inference in enumerate(dict.fromkeys(row["inference"] for row in rows)):
            these = [row for row in rows if row["inference"] == inference]
            axes.plot([row[quantity] for row in these],
                      [labels.index(row["start"]) + 0.2 * i for row in these],
                      "o", color=f"C{i}", ms=4, alpha=0.7, label=inference)  # fmt: skip
        axes.grid(alpha=0.3, lw=0.5)
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_xlabel("ELBO a token, nats")
    panels[1].set_xlabel("completion perplexity")
    panels[1].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)


def main(arguments: list[str] | None = None) -> None:
    """Compare all starts on one corpus."""
    parser = common.options_of(__doc__ or "", passes=60)
    parser.set_defaults(topics=64, eta=0.05)
    parser.add_argument("--starts", nargs="+", default=list(STARTS), metavar="START")
    parser.add_argument("--inferences", nargs="+", default=["anneal", "vb"], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    corpus = common.load(options.docword)
    rows = [row for seed in range(options.seeds) for row in measure(corpus, options, seed)]
    summary = summarise(rows)
    print(f"mean of {options.seeds} seeds, and difference from {options.starts[0]}:")
    for row in summary:
        (elbo, elbo_error), (ratio, ratio_error) = (
            row["elbo_difference"],
            row["log_perplexity_difference"],
        )
        print(
            f"{row['inference']:<8}{row['start']:<16} ELBO {row['elbo']:.4f} "
            f"({elbo:+.4f} +- {elbo_error:.4f}), perplexity {row['perplexity']:.1f} "
            f"({100 * math.expm1(ratio):+.1f}% +- {100 * ratio_error:.1f}%)"
        )
    title = f"{common.corpus_name(options.docword)}, {options.topics} topics, " + (
        f"{options.passes} passes, nine tenths of the documents"
    )
    common.save(
        "starts", options, facts, {"rows": rows, "summary": summary},
        lambda f: draw(f, rows, title), size=(9.0, 4.5),
    )  # fmt: skip


if __name__ == "__main__":
    main()
