"""The ring against a deque, and between two real processes."""

import multiprocessing
import re
from collections import deque
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from esvi_shm.errors import ParameterError
from esvi_shm.shared.ring import (
    EMPTY,
    contents,
    initialise,
    pop_any,
    ring_words,
    size_guess,
    try_pop,
    try_push,
)
from esvi_shm.shared.segments import Run
from esvi_shm.shared.table import ArraySpec, Table
from tests.shared import ring_workers

CAPACITIES = [1, 2, 4, 1024]
STARTS = [0, 2**31 - 3, 2**32 - 3, 2**63 - 3, 2**64 - 3]
TIME_LIMIT = 240  # seconds before a two-process test is called hung


def new_ring(capacity: int, start: int = 0) -> np.ndarray:
    ring = np.full(ring_words(capacity), 77, np.int64)
    initialise(ring, capacity, start)
    return ring


@pytest.mark.parametrize("capacity", [1, 2, 3, 15, 16, 17, 1000])
def test_words_hold_whole_lines_and_the_capacity(capacity: int) -> None:
    words = ring_words(capacity)
    assert words % 16 == 0
    assert words >= 32 + capacity
    ring = new_ring(capacity)
    pushed = 0
    while try_push(ring, pushed):
        pushed += 1
    assert capacity <= pushed < 2 * capacity
    assert pushed & (pushed - 1) == 0
    assert contents(ring).tolist() == list(range(pushed))


@pytest.mark.parametrize("capacity", [1, 4, 16])
def test_a_ring_stays_within_its_words(capacity: int) -> None:
    words = ring_words(capacity)
    rings = np.full((3, words), 77, np.int64)
    initialise(rings[1], capacity, 2**63 - 2)
    for number in range(100):
        try_push(rings[1], number)
        if number % 3:
            try_pop(rings[1])
    assert np.all(rings[[0, 2]] == 77)


