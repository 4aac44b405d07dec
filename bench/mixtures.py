"""Mixtures against batch inference on the same kernels, and scikit-learn: bounds against time.

    python -m bench.mixtures gmm_letter.npz --components 256
    python -m bench.mixtures docword.ap.txt.gz --covariance diag     # counts, sparse, as points
    python -m bench.mixtures toy --covariance diag                   # the paper's TOY, drawn

Batch inference rewrites the components once a pass instead of up to 16 times, and makes no moves.
Dense points are standardised, constant features left out, and scikit-learn gets the same: how, and
by what both are scored, is in `mixture_peers`. One thread each; seconds are those of the processor,
so that other programs on the machine count less, without start and evaluation. Then fits with one
and two workers in turns, in points a second of the clock on the wall.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from bench import common, mixture_peers
from bench.mixture_peers import Curve
from esvi_shm.config import FitConfig
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points, as_points, read_points
from esvi_shm.runtime import engine
from esvi_shm.runtime.serial import SerialFit, warm_up

TARGET, PRODUCTS_TARGET, WORKERS_TARGET = 5.0, 0.6, 1.7


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    # As in all benchmarks: `common.save` names its files by it.
    parser.add_argument("docword", type=Path, metavar="points")
    parser.add_argument("--family", default="gaussian")
    parser.add_argument("--components", type=int, default=256)
    parser.add_argument("--covariance", default="full", help="full, diag, spherical")
    parser.add_argument("--iterations", type=int, default=30, help="of scikit-learn; 0: without")
    parser.add_argument(
        "--peers", type=Path, default=Path("bench/mixture_peers.jsonl"),
        help="file of what was measured of scikit-learn",
    )  # fmt: skip
    parser.add_argument("--passes", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3, help="of one and two workers in turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder to save in")
    options = parser.parse_args(arguments)
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" and common.has("threadpoolctl"):
        import threadpoolctl

        threadpoolctl.threadpool_limits(1)
    points = load(options)
    print(f"{options.docword.name}: {points.n_points} points, {points.n_features} features")
    ours, rate = run_ours(points, options)
    batch, _ = run_ours(points, options, is_batch=True)
    results: dict[str, Any] = {"esvi_shm": ours, "batch": batch, "products_of_square": rate}
    print(f"esvi_shm: F {ours[-1][1]:.6g} after {len(ours) - 1} passes, {ours[-1][0]:.2f} s")
    print(f"batch inference: F {batch[-1][1]:.6g}, {batch[-1][0]:.2f} s")
    results["ahead_from"] = since = ahead_from(ours, batch)
    said = "it stays behind" if since is None else f"it stays ahead from second {since:.2f} on"
    print(f"against batch inference at equal seconds {said}")
    results["passed_at"] = at = next((s for s, bound in ours if bound > batch[-1][1]), None)
    print("its last bound is " + ("not passed" if at is None else f"passed at second {at:.2f}"))
    if rate is not None:
        said = common.verdict(rate, PRODUCTS_TARGET)
        print(f"products run at {rate:.2f} of the rate of square ones of their precision ({said})")
    compares = options.covariance in ("full", "diag") and not points.is_sparse
    if compares and options.family == "gaussian" and options.iterations:
        results["peer"] = run_peer(points, options, ours)
    if options.rounds:
        results["points_a_second"] = speeds = run_workers(points, options)
        medians = [common.median(of_one) for of_one in speeds]
        ratio = medians[1] / medians[0]
        said = common.verdict(ratio, WORKERS_TARGET)
        print(f"points a second, 1 and 2 workers: {medians[0]:.0f}, {medians[1]:.0f}")
        print(f"two workers do {ratio:.2f} times what one does ({said})")
    facts = common.machine()
    print(common.describe(facts))
    common.save("mixtures", options, facts, results, lambda figure: _paint(figure, results))


def load(options: argparse.Namespace) -> Points:
    """The points; dense ones are standardised."""
    path = options.docword
    if path.name == "toy":
        return toy(options.seed)
    if not path.exists():
        common.skip(f"{path}: there is no such file")
    if path.name.startswith("docword."):
        corpus = common.load(path)
        arrays = corpus.counts, corpus.indices, corpus.indptr
        shape = corpus.n_documents, corpus.n_words
        matrix = scipy.sparse.csr_matrix(arrays, shape=shape, dtype=np.float32)
        return as_points(matrix[np.diff(matrix.indptr) > 0])
    return standardised(read_points(path))


def toy(seed: int) -> Points:
    """29,983 points of 256 Gaussians in 128 dimensions, the shape of the paper's TOY."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(256, 128))
    return as_points(centres[random.integers(256, size=29_983)] + random.normal(size=(29_983, 128)))


def ahead_from(ours: list[tuple[float, float]], other: list[tuple[float, float]]) -> float | None:
    """The first of the other's seconds from which on our last bound until then is higher.

    >>> ahead_from([(0.0, 1.0), (2.0, 5.0)], [(0.0, 1.0), (1.0, 3.0), (2.5, 4.0), (4.0, 4.5)])
    2.5
    """
    since = None
    for seconds, bound in reversed(other[1:]):
        if max(b for s, b in ours if s <= seconds) <= bound:
            break
        since = seconds
    return since


