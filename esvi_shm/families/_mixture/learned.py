"""What the fit of a mixture has found."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Learned:
    """What a fit has found, as views of its arrays.

    Attributes
    ----------
    statistics : float64 array, shape (1 + T, K)
        Row 0: points of each component.
    prior : dict of float64 arrays
    centre : float64 array, shape (D,)
    order : int64 array, shape (N,)
        The points, as they were dealt out to the workers.
    responsibilities : list of float32 arrays, shapes (N_p, K), or (N_p, C)
    kept : list of int32 arrays, shapes (N_p, C), or of None
        The components of these, where only the C largest are kept.
    of_units : list of int32 arrays
        The most probable component of each point, in their order; on several nodes an array of
        each at node 0, and all else is of this node's points.
    """

    statistics: np.ndarray
    prior: dict[str, np.ndarray]
    centre: np.ndarray
    order: np.ndarray
    responsibilities: list[np.ndarray]
    kept: list[np.ndarray | None]

    of_units: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        labels, found = np.empty(len(self.order), np.int32), []
        for z, ids in zip(self.responsibilities, self.kept, strict=True):
            best = z.argmax(axis=1)
            found.append(best if ids is None else ids[np.arange(len(z)), best])
        labels[self.order] = np.concatenate(found)
        self.of_units = [labels]

    def labels(self) -> np.ndarray:
        """The most probable component of each point, int32, shape (N,)."""
        return np.concatenate(self.of_units)
