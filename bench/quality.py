"""Held-out perplexity and ELBO of esvi_shm and its peers: one run, one scorer, kept as it goes.

    documents -> 80% train, 10% validation, 10% test            (by `--split-seed`)
    each system: (alpha, eta) of the grid, one seed, train -> least perplexity of validation
                 these priors, all seeds, train            -> perplexity of test

The scorer is document completion, `esvi_shm.metrics`: point topics E[beta] of any system, its own
alpha, the same coins. Seconds are those of training alone, one thread each, kernels compiled
before: esvi_shm its start and its passes; a peer as told in `bench.peers`. They are kept by the
wall's clock and by the processor's, of all processes, which is the one to compare where other work
runs beside; where cvb0 learns alpha, the validation documents judge it, and that is in both. For
the curves a peer is scored on its way, outside its clock; esvi_shm has a fit of
its own for each number of passes, since what a pass does depends on how many there are.

With `--timed` fits with the chosen priors are run again for their seconds alone, the systems in
turn; nothing else should run beside. With `--bound` the ELBO (L, by `bench.score`) of whole
corpora is found instead, at alpha = eta = 0.1.

Each scored state is a line of OUT/quality.jsonl, and what is there is not run again: an
interrupted run goes on, and parts may be run one by one. `--report` makes the tables and figures of
what is there, without a corpus.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from bench import common, peers, quality_report, score
from bench.quality_records import GRID, OURS, PEERS, WAYS_OUT, Records, choose
from esvi_shm import metrics
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.contract import Judge
from esvi_shm.metrics.holdout import HeldOut
from esvi_shm.runtime import engine
from esvi_shm.runtime.record import Observer

CORPORA = ("ap", "kos", "nips", "nyt9k", "reuters21578", "poliblog5k", "20news")
BOUND_PRIORS = (0.1, 0.1)
#: Numbers of steps at which states are scored for the curves, besides the last: of a peer, and of
#: esvi_shm.
CURVE = (5, 10, 12, 15, 20, 25, 30, 37, 50, 100, 200)
OUR_CURVE = (5, 10, 12, 15, 20, 22, 25, 27, 30, 33, 37, 43, 50, 60, 67, 75)


class System(NamedTuple):
    """What is compared."""

    #: (corpus, K, alpha, eta, seed, at) -> model, topics after each number of steps in `at`
    fit: Callable[..., tuple[Any, list[peers.Topics]]]
    steps: int  # of a whole fit
    package: str | None = None


class _Cpu(Observer):
    """Processor seconds of all processes, from when they are ready until the last bound."""

    seconds = began = 0.0

    def stage(self, name: str) -> None:
        if name == "start":
            self.began = self._of_all()

    def evaluating(self) -> None:
        self.seconds = self._of_all() - self.began

    @staticmethod
    def _of_all() -> float:
        this = psutil.Process()
        times = [process.cpu_times() for process in (this, *this.children())]
        return sum(t.user + t.system for t in times)


def fit_ours(
    corpus: Corpus,
    n_topics: int,
    alpha: float,
    eta: float,
    seed: int,
    at: Collection[int],
    judge: Judge | None = None,
    **how: Any,
) -> tuple[Any, list[peers.Topics]]:
    """esvi_shm, one worker, a fit for each number of passes; also returns the last result.

    `how` are other options of the fit.
    """
    noted = []
    for passes in sorted(at):
        config = FitConfig(
            n_topics=n_topics, alpha=alpha, eta=eta, n_passes=passes, seed=seed,
            tol=0.0, evaluate_every=0, n_workers=1, **how,
        )  # fmt: skip
        cpu = _Cpu()
        result = engine.fit(corpus, config, cpu, judge)
        if result.stopped != "passes":  # a signal: what there is is no whole fit
            raise KeyboardInterrupt(result.stopped)
        lambda_ = _in_order(result.learned.lambda_rows, result.learned.word_ids)
        seconds = (result.fit_seconds, cpu.seconds)
        noted.append(peers.Topics(passes, *seconds, lambda_, result.learned.alpha))
    return result, noted


def _in_order(rows: np.ndarray, word_ids: np.ndarray) -> np.ndarray:
    """lambda by word."""
    lambda_ = np.empty_like(rows)
    lambda_[word_ids] = rows
    return lambda_


def systems(options: argparse.Namespace) -> dict[str, System]:
    """Those asked for whose package is installed."""
    known = {name: System(partial(fit_ours, **how), options.passes) for name, how in OURS.items()}
    known |= {
        "scikit-learn": System(peers.fit_scikit_learn, options.iterations),
        "gensim": System(
            partial(peers.fit_gensim, chunk=options.chunk), options.gensim_passes, "gensim"
        ),
        "tomotopy": System(
            partial(peers.fit_tomotopy, learn=False), options.samples, "tomotopy"
        ),
        "tomotopy, learning alpha": System(
            partial(peers.fit_tomotopy, learn=True), options.samples, "tomotopy"
        ),
    }  # fmt: skip
    names = options.systems or [name for name in known if name not in WAYS_OUT]
    chosen = {name: known[name] for name in names}
    return {
        name: system
        for name, system in chosen.items()
        if system.package is None or common.has(system.package)
    }


class Split(NamedTuple):
    """A corpus for training, the halves of the documents that are held out, and a fit's judge."""

    train: Corpus
    validation: tuple[metrics.Half, metrics.Half]
    test: tuple[metrics.Half, metrics.Half]
    judge: HeldOut  # by the validation documents


