"""How a family's script is played: the same for workers of every kind. See `families.contract`."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from esvi_shm.families.contract import WholeRows


def play(
    script: Generator[Any, Any, Any],
    command: Callable[[str], None],
    run_on_trial: Callable[[int], bool],
    sum_over_nodes: Callable[[np.ndarray], None] = lambda array: None,
    whole_rows: Callable[[], dict[str, np.ndarray] | None] = dict,
) -> Any:
    """Do what a script yields, one after the other, and send back what came of it.

    Parameters
    ----------
    script : generator
        Of `Family.start`, `at_rest` or `evaluate`.
    command : callable
        Called with a name: has all workers run that command, and returns when they have.
    run_on_trial : callable
        Called with a number: makes so many passes that do not count; returns whether they were
        made whole.
    sum_over_nodes : callable
        Called with an array: replaces it by its sum over all nodes.
    whole_rows : callable
        See `families.contract.WholeRows`.

    Returns
    -------
    object
        What the script returns.

    Examples
    --------
    >>> def script():
    ...     yield "sum_words"
    ...     return "kept" if (yield 2) else "undone"
    >>> play(script(), print, lambda n_passes: n_passes > 1)
    sum_words
    'kept'
    """
    answer: Any = None
    while True:
        try:
            order = script.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = True
        if isinstance(order, int):
            answer = run_on_trial(order)
        elif isinstance(order, np.ndarray):
            sum_over_nodes(order)
        elif isinstance(order, WholeRows):
            answer = whole_rows()
        else:
            command(order)
