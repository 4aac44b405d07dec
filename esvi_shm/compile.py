"""How every kernel is compiled.

`kernel` is `numba.njit` with the options that all kernels share, cached on disk in the folder
that `cache` gives. numba's own setting is changed only while our kernels are decorated, so other
numba code in the process keeps its cache where it was.

`holder` makes a class whose objects keep many arrays in compiled form, for kernels that are called
again and again with the same ones.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba import types
from numba.core import event
from numba.experimental import structref

from esvi_shm import cache
from esvi_shm.errors import InputError

if numba.config.DISABLE_JIT:
    # Interpreted, a kernel that reads and writes shared memory atomically cannot work at all.
    raise InputError("NUMBA_DISABLE_JIT is set, but kernels must be compiled: unset it")

#: No inf/NaN assumptions: only what lets sums be reordered and multiply-adds be fused.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

CACHE_FOLDER = cache.open_folder()


class _First(event.Listener):
    """Calls `tell` at the first kernel that is compiled."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: Any) -> None:
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell()

    def on_end(self, event: Any) -> None:
        pass


@contextlib.contextmanager
def when_compiling(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once inside, when a kernel must be compiled because no cache has it."""
    with event.install_listener("numba:compile", _First(tell)):
        yield


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a module-level function as a kernel: no GIL, numpy errors, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        settings: dict[str, Any] = {
            "cache": True,
            "nogil": True,
            "error_model": "numpy",
            "fastmath": FASTMATH,
            **options,
        }
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = CACHE_FOLDER
        try:
            return numba.njit(**settings)(function)
        finally:
            numba.config.CACHE_DIR = before

    return decorate if function is None else decorate(function)


class Holder(structref.StructRefProxy):
    """What `holder` makes; its fields are there in compiled code."""


def holder(*fields: str) -> Callable[[type[Holder]], type[Holder]]:
    """Class decorator: what is put together once, field by field, and handed over as one argument.

    A call unpacks each array of its arguments: of sixty arrays that took 0.1 ms, where the caches
    were full of other things. Objects are made in a kernel, by their class, since numba would
    compile its constructor for Python anew in each process.

    Examples
    --------
    >>> import numpy as np
    >>> @holder("x", "scale")
    ... class Scaled(Holder):
    ...     pass
    >>> @numba.njit
    ... def hold(x, scale):
    ...     return Scaled(x, scale)
    >>> @numba.njit
    ... def total(scaled):
    ...     return scaled.scale * scaled.x.sum()
    >>> total(hold(np.ones(3), 2.0))
    6.0
    """

    def decorate(cls: type[Holder]) -> type[Holder]:
        class Type(types.StructRef):
            def preprocess_fields(self, fields: Any) -> Any:
                return tuple((name, types.unliteral(kind)) for name, kind in fields)

        # Cached kernels name it by where it is found.
        Type.__module__, Type.__name__ = cls.__module__, f"{cls.__name__}Type"
        Type.__qualname__ = Type.__name__
        setattr(sys.modules[cls.__module__], Type.__name__, Type)
        structref.define_proxy(cls, structref.register(Type), list(fields))
        return cls

    return decorate
