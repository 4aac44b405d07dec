"""Frames: how messages lie in a stream of bytes, and how they are found in it again.

    magic  version  kind  length  epoch  sequence | MAC, where there is a key | body
    4s     u16      u16   u32     u32    u64      | 32 bytes                  | length bytes

All numbers are little-endian. The length is checked before anything is kept, so a reader never
holds more than one frame. The sequence counts the frames of a stream from 0: one that is lost,
repeated or moved is an error. The MAC is HMAC-SHA256 over header and body with the key of this
direction of this session, so neither can be changed, nor played again elsewhere.

Bodies are raw numbers, never pickle. Nothing here knows what a frame means.
"""

import enum
import hmac
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from esvi_shm.errors import PeerError

MAGIC = b"ESVI"
#: Of the wire; nodes also compare their packages' versions.
VERSION = 1
HEADER = struct.Struct("<4sHHIIQ")
MAC_BYTES = 32
#: Rows and other long things go in pieces of so many bytes, so that no frame holds up others for
#: long; rows of most blocks are one, which costs the least.
PIECE = 2**20
#: The longest body: a piece, and what says where it belongs.
MOST_BODY = PIECE + 2**12

Buffer = bytes | bytearray | memoryview


class FrameError(PeerError):
    """What came is no frame of this protocol."""


class Kind(enum.IntEnum):
    """What a frame says; each is explained where it is handled."""

    HELLO = 1
    BEAT = 2
    STATUS = 3
    SHARE = 4
    BLOCK = 5
    ACCEPTED = 6
    REFUSED = 7
    RECALL = 8
    DONE = 9
    PART = 10
    TURN = 11
    GRANT = 12
    ERROR = 13
    BYE = 14


_KINDS = frozenset(map(int, Kind))


class Frame(NamedTuple):
    """A frame that has come; the body may lie in a buffer that is used again."""

    kind: Kind
    epoch: int
    body: memoryview


class Writer:
    """Makes the frames of one direction of a stream.

    Parameters
    ----------
    key : bytes, optional
        Of this direction; None leaves the MAC out.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._mac = hmac.new(key, digestmod="sha256") if key else None
        self._sequence = 0

    def encode(self, kind: Kind, epoch: int, parts: Sequence[Buffer]) -> list[Buffer]:
        """The buffers of a frame, in order; the parts are not copied.

        Examples
        --------
        >>> frame = b"".join(Writer().encode(Kind.BEAT, 3, [b"ab", b"c"]))
        >>> [(f.kind.name, f.epoch, bytes(f.body)) for f in Reader().feed(frame)]
        [('BEAT', 3, b'abc')]
        """
        length = sum(len(part) for part in parts)
        assert length <= MOST_BODY
        header = HEADER.pack(MAGIC, VERSION, kind, length, epoch, self._sequence)
        self._sequence += 1
        if self._mac is None:
            return [header, *parts]
        mac = self._mac.copy()
        for part in (header, *parts):
            mac.update(part)
        return [header + mac.digest(), *parts]


class Reader:
    """Finds the frames in one direction of a stream, however it is cut.

    Parameters
    ----------
    key : bytes, optional
        As the writer's.
    most : int
        The longest body that is taken.
    """

    def __init__(self, key: bytes | None = None, most: int = MOST_BODY) -> None:
        self._mac = hmac.new(key, digestmod="sha256") if key else None
        self._most = most
        self._head = HEADER.size + (MAC_BYTES if key else 0)
        self._sequence = 0
        self._partial = bytearray()

    def feed(self, data: Buffer) -> Iterator[Frame]:
        """The frames that end in `data`; each is to be used before the next is asked for.

        Raises
        ------
        FrameError
        """
        rest = memoryview(data)
        while self._partial and rest:
            # A frame that began before: first its header, which says how much more belongs to it.
            need = self._head
            if len(self._partial) >= need:
                need += self._length(self._partial)
            taken = max(need - len(self._partial), 0)
            self._partial += rest[:taken]
            rest = rest[taken:]
            if len(self._partial) >= self._head:
                need = self._head + self._length(self._partial)
                if len(self._partial) == need:
                    whole, self._partial = self._partial, bytearray()
                    yield self._frame(memoryview(whole))
        while len(rest) >= self._head:
            need = self._head + self._length(rest)
            if len(rest) < need:
                break
            yield self._frame(rest[:need])
            rest = rest[need:]
        self._partial += rest

    def _length(self, data: Buffer) -> int:
        magic, version, kind, length, _, sequence = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise FrameError(f"a frame must begin with {MAGIC!r}, got {magic!r}")
        if version != VERSION:
            raise FrameError(f"frames must be of version {VERSION}, got {version}")
        if kind not in _KINDS:
            raise FrameError(f"the kind of a frame must be known, got {kind}")
        if length > self._most:
            raise FrameError(f"a frame must have at most {self._most} bytes, got {length}")
        if sequence != self._sequence:
            raise FrameError(f"frame {self._sequence} was due, got frame {sequence}")
        return length

    def _frame(self, data: memoryview) -> Frame:
        _, _, kind, _, epoch, _ = HEADER.unpack_from(data)
        body = data[self._head :]
        if self._mac is not None:
            mac = self._mac.copy()
            mac.update(data[: HEADER.size])
            mac.update(body)
            if not hmac.compare_digest(mac.digest(), data[HEADER.size : self._head]):
                raise FrameError("the MAC of a frame does not fit: another key, or changed bytes")
        self._sequence += 1
        return Frame(Kind(kind), epoch, body)
