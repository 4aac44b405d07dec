"""How a family's script is played: the same for workers of every kind. See `families.contract`."""

from collections.abc import Callable, Generator
from typing import Any


def play(
    script: Generator[str | int, Any, Any],
    command: Callable[[str], None],
    run_on_trial: Callable[[int], bool],
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
    answer = None
    while True:
        try:
            order = script.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = True
        if isinstance(order, int):
            answer = run_on_trial(order)
        else:
            command(order)
