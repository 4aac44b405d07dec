"""The points of one of several nodes, and what the nodes know of all of them.

    join(points, nodes) -> Part        each node its own points, in the order of the nodes

Priors and the centre follow from all points (`Whole`). Points that a start asks for are fetched
from the nodes that have them (`HeldPart`). All nodes call these together, in the same order.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from esvi_shm.corpus.part import gather_rows
from esvi_shm.errors import CorpusError
from esvi_shm.families._mixture.held import HeldPoints
from esvi_shm.families.contract import Arrays
from esvi_shm.points import Points


class Nodes(Protocol):
    """What nodes do together, all of them in the same order."""

    rank: int
    n_nodes: int

    def gather(self, part: bytes) -> list[bytes]:
        """Every node's part, by rank, on every node."""

    def sum_into(self, array: np.ndarray) -> None:
        """Replace a float64 array by its sum over all nodes; the same bits on all of them."""


class Part(Points):
    """The points of one node, from `first_point` on of those of all, and `whole`: all of them."""

    def __init__(self, points: Points, nodes: Nodes, first_point: int) -> None:
        super().__init__(points.values, points.name, points.features)
        self.nodes, self.first_point = nodes, first_point
        self.of_all: Whole | None = None

    @property
    def whole(self) -> Any:
        return self.of_all


class Whole:
    """Points that several nodes hold together; see `Points`, which says the same."""

    def __init__(self, part: Part, n_points: int, sha256: str) -> None:
        self.name, self.n_features, self.is_sparse = part.name, part.n_features, part.is_sparse
        self.features = part.features
        self.n_points, self.n_nodes = n_points, part.nodes.n_nodes
        self._part, self._sha256 = part, sha256
        mean, variance = part.moments()
        self._mean = _added_up(part.nodes, part.n_points * mean) / n_points
        off = mean - self._mean
        self._variance = _added_up(part.nodes, part.n_points * (variance + off * off)) / n_points

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (divided by N) of each feature, float64."""
        return self._mean, self._variance

    def covariance(self) -> np.ndarray:
        """Covariance of the features (divided by N - 1), float64, shape (D, D)."""
        n, off = self._part.n_points, self._part.moments()[0] - self._mean
        scatter = (n - 1) * self._part.covariance() + n * np.outer(off, off)
        return _added_up(self._part.nodes, scatter) / max(self.n_points - 1, 1)

    def digest(self) -> str:
        """SHA-256 of the parts' digests."""
        return self._sha256


def _added_up(nodes: Nodes, array: np.ndarray) -> np.ndarray:
    total = np.array(array, np.float64)
    nodes.sum_into(total)
    return total


def join(points: Points, nodes: Nodes) -> Part:
    """Have the nodes know what their points are together.

    Raises
    ------
    CorpusError
        On every node: if one has other features, or no point. On one whose columns have other
        names than those of node 0, whose order is that of all.
    """
    kind = "sparse" if points.is_sparse else "dense"
    facts = points.n_features, kind, points.n_points, points.digest(), points.features
    parts = [json.loads(part) for part in nodes.gather(json.dumps(facts).encode())]
    for rank, (n_features, kind, n_points, *_) in enumerate(parts):
        if [n_features, kind] != parts[0][:2]:
            there = f"node {rank} has {kind} points of {n_features} features"
            rule = f"all nodes must have like points: {there}, node 0 {parts[0][1]} ones of "
            raise CorpusError(points.name, f"{rule}{parts[0][0]}")
        if n_points == 0:
            raise CorpusError(points.name, f"every node must have a point, node {rank} has none")
    counts = [part[2] for part in parts]
    sha256 = hashlib.sha256(" ".join(part[3] for part in parts).encode()).hexdigest()
    part = Part(points.in_order_of(parts[0][4]), nodes, sum(counts[: nodes.rank]))
    part.of_all = Whole(part, sum(counts), sha256)
    return part


class HeldPart(HeldPoints):
    """What answers questions about the points of all nodes; asked by all of them at once."""

    def __init__(self, part: Part, rows: Any, states: list[Arrays], dtype: Any) -> None:
        super().__init__(part, rows, states)
        self._nodes, self._is_sparse, self._dtype = part.nodes, part.is_sparse, dtype
        self._first, self._n_here = part.first_point, part.n_points
        self.n_points = part.whole.n_points

    def here(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `HeldPoints`."""
        local = numbers - self._first
        places = np.flatnonzero((local >= 0) & (local < self._n_here))
        return places, local[places]

    def sum_into(self, array: np.ndarray) -> None:
        """See `HeldPoints`."""
        self._nodes.sum_into(array)

    def agree(self, array: np.ndarray) -> np.ndarray:
        """See `HeldPoints`."""
        first = self._nodes.gather(array.tobytes() if self._nodes.rank == 0 else b"")[0]
        return np.frombuffer(first, array.dtype).reshape(array.shape)

    def rows(self, numbers: np.ndarray) -> Any:
        """See `HeldPoints`."""
        places, local = self.here(numbers)
        mine = super().rows(local)
        if self._is_sparse:
            import scipy.sparse

            rows = mine.indptr, mine.indices, mine.data
            indptr, indices, values = gather_rows(self._nodes, len(numbers), places, rows)
            shape = (len(numbers), self.n_features)
            return scipy.sparse.csr_matrix((values.astype(np.float64), indices, indptr), shape)
        # As the shards hold them: in float32 that is half the bytes.
        message = _message(places, mine.astype(self._dtype))
        found = np.empty((len(numbers), self.n_features))
        for part in self._nodes.gather(message):
            n = int(np.frombuffer(part, np.int64, 1)[0])
            theirs = np.frombuffer(part, self._dtype, -1, 8 + 8 * n)
            found[np.frombuffer(part, np.int64, n, 8)] = theirs.reshape(n, self.n_features)
        return found


def _message(places: np.ndarray, rows: np.ndarray) -> bytes:
    head: Sequence[np.ndarray] = (np.array([len(places)]), places.astype(np.int64))
    return b"".join(array.tobytes() for array in (*head, rows))
