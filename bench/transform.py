"""Seconds of `transform`: esvi_shm and scikit-learn on the same unseen documents and topics.

A fifth of the documents is held out at random, topics are fitted to the rest by esvi_shm, and
theta of the held-out documents is inferred by both under those topics, with the same tolerance
(mean change of gamma below 1e-3, 100 steps at most) and number of cores, the systems taking
turns. scikit-learn gets float32, the faster for it, BLAS with one thread, and for several cores its
own `n_jobs`, whose processes run before the clock starts. Counted is the whole call. What a model
keeps of its topics for inference is made before, in both: scikit-learn has it from its fit,
esvi_shm from the first call, which is timed too (`first call`: of a model that has just come).

That both infer the same is shown by the differences of theta, and by the bound of the held-out
documents at either's gamma by one scorer, `score.elbo`; for that scikit-learn runs once more in
float64, as the addend in its norms, the smallest step of its type, is not small in float32.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import common, peers, score
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.model import FittedModel
from esvi_shm.runtime import engine

HELD_OUT = 0.2
STEPS, TOL = 100, 1e-3
#: Times sooner; with `MANY` topics and more.
TARGET, TARGET_MANY, MANY = 4.0, 20.0, 1024

Transform = Callable[[], np.ndarray]


def split(corpus: Corpus, seed: int) -> tuple[Corpus, Corpus]:
    """Documents to fit, and documents to infer."""
    matrix = corpus.as_sparse()
    order = np.random.default_rng(seed).permutation(corpus.n_documents)
    n_out = max(1, round(HELD_OUT * corpus.n_documents))
    return (
        Corpus.from_sparse(matrix[np.sort(order[n_out:])], corpus.vocabulary, "fitted"),
        Corpus.from_sparse(matrix[np.sort(order[:n_out])], corpus.vocabulary, "held out"),
    )


def transform(model: FittedModel, held_out: Corpus, n: int) -> np.ndarray:
    """Ours, on so many cores."""
    return model.transform(held_out, n, inference="vb", steps=STEPS, tol=TOL)


def scikit_learn(
    model: FittedModel, held_out: Corpus, alpha: float, n_jobs: int, kind: type = np.float32
) -> Transform:
    """`LatentDirichletAllocation.transform` under the topics of a model, in a float type."""
    from sklearn.decomposition import LatentDirichletAllocation

    matrix = held_out.as_sparse().astype(kind)
    components: np.ndarray = np.ascontiguousarray(model.lambda_.T, dtype=kind)
    peer = LatentDirichletAllocation(
        len(components), doc_topic_prior=alpha, max_iter=1, max_doc_update_iter=STEPS,
        mean_change_tol=TOL, n_jobs=n_jobs, random_state=0,
    )  # fmt: skip
    # A fit of one document sets what `transform` checks; then the topics are put in.
    peer.fit(matrix[:1])
    peer.components_ = components
    expected = peers.exp_expectation(components.astype(np.float64))
    peer.exp_dirichlet_component_ = np.ascontiguousarray(expected, dtype=kind)
    return lambda: peer.transform(matrix)


def measure(systems: dict[str, Transform], repeats: int) -> dict[str, list[float]]:
    """Seconds of each system's calls, in turn."""
    for call in systems.values():
        call()  # load kernels, start processes, warm the caches
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(repeats):
        for name, call in systems.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def compare(model: FittedModel, held_out: Corpus, options: argparse.Namespace) -> dict[str, Any]:
    """What both infer."""
    thetas = {
        "esvi_shm": transform(model, held_out, 1),
        "scikit-learn": scikit_learn(model, held_out, options.alpha, 1, np.float64)(),
        "scikit-learn, float32": scikit_learn(model, held_out, options.alpha, 1)(),
    }
    tokens = np.asarray(held_out.as_sparse().sum(axis=1), np.float64)
    bounds = {}
    for name, theta in thetas.items():
        gamma = theta.astype(np.float64) * (options.alpha * options.topics + tokens)
        elbo = score.elbo(held_out, gamma, model.lambda_, options.alpha, options.eta)
        bounds[name] = elbo / held_out.n_tokens
    difference = np.abs(thetas["esvi_shm"] - thetas["scikit-learn"])
    return {
        "largest_difference": float(difference.max()),
        "mean_difference": float(difference.mean()),
        "bound_per_token": bounds,
    }


