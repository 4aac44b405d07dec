"""The table of a segment: nothing overlaps, everything is aligned, and mistakes are named."""

import gc
import mmap
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.errors import ParameterError
from esvi_shm.shared.table import ALIGNMENT, ArraySpec, Table

DTYPES = ["int8", "int64", "float32", "float64", "bool", "S3", [("a", "i1"), ("b", "f8")]]
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def spec(name: str, shape: tuple[int, ...] = (3,), dtype: Any = "int64") -> ArraySpec:
    return ArraySpec(name, shape, dtype, "its worker, in a visit", "all, at rest", "a test")


def tables() -> st.SearchStrategy[Table]:
    kinds = st.lists(st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=6)
    return kinds.map(lambda many: Table([spec(f"a{n}", *kind) for n, kind in enumerate(many)]))


@given(tables())
def test_arrays_are_aligned_and_share_no_byte(table: Table) -> None:
    end = 0
    for one in table:
        assert table.offset(one.name) % ALIGNMENT == 0
        assert table.offset(one.name) >= end
        end = table.offset(one.name) + one.n_bytes
    assert end <= table.total_bytes < end + ALIGNMENT
    assert table.total_bytes % ALIGNMENT == 0


@given(tables())
def test_views_are_what_was_declared_and_lie_apart(table: Table) -> None:
    buffer = bytearray(table.total_bytes)
    views = table.views(buffer)
    assert list(views) == [one.name for one in table]
    for number, one in enumerate(table):
        view = views[one.name]
        assert (view.shape, view.dtype) == (one.shape, one.dtype)
        view[...] = np.frombuffer(bytes([number + 1]) * view.dtype.itemsize, view.dtype)[0]
    for number, one in enumerate(table):
        start = table.offset(one.name)
        written = set(buffer[start : start + one.n_bytes])
        assert written <= ({0, 1} if one.dtype == bool else {number + 1})


@given(tables())
def test_a_table_can_be_pickled(table: Table) -> None:
    copy = pickle.loads(pickle.dumps(table))
    assert list(copy) == list(table)
    assert [copy.offset(one.name) for one in copy] == [table.offset(one.name) for one in table]


def test_look_ups() -> None:
    table = Table([spec("x"), spec("y", (2, 2), "float32")])
    assert (len(table), "x" in table, "z" in table) == (2, True, False)
    assert table["y"].shape == (2, 2)
    assert (table.offset("x"), table.offset("y"), table.total_bytes) == (0, 128, 256)
    for look_up in (table.offset, table.__getitem__):
        with pytest.raises(KeyError):
            look_up("z")


def test_the_description_names_every_array_its_writer_and_its_readers() -> None:
    text = Table([spec("gamma", (10, 4), "float32"), spec("n", ())]).describe()
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == ["array", "gamma", "n", "total"]
    for words in ("10 x 4", "float32", "160", "its worker, in a visit", "all, at rest", "a test"):
        assert words in lines[1]
    assert "scalar" in lines[2]
    assert lines[-1] == "total 384 bytes"


def test_mistakes_are_named() -> None:
    with pytest.raises(ParameterError, match="unique in its table, got 'x'"):
        Table([spec("x"), spec("y"), spec("x")])
    with pytest.raises(ParameterError, match=r"shape of x must not be negative, got \(2, -1\)"):
        spec("x", (2, -1))
    for dtype in (object, "S", [("a", "O")]):
        with pytest.raises(ParameterError, match="dtype of x must be of fixed size"):
            spec("x", (2,), dtype)
    with pytest.raises(ParameterError, match="buffer must have 128 bytes, got 127"):
        Table([spec("x")]).views(bytearray(127))


def test_an_array_keeps_its_buffer() -> None:
    table = Table([spec("x")])
    mapping = mmap.mmap(-1, table.total_bytes)
    array = table.views(mapping)["x"]
    with pytest.raises(BufferError):
        mapping.close()
    del mapping
    gc.collect()
    array[:] = 5
    assert array.sum() == 15


def test_a_readonly_buffer_gives_readonly_arrays() -> None:
    assert not Table([spec("x")]).views(bytes(128))["x"].flags.writeable
