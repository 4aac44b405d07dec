"""The error bounds that the docstring of `special` states, against scipy."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import gammaln, psi

from esvi_shm import special
from esvi_shm.compile import kernel
from esvi_shm.vector import padded

SMALLEST_NORMAL = np.finfo(np.float32).tiny


@kernel
def digamma_of(x, out):
    """special.digamma of each, in a loop: as kernels use it."""
    for i in range(x.shape[0]):
        out[i] = special.digamma(x[i])


@kernel
def log_gamma_of(x, out):
    """special.log_gamma of each."""
    for i in range(x.shape[0]):
        out[i] = special.log_gamma(x[i])


@kernel
def log_of(x, out):
    """special.log of each."""
    for i in range(x.shape[0]):
        out[i] = special.log(x[i])


@kernel
def exp_negative_of(x, out):
    """special.exp_negative of each."""
    for i in range(x.shape[0]):
        out[i] = special.exp_negative(x[i])


def applied(function, x):
    out = np.empty(len(x))
    function(np.asarray(x, np.float64), out)
    return out


POSITIVE = np.concatenate([np.geomspace(1e-3, 1e12, 20001), np.linspace(0.5, 20, 20001)])


@pytest.mark.parametrize(
    ("function", "exact", "absolute", "relative"),
    [
        (digamma_of, psi, 1e-13, 1e-13),
        (log_gamma_of, gammaln, 1e-12, 1e-13),
        (log_of, np.log, 1e-15, 1e-14),
    ],
)
def test_errors_are_below_the_stated_bounds(function, exact, absolute, relative):
    got, wanted = applied(function, POSITIVE), exact(POSITIVE)
    allowed = absolute + relative * np.abs(wanted)
    worst = np.argmax(np.abs(got - wanted) / allowed)
    assert abs(got[worst] - wanted[worst]) <= allowed[worst], POSITIVE[worst]


@pytest.mark.parametrize("function", [digamma_of, log_gamma_of])
def test_smallest_priors_keep_their_digits(function):
    """Below the range of the stated bounds, down to the smallest prior: relative 1e-12."""
    x = np.geomspace(1e-6, 1e-3, 1001)
    exact = psi if function is digamma_of else gammaln
    np.testing.assert_allclose(applied(function, x), exact(x), rtol=1e-12)


def test_exp_of_negative_numbers():
    x = np.concatenate([np.linspace(-700, 0, 70001), -np.geomspace(1e-300, 1, 1001), [0.0]])
    np.testing.assert_allclose(applied(exp_negative_of, x), np.exp(x), rtol=1e-13)
    assert (applied(exp_negative_of, [-700.0001, -745.0, -1e4, -1e9]) == 0).all()


def row_of(x, room=0):
    """The whole row that is written, and `room` places beyond it."""
    out = np.full(padded(len(x)) + room, np.float32(7))
    special.exp_digamma_row(np.asarray(x, np.float32), out)
    return out


def assert_row_is_right(x):
    x = np.asarray(x, np.float32)
    out = row_of(x)[: len(x)]
    exact = psi(x.astype(np.float64))
    scale = 2.0 ** (1 + np.floor(np.log2(np.float32(1) + x.max())))
    wanted = np.exp(exact + 1 / x.max().astype(np.float64)) / scale
    # The bound is stated for values above 1e-19 of the largest; those below may be 0.
    allowed = wanted * (1e-6 + 3e-7 / x) + np.where(wanted < 1e-19, 1e-19, 0)
    wrong = np.abs(out - wanted) > allowed
    assert not wrong.any(), (x[wrong], out[wrong], wanted[wrong])
    assert ((out == 0) | (out >= SMALLEST_NORMAL)).all()
    assert 0.25 < out[np.argmax(x)] < 1 + 1e-6 and out.max() == out[np.argmax(x)]


@pytest.mark.parametrize("n_topics", [1, 15, 16, 50, 128])
def test_a_word_s_row_is_a_row_times_the_factors(n_topics):
    random, length = np.random.default_rng(n_topics), padded(n_topics)
    x = (10.0 ** random.uniform(-3, 3, n_topics)).astype(np.float32)
    x[16:32] = 1e-3  # a vector without anything
    factor = np.zeros(length, np.float32)
    factor[:n_topics] = random.random(n_topics)
    rows = np.full(4 * length, np.float32(7))
    special.exp_digamma_word(x, factor, rows, length)
    assert (rows[:length] == 7).all() and (rows[3 * length :] == 7).all()
    np.testing.assert_array_equal(rows[length : 2 * length], row_of(x) * factor)
    assert (rows[2 * length : 3 * length] == 7).all()


@pytest.mark.parametrize("power", [0.05, 0.5, 0.8, 0.93, 1.0])
def test_rows_to_a_power(power):
    row = np.concatenate([np.geomspace(1e-37, 1e12, 9000), np.linspace(0.4, 1, 5000), [0.0, 1.0]])
    row = row.astype(np.float32)
    got = row.copy()
    special.power_row(got, power)
    np.testing.assert_allclose(got, row.astype(np.float64) ** power, rtol=1e-5)
    assert got[-2] == 0


values = st.floats(-6, 12).map(lambda e: 10.0**e)


@given(st.lists(values, min_size=1, max_size=70))
@example([1e-6])
@example([1e12])
@example([1e-6, 1e12])
@example([1e-6, 1.0000001e-6, 1e-6])
@example([1e-3, 1e-3, 5.0])
@example([0.1, 2.0, 1e12])
def test_rows_of_exp_digamma(x):
    assert_row_is_right(x)


@given(st.lists(st.floats(-3, 3).map(lambda e: 10.0**e), min_size=1, max_size=70))
def test_rows_of_common_size(x):
    assert_row_is_right(x)


def test_rows_over_the_whole_range():
    for largest in (1e-3, 0.5, 10.0, 1e4, 1e12):
        x = np.geomspace(1e-3, largest, 4001)
        assert_row_is_right(x)


@pytest.mark.parametrize("n_topics", range(1, 70))
def test_zeros_fill_the_row_to_whole_vectors(n_topics):
    out = row_of(np.linspace(0.1, 3, n_topics), room=5)
    whole = padded(n_topics)
    assert (out[:n_topics] > 0).all()
    assert (out[n_topics:whole] == 0).all()
    assert (out[whole:] == 7).all()


@pytest.mark.parametrize("n_topics", [1, 16, 40, 128])
def test_vectors_without_a_large_value_are_zeros(n_topics):
    x = np.full(n_topics, 0.01, np.float32)
    x[n_topics // 2] = 3.0
    out = row_of(x)
    assert np.flatnonzero(out).tolist() == [n_topics // 2]


@pytest.mark.parametrize("smallest", [1e-30, 1e-6, 1e-3])
def test_equal_values_stay_equal_however_small(smallest):
    out = row_of(np.full(37, smallest))[:37]
    assert (out == out[0]).all() and out[0] > 0.25
