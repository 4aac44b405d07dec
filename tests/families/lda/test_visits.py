"""A visit is what the equations say: one by one, and on the same schedule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.families.lda.margins import FAR, NEAR
from esvi_shm.families.lda.totals import REFOLD_SWEEPS
from esvi_shm.vector import padded
from tests import naive
from tests.families.lda.play import (
    assert_sums_hold,
    cases,
    documents_of,
    follow,
    look,
    margins_of,
    oracle_of,
    play,
    rule_of,
    words_of,
)

EPSILON = np.finfo(np.float32).eps
storages = pytest.mark.parametrize("storage", ["margins", "full", "sparse", "topk"])


def expected_phi(fit, seen, counts, worker, block, eta_total):
    """phi (D, V, K) of the visit's pairs and how far float32 may be from it, else 0."""
    phi = np.zeros((*counts.shape, fit.config.n_topics))
    room = np.zeros_like(phi)
    pi = seen.pi.sum(axis=0) + eta_total
    words = words_of(fit, block)
    inference, power, leave_out = rule_of(fit, fit.passes)
    for d in documents_of(fit, worker):
        there = words[counts[d, words] > 0]
        if len(there):
            amount = naive.left_out(counts[d, there], leave_out)
            new = naive.responsibilities(
                seen.gamma[d], seen.lambda_[there], pi, inference, power, amount
            )
            # The factors' errors, from the docstring of `special`, through the normalisation.
            error = (
                4e-6
                + (4e-5 if power < 1 else 0)
                + 3e-7 * (1 / seen.gamma[d] + 1 / seen.lambda_[there])
            )
            # f has those of the factors and of the normaliser, which is put in twice.
            error *= 1 if leave_out == "none" else 4
            mean = (new * error).sum(axis=1, keepdims=True)
            phi[d, there] = new
            room[d, there] = 2 * new * (error + mean) + 1e-7 * fit.config.n_topics
    return phi, room


def assert_sums_are_gone(worker):
    """Those beside a word's factors, and those in float64: the next visit adds to what is there."""
    rows = worker.scratch.rows.reshape(-1, 2, padded(worker.model.config.n_topics))
    assert not rows[:, 1].any()
    assert not worker.scratch.spill.any() and not worker.scratch.spilled.any()


def assert_visit_is_right(fit, counts, worker, block):
    eta_total = fit.shared["eta"].sum()
    before = look(fit, counts)
    phi, room = expected_phi(fit, before, counts, worker, block, eta_total)
    fit.visit(worker, block)
    after = look(fit, counts)
    assert_sums_are_gone(fit.workers[worker])

    documents, words = documents_of(fit, worker), words_of(fit, block)
    wanted_doc, wanted_word = margins_of(fit, counts, phi)
    room_doc, room_word = margins_of(fit, counts, room)
    doc, word = np.s_[documents, block], np.s_[worker, words]
    assert (np.abs(after.phi_doc - wanted_doc)[doc] <= room_doc[doc]).all()
    assert (np.abs(after.phi_word - wanted_word)[word] <= room_word[word]).all()
    assert (after.phi_doc >= 0).all() and (after.phi_word >= 0).all()

    # All else moves by the change of the margins, or not at all.
    change_doc, change_word = after.phi_doc - before.phi_doc, after.phi_word - before.phi_word
    for array, at in ((change_doc, doc), (change_word, word)):
        array[at] = 0
        assert (array == 0).all()
    change_doc, change_word = after.phi_doc - before.phi_doc, after.phi_word - before.phi_word
    largest = max(1.0, counts.max()) * 8 * EPSILON
    np.testing.assert_allclose(
        after.gamma, before.gamma + change_doc.sum(axis=1), rtol=8 * EPSILON, atol=largest
    )
    np.testing.assert_allclose(
        after.lambda_, before.lambda_ + change_word.sum(axis=0), rtol=8 * EPSILON, atol=largest
    )
    tokens = counts.sum()
    np.testing.assert_allclose(
        after.pi, before.pi + change_word.sum(axis=1), rtol=1e-6, atol=1e-6 * tokens
    )
    n = counts[..., None].astype(np.float64)
    entropy = -(n * naive._x_log_x(phi)).sum()
    assert after.entropy[worker, block] == pytest.approx(entropy, rel=1e-4, abs=1e-4 * n.sum())


@storages
@given(case=cases())
def test_each_visit_follows_the_equations(storage, case):
    fit = case.fit(storage=storage, settle=1, relax=1.0)
    for worker, block in case.orders[0]:
        assert_visit_is_right(fit, case.counts, worker, block)


