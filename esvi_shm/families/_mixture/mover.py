"""A worker's part in merging and splitting components; what for is in `moves`."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from esvi_shm.families._mixture import splitting
from esvi_shm.families._mixture.functions import gammaln

#: Components that a merge is looked for with.
_CANDIDATES = 2
#: Components that are looked at at a time.
_GROUP = 256
#: Points of a component that is looked for when others are to be merged with one.
_LIVE = 0.5


def as_slice(columns: np.ndarray) -> Any:
    """The same columns as a slice where they lie side by side: a view, not a copy."""
    first, last = int(columns[0]), int(columns[-1])
    return slice(first, last + 1) if last - first + 1 == len(columns) else columns


def _columns_of(array: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Some columns, ascending, laid out by rows (by [:, columns] they would not be)."""
    at = as_slice(columns)
    return array[:, at] if isinstance(at, slice) else np.take(array, columns, axis=1)


class Mover:
    """Commands of `moves`, for the worker of a mixture."""

    model: Any
    kind: Any
    shared: Any
    shard: Any
    own_blocks: Any
    beat: Any
    z: np.ndarray
    theta: np.ndarray
    p: int

    def _own_groups(self) -> Iterator[np.ndarray]:
        """The components of own blocks, some at a time."""
        for block in self.own_blocks:
            columns = self.model.columns(self.shared, block)
            for first in range(0, len(columns), _GROUP):
                self.beat[0] += 1
                yield columns[first : first + _GROUP]

    def _score_means(
        self, columns: np.ndarray, others: np.ndarray, theta: np.ndarray
    ) -> np.ndarray:
        """What the points of some components score with others, on average; with their own -inf."""
        own = _columns_of(self.shared["statistics"], columns)
        means = (own[1:] / np.maximum(own[0], 1e-6)).astype(theta.dtype)
        u = means.T @ theta[1:] + theta[0]
        u[columns[:, None] == others] = -np.inf
        return np.asarray(u)

    def _command_lean(self) -> None:
        """What the new halves would get of this worker's points, into `pending`."""
        self.shared["mixing"][self.p, 0] = 0.0
        self._lean(lambda lo, hi, best, weights, share: None)

    def _lean(self, then: Any) -> None:
        """Shares of the new halves, tile by tile; `then` is told of each."""
        pending, mixing = self.shared["pending"][self.p], self.shared["mixing"][self.p, 0]
        pending[:] = 0.0
        theta, s = self.shared["lean"], self.shard
        is_sparse, whole = self.model.sizes.is_sparse, "ids" in s
        rows, sums = None, None
        if not is_sparse:
            rows, sums = np.ascontiguousarray(theta.T), np.zeros(theta.shape[::-1])
        for lo, hi in self._tiles(0, len(self.z)):  # type: ignore[attr-defined]
            places = self.z[lo:hi].argmax(axis=1)
            at = np.arange(len(places))
            best = s["ids"][lo:hi][at, places].astype(np.int64) if whole else places
            weights, share = self.z[lo:hi][at, places], np.empty(len(best))
            if is_sparse:
                data = s["ptr"], s["index"], s["value"], lo
                splitting.lean_sparse(*data, best, weights, theta, whole, share, pending, mixing)
            else:
                t = self._features(lo, hi)  # type: ignore[attr-defined]
                splitting.lean(t, best, weights, rows, whole, share, sums, mixing)
            then(lo, hi, best, places, share)
        if sums is not None:
            pending += sums.T

    def _command_halve(self) -> None:
        """The halves' parameters for what they got, of the splits of own blocks."""
        self._weigh(anew=True)

    def _command_weigh(self) -> None:
        """Gains of the splits of own blocks."""
        self._weigh(anew=False)

    def _weigh(self, anew: bool) -> None:
        shared, log_weights, a0 = self.shared, self.model.log_weights, self.model.a0
        for group in self._own_groups():
            columns = group[shared["gains"][0, group] > -np.inf]
            if not len(columns):
                continue
            at = as_slice(columns)
            own = _columns_of(shared["statistics"], columns)
            new = _columns_of(shared["pending"][0], columns).copy()
            for pending in shared["pending"][1:]:
                new += _columns_of(pending, columns)
            n_new = np.clip(new[0], 0.0, None)
            n_old = np.maximum(own[0] - n_new, 0.0)
            a, b = self.kind.expect(n_new, new[1:]), self.kind.expect(n_old, own[1:] - new[1:])
            if not anew:
                n_all = np.maximum(own[0], 0.0)
                gain = a.gain + b.gain - shared["gains"][2, at]
                gain += gammaln(a0 + n_new) + gammaln(a0 + n_old) - gammaln(a0 + n_all)
                gain += shared["mixing"][:, 0, at].sum(axis=0) - gammaln(np.array(a0))
                # Halves of nothing are no split.
                shared["gains"][0, at] = np.where((n_new > 0.5) & (n_old > 0.5), gain, -np.inf)
            else:
                shared["lean"][0, at] = (
                    a.constant + log_weights(n_new) - b.constant - log_weights(n_old)
                )
                shared["lean"][1:, at] = a.theta - b.theta

    def _command_pair(self) -> None:
        """For each component of own blocks the one that it is best merged into, and the gain."""
        shared, statistics, a0 = self.shared, self.shared["statistics"], self.model.a0
        expect, gains = self.kind.expect, self.shared["gains"][2]
        others = np.flatnonzero(statistics[0] >= _LIVE)
        if len(others) <= _CANDIDATES:
            others = np.arange(self.model.K)
        n, theta = min(_CANDIDATES, len(others) - 1), _columns_of(self.theta, others)
        largest = others[np.argsort(-statistics[0, others], kind="stable")[:n]]
        for columns in self._own_groups():
            # A dead one merges for nothing with any.
            best, live = np.tile(largest, (len(columns), 1)), np.isin(columns, others)
            if live.any():
                u = self._score_means(columns[live], others, theta)
                best[live] = others[np.argpartition(-u, n - 1, axis=1)[:, :n]]
            own = statistics[:, as_slice(columns)]
            counts = np.maximum(own[0], 0.0)
            alone = gains[as_slice(columns)] - gammaln(a0 + counts)
            found = np.full(len(columns), -np.inf)
            for other in best.T:
                theirs = np.take(statistics, other, axis=1)
                n_theirs = np.maximum(theirs[0], 0.0)
                both = counts + n_theirs
                gain = expect(both, own[1:] + theirs[1:]).gain + gammaln(a0 + both)
                gain -= gains[other] + gammaln(a0 + n_theirs) + alone
                gain += gammaln(np.array(a0)) - 2.0 * gammaln(a0 + counts)
                better = gain > found
                found[better] = gain[better]
                shared["partner"][columns[better]] = other[better]
            shared["gains"][1, as_slice(columns)] = found

    def _command_mix(self) -> None:
        """What the merges that are looked at would change of the entropy of own points."""
        mixing, partner = self.shared["mixing"][self.p, 1], self.shared["partner"]
        mixing[:] = 0.0
        if "ids" in self.shard:
            splitting.mix_kept(self.shard["ids"], self.z, partner, mixing)
        else:
            splitting.mix(self.z, partner, mixing)

    def _command_move(self) -> None:
        """Merge and split as home has chosen."""
        into, half = self.shared["moves"]

        def move(lo: int, hi: int, best: Any, places: Any, share: Any) -> None:
            z, ids = self.z[lo:hi], self.shard.get("ids")
            weights = z[np.arange(len(z)), places]
            if ids is None:
                splitting.merge(z, into)
            else:
                splitting.merge_kept(ids[lo:hi], z, into)
            split = np.flatnonzero((half[best] >= 0) & (share > 0.0))
            if ids is None:
                gets = (share[split] * weights[split]).astype(np.float32)
                z[split, half[best[split]]] = gets
                z[split, best[split]] = np.maximum(weights[split] - gets, 0.0)
            else:
                ids[lo + split, places[split]] = half[best[split]]

        self._lean(move)
