"""The errors a user can meet.

Every message names the parameter or the file and line, the rule, and the value that broke it.
`exit_code` is what the `python -m esvi_shm.X` commands end with.
"""

from collections.abc import Callable
from typing import Any


class EsviError(Exception):
    """Base of all errors raised on purpose by this package.

    They come out of another process as they went in: joblib sends them.
    """

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(
    kind: type[EsviError], arguments: tuple[Any, ...], held: dict[str, Any]
) -> EsviError:
    """An error with its message and what it holds, without its constructor."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(held)
    return error


class InputError(EsviError, ValueError):
    """Something the user gave is not usable; nothing has been allocated or written."""

    exit_code = 2


class ParameterError(InputError):
    """A parameter is out of its range; `others` are those that the rule names, by %s.

    >>> raise ParameterError("alpha", "must be greater than 0", -1.0)
    Traceback (most recent call last):
    esvi_shm.errors.ParameterError: alpha must be greater than 0, got -1.0
    """

    def __init__(self, name: str, rule: str, value: object, *others: str) -> None:
        shape = getattr(value, "shape", ())  # the numbers of an array would take many lines
        said = rule % others if others else rule
        super().__init__(f"{name} {said}, got {f'shape {shape}' if shape else repr(value)}")
        self.name, self.rule, self.value, self.others = name, rule, value, others

    def renamed(self, call: Callable[[str], str]) -> "ParameterError":
        """The same error, with parameters called as where they were given."""
        return ParameterError(call(self.name), self.rule, self.value, *map(call, self.others))


class ParameterName(str):
    """A parameter in the arguments of a log message, which a command calls by its option.

    >>> "%s has no effect" % ParameterName("n_topics")
    'n_topics has no effect'
    """


class CorpusError(InputError):
    """A corpus file, folder or matrix is not what its format says."""

    def __init__(self, source: object, message: str, line: int | None = None) -> None:
        where = f"{source}, line {line}" if line is not None else f"{source}"
        super().__init__(f"{where}: {message}")
        self.line = line


class ModelError(InputError):
    """A model directory is missing, damaged, or in the way."""


class MemoryShortError(InputError):
    """The arrays of the fit do not fit in the memory that is free."""


class WorkerError(EsviError):
    """A worker process died or failed; the message says which, how, and why that is likely."""


class PeerError(EsviError):
    """Another node of the fit died, failed or does not belong to it; the message says which."""


class BoundError(EsviError):
    """The bound of a fit is no number; what was saved on the way stays."""


class Interrupted(EsviError):
    """The user asked twice to stop: the fit was aborted and nothing was saved."""

    exit_code = 130
