"""The first message: whether all nodes run the same fit, with the same version of this package."""

import struct
from typing import NamedTuple

from esvi_shm.errors import PeerError
from esvi_shm.transports.protocol.frames import FrameError

DIGEST_BYTES = 32
_HEAD = struct.Struct(f"<I{DIGEST_BYTES}s")


class Hello(NamedTuple):
    """What a node is part of.

    Attributes
    ----------
    n_nodes : int
    digest : bytes
        Of all that must be the same on every node, 32 bytes.
    version : str
        Of this package.
    """

    n_nodes: int
    digest: bytes
    version: str

    def pack(self) -> bytes:
        """The body of a frame."""
        return _HEAD.pack(self.n_nodes, self.digest) + self.version.encode()[:100]


def unpack_hello(body: memoryview) -> Hello:
    """What another node says it is part of."""
    if not _HEAD.size < len(body) <= _HEAD.size + 100:
        raise FrameError(f"a hello cannot have {len(body)} bytes")
    n_nodes, digest = _HEAD.unpack_from(body)
    return Hello(n_nodes, digest, str(body[_HEAD.size :], "utf-8", "replace"))


def compare(hellos: dict[int, Hello], names: list[str]) -> None:
    """Raise PeerError for the first node that differs from rank 0."""
    first = hellos[0]
    for rank, hello in sorted(hellos.items()):
        for what, theirs, ours in (
            ("has esvi_shm", hello.version, first.version),
            ("counts the nodes as", hello.n_nodes, first.n_nodes),
            (
                "was started with other options or other words, digest",
                hello.digest.hex()[:16],
                first.digest.hex()[:16],
            ),
        ):
            if theirs != ours:
                raise PeerError(f"{names[rank]} {what} {theirs}, {names[0]} {ours}")
