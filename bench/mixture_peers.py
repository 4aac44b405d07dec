"""scikit-learn's BayesianGaussianMixture on the points of `bench.mixtures`, from the same start.

It gets the same points, priors and responsibilities, `dirichlet_distribution` weights and reg_covar
0. With covariance full its bound leaves constants out, and is the same otherwise, so both are
scored by F at the responsibilities that each holds. With diag it keeps a Wishart's digammas, and
its bound is another one: what counts there is the mean log density of held-out points at the
posterior means of weights, means and variances, by one formula.

It takes minutes, and comes out the same every time: what was measured is kept in a file, a JSON
object a line, and taken from there where points, start, options and processor are the same. To
measure anew, remove the line.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np

from bench import common
from bench.quality_records import Records
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points
from esvi_shm.runtime.serial import SerialFit

#: One of so many points is held out.
HELD_OUT_OF = 10
Curve = list[tuple[float, float]]


def split(points: Points, seed: int) -> tuple[Points, np.ndarray]:
    """Points to fit to, and those held out."""
    order = np.random.default_rng(seed).permutation(points.n_points)
    n = points.n_points // HELD_OUT_OF
    kept = points.values[np.sort(order[n:])]
    # A feature that no point is left of says nothing.
    varies = kept.var(axis=0, dtype=np.float64) > 1e-12
    return Points(kept[:, varies], points.name), points.values[order[:n]][:, varies]


def prior_of(points: Points) -> MixtureOptions:
    """The prior of diag for both: as many degrees of freedom as features, as scikit-learn has it.

    The variances that it stands for are those of the points, and so is the scale in proportion:
    by scikit-learn's default it would stand for variances D times as small.
    """
    D = points.n_features
    variance = points.moments()[1]
    return MixtureOptions(degrees_of_freedom_prior=float(D), covariance_prior=D * variance)


def density(fit: SerialFit, x: np.ndarray) -> float:
    """Mean log density of points at the posterior means of a fit of diag."""
    model: Any = fit.layout.model
    statistics = fit.shared["statistics"]
    n = np.maximum(statistics[0], 0.0)
    found = model.make_kind(fit.corpus_arrays).describe(n, statistics[1:])
    means = found["means"] + fit.corpus_arrays["centre"]
    weights = (n + model.a0) / (n + model.a0).sum()
    return log_density(x, weights, means, found["covariances"])


def log_density(
    x: np.ndarray, weights: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> float:
    """Mean log density of points under a mixture of Gaussians of diagonal covariance.

    >>> round(log_density(np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.ones((1, 1))), 6)
    -0.918939
    """
    from scipy.special import logsumexp

    precision, x = 1.0 / variances, np.asarray(x, np.float64)
    u = x @ (means * precision).T - 0.5 * (x * x) @ precision.T
    u -= 0.5 * (means * means * precision + np.log(2.0 * np.pi * variances)).sum(axis=1)
    return float(logsumexp(u + np.log(weights), axis=1).mean())


def measure(
    points: Points,
    fit: SerialFit,
    options: argparse.Namespace,
    held_out: np.ndarray | None = None,
) -> dict[str, Any]:
    """The record of scikit-learn from the start of a fit of these points (which it spoils).

    `curve` has (seconds of the processor, score) at the start and after each iteration, for full
    only after the last one.
    """
    records = Records(options.peers)
    first = fit.bound().elbo_f if held_out is None else density(fit, held_out)
    facts = common.machine()
    key = {
        "points": points.digest(),
        "covariance": options.covariance,
        "components": options.components,
        "iterations": options.iterations,
        "seed": options.seed,
        "processor": facts["processor"],
    }
    for record in records.find(**key):
        if np.isclose(record["curve"][0][1], first, rtol=1e-9, atol=0.0):
            print(f"scikit-learn: as measured on {record['machine']['date']}, {options.peers}")
            return record
    curve = [(0.0, first), *_run(points, fit, options, held_out)]
    records.add(**key, name=options.docword.name, curve=curve, machine=facts)
    return records.all[-1]


def _run(
    points: Points, fit: SerialFit, options: argparse.Namespace, held_out: np.ndarray | None
) -> Curve:
    from sklearn.mixture import BayesianGaussianMixture

    prior = fit.config.mixture or MixtureOptions()
    # In the order of the fit, whose responsibilities it takes and gives back.
    x = np.asarray(points.values[fit.corpus_arrays["order"]], np.float64)
    z = fit.shards[0]["z"]
    peer = BayesianGaussianMixture(
        n_components=options.components, covariance_type=options.covariance, tol=0.0,
        reg_covar=0.0, max_iter=options.iterations, covariance_prior=prior.covariance_prior,
        weight_concentration_prior_type="dirichlet_distribution",
    )  # fmt: skip
    peer._check_parameters(x)
    peer._initialize(x, z.astype(np.float64))
    seconds, found = 0.0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(options.iterations):
            began = time.process_time()
            _, log_z = peer._e_step(x)
            peer._m_step(x, log_z)
            peer._compute_lower_bound(log_z, 0.0)
            seconds += time.process_time() - began
            if held_out is not None:
                concentration = peer.weight_concentration_
                weights = concentration / concentration.sum()
                said = log_density(held_out, weights, peer.means_, peer.covariances_)
                found.append((seconds, said))
    if held_out is None:
        z[:] = np.exp(log_z)
        found.append((seconds, fit.bound().elbo_f))
    return found
