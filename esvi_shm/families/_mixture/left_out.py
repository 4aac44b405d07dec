"""What is left out where only some responsibilities of a point are kept, measured on a sample."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from esvi_shm.families.contract import Arrays

if TYPE_CHECKING:
    from esvi_shm.families._mixture import Mixture

#: Points that are scored against all components.
SAMPLE = 1000


def left_out(
    model: "Mixture", kind: Any, held: Any, arrays: Mapping[str, Arrays]
) -> dict[str, float]:
    """On points drawn by the seed: what all components would be given that are not kept.

    Parameters
    ----------
    model : Mixture
    kind : Kind
    held : HeldPoints
    arrays : mapping of str to arrays
        By segment, at the end of a fit.

    Returns
    -------
    dict
        `points`: how many; `mass`: the mean share of their softmax over all components that lies
        outside those kept; `best_missed`: the share of points whose best component is not kept;
        `elbo_gap`: what that costs the bound, nats a point, KL(z || softmax).
    """
    n = min(SAMPLE, held.n_points)
    chosen = np.random.default_rng(model.config.seed).choice(held.n_points, n, replace=False)
    places, local = held.here(chosen)
    x = held.rows(chosen)[places]
    t = kind.features(x) if isinstance(x, np.ndarray) else kind.sparse_features(x)
    theta = arrays["parameters"]["theta"].astype(np.float64)
    u = np.asarray(t @ theta[1:]) + theta[0]
    bounds = arrays["corpus"]["point_bounds"]
    owners = np.searchsorted(bounds, local, side="right") - 1
    n_kept = model.kept or model.K
    at = [(held.states[p], i - bounds[p]) for p, i in zip(owners, local, strict=True)]
    z = np.array([state["z"][i] for state, i in at], np.float64).reshape(len(at), n_kept)
    ids = np.array([state["ids"][i] for state, i in at], np.int64).reshape(len(at), n_kept)
    u -= u.max(axis=1, keepdims=True)
    normaliser = np.log(np.exp(u).sum(axis=1, keepdims=True))
    log_share = np.take_along_axis(u - normaliser, ids, axis=1)
    z /= z.sum(axis=1, keepdims=True)
    gap = (z * (np.log(np.maximum(z, 1e-300)) - log_share)).sum(axis=1)
    best = u.argmax(axis=1)
    mass = np.maximum(1.0 - np.exp(log_share).sum(axis=1), 0.0)
    missed = (ids != best[:, None]).all(axis=1)
    sums = np.array([mass.sum(), missed.sum(), np.maximum(gap, 0.0).sum()])
    held.sum_into(sums)
    mass, missed, gap = (sums / n).tolist()
    return {"points": n, "mass": mass, "best_missed": missed, "elbo_gap": gap}