def split(corpus: Corpus, seed: int) -> Split:
    """Cut 10% of the documents off for validation and 10% for the test, by a seeded shuffle."""
    order = np.random.default_rng(seed).permutation(corpus.n_documents)
    tenth = max(corpus.n_documents // 10, 1)
    parts = order[:tenth], order[tenth : 2 * tenth], order[2 * tenth :]
    matrix = corpus.as_sparse()
    test, validation, train = (
        Corpus.from_sparse(matrix[np.sort(part)], corpus.vocabulary, corpus.name) for part in parts
    )
    words = [corpus.word(v) for v in range(corpus.n_words)]
    halves = metrics.split_tokens(validation), metrics.split_tokens(test)
    return Split(train, *halves, HeldOut(validation, words, seed=0))


def complete(topics: peers.Topics, halves: tuple[metrics.Half, metrics.Half]) -> metrics.Completion:
    """How well the topics complete documents, with the system's own alpha."""
    observed, scored = halves
    points = metrics.point_topics(topics.lambda_)
    theta = metrics.fold_in(points, topics.alpha, observed)
    return metrics.completion_perplexity(theta, points, scored)


def _curve(called: str, system: System) -> list[int]:
    """The numbers of steps at which states are scored; the last is the whole fit."""
    at = OUR_CURVE if called in OURS else CURVE
    return [*(n for n in at if n < system.steps), system.steps]


def _fit(
    parts: Split, key: dict[str, Any], system: System, at: Sequence[int]
) -> list[peers.Topics]:
    priors = (key["topics"], key["alpha"], key["eta"])
    others = {}
    if "learn_priors" in OURS.get(key["system"], {}):
        others["judge"] = parts.judge
    return system.fit(parts.train, *priors, key["seed"], at, **others)[1]


def _spent(topics: peers.Topics) -> dict[str, float]:
    """Steps and seconds of a fit, and how busy the machine was."""
    seconds, cpu = round(topics.seconds, 4), round(topics.cpu, 4)
    return {"steps": topics.steps, "seconds": seconds, "cpu": cpu,
            "load": round(os.getloadavg()[0], 2)}  # fmt: skip


def fit_and_score(
    records: Records, parts: Split, key: dict[str, Any], system: System, at: Collection[int]
) -> None:
    """Fit once, and keep a record of each number of steps in `at` that has none."""
    missing = [steps for steps in at if not records.find(part="state", steps=steps, **key)]
    if not missing:
        return
    noted = _fit(parts, key, system, missing)
    for topics in noted:
        test = complete(topics, parts.test)
        records.add(
            part="state", **key, **_spent(topics),
            validation=complete(topics, parts.validation).perplexity, test=test.perplexity,
            log_likelihood=np.round(test.log_likelihood, 3).tolist(),
        )  # fmt: skip
    last = noted[-1]
    print(
        f"  {key['corpus']}, {key['topics']} topics, {key['system']}, alpha {key['alpha']:g}, "
        f"eta {key['eta']:g}, seed {key['seed']}: {last.steps} steps, {last.seconds:.2f} s, "
        f"perplexity {test.perplexity:.1f}",
        flush=True,
    )


def held_out(
    records: Records,
    corpus: Corpus,
    name: str,
    n_topics: int,
    options: argparse.Namespace,
    compared: dict[str, System],
) -> None:
    """Priors by validation, then all seeds, for each system."""
    parts = split(corpus, options.split_seed)
    cut = {"corpus": name, "split": options.split_seed}
    if not records.find(part="test", **cut):
        tokens = complete(_uniform(parts.train, n_topics), parts.test).tokens
        records.add(part="test", **cut, tokens=tokens.tolist())
    for called, system in compared.items():
        whole, curve = system.steps, _curve(called, system)
        key = {**cut, "topics": n_topics, "system": called}
        # Of a peer a fit has them all; of esvi_shm each is a fit, which only the best priors get.
        at = [whole] if called in OURS else curve
        given = records.find(part="grid", **key)
        if not given or given[-1]["pairs"] != options.grid:
            records.add(part="grid", **key, pairs=options.grid)
        for alpha, eta in options.grid:
            of_grid = {**key, "alpha": alpha, "eta": eta, "seed": 0}
            fit_and_score(records, parts, of_grid, system, at)
        best = choose(quality_report.of_grid(records, key, whole))
        for seed in range(options.seeds):
            fit_and_score(records, parts, {**key, **best, "seed": seed}, system, curve)


def timed(
    records: Records,
    corpus: Corpus,
    name: str,
    n_topics: int,
    options: argparse.Namespace,
    compared: dict[str, System],
) -> None:
    """The seconds of fits with the priors that were chosen, the systems in turn."""
    parts = split(corpus, options.split_seed)
    chosen = {}
    for called in compared:
        key = {"corpus": name, "split": options.split_seed, "topics": n_topics, "system": called}
        found = quality_report.find(records, **key)
        if found is None:
            print(f"left out: no priors were chosen for {called}, {name}, {n_topics} topics")
            continue
        chosen[called] = {**key, **found.priors}
    for turn, called in itertools.product(range(options.timed), chosen):
        key, system = {**chosen[called], "seed": turn}, compared[called]
        curve = _curve(called, system)
        missing = [n for n in curve if not records.find(part="time", steps=n, **key)]
        for topics in _fit(parts, key, system, missing) if missing else []:
            records.add(part="time", **key, **_spent(topics))
        print(f"  {name}, {n_topics} topics, {called}: timed, turn {turn + 1}", flush=True)


def _uniform(corpus: Corpus, n_topics: int) -> peers.Topics:
    """Topics that say nothing."""
    return peers.Topics(0, 0.0, 0.0, np.ones((corpus.n_words, n_topics)), np.ones(n_topics))


def bounds(
    records: Records,
    corpus: Corpus,
    name: str,
    n_topics: int,
    options: argparse.Namespace,
    compared: dict[str, System],
) -> None:
    """L of the whole corpus; gamma of scikit-learn is settled to its fixed point for it."""
    alpha, eta = BOUND_PRIORS
    climbing = [called for called, how in OURS.items() if how["inference"] != "cvb0"]
    wanted = [called for called in (*climbing, "scikit-learn") if called in compared]
    for called, seed in itertools.product(wanted, range(options.seeds)):
        theirs = called == "scikit-learn"
        steps = options.converged if theirs else options.passes
        key = {
            "corpus": name, "topics": n_topics, "system": called, "alpha": alpha, "eta": eta,
            "seed": seed, "steps": steps,
        }  # fmt: skip
        if records.find(part="bound", **key):
            continue
        if theirs:
            (state,) = peers.scikit_learn(corpus, n_topics, alpha, eta, seed, [steps])
            gamma = score.settle_documents(corpus, state.gamma, state.lambda_, alpha)
            seconds, lambda_ = state.seconds, state.lambda_
        else:
            result, (topics,) = fit_ours(
                corpus, n_topics, alpha, eta, seed, [steps], **OURS[called]
            )
            gamma, lambda_ = np.concatenate(result.learned.of_units), topics.lambda_
            seconds = topics.seconds
        elbo = score.elbo(corpus, gamma, lambda_, alpha, eta) / corpus.n_tokens
        records.add(part="bound", **key, seconds=round(seconds, 4), elbo=elbo)
        print(f"  {name}, {n_topics} topics, {called}, seed {seed}: {elbo:.4f}", flush=True)


def _pair(text: str) -> list[float]:
    """alpha and eta of an argument."""
    alpha, eta = text.split(",")
    return [float(alpha), float(eta)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing of what is asked for, or report what there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", help="folder with docword.NAME.txt.gz")
    parser.add_argument("--corpora", nargs="+", default=list(CORPORA), metavar="NAME")
    parser.add_argument("--topics", type=int, nargs="+", default=[64, 128], metavar="K")
    parser.add_argument("--systems", nargs="+", metavar="NAME", choices=(*OURS, *PEERS),
                        help=f"of {'; '.join((*OURS, *PEERS))} (default: all but "
                        f"{'; '.join(WAYS_OUT)})")  # fmt: skip
    parser.add_argument("--grid", nargs="+", type=_pair, default=[list(pair) for pair in GRID],
                        metavar="ALPHA,ETA", help="what each system may choose from")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3, help="fits with the chosen priors")
    parser.add_argument("--split-seed", type=int, default=0, help="of the held-out documents")
    parser.add_argument("--passes", type=int, default=100, help="of esvi_shm")
    parser.add_argument("--iterations", type=int, default=20, help="of scikit-learn")
    parser.add_argument("--converged", type=int, default=100, help="the same, for --bound")
    parser.add_argument("--gensim-passes", type=int, default=10)
    parser.add_argument("--chunk", type=int, default=500, help="documents an update of gensim")
    parser.add_argument("--samples", type=int, default=300, help="iterations of tomotopy")
    parser.add_argument("--timed", type=int, default=0, metavar="N",
                        help="the seconds of what was fitted before instead, N times")  # fmt: skip
    parser.add_argument("--bound", action="store_true", help="the ELBO of whole corpora instead")
    parser.add_argument("--report", action="store_true", help="tables and figures, nothing is run")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder to save in")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {options.seeds}")
    records = Records(options.out / "quality.jsonl")
    if options.report:
        quality_report.write(records, options.out)
        return
    if options.data is None:
        parser.error("DATA must be given, unless with --report")
    found = {name: options.data / f"docword.{name}.txt.gz" for name in options.corpora}
    for name in [name for name, path in found.items() if not path.exists()]:
        print(f"left out: there is no {found.pop(name)}")
    if not found:
        common.skip(f"no corpus in {options.data}")
    compared = systems(options)
    if not compared:
        common.skip("none of the systems is installed")
    facts = common.machine()
    print(common.describe(facts))
    records.add(part="machine", command=list(arguments or sys.argv[1:]), **facts)

    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        work = bounds if options.bound else timed if options.timed else held_out
        for (name, path), n_topics in itertools.product(found.items(), options.topics):
            work(records, common.load(path), name, n_topics, options, compared)


if __name__ == "__main__":
    main()
