"""Blocks that leave home and come back, and commands, through home's rings.

On one node a block leaves with the number of passes it is to make. On several it leaves for a
pass at this node, and when it is back, home's peers send it on; see `peers`.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from esvi_shm.runtime import blocks
from esvi_shm.runtime.blocks import (
    ONE_PASS,
    PLACE,
    RECALL,
    RELEASING,
    STEP,
    TARGET_PASS,
    Control,
)
from esvi_shm.runtime.nodes import Nodes
from esvi_shm.runtime.peers import RECALL as RECALLED
from esvi_shm.runtime.peers import REST, Event
from esvi_shm.runtime.routes import Route
from esvi_shm.shared.ring import EMPTY, pop_any, try_push

#: Seconds between two looks at what else there is, on several nodes, while blocks come and go.
LOOK = 0.05
#: Called with whether blocks are out: sleeps until something happens, and returns whether they
#: should be recalled.
Look = Callable[[bool], bool]


class Traffic:
    """What goes out from home, and comes home.

    Parameters
    ----------
    control : mapping of arrays
        See `blocks`; all blocks are home.
    route : Route
    stops : list of int arrays
        For each block the workers that have work for it.
    nodes : Nodes or None
        The other nodes, where there are some.
    """

    def __init__(
        self,
        control: Mapping[str, np.ndarray],
        route: Route,
        stops: Sequence[np.ndarray],
        nodes: Nodes | None,
    ) -> None:
        self.control, self.route, self.stops = Control(**control), route, stops
        self.nodes = nodes
        self.rings, self.orders = control["rings"], control["orders"]
        self.block_words = control["blocks"]
        self.home = len(control["workers"])
        self.orders[ONE_PASS] = nodes is not None
        self.events: list[Event] = []  # what came from other nodes before its time
        self.turn = 0

    def release(self, target: int, look: Look) -> None:
        """Let all blocks make their passes up to `target`, and wait until they are home."""
        self.orders[TARGET_PASS] = target
        due = [
            b for b in range(len(self.stops))
            if self.block_words[b, STEP] < target * len(self.stops[b])
        ]  # fmt: skip
        # Nobody begins before all are out: the order of one worker's visits is not to depend on
        # how fast home is.
        self.orders[RELEASING] = 1
        try:
            for b in due:
                self._let_go(b)
        finally:
            self.orders[RELEASING] = 0
        for _ in due:
            while self._pop() is None:
                if look(True):
                    self.orders[RECALL] = 1
        if (self.block_words[:, PLACE] != self.home).any():
            raise RuntimeError("a block is not home although all came home")

    def release_everywhere(self, n_passes: int, look: Look) -> None:
        """The same for `n_passes` more passes over all nodes, of which each releases its own."""
        assert self.nodes is not None
        peers, asked, looked = self.nodes.peers, False, time.monotonic()
        peers.release(n_passes)
        while True:
            events, self.events = [*self.events, *peers.poll(0.0)], []
            for kind, block in events:
                if kind == RECALLED:
                    self.orders[RECALL] = 1
                elif kind == REST:
                    self.nodes.settle()
                    return
                elif len(self.stops[block]):
                    self._let_go(block)
                else:
                    peers.visited(block)
            came = self._pop()
            if came is not None:
                self.block_words[came, PLACE] = self.nodes.away
                peers.visited(came)
            # Now and then though there is always something to do.
            if (came is None and not events) or time.monotonic() - looked > LOOK:
                if look(True) and not asked:
                    peers.recall()
                    asked = True
                looked = time.monotonic()

    def _let_go(self, block: int) -> None:
        step = int(self.block_words[block, STEP])
        following = self.route.next_stop(block, step, self.control)
        self.block_words[block, PLACE] = following
        # The release in the push publishes the orders, and all that was written at rest.
        try_push(self.rings[following, self.home], block)

    def command(self, index: int, is_tour: bool, look: Look) -> None:
        """Give a command to all workers and wait for all answers.

        Parameters
        ----------
        index : int
            In the family's commands.
        is_tour : bool
            Whether it has to be given for the blocks of all nodes: they go round.
        look : Look
        """
        nodes = self.nodes if is_tour else None
        for _ in range(1 if nodes is None else nodes.peers.n_nodes):
            self._send_all(1 + index)
            for _ in range(self.home):
                while self._pop() is None:
                    look(False)
                    if self.nodes is not None:  # the others hear from this node meanwhile
                        self.events += self.nodes.peers.poll(0.0)
            if nodes is not None:
                nodes.rotate()

    def stop(self) -> None:
        """Tell the workers to end.

        Not answered: a worker that has ended before another answers would look dead.
        """
        self._send_all(blocks.STOP)

    def _send_all(self, index: int) -> None:
        for p in range(self.home):
            try_push(self.rings[p, self.home], blocks.command_id(index))

    def _pop(self) -> int | None:
        """What has come home, if anything has: a block, or the answer to a command."""
        source, value = pop_any(self.rings[self.home], self.turn, 1)
        if value == EMPTY:
            return None
        self.turn = (source + 1) % (self.home + 1)
        return int(value)
