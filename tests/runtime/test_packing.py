"""Rows that travel between nodes, packed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.runtime.packing import NEAR, most, pack, unpack, unpack_rows
from esvi_shm.vector import LANES


@st.composite
def rows(draw):
    """Rows of which some numbers are the row's least, in runs or here and there, or far from it."""
    shape = draw(st.tuples(st.integers(0, 5), st.integers(1, 40 * LANES)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    array = np.full(shape, np.float32(0.01))
    share = draw(st.sampled_from([0.0, 0.01, 0.5, 1.0]))
    array[random.random(shape) < share] += np.float32(random.random() + 0.1)
    return array


def steps(array, n):
    """The same, so many steps of float32 further from 0."""
    return (array.view(np.uint32) + np.uint32(n)).view(np.float32)


@given(rows(), st.integers(0, 2**32))
def test_what_is_rounding_above_the_least_becomes_it(array, seed):
    random, least = np.random.default_rng(seed), np.float32(0.01)
    array[:, :1] = least
    is_near = (array == least) & (random.random(array.shape) < 0.5)
    is_near[:, :1] = False
    there = np.empty_like(array)
    for n, comes_out in ((NEAR, array), (NEAR + 1, steps(array, NEAR + 1))):
        moved = np.where(is_near, steps(array, n), array)
        unpack(pack([moved]), [there])
        assert there.tobytes() == np.where(is_near, comes_out, array).tobytes()
    assert (steps(np.array([least]), NEAR) - least <= 4e-6 * least).all()


@given(st.lists(rows(), max_size=3))
def test_what_is_packed_comes_out_to_the_bit(arrays):
    packed = pack(arrays)
    assert len(packed) <= most(arrays)
    there = [np.full_like(array, np.nan) for array in arrays]
    unpack(packed, there)
    for mine, theirs in zip(arrays, there, strict=True):
        assert mine.tobytes() == theirs.tobytes()


def test_numbers_that_are_the_rows_least_take_no_bytes():
    array = np.full((7, 20 * LANES), np.float32(0.1))
    array[2, 3] = 1.0
    array[6, -1] = 1.0
    assert len(pack([array])) == 4 * (7 * (1 + 20 * LANES // 32) + 2)


def test_numbers_that_are_not_known_are_kept():
    array = np.array([[np.nan, 1.0, np.inf]], np.float32)
    there = np.zeros_like(array)
    unpack(pack([array]), [there])
    assert array.tobytes() == there.tobytes()


@given(st.binary(max_size=200), rows())
def test_any_bytes_are_rows_or_refused(data, array):
    there = np.zeros_like(array)
    try:
        unpack(memoryview(data), [there])
    except ValueError:
        return
    assert len(data) <= most([array])


@given(rows(), st.integers(1, 12))
def test_bytes_too_few_or_too_many_are_refused(array, n):
    packed = bytes(pack([array]))
    there = [np.zeros_like(array)]
    with pytest.raises(ValueError, match=r"packed rows|not those of rows"):
        unpack(memoryview(packed + bytes(n)), there)
    if packed:
        with pytest.raises(ValueError, match=r"packed rows|not those of rows"):
            unpack(memoryview(packed[: -min(n, len(packed))]), there)


@given(rows(), st.data())
def test_nothing_is_read_beyond_the_bytes_that_there_are(array, data):
    """Of memory behind them, which would say something else, or nothing."""
    packed = np.frombuffer(pack([array]), np.uint32)
    left = data.draw(st.integers(0, len(packed)))
    there = np.zeros_like(array).view(np.uint32)
    assert unpack_rows(packed[:left], 0, there) == (left if left == len(packed) else -1)
