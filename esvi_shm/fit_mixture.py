"""What `python -m esvi_shm.fit` does where `--family` is a mixture.

Parses, calls, prints; `fit` hands over what it has parsed.
"""

import argparse
import contextlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from esvi_shm import command, fit_nodes
from esvi_shm.errors import ParameterError

if TYPE_CHECKING:
    from esvi_shm.mixture import FittedMixture
    from esvi_shm.runtime.record import Result

#: Option: name of the parameter in FitConfig or MixtureOptions, where they differ.
PARAMETERS = {
    "components": "n_topics",
    "workers": "n_workers",
    "blocks": "n_blocks",
    "passes": "n_passes",
}
_ARRAYS = ("mean_prior", "covariance_prior", "means")
#: Options of a corpus, which say nothing of points; with their defaults.
_NOT_OURS = {**command.READING, "start_from": None, "seed_words": None}
#: The other way round: what says nothing of a corpus.
ONLY_OURS = {
    "components": None,
    "covariance": "diag",
    "weight_concentration_prior": None,
    "mean_precision_prior": None,
    "degrees_of_freedom_prior": None,
    "feature_prior": None,
    "mean_prior": None,
    "covariance_prior": None,
    "means": None,
    "moves": True,
    "strict": False,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that only mixtures have."""
    group = parser.add_argument_group(
        "mixtures", "CORPUS is then points: .npy, .npz (dense, or sparse), .csv, .mtx"
    )
    group.add_argument(
        "--family", default="lda", metavar="NAME",
        help="lda, or a mixture: gaussian, multinomial, bernoulli, poisson (default: lda)",
    )  # fmt: skip
    group.add_argument(
        "--components", type=int, metavar="K", help="components of the mixture (default: 50)"
    )
    group.add_argument(
        "--covariance", default="diag", metavar="NAME",
        help="gaussian: diag (a precision for each feature), spherical (one), full (default: diag)",
    )  # fmt: skip
    for name, what in (
        ("weight-concentration-prior", "Dirichlet parameter of each weight (default: 1 / K)"),
        ("mean-precision-prior", "points that the prior mean stands for (default: 1)"),
        (
            "degrees-of-freedom-prior",
            "of the precisions' prior (default: 1; full: the number of features)",
        ),
        ("feature-prior", "counts: what the prior adds to each feature (default: 0.5)"),
    ):
        group.add_argument(f"--{name}", type=float, metavar="X", help=what)
    group.add_argument(
        "--mean-prior", metavar="X", help=".npy file, or numbers with commas (default: the mean)"
    )
    group.add_argument(
        "--covariance-prior", metavar="X",
        help=".npy file, or numbers with commas between (default: the covariance of the points)",
    )  # fmt: skip
    group.add_argument(
        "--means", metavar="FILE", help=".npy file of means that the components start from"
    )
    group.add_argument(
        "--no-moves",
        dest="moves",
        action="store_false",
        help="do not merge and split components after some passes, where that raises the bound",
    )
    group.add_argument(
        "--strict", action="store_true",
        help="update only the components that a worker holds (Algorithm 2 to the letter): slower, "
        "and the bound never falls with any number of workers",
    )  # fmt: skip


def run(given: argparse.Namespace) -> None:
    """Fit a mixture as the options say."""
    from esvi_shm import families, store
    from esvi_shm.config import FitConfig
    from esvi_shm.mixture import FittedMixture
    from esvi_shm.mixture_holdout import set_aside
    from esvi_shm.mixture_options import MixtureOptions
    from esvi_shm.points import read_points
    from esvi_shm.progress import Progress
    from esvi_shm.runtime import engine, memory
    from esvi_shm.runtime.signals import Signals

    command.refuse(given, _NOT_OURS, f"with family {given.family}")
    for name in ("alpha", "eta"):  # texts that only LDA reads
        if getattr(given, name) != getattr(FitConfig, name):
            rule = f"has no meaning with family {given.family}"
            raise ParameterError(name, rule, getattr(given, name))
    if given.components is not None and given.topics != FitConfig.n_topics:
        raise ParameterError("topics", "has no meaning beside components", given.topics)
    if given.corpus is None:
        raise ParameterError("corpus", f"must be given with family {given.family}", None)
    values = {PARAMETERS.get(name, name): value for name, value in vars(given).items()}
    if given.components is None:
        values["n_topics"] = given.topics
    rule = "must be numbers with commas between, or a .npy file"
    for name in _ARRAYS:
        if values[name] is not None:
            values[name] = command.numbers(name, values[name], rule)
    options = MixtureOptions(**{field.name: values[field.name] for field in fields(MixtureOptions)})
    names = {field.name for field in fields(FitConfig)} & values.keys()
    values["seed_words"] = values["seed_words"] or ()
    config = FitConfig(**{name: values[name] for name in names}, mixture=options)
    engine.check(config, given.holdout is not None)
    share = command.share_of(given.holdout)
    command.check_out(given.out, given.save_every)
    read = (given.corpus, given.holdout, given.mean_prior, given.covariance_prior, given.means)
    command.check_output("log_json", given.log_json, read, given.out, begins=b"{")
    with contextlib.ExitStack() as stack:
        peers = stack.enter_context(fit_nodes.joined(given, config))
        is_first = peers is None or peers.rank == 0
        progress = stack.enter_context(
            Progress(given.quiet or not is_first, given.log_json if is_first else None)
        )
        # A share is drawn from all points: each node has them until then.
        held_out = None
        if peers is not None and share is None:
            points = fit_nodes.read_own_points(given.corpus, given.corpus_part, peers)
        else:
            points = read_points(given.corpus)
        if given.holdout is not None:
            holdout = read_points(given.holdout) if share is None else share
            aside = points, holdout, config.family, options, config.seed
            points, held_out = set_aside(*aside)
            progress.say(f"held out: {held_out.points.n_points:,} points")
        if peers is not None:
            if share is not None:
                points = fit_nodes.own_share(points, peers)
            points = families.find(config.family).join(points, peers)
        n_points = progress.n_tokens = points.whole.n_points
        progress.unit = "point"
        progress.say(f"{points.name}: {n_points:,} points, {points.n_features:,} features")
        if given.plan:
            layout = engine.plan(points, config, True, peers)
            if is_first:
                print(memory.describe(layout))
            return
        if given.out is not None and is_first:
            made: Any = families.find(config.family)
            n_statistics, _ = made.kind.size_of(points.n_features, options)
            store.check_room(given.out, 4 * n_points + 8 * (1 + n_statistics) * config.n_topics)
        about = held_out.describe() if held_out else None

        def model_of(result: "Result") -> FittedMixture:
            return FittedMixture.from_result(result, points, about)

        kept = command.keep(given.save_every, given.out, model_of, progress if is_first else None)
        result = engine.fit(points, config, progress, held_out, True, peers, kept)
        if not is_first:
            return
        with Signals():  # what there is is saved at the first signal, and printed
            model = model_of(result)
            with command.told_all_the_same(lambda: _print_results(model, given.top_words > 0)):
                if given.out is not None:
                    store.save(model, given.out)
        progress.log("summary", **model.summary)
    _print_results(model, given.top_words > 0)
    if given.out is not None:
        progress.say(f"saved in {given.out}")


def _print_results(model: "FittedMixture", table: bool) -> None:
    summary = model.summary
    if table:
        import numpy as np

        print("component  weight  points")
        for k in np.argsort(-model.counts, kind="stable"):
            print(f"{k:9d}  {model.weights[k]:6.1%}  {model.counts[k]:.1f}")
        print()
    dead = summary["n_dead_components"]
    print(
        f"{summary['n_components']} components ({dead} dead: less than half a point), "
        f"{summary['n_passes']:g} passes (stopped by {summary['stopped']}), "
        f"{summary['fit_seconds']:.2f} s of fitting, "
        f"{summary['points_per_second'] / 1e3:.1f} k points/s"
    )
    print(f"ELBO {summary['elbo']:.6g} nats, {summary['elbo_per_point']:.4f} a point")
    if summary["holdout"] is not None:
        print(
            f"held-out log likelihood {summary['holdout_log_likelihood']:.4f} a point "
            f"({summary['holdout']['n_points']:,} points)"
        )
