"""Every start leaves margins that fit together, the same ones for every number of workers."""

import numpy as np
import pytest
from hypothesis import given, settings

from esvi_shm.config import FitConfig, GivenTopics
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.families import find
from esvi_shm.families.lda import starts
from esvi_shm.families.lda.starts import seeded, spread
from esvi_shm.families.lda.starts._documents import NOISE
from esvi_shm.families.lda.totals import FOLD_SWEEPS
from tests import naive
from tests.families.lda.play import (
    assert_sums_hold,
    bound_noise,
    cases,
    look,
    margins_of,
    play,
    stored_phi,
    words_of,
)

COUNTS, _ = naive.simulate(15, 20, 3, 25, seed=2)
NEAR = {"rtol": 1e-4, "atol": 1e-5 * COUNTS.max()}


@settings(max_examples=40)
@given(case=cases())
@pytest.mark.parametrize("storage", ["margins", "full", "sparse", "topk"])
def test_sums_hold_from_the_start(storage, case):
    fit = case.fit(storage=storage)
    assert_sums_hold(fit, case.counts)
    before = look(fit, case.counts)
    assert np.isfinite(fit.bound()).all()
    # Evaluating changes nothing where nothing has drifted.
    for now, then in zip(look(fit, case.counts), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("start", starts.known())
def test_starts_depend_on_neither_workers_nor_storage(start):
    one = play(COUNTS, n_topics=4, n_blocks=5, start=start, storage="full")
    seen = look(one, COUNTS)
    for n_workers, storage in (
        (1, "margins"),
        (2, "margins"),
        (3, "full"),
        (3, "margins"),
        (2, "sparse"),
    ):
        other = play(
            COUNTS, n_topics=4, n_blocks=5, n_workers=n_workers, start=start, storage=storage
        )
        there = look(other, COUNTS)
        np.testing.assert_allclose(there.phi_doc, seen.phi_doc, **NEAR)
        np.testing.assert_allclose(there.phi_word.sum(axis=0), seen.phi_word[0], **NEAR)
        np.testing.assert_allclose(there.gamma, seen.gamma, **NEAR)
        np.testing.assert_allclose(there.lambda_, seen.lambda_, **NEAR)
        np.testing.assert_allclose(other.bound(), one.bound(), atol=bound_noise(COUNTS) * 10)


@pytest.mark.parametrize("start", starts.known())
def test_starts_depend_on_the_seed(start):
    one, again, other = (
        play(COUNTS, n_topics=4, start=start, seed=seed).lambda_ for seed in (1, 1, 2)
    )
    assert (one == again).all()
    assert (one != other).mean() > 0.9


def played_to_the_fold(fit):
    """Play the start again; its point topics (V, K) as they were before the fold-in."""
    for name in fit.layout.model.start(fit.corpus, fit.corpus_arrays, fit.shared):
        if not isinstance(name, str):
            continue
        if name == "unfold":
            topics = fit.lambda_.astype(np.float64)
        for worker in fit.workers:
            worker.command(name)
    return topics


@pytest.mark.parametrize("start", ["seeded", "spread", "scikit-learn"])
@pytest.mark.parametrize("n_workers", [1, 2])
def test_documents_are_folded_into_the_topics(start, n_workers):
    fit = play(
        COUNTS, n_topics=4, n_workers=n_workers, n_blocks=3, start=start, alpha=0.3, storage="full"
    )
    topics = played_to_the_fold(fit)
    phi = np.full((*COUNTS.shape, 4), 0.25)
    lda = naive.Lda(COUNTS, phi, np.full(4, 0.3), np.ones(20))
    for _ in range(FOLD_SWEEPS):
        for block in range(3):
            words = words_of(fit, block)
            for d in range(len(COUNTS)):
                there = words[COUNTS[d, words] > 0]
                new = np.exp(naive.psi(lda.gamma[d])) * topics[there]
                new /= new.sum(axis=1, keepdims=True)
                lda.gamma[d] += COUNTS[d, there] @ (new - lda.phi[d, there])
                lda.phi[d, there] = new
    wanted = margins_of(fit, COUNTS, lda.phi)
    got = margins_of(fit, COUNTS, stored_phi(fit))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("choose", [seeded.choose_documents, spread.choose_documents])
@pytest.mark.parametrize("n_documents", [1, 3])
def test_topics_are_documents_smoothed_by_the_corpus(choose, n_documents):
    start = choose.__module__.split(".")[-1]
    fit = play(
        COUNTS, n_topics=4, n_workers=2, n_blocks=3, start=start, seed_documents=n_documents, seed=5
    )
    topics = played_to_the_fold(fit)
    random = np.random.default_rng([5, 0x5EED])
    chosen = choose(fit.corpus, COUNTS.sum(axis=1), 4, n_documents, random)
    assert chosen.shape == (4, n_documents)
    documents = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    corpus = COUNTS.sum(axis=0) / COUNTS.sum()
    of_documents = documents[chosen].mean(axis=1)
    noise = (topics - 0.5 * of_documents.T) / (0.5 * corpus[:, None]) - 1
    assert np.abs(noise).max() <= NOISE * 1.01
    assert np.abs(noise).max() > NOISE / 2
    assert len(np.unique(noise.round(7))) > 70  # ties are broken everywhere


def test_scikit_learn_topics_are_of_its_distribution():
    topics = played_to_the_fold(play(COUNTS, n_topics=40, n_blocks=3, start="scikit-learn"))
    # E(lambda) / E(pi) with lambda near 1 within a tenth, pi near V = 20; E(x) is about x - 1/2.
    assert topics.mean() == pytest.approx(0.5 / 19.5, rel=0.2)
    assert 0.05 < topics.std() / topics.mean() < 0.3


def test_random_phi_is_uniform_on_the_simplex():
    counts = np.ones((200, 20))
    phi = stored_phi(play(counts, n_topics=3, start="random", storage="full", n_blocks=3))
    phi = phi.reshape(-1, 3)
    assert len(np.unique(phi, axis=0)) == len(phi)
    np.testing.assert_allclose(phi.mean(axis=0), 1 / 3, atol=0.02)
    # Dirichlet(1, 1, 1): variance 1/18, covariance -1/36.
    np.testing.assert_allclose(np.cov(phi.T), np.eye(3) / 12 - 1 / 36, atol=0.005)


def test_more_topics_than_documents_share_seeds_evenly():
    tokens = np.array([3.0, 0, 1, 5])
    chosen = seeded.choose_documents(None, tokens, 4, 2, np.random.default_rng(0))
    assert sorted(np.bincount(chosen.ravel(), minlength=4)) == [0, 2, 3, 3]
    assert 1 not in chosen


def groups(n_groups: int, n_copies: int) -> Corpus:
    """Copies of some documents, and empty documents between them."""
    counts = np.zeros((n_groups * n_copies * 2, 12))
    counts[::2] = np.tile(np.random.default_rng(1).poisson(0.7, (n_groups, 12)), (n_copies, 1))
    assert len(np.unique(counts[::2], axis=0)) == n_groups
    return Corpus.from_sparse(counts)


@pytest.mark.parametrize("seed", range(5))
def test_spread_documents_are_one_of_each_kind_with_its_nearest(seed):
    corpus = groups(5, 4)
    tokens = corpus.as_sparse().toarray().sum(axis=1)
    chosen = spread.choose_documents(corpus, tokens, 5, 3, np.random.default_rng(seed))
    kinds = chosen // 2 % 5
    assert (chosen % 2 == 0).all()
    assert sorted(kinds[:, 0]) == [0, 1, 2, 3, 4]
    assert (kinds == kinds[:, :1]).all()
    assert all(len(set(row)) == 3 for row in chosen.tolist())


def test_spread_has_topics_for_more_than_there_are_documents():
    corpus = groups(2, 2)
    tokens = corpus.as_sparse().toarray().sum(axis=1)
    chosen = spread.choose_documents(corpus, tokens, 9, 6, np.random.default_rng(0))
    assert chosen.shape == (9, 6) and (chosen % 2 == 0).all()
    assert sorted(np.bincount(chosen[:, 0] // 2)) == [2, 2, 2, 3]


def test_of_many_documents_some_are_sketched(monkeypatch):
    monkeypatch.setattr(spread, "SKETCHED", 6)
    monkeypatch.setattr(spread, "SKETCHED_PER_TOPIC", 1)
    tokens = groups(5, 4).as_sparse().toarray().sum(axis=1)
    seen = set()
    for seed in range(30):
        random = np.random.default_rng(seed)
        seen.add(len(np.unique(spread.choose_documents(groups(5, 4), tokens, 6, 6, random))))
    assert max(seen) == 6


def test_sketches_keep_cosines():
    counts = np.random.default_rng(4).poisson(0.2, (40, 500)).astype(np.float32)
    corpus, idf = Corpus.from_sparse(counts), np.random.default_rng(5).random(500)
    errors = []
    for key in range(20):
        sketch = np.zeros((40, spread.WIDTH), np.float32)
        spread.sketch_into(corpus.rows(np.arange(40)), idf, key, sketch)
        rows = np.sqrt(counts) * idf
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        errors.append(sketch @ sketch.T - rows @ rows.T)
        np.testing.assert_allclose(np.linalg.norm(sketch, axis=1), 1, rtol=1e-5)
    off = ~np.eye(40, dtype=bool)
    # Without a bias, and as near as a sketch of this width is.
    assert abs(np.mean(errors, axis=0)[off].mean()) < 0.01
    assert np.std(errors, axis=0)[off].mean() < 1.2 / np.sqrt(spread.WIDTH)


def words(n: int = 20) -> list[str]:
    return [f"w{v}" for v in range(n)]


def model_of(names: list[str], n_topics: int, seed: int = 1) -> GivenTopics:
    lambda_ = np.random.default_rng(seed).gamma(1.0, 5.0, (len(names), n_topics)) + 0.05
    return GivenTopics(lambda_.astype(np.float32), names, "mine")


GIVEN = {
    "documents": {"seed_documents": 3},
    "spread": {"start": "spread", "seed_documents": 2},
    "seed words": {"seed_words": [["w3", "w4", "w3"], [], ["w19"]]},
    "model": {"start_from": model_of([*words(15), "other"], 2)},
    "whole model": {"start_from": model_of(words(), 4)},
}


@pytest.mark.parametrize("name", GIVEN)
def test_topics_are_distributions_that_depend_on_neither_workers_nor_blocks(name):
    one = None
    for n_workers, n_blocks in ((1, 1), (2, 3), (3, 7)):
        fit = play(
            COUNTS, vocabulary=words(), n_topics=4, n_workers=n_workers, n_blocks=n_blocks,
            inference="cvb0", **GIVEN[name],
        )  # fmt: skip
        topics = played_to_the_fold(fit)
        assert (topics > 0).all()
        np.testing.assert_allclose(topics.sum(axis=0), 1, atol=NOISE)
        one = topics if one is None else one
        np.testing.assert_array_equal(topics, one)


def test_seed_words_take_the_place_of_documents():
    options = {"n_topics": 4, "vocabulary": words(), "n_blocks": 3, "seed": 3}
    topics = played_to_the_fold(play(COUNTS, **options, **GIVEN["seed words"]))
    corpus = 0.5 * COUNTS.sum(axis=0) / COUNTS.sum()
    wanted = np.stack([corpus, corpus], axis=1)
    wanted[[3, 4], 0] += 0.25
    wanted[19, 1] += 0.5
    np.testing.assert_allclose(topics[:, [0, 2]], wanted, rtol=2 * NOISE)
    # The others are of the documents that a fit with so many topics would have.
    fewer = played_to_the_fold(play(COUNTS, **{**options, "n_topics": 2}))
    np.testing.assert_allclose(topics[:, [1, 3]], fewer, rtol=2 * NOISE, atol=2e-3)


@pytest.mark.parametrize("inference", ["vb", "cvb0"])
def test_topics_of_a_model_are_matched_by_word(inference):
    eta = np.linspace(0.1, 0.4, 20)
    given = model_of(["other", *reversed(words(15))], 2)
    fit = play(
        COUNTS, vocabulary=words(), n_topics=3, n_workers=2, n_blocks=3, eta=eta,
        inference=inference, start_from=given,
    )  # fmt: skip
    topics = played_to_the_fold(fit)
    lambda_ = np.stack([eta, eta], axis=1)
    for v in range(15):
        lambda_[v] = given.lambda_[15 - v]
    log_e = {"vb": naive.psi, "cvb0": np.log}[inference]
    wanted = np.exp(log_e(lambda_) - log_e(lambda_.sum(axis=0)))
    np.testing.assert_allclose(topics[:, :2], wanted, rtol=1e-5)
    assert topics[:, 2].sum() == pytest.approx(1, abs=NOISE)  # of a document, as usual


def test_a_fit_goes_on_from_its_own_topics():
    counts, _ = naive.simulate(60, 30, 4, 40, seed=3)
    fit = play(counts, n_topics=4, n_blocks=3, refold_after=(50, 100, 150))
    for n_rests in range(4):
        for _ in range(50):
            fit.run_pass()
        given = GivenTopics(fit.lambda_, words(30), "itself")
        again = play(counts, n_topics=4, n_blocks=2, n_workers=2, start_from=given, seed=9)
        before, after = fit.bound(), again.bound()
        # Documents are folded in afresh, which may free some, as a rest of the fit does.
        assert after.elbo >= before.elbo - bound_noise(counts)
        again.run_pass()
        assert again.bound().elbo_f >= after.elbo_f - bound_noise(counts)
        if n_rests < 3:
            fit.rest(fit.passes)
    # By now none is left to be freed.
    assert after.elbo == pytest.approx(before.elbo, abs=bound_noise(counts))
    np.testing.assert_allclose(again.lambda_, fit.lambda_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("eta", [1e-6, 1e-3, 0.01])
@pytest.mark.parametrize("storage", ["margins", "full", "topk", "sparse"])
@pytest.mark.parametrize("is_known", [False, True])
def test_words_that_no_topic_of_the_model_has_take_nothing_away(eta, storage, is_known):
    """E(eta) is 0 to float32 in all topics that are given, which are all."""
    counts = np.array([[3, 2, 0, 0, 0], [0, 0, 3, 2, 1]] * 10)
    known = words(5 if is_known else 4)
    lambda_ = np.array([[40, eta], [30, eta], [eta, 40], [eta, 30], [eta, eta]], np.float32)
    given = GivenTopics(lambda_[: len(known)], known, "mine")
    fit = play(
        counts, vocabulary=words(5), n_topics=2, eta=eta, storage=storage, inference="vb",
        start_from=given,
    )  # fmt: skip
    for _ in range(3):
        np.testing.assert_allclose(fit.lambda_.sum(axis=1) - 2 * eta, counts.sum(axis=0), rtol=1e-4)
        np.testing.assert_allclose(fit.lambda_.sum(axis=0), [50, 60], rtol=0.01)
        assert np.isfinite(fit.bound().elbo)
        fit.run_pass()


def test_of_words_called_alike_the_first_is_meant():
    names = ["a", "b", "c", "a"]
    counts = np.array([[3, 1, 0, 0], [0, 0, 3, 0]] * 10)
    play(counts, vocabulary=names, n_topics=2, seed_words=[["a"]])  # the last does not occur
    lambda_ = np.array([[9, 0.1], [9, 0.1], [0.1, 9], [0.1, 9]], np.float32)
    fit = play(
        counts, vocabulary=names, n_topics=2, inference="cvb0",
        start_from=GivenTopics(lambda_, names, "mine"),
    )  # fmt: skip
    topics = played_to_the_fold(fit)
    assert topics[0, 0] > topics[0, 1] and topics[3, 0] > topics[3, 1]


@pytest.mark.parametrize("inference", ["vb", "anneal"])
def test_seed_words_decide_which_topic_is_which(inference):
    counts, planted = naive.simulate(150, 40, 4, 40, seed=5)
    order = [2, 0, 3, 1]
    seeds = [[f"w{v}" for v in np.argsort(-planted[k])[:2]] for k in order]
    fit = play(
        counts, vocabulary=words(40), n_topics=4, inference=inference, n_passes=20, seed_words=seeds
    )
    for _ in range(20):
        fit.run_pass()
    found = fit.lambda_ / fit.lambda_.sum(axis=0)
    distance = np.abs(found.T[:, None] - planted[order][None]).sum(axis=2)
    assert distance.argmin(axis=1).tolist() == [0, 1, 2, 3]
    assert distance.diagonal().max() < 0.3


@pytest.mark.parametrize(
    "options, says",
    [
        ({"seed_words": [["w1"], ["w2", "x", "y"]]}, "topic 1 .line 2 .*got 'x, y'"),
        ({"seed_words": [["w7"]]}, "topic 0 .line 1 .*got 'w7'"),  # has no token
        ({"seed_words": [["w1"]] * 4}, "seed_words must be for at most 3 topics .*got 4"),
        ({"seed_words": "w1"}, "seed_words must be a list of words for each topic, got 'w1'"),
        ({"seed_words": ["w1"]}, "seed_words must be a list of words for each topic, got 'w1'"),
        ({"seed_words": [[1]]}, "seed_words must be a list of words for each topic, got 1"),
        ({"seed_words": [["w1"]], "vocabulary": None}, "seed_words must have a vocabulary"),
        ({"seed_words": [["w1"]], "start": "random"}, "start must be one of seeded, spread"),
        ({"seed_documents": 2, "start": "scikit-learn"}, "start must be one of seeded, spread"),
        ({"start_from": model_of(words(), 4)}, "start_from must be a model of at most 3 .*got 4"),
        ({"start_from": model_of(["x", "y"], 2)}, "start_from must share words .*got 'mine'"),
        ({"start_from": "folder"}, "start_from must be GivenTopics, got 'folder'"),
        (
            {"start_from": model_of(words(), 2), "seed_words": [["w1"]]},
            "seed_words cannot be given together with start_from",
        ),
    ],
)
def test_bad_topics_are_refused(options, says):
    counts = COUNTS.copy()
    counts[:, 7] = 0
    with pytest.raises(ParameterError, match=says):
        play(counts, **{"vocabulary": words(), "n_topics": 3, **options})


@pytest.mark.parametrize("lambda_", [np.ones((2, 0)), np.ones(3), np.ones((4, 2)), np.ones((0, 2))])
def test_given_topics_have_a_row_a_word(lambda_):
    with pytest.raises(ParameterError, match="start_from must have a row for each of its 3 words"):
        GivenTopics(lambda_, words(3), "mine")


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_given_topics_are_positive(value):
    lambda_ = np.ones((3, 2))
    lambda_[1, 1] = value
    with pytest.raises(ParameterError, match=f"greater than 0, got {value}"):
        GivenTopics(lambda_, words(3), "mine")


def test_words_that_a_model_lacks_are_told(caplog):
    play(COUNTS, n_topics=3, start_from=model_of(words(15), 2))
    assert [r.getMessage() for r in caplog.records] == ["mine has 15 of the 20 words of matrix"]


def test_restarts_from_all_topics_of_a_model_would_be_the_same():
    topics = GivenTopics(np.ones((5, 3)), words(5), "itself")
    with pytest.raises(ParameterError, match="restarts must be 1 where start_from gives"):
        find("lda").check(FitConfig(n_topics=3, start_from=topics, restarts=2))
    find("lda").check(FitConfig(n_topics=4, start_from=topics, restarts=2))
    find("lda").check(FitConfig(n_topics=3, start_from=topics))
