"""Storage `sparse`: gamma, lambda and the margins as lists of topics."""

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import esvi_shm
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.estimators import LDA
from esvi_shm.families.lda import Model, listed, listing
from esvi_shm.families.lda.cut import Cut
from esvi_shm.model import FittedModel
from esvi_shm.parameters import Parameters
from tests.families.lda.play import assert_sums_hold, bound_noise, cases, look, play, priors_of
from tests.naive import simulate

COUNTS, _ = simulate(60, 80, 6, 40, seed=3)
CORPUS = Corpus.from_sparse(csr_matrix(COUNTS), [f"w{v}" for v in range(COUNTS.shape[1])])


def lists_of(n_rows: int, places: int, prior: np.ndarray) -> listed.Listed:
    """Rows that are at the prior, with so many places each."""
    first = np.arange(n_rows + 1) * places
    return listed.Listed(
        first,
        np.zeros(n_rows, np.int32),
        np.zeros(n_rows, np.float32),
        np.zeros(first[-1] + 1, np.uint16),
        np.zeros(first[-1] + 1, np.float32),
        prior,
        np.zeros(n_rows),
        None,
    )


def put_row(lists: listed.Listed, i: int, row: np.ndarray, rest: float = 0.0) -> None:
    """List what of a row is above the prior and the rest."""
    topics = np.flatnonzero(row > lists.prior + np.float32(rest))
    places = slice(lists.first[i], lists.first[i] + len(topics))
    lists.topics[places], lists.values[places] = topics, row[topics]
    lists.size[i], lists.rest[i] = len(topics), rest


