"""Gaussian mixtures against scikit-learn: the time to its bound after 30 iterations.

    python -m bench.mixtures gmm_letter.npz --components 256

Both get the same points (standardised, constant features left out), priors and start (k-means++
means; scikit-learn from the responsibilities of the nearest), full covariance, one thread each, and
`dirichlet_distribution` weights with reg_covar 0. scikit-learn's bound leaves constants out, and
with full covariance is the same otherwise, so both are scored by one formula: F at the
responsibilities that each holds. Seconds are those of fitting, without start and evaluation. Batch
inference, on the same kernels, rewrites the components once a pass instead of 16 times.
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

from bench import common
from esvi_shm.config import FitConfig
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points, as_points, read_points
from esvi_shm.runtime.serial import SerialFit

TARGET = 5.0


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    # As in all benchmarks: `common.save` names its files by it.
    parser.add_argument("docword", type=Path, metavar="points")
    parser.add_argument("--components", type=int, default=256)
    parser.add_argument("--covariance", default="full", help="full compares; others run alone")
    parser.add_argument("--iterations", type=int, default=30, help="of scikit-learn")
    parser.add_argument("--passes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder to save in")
    options = parser.parse_args(arguments)
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" and common.has("threadpoolctl"):
        import threadpoolctl

        threadpoolctl.threadpool_limits(1)
    if not options.docword.exists():
        common.skip(f"{options.docword}: there is no such file")
    points = standardised(read_points(options.docword))
    print(f"{options.docword.name}: {points.n_points} points, {points.n_features} features")
    means = seeds_of(points, options.components, options.seed)
    ours, rate = run_ours(points, means, options)
    batch, _ = run_ours(points, means, options, is_batch=True)
    results: dict[str, Any] = {"esvi_shm": ours, "batch": batch, "products_of_square": rate}
    print(f"esvi_shm: F {ours[-1][1]:.6g} after {len(ours) - 1} passes, {ours[-1][0]:.2f} s")
    print(f"batch inference: F {batch[-1][1]:.6g}, {batch[-1][0]:.2f} s")
    ahead = sum(a[1] > b[1] for a, b in zip(ours[1:], batch[1:], strict=True))
    print(f"esvi_shm is ahead of it after {ahead} of {options.passes} passes")
    print(f"products run at {rate:.2f} of the rate of a square product of their precision")
    if options.covariance == "full":
        peer = run_peer(points, means, options)
        results["scikit-learn"] = peer
        wanted = peer[-1][1]
        print(f"scikit-learn: F {wanted:.6g} after {options.iterations}, {peer[-1][0]:.2f} s")
        reached = next((seconds for seconds, bound in ours[1:] if bound >= wanted), math.inf)
        ratio = peer[-1][0] / reached
        results["times_sooner"] = ratio
        print(f"its bound is reached {ratio:.1f} times sooner ({common.verdict(ratio, TARGET)})")
    facts = common.machine()
    print(common.describe(facts))
    common.save("mixtures", options, facts, results, lambda figure: _paint(figure, results))


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


def seeds_of(points: Points, n: int, seed: int) -> np.ndarray:
    """Means to start both from."""
    from sklearn.cluster import kmeans_plusplus

    return kmeans_plusplus(points.values, n, random_state=seed)[0].astype(np.float64)


def _fit(points: Points, means: np.ndarray, options: argparse.Namespace) -> SerialFit:
    mixture = MixtureOptions(covariance=options.covariance, means=means)
    config = FitConfig(len(means), family="gaussian", n_workers=1, n_blocks=1, mixture=mixture)
    return SerialFit(points, config)


def run_ours(
    points: Points, means: np.ndarray, options: argparse.Namespace, is_batch: bool = False
) -> tuple[list[tuple[float, float]], float]:
    """(seconds of passes, F) after each, and the rate of the products against square ones."""
    _fit(as_points(points.values[: 4 * len(means)]), means, options).run_pass()  # kernels loaded
    fit = _fit(points, means, options)
    if is_batch:
        fit.layout.model.n_steps = lambda worker: 1  # type: ignore[attr-defined]
    seconds, found = 0.0, [(0.0, fit.bound().elbo_f)]
    for _ in range(options.passes):
        began = time.perf_counter()
        fit.run_pass()
        seconds += time.perf_counter() - began
        found.append((seconds, fit.bound().elbo_f))
    return found, _product_rate(fit)


def _product_rate(fit: SerialFit) -> float:
    """Flops a second of both products of a tile, over those of square matrices of 1024."""
    worker: Any = fit.workers[0]
    n = min(worker.rows, len(worker.z))
    t = worker.kind.features(worker.shard["x"][:n])
    square = np.ones((1024, 1024), t.dtype)
    out = np.empty_like(square)

    def rate(product: Any, flops: float) -> float:
        fastest = math.inf
        for _ in range(7):
            began = time.perf_counter()
            product()
            fastest = min(fastest, time.perf_counter() - began)
        return flops / fastest

    def both() -> None:
        np.matmul(t, worker.theta[1:], out=worker.scores[:n])
        np.matmul(t.T, worker.change[:n], out=worker.products)

    ours = rate(both, 4.0 * t.size * worker.K)
    return ours / rate(lambda: np.matmul(square, square, out=out), 2.0 * 1024**3)


def run_peer(
    points: Points, means: np.ndarray, options: argparse.Namespace
) -> list[tuple[float, float]]:
    """(seconds of iterations, F) of scikit-learn at its start and at its end."""
    from sklearn.mixture import BayesianGaussianMixture

    fit = _fit(points, means, options)
    # In the order of the fit, whose responsibilities it takes and gives back.
    x = np.asarray(points.values[fit.corpus_arrays["order"]], np.float64)
    z = fit.shards[0]["z"]
    peer = BayesianGaussianMixture(
        n_components=len(means), covariance_type="full", tol=0.0, reg_covar=0.0,
        max_iter=options.iterations,
        weight_concentration_prior_type="dirichlet_distribution",
    )  # fmt: skip
    peer._check_parameters(x)
    start = z.astype(np.float64)
    peer._initialize(x, start)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(options.iterations):
            _, log_z = peer._e_step(x)
            peer._m_step(x, log_z)
            peer._compute_lower_bound(log_z, 0.0)
    seconds = time.perf_counter() - began
    first = fit.bound().elbo_f
    z[:] = np.exp(log_z)
    return [(0.0, first), (seconds, fit.bound().elbo_f)]


if __name__ == "__main__":
    main(sys.argv[1:])
