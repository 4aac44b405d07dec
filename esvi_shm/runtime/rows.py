"""What blocks carry from node to node, at this node; see `peers.Rows`.

`Travelling`: what travels is too large for one node. It maps all rows, and has memory for those
of some blocks: pages of a block that is away are given back when others need the room, and reserved
again before it comes. `Copied`: every node has room for all of it. What a block has left behind
stays as it was, for workers to read, and at rest the family makes it the same at all nodes.

With both, kernels and workers find a block's part where it always is, and know nothing of others.
"""

import errno
import logging
from typing import Any

import numpy as np

from esvi_shm.errors import ParameterName
from esvi_shm.runtime import packing
from esvi_shm.runtime.layout import Layout
from esvi_shm.shared.segments import Segment

_log = logging.getLogger(__name__)


class _Carried:
    """What both have in common: where a block's part is, and what this node contributes."""

    def __init__(self, layout: Layout, segment: Segment, corpus: Any) -> None:
        self.segment, self.model = segment, layout.model
        self.n_workers = layout.sizes.n_workers
        self.shared = segment.arrays
        self.arrays = {**corpus, **self.shared}

    def _arrays(self, block: int) -> list[np.ndarray]:
        return [self.shared[name][self._rows(block, name)] for name in self.model.travels]

    def _rows(self, block: int, name: str) -> Any:
        return self.model.rows(self.arrays, block, name)

    def contribution(self) -> np.ndarray:
        """See `peers.Rows`."""
        if not self.model.contributes:
            return np.zeros(0)
        total: np.ndarray = self.shared[self.model.contributes][: self.n_workers].sum(axis=0)
        return total

    def set_others(self, total: np.ndarray) -> None:
        """See `peers.Rows`."""
        if self.model.contributes:
            self.shared[self.model.contributes][self.n_workers :] = total


class Travelling(_Carried):
    """Rows that are here with their block only: of float32, or lists."""

    def __init__(self, layout: Layout, segment: Segment, corpus: Any) -> None:
        super().__init__(layout, segment, corpus)
        # To free pages and to take new ones costs more than to receive what they hold: those of
        # blocks that have gone are kept as long as there is room.
        self.left: dict[int, None] = {}
        self.held = self.most_held = 0  # bytes with theirs, now and at most
        self.whole = sum(self.shared[name].nbytes for name in self.model.travels)
        self.limit = int(layout.most_held * self.whole)
        # Compiled before others wait for it.
        if (lists := self.model.listed_block(self.arrays, 0)) is not None:
            packing.unpack_lists(packing.pack_lists(lists), lists)
        else:
            one = np.ones((1, 1), np.float32)
            packing.unpack(packing.pack([one]), [np.empty_like(one)])

    def reserve_the_rest(self) -> None:
        """Make room for all that does not travel."""
        for spec in self.segment.handle.table:
            if spec.name not in self.model.travels:
                self.segment.reserve(spec.name)

    @property
    def most_share(self) -> float:
        """The share of all rows that this node has held at once."""
        return self.most_held / max(self.whole, 1)

    def pack(self, block: int) -> memoryview:
        """See `peers.Rows`."""
        lists = self.model.listed_block(self.arrays, block)
        return packing.pack(self._arrays(block)) if lists is None else packing.pack_lists(lists)

    def most(self, block: int) -> int:
        """See `peers.Rows`."""
        lists = self.model.listed_block(self.arrays, block)
        return packing.most(self._arrays(block)) if lists is None else packing.most_of_lists(lists)

    def unpack(self, block: int, data: memoryview) -> None:
        """See `peers.Rows`."""
        lists = self.model.listed_block(self.arrays, block)
        if lists is None:
            packing.unpack(data, self._arrays(block))
        else:
            packing.unpack_lists(data, lists)
        self.model.arrived(self.shared, block)

    def hold(self, block: int) -> None:
        """See `peers.Rows`."""
        size = self._size(block)
        if block in self.left:
            del self.left[block]
            return
        while self.left and self.held + size > self.limit:
            if not self._give_back(next(iter(self.left))):
                break
        for name in self.model.travels:
            self.segment.reserve(name, self._rows(block, name))
        self.held += size
        self.most_held = max(self.most_held, self.held)

    def drop(self, block: int) -> None:
        """See `peers.Rows`."""
        self.left[block] = None

    def _give_back(self, block: int) -> bool:
        """Give the pages of a block that is away back, where the file system can do that."""
        try:
            for name in self.model.travels:
                self.segment.give_back(name, self._rows(block, name))
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            _log.warning(
                "%s: this node keeps all %d bytes of what travels: the file system cannot free a "
                "part of a file (%s)",
                ParameterName("scratch"), self.whole, error.strerror,
            )  # fmt: skip
            self.limit = self.whole
            return False
        del self.left[block]
        self.held -= self._size(block)
        return True

    def _size(self, block: int) -> int:
        return sum(array.nbytes for array in self._arrays(block))


class Copied(_Carried):
    """Parts of arrays that every node has whole, to the bit."""

    most_share = 1.0

    def reserve_the_rest(self) -> None:
        """Make room for everything."""
        self.segment.reserve()

    def pack(self, block: int) -> memoryview:
        """See `peers.Rows`."""
        return memoryview(b"".join(array.tobytes() for array in self._arrays(block)))

    def most(self, block: int) -> int:
        """See `peers.Rows`."""
        return sum(array.nbytes for array in self._arrays(block))

    def unpack(self, block: int, data: memoryview) -> None:
        """See `peers.Rows`."""
        if len(data) != self.most(block):
            raise ValueError(f"they take {self.most(block)} bytes, got {len(data)}")
        at = 0
        for name, old in zip(self.model.travels, self._arrays(block), strict=True):
            fresh = np.frombuffer(data[at : at + old.nbytes], old.dtype).reshape(old.shape)
            self.shared[name][self._rows(block, name)] = fresh
            at += old.nbytes
        self.model.arrived(self.shared, block)

    def hold(self, block: int) -> None:
        """See `peers.Rows`: there always is."""

    def drop(self, block: int) -> None:
        """See `peers.Rows`: it is kept."""
