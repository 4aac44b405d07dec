"""Which way to hold the state, and how many blocks, keep a fit within a limit of memory.

What is asked for comes first, as it is. Where it is too large and something is left open, every
candidate is laid out, and its plan decides: nothing is guessed. Fewer blocks have fewer (document,
block) rows and larger private arrays; they change the order of the updates only, so they are tried
before a way that comes at a price.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.errors import ParameterError, ParameterName
from esvi_shm.families.contract import Changes, Data
from esvi_shm.runtime.layout import Layout, lay_out, mib
from esvi_shm.runtime.memory import peak_bytes

_log = logging.getLogger(__name__)


def lay_out_within(
    data: Data, config: FitConfig, open_blocks: bool, release: bool = False
) -> Layout:
    """The layout of what is asked for, or of the best that `config.max_memory` has room for.

    Parameters
    ----------
    data, config, release : as for `lay_out`
    open_blocks : bool
        Whether fewer blocks may be taken.

    Raises
    ------
    ParameterError
        If there is room for none; the message says what the least would take. And as `lay_out`.
    """
    same, smaller = families.find(config.family).storages(config)
    first = lay_out(data, replace(config, **same[0]), release)
    limit = config.max_memory
    if limit is None or peak_bytes(first) <= limit:
        return first
    # Topics that travel meet by their blocks: fewer of those are not the same updates in another
    # order.
    open_blocks = open_blocks and config.axis == "words"
    numbers = list(_numbers_of_blocks(config)) if open_blocks else [config.n_blocks]

    @cache
    def cut(n_blocks: int) -> Layout:
        return lay_out(data, replace(first.config, n_blocks=n_blocks), release)

    def layouts(ways: Iterable[Changes]) -> Iterator[Layout]:
        for n in numbers:
            for way in ways:
                yield cut(n).with_config(replace(config, **way, n_blocks=n))

    def fitting(ways: Iterable[Changes]) -> Layout | None:
        return next((layout for layout in layouts(ways) if peak_bytes(layout) <= limit), None)

    level, found = logging.INFO, fitting(same)
    if found is None:
        at = bisect_left(smaller, True, key=lambda way: fitting([way]) is not None)
        # What comes at a price must not go unnoticed.
        level, found = logging.WARNING, fitting([smaller[at]] if at < len(smaller) else [])
    if found is None:
        last = [smaller[-1]] if smaller else []
        least = min(layouts([*same, *last]), key=peak_bytes)
        what = f"{data.name}, {config.n_workers} workers, {_way(least)}"
        rule = f"must be at least {_size(peak_bytes(least))} ({what})"
        raise ParameterError("max_memory", rule, _size(limit))
    _log.log(
        level, "%s %s: taking %s (about %s), for %s would take about %s",
        ParameterName("max_memory"), _size(limit), _way(found), _size(peak_bytes(found)),
        _way(first), _size(peak_bytes(first)),
    )  # fmt: skip
    return found


def _numbers_of_blocks(config: FitConfig) -> Iterator[int]:
    """The number of blocks, halved again and again while each worker can have one."""
    assert config.n_workers is not None and config.n_blocks is not None
    n_blocks = config.n_blocks
    while n_blocks >= min(config.n_workers, config.n_blocks):
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
