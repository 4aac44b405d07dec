"""Mixtures against batch inference on the same kernels, and scikit-learn: bounds against time.

    python -m bench.mixtures gmm_letter.npz --components 256
    python -m bench.mixtures docword.ap.txt.gz --covariance diag     # counts, sparse, as points
    python -m bench.mixtures toy --covariance diag                   # the paper's TOY, drawn

Batch inference rewrites the components once a pass instead of up to 16 times, and makes no moves.
With full covariance scikit-learn gets the same points (standardised, constant features left out),
priors and responsibilities to start from, `dirichlet_distribution` weights and reg_covar 0. Its
bound leaves constants out, and is the same otherwise, so all are scored by one formula: F at the
responsibilities that each holds. One thread each; seconds are those of the processor, so that other
programs on the machine count less, without start and evaluation. Then fits with one and two workers
in turns, in points a second of the clock on the wall.
"""

import argparse
import math
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from bench import common
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
    parser.add_argument("--covariance", default="full", help="full compares; others run alone")
    parser.add_argument("--iterations", type=int, default=30, help="of scikit-learn")
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
    if options.covariance == "full" and options.family == "gaussian":
        peer = run_peer(points, options)
        results["scikit-learn"] = peer
        wanted = peer[-1][1]
        print(f"scikit-learn: F {wanted:.6g} after {options.iterations}, {peer[-1][0]:.2f} s")
        reached = next((seconds for seconds, bound in ours[1:] if bound >= wanted), math.inf)
        ratio = peer[-1][0] / reached
        results["times_sooner"] = ratio
        print(f"its bound is reached {ratio:.1f} times sooner ({common.verdict(ratio, TARGET)})")
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
    axes = figure.subplots()
    for name in ("esvi_shm", "batch", "scikit-learn"):
        if name in results:
            seconds, bounds = zip(*results[name], strict=True)
            axes.plot(seconds, bounds, label=name)
    axes.set_xlabel("seconds of fitting")
    axes.set_ylabel("F, nats")
    axes.legend()


def standardised(points: Points) -> Points:
    """Every feature with mean 0 and variance 1, constant ones left out."""
    mean, variance = points.moments()
    kept = variance > 1e-12
    return as_points((points.values[:, kept] - mean[kept]) / np.sqrt(variance[kept]))


def configure(options: argparse.Namespace, n_workers: int, **given: Any) -> FitConfig:
    """The configuration of a fit."""
    mixture = MixtureOptions(covariance=options.covariance, moves=given.pop("moves", True))
    return FitConfig(
        options.components, family=options.family, n_workers=n_workers, n_passes=options.passes,
        seed=options.seed, mixture=mixture, **given,
    )  # fmt: skip


def _fit(points: Points, options: argparse.Namespace, moves: bool = True) -> SerialFit:
    return SerialFit(points, configure(options, 1, n_blocks=1, moves=moves))


def run_ours(
    points: Points, options: argparse.Namespace, is_batch: bool = False
) -> tuple[list[tuple[float, float]], float | None]:
    """(seconds of passes and rests, F) after each, and the rate of the products."""
    warm_up(configure(options, 1, moves=not is_batch))
    fit = _fit(points, options, moves=not is_batch)
    model: Any = fit.layout.model
    if is_batch:
        model.n_steps = lambda worker: 1
    seconds, found = 0.0, [(0.0, fit.bound().elbo_f)]
    for n in range(1, options.passes + 1):
        began = time.process_time()
        fit.run_pass()
        if model.next_rest(n - 1) == n:
            fit.rest(n)
        seconds += time.process_time() - began
        found.append((seconds, fit.bound().elbo_f))
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


def run_peer(points: Points, options: argparse.Namespace) -> list[tuple[float, float]]:
    """(seconds of iterations, F) of scikit-learn at its start and at its end."""
    from sklearn.mixture import BayesianGaussianMixture

    fit = _fit(points, options)
    # In the order of the fit, whose responsibilities it takes and gives back.
    x = np.asarray(points.values[fit.corpus_arrays["order"]], np.float64)
    z = fit.shards[0]["z"]
    peer = BayesianGaussianMixture(
        n_components=options.components, covariance_type="full", tol=0.0, reg_covar=0.0,
        max_iter=options.iterations,
        weight_concentration_prior_type="dirichlet_distribution",
    )  # fmt: skip
    peer._check_parameters(x)
    start = z.astype(np.float64)
    peer._initialize(x, start)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(options.iterations):
            _, log_z = peer._e_step(x)
            peer._m_step(x, log_z)
            peer._compute_lower_bound(log_z, 0.0)
    seconds = time.process_time() - began
    first = fit.bound().elbo_f
    z[:] = np.exp(log_z)
    return [(0.0, first), (seconds, fit.bound().elbo_f)]


if __name__ == "__main__":
    main(sys.argv[1:])
