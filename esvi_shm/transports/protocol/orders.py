"""Which node a block goes to next: in what order those are tried that it has yet to visit.

==========  =======================================================================
lap         a fresh random order by (seed, block, pass), in the last pass with the
            block's owner at the end, so that it needs no hop of its own to get home
balanced    the shortest known queue first; ties in the order of `lap`
==========  =======================================================================

The first that has room gets the block.
"""

import random
from collections.abc import Callable, Sequence

from esvi_shm.config import choose

ORDERS = ("lap", "balanced")


class Order:
    """The order of nodes for every block.

    Parameters
    ----------
    name : str
        One of ORDERS.
    seed : int
    n_nodes : int
    """

    def __init__(self, name: str, seed: int, n_nodes: int) -> None:
        self.name = choose("route", name, ORDERS)
        self._seed, self._n_nodes = seed, n_nodes

    def of(
        self,
        block: int,
        pass_: int,
        is_last: bool,
        unvisited: Sequence[int],
        queue: Callable[[int], int],
    ) -> list[int]:
        """The nodes of `unvisited`, the one to be tried first at the front.

        Examples
        --------
        >>> order = Order("lap", seed=1, n_nodes=4)
        >>> order.of(6, 0, True, [0, 1, 2], lambda j: 0)[-1]  # block 6 belongs to node 2
        2
        """
        # Of all nodes, so that the order of those left does not change from stop to stop.
        nodes = list(range(self._n_nodes))
        random.Random(f"{self._seed}/{block}/{pass_}").shuffle(nodes)
        left = set(unvisited)
        nodes = [j for j in nodes if j in left]
        if self.name == "balanced":
            nodes.sort(key=queue)
        if is_last:
            nodes.sort(key=lambda j: j == block % self._n_nodes)
        return nodes
