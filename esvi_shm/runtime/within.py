"""Which way to hold the state, and how many blocks, keep a fit within a limit of memory.

What is asked for comes first, as it is. Where it is too large and something is left open, every
candidate is laid out, and its plan decides: nothing is guessed. Fewer blocks have fewer (document,
block) rows and larger private arrays; they change the order of the updates only, so they are tried
before a way that comes at a price.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from operator import itemgetter

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.errors import ParameterError, ParameterName
from esvi_shm.families.contract import Changes, Data
from esvi_shm.runtime.layout import Layout, lay_out, mib
from esvi_shm.runtime.memory import peak_bytes
from esvi_shm.runtime.peers import Peers

_log = logging.getLogger(__name__)


def lay_out_within(
    data: Data,
    config: FitConfig,
    open_blocks: bool,
    release: bool = False,
    peers: Peers | None = None,
) -> Layout:
    """The layout of what is asked for, or of the best that `config.max_memory` has room for.

    On several nodes that is the same at all, and must fit at each.

    Parameters
    ----------
    data, config, release : as for `lay_out`
    open_blocks : bool
        Whether fewer blocks may be taken.
    peers : Peers, optional

    Raises
    ------
    ParameterError
        If there is room for none; the message says what the least would take. And as `lay_out`.
    """
    same, smaller = families.find(config.family).storages(config)
    first = lay_out(data, replace(config, **same[0]), release)
    limit, peak = config.max_memory, _peak_of(peers)
    if limit is None or (needed := peak(first)) <= limit:
        return first
    # Topics that travel meet by their blocks: fewer of those are not the same updates in another
    # order.
    open_blocks = open_blocks and config.axis == "words"
    numbers = list(_numbers_of_blocks(config, peers)) if open_blocks else [config.n_blocks]

    # A family may cut the data for a storage. Others, as of topk by what is kept, share a cut.
    cuts = {(first.config.n_blocks, first.config.storage): first}

    def lay_out_again(made: FitConfig) -> Layout:
        key = made.n_blocks, made.storage
        if key not in cuts:
            cuts[key] = lay_out(data, made, release)
        return cuts[key].with_config(made)

    def layouts(ways: Iterable[Changes]) -> Iterator[Layout]:
        for n in numbers:
            for way in ways:
                yield lay_out_again(replace(config, **way, n_blocks=n))

    def fitting(ways: Iterable[Changes]) -> Layout | None:
        return next((layout for layout in layouts(ways) if peak(layout) <= limit), None)

    level, found = logging.INFO, fitting(same)
    if found is None:
        fits = cache(lambda at: fitting([smaller[at]]) is not None)
        at = 0 if smaller and fits(0) else bisect_left(range(len(smaller)), True, 1, key=fits)
        # What comes at a price must not go unnoticed.
        level, found = logging.WARNING, fitting([smaller[at]] if at < len(smaller) else [])
    if found is None:
        last = [smaller[0], smaller[-1]] if smaller else []
        least_bytes, least = min(
            ((peak(layout), layout) for layout in layouts([*same, *last])), key=itemgetter(0)
        )
        fewer = "; fewer workers take less" if config.n_workers != 1 else ""
        what = f"{data.name}, {config.n_workers} workers, {_way(least)}{fewer}"
        rule = f"must be at least {_size(least_bytes)} ({what})"
        raise ParameterError("max_memory", rule, _size(limit))
    _log.log(
        level, "%s %s: taking %s (about %s), for %s would take about %s",
        ParameterName("max_memory"), _size(limit), _way(found), _size(peak(found)),
        _way(first), _size(needed),
    )  # fmt: skip
    return found


def _peak_of(peers: Peers | None) -> Callable[[Layout], int]:
    """What gives the peak of a layout, in bytes; of several nodes that of the largest."""

    def peak(layout: Layout) -> int:
        return _most(peak_bytes(layout), peers)

    return peak


def _most(here: int, peers: Peers | None) -> int:
    """The largest of the nodes' numbers."""
    return here if peers is None else max(int(n) for n in peers.gather(str(here).encode()))


def _numbers_of_blocks(config: FitConfig, peers: Peers | None) -> Iterator[int]:
    """The number of blocks, halved again and again while each worker of a node can have one."""
    assert config.n_workers is not None and config.n_blocks is not None
    n_blocks, n_workers = config.n_blocks, _most(config.n_workers, peers)
    while n_blocks >= min(n_workers, config.n_blocks):
        yield n_blocks
        n_blocks //= 2


def _way(layout: Layout) -> str:
    """How a layout holds the state, for a message."""
    config = layout.config
    kept = f" with {config.topk} kept" if config.storage == "topk" else ""
    storage = f"storage {config.storage}{kept} in " if config.storage else ""
    return f"{storage}{config.n_blocks} blocks"


def _size(n_bytes: int) -> str:
    return mib(n_bytes).strip()
