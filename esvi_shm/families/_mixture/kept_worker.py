"""A worker of a mixture that keeps only the C largest responsibilities of each point.

Statistics change by the components that a point keeps, or kept before, and by no others: for dense
points that is a row of sums for each component, which go into `pending` when a part of a chunk is
done. After `first_near` passes most look only at the components near a point (`kept.keep_near`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from esvi_shm.families._mixture import kept, kernels
from esvi_shm.families._mixture.mover import as_slice
from esvi_shm.families._mixture.worker import Worker
from esvi_shm.families.contract import Arrays

if TYPE_CHECKING:
    from esvi_shm.families._mixture import Mixture

#: Components whose neighbours are looked for at a time.
_GROUP = 256


class KeptWorker(Worker):
    """See `families.contract.FamilyWorker`."""

    def __init__(
        self,
        model: "Mixture",
        worker: int,
        corpus: Arrays,
        shared: Arrays,
        shards: Sequence[Arrays],
        beat: np.ndarray,
    ) -> None:
        super().__init__(model, worker, corpus, shared, shards, beat)
        self.ids, C = self.shard["ids"], self.shard["ids"].shape[1]
        self.first_point = int(corpus["point_bounds"][worker])
        self.old_ids = np.empty((self.rows, C), np.int32)
        self.old_z = np.empty((self.rows, C), np.float32)
        self.change, self.marks = np.zeros(self.K, np.float32), np.zeros(self.K + 1, np.int64)
        self.found, self.row = np.empty(self.K + 1, np.int32), np.empty(self.K, self.theta.dtype)
        self.by_component = np.empty(0)
        if not model.sizes.is_sparse:
            self.by_component = np.empty((self.K, len(self.theta)), self.theta.dtype)
            self.sums = np.zeros((self.K, len(self.theta)))

    def _update(self, first: int, last: int, columns: np.ndarray, hard: bool = False) -> None:
        is_near = not hard and self.model.is_near(self.pass_)
        if is_near and len(self.by_component):
            self.by_component[:] = self.theta.T
        for lo, hi in self._tiles(first, last):
            n = hi - lo
            self.old_ids[:n], self.old_z[:n] = self.ids[lo:hi], self.z[lo:hi]
            if is_near:
                features = self._keep_near(lo, hi)
            else:
                features, u = self._score(lo, hi, self.theta)
                kept.keep_largest(u, self.ids[lo:hi], self.z[lo:hi], hard, self.found)
            self._add_changes(lo, hi, features)
        self._flush()

    def _keep_near(self, lo: int, hi: int) -> Any:
        features, model = self._features(lo, hi), self.model
        drawn = model.config.seed, self.pass_, self.first_point + lo, model.n_drawn
        held = self.ids[lo:hi], self.z[lo:hi], self.marks, self.found, self.row
        near = self.shared["near"]
        if features is None:
            s = self.shard
            kept.keep_near_sparse(
                s["ptr"], s["index"], s["value"], lo, self.theta, near, *drawn, *held
            )
        else:
            kept.keep_near(features, self.by_component, near, *drawn, *held)
        return features

    def _add_changes(self, lo: int, hi: int, features: Any) -> None:
        """What z has become, less what it was, into the statistics."""
        n = hi - lo
        z = self.ids[lo:hi], self.z[lo:hi], self.old_ids[:n], self.old_z[:n], self.change
        if features is None:
            s = self.shard
            kept.add_sparse_changes(s["ptr"], s["index"], s["value"], lo, *z, self.pending)
        else:
            kept.add_changes(features, *z, self.sums)

    def _flush(self) -> None:
        if len(self.by_component):
            kernels.add_products(self.sums.T, self.pending, self.adding, self.p)
            self.sums[:] = 0.0

    def _command_sum(self) -> None:
        self.pending[:] = 0.0
        for lo, hi in self._tiles(0, len(self.z)):
            self.old_ids[: hi - lo], self.old_z[: hi - lo] = self.ids[lo:hi], 0.0
            self._add_changes(lo, hi, self._features(lo, hi))
        self._flush()

    def _command_near(self) -> None:
        """Of each component of its blocks those that score its points best, on average."""
        near = self.shared["near"]
        n_near = near.shape[1]
        for block in self.own_blocks:
            columns = self.model.columns(self.shared, block)
            for first in range(0, len(columns), _GROUP):
                some = columns[first : first + _GROUP]
                u = self._score_means(some, np.arange(self.K), self.theta)
                near[as_slice(some)] = np.argpartition(-u, n_near - 1, axis=1)[:, :n_near]
                self.beat[0] += 1

    def _sum_bounds(self, u: np.ndarray, lo: int, hi: int) -> Any:
        return kept.sum_kept_bounds(u, self.ids[lo:hi], self.z[lo:hi])
