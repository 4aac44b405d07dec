"""What comes in pieces: where each belongs, which are still to come, and bodies that are no such.

A piece that comes again is left out; nothing is kept beyond the length that was said first.
"""

import struct
from collections.abc import Sequence
from typing import Any

from esvi_shm.runtime.peers import Rows
from esvi_shm.transports.protocol.frames import FrameError

#: After a head of its own a piece says the length of the whole, and its place in it.
WHERE = struct.Struct("<QQ")


def flat(view: memoryview) -> memoryview:
    """The bytes of a C-contiguous view of any shape."""
    return view.cast("B") if view.nbytes else memoryview(b"")


def unpack(head: struct.Struct, body: memoryview) -> tuple[Any, ...]:
    """The numbers of a body that has nothing else."""
    if len(body) != head.size:
        raise FrameError(f"a body must have {head.size} bytes, got {len(body)}")
    return head.unpack(body)


def unpack_piece(
    head: struct.Struct, body: memoryview
) -> tuple[tuple[Any, ...], int, int, memoryview]:
    """The numbers of the head, the length of the whole, the place of the piece, its bytes."""
    size = head.size + WHERE.size
    if len(body) < size:
        raise FrameError(f"a piece must have at least {size} bytes, got {len(body)}")
    total, place = WHERE.unpack_from(body, head.size)
    piece = body[size:]
    if place + len(piece) > total or (not len(piece) and total):
        raise FrameError(f"a piece of {len(piece)} bytes at {place} must lie within {total}")
    return head.unpack_from(body), total, place, piece


class Arrival:
    """Bytes that come in pieces, into views that are there.

    Parameters
    ----------
    views : sequence of memoryview
        Writable, C-contiguous.
    total : int
        What the first piece says of their length.
    """

    def __init__(self, views: Sequence[memoryview], total: int) -> None:
        self._views = [flat(view) for view in views]
        size = sum(view.nbytes for view in views)
        if total != size:
            raise FrameError(f"here {size} bytes are needed, got {total}")
        self._missing, self._places = total, set[int]()

    def write(self, place: int, piece: memoryview) -> None:
        """Put a piece where it belongs, unless it has come before."""
        if place in self._places:
            return
        self._places.add(place)
        self._missing -= len(piece)
        for view in self._views:
            if not len(piece):
                break
            if place < view.nbytes:
                here = piece[: view.nbytes - place]
                view[place : place + len(here)] = here
                piece = piece[len(here) :]
                place += len(here)
            place -= view.nbytes

    @property
    def is_whole(self) -> bool:
        """Whether all pieces have come."""
        return self._missing <= 0


class Landing:
    """Rows of a block that come in pieces; memory is taken once their length is known to be fit.

    Rows that come in one piece are taken from where they are, when that is written.

    Parameters
    ----------
    rows : Rows
        Has room for the block.
    block, total : int
    """

    def __init__(self, rows: Rows, block: int, total: int) -> None:
        most = rows.most(block)
        if total > most:
            raise FrameError(f"the rows of block {block} take at most {most} bytes, got {total}")
        self._rows, self._block, self._total = rows, block, total
        self._data = memoryview(b"")
        self._arrival: Arrival | None = None
        self.is_whole = False

    def write(self, place: int, piece: memoryview) -> None:
        """Put a piece where it belongs; once `is_whole`, `finish` is to follow at once."""
        if self._arrival is None:
            if len(piece) == self._total:
                self._data, self.is_whole = piece, True
                return
            self._data = memoryview(bytearray(self._total))
            self._arrival = Arrival([self._data], self._total)
        self._arrival.write(place, piece)
        self.is_whole = self._arrival.is_whole

    def finish(self) -> None:
        """Write the rows, which have come whole."""
        try:
            self._rows.unpack(self._block, self._data)
        except ValueError as error:
            raise FrameError(f"the rows of block {self._block}: {error}") from None
