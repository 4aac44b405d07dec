"""Noise on the factors of a word: it breaks ties, and shakes topics out of poor optima.

At a visit the factor of word v in topic k is multiplied by exp(s z), with z drawn once for (seed,
pass, worker, v, k) by counter: whoever visits when, the noise is the same. z is the sum of the
four bytes of a hash, shifted and scaled: mean 0, variance 1, between -3.45 and 3.45, near enough
to normal for noise (its fourth moment is 2.7, not 3), and a few integer instructions in vectors.

What a visit leaves is the entropy of the phi that it made, with the factors that it used: the
bounds stay exact in noisy passes, but they may fall.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.counter import uniform
from esvi_shm.special import exp2_32

#: Mean and standard deviation of the sum of four bytes.
_MEAN, _DEVIATION = np.float32(510.0), np.float32(np.sqrt(4 * (256**2 - 1) / 12))


def visit_key(seed: int, pass_: int, worker: int) -> int:
    """The key of a visit's noise, below 2**52."""
    return int(uniform(seed, pass_, worker) * 2.0**52)


@kernel
def add_noise(row, n_topics, strength, key, word):
    """Multiply the factors of a word by exp(strength z), in place; 0 stays 0.

    Parameters
    ----------
    row : float32 array, shape (at least K,)
    n_topics : int
        K.
    strength : float
    key : int
        From `visit_key`.
    word : int
        The word's number in the vocabulary.
    """
    start = np.uint32(np.int64(uniform(key, word, 0) * 4294967296.0))
    scale = np.float32(strength * 1.4426950408889634) / _DEVIATION
    for k in range(n_topics):
        # Two rounds of a 32-bit finaliser (MurmurHash3) over a counter.
        h = start + np.uint32(k) * np.uint32(0x9E3779B9)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        h = h ^ (h >> np.uint32(16))
        low = (h & np.uint32(0x00FF00FF)) + ((h >> np.uint32(8)) & np.uint32(0x00FF00FF))
        total = (low & np.uint32(0xFFFF)) + (low >> np.uint32(16))
        row[k] *= exp2_32(scale * (np.float32(np.int32(total)) - _MEAN))
