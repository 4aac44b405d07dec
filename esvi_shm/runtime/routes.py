"""Which worker a block visits next.

A block stops only at workers whose shard has work for it: its *stops*. A pass of a block is
as many visits as it has stops.

==========  ==========================================================================
lap         the stop with the fewest blocks waiting of those it has not been at in this pass:
            each shard exactly once a pass
ring        the stops in turn, each block starting at another one
random      any stop, as in the paper: once a pass on average
balanced    the stop with the fewest blocks waiting, other than where it is
==========  ==========================================================================

Ties are drawn by (seed, block, visit), so they do not depend on who draws them. A lap in an order
drawn beforehand keeps fewer workers busy: with 2 blocks for each of 16 workers a simulation has
them at work 75% of the time, against 84% by the shortest queue and in a ring (where the rest is
workers that differ in speed); and few blocks are what makes a pass cheap.

A deterministic fit also fixes in which order a worker takes its blocks (`worker_order`). In
pass t the blocks are dealt into P groups; in step s of the pass worker p has group (p - s) mod P.
A visit waits only for visits of earlier steps, so nobody waits for ever.
"""

from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.config import FitConfig, choose
from esvi_shm.counter import shuffled, uniform
from esvi_shm.errors import ParameterError
from esvi_shm.runtime.blocks import AT_WORK, PLACE, Control
from esvi_shm.shared.ring import size_guess

ROUTES = ("lap", "ring", "random", "balanced")
_LAP, _RING, _RANDOM, _BALANCED = range(4)


def check(config: FitConfig) -> None:
    """Refuse a route that is not known or cannot be deterministic.

    Raises
    ------
    ParameterError
    """
    choose("route", config.route, ROUTES)
    if config.deterministic and config.route in ("random", "balanced"):
        raise ParameterError("route", "must be lap or ring in a deterministic fit", config.route)


class Stops(NamedTuple):
    """The stops of all blocks, and how one is chosen; for kernels."""

    first: np.ndarray  # int64 (B + 1,): where in `workers` a block's stops begin
    workers: np.ndarray  # int64: the stops, ascending
    route: int  # index in `ROUTES`
    seed: int


class Route:
    """The route of every block of a fit.

    Parameters
    ----------
    config : FitConfig
        Checked; with the number of workers.
    stops : list of int arrays
        For each block the workers that have work for it, ascending.
    """

    def __init__(self, config: FitConfig, stops: list[np.ndarray]) -> None:
        assert config.n_workers is not None
        self.name, self.stops, self.n_workers = config.route, stops, config.n_workers
        self.seed, self.deterministic = config.seed, config.deterministic
        self.table = Stops(
            np.concatenate([[0], np.cumsum([len(s) for s in stops])]),
            np.concatenate([np.empty(0, np.int64), *stops]),
            ROUTES.index(self.name),
            self.seed,
        )
        self._groups_of: tuple[int, np.ndarray] = (-1, np.empty(0, int))

    def _groups(self, pass_: int) -> np.ndarray:
        """Group of each block in a pass of the deterministic schedule."""
        if self._groups_of[0] != pass_:
            n_blocks = len(self.stops)
            order = np.arange(n_blocks)
            if self.name == "lap":
                order = shuffled(order, self.seed, n_blocks, pass_)
            groups = np.empty(n_blocks, int)
            groups[order] = np.arange(n_blocks) % self.n_workers
            self._groups_of = (pass_, groups)
        return self._groups_of[1]

    def worker_order(self, worker: int, pass_: int) -> list[int]:
        """The blocks that a worker visits in a pass, in order (deterministic fits)."""
        groups = self._groups(pass_)
        return [
            int(b)
            for step in range(self.n_workers)
            for b in np.flatnonzero(groups == (worker - step) % self.n_workers)
            if worker in self.stops[b]
        ]

    def next_stop(self, block: int, step: int, control: Control) -> int:
        """The worker for visit number `step` (from 0) of a block, for its holder to ask."""
        if not self.deterministic:
            return int(next_stop(self.table, block, step, control))
        stops = self.stops[block]
        pass_, place = divmod(step, len(stops))
        group = self._groups(pass_)[block]
        return int(sorted(stops, key=lambda p: (p - group) % self.n_workers)[place])


@kernel
def next_stop(table, block, step, control):
    """`Route.next_stop` where the route is not deterministic.

    Parameters
    ----------
    table : Stops
    block, step : int
    control : Control
        The block's row of `visited` is written.
    """
    stops = table.workers[table.first[block] : table.first[block + 1]]
    n, route, seed = len(stops), table.route, table.seed
    if n == 1:
        return stops[0]
    if route == _RING:
        return stops[(block + step) % n]
    if route == _RANDOM:
        return shuffled(stops, seed, block, step)[0]
    visited = control.visited[block]
    if route == _BALANCED:
        visited[:] = 0
        here = control.blocks[block, PLACE]
        if here < control.workers.shape[0]:
            visited[here] = 1
    elif step % n == 0:
        visited[:] = 0
    following = least_waiting(stops, visited, control.rings, control.workers, seed, block, step)
    visited[following] = 1
    return following


@kernel
def least_waiting(stops, visited, rings, workers, seed, block, step):
    """Of the stops where `visited` is 0, the one with the fewest blocks waiting or at work on.

    Ties are drawn by (seed, block, step). The counts may be a moment old.

    Parameters
    ----------
    stops : int64 array, shape (n,)
    visited : uint8 array, shape (P or more,)
        0 at one stop at least.
    rings, workers : arrays of `blocks.control_specs`
    seed, block, step : int
    """
    fewest, ties, chosen = np.int64(0), 0, np.int64(-1)
    for p in stops:
        if visited[p]:
            continue
        waiting = workers[p, AT_WORK]
        for ring in range(rings.shape[1]):
            waiting += size_guess(rings[p, ring])
        if chosen < 0 or waiting < fewest:
            fewest, ties, chosen = waiting, 1, p
        elif waiting == fewest:
            ties += 1
            if uniform(seed, block, step * rings.shape[0] + p) * ties < 1.0:
                chosen = p
    return chosen


def find_stops(work: list[np.ndarray]) -> list[np.ndarray]:
    """The stops of each block, from what it finds to do at each worker's shard."""
    return [np.flatnonzero(column) for column in np.stack(work).T]
