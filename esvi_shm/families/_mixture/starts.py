"""Where the components of a mixture begin: seeds, to the nearest of which each point goes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from esvi_shm.config import FitConfig
from esvi_shm.families._mixture.cut import options_of

if TYPE_CHECKING:
    from esvi_shm.families._mixture import Mixture

#: seeded: k-means++ on a sample; random: random points.
STARTS = ("seeded", "random")
#: Points that k-means++ chooses from: for each component, at least, at most (for its time grows by
#: both), and for each component even then.
SAMPLE_PER_COMPONENT, LEAST_SAMPLE, MOST_SAMPLE, LEAST_PER_COMPONENT = 10, 2000, 20_000, 2


def prepare(config: FitConfig, data: Any) -> None:
    """See `families.contract.Family`."""
    if config.start == "seeded" and options_of(config).means is None:
        import sklearn.cluster  # noqa: F401


def choose_seeds(
    model: "Mixture", kind: Any, held: Any, centre: np.ndarray, seed: int
) -> np.ndarray:
    """The seeds, float64, shape (K, D), in the coordinates of the fit (main process).

    Parameters
    ----------
    model : Mixture
    kind : Kind
    held : HeldPoints
    centre : array, shape (D,)
    seed : int
    """
    K, means = model.K, model.options.means
    if means is not None:
        return means - centre
    random = np.random.default_rng(seed)
    if model.config.start == "random":
        chosen = random.choice(held.n_points, K, replace=False)
    else:
        from sklearn.cluster import kmeans_plusplus

        size = min(max(LEAST_SAMPLE, SAMPLE_PER_COMPONENT * K), MOST_SAMPLE)
        size = min(held.n_points, max(size, LEAST_PER_COMPONENT * K))
        sample = random.choice(held.n_points, size, replace=False)
        spread = kind.spread(held.rows(sample))
        _, places = kmeans_plusplus(spread, K, random_state=int(random.integers(2**31)))
        chosen = sample[places]
    rows = held.rows(np.asarray(chosen))
    return rows if isinstance(rows, np.ndarray) else rows.toarray()
