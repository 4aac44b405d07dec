"""How points are cut: into shards of equal length, and these into a chunk for each block.

    segment       holds
    corpus        prior, centre, log h of the points, their order
    shard_<p>     the points of worker p: centred, or as sparse t(x)

They are shuffled first: in files they often lie by class, and chunks of one class after the other
lead to poorer optima.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from esvi_shm.config import FitConfig
from esvi_shm.families import contract
from esvi_shm.families._mixture.held import HeldPoints
from esvi_shm.families._mixture.part import HeldPart, Part
from esvi_shm.families.contract import Arrays
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points
from esvi_shm.shared.table import ArraySpec

#: Points that are copied at a time.
_ROWS = 4096


@dataclass(frozen=True)
class Sizes(contract.Sizes):
    """The sizes of one fit; per shard of this node in order of the workers."""

    n_features: int
    is_sparse: bool
    shard_points: tuple[int, ...]
    shard_values: tuple[int, ...]
    n_points_in_all: int


def options_of(config: FitConfig) -> MixtureOptions:
    """The options of a configuration, or the defaults."""
    return config.mixture or MixtureOptions()


class Cut:
    """Points, cut; see `families.contract.Cut`.

    Parameters
    ----------
    kind : type of Kind
    points : Points
    config : FitConfig
        `n_workers` and `n_blocks` set, and no more than points and components.
    """

    def __init__(self, kind: Any, points: Points, config: FitConfig) -> None:
        P, B, options = config.n_workers, config.n_blocks, options_of(config)
        assert P is not None and B is not None
        kind.check_points(points, options)
        self.prior = kind.find_prior(points.whole, options)
        self.centre = kind.centre(points.whole, options)
        self.kind = kind(points.n_features, options, self.prior)
        self.bounds = np.linspace(0, points.n_points, P + 1).astype(np.int64)
        self.order = np.random.default_rng(config.seed).permutation(points.n_points)
        self.features = None
        if points.is_sparse:
            self.features = self.kind.sparse_features(points.values)[self.order]
        values = [0] * P
        if self.features is not None:
            values = np.diff(self.features.indptr[self.bounds]).tolist()
        self.sizes = Sizes(
            P, B, points.nodes.n_nodes if isinstance(points, Part) else 1,
            points.n_features, points.is_sparse,
            tuple(np.diff(self.bounds).tolist()), tuple(values), points.whole.n_points,
        )  # fmt: skip
        self.largest_block = -(-config.n_topics // B)
        self.released_bytes = points.n_bytes

    def data_specs(self) -> list[ArraySpec]:
        home, every = "home, once", "all workers"
        prior = [
            ArraySpec(f"prior_{name}", array.shape, np.float64, home, every, "of the prior")
            for name, array in self.prior.items()
        ]
        s = self.sizes
        D, P, n = s.n_features, s.n_workers, len(self.order)
        return [
            *prior,
            ArraySpec("centre", (D,), np.float64, home, every, "taken off all points"),
            ArraySpec("log_base", (1,), np.float64, home, every, "log h of all points"),
            ArraySpec("order", (n,), np.int64, home, every, "the points, as dealt out"),
            ArraySpec("point_bounds", (P + 1,), np.int64, home, every, "shards' points"),
        ]

    def shard_data_specs(self, worker: int) -> list[ArraySpec]:
        home, own = "home, once", "worker p; everyone at rest"
        n, B, s = self.sizes.shard_points[worker], self.sizes.n_blocks, self.sizes
        chunks = ArraySpec("chunk_bounds", (B + 1,), np.int64, home, own, "points of each block")
        if not s.is_sparse:
            shape = (n, s.n_features)
            return [chunks, ArraySpec("x", shape, self.kind.dtype, home, own, "points, centred")]
        n_values = s.shard_values[worker]
        return [
            chunks,
            ArraySpec("ptr", (n + 1,), np.int64, home, own, "values of each point"),
            ArraySpec("index", (n_values,), np.int32, home, own, "features of t(x)"),
            ArraySpec("value", (n_values,), np.float32, home, own, "their values"),
        ]

    def fill(self, data: Points, arrays: Mapping[str, Arrays]) -> HeldPoints:
        corpus = arrays["corpus"]
        for name, array in self.prior.items():
            corpus[f"prior_{name}"][:] = array
        corpus["centre"][:] = self.centre
        corpus["point_bounds"][:] = self.bounds
        corpus["order"][:] = self.order
        for first in range(0, data.n_points, _ROWS):
            part = data.values[first : first + _ROWS].astype(self.kind.dtype)  # as it is held
            corpus["log_base"] += self.kind.log_base(part).sum()
        shards = [arrays[f"shard_{p}"] for p in range(self.sizes.n_workers)]
        for p, shard in enumerate(shards):
            lo, hi = (int(i) for i in self.bounds[p : p + 2])
            shard["chunk_bounds"][:] = np.linspace(0, hi - lo, self.sizes.n_blocks + 1)
            if self.features is None:
                for first in range(lo, hi, _ROWS):
                    part = data.values[self.order[first : min(first + _ROWS, hi)]]
                    shard["x"][first - lo : first - lo + len(part)] = part - self.centre
            else:
                ptr = self.features.indptr
                shard["ptr"][:] = ptr[lo : hi + 1] - ptr[lo]
                shard["index"][:] = self.features.indices[ptr[lo] : ptr[hi]]
                shard["value"][:] = self.features.data[ptr[lo] : ptr[hi]]
        self.features = None
        states = [arrays[f"state_{p}"] for p in range(self.sizes.n_workers)]
        rows = _rows_of(shards, self.bounds, self.sizes)
        if isinstance(data, Part):
            return HeldPart(data, rows, states, self.kind.dtype)
        return HeldPoints(data, rows, states)


def _rows_of(shards: list[Arrays], bounds: np.ndarray, sizes: Sizes) -> Any:
    """A function from numbers of points to these points, dense or sparse."""

    def rows(numbers: np.ndarray) -> Any:
        owners = np.searchsorted(bounds, numbers, side="right") - 1
        local = numbers - bounds[owners]
        if not sizes.is_sparse:
            found = [shards[p]["x"][i] for p, i in zip(owners, local, strict=True)]
            return np.array(found, np.float64).reshape(len(numbers), sizes.n_features)
        import scipy.sparse

        parts = []
        for p, i in zip(owners, local, strict=True):
            at = slice(int(shards[p]["ptr"][i]), int(shards[p]["ptr"][i + 1]))
            index, value = shards[p]["index"][at], shards[p]["value"][at]
            mine = index < sizes.n_features  # t(x) begins with x
            parts.append((index[mine], value[mine].astype(np.float64)))
        ptr = np.cumsum([0, *(len(index) for index, _ in parts)])
        index = np.concatenate([np.empty(0, np.int32), *(index for index, _ in parts)])
        value = np.concatenate([np.empty(0), *(value for _, value in parts)])
        shape = (len(numbers), sizes.n_features)
        return scipy.sparse.csr_matrix((value, index, ptr), shape=shape)

    return rows
