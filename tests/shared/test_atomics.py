"""The atomics refuse what they cannot do, and are atomic and ordered between threads."""

import re
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from esvi_shm.shared.atomics import compare_exchange, fence, load_acquire, store_release

PATIENCE = 2**31  # spins before a wait gives up: seconds, so that a failure is not a hang


@numba.njit
def load(array, index):
    return load_acquire(array, index)


@numba.njit
def store(array, index, value):
    store_release(array, index, value)


@numba.njit
def exchange(array, index, expected, desired):
    return compare_exchange(array, index, expected, desired)


def readonly() -> np.ndarray:
    array = np.zeros(4, np.int64)
    array.flags.writeable = False
    return array


WRONG = {
    "float64": np.zeros(4),
    "int32": np.zeros(4, np.int32),
    "uint64": np.zeros(4, np.uint64),
    "two axes": np.zeros((2, 2), np.int64),
    "strided": np.zeros(8, np.int64)[::2],
    "field of a record": np.zeros(4, [("a", "i1"), ("b", "i8")])["b"],
    "not an array": 3,
}


@pytest.mark.parametrize("array", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("call", [lambda a: load(a, 0), lambda a: store(a, 0, 1),
                                  lambda a: exchange(a, 0, 0, 1)],
                         ids=["load", "store", "exchange"])  # fmt: skip
def test_other_arrays_are_refused_at_compile_time(call, array) -> None:
    with pytest.raises(TypingError, match="must be a C-contiguous, 1-D array of int64"):
        call(array)


@pytest.mark.parametrize("call", [lambda a: store(a, 0, 1), lambda a: exchange(a, 0, 0, 1)])
def test_a_readonly_array_is_refused_by_writers(call) -> None:
    with pytest.raises(TypingError, match="must be writable"):
        call(readonly())
    assert load(readonly(), 0) == 0


@pytest.mark.parametrize(
    ("parameter", "call"),
    [
        ("index", lambda a: load(a, 0.0)),
        ("index", lambda a: store(a, 0.0, 1)),
        ("value", lambda a: store(a, 0, 1.5)),
        ("expected", lambda a: exchange(a, 0, 0.5, 1)),
        ("desired", lambda a: exchange(a, 0, 0, 1.5)),
    ],
)
def test_floats_are_refused_at_compile_time(parameter, call) -> None:
    with pytest.raises(TypingError, match=f"{parameter} must be an integer"):
        call(np.zeros(4, np.int64))


def test_values_of_64_bits_pass_whole() -> None:
    words = np.zeros(3, np.int64)
    for value in (-(2**63), 2**63 - 1, -1, 2**32 + 1):
        store(words, 1, value)
        assert load(words, 1) == value == words[1]
    assert words[0] == words[2] == 0


def test_exchange_happens_only_on_the_expected_value() -> None:
    words = np.array([1, 5, 1])
    assert not exchange(words, 1, 4, 9)
    assert words.tolist() == [1, 5, 1]
    assert exchange(words, 1, 5, -9)
    assert words.tolist() == [1, -9, 1]


@pytest.mark.parametrize(
    ("function", "arguments", "instruction"),
    [
        (load, (np.zeros(1, np.int64), 0), r"load atomic i64, .* acquire, align 8"),
        (store, (np.zeros(1, np.int64), 0, 1), r"store atomic i64 .* release, align 8"),
        (exchange, (np.zeros(1, np.int64), 0, 0, 1), r"cmpxchg .* acq_rel acquire, align 8"),
    ],
)
def test_the_instruction_is_atomic_and_ordered(function, arguments, instruction) -> None:
    function(*arguments)
    code = "\n".join(function.inspect_llvm().values())
    assert re.search(instruction, code)


@numba.njit(nogil=True)
def wait(words, spins):
    """Say that we wait, then wait for words[1]; 0 if it never came."""
    store_release(words, 0, 1)
    for _ in range(spins):
        value = load_acquire(words, 1)  # pairs with store() in the test
        if value != 0:
            return value
    return 0


def test_a_load_in_a_loop_sees_what_another_thread_stores() -> None:
    words = np.zeros(2, np.int64)
    wait(np.ones(2, np.int64), 1)  # compile
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(wait, words, PATIENCE)
        while load(words, 0) == 0 and not answer.done():
            pass
        store(words, 1, 42)
        assert answer.result() == 42


@numba.njit(nogil=True)
def count(words, n):
    """Add 1 to words[0] n times; return how often the other side came between."""
    lost = 0
    for _ in range(n):
        while True:
            seen = load_acquire(words, 0)
            if compare_exchange(words, 0, seen, seen + 1):
                break
            lost += 1
    return lost


def test_no_exchange_is_lost_between_threads() -> None:
    count(np.zeros(1, np.int64), 1)
    words = np.zeros(1, np.int64)
    n = 500_000
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(count, [words, words], [n, n]))
    assert words[0] == 2 * n


@numba.njit(nogil=True)
def store_then_look(rounds, flags, seen, me, patience):
    """In each round, with the other side: raise my flag, fence, look at the other's."""
    other = 1 - me
    for n in range(seen.shape[1]):
        store_release(rounds, 16 * me, n + 1)
        spins = 0
        while load_acquire(rounds, 16 * other) <= n:
            spins += 1
            if spins > patience:
                return False
        store_release(flags, 32 * n + 16 * me, 1)
        fence()
        seen[me, n] = load_acquire(flags, 32 * n + 16 * other)
    return True


def test_the_fence_keeps_a_store_before_a_later_load() -> None:
    """Without it both sides may miss the other's flag, on x86 too."""
    n = 20_000
    rounds, flags = np.zeros(32, np.int64), np.zeros(32 * n, np.int64)
    seen = np.zeros((2, n), np.int64)
    store_then_look(np.ones(32, np.int64), flags[:32], seen[:, :1].copy(), 0, PATIENCE)
    flags[:] = 0
    with ThreadPoolExecutor(2) as pool:
        sides = [pool.submit(store_then_look, rounds, flags, seen, me, PATIENCE) for me in (0, 1)]
        assert all(side.result() for side in sides)
    assert not np.any((seen[0] == 0) & (seen[1] == 0))
