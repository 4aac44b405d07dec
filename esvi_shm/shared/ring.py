"""A lock-free ring of int64 ids from one process to one other.

Exactly one process pushes (the producer) and exactly one pops (the consumer); the ring lies in
int64 words that both map. Three lines of 128 bytes (two cache lines: processors fetch them in
pairs) keep the two sides from invalidating each other's line at every step:

    producer's line   tail  = ids ever pushed | the head as the producer last saw it | mask
    consumer's line   head  = ids ever popped | the tail as the consumer last saw it | mask
    slots             id number n lies in slot n & mask

A side reads the other's index only when its own copy says full (or empty), so most pushes and
pops touch no line that the other side is writing, apart from the slots.

Memory order. Each index has one writer, which reads its own with a plain load.

1. The producer writes the slot, then the tail with `store_release`; the consumer reads the tail
   with `load_acquire`, then the slot. Whoever sees tail > n therefore sees id n in its slot, and
   **everything else that the producer wrote before the push**: the rows of a block are published
   by pushing its id, and need no atomics of their own.
2. The consumer reads the slot, then writes the head with `store_release`; the producer reads the
   head with `load_acquire`, then overwrites the slot. So no id is overwritten before it is read,
   and everything that the consumer read before the pop is over.

An old copy of the other's index is only ever too small, which makes a ring look fuller to its
producer and emptier to its consumer than it is: never wrong, at worst one more look. For the
same reason a side that dies leaves a valid ring: an id is in it if and only if the tail says so.

The counters never go back; they are 64-bit words that wrap, and only differences modulo 2^64
count. They are subtracted as uint64: numba tells LLVM that signed overflow cannot happen.

Nothing here waits, allocates, or looks at the ids.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.errors import ParameterError
from esvi_shm.shared.atomics import load_acquire, store_release

#: What `try_pop` returns when there is nothing. Every other int64 is a legal id.
EMPTY = -(2**63)

#: int64 words in a line of 128 bytes.
LINE_WORDS = 16

_TAIL, _HEAD_SEEN, _PRODUCER_MASK = 0, 1, 2
_HEAD, _TAIL_SEEN, _CONSUMER_MASK = LINE_WORDS, LINE_WORDS + 1, LINE_WORDS + 2
_SLOTS = 2 * LINE_WORDS


def _slots_for(capacity: int) -> int:
    """Return the smallest power of two that is at least `capacity`."""
    if capacity < 1:
        raise ParameterError("capacity", "must be at least 1", capacity)
    return 1 << (capacity - 1).bit_length()


def ring_words(capacity: int) -> int:
    """Return how many int64 words a ring of at least `capacity` ids takes.

    A multiple of a line, so that each row of a `(n, ring_words(capacity))` array begins on its
    own line where the array does.

    Raises
    ------
    ParameterError
        If `capacity` is less than 1.

    Examples
    --------
    >>> ring_words(1), ring_words(100)
    (48, 160)
    """
    return _SLOTS + max(_slots_for(capacity), LINE_WORDS)


def initialise(ring: np.ndarray, capacity: int, start: int = 0) -> None:
    """Make `ring` an empty ring of at least `capacity` ids, before either side uses it.

    Parameters
    ----------
    ring : int64 array, shape (>= ring_words(capacity),), C-contiguous, writable
        Best on a boundary of 128 bytes, as `shared.table` places it.
    capacity : int
        Rounded up to a power of two.
    start : int
        Where both counters begin, modulo 2^64: for tests of the wrap.

    Raises
    ------
    ParameterError
        If the array is of another kind or too short, or `capacity` is less than 1.

    Examples
    --------
    >>> ring = np.empty(ring_words(2), np.int64)
    >>> initialise(ring, 2)
    >>> try_push(ring, 10), try_push(ring, -20), try_push(ring, 30)
    (True, True, False)
    >>> try_pop(ring), try_pop(ring), try_pop(ring) == EMPTY
    (10, -20, True)
    """
    kind_is_right = ring.dtype == np.int64 and ring.ndim == 1
    if not (kind_is_right and ring.flags.carray):  # carray: C-contiguous, aligned, writable
        raise ParameterError(
            "ring",
            "must be a writable, C-contiguous, 1-D array of int64",
            f"{ring.dtype} {ring.shape}",
        )
    if ring.size < ring_words(capacity):
        raise ParameterError("ring", f"must have {ring_words(capacity)} words", ring.size)
    word = (start + 2**63) % 2**64 - 2**63
    ring[:] = 0
    ring[[_TAIL, _HEAD_SEEN, _HEAD, _TAIL_SEEN]] = word
    ring[[_PRODUCER_MASK, _CONSUMER_MASK]] = _slots_for(capacity) - 1


@kernel
def _distance(later, earlier):
    """later - earlier modulo 2^64."""
    return np.uint64(later) - np.uint64(earlier)


@kernel
def _slot(counter, mask):
    """The word of the slot of id number `counter`."""
    return np.uint64(_SLOTS) + (np.uint64(counter) & np.uint64(mask))


@kernel
def _next(counter):
    """counter + 1 modulo 2^64."""
    return np.int64(np.uint64(counter) + np.uint64(1))


@kernel
def try_push(ring, value):
    """Push `value` if there is room; say whether it was pushed. Only the producer calls it.

    All that the caller wrote before is visible to whoever pops `value`.

    Parameters
    ----------
    ring : int64 array, shape (n,), initialised
    value : int64, not EMPTY

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        If `value` is EMPTY: the consumer could not tell it from an empty ring.
    """
    if value == EMPTY:
        raise ValueError("EMPTY cannot be pushed")
    tail = ring[_TAIL]
    mask = ring[_PRODUCER_MASK]
    if _distance(tail, ring[_HEAD_SEEN]) > np.uint64(mask):
        # Pairs with the release in try_pop: the slots below this head have been read.
        ring[_HEAD_SEEN] = load_acquire(ring, _HEAD)
        if _distance(tail, ring[_HEAD_SEEN]) > np.uint64(mask):
            return False
    ring[_slot(tail, mask)] = value
    # Pairs with the acquire in try_pop: publishes the slot and all that was written before.
    store_release(ring, _TAIL, _next(tail))
    return True


@kernel
def try_pop(ring):
    """Pop the oldest id, or return EMPTY. Only the consumer calls it.

    All that the producer wrote before it pushed the id is visible to the caller.

    Parameters
    ----------
    ring : int64 array, shape (n,), initialised

    Returns
    -------
    int64
    """
    head = ring[_HEAD]
    if head == ring[_TAIL_SEEN]:
        # Pairs with the release in try_push: the slots below this tail have been written.
        ring[_TAIL_SEEN] = load_acquire(ring, _TAIL)
        if head == ring[_TAIL_SEEN]:
            return EMPTY
    value = ring[_slot(head, ring[_CONSUMER_MASK])]
    # Pairs with the acquire in try_push: the slot has been read and may be written again.
    store_release(ring, _HEAD, _next(head))
    return value


@kernel
def size_guess(ring):
    """How many ids are in the ring, give or take what the two sides do meanwhile.

    Anyone may call it. Exact when both sides rest; never below 0 nor above the capacity.

    Parameters
    ----------
    ring : int64 array, shape (n,), initialised

    Returns
    -------
    int64
    """
    # Pair with the releases of try_pop and try_push. The head first: it only grows, so that
    # tail - head cannot be negative, but may be too large.
    head = load_acquire(ring, _HEAD)
    tail = load_acquire(ring, _TAIL)
    return np.int64(min(_distance(tail, head), np.uint64(ring[_CONSUMER_MASK]) + np.uint64(1)))


@kernel
def pop_any(rings, first, spins):
    """Pop from the first ring that has an id, looking at each in turn from `first` on.

    One compiled call for a whole poll. It gives up after `spins` rounds, because no signal is
    handled inside a compiled loop and the other side may need this very core to go on.

    Parameters
    ----------
    rings : int64 array, shape (R, n), C-contiguous
        One initialised ring a row; the caller is the consumer of all.
    first : int64, 0 <= first < R
        Where to begin; one more than the last index returned is fair to all.
    spins : int64
        Rounds over all rings.

    Returns
    -------
    (index, id) : int64, int64
        (-1, EMPTY) if there was none.

    Examples
    --------
    >>> rings = np.empty((3, ring_words(4)), np.int64)
    >>> for ring in rings:
    ...     initialise(ring, 4)
    >>> try_push(rings[1], 11)
    True
    >>> pop_any(rings, 2, 10)
    (1, 11)
    >>> pop_any(rings, 2, 10) == (-1, EMPTY)
    True
    """
    n_rings = rings.shape[0]
    for _ in range(spins):
        for step in range(n_rings):
            index = first + step
            if index >= n_rings:
                index -= n_rings
            value = try_pop(rings[index])
            if value != EMPTY:
                return index, value
    return -1, EMPTY


def contents(ring: np.ndarray) -> np.ndarray:
    """Return the ids in the ring, oldest first, without popping them.

    Only for a ring at rest, such as a dead process's after it has been reaped: while a side is
    at work, what is returned may never have been in the ring together.

    Parameters
    ----------
    ring : int64 array, shape (n,), initialised

    Returns
    -------
    int64 array, shape (size_guess(ring),)

    Examples
    --------
    >>> ring = np.empty(ring_words(4), np.int64)
    >>> initialise(ring, 4)
    >>> try_push(ring, 8), try_push(ring, 9)
    (True, True)
    >>> contents(ring)
    array([8, 9])
    """
    order = (int(ring[_HEAD]) + np.arange(size_guess(ring))) & int(ring[_CONSUMER_MASK])
    return ring[_SLOTS + order]
