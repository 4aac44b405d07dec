"""The points of a fit, read back from the arrays that hold them."""

from typing import Any

import numpy as np

from esvi_shm.families.contract import Arrays
from esvi_shm.points import Points


class HeldPoints:
    """The points of a fit, read back from its shards, in its coordinates and order.

    `states` are the workers' own arrays, to be read at rest. What it answers is of the points of
    all nodes, where there are several; see `part.HeldPart`.
    """

    def __init__(self, points: Points, rows: Any, states: list[Arrays]) -> None:
        self.name, self.n_points, self.n_features = points.name, points.n_points, points.n_features
        self._rows, self.states = rows, states

    def rows(self, numbers: np.ndarray) -> Any:
        """The points of these numbers, dense or sparse, float64."""
        return self._rows(numbers)

    def here(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of these numbers are of points at this node, and their places in its shards."""
        return np.arange(len(numbers)), numbers

    def sum_into(self, array: np.ndarray) -> None:
        """Replace a float64 array by its sum over all nodes."""

    def agree(self, array: np.ndarray) -> np.ndarray:
        """What node 0 has in its place: what is decided must be the same to the bit."""
        return array
