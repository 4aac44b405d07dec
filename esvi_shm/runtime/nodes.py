"""Home's part in a fit on several nodes: blocks that come and go, and what nodes agree on."""

import json
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from esvi_shm.runtime.blocks import PLACE
from esvi_shm.runtime.layout import Layout
from esvi_shm.runtime.peers import Peers
from esvi_shm.runtime.rows import Copied, Travelling
from esvi_shm.shared.segments import Segment, reserve_file

#: Bytes that nodes send at once when what they found is put together.
PIECE = 4 * 2**20


class Nodes:
    """What home does with the other nodes of a fit.

    Parameters
    ----------
    peers : Peers
    layout : Layout
    segment : Segment
        Of the parameters; not reserved.
    corpus : mapping of str to arrays
        Of the segment `corpus`, filled.
    block_words : int64 array
        See `blocks`; home has index P, and what is at another node P + 1.
    """

    def __init__(
        self, peers: Peers, layout: Layout, segment: Segment, corpus: Any, block_words: np.ndarray
    ) -> None:
        self.peers, self.layout, self.block_words = peers, layout, block_words
        self.rows = (Copied if layout.model.copied else Travelling)(layout, segment, corpus)
        self.rows.reserve_the_rest()
        self.home = layout.sizes.n_workers
        self.away = self.home + 1
        self.own = np.arange(peers.rank, layout.sizes.n_blocks, peers.n_nodes)
        for b in self.own.tolist():
            self.rows.hold(b)
        self.settle()

    def settle(self) -> None:
        """Every block is back at the node where it rests."""
        self.block_words[:, PLACE] = self.away
        self.block_words[self.own, PLACE] = self.home

    def begin(self, stops: Sequence[np.ndarray]) -> None:
        """Tell the others which blocks find work here."""
        has_work = np.array([len(s) > 0 for s in stops], np.uint8).tobytes()
        of_nodes = [np.frombuffer(part, np.uint8) for part in self.peers.gather(has_work)]
        nodes_of = np.stack(of_nodes).T
        n = self.peers.n_nodes
        visits = [np.flatnonzero(row).tolist() or [b % n] for b, row in enumerate(nodes_of)]
        self.peers.begin(self.rows, visits)

    def rotate(self) -> None:
        """Send the blocks that are here to the next node."""
        held = np.flatnonzero(self.block_words[:, PLACE] == self.home).tolist()
        came = self.peers.rotate(held)
        self.block_words[held, PLACE] = self.away
        self.block_words[came, PLACE] = self.home

    def agree(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        """What all nodes say of where they stand, by rank."""
        return [json.loads(part) for part in self.peers.gather(json.dumps(said).encode())]

    def sums(self, *numbers: float) -> np.ndarray:
        """Sums over all nodes."""
        total = np.array(numbers, np.float64)
        self.peers.sum_into(total)
        return total

    def most_held(self) -> float:
        """Of all rows that travel, the share that any node has held at once."""
        shares = np.zeros(self.peers.n_nodes)
        shares[self.peers.rank] = self.rows.most_share
        self.peers.sum_into(shares)
        return float(shares.max())

    def whole_rows(self) -> dict[str, np.ndarray] | None:
        """All rows that travel, at node 0; None elsewhere. They lie in files without a name."""
        whole, shared = None, self.rows.shared
        names = self.layout.model.travels
        if self.layout.model.copied:  # they are where they are looked for
            return None if self.peers.rank else {}
        if self.peers.rank == 0:
            whole = {name: self._in_file(shared[name].shape, shared[name].dtype) for name in names}
        for _ in range(self.peers.n_nodes):
            if whole is not None:
                for b in np.flatnonzero(self.block_words[:, PLACE] == self.home):
                    for name in names:
                        at = self.layout.model.rows(self.rows.arrays, int(b), name)
                        whole[name][at] = shared[name][at]
            self.rotate()
        return whole

    def whole_units(self, own: Sequence[Any]) -> list[np.ndarray]:
        """Arrays of units of all nodes, in order, at node 0; elsewhere this node's own."""
        own = [self._whole(part) for part in own]
        shapes = self.agree({"shapes": [array.shape for array in own]})
        found = [
            [self._in_file(tuple(shape), own[0].dtype) for shape in said["shapes"]]
            for said in (shapes[1:] if self.peers.rank == 0 else [])
        ]
        n_rounds = [len(list(_pieces(said["shapes"], own[0].itemsize))) for said in shapes]
        mine = _pieces([array.shape for array in own], own[0].itemsize)
        theirs = [_pieces(said["shapes"], own[0].itemsize) for said in shapes[1:]]
        for _ in range(max(n_rounds[1:], default=0)):
            part, at = b"", next(mine, None) if self.peers.rank else None
            if at is not None:
                flat = own[at[0]].reshape(-1).view(np.uint8)
                part = flat[at[1] : at[2]].tobytes()
            parts = self.peers.collect(part)
            for rank, arrays in enumerate(found, 1):
                place = next(theirs[rank - 1], None)
                if place is not None:
                    flat = arrays[place[0]].reshape(-1).view(np.uint8)
                    flat[place[1] : place[2]] = np.frombuffer(parts[rank], np.uint8)
        return [*own, *(array for arrays in found for array in arrays)]

    def _whole(self, part: Any) -> np.ndarray:
        """What only looks like an array as one, in a file."""
        if isinstance(part, np.ndarray):
            return part
        made, n_rows = self._in_file(part.shape, part.dtype), max(PIECE // (4 * part.shape[1]), 1)
        for first in range(0, len(part), n_rows):
            made[first : first + n_rows] = part[first : first + n_rows]
        return made

    def _in_file(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Zeros in a file without a name, so that they are no process's memory."""
        if 0 in shape:
            return np.zeros(shape, dtype)
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        folder = self.layout.config.scratch or tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:
            reserve_file(f"a file in {folder}", file.fileno(), n_bytes)
            return np.memmap(file, dtype, "r+", shape=shape)


def _pieces(shapes: Sequence[Sequence[int]], itemsize: int) -> Any:
    """(array, first byte, last byte) of the pieces in which arrays are sent."""
    for i, shape in enumerate(shapes):
        n_bytes = int(np.prod(shape)) * itemsize
        for first in range(0, n_bytes, PIECE):
            yield i, first, min(first + PIECE, n_bytes)
