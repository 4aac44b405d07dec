"""Learned priors against fixed ones: the bound, held-out perplexity, and what learning costs.

A share of the documents is set aside, and the rest fitted with one worker in one process
(`SerialFit`: the family's real kernels and scripts, without worker processes and rings), the
variants in turn. Seconds are those of the processor, so that work beside counts for little. The
same seed gives all variants the same documents and the same start.
"""

import argparse
import time
from typing import Any

from bench import common
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.lda.cut import choose_n_blocks
from esvi_shm.metrics import HeldOut, set_aside
from esvi_shm.runtime.serial import SerialFit

VARIANTS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "alpha": {"learn_priors": "alpha"},
    "symmetric alpha": {"learn_priors": "alpha", "symmetric_alpha": True},
    "eta": {"learn_priors": "eta"},
    "both": {"learn_priors": "both"},
}


def fit_once(training: Corpus, held_out: HeldOut, config: FitConfig) -> dict[str, float]:
    """All passes of one fit, and the figures at its end."""
    fit = SerialFit(training, config)
    model, passes, rests = fit.layout.model, 0.0, 0.0
    for n in range(1, config.n_passes + 1):
        resting = model.next_rest(n - 1) == n
        began = time.process_time()
        for block in range(fit.sizes.n_blocks):
            # As in the engine: H is wanted where blocks come home after the pass.
            fit.visit(0, block, want_entropy=resting or n == config.n_passes)
        fit.passes += 1
        passes += time.process_time() - began
        if resting:
            began = time.process_time()
            fit.rest(n, held_out)
            rests += time.process_time() - began
    bound = fit.bound()
    alpha = fit.shared["alpha"]
    return {
        "elbo_per_token": bound.elbo / training.n_tokens,
        "perplexity": held_out(fit.shared["lambda_"], fit.corpus_arrays["word_ids"], alpha),
        "seconds": passes + rests,
        "learning_seconds": rests,
        "alpha_least": float(alpha.min()),
        "alpha_mean": float(alpha.mean()),
        "alpha_most": float(alpha.max()),
        "eta": float(fit.shared["eta"][0]),
    }


def measure(corpus: Corpus, options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """The figures of every variant, one for each seed."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.variants}
    for seed in range(options.seeds):
        training, held_out, _ = set_aside(corpus, options.holdout, seed)
        for name, runs in found.items():
            config = FitConfig(
                n_topics=options.topics, alpha=options.alpha, eta=options.eta,
                inference=options.inference, n_passes=options.passes, seed=seed, n_workers=1,
                n_blocks=choose_n_blocks(training, 1), **VARIANTS[name],
            )  # fmt: skip
            runs.append(fit_once(training, held_out, config))
    return found


def summarise(found: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Means of each variant over the seeds, and what it has ahead of the first one, in pairs."""
    first = next(iter(found.values()))
    rows = {}
    for name, runs in found.items():
        row = {key: common.mean_and_error([run[key] for run in runs])[0] for key in runs[0]}
        for key in ("elbo_per_token", "perplexity"):
            pairs = [run[key] - other[key] for run, other in zip(runs, first, strict=True)]
            row[f"{key}_ahead"], row[f"{key}_ahead_error"] = common.mean_and_error(pairs)
        row["learning_share"] = row["learning_seconds"] / (row["seconds"] - row["learning_seconds"])
        rows[name] = row
    return rows


def draw(figure: Any, found: dict[str, list[dict[str, float]]], title: str) -> None:
    """Perplexity against the bound, a point for each seed."""
    axes = figure.subplots()
    for name, runs in found.items():
        axes.plot([run["elbo_per_token"] for run in runs], [run["perplexity"] for run in runs],
                  "o", label=name)  # fmt: skip
    axes.set_xlabel("ELBO a token, nats")
    axes.set_ylabel("held-out perplexity")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, lw=0.5)
    axes.legend()


def main(arguments: list[str] | None = None) -> None:
    """Compare the variants on one corpus."""
    parser = common.options_of(__doc__ or "", passes=100)
    parser.set_defaults(topics=64, eta=0.05, inference="anneal")
    parser.add_argument("--holdout", type=float, default=0.1, help="share of the documents")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    corpus = common.load(options.docword)
    found = measure(corpus, options)
    rows = summarise(found)
    print("variant            ELBO/token  ahead              perplexity  ahead           learning")
    for name, row in rows.items():
        print(
            f"{name:17s} {row['elbo_per_token']:11.4f} {row['elbo_per_token_ahead']:+.4f} +- "
            f"{row['elbo_per_token_ahead_error']:.4f} {row['perplexity']:13.1f} "
            f"{row['perplexity_ahead']:+7.1f} +- {row['perplexity_ahead_error']:.1f} "
            f"{row['learning_share']:+7.1%} alpha {row['alpha_least']:.3g} {row['alpha_mean']:.3g} "
            f"{row['alpha_most']:.3g}, eta {row['eta']:.3g}"
        )
    title = f"{common.corpus_name(options.docword)}, {options.topics} topics, {options.inference}"
    common.save(
        "priors", options, facts, {"summary": rows, "runs": found},
        lambda figure: draw(figure, found, title),
    )  # fmt: skip


if __name__ == "__main__":
    main()
