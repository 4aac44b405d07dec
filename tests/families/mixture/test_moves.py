"""Components that are merged and split at rest."""

import numpy as np
import pytest
import scipy.sparse

from esvi_shm.families._mixture import moves, splitting
from tests.families.mixture.play import blobs, bounds, play, points_of, responsibilities


def predicted(fit, n_passes):
    """F before and after the moves of a rest, what they were to bring, and how many there were."""
    model, found = fit.layout.model, {}

    def watch(splits, merges, partner):
        into, half = moves_choose(splits, merges, partner)
        found["gain"] = splits[half >= 0].sum() + merges[into >= 0].sum()
        return into, half

    moves_choose, moves.choose = moves.choose, watch
    try:
        before = fit.bound().elbo_f
        made = fit._play(moves.script(model, fit.held, fit.corpus_arrays, fit.shared, n_passes))
    finally:
        moves.choose = moves_choose
    return before, fit.bound().elbo_f, found["gain"], made


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "multinomial", "poisson"])
@pytest.mark.parametrize("topk", [None, 3])
@pytest.mark.parametrize("n_workers", [1, 2])
def test_the_bound_rises_by_what_was_foretold(family, topk, n_workers):
    x = points_of(family, 300, 6, seed=1)
    fit = play(
        scipy.sparse.csr_matrix(x) if topk is None and family != "gaussian" else x,
        family, 8, topk=topk, n_workers=n_workers, n_blocks=n_workers, start="random", seed=3,
    )  # fmt: skip
    fit.run_pass()
    n_made = 0
    for n in range(1, 7):
        before, after, gain, made = predicted(fit, n)
        n_made += made["merges"]
        assert made["splits"] <= made["merges"]
        assert gain >= moves.LEAST_GAIN * (made["merges"] > 0)
        assert after - before == pytest.approx(gain, abs=2e-6 * abs(before) + 1e-3)
        np.testing.assert_allclose(responsibilities(fit).sum(axis=1), 1.0, rtol=1e-5)
    assert n_made > 0


def test_halves_that_overlap_bring_what_was_foretold():
    x, which = blobs(400, 2, 6, seed=2, apart=2.0)
    centres = np.array([x[which == k].mean(axis=0) for k in range(6)])
    fit = play(x, n_topics=6, means=centres[[0, 0, 0, 1, 1, 2]] + 0.05 * np.eye(6, 2))
    n_split = 0
    for n in range(1, 5):
        before, after, gain, made = predicted(fit, n)
        assert after - before == pytest.approx(gain, abs=5e-3)
        z = responsibilities(fit)
        n_split += made["splits"] * bool(((z > 0.05) & (z < 0.95)).any())
    assert n_split > 0


def test_dead_components_go_to_one_of_the_largest_and_are_not_split():
    x, _ = blobs(100, 2, 2, seed=1)
    fit = play(x, n_topics=6, means=np.vstack([x[:3], x[:3] + 500.0]))
    fit.run_pass()
    counts = fit.shared["statistics"][0].copy()
    dead = counts < 0.5
    assert 3 <= dead.sum() < 5
    before, after, gain, _ = predicted(fit, 3)
    assert (fit.shared["gains"][0][dead] == -np.inf).all()
    assert set(fit.shared["partner"][dead]) <= set(np.argsort(-counts)[:2])
    assert after - before == pytest.approx(gain, abs=5e-3)


def test_a_component_too_many_goes_where_one_is_missing():
    x, which = blobs(600, 2, 6, seed=2, apart=12.0)
    centres = np.array([x[which == k].mean(axis=0) for k in range(6)])
    means = centres[[0, 0, 1, 2, 3, 4]] + [[-0.1, 0], [0.1, 0], [0, 0], [0, 0], [0, 0], [0, 0]]
    ends = {}
    for with_moves in (False, True):
        fit = play(x, n_topics=6, means=means, moves=with_moves, covariance="spherical")
        ends[with_moves] = bounds(fit, 12)[-1]
        table = np.zeros((6, 6), int)
        np.add.at(table, (which, responsibilities(fit).argmax(axis=1)), 1)
        found = (table.max(axis=1) > 0.9 * table.sum(axis=1)).all() and len(
            set(table.argmax(axis=1))
        ) == 6
        assert found == with_moves
    assert ends[True] > ends[False] + 30


def test_moves_have_no_component_in_common():
    random = np.random.default_rng(5)
    for _ in range(200):
        K = 9
        partner = (np.arange(K) + random.integers(1, K, size=K)) % K
        splits, merges = 10 * random.normal(size=K), 10 * random.normal(size=K)
        into, half = moves.choose(splits, merges, partner)
        merged, split = np.flatnonzero(into >= 0), np.flatnonzero(half >= 0)
        touched = [*merged, *into[merged], *split]
        assert len(set(touched)) == len(touched)
        assert set(half[split]) <= set(merged)
        gain = splits[split] + merges[half[split]]
        assert (gain >= moves.LEAST_GAIN).all()
        alone = np.setdiff1d(merged, half[split])
        assert (merges[alone] >= moves.LEAST_GAIN).all()


def test_merged_responsibilities_are_added():
    z = np.array([[0.5, 0.3, 0.2], [0.0, 0.4, 0.6]], np.float32)
    wanted, into = [[0.7, 0.3, 0.0], [0.6, 0.4, 0.0]], np.array([-1, -1, 0], np.int32)
    mixing = np.zeros(3)
    splitting.mix(z, into, mixing)
    h = -0.7 * np.log(0.7) + 0.5 * np.log(0.5) + 0.2 * np.log(0.2)
    np.testing.assert_allclose(mixing, [0, 0, h], rtol=1e-6)
    ids = np.array([[0, 2, 1], [1, 2, 2]], np.int32)
    kept = np.array([[0.5, 0.2, 0.3], [0.4, 0.6, 0.0]], np.float32)
    mixing[:] = 0.0
    splitting.mix_kept(ids, kept, into, mixing)
    np.testing.assert_allclose(mixing, [0, 0, h], rtol=1e-6)
    splitting.merge(z, into)
    np.testing.assert_allclose(z, wanted, rtol=1e-6)
    splitting.merge_kept(ids, kept, into)
    out = np.zeros((2, 3))
    for i in range(2):
        np.add.at(out[i], ids[i], kept[i])
    np.testing.assert_allclose(out, wanted, rtol=1e-6)


def test_the_strict_form_makes_none():
    x, _ = blobs(40, 2, 2, seed=3)
    assert not play(x, n_topics=4, strict=True).layout.model.moves
    assert "lean" not in play(x, n_topics=4, moves=False).shared
