"""Storage `topk`: what is kept is the largest, no mass is lost, and F is that of the phi held.

That it is `full` where all topics are kept is tested where `full` is: `play` keeps all by default.
"""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.families.lda import largest, repair, topk
from esvi_shm.families.lda.likeness import STAYS
from esvi_shm.runtime import serial
from esvi_shm.runtime.layout import lay_out
from esvi_shm.vector import padded
from tests import naive
from tests.families.lda.play import (
    assert_sums_hold,
    bound_noise,
    cases,
    documents_of,
    follow,
    look,
    oracle_of,
    play,
    priors_of,
    stored_phi,
    words_of,
)
from tests.families.lda.test_recovery import farthest_topic
from tests.families.lda.test_visits import expected_phi

residuals = pytest.mark.parametrize("residual", ["spread", "drop"])
COUNTS, _ = naive.simulate(60, 40, 4, 60, seed=0)


@st.composite
def topk_cases(draw, **options):
    """A case with some number of topics to keep and a residual."""
    case = draw(cases(**options))
    case.options |= {
        "storage": "topk",
        "topk": draw(st.integers(1, case.options["n_topics"])),
        "residual": draw(st.sampled_from(["spread", "drop"])),
    }
    return case


@st.composite
def rows_with_ties(draw):
    """Rows with equal numbers, zeros and tiny ones, and topics that were kept before."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_topics = draw(st.integers(1, 40))
    row = 10.0 ** random.uniform(draw(st.sampled_from([-40, -6, -0.01])), 0, n_topics)
    row[random.random(n_topics) < draw(st.sampled_from([0, 0.5, 0.95]))] = 0
    equal = random.random(n_topics) < draw(st.sampled_from([0, 0.3, 1]))
    row[equal] = draw(st.sampled_from([0.25, 1e-30]))
    row[random.integers(n_topics)] = 0.5
    n_kept = draw(st.integers(1, n_topics))
    before = random.permutation(n_topics)[:n_kept]
    if draw(st.booleans()):
        before = random.permutation(np.argsort(-row)[:n_kept])
    return row.astype(np.float32), before


def keep(x, kept, values, n_topics, drop):
    """`largest.keep_largest` of one row."""
    rows = kept[None], values[None]
    return largest.keep_largest(x, x.view(np.int32), *rows, 0, n_topics, drop)


@residuals
@given(given_row=rows_with_ties())
def test_the_largest_are_kept_and_the_shares_sum_to_one(residual, given_row):
    row, before = given_row
    n_topics, n_kept = len(row), len(before)
    x = np.zeros(padded(n_topics), np.float32)
    x[:n_topics] = row
    kept, values = before.astype(np.uint8), np.full(n_kept, np.nan, np.float32)
    limit, scale, rest = keep(x, kept, values, n_topics, residual == "drop")
    assert len(set(kept.tolist())) == n_kept and kept.max() < n_topics
    # Of equal ones any may be kept, so values are compared.
    wanted = np.sort(row)[::-1][:n_kept].astype(np.float64)
    np.testing.assert_allclose(np.sort(row[kept])[::-1], wanted, rtol=0, atol=0)
    shares = row / row.sum(dtype=np.float64)
    total = wanted.sum() if residual == "drop" else row.sum(dtype=np.float64)
    np.testing.assert_allclose(values, row[kept] / total, rtol=2e-6, atol=1e-44)
    others = 0.0
    if residual == "spread" and n_kept < n_topics:
        others = np.delete(shares, kept).sum() / (n_topics - n_kept)
    assert rest == pytest.approx(others, rel=3e-6, abs=1e-44)
    # Those above the limit are those that are kept, but for zeros.
    above = np.flatnonzero(x.view(np.int32) > limit)
    assert set(above) <= set(kept) and (row[np.setdiff1d(kept, above)] == 0).all()
    assert scale == pytest.approx(1 / total, rel=2e-6)


def test_what_is_still_the_largest_is_not_looked_for():
    """The order in which topics are kept stays, and nothing changes."""
    x = np.zeros(16, np.float32)
    x[:5] = 5, 1, 4, 2, 3
    kept = np.array([4, 0, 2], np.uint8)
    keep(x, kept, np.zeros(3, np.float32), 5, False)
    assert kept.tolist() == [4, 0, 2]
    x[1] = 9
    keep(x, kept, np.zeros(3, np.float32), 5, False)
    assert kept.tolist() == [0, 1, 2]


def assert_largest_are_kept(fit, counts, worker, block):
    """A visit leaves the largest responsibilities of each pair, by the equations."""
    before = look(fit, counts)
    phi, room = expected_phi(fit, before, counts, worker, block, fit.shared["eta"].sum())
    fit.visit(worker, block)
    after, held = look(fit, counts), stored_phi(fit)
    n_topics, n_kept = fit.config.n_topics, fit.config.topk
    entropy = 0.0
    words = words_of(fit, block)
    for d in documents_of(fit, worker):
        for v in words[counts[d, words] > 0]:
            order = np.argsort(-held[d, v], kind="stable")
            top, others = order[:n_kept], order[n_kept:]
            error = room[d, v].max() + 1e-6
            # Nothing that is left out was larger; equal ones differ by rounding.
            if len(others):
                assert phi[d, v, others].max() <= phi[d, v, top].min() + 2 * error
            left = 1 - phi[d, v, top].sum()
            total = 1 - left if fit.config.residual == "drop" else 1
            shared = left / max(len(others), 1) * (fit.config.residual == "spread")
            np.testing.assert_allclose(
                held[d, v, top], phi[d, v, top] / total, atol=2 * n_topics * error / total
            )
            np.testing.assert_allclose(held[d, v, others], shared, atol=n_topics * error)
            np.testing.assert_allclose(held[d, v].sum(), 1, atol=2e-6)
            entropy -= counts[d, v] * naive._x_log_x(held[d, v]).sum()
    assert after.entropy[worker, block] == pytest.approx(entropy, rel=1e-5, abs=1e-5)
    # gamma, lambda and pi move by the change of the phi held.
    tokens = max(1.0, counts.max())
    near = {"rtol": 2e-6, "atol": 4e-6 * tokens}
    doc, word = after.phi_doc - before.phi_doc, after.phi_word - before.phi_word
    np.testing.assert_allclose(after.gamma, before.gamma + doc.sum(axis=1), **near)
    np.testing.assert_allclose(after.lambda_, before.lambda_ + word.sum(axis=0), **near)
    near["atol"] = 4e-6 * max(1.0, counts.sum())
    np.testing.assert_allclose(after.pi, before.pi + word.sum(axis=1), **near)


@given(case=topk_cases(most_count=1e3))
def test_each_visit_keeps_the_largest(case):
    fit = case.fit(settle=1)  # so that lambda stays as it is in a visit
    for worker, block in case.orders[0]:
        assert_largest_are_kept(fit, case.counts, worker, block)


@residuals
@pytest.mark.parametrize("n_kept", [1, 3])
@pytest.mark.parametrize("inference", ["vb", "cvb0"])
def test_schedules_give_the_iterates_of_the_equations(residual, n_kept, inference):
    """Of a start without ties: a topic more or less is no rounding."""
    fit = play(
        COUNTS, n_topics=8, storage="topk", topk=n_kept, residual=residual, start="random",
        inference=inference, n_workers=2, n_blocks=3, temper_passes=4,
    )  # fmt: skip
    lda = oracle_of(fit, COUNTS)
    lda.keep = n_kept, residual
    order = [(p, b) for b in range(3) for p in range(2)]
    for _ in range(5):
        follow(lda, fit, order)
        fit.run_pass(order)
        np.testing.assert_allclose(fit.gamma, lda.gamma, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(fit.lambda_, lda.lambda_, rtol=1e-3, atol=1e-3)
        wanted = lda.bound_f()
        assert fit.bound().elbo_f == pytest.approx(wanted, rel=1e-6)


@settings(max_examples=40)
@given(case=topk_cases())
def test_sums_hold_and_the_bound_is_that_of_the_phi_held(case):
    fit, counts = case.fit(), case.counts
    noise = bound_noise(counts)
    for order in [[], *case.orders]:
        fit.run_pass(order)
        bound, lda = fit.bound(), oracle_of(fit, counts)
        assert_sums_hold(fit, counts)
        assert bound.elbo_f == pytest.approx(lda.bound_f(), rel=1e-7, abs=noise)
        assert bound.elbo >= bound.elbo_f - noise
        gamma, lambda_ = fit.gamma.astype(np.float64), fit.lambda_.astype(np.float64)
        wanted = naive.bound_l(counts, gamma, lambda_, *priors_of(fit))
        near = 1e-5 + 1e-6 * float(gamma.sum() + lambda_.sum())
        assert bound.elbo == pytest.approx(wanted, rel=1e-7, abs=near)


@given(case=topk_cases(least_prior=0.1, most_count=50))
def test_refolds_and_learned_priors_keep_the_sums(case):
    options = {"refold_after": (1,), "learn_priors": "both", "n_passes": 2, "evaluate_every": 1}
    options |= {"inference": "vb", "temper_passes": 0, "alpha": 0.3, "eta": 0.2}
    fit = case.fit(**options)
    fit.run_pass(case.orders[0])
    before = fit.bound()
    fit.rest(1)
    assert_sums_hold(fit, case.counts)
    # A learned prior may be small, and its float32 in gamma and lambda is not its float64.
    noise = 3 * bound_noise(case.counts)
    assert fit.bound().elbo_f == pytest.approx(
        oracle_of(fit, case.counts).bound_f(), rel=1e-7, abs=noise
    )
    assert np.isfinite(before).all()


@residuals
def test_bounds_lie_below_the_exact_evidence(residual):
    for seed in range(4):
        counts = np.random.default_rng(seed).multinomial(7, np.full(9, 1 / 9)).reshape(3, 3)
        fit = play(
            counts, n_topics=2, n_workers=2, n_blocks=2, storage="topk", topk=1,
            residual=residual, alpha=0.5, eta=0.5, seed=seed,
        )  # fmt: skip
        evidence = naive.log_evidence(counts, np.full(2, 0.5), np.full(3, 0.5))
        for _ in range(4):
            bound = fit.bound()
            assert bound.elbo_f <= bound.elbo + 1e-4 <= evidence + 2e-4
            fit.run_pass()


@residuals
def test_simulated_topics_are_recovered(residual):
    counts, topics = naive.simulate(200, 60, 4, 100, seed=0)
    fits = [
        play(counts, n_topics=4, n_workers=2, n_blocks=3, storage="topk", topk=2,
             residual=residual, seed=seed)
        for seed in range(4)
    ]  # fmt: skip
    for fit in fits:
        for _ in range(40):
            fit.run_pass()
    best = max(fits, key=lambda fit: fit.bound().elbo)
    # Dropping makes the assignments harder: it ends a little farther off.
    assert farthest_topic(best.lambda_, topics) < {"spread": 0.1, "drop": 0.15}[residual]


@pytest.mark.parametrize("start", ["seeded", "spread", "scikit-learn", "random"])
def test_every_start_and_noise(start):
    fit = play(
        COUNTS, n_topics=6, n_workers=2, n_blocks=3, storage="topk", topk=2, start=start,
        noise=0.5, noise_passes=3, residual="drop",
    )  # fmt: skip
    assert_sums_hold(fit, COUNTS)
    for _ in range(3):
        fit.run_pass()
        wanted = oracle_of(fit, COUNTS).bound_f()
        assert fit.bound().elbo_f == pytest.approx(wanted, rel=1e-6)
        assert_sums_hold(fit, COUNTS)


def held(rows, n_kept):
    """Responsibilities (n, K) as the storage keeps them, without the pairs that full.phi has."""
    order = np.argsort(-rows, axis=1, kind="stable")[:, :n_kept].astype(np.uint8)
    values = np.take_along_axis(rows, order.astype(int), axis=1).astype(np.float32)
    others = (1 - values.sum(axis=1)) / max(rows.shape[1] - n_kept, 1)
    return order, values, others.astype(np.float32)


def expanded(phi, n_topics):
    out = np.repeat(phi[2][:, None].astype(float), n_topics, axis=1)
    np.put_along_axis(out, phi[0].astype(int), phi[1], axis=1)
    return out


ROWS = np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6], [0.05, 0.05, 0.3, 0.6]])


def test_what_a_freed_topic_kept_is_taken_over():
    phi = held(ROWS, 2)
    topk.take_over(phi, np.array([1, STAYS, 0, STAYS]))
    # Both kept; neither the freed one nor its heir; and then topic 2 gives to topic 0, not kept.
    wanted = [[0, 0.8, 0.1, 0.1], [0.2, 0.1, 0.1, 0.6], [0.3, 0.05, 0.05, 0.6]]
    np.testing.assert_allclose(expanded(phi, 4), wanted, atol=1e-6)
    dense = (ROWS.astype(np.float32).copy(),)
    repair.take_over(dense, np.array([1, STAYS, 0, STAYS]))
    phi = held(ROWS, 4)
    topk.take_over(phi, np.array([1, STAYS, 0, STAYS]))
    np.testing.assert_allclose(expanded(phi, 4), dense[0], atol=1e-6)


def test_what_is_lent_is_the_same_share_and_the_largest_are_kept():
    topics = np.array([1, 2])
    dense = (ROWS.astype(np.float32).copy(),)
    repair.lend(dense, topics, 4)
    for n_kept in (4, 2):
        phi = held(ROWS, n_kept)
        before = expanded(phi, 4)
        topk.lend(phi, topics, 4)
        lent = (1 - repair.LENT) * before
        lent[:, topics] += repair.LENT / 2
        if n_kept == 4:
            np.testing.assert_allclose(lent, dense[0], atol=1e-6)
        wanted = naive.keep_largest(lent, n_kept, "spread")
        np.testing.assert_allclose(expanded(phi, 4), wanted, atol=1e-6)


@residuals
def test_a_repair_is_tried_and_undone_to_the_bit(residual, monkeypatch):
    fit = play(
        COUNTS, n_topics=5, n_workers=2, n_blocks=3, storage="topk", topk=2, residual=residual,
        repair_after=(30,), n_passes=60, seed=1,
    )  # fmt: skip
    for _ in range(30):
        fit.run_pass()
    fit.bound()
    freed = np.array([STAYS, 0, STAYS, STAYS, STAYS])
    monkeypatch.setattr(repair.likeness, "choose_moves", lambda *_: freed.copy())
    objectives = iter([-1.0, -2.0])
    evaluate = fit.layout.model.evaluate

    def worse(*arguments):
        return (yield from evaluate(*arguments))._replace(objective=next(objectives))

    before = look(fit, COUNTS)
    monkeypatch.setattr(fit.layout.model, "evaluate", worse)
    assert fit.rest(30) == {"repairs_tried": 1, "repairs_kept": 0}
    for now, then in zip(look(fit, COUNTS), before, strict=True):
        np.testing.assert_array_equal(now, then)
    objectives = iter([-2.0, -1.0])
    assert fit.rest(30) == {"repairs_tried": 1, "repairs_kept": 1}
    assert_sums_hold(fit, COUNTS)
    monkeypatch.undo()
    assert fit.bound().elbo_f == pytest.approx(oracle_of(fit, COUNTS).bound_f(), rel=1e-6)


def arrays_of(n_topics, **options):
    config = FitConfig(n_topics=n_topics, n_workers=1, n_blocks=1, **options)
    table = lay_out(Corpus.from_sparse(COUNTS), config).tables["state_0"]
    return {spec.name: spec for spec in table}


@pytest.mark.parametrize(
    ("n_topics", "bytes_a_topic"), [(1, 1), (256, 1), (257, 2), (65536, 2), (65537, 4)]
)
def test_memory_is_that_of_what_is_kept(n_topics, bytes_a_topic):
    n_pairs = np.count_nonzero(COUNTS)
    arrays = arrays_of(n_topics, storage="topk", topk=1)
    assert arrays.keys() == {"gamma", "kept_topic", "kept", "rest"}
    assert arrays["kept_topic"].n_bytes == bytes_a_topic * n_pairs
    assert arrays["kept"].n_bytes == arrays["rest"].n_bytes == 4 * n_pairs


def test_a_quarter_is_kept_by_default_in_a_third_of_the_memory():
    arrays, full = arrays_of(128, storage="topk"), arrays_of(128, storage="full")
    assert arrays["kept"].shape[1] == arrays["kept_topic"].shape[1] == 32
    phi = sum(arrays[name].n_bytes for name in ("kept_topic", "kept", "rest"))
    assert phi < full["phi"].n_bytes / 3
    assert [arrays_of(k, storage="topk")["kept"].shape[1] for k in (1, 4, 5)] == [1, 1, 2]


@pytest.mark.parametrize("n_topics", [2, 256, 257, 65536, 65537])
def test_kernels_are_compiled_for_the_types_of_the_fit(n_topics):
    """Before the clock runs: numbers of topics are kept in as many bytes as need be."""
    toy = []
    with (
        mock.patch.object(serial, "SerialFit", side_effect=lambda _, config: toy.append(config)),
        pytest.raises(AttributeError),
    ):
        serial.warm_up(FitConfig(n_topics=n_topics, storage="topk", topk=2))
    assert np.min_scalar_type(toy[0].n_topics - 1) == np.min_scalar_type(n_topics - 1)
    families.find("lda").check(toy[0])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topk": 0}, "topk must be at least 1, got 0"),
        ({"topk": 6}, "topk must be at most the number of topics, 5, got 6"),
        ({"topk": 2.0}, "topk must be a whole number, got 2.0"),
        ({"residual": "keep"}, "residual must be one of drop, spread, got 'keep'"),
    ],
)
def test_bad_input(options, says):
    with pytest.raises(ParameterError) as raised:
        families.find("lda").check(FitConfig(n_topics=5, storage="topk", **options))
    assert str(raised.value) == says


def test_what_has_no_effect_is_told():
    config = FitConfig(n_topics=5, storage="full", topk=2, residual="drop")
    without_effect = families.find("lda").without_effect
    assert [text % tuple(values) for text, *values in without_effect(config)] == [
        "topk has no effect with storage full",
        "residual has no effect with storage full",
    ]
    config = replace(config, storage="topk")
    assert without_effect(config) == []
    ((text, *values),) = without_effect(replace(config, leave_out="pair"))
    assert text % tuple(values) == "leave_out has no effect with storage topk"
    assert without_effect(replace(config, inference="cvb0", leave_out="none")) == []
    ((text, *values),) = without_effect(replace(config, inference="cvb0"))
    says = "leave_out excess, the default of cvb0, has no effect with storage topk"
    assert text % tuple(values) == says
