"""Fit a topic model to a corpus: ``python -m esvi_shm.fit [CORPUS] [options]``.

Parses, calls, prints. Only the standard library is imported at the top, so that --help and
--version answer at once.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Python would print where a Ctrl-C struck. Before `command.run`, which takes care of it, there
    # is nothing to clean up: it just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import contextlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from esvi_shm import command, fit_mixture, fit_nodes
from esvi_shm.errors import ParameterError

if TYPE_CHECKING:
    from esvi_shm.config import FitConfig
    from esvi_shm.corpus import Corpus
    from esvi_shm.metrics import HeldOut
    from esvi_shm.model import FittedModel
    from esvi_shm.progress import Progress
    from esvi_shm.runtime.peers import Peers
    from esvi_shm.runtime.record import Result

EXAMPLE = """\
examples:
  python -m esvi_shm.fit                                 the docstrings of Python itself
  python -m esvi_shm.fit docword.nips.txt.gz --topics 100 --out nips-model
  python -m esvi_shm.fit reviews.txt --stop-words english --min-df 5 --topics 40
  python -m esvi_shm.fit counts.mtx --plan               only say how much memory it takes
  python -m esvi_shm.fit X.npy --family gaussian --covariance diag --components 256

Topics and results go to standard output, progress and warnings to standard error.

