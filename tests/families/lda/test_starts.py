"""Every start leaves margins that fit together, the same ones for every number of workers."""

import numpy as np
import pytest
from hypothesis import given, settings

from esvi_shm.families.lda import FOLD_SWEEPS, STARTS
from esvi_shm.families.lda.starts import NOISE, choose_seed_documents
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
@pytest.mark.parametrize("storage", ["margins", "full"])
def test_sums_hold_from_the_start(storage, case):
    fit = case.fit(storage=storage)
    assert_sums_hold(fit, case.counts)
    before = look(fit, case.counts)
    assert np.isfinite(fit.bound()).all()
    # Evaluating changes nothing where nothing has drifted.
    for now, then in zip(look(fit, case.counts), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("start", STARTS)
def test_starts_depend_on_neither_workers_nor_storage(start):
    one = play(COUNTS, n_topics=4, n_blocks=5, start=start, storage="full")
    seen = look(one, COUNTS)
    for n_workers, storage in ((1, "margins"), (2, "margins"), (3, "full"), (3, "margins")):
        other = play(
            COUNTS, n_topics=4, n_blocks=5, n_workers=n_workers, start=start, storage=storage
        )
        there = look(other, COUNTS)
        np.testing.assert_allclose(there.phi_doc, seen.phi_doc, **NEAR)
        np.testing.assert_allclose(there.phi_word.sum(axis=0), seen.phi_word[0], **NEAR)
        np.testing.assert_allclose(there.gamma, seen.gamma, **NEAR)
        np.testing.assert_allclose(there.lambda_, seen.lambda_, **NEAR)
        np.testing.assert_allclose(other.bound(), one.bound(), atol=bound_noise(COUNTS) * 10)


@pytest.mark.parametrize("start", STARTS)
def test_starts_depend_on_the_seed(start):
    one, again, other = (
        play(COUNTS, n_topics=4, start=start, seed=seed).lambda_ for seed in (1, 1, 2)
    )
    assert (one == again).all()
    assert (one != other).mean() > 0.9


def played_to_the_fold(fit):
    """Play the start again; its point topics (V, K) as they were before the fold-in."""
    for name in fit.layout.model.start(fit.corpus_arrays, fit.shared):
        if name == "fold_in":
            topics = fit.lambda_.astype(np.float64)
        for worker in fit.workers:
            worker.command(name)
    return topics


@pytest.mark.parametrize("start", ["seeded", "scikit-learn"])
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


def test_seeded_topics_are_documents_smoothed_by_the_corpus():
    fit = play(COUNTS, n_topics=4, n_workers=2, n_blocks=3, start="seeded")
    topics = played_to_the_fold(fit)
    seeds = fit.shared["seeds"]
    assert len(set(seeds)) == 4
    documents = COUNTS[seeds] / COUNTS[seeds].sum(axis=1, keepdims=True)
    corpus = COUNTS.sum(axis=0) / COUNTS.sum()
    noise = (topics - 0.5 * documents.T) / (0.5 * corpus[:, None]) - 1
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
    chosen = choose_seed_documents(tokens, 8, np.random.default_rng(0))
    assert sorted(np.bincount(chosen, minlength=4)) == [0, 2, 3, 3]
    assert 1 not in chosen