def named(cores: int) -> str:
    """'1 core', '2 cores'."""
    return f"{cores} core{'s' * (cores > 1)}"


def draw(figure: Any, rows: list[dict[str, Any]], title: str) -> None:
    """Seconds by number of cores, the times sooner above."""
    axes = figure.subplots()
    for i, name in enumerate(("scikit-learn", "esvi_shm")):
        places = [at + 0.4 * (i - 0.5) for at in range(len(rows))]
        medians = [common.median(row["seconds"][name]) for row in rows]
        bars = axes.bar(places, medians, width=0.36, label=name, color=f"C{1 - i}")
        axes.bar_label(bars, fmt="%.3g s", fontsize=8, label_type="center")
        for place, row in zip(places, rows, strict=True):
            axes.plot([place] * len(row["seconds"][name]), row["seconds"][name], "k_", ms=7)
    names = [f"{named(row['cores'])}: {row['ratio']:.1f} times" for row in rows]
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylim(0)
    axes.margins(y=0.1)
    axes.set_ylabel("seconds of transform, median (dashes: each call)")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, axis="y", lw=0.5)
    axes.legend()


def main(arguments: list[str] | None = None) -> None:
    """Measure every number of cores."""
    parser = common.options_of(__doc__ or "", passes=30)
    parser.add_argument("--repeats", type=int, default=5, help="calls of each system, in turn")
    parser.add_argument(
        "--cores", type=int, nargs="+", help="numbers of cores (default: 1 and all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the split and of the fit")
    options = parser.parse_args(arguments)
    facts = common.machine()
    print(common.describe(facts))
    corpus = common.load(options.docword)
    cores = options.cores or sorted({1, facts["cores"]})
    fitted, held_out = split(corpus, options.seed)
    config = FitConfig(
        n_topics=options.topics, alpha=options.alpha, eta=options.eta, tol=0.0, evaluate_every=0,
        inference=options.inference, n_passes=options.passes, seed=options.seed,
    )  # fmt: skip
    model = FittedModel.from_result(engine.fit(fitted, config), fitted)

    from threadpoolctl import threadpool_limits

    rows = []
    with threadpool_limits(1):
        for n in cores:
            systems: dict[str, Transform] = {
                "esvi_shm": lambda n=n: transform(model, held_out, n),  # type: ignore[misc]
                "scikit-learn": scikit_learn(model, held_out, options.alpha, n),
                "first call": lambda n=n: transform(  # type: ignore[misc]
                    FittedModel(model.parameters, model.words, [], model.summary), held_out, n
                ),
            }
            seconds = measure(systems, options.repeats)
            ours, theirs, first = (
                seconds[name] for name in ("esvi_shm", "scikit-learn", "first call")
            )
            ratio = common.median([their / our for our, their in zip(ours, theirs, strict=True)])
            rows.append({"cores": n, "seconds": seconds, "ratio": ratio})
            print(
                f"{named(n)}: esvi_shm {common.median(ours):.4f} s (first call "
                f"{common.median(first):.4f} s), scikit-learn "
                f"{common.median(theirs):.4f} s, {ratio:.1f} times; "
                f"{common.verdict(ratio, TARGET_MANY if options.topics >= MANY else TARGET)}",
                flush=True,
            )
        found = compare(model, held_out, options)
    print(
        f"theta of {held_out.n_documents} documents: largest difference "
        f"{found['largest_difference']:.2g}, mean {found['mean_difference']:.2g}"
    )
    for name, bound in found["bound_per_token"].items():
        print(f"bound a token, {name}: {bound:.5f}")
    name = common.corpus_name(options.docword)
    title = f"{name}, {held_out.n_documents} unseen documents, {options.topics} topics"
    results = {"documents": held_out.n_documents, "pairs": held_out.n_pairs, "rows": rows, **found}
    common.save("transform", options, facts, results, lambda f: draw(f, rows, title))


if __name__ == "__main__":
    main()
