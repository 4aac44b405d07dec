"""What each node contributes to the sums that all nodes need, by versions: the newest wins.

A node sends its share (`Rows.contribution`) along with every block, to all now and then, and in
three phases of a release:

    OPEN     before the first visit, to all: no visit begins until the shares of all are known
    LIVE     as they change
    FINAL    when no block is out, to all: no node is at rest until it has those of all

A share that comes late or twice is older than what is known, and changes nothing.
"""

import enum
import struct

import numpy as np

from esvi_shm.runtime.peers import Rows
from esvi_shm.transports.protocol.frames import FrameError, Kind
from esvi_shm.transports.protocol.outbox import Outbox
from esvi_shm.transports.protocol.pieces import Arrival, unpack_piece

_HEAD = struct.Struct("<QB")  # version, phase


class Phase(enum.IntEnum):
    """When in a release a share was sent."""

    LIVE = 0
    OPEN = 1
    FINAL = 2


_PHASES = frozenset(map(int, Phase))


class Shares:
    """The shares of all nodes, as this one knows them.

    Attributes
    ----------
    version : int
        Of this node's own share.
    versions : int array, shape (n_nodes,)
        Of those that are known.
    reached : list of dict
        By node: the last release in which its share of a phase is known.
    """

    def __init__(self, n_nodes: int, outbox: Outbox, rows: Rows) -> None:
        self._outbox, self._rows = outbox, rows
        self._own = np.array(rows.contribution(), np.float64).ravel()
        self.version = 0
        self.versions = np.zeros(n_nodes, np.int64)
        self._values = np.zeros((n_nodes, len(self._own)))
        self._told = np.zeros(n_nodes, np.int64)
        self.reached = [{phase: 0 for phase in Phase} for _ in range(n_nodes)]
        self._arriving: dict[int, tuple[int, np.ndarray, Arrival]] = {}
        self._announced: dict[Phase, tuple[int, int, np.ndarray]] = {}
        self._is_new = False

    def _look(self) -> None:
        """Note what this node's share is now; another value is another version."""
        now = np.array(self._rows.contribution(), np.float64).ravel()
        if not np.array_equal(now, self._own):
            self._own, self.version = now, self.version + 1

    def _send(self, to: int, phase: Phase, epoch: int, version: int, own: np.ndarray) -> None:
        head = _HEAD.pack(version, phase)
        self._outbox.send_long(to, Kind.SHARE, epoch, head, [own.data], -1)
        self._told[to] = max(self._told[to], version)

    def along(self, to: int, epoch: int) -> None:
        """Send the share to a node that does not have this version."""
        self._look()
        if self._told[to] < self.version:
            self._send(to, Phase.LIVE, epoch, self.version, self._own)

    def announce(self, phase: Phase, epoch: int) -> None:
        """Send the share to all, as that of a phase of a release."""
        self._look()
        self.version += 1
        self._announced[phase] = (epoch, self.version, self._own)
        for j in self._outbox.others:
            self._send(j, phase, epoch, self.version, self._own)

    def again(self, to: int) -> None:
        """Send what was announced once more, to a node that may have lost it."""
        for phase, announced in sorted(self._announced.items(), key=lambda item: item[1][1]):
            self._send(to, phase, *announced)

    def receive(self, source: int, epoch: int, body: memoryview) -> None:
        """A piece of another node's share."""
        (version, phase), total, place, piece = unpack_piece(_HEAD, body)
        if phase not in _PHASES:
            raise FrameError(f"the phase of a share must be known, got {phase}")
        if version <= self.versions[source]:
            return
        if len(piece) == total == self._own.nbytes:  # as it is mostly
            self._know(source, version, phase, epoch, np.frombuffer(piece).copy())
            return
        begun = self._arriving.get(source)
        if begun is None or begun[0] < version:
            values = np.zeros(len(self._own))
            begun = version, values, Arrival([values.data], total)
            self._arriving[source] = begun
        elif begun[0] > version:
            return
        begun[2].write(place, piece)
        if begun[2].is_whole:
            self._know(source, version, phase, epoch, begun[1])

    def _know(self, source: int, version: int, phase: int, epoch: int, values: np.ndarray) -> None:
        self._arriving.pop(source, None)
        self.versions[source], self._values[source] = version, values
        reached, of_phase = self.reached[source], Phase(phase)
        reached[of_phase] = max(reached[of_phase], epoch)
        self._is_new = True

    def all_reached(self, phase: Phase, epoch: int) -> bool:
        """Whether the shares of all others in a phase of a release are known."""
        return not self.missing(phase, epoch)

    def missing(self, phase: Phase, epoch: int) -> list[int]:
        """The nodes whose share in a phase of a release is not known."""
        return [j for j in self._outbox.others if self.reached[j][phase] < epoch]

    def apply(self) -> None:
        """Hand the sum of the others over, if it has changed."""
        if self._is_new:
            self._is_new = False
            # Summed anew, in the order of the ranks: nothing is added up twice.
            self._rows.set_others(self._values.sum(axis=0))
