"""A pair's own share is left out of the counts that decide on it."""

import numpy as np
import pytest

from esvi_shm.compile import kernel
from esvi_shm.families.lda import exclusion
from esvi_shm.vector import padded
from tests import naive
from tests.families.lda.play import follow, look, oracle_of, play, put
from tests.families.lda.test_visits import assert_visit_is_right

storages = pytest.mark.parametrize("storage", ["margins", "full", "sparse"])


@kernel
def call_mix_kept_1(total, rows, kept, at, weights, length, both):
    """mix_kept_1 or mix_both_kept_1 from Python."""
    if both:
        exclusion.mix_both_kept_1(total, rows, kept, at, weights, length)
    else:
        exclusion.mix_kept_1(total, rows, kept, at, weights, length)


@kernel
def call_mix_kept_4(total, rows, kept, at, weights, length, both):
    """mix_kept_4 or mix_both_kept_4 from Python."""
    if both:
        exclusion.mix_both_kept_4(total, rows, kept, at, weights, length)
    else:
        exclusion.mix_kept_4(total, rows, kept, at, weights, length)


def floats(random, *shape):
    return random.uniform(0.05, 2.0, shape).astype(np.float32)


@pytest.mark.parametrize("n_topics", [1, 15, 16, 33])
@pytest.mark.parametrize("group", [1, 4])
def test_the_vector_code_is_its_equations(group, n_topics):
    random = np.random.default_rng(n_topics)
    length = padded(n_topics)
    theta, own = np.zeros((2, length), np.float32)
    rows = np.zeros((6, 2, length), np.float32)
    inverse = np.zeros((6, length), np.float32)
    for array in (theta, own, rows[:, 0].T, rows[:, 1].T, inverse.T):
        array[:n_topics] = floats(random, *array[:n_topics].shape)
    words = random.permutation(6)[:group]
    at = tuple(int(2 * length * i) for i in words)
    amounts = tuple(np.float32([1, 3, 0.5, 100][:group]))
    w = theta.astype(np.float64) * rows[words, 0]
    kept = np.full(8 * length, np.nan, np.float32)
    table = kept.reshape(4, 2, length)[:group]
    dot = {1: exclusion.dot_own_1, 4: exclusion.dot_own_4}[group]
    weigh = {1: exclusion.weigh_1, 4: exclusion.weigh_4}[group]
    flat = rows.reshape(-1).copy()
    s, a = dot(theta, own, flat, inverse.reshape(-1), at, kept, length)
    m, both = np.array(amounts)[:, None], own + inverse[words]
    np.testing.assert_allclose(table, np.stack([w, w * both], axis=1), rtol=2e-6)
    found = weigh(amounts, s, a, kept, length)

    np.testing.assert_allclose(s, w.sum(axis=1), rtol=2e-6)
    np.testing.assert_allclose(a, (w**2 * both).sum(axis=1), rtol=2e-6)
    first = w.sum(axis=1, keepdims=True)
    first = first / (1 + m * (w**2 * both).sum(axis=1, keepdims=True) / first**2)
    f = 1 / (1 + m / first * w * both)
    np.testing.assert_allclose(found, (w * f).sum(axis=1), rtol=2e-6)
    np.testing.assert_allclose(table[:, 0], w * f, rtol=2e-6)
    np.testing.assert_array_equal(flat, rows.reshape(-1))

    weights = tuple(floats(random, group))
    share = np.array(weights)[:, None] * w * f
    for both in (False, True):
        total = floats(random, length)
        before = total.astype(np.float64)
        mix = {1: call_mix_kept_1, 4: call_mix_kept_4}[group]
        mix(total, flat, kept, at, weights, length, both)
        np.testing.assert_allclose(total, before + share.sum(0), rtol=3e-6)
    rows[words, 1] += share
    np.testing.assert_allclose(flat, rows.reshape(-1), rtol=3e-6)