# Small priors, and starts with near ties, multiply the rounding of each pass by the next.
@given(case=cases(least_prior=0.3, most_count=50, starts=["random"]))
def test_schedules_give_the_iterates_of_stored_phi(case):
    fits = [case.fit(storage=storage, relax=1.0) for storage in ("full", "margins")]
    if case.options["leave_out"] == "none":  # as always by topk
        fits.append(case.fit(storage="topk"))
    full, lda = fits[0], oracle_of(fits[0], case.counts)
    for order in case.orders:
        follow(lda, full, order)
        for fit in fits:
            fit.run_pass(order)
            seen = look(fit, case.counts)
            phi_doc, phi_word = margins_of(fit, case.counts, lda.phi)
            room = {"rtol": 2e-3, "atol": 2e-4 * case.counts.max()}
            np.testing.assert_allclose(seen.gamma, lda.gamma, **room)
            np.testing.assert_allclose(seen.lambda_, lda.lambda_, **room)
            np.testing.assert_allclose(seen.phi_doc, phi_doc, **room)
            np.testing.assert_allclose(seen.phi_word, phi_word, **room)


@given(
    case=cases(least_prior=0.3, most_count=50, starts=["random"]),
    step=st.floats(1, 2, exclude_max=True),
)
def test_words_margins_that_are_over_relaxed(case, step):
    case.options |= {"inference": "cvb0", "relax": step}
    fit = case.fit()
    lda = oracle_of(case.fit(storage="full"), case.counts)
    for order in case.orders:
        follow(lda, fit, order)
        fit.run_pass(order)
        seen = look(fit, case.counts)
        phi_doc, phi_word = margins_of(fit, case.counts, lda.phi)
        for p in range(fit.sizes.n_workers):
            documents, n_turns = documents_of(fit, p), fit.sizes.n_turns
            for turn in range(n_turns):
                phi_word[p] += lda.beyond.get(tuple(documents[turn::n_turns]), 0)
        room = {"rtol": 2e-3, "atol": 2e-4 * case.counts.max()}
        np.testing.assert_allclose(seen.gamma, lda.gamma, **room)
        np.testing.assert_allclose(seen.lambda_, lda.lambda_, **room)
        np.testing.assert_allclose(seen.phi_doc, phi_doc, **room)
        np.testing.assert_allclose(seen.phi_word, phi_word, **room)
        assert (seen.phi_word >= 0).all()


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_pass_that_is_not_over_relaxed_leaves_nothing_of_it(n_workers):
    counts, _ = naive.simulate(12, 15, 3, 30, seed=1)
    fit = play(
        counts,
        n_topics=3,
        n_workers=n_workers,
        n_blocks=2,
        inference="cvb0",
        n_passes=6,
        settle=4,
        relax=1.8,
    )
    assert fit.sizes.n_turns == 4 // n_workers
    for pass_ in range(6):
        fit.run_pass()
        of_documents = look(fit, counts).phi_doc.sum(axis=(0, 1))
        of_words = look(fit, counts).phi_word.sum(axis=(0, 1))
        assert np.allclose(of_documents, of_words, rtol=1e-4) == (pass_ == 5)


@storages
@given(case=cases(least_prior=0.3, most_count=50))
def test_refolding_starts_every_document_afresh(storage, case):
    if storage == "topk":  # which leaves nothing out
        case.options["leave_out"] = "none"
    case.options["relax"] = 1.0  # so that the topics are those that `full` has
    fit = case.fit(storage=storage, refold_after=(1,))
    full = fit if storage == "full" else case.fit(storage="full")
    for one in {id(fit): fit, id(full): full}.values():
        one.run_pass(case.orders[0])
        one.bound()
    lda = oracle_of(full, case.counts)
    lda.inference, lda.power, lda.leave_out = rule_of(fit, 0)
    lda.refold([words_of(fit, b) for b in range(fit.sizes.n_blocks)], REFOLD_SWEEPS)
    fit.rest(1)
    assert_sums_hold(fit, case.counts)
    for worker in fit.workers:
        assert_sums_are_gone(worker)
    seen = look(fit, case.counts)
    room = {"rtol": 2e-3, "atol": 2e-4 * case.counts.max()}
    np.testing.assert_allclose(seen.gamma, lda.gamma, **room)
    np.testing.assert_allclose(seen.lambda_, lda.lambda_, **room)


@pytest.mark.parametrize("command", ["add_words", "sum_documents"])
def test_sums_at_rest_leave_the_scratch_as_a_visit_needs_it(command):
    """They lie in it as float64, whose halves could be anything, beyond K too."""
    fit = play(np.full((4, 6), 3.0), n_topics=5, n_workers=2, n_blocks=2)
    for worker in fit.workers:
        worker.command(command)
        assert not worker.scratch.rows.any()


@pytest.mark.parametrize("inference", ["vb", "cvb0"])
def test_a_block_whose_words_are_asked_for_ahead(inference):
    """Rows of few pairs too: the last four of a row have none to ask for."""
    n_topics = 200
    stride = 2 * padded(n_topics)
    n_words = FAR // stride + 1
    assert stride <= NEAR
    random = np.random.default_rng(2)
    counts = np.zeros((8, n_words), np.float32)
    for d, n in enumerate((n_words, 1, 4, 7, 8, 9, 13, 31)):
        counts[d, random.choice(n_words, n, replace=False)] = random.integers(1, 5, n)
    fit = play(counts, n_topics=n_topics, inference=inference, temper_passes=0)
    assert fit.workers[0].scratch.rows.size > FAR
    assert_visit_is_right(fit, counts, 0, 0)
