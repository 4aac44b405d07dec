"""Evaluate a model on unseen documents: ``python -m esvi_shm.evaluate MODEL CORPUS [options]``.

Parses, calls, prints; `esvi_shm.metrics` does the work. Only the standard library is imported at
the top, so that --help and --version answer at once.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Python would print where a Ctrl-C struck. Before `command.run`, which takes care of it, there
    # is nothing to clean up: it just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from esvi_shm import command

if TYPE_CHECKING:
    import numpy as np

    from esvi_shm.corpus import Corpus
    from esvi_shm.mixture import FittedMixture
    from esvi_shm.model import FittedModel

#: Words of each topic that count for coherence and for diversity.
COHERENCE_WORDS, DIVERSITY_WORDS = 10, 25
#: Probability inside the intervals of the table.
INTERVAL = 0.95

#: Option: the parameter it sets.
_PARAMETERS = {"workers": "n_workers"}

EXPLANATION = f"""\
figures:
  perplexity    by document completion. Each token goes to the observed or to the scored half of
                its document by a coin (--seed). theta is the fixed point of
                  gamma_dk = alpha_k + sum_v n_dv phi_dvk,  phi_dvk ~ gamma_dk beta_vk
                over the observed half (100 steps at most), theta_d = gamma_d / sum_k gamma_dk,
                under the topics' means beta_vk = lambda_vk / sum_v lambda_vk. Over the scored half
                  perplexity = exp(- sum_dv n_dv log(sum_k theta_dk beta_vk) / sum_dv n_dv).
                An empty observed half gives the prior mean.
  left-to-right perplexity of whole documents, N of those with tokens (--left-to-right N), drawn
                at random: exp(- sum_d log p(w_d) / tokens), p by the left-to-right estimate of
                Wallach et al. (2009), its particles resampled, which makes it unbiased. Particles
                times tokens squared is the work for a document. The standard error is over
                documents: it says how far the figure of N others would be from this one. It holds
                the chance of the particles, but not that few of them make p too low and the
                perplexity too high on average.
  scikit-learn  exp(-L / tokens), LatentDirichletAllocation.perplexity
  gensim        2 ** (-L / tokens), 2 ** -LdaModel.log_perplexity
                L is the bound of all of CORPUS, gamma inferred with the topics fixed. L holds the
                topics' own prior, whatever the size of CORPUS, so that the figures grow as CORPUS
                shrinks: compare them on the same documents only.
  NPMI          mean over the pairs of a topic's {COHERENCE_WORDS} top words of
                  log(p_ij / (p_i p_j)) / -log p_ij,
                p being shares of the reference's documents; pairs that never meet count -1.
                Topics that no token uses have no words, and are left out of the mean.
  stability     each topic is matched with one of each other model (Hungarian method) by
                  H(p, q) = sqrt(1 - sum_v sqrt(p_v q_v))         (Hellinger's distance)
                of their means over MODEL's words; the mean of 1 - H over the other models, 0 where
                a topic has no partner; and the Jaccard index of the {COHERENCE_WORDS} top words.
  intervals     central {INTERVAL:.0%} intervals of the words' weights, under the fitted Dirichlets.
                Too narrow: they hold for this optimum, with all dependence left out.
  diversity     share of different words among the {DIVERSITY_WORDS} top words of all topics

Of a mixture, with CORPUS as points, only this is printed, in all and a point:
  log likelihood  sum_i log sum_k exp(E[log pi_k p(x_i | theta_k)]), as scikit-learn's
                score_samples: a lower bound of the log of the predictive density.

Words are matched by name; those outside the model's vocabulary are counted and left out. Where
only one side has names, columns are taken for the model's words in order.

examples:
  python -m esvi_shm.evaluate ap-model docword.held-out.txt.gz
  python -m esvi_shm.evaluate model new.txt --reference train.txt --json figures.json
  python -m esvi_shm.evaluate seed-0 new.txt --stability seed-1 seed-2

The report goes to standard output, progress to standard error. Exit codes: 0 done, 1 failed,
2 bad input, 130 or 143 interrupted.
"""


def _parser() -> argparse.ArgumentParser:
    parser = command.make_parser(
        "evaluate",
        "Say how well the topics of a model predict unseen documents, and how they read.",
        EXPLANATION,
    )
    corpus = command.add_model_and_corpus(parser)
    corpus.add_argument(
        "--reference", metavar="CORPUS",
        help="documents that coherence is counted in, read with the same options (default: CORPUS)",
    )  # fmt: skip
    parser.add_argument(
        "--stability", nargs="+", default=[], metavar="MODEL",
        help="say how well each topic is found again by these models of the same corpus, as of "
        "other seeds",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of the coins (default: 0)"
    )
    parser.add_argument(
        "--left-to-right", type=int, default=0, metavar="N",
        help="also estimate the probability of N whole documents; 0: not (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--particles", type=int, default=20, metavar="R",
        help="of the left-to-right estimates (default: 20)",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, metavar="P", help="threads (default: one a core)")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--top-words", type=int, default=10, metavar="N",
        help="words of each topic in the table; 0: no table (default: 10)",
    )  # fmt: skip
    output.add_argument(
        "--intervals", action="store_true",
        help="show the credible interval of each word's weight in the table",
    )  # fmt: skip
    output.add_argument("--json", metavar="FILE", help="write all figures there too")
    output.add_argument("--quiet", action="store_true", help="no progress; warnings all the same")
    return parser


class _Report(NamedTuple):
    """The figures, as the JSON file has them, and the topics."""

    figures: dict[str, Any]
    topics: list[dict[str, Any]]


def _evaluate(
    model: "FittedModel",
    corpus: "Corpus",
    reference: "Corpus | None",
    given: argparse.Namespace,
) -> _Report:
    from esvi_shm import metrics

    seed, n_words, workers = given.seed, given.top_words, given.workers
    aligned = model.aligned(corpus)
    completion, lambda_ = model.completion(aligned.corpus, seed, workers), model.lambda_
    gamma = metrics.infer_gamma(lambda_, model.alpha, aligned.corpus, n_workers=workers)
    peers = metrics.held_out_bound(lambda_, model.alpha, model.eta, aligned.corpus, gamma)
    # Aligned, so that a reference in other words is an error, not a coherence of -1.
    known = aligned if reference is None else model.aligned(reference)
    topics = model.topics(max(n_words, COHERENCE_WORDS, DIVERSITY_WORDS))
    top_words = [topic.words for topic in topics]
    coherence = metrics.coherence_npmi(top_words, known.corpus, COHERENCE_WORDS)
    figures = {
        "perplexity": completion.perplexity,
        "scored_tokens": completion.n_tokens,
        "observed_tokens": int(aligned.corpus.n_tokens) - completion.n_tokens,
        "scored_documents": int((completion.tokens > 0).sum()),
        "documents": corpus.n_documents,
        "outside_words": aligned.outside_words,
        "outside_tokens": aligned.outside_tokens,
        "tokens": corpus.n_tokens,
        "bound": peers.bound,
        "perplexity_scikit_learn": peers.scikit_learn,
        "perplexity_gensim": peers.gensim,
        "npmi": _mean_of_numbers(coherence.npmi),
        "unused_topics": sum(not words for words in top_words),
        "top_words_missing_in_reference": len(coherence.missing),
        "diversity": metrics.topic_diversity(top_words, DIVERSITY_WORDS),
        "seed": seed,
        "corpus": corpus.name,
        "reference": corpus.name if reference is None else reference.name,
    }
    if given.left_to_right:
        beta, n_documents = metrics.point_topics(lambda_), given.left_to_right
        whole = metrics.left_to_right(
            beta, model.alpha, aligned.corpus, n_documents, given.particles, seed, workers
        )
        figures["perplexity_left_to_right"] = whole.perplexity
        figures["left_to_right_standard_error"] = whole.standard_error
        figures["left_to_right_documents"] = len(whole.documents)
        figures["left_to_right_tokens"] = whole.n_tokens
        figures["particles"] = given.particles
    rows = [
        {
            "number": topic.number,
            "share": topic.share,
            "npmi": float(npmi),
            "words": list(topic.words[:n_words]),
        }
        for topic, npmi in zip(topics, coherence.npmi, strict=True)
    ]
    return _Report(figures, rows)


def _add_intervals(report: _Report, model: "FittedModel") -> None:
    """The interval of each word of the table."""
    import numpy as np

    from esvi_shm.corpus.corpus import numbers_of
    from esvi_shm.metrics.intervals import dirichlet_interval

    number_of, lambda_ = numbers_of(model.words), model.lambda_
    pi = lambda_.sum(axis=0, dtype=np.float64)  # once, for all topics
    for row in report.topics:
        k, rows = row["number"], [number_of[word] for word in row["words"]]
        ends = dirichlet_interval(lambda_[rows, k], pi[k], INTERVAL)
        row["intervals"] = np.stack(ends, axis=1).tolist()


def _add_stability(
    report: _Report, model: "FittedModel", others: Sequence[tuple[str, "FittedModel"]]
) -> None:
    """How well each topic is found again by other models, each with its path."""
    from esvi_shm import metrics
    from esvi_shm.parameters import used_topics

    # Two topics that nothing uses are alike, and say nothing.
    mine, theirs = used_topics(model), [used_topics(other) for _, other in others]
    topics = [
        metrics.weights_of_words(other.lambda_[:, used], other.words, model.words, path)
        for used, (path, other) in zip(theirs, others, strict=True)
    ]
    found = metrics.topic_stability(model.lambda_[:, mine], topics, COHERENCE_WORDS)
    report.figures["stability"] = float(found.similarity.mean())
    report.figures["stability_jaccard"] = float(found.jaccard.mean())
    report.figures["stability_models"] = [path for path, _ in others]
    for row in report.topics:
        row |= {"stability": math.nan, "stability_jaccard": math.nan, "partners": []}
    for i, k in enumerate(mine.tolist()):
        partners = [
            int(used[j]) if (j := matching.partner[i]) >= 0 else -1
            for used, matching in zip(theirs, found.matchings, strict=True)
        ]
        report.topics[k] |= {
            "stability": float(found.similarity[i]),
            "stability_jaccard": float(found.jaccard[i]),
            "partners": partners,
        }


def _print_table(rows: list[dict[str, Any]]) -> None:
    stable = "stability" in rows[0]
    print("topic  share    NPMI  " + "stability  Jaccard  " * stable + "words")
    for row in rows:
        words = row["words"]
        if "intervals" in row:
            ends = [f"{low:.2g}-{high:.2g}" for low, high in row["intervals"]]
            words = [f"{word} ({end})" for word, end in zip(words, ends, strict=True)]
        figures = f"{row['number']:5d}  {row['share']:5.1%}  {row['npmi']:6.3f}  "
        if stable:
            figures += f"{row['stability']:9.3f}  {row['stability_jaccard']:7.3f}  "
        print(figures + (" ".join(words) or "(unused)"))
    print()


def _mean_of_numbers(values: "np.ndarray") -> float:
    """Without those that are not known: an unused topic has no words to keep company."""
    known = [value for value in values.tolist() if value == value]
    return sum(known) / len(known) if known else math.nan


def _print_report(report: _Report, with_table: bool) -> None:
    if with_table:
        _print_table(report.topics)
    found = report.figures
    outside_share = found["outside_tokens"] / found["tokens"]
    missing = found["top_words_missing_in_reference"]
    lines = {
        "held-out perplexity": f"{found['perplexity']:.2f}   (document completion, seed "
        f"{found['seed']})",
        "scored tokens": f"{found['scored_tokens']:,} in {found['scored_documents']:,} of "
        f"{found['documents']:,} documents, from {found['observed_tokens']:,} observed ones",
        "outside the vocabulary": f"{found['outside_words']:,} words, "
        f"{found['outside_tokens']:,} tokens ({outside_share:.1%})",
        "scikit-learn would report": f"{found['perplexity_scikit_learn']:.6g}   (see --help)",
        "gensim would report": f"{found['perplexity_gensim']:.6g}   (see --help)",
        "mean NPMI": f"{found['npmi']:.4f}   (top {COHERENCE_WORDS} words in "
        f"{found['reference']}" + (f"; {missing:,} of them never occur there)" if missing else ")"),
        "topic diversity": f"{found['diversity']:.4f}   (top {DIVERSITY_WORDS} words)",
    }
    if "particles" in found:
        lines["left-to-right perplexity"] = (
            f"{found['perplexity_left_to_right']:.2f}   (standard error "
            f"{found['left_to_right_standard_error']:.2f} over "
            f"{found['left_to_right_documents']:,} documents; {found['left_to_right_tokens']:,} "
            f"tokens, {found['particles']} particles)"
        )
    if "stability" in found:
        n_models = len(found["stability_models"])
        how = f"(1 - Hellinger's distance, mean over the other models: {n_models})"
        lines["mean stability"] = f"{found['stability']:.4f}   {how}"
        lines["mean Jaccard index"] = (
            f"{found['stability_jaccard']:.4f}   (top {COHERENCE_WORDS} words)"
        )
    for name, value in lines.items():
        print(f"{name:27s}{value}")


def _json_number(value: Any) -> Any:
    """What JSON has no number for is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_json(report: _Report, path: str) -> None:
    rows = [{name: _json_number(value) for name, value in row.items()} for row in report.topics]
    figures = {name: _json_number(value) for name, value in report.figures.items()}
    text = json.dumps({**figures, "topics": rows}, indent=2, allow_nan=False)
    with command.whole_file(path) as file:
        file.write(f"{text}\n".encode())


def _check(given: argparse.Namespace) -> None:
    """What can be refused before anything is read."""
    from esvi_shm.config import check_workers
    from esvi_shm.errors import ParameterError

    if not 0 <= given.seed < 2**63:
        raise ParameterError("seed", "must be from 0 to 2**63 - 1", given.seed)
    if given.workers is not None:
        check_workers(given.workers)
    if given.particles < 1:
        raise ParameterError("particles", "must be at least 1", given.particles)
    if given.left_to_right < 0:
        raise ParameterError("left_to_right", "must be at least 0", given.left_to_right)
    if given.top_words < 0:
        raise ParameterError("top_words", "must be at least 0", given.top_words)
    read = (
        given.corpus, given.reference, given.vocabulary, given.stop_words, *given.stability,
    )  # fmt: skip
    command.check_output("json", given.json, read, given.model, begins=b"{")


def _run(given: argparse.Namespace) -> None:
    _check(given)
    from esvi_shm import store
    from esvi_shm.progress import Progress

    model = store.load(given.model)
    if not hasattr(model, "words"):
        _evaluate_mixture(model, given)
        return
    others = [(path, store.load_topics(path)) for path in given.stability]
    with Progress(given.quiet, None) as progress:
        corpus = command.read(given, given.corpus, progress)
        reference = None
        if given.reference is not None:
            reference = command.read(given, given.reference, progress)
        report = _evaluate(model, corpus, reference, given)
    if others:
        _add_stability(report, model, others)
    if given.intervals:
        _add_intervals(report, model)
    # First what cannot be lost to a full disk.
    _print_report(report, given.top_words > 0)
    if given.json is not None:
        _write_json(report, given.json)


#: Options that say nothing of a mixture, beside those of reading.
_OF_TOPICS = (
    "reference", "left_to_right", "stability", "intervals", "seed", "particles", "workers",
    "top_words",
)  # fmt: skip


def _evaluate_mixture(model: "FittedMixture", given: argparse.Namespace) -> None:
    """The held-out log likelihood of points, which is all that is asked of a mixture."""
    import numpy as np

    from esvi_shm.points import read_points

    defaults = {name: _parser().get_default(name) for name in _OF_TOPICS}
    command.refuse(given, {**command.READING, **defaults}, "for a mixture")
    points = read_points(given.corpus)
    scores = model.score_samples(points)
    n = len(scores)
    error = float(scores.std(ddof=1) / np.sqrt(n)) if n > 1 else math.nan
    report = {
        "points": points.name,
        "n_points": points.n_points,
        "log_likelihood": float(scores.sum()),
        "log_likelihood_per_point": float(scores.mean()),
        "standard_error": _json_number(error),
    }
    if given.json is not None:
        with command.whole_file(given.json) as file:
            file.write(f"{json.dumps(report, indent=2, allow_nan=False)}\n".encode())
    print(f"{points.n_points:,} points of {points.name}")
    print(
        f"log likelihood (lower bound) {report['log_likelihood']:.6g} nats, "
        f"{report['log_likelihood_per_point']:.4f} a point (standard error {error:.2g})"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command.run("esvi_shm.evaluate", _run, _parser().parse_args(arguments), _PARAMETERS)


if __name__ == "__main__":
    command.end(main())
