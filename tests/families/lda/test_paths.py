"""The rare paths: pairs in the log domain, and sums over thousands of documents."""

import numpy as np
import pytest

from esvi_shm.families.lda.update import FLUSH_ROWS
from tests.families.lda.play import follow, look, oracle_of, play, put
from tests.families.lda.test_visits import assert_visit_is_right

storages = pytest.mark.parametrize("storage", ["margins", "full", "sparse", "topk"])


def disjoint_fit(storage, **options):
    """Each third of the documents has words and a topic of its own, and a trace of all others.

    A hundredth of a token of a word elsewhere: E(0.011) is e**-91 of nothing.
    """
    counts = np.full((6, 9), 0.01, np.float32)
    phi = np.zeros((6, 9, 3))
    for k in range(3):
        counts[2 * k : 2 * k + 2, 3 * k : 3 * k + 3] = 400 + k
        phi[2 * k : 2 * k + 2, :, k] = 1
    fit = play(counts, n_topics=3, storage=storage, alpha=1e-3, eta=1e-3, **options)
    put(fit, counts, phi)
    return counts, fit


@storages
def test_pairs_without_a_common_topic_go_through_the_log_domain(storage):
    counts, fit = disjoint_fit(storage, n_workers=2, n_blocks=3)
    for _ in range(2):
        for worker in range(2):
            for block in range(3):
                # Only that path writes here.
                phi = fit.workers[worker].scratch.pair_phi
                phi[:] = 0
                assert_visit_is_right(fit, counts, worker, block)
                assert phi.sum() == pytest.approx(1, abs=1e-12)


@storages
def test_the_log_domain_takes_part_in_the_bound(storage):
    counts, fit = disjoint_fit(storage, n_blocks=2)
    lda = oracle_of(disjoint_fit("full", n_blocks=2)[1], counts)
    for _ in range(3):
        fit.run_pass([(0, 0), (0, 1)])
        follow(lda, fit, [(0, 0), (0, 1)])
        bound = fit.bound()
        assert bound.elbo_f == pytest.approx(lda.bound_f(), abs=0.01)
        assert bound.elbo == pytest.approx(lda.bound_l(), abs=0.01)
    assert fit.workers[0].scratch.pair_phi.any()


@storages
@pytest.mark.parametrize("leaves_out", [False, True])
def test_thousands_of_documents_follow_the_equations(storage, leaves_out):
    # One word is flushed twice, one once, in between, and some never.
    random = np.random.default_rng(3)
    counts = np.zeros((2 * FLUSH_ROWS + 50, 5))
    counts[:, 0] = 1
    counts[np.arange(len(counts)), random.choice(5, len(counts), p=(0, 0.6, 0.2, 0.1, 0.1))] = 2
    options = {"inference": "cvb0", "leave_out": "pair", "power": 1.0, "temper_passes": 0}
    fit = play(
        counts, n_topics=3, start="random", storage=storage, **(options if leaves_out else {})
    )
    assert np.diff(fit.shards[0]["block_row_ptr"]).max() > 2 * FLUSH_ROWS
    assert_visit_is_right(fit, counts, 0, 0)


@storages
def test_sums_over_documents_are_flushed_to_float64(storage):
    """A float32 at 1e8 does not notice a document more; after a flush it does again.

    The first document brings the sums (in `full` the changes) of its word to that size, and all
    others move from one topic towards the other.
    """
    counts = np.zeros((5 * FLUSH_ROWS, 2))
    counts[:, 0] = 1
    counts[:2] = (1e9, 0), (0, 1e9)
    phi = np.zeros((*counts.shape, 2))
    phi[:, 0, 0] = phi[:, 1, 1] = 1
    phi[0, 0] = 0.6, 0.4
    fit = play(counts, n_topics=2, alpha=1.0, storage=storage)
    put(fit, counts, phi)
    before = look(fit, counts)
    fit.visit(0, 0)
    after = look(fit, counts)
    # Of the small ones only those before the first flush may be lost; the rest is rounding. The
    # word has one pair too few for it when it is first looked at.
    first_flush = 2 * FLUSH_ROWS
    if storage in ("margins", "sparse"):
        error = after.phi_word.sum() - counts.sum()
        unseen = first_flush
    else:
        change = after.phi_doc - before.phi_doc
        error = (after.pi - before.pi)[0, 1] - change.sum(axis=(0, 1))[1]
        unseen = change[2:first_flush, 0, 1].sum()
        assert change[0, 0, 1] < -1e8 and change[2:, 0, 1].sum() > 2.3 * unseen > 800
    assert abs(error) <= unseen + 300