def _paint(figure: Any, results: dict[str, Any]) -> None:
    drawn = [("F, nats", {name: results[name] for name in ("esvi_shm", "batch")})]
    if "peer" in results:
        names = ("esvi_shm", "scikit-learn")
        drawn.append((results["peer"]["score"], {name: results["peer"][name] for name in names}))
    for axes, (score, curves) in zip(
        figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True
    ):
        for name, curve in curves.items():
            seconds, bounds = zip(*curve, strict=True)
            axes.plot(seconds, bounds, label=name)
        axes.set_xlabel("seconds of fitting")
        axes.set_ylabel(score)
        axes.legend()


def standardised(points: Points) -> Points:
    """Every feature with mean 0 and variance 1, constant ones left out."""
    mean, variance = points.moments()
    kept = variance > 1e-12
    return as_points((points.values[:, kept] - mean[kept]) / np.sqrt(variance[kept]))


def configure(options: argparse.Namespace, n_workers: int, **given: Any) -> FitConfig:
    """The configuration of a fit."""
    prior = given.pop("prior", None) or MixtureOptions()
    mixture = replace(prior, covariance=options.covariance, moves=given.pop("moves", True))
    return FitConfig(
        options.components, family=options.family, n_workers=n_workers, n_passes=options.passes,
        seed=options.seed, mixture=mixture, **given,
    )  # fmt: skip


def _fit(points: Points, options: argparse.Namespace, **given: Any) -> SerialFit:
    return SerialFit(points, configure(options, 1, n_blocks=1, **given))


def _bound(fit: SerialFit) -> float:
    return fit.bound().elbo_f


def run_ours(
    points: Points,
    options: argparse.Namespace,
    is_batch: bool = False,
    prior: MixtureOptions | None = None,
    score: Callable[[SerialFit], float] = _bound,
) -> tuple[Curve, float | None]:
    """(seconds of passes and rests, score) after each, and the rate of the products."""
    warm_up(configure(options, 1, moves=not is_batch))
    fit = _fit(points, options, moves=not is_batch, prior=prior)
    model: Any = fit.layout.model
    if is_batch:
        model.n_steps = lambda worker: 1
    seconds, found = 0.0, [(0.0, score(fit))]
    for n in range(1, options.passes + 1):
        began = time.process_time()
        fit.run_pass()
        if model.next_rest(n - 1) == n:
            fit.rest(n)
        seconds += time.process_time() - began
        found.append((seconds, score(fit)))
    return found, None if points.is_sparse else _product_rate(fit)


def run_workers(points: Points, options: argparse.Namespace) -> list[list[float]]:
    """Points a second of the passes of fits with one and with two workers, in turns."""
    speeds: list[list[float]] = [[], []]
    for _ in range(options.rounds):
        for n_workers, found in enumerate(speeds, 1):
            config = configure(options, n_workers, start="random", moves=False, evaluate_every=0)
            result = engine.fit(points, config)
            found.append(result.work / result.pass_seconds)
    return speeds


def _product_rate(fit: SerialFit) -> float:
    """Flops a second of both products of a tile, over those of square matrices of 1024."""
    worker: Any = fit.workers[0]
    n = min(worker.rows, len(worker.z))
    t = worker._features(0, n)
    square = np.ones((1024, 1024), t.dtype)
    out = np.empty_like(square)

    def rate(product: Any, flops: float) -> float:
        fastest = math.inf
        for _ in range(7):
            began = time.process_time()
            product()
            fastest = min(fastest, time.process_time() - began)
        return flops / fastest

    def both() -> None:
        np.matmul(t, worker.theta, out=worker.scores[:n])
        np.matmul(t.T, worker.scores[:n], out=worker.products)

    ours = rate(both, 4.0 * t.size * worker.K)
    return ours / rate(lambda: np.matmul(square, square, out=out), 2.0 * 1024**3)


def run_peer(points: Points, options: argparse.Namespace, ours: Curve) -> dict[str, Any]:
    """Against scikit-learn: both curves, and how many times sooner its last score is reached."""
    score = "F, nats"
    if options.covariance == "full":
        peer = mixture_peers.measure(points, _fit(points, options), options)["curve"]
    else:
        score = "log density of a point held out, nats"
        points, held_out = mixture_peers.split(points, options.seed)
        prior = mixture_peers.prior_of(points)
        fit = _fit(points, options, prior=prior)
        peer = mixture_peers.measure(points, fit, options, held_out)["curve"]
        ours, _ = run_ours(
            points, options, prior=prior, score=lambda fit: mixture_peers.density(fit, held_out)
        )
        print(f"{score}: esvi_shm {ours[-1][1]:.6g}, {ours[-1][0]:.2f} s")
    wanted = peer[-1][1]
    print(f"scikit-learn: {wanted:.6g} after {options.iterations}, {peer[-1][0]:.2f} s")
    reached = next((seconds for seconds, score in ours[1:] if score >= wanted), math.inf)
    ratio = peer[-1][0] / reached
    print(f"that is reached {ratio:.1f} times sooner ({common.verdict(ratio, TARGET)})")
    return {"score": score, "esvi_shm": ours, "scikit-learn": peer, "times_sooner": ratio}


if __name__ == "__main__":
    main(sys.argv[1:])