def as_chosen(row, prior, places, spread=False, among=False):
    """A row listed and read again; which topics have a place, and how much had none."""
    lists, own = lists_of(1, places, prior), np.zeros(len(row) + 16, np.int32)
    if among:
        own[: len(row)] = np.arange(len(row))
        n, total = listing.choose_among(row, prior, places, own, len(row))
    else:
        bits = np.zeros((1, -(-len(row) // 64)), np.int64)
        n, total = listing.choose_topics(lists, 0, row, bits, own)
    moved = listing.put_row(lists, 0, row, own, n, total, spread)
    return listed.ListedRows(lists)[0], own[:n], moved


@st.composite
def rows(draw):
    """A row and its prior, float32: some topics at the prior, some equal, some far apart."""
    n_topics = draw(st.integers(1, 150))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    prior = (10.0 ** random.uniform(-3, 0, n_topics)).astype(np.float32)
    above = 10.0 ** random.uniform(-draw(st.integers(0, 9)), 2, n_topics)
    above[random.random(n_topics) < draw(st.floats(0, 1))] = draw(st.sampled_from([0.0, 0.25]))
    return (prior + above).astype(np.float32), prior


@settings(max_examples=300)
@given(case=rows(), places=st.integers(1, 160), spread=st.booleans(), among=st.booleans())
def test_a_row_keeps_its_sum_and_its_largest_topics(case, places, spread, among):
    row, prior = case
    made, chosen, moved = as_chosen(row, prior, places, spread, among)
    above, kept, n = row - prior, made - prior, len(chosen)
    assert n <= places and (made >= prior).all()
    assert (np.diff(chosen) > 0).all()
    assert kept.sum(dtype=float) == pytest.approx(above.sum(dtype=float), rel=1e-5, abs=1e-5)
    if (above > 0).sum() <= places:
        np.testing.assert_array_equal(made, row)
        assert moved == 0
        return
    others = np.delete(above, chosen).max(initial=0.0)
    assert above[chosen].min() >= others * 0.99
    # Places are left where what is next is not worth one, or where it is hardly told from others.
    if n < 0.8 * places:
        near = (above > others * 0.99).sum()
        assert others <= 1.001e-5 * above.sum(dtype=float) or near > places * 7 // 8


@st.composite
def changes(draw):
    """A row of sums, one of a margin that is a part of it, and what the latter becomes.

    (sums, old, new, prior, rests, places): most often the margin has the same topics before and
    after, as in most visits, or it gains and loses some.
    """
    n_topics = draw(st.integers(1, 150))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    prior = np.zeros(n_topics, np.float32)
    if draw(st.booleans()):
        prior = random.uniform(0.01, 1, n_topics).astype(np.float32)
    rest, more = (draw(st.sampled_from([0.0, 0.0, 0.25])) for _ in range(2))
    old = np.where(random.random(n_topics) < draw(st.floats(0, 1)), random.integers(1, 9), 0.0)
    others = np.where(random.random(n_topics) < draw(st.floats(0, 1)), random.integers(1, 9), 0.0)
    stays = random.random(n_topics) < draw(st.sampled_from([1.0, 0.9, 0.0]))
    new = np.where(stays, old > 0, random.random(n_topics) < 0.3) * random.integers(1, 9, n_topics)
    old = np.maximum(old, rest)
    rows = (prior + old + others + more).astype(np.float32), old.astype(np.float32)
    return *rows, new.astype(np.float32), prior, (more, rest)


@settings(max_examples=500)
@given(case=changes(), zeros=st.booleans(), spread=st.booleans())
def test_a_row_of_sums_follows_its_margin(case, zeros, spread):
    sums, old, new, prior, (more, rest) = case
    n_topics = len(prior)
    shares = lists_of(3, n_topics, np.zeros(n_topics, np.float32))
    shares = shares._replace(window=listed.make_window(prior))
    totals = lists_of(3, n_topics, prior)
    put_row(shares, 1, old, rest)
    put_row(totals, 1, sums, more + rest)
    # A topic that a visit has asked for may have come to nothing.
    topics = np.flatnonzero((new > 0) | (zeros & (old > rest))).astype(np.int32)
    behind = np.concatenate([topics, np.zeros(1, np.int32)])
    values = np.concatenate([new[topics], np.ones(1, np.float32)])
    whole = np.maximum(sums.astype(float) - old + new, prior + new)
    totals.tokens[1] = (whole - prior).sum()
    outside = listing.change_row(
        totals, 1, shares, 1, behind, 0, values, len(topics), np.float32(0), spread
    )
    assert outside == pytest.approx((0.0, 0.0), abs=1e-6)
    made = listed.ListedRows(shares)[1]
    np.testing.assert_array_equal(made, new)
    np.testing.assert_allclose(listed.ListedRows(totals)[1], whole, rtol=1e-5, atol=1e-5)
    for lists in (shares, totals):
        assert lists.size.tolist()[::2] == [0, 0]  # the rows beside it
        chosen = lists.topics[lists.first[1] : lists.first[1] + lists.size[1]].astype(int)
        assert (np.diff(chosen) > 0).all()
        assert (listed.ListedRows(lists)[1][chosen] > lists.prior[chosen]).all()
    assert (shares.window.word == 0).all()


@settings(max_examples=200)
@given(case=changes(), places=st.integers(1, 150), spread=st.booleans())
def test_a_row_of_sums_without_room_keeps_its_tokens(case, places, spread):
    """Even where it had already lost topics of which its margin has some."""
    sums, old, new, prior, _ = case
    n_topics = len(prior)
    shares = lists_of(2, n_topics, np.zeros(n_topics, np.float32))
    shares = shares._replace(window=listed.make_window(prior))
    totals = lists_of(2, min(places, n_topics), prior)
    put_row(shares, 0, old)
    made, own = sums.copy(), np.zeros(n_topics + 16, np.int32)
    bits = np.zeros((1, -(-n_topics // 64)), np.int64)
    n, total = listing.choose_topics(totals, 0, made, bits, own)
    listing.put_row(totals, 0, made, own, n, total, False)
    whole = (sums - prior).sum(dtype=float) - old.sum(dtype=float) + new.sum(dtype=float)
    totals.tokens[0] = whole
    topics = np.append(np.flatnonzero(new), 0).astype(np.int32)
    listing.change_row(
        totals, 0, shares, 0, topics, 0, new[topics], len(topics) - 1, np.float32(0), spread
    )
    after = (listed.ListedRows(totals)[0] - prior).sum(dtype=float)
    assert totals.size[0] <= places
    if totals.size[0] > 0:
        assert after == pytest.approx(whole, rel=1e-3, abs=1e-3)


def test_what_has_no_place_goes_in_proportion_or_evenly_to_the_others():
    row = np.array([4, 2, 1, 1, 0.5, 0.5], np.float32)
    prior = np.zeros(6, np.float32)
    made, chosen, moved = as_chosen(row, prior, 2)
    assert (chosen.tolist(), moved) == ([0, 1], 3)
    np.testing.assert_allclose(made, [6, 3, 0, 0, 0, 0])
    made, _, _ = as_chosen(row, prior, 2, spread=True)
    np.testing.assert_allclose(made, [4, 2, 0.75, 0.75, 0.75, 0.75])
    # No limit tells the largest apart.
    some = np.array([0, 0.5, 0, 0.5, 0.5, 0], np.float32)
    for among in (False, True):
        assert as_chosen(some, prior, 2, among=among)[1].tolist() == [1, 3]
    made, _, _ = as_chosen(some, prior, 2, spread=True)
    np.testing.assert_allclose(made, [0.125, 0.5, 0.125, 0.5, 0.125, 0.125])


def test_where_all_topics_are_listed_they_have_all_tokens():
    row, prior = np.array([3, 2, 1], np.float32), np.ones(3, np.float32)
    for total in (2.7, 3.3):  # more or less than they have
        lists = lists_of(1, 3, prior)
        listing.put_row(lists, 0, row, np.arange(3, dtype=np.int32), 3, np.float32(total), True)
        assert lists.rest[0] == 0
        assert (listed.ListedRows(lists)[0] - 1).sum() == pytest.approx(total, rel=1e-6)


def test_rows_are_looked_at_as_those_of_a_matrix():
    random = np.random.default_rng(0)
    prior = random.random(70).astype(np.float32)
    lists, matrix = lists_of(5, 20, prior), np.tile(prior, (5, 1))
    for i in range(5):
        topics = np.sort(random.choice(70, 4 * i, replace=False))
        matrix[i] += lists.rest[i]
        matrix[i, topics] = random.random(len(topics)) + 2
        lists.size[i] = len(topics)
        lists.topics[20 * i : 20 * i + len(topics)] = topics
        lists.values[20 * i : 20 * i + len(topics)] = matrix[i, topics]
    rows = listed.ListedRows(lists)
    assert rows.shape == (5, 70) and len(rows) == 5
    np.testing.assert_array_equal(np.asarray(rows), matrix)
    np.testing.assert_array_equal(rows[1:4], matrix[1:4])
    for i in (0, 3, -1):
        np.testing.assert_array_equal(rows[i], matrix[i])
    some = np.array([4, 0, 4, 2])
    np.testing.assert_array_equal(rows[some], matrix[some])
    np.testing.assert_array_equal(rows.columns(30, 70), matrix[:, 30:])
    np.testing.assert_allclose(rows.sum(axis=0, dtype=np.float64), matrix.sum(axis=0), rtol=1e-6)
    assert rows.min(initial=9.0) == matrix.min() and rows.min(initial=-1.0) == -1.0
    levels = random.random(5).astype(np.float32)
    above = listed.ListedRows(lists, levels)
    np.testing.assert_array_equal(above[some], matrix[some] + levels[some, None])
    np.testing.assert_array_equal(above.columns(0, 7), matrix[:, :7] + levels[:, None])
    assert rows[3:1].shape == (0, 70)
    with pytest.raises(IndexError):
        rows[5]
    with pytest.raises(ValueError, match="step 2"):
        rows[::2]


@settings(max_examples=30)
@given(case=cases(max_topics=listed.SPARE, least_prior=0.05))
def test_where_every_topic_has_a_place_it_is_margins(case):
    fits = [case.fit(storage=storage) for storage in ("margins", "sparse")]
    for order in case.orders:
        for fit in fits:
            fit.run_pass(order)
        # The same sums, which the compiler may put together in another order; the smaller a prior,
        # the more each pass makes of that.
        near = {"rtol": 2e-3, "atol": 1e-5 * case.counts.max()}
        for one, other in zip(*(look(fit, case.counts)[:5] for fit in fits), strict=True):
            np.testing.assert_allclose(one, other, **near)
    noise = bound_noise(case.counts)
    np.testing.assert_allclose(fits[0].bound(), fits[1].bound(), rtol=1e-5, atol=noise)


@pytest.mark.parametrize("inference", ["vb", "anneal"])
def test_its_active_sets_are_those_of_margins(inference):
    options = {
        "n_topics": 8, "n_workers": 2, "n_blocks": 3, "inference": inference, "dense_passes": 3,
        "alpha": 0.05, "eta": 0.05, "cvb0_passes": 6, "seed": 1,
    }  # fmt: skip
    fits = [play(COUNTS, storage=storage, **options) for storage in ("margins", "sparse")]
    for _ in range(10):
        for fit in fits:
            fit.run_pass()
        # What is above the prior by rounding is listed here, and nowhere there.
        near = {"rtol": 1e-3, "atol": 2e-3}
        for one, other in zip(*(look(fit, COUNTS)[:5] for fit in fits), strict=True):
            np.testing.assert_allclose(one, other, **near)
    np.testing.assert_allclose(fits[0].bound(), fits[1].bound(), rtol=1e-5)
    assert all(fit.shared["active_visits"].all() for fit in fits)


@settings(max_examples=40)
@given(case=cases(max_topics=90), dense_passes=st.sampled_from([None, 0, 1]))
def test_every_token_stays_one_where_places_are_short(case, dense_passes):
    assume(case.options["n_topics"] > 2 * listed.SPARE)
    fit = play(case.counts, **{**case.options, "storage": "sparse", "dense_passes": dense_passes})
    counts, n_topics = case.counts.astype(float), fit.config.n_topics
    alpha, eta = priors_of(fit)
    of_documents, of_words = counts.sum(axis=1), counts.sum(axis=0)

    def assert_sums(share):
        """What moves by changes drifts by a share of the counts, until it is summed up again."""
        seen = look(fit, case.counts)
        room = {"rtol": 1e-4, "atol": 1e-4}
        np.testing.assert_allclose(seen.phi_doc.sum(axis=(1, 2)), of_documents, **room)
        np.testing.assert_allclose(seen.phi_word.sum(axis=(0, 2)), of_words, **room)
        room = {"rtol": share, "atol": share * max(counts.max(), 1.0)}
        np.testing.assert_allclose(seen.gamma.sum(axis=1), of_documents + alpha.sum(), **room)
        np.testing.assert_allclose(seen.lambda_.sum(axis=1), of_words + n_topics * eta, **room)
        np.testing.assert_allclose(seen.lambda_, eta[:, None] + seen.phi_word.sum(axis=0), **room)
        np.testing.assert_allclose(seen.pi, seen.phi_word.sum(axis=1), **room)
        assert (seen.gamma >= alpha.astype(np.float32)).all() and np.isfinite(seen.gamma).all()
        assert (seen.phi_doc >= 0).all() and (seen.phi_word >= 0).all()

    assert_sums(1e-4)
    for order in case.orders:
        fit.run_pass(order)
        assert_sums(1e-2)
        assert np.isfinite(fit.bound()).all()
        assert_sums(1e-4)
    for worker in fit.workers:
        for lists in (worker.gamma, *worker.phi):
            assert (lists.size <= np.diff(lists.first)).all()
            for i, n in enumerate(lists.size):
                topics = lists.topics[lists.first[i] : lists.first[i] + n].astype(int)
                assert (np.diff(topics) > 0).all() and (topics < n_topics).all()
        window = worker.gamma.window
        assert not window.phi.any() and not window.word.any()
        assert (window.gamma == alpha.astype(np.float32)).all()


@pytest.mark.parametrize("inference", ["vb", "cvb0"])
def test_a_document_has_its_tokens_from_pass_to_pass(inference):
    """More is taken from gamma than was kept of it, where that is less than of its margins."""
    options = {"n_topics": 60, "n_blocks": 3, "alpha": 0.5, "eta": 0.1, "seed": 2}
    fit = play(COUNTS, storage="sparse", inference=inference, power=0.6, **options)
    for _ in range(10):
        fit.run_pass()
    tokens = fit.gamma.sum(axis=1, dtype=float) - 30.0
    np.testing.assert_allclose(tokens, COUNTS.sum(axis=1), rtol=1e-3, atol=1e-3)


def test_the_end_tells_what_had_no_place_and_the_bound_is_near_that_of_margins():
    options = {"n_topics": 40, "n_blocks": 2, "alpha": 0.5, "eta": 0.1, "inference": "vb"}
    fits = [play(COUNTS, storage=storage, **options) for storage in ("margins", "sparse")]
    shares = []
    for n_passes in range(1, 31):
        for fit in fits:
            fit.run_pass()
        model, arrays = fits[1].layout.model, fits[1].arrays
        ending = model.ending(n_passes, fits[1].held, arrays, model.learned(arrays))
        shares.append(ending["without_place"])
    for name in ("gamma", "phi_doc", "phi_word"):
        assert 0.5 > shares[0][name] > shares[-1][name] >= 0
    assert "without_place" not in fits[0].layout.model.ending(30, None, fits[0].arrays, None)
    margins, sparse = (fit.bound().elbo for fit in fits)
    assert sparse == pytest.approx(margins, rel=0.02)


def test_what_a_worker_keeps_does_not_depend_on_the_number_of_topics():
    corpus = Corpus.from_sparse(COUNTS)

    def n_bytes(n_topics, storage):
        config = FitConfig(n_topics, n_workers=1, n_blocks=2, storage=storage)
        model = Model(config, Cut(corpus, config).sizes)
        return sum(spec.n_bytes for spec in model.shard_specs(0))

    # Each topic's number takes two bytes in both.
    assert n_bytes(1000, "sparse") == n_bytes(60_000, "sparse") < n_bytes(1000, "margins") / 15
    # Few topics take no more places than there are topics.
    assert n_bytes(2, "sparse") < 4 * n_bytes(2, "margins")


def test_a_repair_is_refused():
    config = FitConfig(3, storage="sparse", repair_after=(50,), n_passes=100)
    with pytest.raises(ParameterError, match="repair_after cannot be used with storage sparse"):
        Model.check(config)


def test_priors_that_are_learned_are_those_of_all_windows():
    options = {"n_topics": 6, "learn_priors": "both", "n_workers": 2, "n_blocks": 3}
    fits = [play(COUNTS, storage=storage, **options) for storage in ("margins", "sparse")]
    for fit in fits:
        for _ in range(5):
            fit.run_pass()
        fit.bound()
        fit.rest(fit.layout.model.next_rest(0))
        fit.run_pass()
        fit.bound()
        assert_sums_hold(fit, COUNTS)
    for name in ("alpha", "eta"):
        np.testing.assert_allclose(fits[0].shared[name], fits[1].shared[name], rtol=1e-5)
        assert not (fits[0].shared[name] == 0.1).all()
    assert fits[0].bound() == pytest.approx(fits[1].bound(), abs=bound_noise(COUNTS))


def test_what_is_shared_does_not_grow_with_the_topics():
    """Where a word has few pairs, and but for what there is one of for each topic."""
    sizes = []
    for n_topics in (600, 6000):
        config = FitConfig(n_topics=n_topics, storage="sparse", n_workers=1, n_blocks=1)
        model = Model(config, Cut(CORPUS, config).sizes)
        specs = [*model.shared_specs(), *model.shard_specs(0)]
        of_topics = [s for s in specs if s.shape[-1:] in ((n_topics,), (n_topics + 2,))]
        assert not [s.name for s in of_topics if len(s.shape) > 1 and s.shape[0] > 1]
        sizes.append(sum(s.n_bytes for s in specs) - sum(s.n_bytes for s in of_topics))
    assert sizes[1] < 1.01 * sizes[0]


def test_a_fit_of_lists_is_the_model_of_its_rows(tmp_path):
    """Whatever is asked of lambda, as of the same rows as an array, and when it was saved."""
    lda = LDA(
        40, storage="sparse", inference="vb", n_passes=6, n_workers=2, n_blocks=2, dense_passes=3,
        doc_topic_prior=0.1, topic_word_prior=0.1,
    ).fit(CORPUS)  # fmt: skip
    model = lda.model_
    held = model.parameters
    assert isinstance(held.lambda_rows, listed.ListedRows)
    whole = Parameters(
        np.asarray(held.lambda_rows), held.word_ids, held.gamma_parts, held.alpha, held.eta
    )
    other = FittedModel(whole, model.words, model.history, model.summary)
    model.save(str(tmp_path / "model"))
    copied = pickle.loads(pickle.dumps(model))
    for one in (other, esvi_shm.load(str(tmp_path / "model")), copied):
        np.testing.assert_array_equal(one.lambda_, model.lambda_)
        assert one.topics(8) == model.topics(8)
        np.testing.assert_allclose(one.transform(CORPUS), model.transform(CORPUS), rtol=1e-5)
        asked = model.words[:3], [1, 7]
        found, expected = (m.topic_word_interval(*asked) for m in (one, model))
        np.testing.assert_array_equal(found, expected)
