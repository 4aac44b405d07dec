"""The loops over sparse rows are the NumPy expressions in their docstrings."""

import numpy as np
import pytest

from esvi_shm import sparse
from esvi_shm.compile import kernel
from esvi_shm.sparse import CHUNK, SLOT

GUARD = 3


@pytest.mark.parametrize("n_topics", [1, 2, 15, 16, 17, 63, 64, 65, 200])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_bits_above_a_limit(n_topics, share):
    random = np.random.default_rng(n_topics)
    base = random.random(n_topics).astype(np.float32)
    above = random.random(n_topics) < share
    x = base + np.where(above, 0.75, 0.25).astype(np.float32)
    bits = np.full((2, -(-n_topics // 64)), -1, np.int64)
    sparse.above_into(x, base, np.float32(0.5), bits[1])
    found = np.unpackbits(bits[1].view(np.uint8), bitorder="little")
    np.testing.assert_array_equal(found[:n_topics], above)
    assert not found[n_topics:].any() and (bits[0] == -1).all()
    places = np.full(n_topics + 4 + GUARD, -7, np.int32)
    n = sparse.bits_into(bits, 1, places)
    np.testing.assert_array_equal(places[:n], np.flatnonzero(above))
    assert (places[n + 4 :] == -7).all()


@kernel(allocates=True)
def call(pair_word, first_word, slots, n_slots, masks, starts, width, rows, items, entries, at,
         theta, total, norms, counts):  # fmt: skip
    """find_common, dot_entries and mix_entries from Python."""
    n = pair_word.shape[0]
    end = sparse.find_common(
        pair_word, 0, n, first_word, slots, n_slots, masks, starts, width, rows, items, entries, at
    )
    sparse.dot_entries(theta, rows, entries, at, end, norms)
    weights = counts / norms[:n]
    sparse.mix_entries(theta, total, rows, entries, at, end, weights)
    return end


def masks_of(has):
    """Bits of each row, 64 to a number, and where each 64's set ones begin among those of all."""
    n, n_topics = has.shape
    bits = np.zeros((n, -(-n_topics // 64), 64), bool)
    bits.reshape(n, -1)[:, :n_topics] = has
    counts = bits.sum(axis=2)
    starts = np.concatenate([[0], counts.ravel().cumsum()[:-1]]).reshape(counts.shape)
    return np.packbits(bits, axis=2, bitorder="little").view(np.int64)[..., 0], starts


@pytest.mark.parametrize("n_topics", [1, 40, 63, 64, 65, 513, 1040])
@pytest.mark.parametrize("share", [0.02, 0.2, 1.0])
def test_pairs(n_topics, share):
    random = np.random.default_rng(n_topics)
    n_words, n, first_word, width = 9, CHUNK - 1, 4, -(-n_topics // 64)
    beta = np.where(random.random((n_words, n_topics)) < share, 0.3, 0.0)
    beta *= 1 + random.random(beta.shape)
    theta_of_topic = np.where(random.random(n_topics) < max(share, 0.1), 0.4, 0.0)
    theta_of_topic *= 1 + random.random(n_topics)
    beta[:, 0], theta_of_topic[0] = 0.5, 0.7  # each pair has a topic in common
    masks, starts = masks_of(beta > 0)
    own_masks = masks_of(theta_of_topic[None] > 0)[0][0]
    used = np.flatnonzero(own_masks)
    slots = np.full(SLOT * width, -7, np.int64)
    slots[: SLOT * len(used)] = np.stack([used, own_masks[used]], 1).ravel()
    spread = np.zeros((width, 64))
    spread.ravel()[:n_topics] = theta_of_topic
    theta, total = spread[used].ravel().astype(np.float32), np.ones(64 * len(used), np.float32)
    rows = np.stack([beta[beta > 0], np.full((beta > 0).sum(), 0.25)], 1).astype(np.float32).ravel()
    pair_word = (first_word + random.integers(0, n_words, n)).astype(np.int32)
    words = pair_word - first_word
    counts = random.integers(1, 5, n).astype(np.float32)
    common = (beta[words] > 0) & (theta_of_topic > 0)
    entries = np.full(2 + common.sum() + GUARD, -7, np.int64)
    items = np.full(2 * (n * len(used) + common.sum() + 1) + GUARD, -7, np.int64)
    norms, before = np.zeros(CHUNK, np.float32), rows.copy()
    end = call(
        pair_word, first_word, slots, len(used), masks.ravel(), starts.ravel().astype(np.int32),
        width, rows, items, entries, 2, theta, total, norms, counts,
    )  # fmt: skip
    assert end - 2 == common.sum()
    assert (entries[:2] == -7).all() and (entries[end:] == -7).all()
    assert (items[-GUARD:] == -7).all()
    np.testing.assert_allclose(norms[:n], beta[words] @ theta_of_topic, rtol=1e-5)
    assert not norms[n:].any()
    weights = counts / norms[:n]
    sums = np.zeros_like(beta)
    np.add.at(sums, words, weights[:, None] * theta_of_topic)
    np.testing.assert_array_equal(rows[::2], before[::2])
    np.testing.assert_allclose(rows[1::2], 0.25 + sums[beta > 0], rtol=1e-5)
    mixed = (weights[:, None] * beta[words]).sum(axis=0)
    spread.ravel()[:n_topics] = np.where(theta_of_topic > 0, mixed, 0.0)
    np.testing.assert_allclose(total, 1 + spread[used].ravel(), rtol=1e-5)


@pytest.mark.parametrize("bits", [1, 6, -1, -(2**63), 2**62 + 8])
def test_single_numbers(bits):
    set_ = [b for b in range(64) if bits >> b & 1]
    assert (count(bits), first(bits)) == (len(set_), set_[0])


@kernel
def count(bits):
    """popcount from Python."""
    return sparse.popcount(bits)


@kernel
def first(bits):
    """lowest from Python."""
    return sparse.lowest(bits)