@pytest.mark.parametrize("amount", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("inverse", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("size", [1e-12, 1.0])
def test_what_is_left_out_is_a_number_however_large_or_small(size, inverse, amount):
    length = padded(3)
    theta, own = np.zeros(length, np.float32), np.zeros(length, np.float32)
    theta[:2], own[:3] = 1.0, inverse  # the third topic has nothing of the pair
    rows = np.full(2 * length, size, np.float32)
    inverses, kept = np.full(length, inverse, np.float32), np.zeros(8 * length, np.float32)
    s, a = exclusion.dot_own_1(theta, own, rows, inverses, (0,), kept, length)
    w = kept[:length].copy()
    (found,) = exclusion.weigh_1((np.float32(amount),), s, a, kept, length)
    assert 0 <= found <= s[0] * (1 + 1e-6)
    assert (kept[:length] >= 0).all() and (kept[:length] <= w).all()


def shares(gamma, lambda_, w, amount):
    """phi with m phi = q w (1 - m phi / gamma) (1 - m phi / lambda), q by bisection."""

    def at(q):
        b, ac = 1 + q * w * (1 / gamma + 1 / lambda_), (q * w) ** 2 / (gamma * lambda_)
        return 2 * q * w / (b + np.sqrt(np.maximum(b**2 - 4 * ac, 0)))

    low, high = 1e-9, 1e9
    for _ in range(100):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if at(middle).sum() < amount else (low, middle)
    return at(high) / at(high).sum()


@pytest.mark.parametrize(("amount", "nearer"), [(0.3, 0.1), (1.0, 0.25), (4.0, 0.5)])
def test_it_comes_near_what_collapsed_inference_solves(amount, nearer):
    """The mean distance from it over pairs that are a part of their document and their word."""
    random = np.random.default_rng(0)
    before = after = 0.0
    for _ in range(200):
        w, old = random.dirichlet(np.full(8, 0.3), 2)
        gamma = 0.05 + amount * old + random.gamma(1, 5, 8)
        lambda_ = 0.05 + amount * old + random.gamma(1, 5, 8)
        exact = shares(gamma, lambda_, w, amount)
        phi = w.copy()
        exclusion.leave_out_of(phi, gamma, lambda_, amount)
        assert phi.sum() == pytest.approx(1) and (phi >= 0).all()
        before += np.abs(w - exact).sum()
        after += np.abs(phi - exact).sum()
    assert after < nearer * before


def rare_word():
    """Word 3 occurs once, in a document of topic 0, and was put into topic 1."""
    counts = np.array([[4, 0, 0, 1], [0, 15, 0, 0], [50, 0, 50, 0]], np.float32)
    phi = np.zeros((3, 4, 2))
    phi[[0, 2], :, 0] = phi[1, :, 1] = 1
    phi[0, 3] = 0, 1
    return counts, phi


@storages
@pytest.mark.parametrize(
    ("leave_out", "moves"), [("none", False), ("token", True), ("pair", True), ("excess", True)]
)
def test_a_rare_word_does_not_vote_for_itself(storage, leave_out, moves):
    counts, phi = rare_word()
    fit = play(
        counts, n_topics=2, storage=storage, inference="cvb0", power=1.0, temper_passes=0,
        alpha=0.1, eta=0.01, leave_out=leave_out,
    )  # fmt: skip
    put(fit, counts, phi)
    for _ in range(20):
        fit.run_pass()
    topics = fit.lambda_[3] - 0.01
    assert topics.sum() == pytest.approx(1, abs=1e-5)
    # By the others alone 4.1 / 104 against 0.1 / 15, with the word's own prior in both.
    assert (topics[0] > 0.7) == moves
    assert moves or topics[1] > 0.9


@storages
def test_one_token_or_the_whole_pair(storage):
    """They are the same where all counts are 1 or less, and differ where a word is repeated."""
    random = np.random.default_rng(4)
    ones = (random.random((6, 8)) < 0.6).astype(np.float32)
    ones[0, :3] = 0.25
    for counts, same in ((ones, True), (3 * ones, False)):
        lambdas = []
        for leave_out in ("token", "pair"):
            fit = play(
                counts, n_topics=3, storage=storage, inference="cvb0", leave_out=leave_out, seed=1
            )
            for _ in range(3):
                fit.run_pass()
            lambdas.append(fit.lambda_)
        assert np.array_equal(*lambdas) == same


@storages
def test_pairs_in_the_log_domain_leave_themselves_out_too(storage):
    """E(x) = x: a topic that holds 1e6 of a document and 1e-6 of a word, and the reverse."""
    counts = np.array([[1e7, 0, 2], [0, 1e7, 0], [0, 0, 1e7]], np.float32)
    phi = np.zeros((3, 3, 2))
    phi[0, :, 0] = phi[1:, :, 1] = 1
    options = {"alpha": 1e-6, "eta": 1e-6, "storage": storage, "inference": "cvb0", "power": 1.0}
    fit = play(counts, n_topics=2, temper_passes=0, leave_out="pair", **options)
    put(fit, counts, phi)
    if storage != "sparse":  # whose lists are above the prior
        fit.shared["lambda_"][:] = np.maximum(fit.lambda_, 1e-6)[fit.corpus_arrays["word_ids"]]
    scratch = fit.workers[0].scratch
    scratch.pair_phi[:] = 0
    assert_visit_is_right(fit, counts, 0, 0)


@pytest.mark.parametrize("inference", ["cvb0", "anneal"])
def test_many_passes_follow_the_oracle_and_their_entropy(inference):
    counts, _ = naive.simulate(12, 15, 3, 30, seed=1)
    options = {"n_topics": 3, "n_workers": 2, "n_blocks": 4, "inference": inference, "seed": 3}
    options |= {"leave_out": "pair", "temper_passes": 4, "cvb0_passes": 4}
    full, margins = (play(counts, storage=storage, **options) for storage in ("full", "margins"))
    lda = oracle_of(full, counts)
    order = [(p, b) for b in range(4) for p in range(2)]
    for _ in range(6):
        follow(lda, full, order)
        for fit in (full, margins):
            fit.run_pass(order)
            assert fit.bound().elbo_f == pytest.approx(lda.bound_f(), abs=0.01)
            np.testing.assert_allclose(look(fit, counts).lambda_, lda.lambda_, rtol=2e-3)
