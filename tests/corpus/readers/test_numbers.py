"""Counts come out as Python reads them, to the last bit of float32."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.corpus.readers._scan import INTEGER, REAL, scan_integer, scan_number


def scan(text, kind=REAL):
    data = np.frombuffer((text + "\n").encode(), np.uint8).copy()
    value, end = scan_number(data, 0, kind)
    return np.float32(value), int(end)


@given(st.floats(0, float(np.finfo(np.float32).max), width=32))
def test_what_float32_prints_is_read_back(x):
    for text in (repr(float(x)), str(np.float32(x)), f"{x:.9g}", f"{x:.9E}"):
        assert scan(text) == (np.float32(x), len(text))


@given(st.from_regex(r"[0-9]{0,25}\.?[0-9]{1,25}([eE][+-]?[0-9])?", fullmatch=True))
def test_any_decimal_is_that_of_python(text):
    value, end = scan(text)
    assert end == len(text)
    if float(text) >= 2.0**128 - 2.0**103:
        assert value == -1, "float32 rounds this to infinity"
        return
    np.testing.assert_array_max_ulp(value, np.float32(float(text)), 1)


@given(st.integers(0, 10**17))
def test_integers(n):
    data = np.frombuffer(f"{n} ".encode(), np.uint8).copy()
    assert scan_integer(data, 0) == (n, len(str(n)))
    assert scan(str(n), INTEGER) == (np.float32(n), len(str(n)))


@pytest.mark.parametrize("text", ["5.", ".5", "0e0", "0.0e99", "007", "1e-60"])
def test_odd_but_legal(text):
    assert scan(text) == (np.float32(float(text)), len(text))


@pytest.mark.parametrize("kind", [INTEGER, REAL])
def test_integers_of_many_digits(kind):
    text = "123456789" * 4
    assert scan(text, kind) == (np.float32(float(text)), len(text))
    assert scan(text + "00000", kind)[0] == -1  # more than float32 holds
