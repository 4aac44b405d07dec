"""Moves out of poor optima: a component too many goes where one is missing.

At some rests every component is split on trial, and merged on trial with the one most like it. A
split begins at two random points of the component and is refined on its points alone, as inference
of two components; both change a few terms of the bound only, which are known exactly:

    split of k:      gain(s_new) + gain(s_k - s_new) - gain(s_k), weights, entropy of the shares
    merge of k, l:   gain(s_k + s_l) - gain(s_k) - gain(s_l),     weights, entropy of z_k + z_l

Pairs of a merge and a split with no component in common are made at once where together they raise
the bound: so it never falls. A dead component is one that merges for nothing. What is left to
workers is in `mover`.
"""

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from esvi_shm.families.contract import Arrays

if TYPE_CHECKING:
    from esvi_shm.families._mixture import Mixture

#: The first pass after which moves are tried.
FIRST = 3
#: Points of each component, on average, that seeds are drawn from.
_DRAWN = 20
#: Times that the halves' parameters are computed.
STEPS = 4
#: The seeds' scores times this leave no point between them.
_SHARPLY = 1e3
#: Least rise of the bound, nats, for which a move is made: above what rounding leaves of it.
LEAST_GAIN = 0.5


def is_due(n_passes: int) -> bool:
    """Whether moves are tried after so many passes: 3, 6, 10, 15, 21...

    Before, components that are still on their way would be merged.

    >>> [n for n in range(30) if is_due(n)]
    [3, 6, 10, 15, 21, 28]
    """
    return n_passes >= FIRST and math.isqrt(8 * n_passes + 1) ** 2 == 8 * n_passes + 1


def script(
    model: "Mixture", held: Any, arrays: Arrays, shared: Arrays, n_passes: int
) -> Generator[Any, bool, dict[str, int]]:
    """Merge and split at rest; statistics must be exact.

    Returns
    -------
    dict
        How many merges and splits were made.
    """
    seeded = _seed(model, held, arrays, shared, n_passes)
    shared["gains"][0] = np.where(seeded, 0.0, -np.inf)  # the others are not looked at
    for step in range(STEPS):
        yield "lean"
        yield from model.add_others(shared["pending"])
        yield from model.add_others(shared["mixing"])
        yield "halve" if step < STEPS - 1 else "weigh"
    yield "pair"
    yield "mix"
    yield from model.add_others(shared["mixing"])
    merges = shared["gains"][1] + shared["mixing"][:, 1].sum(axis=0)
    into, half = held.agree(np.stack(choose(shared["gains"][0], merges, shared["partner"])))
    made = {"merges": int((into >= 0).sum()), "splits": int((half >= 0).sum())}
    if made["merges"]:
        shared["moves"][0], shared["moves"][1] = into, half
        yield "move"
    return made


def choose(
    splits: np.ndarray, merges: np.ndarray, partner: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The moves to make: what each component is merged into, and which one its half becomes.

    Parameters
    ----------
    splits, merges : float64 array, shape (K,)
        What they change the bound by.
    partner : int array, shape (K,)

    Returns
    -------
    int32 arrays, shape (K,)
        -1: none.

    Examples
    --------
    >>> splits, merges = np.array([-1.0, -1.0, 9.0]), np.array([-4.0, -5.0, -90.0])
    >>> [found.tolist() for found in choose(splits, merges, np.array([1, 0, 0]))]
    [[1, -1, -1], [-1, -1, 0]]
    """
    K = len(splits)
    into, half = np.full(K, -1, np.int32), np.full(K, -1, np.int32)
    used = np.zeros(K, bool)
    cheapest = np.argsort(-merges, kind="stable").tolist()
    for k in np.argsort(-splits, kind="stable").tolist():
        if used[k] or not splits[k] > 0:
            continue
        used[k] = True  # so that no merge takes it
        free = (m for m in cheapest if not used[m] and not used[partner[m]])
        merged = next(free, None)
        if merged is None or splits[k] + merges[merged] < LEAST_GAIN:
            used[k] = False
            continue
        into[merged], half[k] = partner[merged], merged
        used[merged] = used[partner[merged]] = True
    for merged in cheapest:
        if merges[merged] < LEAST_GAIN:
            break
        if not used[merged] and not used[partner[merged]]:
            into[merged] = partner[merged]
            used[merged] = used[partner[merged]] = True
    return into, half


def _seed(model: "Mixture", held: Any, arrays: Arrays, shared: Arrays, n_passes: int) -> np.ndarray:
    """Two points of each component set `lean`; which components have two, bool, shape (K,)."""
    K, random = model.K, np.random.default_rng([model.config.seed, n_passes])
    n = min(held.n_points, _DRAWN * K)
    drawn = random.permutation(random.choice(held.n_points, n, replace=False))
    bounds, labels = arrays["point_bounds"], np.zeros(n)
    places, local = held.here(drawn)
    owners = np.searchsorted(bounds, local, side="right") - 1
    for p, state in enumerate(held.states):
        mine = np.flatnonzero(owners == p)
        for first in range(0, len(mine), 1024):
            some = mine[first : first + 1024]
            at = local[some] - bounds[p]
            best = state["z"][at].argmax(axis=1)
            labels[places[some]] = state["ids"][at, best] if "ids" in state else best
    held.sum_into(labels)
    order = np.argsort(labels, kind="stable")
    begins = np.searchsorted(labels[order], np.arange(K + 1))
    seeded = np.diff(begins) >= 2
    shared["lean"][:] = 0.0
    chosen = np.flatnonzero(seeded)
    if len(chosen):
        rows = [held.rows(drawn[order[begins[chosen] + i]]) for i in (0, 1)]
        dense = [x if isinstance(x, np.ndarray) else x.toarray() for x in rows]
        kind = model.make_kind(arrays)
        (a, b), (c, d) = kind.seed(dense[0]), kind.seed(dense[1])
        shared["lean"][0, chosen] = _SHARPLY * (b - d)
        shared["lean"][1:, chosen] = _SHARPLY * (a - c)
    return seeded
