"""A mixture's part in one worker process.

A visit of block b by the worker that holds it, and so owns its components:

    merge: this worker's pending statistics of b -> statistics; of these, and what the other
        workers have pending of b: E[theta], E[g] of b, published
    for each part of chunk b of its points:
        z over all components, by what it knows of those it does not hold (Lemma 1, S = all)
        (z_new - z_old)' t(X) -> pending, for every block until that one comes by
        merge

So a pass updates each point once. In the strict form S is b alone, which needs no other
component and leaves nothing pending: the bound never falls, whatever the number of workers.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from esvi_shm.families._mixture import kernels
from esvi_shm.families._mixture.mover import Mover, as_slice
from esvi_shm.families.contract import Arrays
from esvi_shm.shared.ring import LINE_WORDS

if TYPE_CHECKING:
    from esvi_shm.families._mixture import Mixture

#: Bytes of t(x), and of scores, of the points that are worked on at a time.
TILE_BYTES, MOST_ROWS = 2**22, 1024
#: Tries to copy a block whole before the old copy is kept.
TRIES = 64
NO_COLUMNS = np.empty(0, np.int64)


def tile_rows(n_statistics: int, n_components: int, item: int, is_sparse: bool) -> int:
    """Points that are worked on at a time."""
    row = item * (n_components if is_sparse else max(n_statistics, n_components))
    return max(16, min(TILE_BYTES // row, MOST_ROWS))


class Worker(Mover):
    """A mixture's part in one worker process; see `families.contract.FamilyWorker`."""

    def __init__(
        self,
        model: "Mixture",
        worker: int,
        corpus: Arrays,
        shared: Arrays,
        shards: Sequence[Arrays],
        beat: np.ndarray,
    ) -> None:
        self.model, self.p, self.shared, self.beat = model, worker, shared, beat
        self.kind, self.K, self.shard = model.make_kind(corpus), model.K, shards[worker]
        self.z, self.chunks = self.shard["z"], self.shard["chunk_bounds"]
        self.pending, self.statistics = shared["pending"][worker], shared["statistics"]
        self.versions = shared["versions"].reshape(-1)
        self.own_blocks = range(worker, model.sizes.n_blocks, model.sizes.n_workers)
        T, dtype = self.kind.n_statistics, self.kind.dtype
        self.rows = tile_rows(T, self.K, np.dtype(dtype).itemsize, model.sizes.is_sparse)
        # E[theta] as this worker knows it, the constant in row 0, and the version of each block.
        self.theta = np.zeros((1 + T, self.K), dtype)
        self.seen = np.full(model.sizes.n_blocks, -1, np.int64)
        # Blocks of which something may be pending.
        self.pends = np.zeros(model.sizes.n_blocks, bool)
        self.scores = np.empty((self.rows, self.K), dtype)
        # 1 and t(x) of dense points: so constants and counts are part of the products.
        self.features = np.ones((0 if model.sizes.is_sparse else self.rows, 1 + T), dtype)
        self.products = np.empty((0 if model.sizes.is_sparse else 1 + T, self.K), dtype)
        widest = int(np.diff(model.block_bounds).max())
        self.buffer = np.empty((1 + T, widest), dtype)
        # The statistics of the block at hand, where that is not all.
        self.taken = np.empty((1 + T) * widest if widest < self.K else 0)
        self.adding = shared["adding"].reshape(-1)
        self.looks = model.looks
        self.spare = np.empty((2, (1 + T) * widest if self.looks else 0))
        self.pass_ = -1

    @property
    def _all(self) -> range:
        return range(self.model.sizes.n_blocks)

    def visit(self, block: int, pass_: int, want_entropy: bool) -> None:
        model = self.model
        if model.config.deterministic and pass_ != self.pass_:
            self.theta[:] = self.shared["snapshot"]
        self.pass_ = pass_
        columns = model.columns(self.shared, block)
        own = self._take(columns)
        is_known = self.seen[block] == self.versions[block * LINE_WORDS]
        if self.pends[block] or not is_known or model.config.deterministic:
            self._merge(block, columns, own)
        lo, hi = (int(i) for i in self.chunks[block : block + 2])
        cuts = np.linspace(lo, hi, model.n_steps(self.p) + 1).astype(int)
        for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            if not (model.config.deterministic or model.options.strict):
                self._look_at_others(block)
            self._update(first, last, columns if model.options.strict else NO_COLUMNS)
            self.pends[:] = True
            self._merge(block, columns, own)
        if own is not self.statistics:
            self.statistics[:, as_slice(columns)] = own

    def _take(self, columns: np.ndarray) -> np.ndarray:
        """The statistics of some columns, side by side: where they are not all, a copy.

        As columns of the whole they would lie a row's length apart, and share few lines of a cache.
        """
        if len(columns) == self.K:
            return self.statistics
        own = self._side_by_side(self.taken, columns)
        own[:] = self.statistics[:, as_slice(columns)]
        return own

    def _look_at_others(self, block: int) -> None:
        """Copy what the owners of other blocks have published since."""
        for b in self._all:
            if b != block and self.versions[b * LINE_WORDS] != self.seen[b]:
                self._copy(b)

    def _copy(self, block: int) -> None:
        columns = self.model.columns(self.shared, block)
        version = kernels.copy_block(
            self.versions, block, columns, self.shared["theta"], self.buffer, self.theta, TRIES
        )
        if version >= 0:
            self.seen[block] = version

    def _side_by_side(self, spare: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return spare[: len(self.statistics) * len(columns)].reshape(-1, len(columns))

    def _merge(self, block: int, columns: np.ndarray, own: np.ndarray) -> None:
        """Pending statistics of a block at hand into its own; its parameters anew."""
        kernels.merge(self.pending, columns, own)
        self.pends[block] = False
        if not self.looks:
            self._rewrite(block, columns, own)
            return
        part, found = (self._side_by_side(spare, columns) for spare in self.spare)
        P, at = self.model.sizes.n_workers, (self.p, columns, own, part, found)
        if kernels.look(self.shared["pending"], self.adding, P, *at, TRIES):
            self._rewrite(block, columns, found)

    def _rewrite(self, block: int, columns: np.ndarray, own: np.ndarray) -> np.ndarray:
        """E[theta] and E[g] of a block from its statistics; their shares of the bound."""
        n = np.maximum(own[0], 0.0)  # of nothing, rounding may leave less
        found = self.kind.expect(n, own[1:])
        constant = found.constant + self.model.log_weights(n)
        fresh = constant, np.ascontiguousarray(found.theta)
        kernels.publish(self.versions, block, columns, *fresh, self.shared["theta"], self.theta)
        self.seen[block] = self.versions[block * LINE_WORDS]
        return found.gain

    def _tiles(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        for lo in range(first, last, self.rows):
            self.beat[0] += 1
            yield lo, min(lo + self.rows, last)

    def _features(self, lo: int, hi: int) -> Any:
        """1 and t(x) of some points; None of sparse ones."""
        if self.model.sizes.is_sparse:
            return None
        features = self.features[: hi - lo]
        features[:, 1:] = self.kind.features(self.shard["x"][lo:hi])
        return features

    def _score(self, lo: int, hi: int, theta: np.ndarray) -> tuple[Any, np.ndarray]:
        """What `_features` gives of some points, and u = t(x) E[theta] + constant."""
        k = theta.shape[1]
        u = self.scores[: hi - lo] if k == self.K else np.empty((hi - lo, k), theta.dtype)
        features = self._features(lo, hi)
        if features is None:
            s = self.shard
            kernels.sparse_scores(s["ptr"], s["index"], s["value"], lo, hi, theta[1:], theta[0], u)
        else:
            np.matmul(features, theta, out=u)
        return features, u

    def _update(self, first: int, last: int, columns: np.ndarray, hard: bool = False) -> None:
        """z of some points over all components, or those of some columns, and what it changes."""
        theta = self.theta if not len(columns) else np.ascontiguousarray(self.theta[:, columns])
        for lo, hi in self._tiles(first, last):
            features, u = self._score(lo, hi, theta)
            kernels.respond(u, self.z[lo:hi], columns, hard)
            self._add(lo, hi, features, u, columns)

    def _add(
        self, lo: int, hi: int, features: Any, change: np.ndarray, columns: np.ndarray
    ) -> None:
        """pending += (z_new - z_old)' t(X)."""
        at: Any = as_slice(columns) if len(columns) else slice(None)
        if features is None:
            s = self.shard
            self.pending[0, at] += change.sum(axis=0, dtype=np.float64)
            kernels.sparse_statistics(
                s["ptr"], s["index"], s["value"], lo, hi, change, self.pending, columns
            )
        elif len(columns):
            self.pending[:, at] += features.T @ change
        else:
            np.matmul(features.T, change, out=self.products)
            kernels.add_products(self.products, self.pending, self.adding, self.p)

    def command(self, name: str) -> None:
        self.pass_ = -1
        getattr(self, f"_command_{name}")()

    def _command_assign(self) -> None:
        """z by the best component under the theta that home has written."""
        self.theta[:] = self.shared["theta"]
        self._update(0, len(self.z), NO_COLUMNS, hard=True)

    def _command_sum(self) -> None:
        """This worker's statistics from its z, exactly; for `settle`.

        In float64: the bound is a difference of what they are multiplied by, and what float32
        leaves of the sums of large counts, or of squares far from the centre, is more than moves
        gain.
        """
        self.pending[:] = 0.0
        for lo, hi in self._tiles(0, len(self.z)):
            z = self.z[lo:hi]
            if self.model.sizes.is_sparse:
                change = z.astype(self.theta.dtype, copy=False)
                self._add(lo, hi, None, change, NO_COLUMNS)
            else:
                whole = z.astype(np.float64)
                features = self.kind.features(self.shard["x"][lo:hi].astype(np.float64))
                self.pending[0] += whole.sum(axis=0)
                self.pending[1:] += features.T @ whole

    def _command_settle(self) -> None:
        """Statistics of this worker's blocks from all workers' sums; their share of the bound."""
        gain = 0.0
        for block in self.own_blocks:
            columns = self.model.columns(self.shared, block)
            at = as_slice(columns)
            self.statistics[:, at] = self.shared["pending"][:, :, at].sum(axis=0)
            gains = self._rewrite(block, columns, self._take(columns))
            gain += float(gains.sum())
            if self.model.moves:
                self.shared["gains"][2, at] = gains
        self.shared["bound_parts"][self.p, 0] = gain

    def _command_refresh(self) -> None:
        """Nothing is pending any more, and all of E[theta] is known."""
        self.pending[:] = 0.0
        self.pends[:] = False
        for block in self._all:
            self._copy(block)

    def _command_bound(self) -> None:
        sums = np.zeros(3)
        for lo, hi in self._tiles(0, len(self.z)):
            _, u = self._score(lo, hi, self.theta)
            sums += self._sum_bounds(u, lo, hi)
        self.shared["bound_parts"][self.p, 1:] = sums

    def _sum_bounds(self, u: np.ndarray, lo: int, hi: int) -> Any:
        return kernels.sum_bounds(u, self.z[lo:hi])
