"""Mixtures of which each point keeps its largest responsibilities, and looks at near components."""

import numpy as np
import pytest
import scipy.sparse
from scipy.special import softmax

from esvi_shm.errors import ParameterError
from esvi_shm.families import _mixture
from esvi_shm.families._mixture import kept
from tests.families.mixture.play import blobs, bounds, play, points_of


def test_the_largest_are_kept():
    u = (3.0 * np.random.default_rng(3).normal(size=(50, 90))).astype(np.float32)
    ids, z = np.zeros((50, 4), np.int32), np.zeros((50, 4), np.float32)
    found = np.empty(91, np.int32)
    kept.keep_largest(u, ids, z, False, found)
    for i in range(50):
        assert sorted(ids[i]) == sorted(np.argsort(-u[i])[:4])
        np.testing.assert_allclose(z[i], softmax(u[i, ids[i]]), rtol=1e-5)
    kept.keep_largest(u[::-1].copy(), ids, z, False, found)  # from others that were kept
    for i in range(50):
        assert sorted(ids[i]) == sorted(np.argsort(-u[49 - i])[:4])
    kept.keep_largest(u, ids, z, True, found)
    assert all(len(set(kept_ids)) == 4 for kept_ids in ids.tolist())
    assert (z.max(axis=1) == 1).all() and (z.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(ids[np.arange(50), z.argmax(axis=1)], u.argmax(axis=1))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_near_ones_are_those_kept_their_neighbours_and_some_drawn(is_sparse):
    random = np.random.default_rng(4)
    K, C, T, M, n = 40, 3, 5, 2, 30
    t, theta = (random.normal(size=size).astype(np.float32) for size in ((n, T), (1 + T, K)))
    ids = np.array([random.choice(K, C, replace=False) for _ in range(n)], np.int32)
    z = random.dirichlet(np.ones(C), n).astype(np.float32)
    near = random.integers(K, size=(K, M)).astype(np.int32)
    before, old_z, marks = ids.copy(), z.copy(), np.zeros(K + 1, np.int64)
    buffers = np.empty(K + 1, np.int32), np.empty(K, np.float32)
    rest = near, 0, 0, 0, 0, ids, z, marks, *buffers
    if is_sparse:
        x = scipy.sparse.csr_matrix(t)
        kept.keep_near_sparse(x.indptr.astype(np.int64), x.indices, x.data, 0, theta, *rest)
    else:
        one_and_t = np.concatenate([np.ones((n, 1), np.float32), t], axis=1)
        kept.keep_near(one_and_t, np.ascontiguousarray(theta.T), *rest)
    u = t @ theta[1:] + theta[0]
    for i in range(n):
        two = before[i, np.argsort(-old_z[i])[:2]]
        looked_at = np.unique([*before[i], *near[two].ravel()])
        best = looked_at[np.argsort(-u[i, looked_at])[:C]]
        assert sorted(ids[i]) == sorted(best)
        np.testing.assert_allclose(z[i], softmax(u[i, ids[i]]), rtol=1e-5)
    assert (ids != before).any()


def test_drawn_ones_find_what_is_far():
    K, ids, z = 50, np.zeros((400, 1), np.int32), np.ones((400, 1), np.float32)
    theta = np.zeros((K, 2), np.float32)
    theta[49, 0] = 1.0  # better than all others, and nobody's neighbour
    near, marks = np.zeros((K, 1), np.int32), np.zeros(K + 1, np.int64)
    t = np.array([[1.0, 0.0]] * 400, np.float32)
    buffers = np.empty(51, np.int32), np.empty(50, np.float32)
    for pass_ in range(40):
        kept.keep_near(t, theta, near, 1, pass_, 0, 4, ids, z, marks, *buffers)
    assert (ids == 49).mean() > 0.9


def test_what_hardly_changes_is_left_as_it_was():
    t, sums, change = np.ones((2, 2), np.float32), np.zeros((3, 2)), np.zeros(3, np.float32)
    old_ids, old_z = np.array([[0, 1], [0, 1]], np.int32), np.array([[1, 0], [1, 0]], np.float32)
    ids = np.array([[2, 0], [2, 0]], np.int32)
    z = np.array([[1e-7, 1 - 1e-7], [0.25, 0.75]], np.float32)
    kept.add_changes(t, ids, z, old_ids, old_z, change, sums)
    assert ids.tolist() == [[0, 1], [2, 0]] and z.tolist() == [[1, 0], [0.25, 0.75]]
    assert sums.tolist() == [[-0.25, -0.25], [0, 0], [0.25, 0.25]] and not change.any()


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_bound_never_falls_and_what_is_left_out_is_told(family, is_sparse):
    x = points_of(family, 300, 5, seed=5)
    fit = play(
        scipy.sparse.csr_matrix(x) if is_sparse else x, family, 30, topk=3, dense_passes=1, seed=2
    )
    model = fit.layout.model
    assert [n for n in range(14) if not model.is_near(n)] == [0, 10]
    found = np.array(bounds(fit, 13))
    assert (np.diff(found) >= -1e-6 * abs(found[0])).all() and found[-1] > found[1] + 1
    ending = model.ending(13, fit.held, fit.arrays, None)
    assert ending["scored"] == "near" and ending["left_out"]["points"] == 300
    bound = fit.bound()
    per_point = (bound.elbo - bound.elbo_f) / 300
    assert ending["left_out"]["elbo_gap"] == pytest.approx(per_point, rel=1e-2, abs=1e-6)
    assert 0 < ending["left_out"]["mass"] < 1


def test_near_components_end_where_all_end():
    x, _ = blobs(600, 3, 12, seed=6, apart=4.0)
    ends = [
        bounds(play(x, n_topics=24, topk=4, dense_passes=n, n_passes=40), 40)[-1] for n in (2, 40)
    ]
    assert ends[0] == pytest.approx(ends[1], rel=2e-3)


def test_neighbours_are_those_that_score_a_component_best():
    x, _ = blobs(300, 2, 6, seed=7)
    fit = play(x, n_topics=12, topk=2, dense_passes=0)
    near = fit.shared["near"]
    assert near.shape == (12, 8) and all(k not in near[k] for k in range(12))
    statistics, theta = fit.shared["statistics"], fit.shared["theta"]
    u = (statistics[1:] / statistics[0]).T @ theta[1:] + theta[0]
    np.fill_diagonal(u, -np.inf)
    for k in range(12):
        assert sorted(near[k]) == sorted(np.argsort(-u[k])[:8])


def test_dense_passes_must_come_with_topk():
    x, _ = blobs(20, 2, 2, seed=8)
    with pytest.raises(ParameterError, match="dense_passes must come with topk, got 3"):
        play(x, dense_passes=3)
    assert _mixture.DENSE_PASSES == play(x, topk=2).layout.model.first_near
