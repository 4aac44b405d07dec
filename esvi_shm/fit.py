"""Fit a topic model to a corpus: ``python -m esvi_shm.fit [CORPUS] [options]``.

Parses, calls, prints. Only the standard library is imported at the top, so that --help and
--version answer at once.
"""

import argparse
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from esvi_shm import __version__, command
from esvi_shm.errors import ParameterError

if TYPE_CHECKING:
    from esvi_shm.config import FitConfig
    from esvi_shm.model import FittedModel

EXAMPLE = """\
examples:
  python -m esvi_shm.fit                                 the docstrings of Python itself
  python -m esvi_shm.fit docword.nips.txt.gz --topics 100 --out nips-model
  python -m esvi_shm.fit reviews.txt --stop-words english --min-df 5 --topics 40
  python -m esvi_shm.fit counts.mtx --plan               only say how much memory it takes

Topics and results go to standard output, progress to standard error. Exit codes: 0 done,
1 failed, 2 bad input, 130 or 143 aborted by a second Ctrl-C or SIGTERM (the first one ends the
fit early and saves what there is).
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m esvi_shm.fit",
        description="Fit latent Dirichlet allocation by asynchronous variational inference on "
        "all cores: documents stay with their worker process, blocks of words travel.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"esvi_shm {__version__}")

    corpus = parser.add_argument_group("corpus")
    corpus.add_argument(
        "corpus", nargs="?", metavar="CORPUS",
        help=f"{command.FORMATS}; without it: the docstrings of Python's standard library",
    )  # fmt: skip
    command.add_reading_options(corpus)

    model = parser.add_argument_group("model")
    model.add_argument(
        "--topics", type=int, default=50, metavar="K", help="number of topics (default: 50)"
    )
    model.add_argument(
        "--alpha", type=float, default=0.1, metavar="A",
        help="Dirichlet prior of a document, per topic, not divided by K (default: 0.1)",
    )  # fmt: skip
    model.add_argument(
        "--eta", type=float, default=0.05, metavar="E",
        help="Dirichlet prior of a topic, per word, not divided by V (default: 0.05)",
    )  # fmt: skip
    model.add_argument(
        "--inference", default="anneal", metavar="NAME",
        help="vb: variational Bayes, climbs the ELBO from pass to pass; cvb0: collapsed, of zero "
        "order, predicts unseen text best; anneal: cvb0, then vb, which ends at a higher ELBO than "
        "vb alone and predicts about as well as cvb0 (default: anneal)",
    )  # fmt: skip
    model.add_argument(
        "--cvb0-passes", type=int, metavar="N",
        help="anneal: passes of cvb0 before those of vb (default: half of all, at most 50)",
    )  # fmt: skip
    model.add_argument(
        "--temper-passes", type=int, metavar="N",
        help="passes in which responsibilities are tempered, from a power of 0.8 to 1; 0: none "
        "(default: two fifths of all, at most 40; vb: none)",
    )  # fmt: skip
    model.add_argument(
        "--refold-after", type=int, nargs="+", default=[], metavar="N",
        help="passes after which all documents are folded in afresh under the topics of then: it "
        "frees those that are stuck in their first topics (default: none)",
    )  # fmt: skip
    model.add_argument(
        "--start", default="seeded", metavar="NAME",
        help="seeded: each topic from one random document; scikit-learn: random topics as there; "
        "random: random responsibilities (default: seeded)",
    )  # fmt: skip

    model.add_argument(
        "--repair-after", type=int, nargs="+", default=[], metavar="N",
        help="passes after which topics that are dead or double begin anew from documents that "
        "are explained badly; kept only if the objective is higher by it than without, 10 passes "
        "later, which do not count (default: none)",
    )  # fmt: skip
    model.add_argument(
        "--restarts", type=int, default=1, metavar="R",
        help="try R starts by a short fit each, and go on with the one whose objective is best "
        "(default: 1)",
    )  # fmt: skip
    model.add_argument(
        "--restart-passes", type=int, default=20, metavar="N",
        help="passes of each short fit, beside those of --passes: fewer tell less of where a fit "
        "will end (default: 20)",
    )  # fmt: skip

    stop = parser.add_argument_group("length of the fit")
    stop.add_argument(
        "--passes", type=int, default=100, metavar="N",
        help="passes over the corpus at most (default: 100)",
    )  # fmt: skip
    stop.add_argument(
        "--tol", type=float, default=1e-4, metavar="T",
        help="stop when the ELBO changes by less than this share of itself between two "
        "evaluations; 0: never (default: 0.0001)",
    )  # fmt: skip
    stop.add_argument(
        "--max-time", type=float, metavar="S", help="seconds of fitting at most (default: no limit)"
    )
    stop.add_argument(
        "--evaluate-every", type=int, default=10, metavar="N",
        help="passes between evaluations of the ELBO; 0: at the end only (default: 10)",
    )  # fmt: skip
    stop.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of all random choices (default: 0)"
    )

    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--workers", type=int, metavar="P", help="worker processes (default: one a core)"
    )
    engine.add_argument(
        "--blocks",
        type=int,
        metavar="B",
        help="blocks of words that travel (default: by the length of documents and P)",
    )
    engine.add_argument(
        "--route", default="lap", metavar="NAME",
        help="lap: every worker once a pass, the one with the shortest queue first; ring: in turn; "
        "random: any worker next, as in the paper; balanced: another one, the one with the "
        "shortest queue (default: lap)",
    )  # fmt: skip
    engine.add_argument(
        "--storage", default="margins", metavar="NAME",
        help="margins: sums of phi over documents and over words; full: phi of every pair "
        "(default: margins)",
    )  # fmt: skip
    engine.add_argument(
        "--deterministic", action="store_true",
        help="the same bits for the same seed, P, B, versions and kind of processor; slower",
    )  # fmt: skip

    output = parser.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="save the model there")
    output.add_argument(
        "--top-words", type=int, default=10, metavar="N",
        help="words of each topic in the table; 0: no table (default: 10)",
    )  # fmt: skip
    output.add_argument(
        "--plan", action="store_true", help="print how much memory the fit takes, and exit"
    )
    output.add_argument("--quiet", action="store_true", help="no progress")
    output.add_argument("--log-json", metavar="FILE", help="progress as one JSON object a line")
    return parser


#: Option: name of the parameter in FitConfig, where they differ.
_PARAMETERS = {
    "topics": "n_topics",
    "workers": "n_workers",
    "blocks": "n_blocks",
    "passes": "n_passes",
}


def _config(given: argparse.Namespace) -> "FitConfig":
    from esvi_shm.config import FitConfig

    values = {_PARAMETERS.get(name, name): value for name, value in vars(given).items()}
    return FitConfig(**{f.name: values[f.name] for f in fields(FitConfig) if f.name in values})


def _print_results(model: "FittedModel", n_words: int) -> None:
    summary = model.summary
    if n_words:
        print("topic  share  words")
        for topic in model.iterate_topics(n_words):
            print(f"{topic.number:5d}  {topic.share:5.1%}  {' '.join(topic.words)}")
        print()
    print(
        f"{summary['n_topics']} topics, {summary['n_passes']:g} passes (stopped by "
        f"{summary['stopped']}), {summary['fit_seconds']:.2f} s of fitting, "
        f"{summary['pairs_per_second'] / 1e6:.1f} M pairs/s"
    )
    print(f"ELBO {summary['elbo']:.6g} nats, {summary['elbo_per_token']:.4f} a token")


def _run(given: argparse.Namespace) -> None:
    from esvi_shm import store
    from esvi_shm.model import FittedModel
    from esvi_shm.progress import Progress
    from esvi_shm.runtime import engine

    config = _config(given)
    engine.check(config)
    if given.top_words < 0:
        raise ParameterError("top_words", "must be at least 0", given.top_words)
    if given.out is not None:
        store.check_target(given.out)
    with Progress(given.quiet, given.log_json) as progress:
        corpus = command.read(given, given.corpus, progress)
        if given.plan:
            print(engine.plan(corpus, config).describe())
            return
        if given.out is not None and corpus.vocabulary is not None:
            store.check_words(corpus.vocabulary)
        model = FittedModel.from_result(engine.fit(corpus, config, progress), corpus)
        if given.out is not None:
            store.save(model, given.out)
        progress.log("summary", **model.summary)
    _print_results(model, given.top_words)
    if given.out is not None:
        progress.say(f"saved in {given.out}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command.run("esvi_shm.fit", _run, _parser().parse_args(arguments), _PARAMETERS)


if __name__ == "__main__":
    sys.exit(main())
