"""Mixtures on several nodes, without a transport; see `test_nodes`."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from esvi_shm.config import FitConfig
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.families._mixture.part import HeldPart, join
from esvi_shm.mixture import FittedMixture
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import Points, as_points
from esvi_shm.runtime import engine
from esvi_shm.runtime.rows import Copied
from tests.families.mixture.play import FAMILIES, blobs, play, points_of
from tests.runtime.meeting import Meeting, fit_together, part_of

X, GROUPS = blobs(240, 3, 4, seed=8)
POINTS = as_points(X)
CONFIG = FitConfig(6, family="gaussian", n_workers=1, n_blocks=3, n_passes=8, tol=0.0)


def options(**given):
    return {"mixture": MixtureOptions(**given)}


def is_whole(results, points, config):
    """One model of all points, with statistics and a bound that are those of its z."""
    first = results[0]
    counts = sum(
        z.sum(axis=0, dtype=float)
        if ids is None
        else np.bincount(ids.ravel(), z.ravel(), config.n_topics)
        for result in results
        for z, ids in zip(result.learned.responsibilities, result.learned.kept, strict=True)
    )
    np.testing.assert_allclose(first.learned.statistics[0], counts, rtol=1e-5, atol=1e-4)
    assert first.learned.statistics[0].sum() == pytest.approx(points.n_points, rel=1e-5)
    for other in results[1:]:
        assert [r[3:6] for r in other.history] == [r[3:6] for r in first.history]
        assert other.stopped == first.stopped and other.at_rest == first.at_rest
        np.testing.assert_allclose(
            other.learned.statistics, first.learned.statistics, rtol=1e-9, atol=1e-9
        )
    model = FittedMixture.from_result(first, points)
    assert len(model.labels) == points.n_points
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_workers": 2, "n_blocks": 4},
        options(covariance="full"),
        options(strict=True) | {"n_blocks": 2},
        options(moves=False) | {"topk": 3, "storage": "topk"},
        {"topk": 3, "dense_passes": 2, "n_passes": 12},
    ],
    ids=["plain", "workers", "full", "strict", "kept", "near"],
)
def test_nodes_end_where_one_does(changes, monkeypatch):
    config = replace(CONFIG, **changes)
    # The same start, for the points are dealt out in another order.
    means = X[:: len(X) // 6][:6]
    mixture = replace(config.mixture or MixtureOptions(), means=means)
    config = replace(config, mixture=mixture)
    results, _ = fit_together(POINTS, config, 2, monkeypatch)
    one = engine.fit(POINTS, config)
    model = is_whole(results, POINTS, config)
    assert results[0].history[-1].elbo == pytest.approx(one.history[-1].elbo, rel=0.03)
    first, last = results[0].history[0].elbo, results[0].history[-1].elbo
    assert last > first - 1e-7 * abs(first)  # float32 statistics, in whatever order they come
    found = model.predict(X)
    assert (found == model.labels).mean() > 0.97  # in the order of the points
    if "topk" in changes:
        assert results[0].ending == results[1].ending
        assert results[0].ending["left_out"]["points"] == 240


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sparse", [False, True])
def test_every_family_and_sparse_points(family, sparse, monkeypatch):
    x = points_of(family, 90, 5, seed=3)
    points = as_points(scipy.sparse.csr_matrix(x) if sparse else x)
    config = FitConfig(4, family=family, n_workers=1, n_passes=4, tol=0.0)
    results, meeting = fit_together(points, config, 3, monkeypatch)
    is_whole(results, points, config)
    one = engine.fit(points, config)
    assert results[0].history[-1].elbo == pytest.approx(one.history[-1].elbo, rel=0.1)
    assert {node for _, node in meeting.visits} == {0, 1, 2}


@pytest.mark.parametrize("is_sparse", [False, True])
def test_points_are_fetched_from_the_node_that_has_them(is_sparse):
    points, meeting, found = POINTS, Meeting(2), [None, None]
    if is_sparse:
        points = as_points(scipy.sparse.csr_matrix(X * (X > 0)))
    numbers = np.array([239, 0, 150, 3])

    def fetch(rank):
        own = join(part_of(points, CONFIG, rank, 2), meeting.peers[rank])
        held = HeldPart(own, lambda local: own.rows(local).astype(np.float64), [], np.float32)
        assert held.n_points == 240
        there = np.zeros(4)
        there[held.here(numbers)[0]] = rank
        held.sum_into(there)
        assert there.tolist() == [1, 0, 1, 0]
        assert held.agree(np.array([rank + 7])).tolist() == [7]
        found[rank] = held.rows(numbers)

    other = threading.Thread(target=fetch, args=(1,))
    other.start()
    fetch(0)
    other.join()
    for rows in found:
        dense = rows.toarray() if is_sparse else rows
        expected = (X * (X > 0) if is_sparse else X)[numbers]
        np.testing.assert_allclose(dense, expected, rtol=1e-6)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_priors_are_those_of_all_points(covariance, monkeypatch):
    config = replace(CONFIG, n_passes=0, **options(covariance=covariance))
    results, _ = fit_together(POINTS, config, 3, monkeypatch)
    one = engine.fit(POINTS, config).learned
    for result in results:
        for name, array in one.prior.items():
            np.testing.assert_allclose(result.learned.prior[name], array, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.learned.centre, one.centre, atol=1e-12)


def test_moves_are_the_same_at_all_nodes_and_raise_the_bound(monkeypatch):
    # Two of these random points are of one group.
    config = replace(CONFIG, n_topics=4, n_passes=7, start="random")
    (without, _), _ = fit_together(POINTS, replace(config, **options(moves=False)), 2, monkeypatch)
    results, _ = fit_together(POINTS, config, 2, monkeypatch)
    is_whole(results, POINTS, config)
    assert results[0].at_rest["merges"] > 0
    assert results[0].history[-1].elbo > without.history[-1].elbo + 10.0


def test_strict_never_falls_on_several_nodes(monkeypatch):
    config = replace(CONFIG, n_blocks=3, n_passes=12, evaluate_every=1, **options(strict=True))
    results, _ = fit_together(POINTS, config, 2, monkeypatch)
    bounds = [r.elbo_f for r in results[0].history]
    assert (np.diff(bounds) > -1e-3).all()
    assert bounds[-1] > bounds[0] + 1.0


def test_blocks_regroup_when_every_node_has_all_statistics():
    fit = play(X, n_topics=6, n_blocks=3, strict=True)
    sizes = replace(fit.layout.sizes, n_nodes=2)
    model, before = type(fit.layout.model)(fit.config, sizes), fit.shared["members"].copy()
    yielded = []
    for order in model.at_rest(fit.held, fit.corpus_arrays, fit.shared, 1, None):
        yielded.append(order if isinstance(order, str) else "sum over nodes")
        if len(yielded) < 5:
            assert (fit.shared["members"] == before).all()
    assert yielded == ["sum", "sum over nodes", "settle", "refresh", "refresh"]
    assert (fit.shared["members"] != before).any()


def test_columns_of_all_nodes_are_in_the_order_of_node_0(monkeypatch):
    half, names = len(X) // 2, ["sea", "hill", "rum"]
    parts = [Points(X[:half], features=names), Points(X[half:, ::-1], features=names[::-1])]
    results, _ = fit_together(POINTS, CONFIG, 2, monkeypatch, parts=parts)
    model = FittedMixture.from_result(results[0], Points(X, features=names))
    # Whatever the order of the visits, of all components together.
    off = X - X.mean(axis=0)
    np.testing.assert_allclose(model.centre, X.mean(axis=0), rtol=1e-6)
    squares = model.statistics[1 + len(names) :].sum(axis=1)
    np.testing.assert_allclose(squares, (off * off).sum(axis=0), rtol=1e-4)
    turned = Points(X[:, [2, 0, 1]], features=["rum", "sea", "hill"])
    np.testing.assert_array_equal(model.predict(turned), model.predict(X))
    parts[1] = Points(X[half:], features=["sea", "hill", "ale"])
    with pytest.raises(CorpusError, match="must have the features sea, hill, rum; got sea, hill"):
        fit_together(POINTS, CONFIG, 2, monkeypatch, parts=parts)


def test_held_out_points_judge_at_node_0_and_stop_all(monkeypatch):
    seen = []

    def judge(statistics, prior, centre):
        assert statistics[0].sum() == pytest.approx(240, rel=1e-5)
        seen.append(len(seen))
        return 1.0 + len(seen)

    def never(*_):
        raise AssertionError("node 0 is to be asked")

    config = replace(
        CONFIG, evaluate_every=2, patience=1, n_passes=50, restarts=2, restart_passes=2
    )
    results, _ = fit_together(POINTS, config, 2, monkeypatch, [judge, never])
    assert [r.stopped for r in results] == ["patience", "patience"]
    assert len(seen) == len(results[1].history) == 2
    assert results[0].restarts == results[1].restarts and len(results[0].restarts) == 2


def test_few_points_at_a_node_and_few_components_for_its_workers(monkeypatch):
    # Node 1 has fewer points than there are blocks: their chunks are empty, and yet they come by.
    parts = [Points(POINTS.values[:238]), Points(POINTS.values[238:])]
    config = replace(CONFIG, n_topics=2, n_workers=3, n_blocks=None)
    results, meeting = fit_together(POINTS, config, 2, monkeypatch, parts=parts)
    is_whole(results, POINTS, config)
    assert [r.config.n_workers for r in results] == [3, 2]
    assert results[0].config.n_blocks == 2
    assert results[0].passes == results[1].passes == 8
    assert sum(node for _, node in meeting.visits) == 2 * 8


@pytest.mark.parametrize(
    ("other", "rule"),
    [
        (as_points(np.zeros((3, 2))), "node 1 has dense points of 2 features, node 0 dense ones"),
        (as_points(scipy.sparse.csr_matrix(np.eye(3))), "node 1 has sparse points of 3 features"),
        (Points(np.empty((0, 3))), "every node must have a point, node 1 has none"),
    ],
)
def test_points_that_do_not_go_together_are_refused(other, rule, monkeypatch):
    with pytest.raises(CorpusError, match=rule):
        fit_together(POINTS, CONFIG, 2, monkeypatch, parts=[POINTS, other])


def test_more_components_than_points_of_all_nodes_are_refused(monkeypatch):
    few = as_points(X[:5])
    with pytest.raises(ParameterError, match="number of points, 5, got 6"):
        fit_together(few, CONFIG, 2, monkeypatch)


def test_what_nodes_cannot_do_is_refused(monkeypatch):
    with pytest.raises(ParameterError, match="deterministic cannot be used on several nodes"):
        fit_together(POINTS, replace(CONFIG, deterministic=True), 2, monkeypatch)


def test_a_limit_of_memory_is_kept_at_every_node(monkeypatch):
    config = replace(CONFIG, n_passes=0, max_memory=2**20)
    with pytest.raises(
        ParameterError, match=r"max_memory must be at least .* MiB \(points, 1 workers"
    ):
        fit_together(POINTS, config, 2, monkeypatch)


class Arrays:
    """What `rows` needs of a segment."""

    def __init__(self, arrays):
        self.arrays = arrays


@pytest.mark.parametrize("members", [range(6), (4, 0, 2, 5, 1, 3)])
def test_a_block_takes_its_statistics_along(members):
    fit = play(X, n_topics=6, n_blocks=2)
    fit.shared["members"][:] = members
    at_home = {name: array.copy() for name, array in fit.shared.items()}
    fit.shared["statistics"] += 1.0
    here, there = (Copied(fit.layout, Arrays(a), fit.corpus_arrays) for a in (fit.shared, at_home))
    packed = here.pack(1)
    assert len(packed) == here.most(1) == 3 * 7 * 8
    there.unpack(1, packed)
    came = np.isin(np.arange(6), members[3:])
    np.testing.assert_array_equal(at_home["statistics"][:, came], fit.shared["statistics"][:, came])
    np.testing.assert_array_equal(
        at_home["statistics"][:, ~came] + 1.0, fit.shared["statistics"][:, ~came]
    )
    with pytest.raises(ValueError, match="they take 168 bytes, got 160"):
        there.unpack(1, packed[:160])