Exit codes: 0 done, 1 failed, 2 bad input, 130 or 143 aborted: by Ctrl-C or SIGTERM before the fit
begins, and by a second one in the fit or while it is saved (not by the same again within 0.2
seconds, as `timeout` sends it). The first Ctrl-C, SIGTERM or SIGHUP in the fit ends it early,
prints and saves what there is, and the exit code is 0: a warning, the last lines and `stopped` in
summary.json say so.
"""


def _whole_numbers(text: str) -> tuple[int, ...]:
    """'10,20'; one argument, so that a CORPUS may follow."""
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        rule = "must be whole numbers with commas between"
        raise argparse.ArgumentTypeError(f"{rule}, got {text!r}") from None


def _parser() -> argparse.ArgumentParser:
    parser = command.make_parser(
        "fit",
        "Fit latent Dirichlet allocation by asynchronous variational inference on "
        "all cores: documents stay with their worker process, blocks of words travel.",
        EXAMPLE,
    )

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
        "--alpha", default=0.1, metavar="A",
        help="Dirichlet prior of a document, per topic, not divided by K: a number, K numbers with "
        "commas between, or a .npy file of them; auto: learned, see --learn-priors (default: 0.1)",
    )  # fmt: skip
    model.add_argument(
        "--eta", default=0.05, metavar="E",
        help="Dirichlet prior of a topic, per word, not divided by V, in the same forms; auto: "
        "learned (default: 0.05)",
    )  # fmt: skip
    model.add_argument(
        "--learn-priors", default="none", metavar="NAME",
        help="alpha (a number for each topic), eta (one number for all words), both, none: which "
        "priors are learned, from what is given, once the updates have settled. A step is kept if "
        "the ELBO rises; under cvb0 if the perplexity of --holdout falls (default: none)",
    )  # fmt: skip
    model.add_argument(
        "--symmetric-alpha",
        action="store_true",
        help="a learned alpha is one number for all topics",
    )
    model.add_argument(
        "--inference", default="anneal", metavar="NAME",
        help="vb: variational Bayes, climbs the ELBO from pass to pass; cvb0: collapsed, of zero "
        "order, predicts unseen text best; anneal: cvb0, then vb, which ends at a higher ELBO than "
        "vb alone and predicts better than it (default: anneal)",
    )  # fmt: skip
    model.add_argument(
        "--cvb0-passes", type=int, metavar="N",
        help="anneal: passes of cvb0 before those of vb (default: half of all, at most 50, and "
        "with less than 512 topics a fifth, at most 20, in which those of cvb0 come ever rarer)",
    )  # fmt: skip
    model.add_argument(
        "--temper-passes", type=int, metavar="N",
        help="passes in which responsibilities are tempered, from a power of 0.8 to --power; "
        "0: none (default: seven tenths of all, at most 70; vb: none)",
    )  # fmt: skip
    model.add_argument(
        "--power", type=float, metavar="P",
        help="power of the responsibilities' factors from then on (default: 1; cvb0: 0.9, since "
        "its topics predict best while they are tempered)",
    )  # fmt: skip
    model.add_argument(
        "--leave-out", metavar="NAME",
        help="what cvb0 takes out of the counts by which it places a word in a document: pair (all "
        "of its own tokens there), excess (half as many again), token (one of them), none "
        "(default: pair; inference cvb0: excess, and with --relax above 1 none in the first two "
        "thirds of the passes, at most 25); storage topk and axis topics leave none out",
    )  # fmt: skip
    model.add_argument(
        "--settle", type=int, metavar="N",
        help="how often a pass all workers together put what they found of a word into the topics, "
        "at least; more is fewer passes and, where words are rare, slower ones (default: "
        "once each; cvb0, and anneal below 512 topics, storages margins and sparse, without "
        "--dense-passes: 2 to 4, by the pairs of a word)",
    )  # fmt: skip
    model.add_argument(
        "--relax", type=float, metavar="W",
        help="step of a word's counts towards their new value in the first five sixths of cvb0's "
        "passes, at most 80; above 1 and below 2 it goes further (default: 1; cvb0, and anneal "
        "below 512 topics, storages margins and sparse, without --dense-passes: 1.8)",
    )  # fmt: skip
    model.add_argument(
        "--refold-after", type=_whole_numbers, default=(), metavar="N,N...",
        help="passes after which all documents are folded in afresh under the topics of then: it "
        "frees those that are stuck in their first topics (default: none)",
    )  # fmt: skip
    model.add_argument(
        "--start", default="seeded", metavar="NAME",
        help="seeded: each topic from random documents; spread: from documents that are far from "
        "one another; scikit-learn: random topics as there; random: random responsibilities "
        "(default: seeded)",
    )  # fmt: skip
    model.add_argument(
        "--seed-documents", type=int, metavar="M",
        help="seeded, spread: documents that each topic starts from (default: 1)",
    )  # fmt: skip
    model.add_argument(
        "--start-from", metavar="MODEL",
        help="start from the topics of this saved model, matched by word; where it has fewer, the "
        "others by --start",
    )  # fmt: skip
    model.add_argument(
        "--seed-words", metavar="FILE",
        help="start the first topics from these words: one topic a line, words by white space; the "
        "others, and those of empty lines, by --start",
    )  # fmt: skip
    model.add_argument(
        "--noise", type=float, default=0.0, metavar="S",
        help="strength of noise on the topics' words in the first pass, going down to 0: 0.01 is "
        "enough to break ties under vb; 1 helps cvb0 on some corpora, and anneal on none that was "
        "tried (default: 0.0, none)",
    )  # fmt: skip
    model.add_argument(
        "--dense-passes", type=int, metavar="N",
        help="passes that update all topics; in those that follow, only the topics that a document "
        "and a word live in (default: all by cvb0, or below 512 topics; else 20)",
    )  # fmt: skip
    model.add_argument(
        "--noise-passes", type=int, metavar="N",
        help="passes with noise (default: three fifths of all, at most 60; vb: at most 15)",
    )  # fmt: skip

    model.add_argument(
        "--repair-after", type=_whole_numbers, default=(), metavar="N,N...",
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
        help="passes of each short fit, not among those of --passes: the fewer, the less they tell "
        "of where a fit will end (default: 20)",
    )  # fmt: skip

    fit_mixture.add_options(parser)

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
        "--holdout", metavar="FILE|SHARE",
        help="documents that the fit does not see: each evaluation records their perplexity by "
        "document completion (python -m esvi_shm.evaluate --help), while the clock stands still. "
        "A share (0.1) is drawn from CORPUS by --seed; a file is read as CORPUS is, without "
        "the options that drop words. Of mixtures: points, and their log likelihood "
        "(default: none)",
    )  # fmt: skip
    stop.add_argument(
        "--patience", type=int, metavar="N",
        help="stop when N evaluations in a row have brought no better figure of --holdout, once "
        "cvb0 of anneal, tempering, noise, refolds and repairs are over (default: never)",
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
        "--workers", type=int, metavar="P",
        help="worker processes (default: one for each core that affinity and quotas allow)",
    )  # fmt: skip
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
        "shortest queue (default: lap). From node to node blocks go by balanced, or else by lap",
    )  # fmt: skip
    engine.add_argument(
        "--storage", metavar="NAME",
        help="margins: sums of phi over documents and over words; sparse: these, gamma and lambda "
        "as lists of topics, for many topics; full: phi of every pair; topk: the largest --topk "
        "of phi of every pair (default: margins, or what --max-memory has room for)",
    )  # fmt: skip
    engine.add_argument(
        "--axis", default="words", metavar="NAME",
        help="what travels. words: blocks of words; topics: groups of topics, and a pair moves "
        "on those that are at its worker together: the bound never falls at any number of workers, "
        "but a pass takes longer; takes --storage full (default: words)",
    )  # fmt: skip
    engine.add_argument(
        "--topk", type=int, metavar="C",
        help="topk: responsibilities kept for each pair; fewer take less memory and end at a lower "
        "ELBO (default: a quarter of the topics). Mixtures: kept for each point (default: all)",
    )  # fmt: skip
    engine.add_argument(
        "--residual", default="spread", metavar="NAME",
        help="topk: what becomes of the mass that is not kept. spread: in equal parts over the "
        "other topics; drop: the kept ones are divided by their sum (default: spread)",
    )  # fmt: skip
    engine.add_argument(
        "--max-memory", metavar="SIZE",
        help="memory that all processes together may take, wherever the arrays lie: bytes, or a "
        "number with K, M, G or T (binary; 8G). Where the plan is above it, and --storage or "
        "--topk or --blocks is not given, what fits is taken, and said: margins or full in fewer "
        "blocks, else from 512 topics on sparse, else topk with as many kept as fit. Nothing is "
        "allocated before (default: no limit)",
    )  # fmt: skip
    engine.add_argument(
        "--scratch", metavar="DIR",
        help="folder, best on a fast local disk, for the shared arrays where /dev/shm or the "
        "memory has no room for them: in files without a name, which are gone with the fit, "
        "however it ends. With room they stay in memory. Without DIR the temporary folder is "
        "taken where only /dev/shm is short (default: none)",
    )  # fmt: skip
    engine.add_argument(
        "--deterministic", action="store_true",
        help="the same bits for the same seed, P, B, versions and kind of processor; slower",
    )  # fmt: skip

    fit_nodes.add_options(parser)

    output = parser.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="save the model there")
    output.add_argument(
        "--save-every", type=int, metavar="N",
        help="save the model after every N passes too, in place of the one before, while the clock "
        "stands still: what is left if the fit breaks off (default: at the end only)",
    )  # fmt: skip
    output.add_argument(
        "--top-words", type=int, default=10, metavar="N",
        help="words of each topic in the table; 0: no table (default: 10)",
    )  # fmt: skip
    output.add_argument(
        "--plan", action="store_true",
        help="print how much memory the fit takes, shared and of its processes, and exit",
    )  # fmt: skip
    output.add_argument("--quiet", action="store_true", help="no progress; warnings all the same")
    output.add_argument("--log-json", metavar="FILE", help="progress as one JSON object a line")
    return parser


#: Option: name of the parameter in FitConfig, where they differ.
_PARAMETERS = {
    "topics": "n_topics",
    "workers": "n_workers",
    "blocks": "n_blocks",
    "passes": "n_passes",
}


def _prior(name: str, value: Any) -> Any:
    """What an option that sets a prior says: a number, a vector, or "auto"."""
    if not isinstance(value, str) or value == "auto":
        return value
    rule = "must be a number, numbers with commas between, a .npy file, or auto"
    return command.numbers(name, value, rule)


def _config(given: argparse.Namespace) -> "FitConfig":
    from esvi_shm.config import FitConfig
    from esvi_shm.corpus.seed_words import read_seed_words

    values = {_PARAMETERS.get(name, name): value for name, value in vars(given).items()}
    values.update({name: _prior(name, values[name]) for name in ("alpha", "eta")})
    values["seed_words"] = read_seed_words(given.seed_words) if given.seed_words is not None else ()
    if given.start_from is not None:
        from esvi_shm import store

        values["start_from"] = store.load_topics(given.start_from).given_topics(given.start_from)
    return FitConfig(**{f.name: values[f.name] for f in fields(FitConfig) if f.name in values})


def _print_results(model: "FittedModel", n_words: int) -> None:
    summary = model.summary
    if n_words:
        print("topic  share  words")
        for topic in model.iterate_topics(n_words):
            words = " ".join(topic.words) or "(unused)"
            print(f"{topic.number:5d}  {topic.share:5.1%}  {words}")
        print()
    print(
        f"{summary['n_topics']} topics, {summary['n_passes']:g} passes (stopped by "
        f"{summary['stopped']}), {summary['fit_seconds']:.2f} s of fitting, "
        f"{summary['pairs_per_second'] / 1e6:.1f} M pairs/s"
    )
    print(f"ELBO {summary['elbo']:.6g} nats, {summary['elbo_per_token']:.4f} a token")
    if summary["config"]["learn_priors"] != "none":
        alpha = model.alpha
        print(
            f"alpha {summary['alpha_mean']:.4g} on average ({alpha.min():.3g} to "
            f"{alpha.max():.3g}), eta {summary['eta_mean']:.4g}"
        )
    if summary["holdout"] is not None:
        last, least = model.history[-1], min(model.history, key=lambda record: record.perplexity)
        lower = f"; {least.perplexity:.2f} after {least.passes:g} passes"
        print(
            f"held-out perplexity {last.perplexity:.2f} "
            f"({summary['holdout']['n_documents']:,} documents"
            f"{lower if least.perplexity < 0.999 * last.perplexity else ''})"
        )


def _read(
    given: argparse.Namespace, seed: int, progress: "Progress", peers: "Peers | None"
) -> "tuple[Corpus, HeldOut | None]":
    """The corpus to train on, of several nodes this one's part, and the documents that judge."""
    from esvi_shm.corpus.part import join

    if peers is None:
        return _set_aside(given, command.read(given, given.corpus, progress), seed, progress)
    found = fit_nodes.read_own(given, progress, peers)
    share = command.share_of(given.holdout)
    if share is None:
        corpus, held_out = _set_aside(given, found.corpus, seed, progress)
    else:
        corpus, held_out = fit_nodes.set_aside(found, share, seed, peers)
        _tell_held_out(held_out, progress)
    part = join(corpus, peers)
    command.tell_size(part.whole, progress)
    return part, held_out


