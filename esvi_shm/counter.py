"""Random numbers by counter: a function of (seed, a, b), not of who draws them or when.

So a start is the same for every number of workers, and a route for every order of work. The
generator is splitmix64's finaliser over the parts: fast, and good enough for noise, starts and
routes (not for cryptography).
"""

import numpy as np

from esvi_shm.compile import kernel


@kernel
def uniform(seed, a, b):
    """A number in (0, 1) by counter: the splitmix64 finaliser over (seed, a, b).

    The same for every number of workers and order of work.
    """
    x = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    for part in (np.uint64(a), np.uint64(b)):
        x = (x ^ part) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (np.float64(x >> np.uint64(12)) + 0.5) * (1.0 / 4503599627370496.0)


@kernel(allocates=True)
def shuffled(items, seed, a, b):
    """A copy of `items` in a random order (Fisher and Yates), by counter.

    Equivalent to ``numpy.random.permutation(items)``. b times their number must be below 2**63.
    """
    out = items.copy()
    for i in range(len(out) - 1, 0, -1):
        j = np.int64(uniform(seed, a, b * len(out) + i) * (i + 1))
        out[i], out[j] = out[j], out[i]
    return out
