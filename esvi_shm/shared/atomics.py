"""Atomic loads and stores of int64 words, for kernels.

Numba has no atomics for the CPU: a plain load in a loop that waits for another process is
hoisted out of the loop and never sees the change, and plain stores may be reordered. These
intrinsics emit LLVM's own atomic instructions with the order in their names. Each side of a
conversation names the other: an acquire is worth nothing without the release that it pairs with.

Only one-dimensional, C-contiguous int64 arrays are taken, checked when the kernel is compiled.
They must begin at a multiple of 8 bytes, which NumPy and `shared.table` see to: numba's type of
an array does not tell. The index is not checked, and a negative one does not count from the end.
Nothing here can be called outside a kernel, and nothing here waits.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

#: Bytes. LLVM requires natural alignment of an atomic access, and crashes on less.
ALIGNMENT = 8


def _check_array(verb: str, array: Any, writes: bool) -> None:
    """Refuse, at compile time, what is not a C-contiguous 1-D array of int64."""
    good = (
        isinstance(array, types.Array)
        and array.dtype == types.int64
        and array.ndim == 1
        and array.layout == "C"
    )
    if not good:
        raise TypingError(f"{verb}: array must be a C-contiguous, 1-D array of int64, got {array}")
    if writes and not array.mutable:
        raise TypingError(f"{verb}: array must be writable, got {array}")


def _check_integer(verb: str, parameter: str, value: Any) -> None:
    """Refuse, at compile time, what is not an integer (a float would be cut silently)."""
    if not isinstance(value, types.Integer):
        raise TypingError(f"{verb}: {parameter} must be an integer, got {value}")


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Emit the address of `array[index]`, unchecked."""
    data = context.make_array(array_type)(context, builder, array).data
    return cgutils.gep_inbounds(builder, data, index)


@intrinsic
def load_acquire(typing_context: Any, array: Any, index: Any) -> Any:
    """Load `array[index]` with acquire order.

    No later access of this thread moves before the load. It pairs with the `store_release` (or
    successful `compare_exchange`) that wrote the value: all that the writer did before its store
    is visible here after the load.

    Parameters
    ----------
    array : int64 array, shape (n,)
    index : integer, 0 <= index < n, not checked

    Returns
    -------
    int64

    Raises
    ------
    numba.core.errors.TypingError
        At compile time, for any other kind of array or index.

    Examples
    --------
    >>> import numba, numpy as np
    >>> @numba.njit
    ... def word(array):
    ...     return load_acquire(array, 1)
    >>> word(np.array([7, 8]))
    8
    """
    _check_array("load_acquire", array, writes=False)
    _check_integer("load_acquire", "index", index)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        return builder.load_atomic(pointer, "acquire", ALIGNMENT)

    return types.int64(array, types.intp), emit


@intrinsic
def store_release(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Store `value` into `array[index]` with release order.

    No earlier access of this thread moves after the store. It pairs with the `load_acquire` (or
    `compare_exchange`) that reads the value: whoever sees it also sees all that was written here
    before, to any array.

    Parameters
    ----------
    array : int64 array, shape (n,)
    index : integer, 0 <= index < n, not checked
    value : integer

    Raises
    ------
    numba.core.errors.TypingError
        At compile time, for any other kind of array, index or value, or a read-only array.

    Examples
    --------
    >>> import numba, numpy as np
    >>> @numba.njit
    ... def publish(array, value):
    ...     store_release(array, 0, value)
    >>> words = np.zeros(2, np.int64)
    >>> publish(words, -3)
    >>> words
    array([-3,  0])
    """
    _check_array("store_release", array, writes=True)
    _check_integer("store_release", "index", index)
    _check_integer("store_release", "value", value)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store_atomic(arguments[2], pointer, "release", ALIGNMENT)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), emit


@intrinsic
def fence(typing_context: Any) -> Any:
    """Order all earlier accesses of this thread before all later ones (sequential consistency).

    It is the only one of the four that keeps a store before a later load of another word, and
    pairs with a `fence` of the other side: of two threads that each store, fence, and load the
    other's word, at least one sees the other's store.

    Examples
    --------
    >>> import numba
    >>> @numba.njit
    ... def settle():
    ...     fence()
    >>> settle()
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def compare_exchange(
    typing_context: Any, array: Any, index: Any, expected: Any, desired: Any
) -> Any:
    """Store `desired` into `array[index]` if it holds `expected`; say whether it did.

    One indivisible step. On success it is an acquire and a release (it pairs with every
    `load_acquire`, `store_release` and `compare_exchange` of the word); on failure an acquire.
    It does not fail spuriously.

    Parameters
    ----------
    array : int64 array, shape (n,)
    index : integer, 0 <= index < n, not checked
    expected, desired : integer

    Returns
    -------
    bool

    Raises
    ------
    numba.core.errors.TypingError
        At compile time, for any other kind of array, index or value, or a read-only array.

    Examples
    --------
    >>> import numba, numpy as np
    >>> @numba.njit
    ... def claim(array, me):
    ...     return compare_exchange(array, 0, -1, me)
    >>> words = np.array([-1])
    >>> claim(words, 5), claim(words, 6), int(words[0])
    (True, False, 5)
    """
    _check_array("compare_exchange", array, writes=True)
    _check_integer("compare_exchange", "index", index)
    _check_integer("compare_exchange", "expected", expected)
    _check_integer("compare_exchange", "desired", desired)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        result = builder.cmpxchg(pointer, arguments[2], arguments[3], "acq_rel", "acquire")
        return builder.extract_value(result, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), emit