def _set_aside(
    given: argparse.Namespace, corpus: "Corpus", seed: int, progress: "Progress"
) -> "tuple[Corpus, HeldOut | None]":
    """The corpus to train on, and the documents that judge."""
    from esvi_shm.metrics.holdout import set_aside

    if given.holdout is None:
        return corpus, None
    holdout: Any = command.share_of(given.holdout)
    if holdout is None:
        # Its words are those of CORPUS, however rare they are here.
        kept = {"min_df": 1, "max_df": 1.0, "stop_words": None, "max_vocabulary": None}
        every = argparse.Namespace(**{**vars(given), **kept})
        holdout = command.read(every, given.holdout, progress)
    training, held_out, _ = set_aside(corpus, holdout, seed)
    progress.n_tokens = training.n_tokens
    _tell_held_out(held_out, progress)
    return training, held_out


def _tell_held_out(held_out: "HeldOut", progress: "Progress") -> None:
    progress.say(
        f"held out: {held_out.n_documents:,} documents, {held_out.scored.n_tokens:,} tokens to "
        f"score; outside the vocabulary: {held_out.outside_words:,} words, "
        f"{held_out.outside_tokens:,} tokens"
    )


def _run(given: argparse.Namespace) -> None:
    if given.family != "lda":
        fit_mixture.run(given)
        return
    command.refuse(given, fit_mixture.ONLY_OURS, "with family lda")
    from esvi_shm import store
    from esvi_shm.model import FittedModel
    from esvi_shm.progress import Progress
    from esvi_shm.runtime import engine, memory
    from esvi_shm.runtime.signals import Signals

    config = _config(given)
    engine.check(config, given.holdout is not None)
    command.share_of(given.holdout)
    if given.top_words < 0:
        raise ParameterError("top_words", "must be at least 0", given.top_words)
    command.check_out(given.out, given.save_every)
    read = (
        given.corpus, given.vocabulary, given.stop_words, given.holdout, given.seed_words,
        given.start_from, str(given.alpha), str(given.eta),
    )  # fmt: skip
    command.check_output("log_json", given.log_json, read, given.out, begins=b"{")
    with contextlib.ExitStack() as stack:
        peers = stack.enter_context(fit_nodes.joined(given, config))
        is_first = peers is None or peers.rank == 0
        progress = stack.enter_context(
            Progress(given.quiet or not is_first, given.log_json if is_first else None)
        )
        corpus, held_out = _read(given, config.seed, progress, peers)
        if given.plan:
            layout = engine.plan(corpus, config, True, peers)
            if is_first:
                print(memory.describe(layout))
            return
        if given.out is not None and corpus.vocabulary is not None:
            store.check_words(corpus.vocabulary)
        if given.out is not None and is_first:
            n_rows = corpus.whole.n_documents + corpus.n_words
            store.check_room(given.out, n_rows * config.n_topics * 4)
        about = held_out.describe() if held_out else None

        def model_of(result: "Result") -> FittedModel:
            return FittedModel.from_result(result, corpus, about)

        kept = command.keep(given.save_every, given.out, model_of, progress if is_first else None)
        result = engine.fit(corpus, config, progress, held_out, True, peers, kept)
        if not is_first:
            return
        # As in the fit: what there is is saved at the first signal, and printed.
        with Signals():
            model = model_of(result)
            with command.told_all_the_same(lambda: _print_results(model, given.top_words)):
                if given.out is not None:
                    store.save(model, given.out)
        progress.log("summary", **model.summary)
    _print_results(model, given.top_words)
    if given.out is not None:
        progress.say(f"saved in {given.out}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = _parser().parse_args(arguments)
    parameters = _PARAMETERS if given.family == "lda" else fit_mixture.PARAMETERS
    return command.run("esvi_shm.fit", _run, given, parameters)


if __name__ == "__main__":
    command.end(main())
