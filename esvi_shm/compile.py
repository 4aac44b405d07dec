"""How every kernel is compiled.

`kernel` is `numba.njit` with the options that all kernels share, cached on disk in the folder
that `cache` gives. numba's own settings are changed only while our kernels are decorated, so other
numba code in the process keeps its cache where it was.

`holder` makes a class whose objects keep many arrays in compiled form, for kernels that are called
again and again with the same ones.
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core import caching, event
from numba.experimental import structref

from esvi_shm import cache
from esvi_shm.errors import InputError

if numba.config.DISABLE_JIT:
    # Interpreted, a kernel that reads and writes shared memory atomically cannot work at all.
    raise InputError("NUMBA_DISABLE_JIT is set, but kernels must be compiled: unset it")

#: What people are told when a kernel must be compiled.
COMPILING = "compiling kernels (once for each kind of fit; the first takes a minute or so)"
#: No inf/NaN assumptions: only what lets sums be reordered and multiply-adds be fused.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

CACHE_FOLDER = cache.open_folder()
_PACKAGE = Path(__file__).resolve().parent

if hasattr(caching, "UserProvidedCacheLocator") and hasattr(numba.config, "CACHE_LOCATOR_CLASSES"):

    class Locator(caching.UserProvidedCacheLocator):
        """Where numba keeps a kernel: by its place in the package, not by where that is installed.

        By itself numba goes by the path of the source, so that the same package in a new virtual
        environment would compile all kernels again. The folder is named by the sources already.
        """

        @classmethod
        def get_suitable_cache_subpath(cls, py_file: str) -> str:
            place = Path(py_file).resolve()
            if not place.is_relative_to(_PACKAGE):  # a family of somebody else
                return str(super().get_suitable_cache_subpath(py_file))
            parts = place.relative_to(_PACKAGE).parent.parts
            return ".".join((f"numba-{numba.__version__}", *parts))

        def get_source_stamp(self) -> Any:
            if Path(self._py_file).resolve().is_relative_to(_PACKAGE):
                return CACHE_FOLDER
            return super().get_source_stamp()

    _LOCATORS: str | None = f"{__name__}.{Locator.__name__}"
else:  # an older numba, which goes by paths alone
    _LOCATORS = None


@contextlib.contextmanager
def _cached_here() -> Iterator[None]:
    """Have numba keep what is decorated inside in our folder."""
    names = {"CACHE_DIR": CACHE_FOLDER}
    if _LOCATORS is not None:
        names["CACHE_LOCATOR_CLASSES"] = _LOCATORS
    before = {name: getattr(numba.config, name) for name in names}
    try:
        for name, value in names.items():
            setattr(numba.config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(numba.config, name, value)


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


def compiling_is_told(log: logging.Logger) -> contextlib.AbstractContextManager[None]:
    """Log, inside, that kernels are compiled, if they are."""
    return when_compiling(lambda: log.info(COMPILING))


def kernel(
    function: Callable[..., Any] | None = None, allocates: bool = False, **options: Any
) -> Any:
    """Compile a module-level function as a kernel: no GIL, numpy errors, cached on disk.

    A kernel borrows the arrays that it is given. Only where it makes arrays, or is handed what a
    `holder` made, it `allocates`, and numba counts the references to every array it names: each an
    atomic instruction, which waits for all stores before it. In the kernels of a visit that took
    two fifths of the time of a pass (NIPS, 64 topics). numba refuses to compile a kernel that
    allocates and does not say so ("NRT required but not enabled").
    """

    def decorate(function: Callable[..., Any]) -> Any:
        settings: dict[str, Any] = {
            "cache": True,
            "nogil": True,
            "error_model": "numpy",
            "_nrt": allocates,
            "fastmath": FASTMATH,
            **options,
        }
        with _cached_here():
            return numba.njit(**settings)(function)

    return decorate if function is None else decorate(function)


class Holder(structref.StructRefProxy):
    """What `holder` makes; its fields are there in compiled code."""


def holder(*fields: str) -> Callable[[type[Holder]], type[Holder]]:
    """Class decorator: what is put together once, field by field, and handed over as one argument.

    A call unpacks each array of its arguments: of sixty arrays that took 0.1 ms, where the caches
    were full of other things. Objects are made in a kernel that allocates, by their class, since
    numba would compile its constructor for Python anew in each process.

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
