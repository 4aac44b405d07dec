"""How two nodes that have a connection make sure who the other is, before any frame.

    node i (connects)                            node j (listens)
    who, nodes, i, j, nonce of i  ------------->
                    <------------- nonce of j, proof of j
    proof of i, or that j has given none  ----->
                    <------------- welcome, or why not

A proof is HMAC-SHA256 with the key that all nodes have over role, number of nodes, both ranks and
both nonces: it cannot be played again, nor turned round. The keys of the frames come from the
same, one for each direction. Without a key the proofs show only that both belong to this protocol.

The lengths are fixed, so whoever listens reads at most `LONGEST` bytes of a stranger.
"""

import hmac
import struct

from esvi_shm.errors import PeerError
from esvi_shm.transports.protocol.frames import FrameError

_FIRST = struct.Struct("<8sIII32s")  # who, number of nodes, rank here, rank there, nonce
WHO = b"ESVI-n01"
NONCE_BYTES = PROOF_BYTES = 32
LONGEST = 256

#: What a node that connects says in place of its proof, where the other's was none.
REFUSED = bytes(PROOF_BYTES)
#: What a node that listens answers in the end.
WELCOME, TWICE, OTHER_NODES = b"\0", b"\1", b"\2"


class _Session:
    """What both know after the nonces."""

    def __init__(self, key: bytes | None, n_nodes: int, i: int, j: int, nonces: bytes) -> None:
        self._key = key or b"no key"
        self._said = struct.pack("<III", n_nodes, i, j) + nonces

    def mac(self, label: bytes) -> bytes:
        return hmac.digest(self._key, label + b"\0" + self._said, "sha256")

    def frame_keys(self) -> tuple[bytes, bytes]:
        """Keys of the frames of the node that connects, and of the one that listens."""
        return self.mac(b"frames of i"), self.mac(b"frames of j")


class Caller:
    """The side that connects; sans I/O: `feed` takes what has come, and says what to send."""

    def __init__(self, key: bytes | None, n_nodes: int, rank: int, peer: int, nonce: bytes) -> None:
        self._key, self._n_nodes, self._rank, self.peer = key, n_nodes, rank, peer
        self._nonce, self._came = nonce, b""
        self._session: _Session | None = None
        self.first = _FIRST.pack(WHO, n_nodes, rank, peer, nonce)
        self.keys: tuple[bytes, bytes] | None = None  # of what this node sends, and receives

    @property
    def wanted(self) -> int:
        """Bytes that are still to come."""
        return (1 if self._session else NONCE_BYTES + PROOF_BYTES) - len(self._came)

    def feed(self, data: bytes) -> bytes:
        """Take at most `wanted` bytes.

        Raises
        ------
        PeerError
            If the other has not the key, or wants no such node.
        """
        self._came += data
        if self.wanted:
            return b""
        came, self._came = self._came, b""
        if self._session is None:
            nonces = self._nonce + came[:NONCE_BYTES]
            session = _Session(self._key, self._n_nodes, self._rank, self.peer, nonces)
            if not hmac.compare_digest(session.mac(b"I am j"), came[NONCE_BYTES:]):
                raise PeerError("has another key, other nodes, or is another program")
            self._session = session
            return session.mac(b"I am i")
        if came == TWICE:
            raise PeerError(f"has a node {self._rank} already: two were given the same rank")
        if came != WELCOME:
            raise PeerError("was started with other nodes or another rank")
        self.keys = self._session.frame_keys()
        return b""


class Listener:
    """The side that listens, for one connection.

    Attributes
    ----------
    peer : int
        Who it is, once `is_proven`.
    keys : tuple of bytes
        Of what this node sends, and receives.
    """

    def __init__(self, key: bytes | None, n_nodes: int, rank: int, nonce: bytes) -> None:
        self._key, self._n_nodes, self._rank, self._nonce = key, n_nodes, rank, nonce
        self._came = b""
        self._session: _Session | None = None
        self.peer, self.is_proven, self.has_other_nodes = -1, False, False
        self.keys: tuple[bytes, bytes] = (b"", b"")

    @property
    def wanted(self) -> int:
        """Bytes that are still to come."""
        return (PROOF_BYTES if self._session else _FIRST.size) - len(self._came)

    def feed(self, data: bytes) -> bytes:
        """Take at most `wanted` bytes, and return what to send.

        Raises
        ------
        FrameError
            If it is a stranger.
        """
        self._came += data
        if self.wanted or self.is_proven:
            return b""
        came, self._came = self._came, b""
        if self._session is None:
            who, n_nodes, peer, rank, nonce = _FIRST.unpack(came)
            if who != WHO:
                raise FrameError(f"a greeting must begin with {WHO!r}, got {who!r}")
            self.peer = peer
            self.has_other_nodes = (n_nodes, rank) != (self._n_nodes, self._rank) or not (
                self._rank < peer < n_nodes
            )
            session = _Session(self._key, n_nodes, peer, rank, nonce + self._nonce)
            self._session = session
            return self._nonce + session.mac(b"I am j")
        if not hmac.compare_digest(self._session.mac(b"I am i"), came):
            raise FrameError("it has another key")
        self.is_proven = True
        theirs, ours = self._session.frame_keys()
        self.keys = ours, theirs
        return b""
