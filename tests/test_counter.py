"""Numbers by counter are uniform, and orders drawn from them are fair."""

from collections import Counter

import numpy as np

from esvi_shm.counter import shuffled, uniform


def test_numbers_by_counter_are_uniform():
    values = np.array([uniform(5, a, b) for a in range(50) for b in range(40)])
    assert 0 < values.min() and values.max() < 1
    assert len(np.unique(values)) == 2000
    np.testing.assert_allclose(np.histogram(values, 10, (0, 1))[0], 200, atol=60)
    assert uniform(5, 1, 2) != uniform(5, 2, 1)


def test_orders_are_fair_permutations():
    items = np.arange(4)
    drawn = Counter(tuple(shuffled(items, 3, a, b)) for a in range(60) for b in range(40))
    assert len(drawn) == 24
    assert all(sorted(order) == [0, 1, 2, 3] for order in drawn)
    assert 60 < min(drawn.values()) and max(drawn.values()) < 145  # 100 each
    assert items.tolist() == [0, 1, 2, 3]
    largest = 2**63 - 1
    assert sorted(shuffled(items, largest, 0, 0)) == [0, 1, 2, 3]
