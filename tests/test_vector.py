"""The explicit vector loops are the NumPy expressions in their docstrings, for every K."""

import numpy as np
import pytest

from esvi_shm import vector
from esvi_shm.compile import kernel
from esvi_shm.vector import LANES, padded
from tests import naive

GUARD = 3


@kernel
def call_dot_1(x, rows, offsets, length):
    """dot_1 from Python."""
    return vector.dot_1(x, rows, (offsets[0],), length)


@kernel
def call_dot_4(x, rows, offsets, length):
    """dot_4 from Python."""
    return vector.dot_4(x, rows, (offsets[0], offsets[1], offsets[2], offsets[3]), length)


@kernel
def call_mix_1(x, total, rows, offsets, weights, length, both):
    """mix_1 or mix_both_1 from Python."""
    if both:
        vector.mix_both_1(x, total, rows, (offsets[0],), (weights[0],), length)
    else:
        vector.mix_1(x, total, rows, (offsets[0],), (weights[0],), length)


@kernel
def call_mix_4(x, total, rows, offsets, weights, length, both):
    """mix_4 or mix_both_4 from Python."""
    at = (offsets[0], offsets[1], offsets[2], offsets[3])
    scales = (weights[0], weights[1], weights[2], weights[3])
    if both:
        vector.mix_both_4(x, total, rows, at, scales, length)
    else:
        vector.mix_4(x, total, rows, at, scales, length)


class Case:
    """Five words' rows of factors and sums, padded with zeros, with guards at both ends."""

    def __init__(self, n_topics: int, group: int) -> None:
        random = np.random.default_rng(n_topics)
        self.n, self.length = n_topics, padded(n_topics)
        self.rows = np.zeros(2 * self.length * 5 + GUARD, np.float32)
        self.rows[-GUARD:] = 7
        table = self.table()
        table[:, :, :n_topics] = random.uniform(0, 1, (5, 2, n_topics))
        self.x, self.total = (self.padded_row(random) for _ in range(2))
        self.chosen = random.permutation(5)[:group]
        self.offsets = 2 * self.length * self.chosen
        self.weights = random.uniform(0.1, 9, group).astype(np.float32)

    def padded_row(self, random: np.random.Generator) -> np.ndarray:
        row = np.zeros(self.length + GUARD, np.float32)
        row[: self.n] = random.uniform(0, 1, self.n)
        row[self.length :] = 7
        return row

    def table(self) -> np.ndarray:
        """(words, factors and sums, topics) of the rows."""
        return self.rows[:-GUARD].reshape(5, 2, self.length)

    def assert_padding_is_kept(self) -> None:
        assert (self.table()[:, :, self.n :] == 0).all()
        for row in (self.x, self.total):
            assert (row[self.n : self.length] == 0).all()
        for array in (self.rows, self.x, self.total):
            assert (array[-GUARD:] == 7).all()


def test_rows_are_padded_to_whole_vectors():
    assert [padded(n) for n in (1, LANES, LANES + 1)] == [LANES, LANES, 2 * LANES]


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("n_topics", range(1, 71))
def test_dots(n_topics, group):
    case = Case(n_topics, group)
    call = call_dot_1 if group == 1 else call_dot_4
    got = call(case.x, case.rows, case.offsets, case.length)
    factors = case.table()[case.chosen, 0].astype(np.float64)
    wanted = factors @ case.x[: case.length].astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=2e-6)
    assert len(got) == group
    case.assert_padding_is_kept()


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("n_topics", range(1, 71))
def test_mixes(n_topics, group, both):
    case = Case(n_topics, group)
    before, total = case.table().astype(np.float64), case.total.astype(np.float64)
    call = call_mix_1 if group == 1 else call_mix_4
    call(case.x, case.total, case.rows, case.offsets, case.weights, case.length, both)
    total[: case.length] += case.weights @ before[case.chosen, 0]
    if both:
        before[case.chosen, 1] += np.outer(case.weights, case.x[: case.length])
    np.testing.assert_allclose(case.total, total, rtol=2e-6)
    np.testing.assert_allclose(case.table(), before, rtol=2e-6)
    case.assert_padding_is_kept()


