"""The loops over tiles are the NumPy expressions in their docstrings."""

import numpy as np
import pytest

from esvi_shm import tiles
from esvi_shm.compile import kernel
from esvi_shm.tiles import CHUNK, SLOT, TILE

GUARD = 3


@pytest.mark.parametrize("n_topics", [1, 2, 15, 16, 17, 63, 64, 65, 200])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_bits_above_a_limit(n_topics, share):
    random = np.random.default_rng(n_topics)
    base = random.random(n_topics).astype(np.float32)
    above = random.random(n_topics) < share
    x = base + np.where(above, 0.75, 0.25).astype(np.float32)
    bits = np.full((2, -(-n_topics // 64)), -1, np.int64)
    tiles.above_into(x, base, np.float32(0.5), bits[1])
    found = np.unpackbits(bits[1].view(np.uint8), bitorder="little")
    np.testing.assert_array_equal(found[:n_topics], above)
    assert not found[n_topics:].any() and (bits[0] == -1).all()
    places = np.full(n_topics + GUARD, -7, np.int32)
    n = tiles.bits_into(bits, 1, places)
    np.testing.assert_array_equal(places[:n], np.flatnonzero(above))
    assert (places[n:] == -7).all()


@kernel
def call(pair_word, first_word, slots, n_slots, table, width, lanes, rows, entries, at, theta,
         total, partial, norms, counts):  # fmt: skip
    """find_common, dot_entries and mix_entries from Python."""
    n = pair_word.shape[0]
    end = tiles.find_common(
        pair_word, 0, n, first_word, slots, n_slots, table, width, lanes, rows, entries, at
    )
    tiles.dot_entries(theta, rows, entries, at, end, partial, n, norms)
    weights = counts / norms[:n]
    tiles.mix_entries(theta, total, rows, entries, at, end, weights)
    return end


@pytest.mark.parametrize("n_tiles", [1, 5, 63, 64, 65, 130])
def test_pairs(n_tiles):
    random = np.random.default_rng(n_tiles)
    n_words, n, first_word, width = 9, CHUNK - 1, 4, -(-n_tiles // 64)
    beta = np.where(random.random((n_words, TILE * n_tiles)) < 0.05, 0.3, 0.0)
    beta *= 1 + random.random(beta.shape)
    theta_of_topic = np.where(random.random(TILE * n_tiles) < 0.2, 0.4, 0.0)
    beta[:, 0], theta_of_topic[0] = 0.5, 0.7  # each pair has a topic in common
    has = beta.reshape(n_words, n_tiles, TILE) > 0
    table, lanes = np.zeros((n_words, width, 2), np.int64), [0]
    rows, tile_of = [np.zeros(2 * TILE)], {}
    for i in range(n_words):
        for w in range(width):
            table[i, w, 1] = len(lanes)
            for t in range(64 * w, min(64 * (w + 1), n_tiles)):
                if has[i, t].any():
                    table[i, w, 0] |= np.left_shift(np.int64(1), np.int64(t % 64))
                    tile_of[i, t] = len(lanes)
                    lanes.append(int(np.packbits(has[i, t], bitorder="little")[0]))
                    tile = beta[i, TILE * t : TILE * (t + 1)]
                    rows.append(np.concatenate([tile, np.full(TILE, 0.25)]))
    rows = np.concatenate(rows).astype(np.float32)
    own = np.flatnonzero((theta_of_topic.reshape(-1, TILE) > 0).any(axis=1))
    slots = np.zeros(SLOT * n_tiles, np.int64)
    theta, total = np.zeros(TILE * n_tiles, np.float32), np.ones(TILE * n_tiles, np.float32)
    for m, t in enumerate(random.permutation(own)):
        tile = theta_of_topic[TILE * t : TILE * (t + 1)]
        bit, below = np.left_shift(np.int64(1), np.int64(t % 64)), (1 << int(t % 64)) - 1
        on = int(np.packbits(tile > 0, bitorder="little")[0])
        slots[SLOT * m : SLOT * (m + 1)] = 2 * (t // 64), bit, below, TILE * m, on
        theta[TILE * m : TILE * (m + 1)] = tile
    pair_word = (first_word + random.integers(0, n_words, n)).astype(np.int32)
    counts = random.integers(1, 5, n).astype(np.float32)
    entries = np.full(CHUNK * n_tiles + GUARD, -7, np.int64)
    norms, partial = np.full(CHUNK, -7, np.float32), np.zeros(TILE * CHUNK, np.float32)
    before = rows.copy()
    end = call(
        pair_word, first_word, slots, len(own), table.ravel(), width,
        np.array(lanes, np.uint8), rows, entries, 2, theta, total, partial, norms, counts,
    )  # fmt: skip
    words = pair_word - first_word
    common = (has & (theta_of_topic.reshape(-1, TILE) > 0)).any(axis=2)
    assert end - 2 == common[words].sum()
    assert (entries[:2] == -7).all() and (entries[end + 1 :] == -7).all()
    np.testing.assert_allclose(norms[:n], beta[words] @ theta_of_topic, rtol=1e-5)
    assert (norms[n:] == -7).all() and not partial.any()
    weights = counts / norms[:n]
    wanted = before.copy()
    for i, weight in zip(words, weights, strict=True):
        for t in np.flatnonzero(common[i]):
            at = 2 * TILE * tile_of[i, t] + TILE
            wanted[at : at + TILE] += weight * theta_of_topic[TILE * t : TILE * (t + 1)]
    np.testing.assert_allclose(rows, wanted, rtol=1e-5)
    for m in range(len(own)):
        t = 32 * slots[SLOT * m] + first(slots[SLOT * m + 1])
        mixed = (weights[:, None] * beta[words])[:, TILE * t : TILE * (t + 1)]
        sums = 1 + mixed[common[words, t]].sum(axis=0)
        np.testing.assert_allclose(total[TILE * m : TILE * (m + 1)], sums, rtol=1e-5)


def test_aligned():
    values = tiles.aligned(5)
    assert values.shape == (5,) and values.ctypes.data % 64 == 0 and not values.any()


@pytest.mark.parametrize("bits", [1, 6, -1, -(2**63), 2**62 + 8])
def test_single_numbers(bits):
    set_ = [b for b in range(64) if bits >> b & 1]
    assert (count(bits), first(bits)) == (len(set_), set_[0])


@kernel
def count(bits):
    """popcount from Python."""
    return tiles.popcount(bits)


@kernel
def first(bits):
    """lowest from Python."""
    return tiles.lowest(bits)