def test_indices_and_slots_are_on_lines_of_their_own() -> None:
    """Which words a push and a pop change, by 128-byte line."""
    ring = new_ring(16)
    before = ring.copy()
    try_push(ring, 5)
    assert set(np.flatnonzero(ring != before) // 16) == {0, 2}
    before = ring.copy()
    try_pop(ring)
    assert set(np.flatnonzero(ring != before) // 16) == {1}


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_capacity_below_one_is_refused(capacity: int) -> None:
    with pytest.raises(ParameterError, match="capacity must be at least 1"):
        ring_words(capacity)


@pytest.mark.parametrize(
    "ring",
    [
        np.zeros(48),
        np.zeros((1, 48), np.int64),
        np.zeros(96, np.int64)[::2],
        np.zeros(47, np.int64),
        np.frombuffer(bytearray(48 * 8 + 1), np.int64, 48, 1),
        np.frombuffer(bytes(48 * 8), np.int64),
    ],
    ids=["float64", "two axes", "strided", "short", "misaligned", "read-only"],
)
def test_other_arrays_are_refused(ring: np.ndarray) -> None:
    with pytest.raises(ParameterError, match="ring must"):
        initialise(ring, 4)


def test_empty_cannot_be_pushed() -> None:
    ring = new_ring(2)
    with pytest.raises(ValueError, match="EMPTY"):
        try_push(ring, EMPTY)
    assert size_guess(ring) == 0


def test_pop_any_is_fair_from_where_it_begins() -> None:
    rings = np.zeros((3, ring_words(2)), np.int64)
    for index, ring in enumerate(rings):
        initialise(ring, 2)
        assert try_push(ring, index)
        assert try_push(ring, 10 + index)
    popped = [pop_any(rings, first, 1) for first in (1, 2, 0, 2, 2, 2)]
    assert popped == [(1, 1), (2, 2), (0, 0), (2, 12), (0, 10), (1, 11)]
    assert pop_any(rings, 1, 1000) == (-1, EMPTY)
    assert pop_any(rings, 1, 0) == (-1, EMPTY)


class RingAgainstDeque(RuleBasedStateMachine):
    """Any order of pushes and pops does what a bounded deque does."""

    @initialize(capacity=st.integers(1, 9), start=st.sampled_from(STARTS), back=st.integers(0, 20))
    def make(self, capacity: int, start: int, back: int) -> None:
        self.model: deque[int] = deque()
        self.room = 1 << (capacity - 1).bit_length()
        self.rings = np.full((1, ring_words(capacity)), 77, np.int64)
        self.ring = self.rings[0]
        initialise(self.ring, capacity, start - back)

    @rule(value=st.integers(EMPTY + 1, 2**63 - 1))
    def push(self, value: int) -> None:
        pushed = len(self.model) < self.room
        if pushed:
            self.model.append(value)
        assert try_push(self.ring, value) == pushed

    @rule(n=st.integers(1, 12))
    def push_many(self, n: int) -> None:
        for value in range(n):
            self.push(value)

    @rule()
    def pop(self) -> None:
        assert try_pop(self.ring) == (self.model.popleft() if self.model else EMPTY)

    @rule()
    def pop_any_of_one(self) -> None:
        expected = (0, self.model.popleft()) if self.model else (-1, EMPTY)
        assert pop_any(self.rings, 0, 2) == expected

    @invariant()
    def same_contents(self) -> None:
        if hasattr(self, "ring"):
            assert size_guess(self.ring) == len(self.model)
            assert contents(self.ring).tolist() == list(self.model)


TestRingAgainstDeque = RingAgainstDeque.TestCase
TestRingAgainstDeque.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def code_of(function: Any, *signature: Any) -> list[str]:
    """The instructions of a kernel after optimisation, compiled here and not from a cache."""
    fresh = numba.njit(nogil=True, error_model="numpy")(function.py_func)
    fresh.compile(signature)
    code = next(iter(fresh.inspect_llvm().values()))
    return code[code.index("define ") :].split("\n}\n", 1)[0].splitlines()


def lines_of(function: Any, *signature: Any) -> list[str]:
    """Its accesses of 64-bit words."""
    code = code_of(function, *signature)
    return [line for line in code if re.search(r"(load|store) (atomic )?i64", line)]


WORDS = numba.types.Array(numba.int64, 1, "C")


def test_a_push_writes_the_slot_before_it_releases_the_tail() -> None:
    lines = lines_of(try_push, WORDS, numba.int64)
    stores = [line for line in lines if "store" in line]
    assert "store atomic" in stores[-1]
    assert "release" in stores[-1]
    assert "%arg.value" in stores[-2]
    assert sum("load atomic" in line and "acquire" in line for line in lines) == 1


def test_a_pop_reads_the_slot_before_it_releases_the_head() -> None:
    lines = lines_of(try_pop, WORDS)
    released = [n for n, line in enumerate(lines) if "store atomic" in line and "release" in line]
    assert len(released) == 1
    assert "load i64" in lines[released[0] - 1]
    assert sum("load atomic" in line and "acquire" in line for line in lines) == 1
    assert not any("load" in line for line in lines[released[0] :])


@pytest.mark.parametrize(
    ("function", "signature"), [(try_push, (WORDS, numba.int64)), (try_pop, (WORDS,))]
)
def test_the_counters_may_wrap(function: Any, signature: tuple[Any, ...]) -> None:
    """numba's signed arithmetic carries nsw: LLVM may then take it that nothing wraps."""
    sums = [line for line in code_of(function, *signature) if re.search(r"= (add|sub) ", line)]
    assert sums
    assert not any(" nsw " in line for line in sums)


def two_processes(first: Callable[..., None], second: Callable[..., None], *arguments: Any) -> Any:
    """Run both to their end; return what each sends. A side that hangs or dies is a failure."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for side in (first, second):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=side, args=(*arguments, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        answers = []
        for pipe in pipes:
            assert pipe.poll(TIME_LIMIT), "a side hangs"
            answers.append(pipe.recv())
        for process in processes:
            process.join(TIME_LIMIT)
        assert [process.exitcode for process in processes] == [0, 0]
        return answers
    finally:
        for process in processes:
            process.kill()
            process.join()


def stress(n_items: int) -> None:
    combinations = [(capacity, start) for capacity in CAPACITIES for start in STARTS]
    shape = (len(combinations), ring_words(max(CAPACITIES)))
    table = Table([ArraySpec("rings", shape, "int64", "both", "both", "a ring a row")])
    with Run() as run:
        segment = run.create("stress", table)
        rings = segment.arrays["rings"]
        for ring, (capacity, start) in zip(rings, combinations, strict=True):
            # The counters pass the point of wrapping in the middle of the run.
            initialise(ring, capacity, start - n_items // 2)
        answers = two_processes(
            ring_workers.push_all, ring_workers.pop_all, segment.handle, n_items
        )
        assert answers[0] == "pushed"
        wrong = {
            combination: answer
            for combination, answer in zip(combinations, answers[1], strict=True)
            if answer != (0, True)
        }
    assert wrong == {}


def test_two_processes_lose_nothing() -> None:
    stress(20_000)


@pytest.mark.slow
def test_two_processes_lose_nothing_for_long() -> None:
    stress(10_000_000)


def worker_0(handle: Any, stop: int, pipe: Any) -> None:
    ring_workers.pass_blocks(handle, 0, stop, pipe)


def worker_1(handle: Any, stop: int, pipe: Any) -> None:
    ring_workers.pass_blocks(handle, 1, stop, pipe)


def blocks_travel(stop: int, n_blocks: int = 4, n_words: int = 256) -> None:
    table = Table(
        [
            ArraySpec("rings", (2, ring_words(n_blocks + 1)), "int64", "both", "both", "rings"),
            ArraySpec("rows", (n_blocks, n_words), "int64", "the owner", "the owner", "visits"),
        ]
    )
    with Run() as run:
        segment = run.create("blocks", table)
        for ring in segment.arrays["rings"]:
            initialise(ring, n_blocks + 1)
        answers = two_processes(worker_0, worker_1, segment.handle, stop)
    (done, torn_0, values), (_, torn_1, _) = answers
    assert (torn_0, torn_1) == (0, 0), "a row was seen before all of it was written"
    assert (done, values) == (n_blocks, [stop])


def test_what_was_written_before_a_push_is_seen_after_the_pop() -> None:
    blocks_travel(stop=40_000)


@pytest.mark.slow
def test_what_was_written_before_a_push_is_seen_for_long() -> None:
    blocks_travel(stop=5_000_000)