@pytest.mark.parametrize("n_topics", range(1, 71))
def test_relaxing_a_row(n_topics):
    """Beside a full row, words in few topics, of which some left theirs."""
    random, length = np.random.default_rng(n_topics), padded(n_topics)
    factors, old = random.uniform(0, 1, (2, 3, n_topics)).astype(np.float32)
    factors[1:] *= random.uniform(size=(2, n_topics)) < 0.05
    old[1:] *= random.uniform(size=(2, n_topics)) < 0.05
    factors[:, 0] = 0.5
    sums = random.uniform(0.1, 3, (3, n_topics)).astype(np.float32)
    new = factors * sums
    old[:, -1] += 0.1
    old *= new.sum(axis=1, keepdims=True) / old.sum(axis=1, keepdims=True)
    rows = np.zeros((3, 2, length), np.float32)
    rows[:, 0, :n_topics], rows[:, 1, :n_topics] = factors, sums
    for i in range(3):
        vector.relax_row(rows.ravel(), 2 * length * i, length, old[i], np.float32(1.8))
    wanted = naive.go_further(old.astype(np.float64), new.astype(np.float64), 1.8)
    np.testing.assert_allclose(rows[:, 0, :n_topics] * rows[:, 1, :n_topics], wanted, atol=3e-6)
    assert (rows[:, 0, :n_topics][rows[:, 1, :n_topics] == 0] == 0).all()
    assert (rows[:, :, n_topics:] == 0).all()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("n_topics", range(1, 71))
def test_settling_a_row(n_topics, frozen):
    """Beside full rows: words in few topics, some that left theirs, one that is empty."""
    random, length = np.random.default_rng(n_topics), padded(n_topics)
    factors, old = random.uniform(0, 1, (2, 4, n_topics)).astype(np.float32)
    factors[1:] *= random.uniform(size=(3, n_topics)) < 0.05
    old[1:] *= random.uniform(size=(3, n_topics)) < 0.05
    factors[3] = old[3] = 0
    sums = random.uniform(0, 3, (4, n_topics)).astype(np.float32)
    lambda_, prior = (old + random.uniform(-0.05, 1, old.shape)).astype(np.float32), np.float32(0.3)
    rows = np.zeros((4, 2, length), np.float32)
    rows[:, 0, :n_topics], rows[:, 1, :n_topics] = factors, sums
    moved = np.zeros(length + GUARD, np.float32)
    moved[length:] = 7
    got_old, got_lambda = old.copy(), lambda_.copy()
    for i in range(4):
        vector.settle_row(
            rows.ravel(), 2 * length * i, length, got_old[i], got_lambda[i], prior, frozen,
            moved[:length],
        )  # fmt: skip
    assert (rows[:, 1] == 0).all()
    new = factors * sums
    np.testing.assert_allclose(got_old, new, rtol=1e-6)
    change = new - old
    np.testing.assert_allclose(moved[:n_topics], change.sum(axis=0), atol=2e-6)
    assert (moved[n_topics:length] == 0).all() and (moved[length:] == 7).all()
    touched = (factors > 0) | (old > 0)
    wanted = np.where(touched, np.maximum(lambda_ + change, prior + new), lambda_)
    if frozen:
        np.testing.assert_array_equal(got_lambda, lambda_)
    else:
        # Where nothing was and is, a value above the prior may be left alone.
        close = np.isclose(got_lambda, wanted, rtol=1e-6)
        same = np.isclose(got_lambda, np.maximum(lambda_, prior), rtol=1e-6)
        assert (close | (~touched & same)).all()


@pytest.mark.parametrize("n", [0, 1, 5, 10_000])
def test_aligned(n):
    values = vector.aligned(n)
    assert values.shape == (n,) and not values.any()
    assert n == 0 or values.ctypes.data % 64 == 0
