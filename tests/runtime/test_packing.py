"""Rows that travel between nodes, packed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.families.contract import ListedBlock
from esvi_shm.runtime.packing import (
    NEAR,
    most,
    most_of_lists,
    pack,
    pack_lists,
    unpack,
    unpack_lists,
    unpack_rows,
)
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


def lists_of(random, n_rows, n_columns, filled=True):
    """Rows as lists, of which every place that is not taken holds something else."""
    places = random.integers(0, n_columns + 1, n_rows)
    first = np.concatenate([[3], 3 + np.cumsum(places)])
    kind = np.min_scalar_type(n_columns - 1)
    columns = random.integers(0, n_columns, first[-1]).astype(kind)
    values = random.random(first[-1]).astype(np.float32)
    size = np.zeros(n_rows, np.int32)
    rest = random.random(n_rows).astype(np.float32)
    for i in range(n_rows if filled else 0):
        size[i] = random.integers(0, places[i] + 1)
        chosen = np.sort(random.choice(n_columns, size[i], replace=False))
        columns[first[i] : first[i] + size[i]] = chosen
    return ListedBlock(first, size, rest, columns, values, n_columns)


@given(st.integers(0, 2**32), st.integers(0, 9), st.sampled_from([1, 7, 256, 257, 70_000]))
def test_lists_come_out_to_the_bit(seed, n_rows, n_columns):
    here = lists_of(np.random.default_rng(seed), n_rows, min(n_columns, 300))
    here = here._replace(n_columns=n_columns, columns=here.columns.astype(np.uint32))
    packed = pack_lists(here)
    assert len(packed) == 8 * n_rows + 8 * here.size.sum() <= most_of_lists(here)
    there = lists_of(np.random.default_rng(seed), n_rows, min(n_columns, 300), filled=False)
    there = there._replace(n_columns=n_columns)
    unpack_lists(packed, there)
    np.testing.assert_array_equal(there.size, here.size)
    np.testing.assert_array_equal(there.rest, here.rest)
    for i in range(n_rows):
        taken = slice(here.first[i], here.first[i] + here.size[i])
        np.testing.assert_array_equal(there.columns[taken], here.columns[taken])
        np.testing.assert_array_equal(there.values[taken], here.values[taken])


@given(st.integers(0, 2**32), st.data())
def test_bytes_that_are_not_those_of_lists_are_refused(seed, data):
    """Whatever they are, nothing is written beyond the rows' own places."""
    random = np.random.default_rng(seed)
    here = lists_of(random, 4, 40)
    packed = np.frombuffer(bytearray(pack_lists(here)), np.uint8)
    there = lists_of(np.random.default_rng(seed), 4, 40, filled=False)
    before = there.columns[:3].tobytes() + there.values[:3].tobytes()
    cut = data.draw(st.integers(1, len(packed)))
    with pytest.raises(ValueError, match="not those of lists"):
        unpack_lists(memoryview(packed[:-cut].tobytes()), there)
    with pytest.raises(ValueError, match="not those of lists"):
        unpack_lists(memoryview(packed.tobytes() + bytes(4)), there)
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    try:
        unpack_lists(memoryview(packed.tobytes()), there)
    except ValueError:
        pass
    assert (there.size <= np.diff(there.first)).all()
    assert before == there.columns[:3].tobytes() + there.values[:3].tobytes()
    for i, n in enumerate(there.size):
        columns = there.columns[there.first[i] : there.first[i] + n].astype(int)
        assert (np.diff(columns) > 0).all() and (columns < 40).all()
