"""Mixtures: the update, the bound, the two forms, one worker and several."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, psi, softmax

from esvi_shm.config import FitConfig
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.families._mixture import kernels
from esvi_shm.families._mixture.counts import log_factorials
from esvi_shm.families.contract import Bound
from esvi_shm.families.gaussian import Gaussian
from esvi_shm.families.multinomial import Multinomial
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import as_points
from esvi_shm.runtime import engine
from esvi_shm.runtime.memory import peak_bytes
from esvi_shm.shared.ring import LINE_WORDS
from tests import naive
from tests.families.mixture.play import FAMILIES, blobs, bounds, play, points_of, responsibilities


def prior_of(fit):
    arrays = fit.corpus_arrays
    m0, scale = arrays["prior_mean"] + arrays["centre"], arrays["prior_scale"]
    return m0, arrays["prior_mean_precision"][0], 0.5, 0.5 * scale


def test_it_ends_where_batch_inference_ends():
    x, _ = blobs(120, 2, 3, seed=1, apart=2.0)
    fit = play(x, n_workers=2, n_blocks=3)
    z = responsibilities(fit).astype(float)
    reference, bound = naive.diagonal_batch(x, z, *prior_of(fit), 1 / 3, 400)
    found = bounds(fit, 400)
    # A merge of two goes into either one: they are told apart by their points.
    by_size = [z[:, np.argsort(z.sum(axis=0))] for z in (responsibilities(fit), reference)]
    np.testing.assert_allclose(*by_size, atol=2e-3)
    assert found[-1] == pytest.approx(bound, rel=1e-6)


def test_the_bound_is_that_of_the_formulas():
    x, _ = blobs(60, 3, 2, seed=2)
    fit = play(x)
    fit.run_pass()
    z = responsibilities(fit).astype(float)
    _, wanted = naive.diagonal_batch(x, z, *prior_of(fit), 1 / 3, 0)
    found = fit.bound()
    assert found.elbo_f == pytest.approx(wanted, rel=1e-6)
    posterior = naive.diagonal_posterior(x, z, *prior_of(fit))
    u = naive.diagonal_scores(x, posterior, 1 / 3 + z.sum(axis=0))
    log_z = np.log(np.maximum(z, 1e-300))
    gap = np.logaddexp.reduce(u, axis=1).sum() - (z * (u - log_z)).sum()
    assert found.elbo - found.elbo_f == pytest.approx(gap, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("n_workers", [1, 3])
def test_the_bound_never_falls_with_one_worker_or_in_the_strict_form(family, strict, n_workers):
    if n_workers > 1 and not strict:
        return  # nothing is promised
    fit = play(
        points_of(family, 90, 5, seed=3), family, 6, n_workers=n_workers, n_blocks=3, strict=strict
    )
    found = np.array(bounds(fit, 12))
    assert (np.diff(found) >= -1e-6 * abs(found[0])).all()
    assert found[-1] > found[0] + (0.1 if strict else 1.0)  # strict is slow


@pytest.mark.parametrize("covariance", ["spherical", "full"])
def test_the_bound_never_falls_with_other_covariances(covariance):
    fit = play(points_of("gaussian", 90, 3, seed=4), n_topics=5, covariance=covariance)
    found = np.array(bounds(fit, 12))
    assert (np.diff(found) >= -1e-6 * abs(found[0])).all()


def test_lemma_1_keeps_the_mass_of_a_subset():
    random = np.random.default_rng(0)
    z = random.dirichlet(np.ones(6), 4).astype(np.float32)
    z[3, [1, 4]] = 0.0
    before, u = z.copy(), random.normal(size=(4, 2))
    change, columns = u.copy(), np.array([1, 4])
    kernels.respond(change, z, columns, False)
    mass = before[:, columns].sum(axis=1)
    weights = np.exp(u) / np.exp(u).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(z[:, columns], mass[:, None] * weights, rtol=1e-5)
    others = [0, 2, 3, 5]
    np.testing.assert_array_equal(z[:, others], before[:, others])
    np.testing.assert_allclose(change, z[:, columns] - before[:, columns], atol=1e-7)


def test_a_strict_visit_is_lemma_1_on_its_block():
    x = points_of("poisson", 40, 4, seed=10)
    fit = play(x, "poisson", 6, n_workers=2, n_blocks=2, strict=True)
    bounds(fit, 2)
    fit.layout.model.n_steps = lambda worker: 1
    before, statistics = responsibilities(fit), fit.shared["statistics"].copy()
    columns = fit.layout.model.columns(fit.shared, 1)
    fit.visit(1, 1)
    after = responsibilities(fit)
    half = fit.corpus_arrays["order"][30:40]  # the second chunk of the second shard
    kind = fit.layout.model.make_kind(fit.corpus_arrays)
    found = kind.expect(statistics[0, columns], statistics[1:, columns])
    u = x[half] @ found.theta + found.constant + psi(1 / 6 + statistics[0, columns])
    mass = before[half][:, columns].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(after[half][:, columns], mass * softmax(u, axis=1), atol=1e-5)
    assert abs(after - before).max() > 1e-3
    untouched = np.ones_like(before, bool)
    untouched[np.ix_(half, columns)] = False
    np.testing.assert_array_equal(after[untouched], before[untouched])
    change = after.sum(axis=0, dtype=float) - before.sum(axis=0, dtype=float)
    np.testing.assert_allclose(fit.shared["statistics"][0] - statistics[0], change, atol=1e-4)


@settings(max_examples=12)
@given(
    st.sampled_from(FAMILIES), st.integers(1, 3), st.integers(1, 4),
    st.sampled_from(["all", "strict", "top"]), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_mass_and_statistics_hold(family, n_workers, n_blocks, form, is_sparse, seed):
    strict, topk = form == "strict", 3 if form == "top" else None
    x = points_of(family, 40, 3, seed)
    matrix = scipy.sparse.csr_matrix(x) if is_sparse else x
    fit = play(
        matrix,
        family,
        8,
        n_workers=n_workers,
        n_blocks=n_blocks,
        strict=strict,
        topk=topk,
        seed=seed,
    )
    order = [(p, b) for b in range(n_blocks) for p in range(n_workers)]
    np.random.default_rng(seed).shuffle(order)
    bounds(fit, 2, order)
    for p, b in order:  # and amid a pass
        fit.visit(p, b)
    z = responsibilities(fit)
    assert (z >= 0).all()
    np.testing.assert_allclose(z.sum(axis=1), 1.0, rtol=1e-5)
    totals = fit.shared["statistics"] + fit.shared["pending"].sum(axis=0)
    kind = fit.layout.model.make_kind(fit.corpus_arrays)
    shift = fit.corpus_arrays["centre"]
    t = kind.features(np.asarray(x - shift))
    np.testing.assert_allclose(totals[0], z.sum(axis=0, dtype=float), rtol=1e-4, atol=1e-4)
    wanted = t.T.astype(float) @ z
    np.testing.assert_allclose(totals[1:], wanted, rtol=1e-4, atol=1e-3 * abs(t).max())
    assert sorted(fit.shared["members"]) == list(range(8))
    if strict:
        assert abs(fit.shared["pending"]).max() == 0
    assert (fit.shared["versions"][:, 0] % 2 == 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_one_component_has_the_exact_evidence(family):
    x = points_of(family, 30, 4, seed=5)
    fit = play(x, family, 1, n_workers=2, n_blocks=1)
    fit.run_pass()
    found = fit.bound()
    assert isinstance(found, Bound)
    assert found.elbo == pytest.approx(found.elbo_f, rel=1e-7)
    kind = fit.layout.model.make_kind(fit.corpus_arrays)
    t = kind.features(x - fit.corpus_arrays["centre"]).astype(float)
    evidence = kind.expect(np.array([30.0]), t.sum(axis=0)[:, None]).gain[0]
    assert found.elbo == pytest.approx(evidence + kind.log_base(x).sum(), rel=1e-6)


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_simulated_groups_are_found(family, n_workers):
    random = np.random.default_rng(6)
    which = random.integers(3, size=400)
    if family == "gaussian":
        x = 8.0 * np.eye(3)[which] + random.normal(size=(400, 3))
    else:
        high, low = {"bernoulli": (0.9, 0.1)}.get(family, (6.0, 0.5))
        means = np.where(np.repeat(np.eye(3), 5, axis=1) > 0, high, low)[which]
        x = random.random(means.shape) < means if family == "bernoulli" else random.poisson(means)
    fit = play(x.astype(float), family, 3, n_workers=n_workers, n_blocks=n_workers)
    bounds(fit, 15)
    table = np.zeros((3, 3))
    np.add.at(table, (which, responsibilities(fit).argmax(axis=1)), 1)
    assert table.max(axis=1).sum() >= 390
    assert len(set(table.argmax(axis=1))) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_sparse_points_give_what_dense_ones_give(family):
    x = points_of(family, 50, 6, seed=7)
    x[x < 0.5] = 0.0
    prior = {"mean_prior": np.zeros(6)} if family == "gaussian" else {}
    scale = {"covariance_prior": np.ones(6)} if family == "gaussian" else {}
    means = x[:3]
    found = []
    for matrix in (x, scipy.sparse.csr_matrix(x)):
        fit = play(matrix, family, 3, means=means, **prior, **scale)
        fit.layout.model.n_steps = lambda worker: 2
        bounds(fit, 60)
        z = responsibilities(fit)
        # What is split and merged in the end may have another number.
        found.append((z[:, np.argsort(z.sum(axis=0))], fit.bound().elbo))
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-5)
    np.testing.assert_allclose(found[0][0], found[1][0], atol=5e-3)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_all_kept_is_the_same_as_all_held_and_fewer_still_climb(covariance):
    x = points_of("gaussian", 80, 3, seed=13)
    found = [
        bounds(play(x, n_topics=6, topk=topk, covariance=covariance, n_blocks=2), 10)
        for topk in (None, 6, 2)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    fewer = np.array(found[2])
    assert (np.diff(fewer) >= -1e-6 * abs(fewer[0])).all() and fewer[-1] > fewer[0] + 1


def test_what_memory_has_no_room_for_is_kept_by_its_largest(caplog):
    x = np.random.default_rng(1).normal(size=(100_000, 2))
    asked = FitConfig(64, family="gaussian", n_workers=1)
    layout = engine.plan(as_points(x), asked)
    assert layout.config.storage == "full"
    layout = engine.plan(as_points(x), replace(asked, max_memory=peak_bytes(layout) - 6 * 2**20))
    assert (layout.config.storage, layout.config.topk) == ("topk", 16)
    assert "taking storage topk with 16 kept" in caplog.text
    assert layout.tables["state_0"]["ids"].shape == (100_000, 16)


def test_a_torn_block_is_not_read():
    versions = np.zeros(LINE_WORDS, np.int64)
    columns, theta = np.arange(2), np.ones((3, 2), np.float32)
    buffer, own = np.empty((3, 2), np.float32), np.zeros((3, 2), np.float32)
    versions[0] = 5  # its owner is writing
    assert kernels.copy_block(versions, 0, columns, theta, buffer, own, 4) == -1
    assert (own == 0).all()
    mine = np.zeros((3, 2), np.float32)
    kernels.publish(versions, 0, columns, np.full(2, 2.0), np.full((2, 2), 2.0), theta, mine)
    assert versions[0] == 7
    assert (mine == 2).all()
    versions[0] = 8
    assert kernels.copy_block(versions, 0, columns, theta, buffer, own, 4) == 8
    assert (own == 2).all()


def test_an_owner_looks_at_what_others_have_pending_and_leaves_it_there():
    fit = play(blobs(200, 2, 3, seed=1)[0], n_topics=4, n_workers=3, n_blocks=3, moves=False)
    fit.visit(1, 1)  # leaves something pending of block 0
    fit.visit(2, 2)
    elsewhere = fit.shared["pending"][1:].copy()
    fit.visit(0, 0)
    columns = fit.layout.model.columns(fit.shared, 0)
    assert abs(elsewhere[:, 0, columns]).max() > 0.1
    np.testing.assert_array_equal(fit.shared["pending"][1:], elsewhere)
    known = fit.shared["statistics"][:, columns] + elsewhere[:, :, columns].sum(axis=0)
    found = fit.workers[0].kind.expect(np.maximum(known[0], 0.0), known[1:])
    np.testing.assert_allclose(fit.shared["theta"][1:, columns], found.theta, rtol=1e-6)


def test_what_is_being_added_is_not_looked_at():
    pendings, adding = np.ones((3, 2, 4)), np.zeros((3, LINE_WORDS), np.int64)
    own, part, found = np.full((2, 2), 10.0), np.empty((2, 2)), np.empty((2, 2))
    for columns in (np.array([1, 2]), np.array([0, 3])):
        at = 3, 1, columns, own, part, found, 4
        assert kernels.look(pendings, adding.reshape(-1), *at)
        np.testing.assert_array_equal(found, own + 2)
    adding[2, 0] = 1
    assert not kernels.look(pendings, adding.reshape(-1), *at)
    adding[1, 0], adding[2, 0] = 1, 0  # of the one that asks
    assert kernels.look(pendings, adding.reshape(-1), *at)
    kernels.add_products(np.ones((2, 4), np.float32), pendings[0], adding.reshape(-1), 0)
    assert adding[0, 0] == 2 and (pendings[0] == 2).all()


def test_parameters_stay_as_they_are_where_nothing_could_be_looked_at():
    fit = play(blobs(200, 2, 3, seed=1)[0], n_topics=4, n_workers=2, n_blocks=2, moves=False)
    before = fit.shared["theta"].copy()
    fit.shared["adding"][1, 0] = 1
    fit.visit(0, 0)
    np.testing.assert_array_equal(fit.shared["theta"], before)
    fit.shared["adding"][1, 0] = 2
    fit.visit(0, 1)
    columns = fit.layout.model.columns(fit.shared, 1)
    assert (fit.shared["theta"][:, columns] != before[:, columns]).any()


BAD = [
    ({"n_topics": 21}, ParameterError, "n_topics must be at most the number of points, 20"),
    ({"covariance": "tied"}, ParameterError, "covariance must be one of diag, full, spherical"),
    ({"start": "spread"}, ParameterError, "start must be one of random, seeded"),
    ({"alpha": 0.3}, ParameterError, "alpha has no meaning with family gaussian, got 0.3"),
    ({"mean_prior": [1.0]}, ParameterError, "mean_prior must have a number for each of the 2"),
    ({"mean_precision_prior": 0}, ParameterError, "mean_precision_prior must be greater than 0"),
    ({"mean_precision_prior": 1e300}, ParameterError, "mean_precision_prior must lie between"),
    ({"weight_concentration_prior": 1e300}, ParameterError, "must lie between 1e-12 and 1e"),
    ({"degrees_of_freedom_prior": np.inf}, ParameterError, "must lie between .*, got inf"),
    (
        {"mean_prior": [1e9, 0.0]},
        ParameterError, "mean_prior must lie within 100000 standard deviations of the mean",
    ),
    (
        {"means": [[0.0, 0.0], [0.0, 1e300], [0.0, 0.0]]},
        ParameterError, r"means must lie within 100000 standard deviations .*, got \d.*e\+",
    ),
    ({"covariance_prior": [1.0, 1e-300]}, ParameterError, "covariance_prior must lie between"),
    (
        {"covariance": "full", "covariance_prior": [[1.0, 0.0], [0.0, 1e30]]},
        ParameterError, "covariance_prior must lie between",
    ),
    ({"covariance_prior": [1.0, -1.0]}, ParameterError, "covariance_prior must be greater than 0"),
    (
        {"covariance": "full", "covariance_prior": [[1.0, 2.0], [2.0, 1.0]]},
        ParameterError, "covariance_prior must be symmetric and positive definite",
    ),
    (
        {"covariance": "full", "degrees_of_freedom_prior": 1.0},
        ParameterError, "degrees_of_freedom_prior must be greater than the number of features - 1",
    ),
    ({"means": np.zeros((2, 2))}, ParameterError, "means must have a row for each of the 3"),
    ({"means": np.zeros((3, 1))}, ParameterError, "means must have shape"),
    ({"means": [[np.nan]]}, ParameterError, "means must be finite, got nan"),
    ({"topk": 4}, ParameterError, "topk must be at most the number of components, 3"),
    ({"topk": 2, "strict": True}, ParameterError, "storage must be full where strict"),
    ({"topk": 2, "storage": "full"}, ParameterError, "topk has no meaning with storage full"),
    ({"storage": "margins"}, ParameterError, "storage must be one of full, topk"),
    ({"feature_prior": 1.0}, ParameterError, "feature_prior is for counts only"),
    ({"strict": True, "n_blocks": 2}, ParameterError, "n_blocks must be at most 1: strict"),
    ({"family": "poisson"}, CorpusError, r"must be whole numbers from 0 to 1e.30, got .* in row 0"),
    ({"family": "bernoulli"}, CorpusError, "must be 0 or 1, got .* in row 0, column 0"),
    (
        {"family": "poisson", "covariance_prior": 1.0},
        ParameterError, "covariance_prior is for family gaussian only",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "wrong", "most"), [("poisson", -1.0, "1e"), ("multinomial", 1e300, "1e"),
                                  ("bernoulli", 2.0, "1,")],
)  # fmt: skip
def test_means_to_start_from_that_no_counts_have_are_refused(family, wrong, most):
    x, means = points_of(family, 20, 2, seed=1), np.full((2, 2), 0.5)
    play(x, family, 2, means=means)
    means[1, 0] = wrong
    with pytest.raises(ParameterError, match=f"means must lie between 0 and {most}.* got "):
        play(x, family, 2, means=means)


@pytest.mark.parametrize(("options", "error", "message"), BAD)
def test_bad_input_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        play(blobs(20, 2, 2, seed=9)[0], **{"n_topics": 3, **options})


def test_full_takes_no_sparse_points():
    with pytest.raises(CorpusError, match="covariance full takes dense points only"):
        play(scipy.sparse.csr_matrix(np.eye(5)), covariance="full")


@pytest.mark.parametrize("covariance", ["diag", "spherical", "full"])
def test_constant_columns_and_equal_points_are_floored_and_said(covariance, caplog):
    x = np.ones((30, 3))
    x[:, 1] = np.repeat([0.0, 1.0, 5.0], 10)
    fit = play(x, covariance=covariance, n_topics=4)
    assert np.isfinite(bounds(fit, 5)).all()
    assert "2 of 3 features are constant, or nearly so (the first is column 0)" in caplog.text


def test_one_point_has_its_prior_and_no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = play(np.ones((1, 2)), covariance="full", n_topics=1)
    assert np.isfinite(bounds(fit, 2)).all()


def test_a_visit_merges_only_what_may_be_pending(monkeypatch):
    fit = play(blobs(200, 2, 3, seed=1)[0], n_topics=4, n_workers=2, n_blocks=2, moves=False)
    merged = []
    for worker in fit.workers:
        merge = worker._merge

        def noted(block, *given, merge=merge, worker=worker):
            merged.append((worker.p, block))
            merge(block, *given)

        monkeypatch.setattr(worker, "_merge", noted)
    steps = fit.layout.model.n_steps(0)
    fit.visit(0, 0)  # nothing is pending, and all are known
    assert merged == [(0, 0)] * steps
    fit.visit(0, 1)  # of this block something is
    fit.visit(1, 0)  # and this one another worker has written
    assert merged[steps:] == [(0, 1)] * (1 + steps) + [(1, 0)] * (1 + steps)


def test_options_go_into_the_configuration_and_out_again():
    options = MixtureOptions(mean_prior=[1, 2], strict=True)
    assert FitConfig(mixture=options).as_dict()["mixture"]["mean_prior"] == [1.0, 2.0]
    with pytest.raises(ParameterError, match="strict must be True or False, got 'no'"):
        MixtureOptions(strict="no")


@pytest.mark.parametrize("family", ["poisson", "multinomial"])
def test_the_bound_of_large_counts_is_that_of_exact_sums(family):
    random = np.random.default_rng(0)
    x = random.poisson(1e5 * np.exp(0.3 * random.standard_normal((2, 6)))[np.arange(400) % 2])
    dense, sparse = (
        bounds(play(points, family=family, n_topics=2, moves=False), 4)[-1]
        for points in (x.astype(float), scipy.sparse.csr_matrix(x.astype(float)))
    )
    assert dense == pytest.approx(sparse, rel=1e-6) and dense < 0.0


def test_the_bound_of_points_far_from_the_centre_is_that_of_exact_sums():
    """In one dimension diag and full are the same model, and full sums in float64."""
    random = np.random.default_rng(1)
    x = np.concatenate([random.normal(0, 1, 4000), random.normal(300, 1, 200)])[:, None]
    options = {"n_topics": 2, "moves": False, "covariance_prior": np.array([1.0])}
    diag = bounds(play(x, covariance="diag", **options), 6)[-1]
    options["covariance_prior"] = np.array([[1.0]])
    full = bounds(play(x, covariance="full", **options), 6)[-1]
    assert diag == pytest.approx(full, abs=0.05)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_features_may_have_any_scales(covariance, caplog):
    random = np.random.default_rng(2)
    x = np.column_stack([random.normal(0, 1e4, 600), np.repeat([0.0, 1.0], 300)])
    x[:, 1] += random.normal(0, 0.05, 600)
    scaled = x * [1.0, 1e4]
    found = [
        play(points, covariance=covariance, n_topics=2, moves=False,
             means=np.array([points[:300].mean(axis=0), points[300:].mean(axis=0)]))
        for points in (x, scaled)
    ]  # fmt: skip
    for fit in found:
        bounds(fit, 5)
        labels = responsibilities(fit).argmax(axis=1)
        assert len(set(labels[:300])) == len(set(labels[300:])) == 1
        assert labels[0] != labels[-1]
    assert "constant" not in caplog.text


def test_the_prior_of_all_forms_is_divided_by_one_point_less():
    points = as_points([[0.0], [1.0], [5.0]])
    scales = [
        Gaussian.find_prior(points, MixtureOptions(covariance=form))["scale"].item()
        for form in ("diag", "spherical", "full")
    ]
    assert scales == pytest.approx([7.0] * 3)


def test_large_counts_are_told_of(caplog):
    play(np.array([[3e5, 1.0], [1.0, 2e5]]), family="poisson", n_topics=1)
    assert "scores of counts as large as 3e+05 are rounded" in caplog.text


def test_constants_of_counts_do_not_depend_on_the_type_of_the_points():
    x = np.array([[2.0**24, 4.0, 1.0], [2.0**24 - 2, 7.0, 1.0]])
    wanted = -gammaln(x + 1.0).sum(axis=1)
    of_rows = gammaln(x.sum(axis=1) + 1.0) + wanted
    kind = Multinomial(3, MixtureOptions(), {"feature": np.ones(1), "mean": np.ones(3)})
    for points in (x, x.astype(np.float32), scipy.sparse.csr_matrix(x.astype(np.float32))):
        np.testing.assert_allclose(-log_factorials(points), wanted, rtol=1e-14)
        np.testing.assert_allclose(kind.log_base(points), of_rows, rtol=1e-9)
