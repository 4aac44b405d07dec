"""gamma of unseen documents is the fixed point of plain NumPy, whatever is left out on the way."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp, psi

from esvi_shm.compile import kernel
from esvi_shm.families.lda import unseen
from esvi_shm.families.lda.beta import (
    ALL,
    expected_topics,
    frozen,
    given_topics,
)
from esvi_shm.families.lda.unseen import Stop, make_rule, settle_documents
from esvi_shm.vector import floats
from tests.corpus.strategies import matrices

SEEDS = st.integers(0, 2**32 - 1)


@kernel(allocates=True)
def begins_at(n):
    """The address of `floats`."""
    return floats(n).ctypes.data


@pytest.mark.parametrize("n", [1, 5, 10_000])
def test_floats_begin_with_a_line(n):
    assert begins_at(n) % 64 == 0


def csr_of(matrix):
    """A dense matrix as the kernel reads documents."""
    matrix = np.asarray(matrix, np.float32)
    indptr = np.concatenate([[0], np.cumsum((matrix > 0).sum(axis=1))])
    rows, counts = np.nonzero(matrix)[1], matrix[matrix > 0]
    return frozen(indptr, np.int64), frozen(rows, np.int32), frozen(counts, np.float32)


def topics_of(lambda_, alpha, cvb0=False, power=1.0):
    """All words' rows."""
    pi, words = lambda_.sum(axis=0, dtype=np.float64), np.arange(len(lambda_))
    return expected_topics(lambda_, pi, words, make_rule(alpha, cvb0, power))


def settle(lambda_, alpha, matrix, stop, cvb0=False, power=1.0, topics=None):
    """The kernel on a dense matrix, float32 (D, K)."""
    rule = make_rule(alpha, cvb0, power)
    topics = topics or topics_of(lambda_, alpha, cvb0, power)
    gamma = np.full((len(matrix), len(alpha)), np.nan, np.float32)
    settle_documents(0, len(matrix), *csr_of(matrix), topics, rule, stop, gamma)
    return gamma


def naive_step(gamma, lambda_, alpha, row, cvb0=False):
    """gamma = alpha + sum_v n_v phi_v, phi by its definition, in the log domain."""
    lambda_ = np.asarray(lambda_, np.float64)
    log_e = np.log if cvb0 else psi
    logs = log_e(lambda_) - log_e(lambda_.sum(axis=0)) + log_e(np.asarray(gamma, np.float64))
    phi = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    return alpha + np.asarray(row, np.float64) @ phi


def naive_gamma(lambda_, alpha, row, steps, cvb0=False):
    gamma = alpha + np.sum(row) / len(alpha)
    for _ in range(steps):
        gamma = naive_step(gamma, lambda_, alpha, row, cvb0)
    return gamma


def settled_gamma(lambda_, alpha, row, cvb0, steps=3000, power=1.0):
    """As `naive_gamma`, by products: quick enough for very many steps."""
    lambda_, words = np.asarray(lambda_, np.float64), np.flatnonzero(row)
    expected = (lambda x: x**power) if cvb0 else (lambda x: np.exp(power * psi(x)))
    beta = expected(lambda_[words]) / expected(lambda_.sum(axis=0))
    gamma = alpha + np.sum(row) / len(alpha)
    for _ in range(steps):
        theta = expected(gamma)
        gamma = alpha + theta * ((row[words] / (beta @ theta)) @ beta)
    return gamma


def random_model(seed, n_words, n_topics=None):
    """Topics with few words each, so that documents end with few topics."""
    rng = np.random.default_rng(seed)
    n_topics = n_topics or int(rng.integers(1, 40))
    lambda_ = rng.gamma(0.2, 20.0, (n_words, n_topics)) + 0.01
    return lambda_.astype(np.float32), rng.uniform(0.05, 0.6, n_topics)


@given(matrices(), SEEDS, st.integers(0, 30), st.booleans())
def test_steps_are_those_of_the_definition(matrix, seed, steps, cvb0):
    lambda_, alpha = random_model(seed, matrix.shape[1])
    gamma = settle(lambda_, alpha, matrix, Stop(steps, 0.0, False), cvb0)
    for found, row in zip(gamma, matrix, strict=True):
        expected = naive_gamma(lambda_, alpha, row, steps, cvb0)
        np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), atol=2e-4)
        assert found.sum() == pytest.approx(alpha.sum() + row.sum(), rel=1e-5)


def sparse_case(seed=0, n_topics=100, n_documents=12, n_words=300, most_tokens=900):
    """Documents of three topics out of many, some of them long."""
    rng = np.random.default_rng(seed)
    lambda_ = (rng.gamma(0.05, 40.0, (n_words, n_topics)) + 0.01).astype(np.float32)
    beta = lambda_ / lambda_.sum(axis=0)
    matrix = np.array(
        [
            rng.multinomial(length, beta[:, rng.integers(0, n_topics, 3)].mean(axis=1))
            for length in rng.integers(1, most_tokens, n_documents)
        ]
    )
    return lambda_, np.full(n_topics, 0.1), matrix


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5])
def test_a_whole_step_from_the_result_moves_less_than_the_tolerance(tol, alpha):
    """Over all topics, those that were left out too; with a large prior none may be."""
    lambda_, _, matrix = sparse_case()
    prior = np.full(lambda_.shape[1], alpha)
    gamma = settle(lambda_, prior, matrix, Stop(5000, tol, False))
    for found, row in zip(gamma, matrix, strict=True):
        change = np.abs(naive_step(found, lambda_, prior, row) - found).mean()
        assert change < 1.05 * tol + 2e-6 * max(1, alpha)


def test_topics_are_left_out_and_the_result_is_that_of_all():
    lambda_, alpha, matrix = sparse_case()
    gamma = settle(lambda_, alpha, matrix, Stop(2000, 1e-5, False))
    others = 0
    for found, row in zip(gamma, matrix, strict=True):
        np.testing.assert_allclose(found, settled_gamma(lambda_, alpha, row, False), atol=0.02)
        few = settle(lambda_, alpha, row[None], Stop(7, 1e-4, False))[0]
        others += (few != settle(lambda_, alpha, row[None], Stop(7, 0.0, False))[0]).any()
    assert others > 5


@pytest.mark.parametrize("cvb0", [False, True])
def test_as_many_steps_come_nearer_than_plain_ones(cvb0):
    lambda_, alpha, matrix = sparse_case()
    nearer = []
    for row in matrix:
        end = settled_gamma(lambda_, alpha, row, cvb0)
        plain = np.abs(naive_gamma(lambda_, alpha, row, 20, cvb0) - end).sum()
        if plain > 1e-2:  # else it is there already
            found = settle(lambda_, alpha, row[None], Stop(20, 1e-9, cvb0), cvb0)[0]
            nearer.append(np.abs(found - end).sum() / plain)
    assert len(nearer) > 3 and np.median(nearer) < 0.5


@pytest.mark.parametrize("steps", [100, 101, 102, 5000])
def test_steps_that_go_round_end(steps):
    """Further than they say they come back to where they were, again and again."""
    lambda_ = np.full((6, 6), 0.03, np.float32)
    lambda_[1, 0], lambda_[2, 0], lambda_[4, 4] = 21, 1399, 6
    alpha, matrix = np.full(6, 0.1), [[0, 10, 0, 0, 1, 1]]
    end = settle(lambda_, alpha, matrix, Stop(5000, 0.0, False))
    np.testing.assert_allclose(
        settle(lambda_, alpha, matrix, Stop(steps, 1e-3, False)), end, atol=0.01
    )


def test_no_token_is_lost_where_the_steps_run_out():
    lambda_, alpha, matrix = sparse_case()
    for steps in (1, 2, 3, 5, 12, 39):
        gamma = settle(lambda_, alpha, matrix, Stop(steps, 1e-4, False))
        for found, row in zip(gamma, matrix, strict=True):
            assert found.sum() == pytest.approx(alpha.sum() + row.sum(), rel=1e-5)
            expected = naive_gamma(lambda_, alpha, row, steps)
            assert np.abs(found - expected).max() < 0.02 * row.sum()


def left_out(gamma, alpha):
    """Topics that hold, beside their prior, what most do: the same share of what is left out."""
    more = (gamma - alpha).round(9)
    values, counts = np.unique(more, return_counts=True)
    return more == values[counts.argmax()]


@pytest.mark.parametrize("steps", [12, 5000])
@pytest.mark.parametrize("n_topics", [100, unseen.MANY + 44])
def test_what_topics_hold_that_were_left_out_is_right_in_all(steps, n_topics):
    """All of a step over all topics, of the document as it is at the end: settled, or out of steps.

    It is next to nothing: the test is that nothing of the little is lost.
    """
    lambda_, alpha, matrix = sparse_case(0, n_topics)
    gamma = settle(lambda_, alpha, matrix, Stop(steps, 1e-3, False))
    ratios = []
    for found, row in zip(gamma, matrix, strict=True):
        out = left_out(found, alpha.astype(np.float32))
        assert out.sum() > 0.5 * n_topics
        at_prior = np.where(out, alpha, found.astype(np.float64))
        held = (naive_step(at_prior, lambda_, alpha, row) - alpha)[out].sum()
        ratios.append((found - alpha.astype(np.float32))[out].sum(dtype=np.float64) / held)
    # Of a sum of many parts that float32 rounds beside a prior of 0.1; some are still on their way.
    assert np.median(ratios) == pytest.approx(1, rel=0.05)


def test_priors_of_topics_that_are_left_out_may_differ():
    """They get what is left out by their E(alpha), as a step over all topics would, on average."""
    lambda_, _, matrix = sparse_case(3)
    alpha = np.where(np.arange(100) % 2, 0.2, 0.1)
    gamma = settle(lambda_, alpha, matrix, Stop(5000, 3e-2, False)).astype(np.float64)
    ratios = []
    long = matrix.sum(axis=1) > 200  # in shorter ones none is left out
    for found, row in zip(gamma[long], matrix[long], strict=True):
        held = found - alpha.astype(np.float32)
        odd, even = (np.flatnonzero(left_out(held[first::2], 0)) * 2 + first for first in (1, 0))
        assert len(odd) > 20 and held[odd[0]] > 20 * held[even[0]] >= 0
        step = naive_step(found, lambda_, alpha, row) - alpha
        ratios.append(held[odd].sum() / step[odd].sum())
    assert np.median(ratios) == pytest.approx(1, rel=0.1)


def test_a_word_of_a_topic_that_is_left_out_brings_the_topic_back():
    """One token of a word that only one topic knows, which begins with too little to stay."""
    n_topics = unseen.MANY + 44
    rng = np.random.default_rng(0)
    lambda_ = np.full((400, n_topics), 1e-3, np.float32)
    lambda_[:, :20] += rng.gamma(1.0, 20.0, (400, 20))
    lambda_[399] = 1e-3
    lambda_[399, 77] = 5.0
    alpha = np.full(n_topics, 0.1)
    matrix = rng.multinomial(900, np.full(399, 1 / 399))[None]
    row = np.append(matrix, 1)
    assert row[399] < unseen.FIRST_OF_MEAN * row.sum() / n_topics
    found = settle(lambda_, alpha, row[None], Stop(300, 1e-3, False))[0]
    assert found[77] == pytest.approx(1.1, abs=0.01)
    change = np.abs(naive_step(found, lambda_, alpha, row) - found).mean()
    assert change < 1.1e-3


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.6])
def test_rows_that_are_lists_are_as_good_as_whole_ones(alpha):
    lambda_, _, matrix = sparse_case(5, 130)
    prior, stop = np.full(130, alpha), Stop(200, 1e-4, False)
    topics = topics_of(lambda_, prior)
    assert 0 < (topics.listed == ALL).sum() < 300
    beta = np.exp(psi(lambda_.astype(np.float64)) - psi(lambda_.sum(axis=0, dtype=np.float64)))
    whole = topics._replace(
        begins=frozen(144 * np.arange(300), np.int64),
        listed=frozen(np.full(300, ALL), np.int32),
        values=frozen(np.pad(beta, ((0, 0), (0, 14))).reshape(-1), np.float32),
        sums=frozen(beta.sum(axis=1), np.float32),
        apart=frozen(beta.sum(axis=1), np.float32),
    )
    gamma = settle(lambda_, prior, matrix, stop, topics=whole)
    np.testing.assert_allclose(gamma, settle(lambda_, prior, matrix, stop), rtol=1e-3, atol=1e-3)


def test_documents_begin_from_phi_uniform_whatever_the_priors():
    """Words that are the same in all topics: the prior alone decides, and a step tells so."""
    lambda_, alpha = np.ones((3, 4), np.float32), np.array([0.5, 0.1, 0.1, 0.1])
    row = np.array([40, 30, 30])
    found = settle(lambda_, alpha, row[None], Stop(100, 1e-3, False))[0]
    np.testing.assert_allclose(found, [100.5, 0.1, 0.1, 0.1], atol=0.01)
    lambda_, alpha, matrix = sparse_case(1)
    alpha = np.random.default_rng(0).uniform(0.05, 0.2, len(alpha))
    found = settle(lambda_, alpha, matrix, Stop(5000, 1e-5, False))
    others = 0
    for gamma, row in zip(found, matrix, strict=True):
        others += np.abs(gamma - settled_gamma(lambda_, alpha, row, False)).max() > 0.5
    assert others < 3


@pytest.mark.parametrize("n_topics", [100, unseen.MANY + 44])
@pytest.mark.parametrize("steps", [1, 3, 5])
def test_few_steps_are_plain_ones(n_topics, steps):
    """What would still come back is not left out: it has not the steps to do so."""
    lambda_, alpha, matrix = sparse_case(6, n_topics)
    assert steps <= unseen.RELAX_FROM
    found = settle(lambda_, alpha, matrix, Stop(steps, 1e-3, False))
    for gamma, row in zip(found, matrix, strict=True):
        states = [naive_gamma(lambda_, alpha, row, n) for n in range(1, steps + 1)]
        assert min(np.abs(gamma - state).max() for state in states) < 1e-5 * row.sum()


@pytest.mark.parametrize(("n_topics", "tol"), [(100, 0.4), (1000, 0.1)])
def test_steps_to_a_loose_tolerance_are_plain_ones(n_topics, tol):
    """A document would be done before what is left out could come back."""
    lambda_, alpha, matrix = sparse_case(6, n_topics, n_words=120, most_tokens=250)
    assert matrix.sum(axis=1).max() < n_topics * tol / unseen.LOOSE
    found = settle(lambda_, alpha, matrix, Stop(100, tol, False))
    for gamma, row in zip(found, matrix, strict=True):
        states = [naive_gamma(lambda_, alpha, row, n) for n in range(unseen.RELAX_FROM + 1)]
        assert min(np.abs(gamma - state).max() for state in states) < 1e-6 * row.sum()


@pytest.mark.parametrize("tokens", [0.2, 0.005])
@pytest.mark.parametrize("steps", [2, 10, 100])
@pytest.mark.parametrize("prior", [0.024, 0.02])
def test_no_token_is_lost_where_priors_leave_nothing_of_topics(steps, tokens, prior):
    """E is e**-43 and, in float32, 0 beside E(1): what is left out goes by the logs."""
    lambda_ = np.full((20, 40), 0.01, np.float32)
    lambda_[:19, 0], lambda_[19, 5] = 30.0, 5.0
    lambda_[:19, 1:] += 0.02
    alpha = np.where(np.arange(40) == 0, 1.0, prior)
    row = np.full(20, 50.0)
    row[19] = tokens
    found = settle(lambda_, alpha, row[None], Stop(steps, 1e-3, False))[0].astype(np.float64)
    assert found.sum() == pytest.approx(alpha.sum() + row.sum(), abs=4e-4)


@pytest.mark.parametrize("power", [0.3, 0.4, 0.8, 1.0])
def test_what_is_small_before_the_power_is_taken_counts_after_it(power):
    lambda_, alpha = np.array([[0.0194, 1, 100]], np.float32), np.full(3, 0.1)
    gamma = settle(lambda_, alpha, [[10]], Stop(1, 0.0, False), power=power)
    np.testing.assert_allclose(gamma, 10 / 3 + 0.1, rtol=1e-4)


@pytest.mark.parametrize("power", [0.5, 0.9])
def test_tempered_topics(power):
    lambda_, alpha, matrix = sparse_case(2)
    found = settle(lambda_, alpha, matrix, Stop(3000, 1e-5, False), power=power)
    pi = lambda_.sum(axis=0, dtype=np.float64)
    for gamma, row in zip(found.astype(np.float64), matrix, strict=True):
        logs = power * (psi(lambda_.astype(np.float64)) - psi(pi) + psi(gamma))
        phi = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        assert np.abs(alpha + row @ phi - gamma).mean() < 5e-4


def test_no_topic_is_left_out_of_tempered_steps():
    """What E they leave to small gamma is not next to nothing: most would end elsewhere."""
    lambda_, alpha, matrix = sparse_case(2, unseen.MANY + 44)
    found = settle(lambda_, alpha, matrix, Stop(500, 1e-5, False), power=0.5)
    errors = [
        np.abs(gamma - settled_gamma(lambda_, alpha, row, False, 300, 0.5)).max() / row.sum()
        for gamma, row in zip(found, matrix, strict=True)
    ]
    assert np.median(errors) < 1e-5


@pytest.mark.parametrize("n_topics", [1, 2, 44, unseen.MANY + 44])
def test_a_vocabulary_of_one_word(n_topics):
    lambda_ = np.full((1, n_topics), 0.01, np.float32)
    gamma = settle(lambda_, np.full(n_topics, 0.1), [[5], [300]], Stop(100, 1e-3, False))
    np.testing.assert_allclose(gamma[:, 0] - 0.1, np.array([5, 300]) / n_topics, rtol=1e-4)
    assert np.ptp(gamma, axis=1).max() < 1e-3


def test_names_of_topics_do_not_matter_where_some_are_left_out():
    lambda_, alpha, matrix = sparse_case(4, unseen.MANY + 44)
    alpha = np.linspace(0.1, 0.2, len(alpha))
    order, stop = np.random.default_rng(0).permutation(len(alpha)), Stop(300, 1e-2, False)
    plain = settle(lambda_, alpha, matrix, stop)
    found = settle(lambda_[:, order], alpha[order], matrix, stop)
    np.testing.assert_allclose(found, plain[:, order], atol=2e-4)


def test_words_of_which_float32_knows_nothing():
    """Topic 0 has no tokens: E(pi) of it is e**-100, beside which factors of others are 0."""
    lambda_ = np.array([[0.005, 5, 3], [0.005, 5, 1]], np.float32)
    alpha = np.full(3, 0.1)
    assert topics_of(lambda_, alpha).sums.max() < 1e-30
    row = np.array([30, 50])
    gamma = settle(lambda_, alpha, row[None], Stop(100, 1e-6, False))[0]
    np.testing.assert_allclose(gamma, settled_gamma(lambda_, alpha, row, False), rtol=1e-3)


@pytest.mark.parametrize("cvb0", [False, True])
def test_a_document_stops_where_it_moves_little(cvb0):
    """Under cvb0 by the sum of theta's changes here, under vb by the mean of gamma's."""
    lambda_, alpha = random_model(3, 30, 6)
    row = np.random.default_rng(0).poisson(2, 30)
    states = [naive_gamma(lambda_, alpha, row, n, cvb0) for n in range(20)]
    moved = np.array([np.abs(after - before).sum() for before, after in pairwise(states)])
    moved /= alpha.sum() + row.sum() if cvb0 else len(alpha)
    for steps in (2, 4, unseen.RELAX_FROM):
        # Between the change of this step and those of all before.
        tol = np.sqrt(moved[steps - 1] * moved[: steps - 1].min())
        assert moved[steps - 1] < tol
        found = settle(lambda_, alpha, row[None], Stop(100, tol, cvb0), cvb0)[0]
        errors = [np.abs(found - state).max() for state in states]
        assert np.argmin(errors) == steps


def test_a_pair_without_a_common_topic_goes_through_the_log_domain():
    """A hundredth of a token of a word elsewhere: E(0.011) is e**-91 of nothing."""
    lambda_ = np.full((9, 3), 1e-3, np.float32)
    for k in range(3):
        lambda_[3 * k : 3 * k + 3, k] = 400
    alpha = np.full(3, 1e-3)
    row = np.array([400, 400, 400, 0.01, 0, 0, 0, 0.02, 0], np.float32)
    for steps in range(8):
        found = settle(lambda_, alpha, row[None], Stop(steps, 0.0, False))[0]
        np.testing.assert_allclose(found, naive_gamma(lambda_, alpha, row, steps), rtol=1e-4)
    assert found[0] > 1200 and 0 < found[1] < 0.02


@given(matrices(), SEEDS, st.booleans())
def test_names_of_topics_do_not_matter(matrix, seed, cvb0):
    lambda_, alpha = random_model(seed, matrix.shape[1])
    order = np.random.default_rng(seed).permutation(len(alpha))
    stop = Stop(20, 0.0, False)
    plain = settle(lambda_, alpha, matrix, stop, cvb0)
    np.testing.assert_allclose(
        settle(lambda_[:, order], alpha[order], matrix, stop, cvb0) / plain.sum(axis=1)[:, None],
        plain[:, order] / plain.sum(axis=1)[:, None],
        atol=2e-4,
    )


def test_an_empty_document_has_the_prior_and_ranges_write_their_own_rows():
    lambda_, alpha, matrix = sparse_case(1)
    matrix[4] = 0
    stop = Stop(50, 1e-3, False)
    whole = settle(lambda_, alpha, matrix, stop)
    np.testing.assert_array_equal(whole[4], alpha.astype(np.float32))
    for d in (0, 4, 11):
        np.testing.assert_array_equal(settle(lambda_, alpha, matrix[[d]], stop)[0], whole[d])
    monkey = np.full_like(whole, -1)
    rule, topics, csr = make_rule(alpha, False), topics_of(lambda_, alpha), csr_of(matrix)
    settle_documents(3, 7, *csr, topics, rule, stop, monkey)
    np.testing.assert_allclose(monkey[3:7], whole[3:7], rtol=1e-3)
    assert (monkey[:3] == -1).all() and (monkey[7:] == -1).all()


def test_words_that_no_topic_knows_leave_the_prior():
    """Under cvb0 point topics may be 0."""
    topics = given_topics(np.zeros((3, 16), np.float32))
    csr = (
        frozen([0, 2], np.int64), frozen([0, 2], np.int32), frozen([5, 1], np.float32),
    )  # fmt: skip
    gamma = np.full((1, 16), np.nan, np.float32)
    rule = make_rule(np.full(16, 0.1), True)
    settle_documents(0, 1, *csr, topics, rule, Stop(30, 1e-9, True), gamma)
    np.testing.assert_array_equal(gamma, np.float32(0.1))


def test_lambda_stays_as_it_is_and_may_be_read_only():
    lambda_, alpha, matrix = sparse_case(2)
    before = lambda_.tobytes()
    lambda_.setflags(write=False)
    gamma = settle(lambda_, alpha, matrix, Stop(100, 1e-3, False))
    assert lambda_.tobytes() == before and np.isfinite(gamma).all()
    # No other machine code for what can be written.
    n = len(settle_documents.signatures)
    settle(lambda_.copy(), alpha, matrix, Stop(100, 1e-3, False), cvb0=True)
    assert len(settle_documents.signatures) == n


def test_fractions_of_tokens_leave_a_topic():
    """Less than a topic's tolerance in all: no topic may be the last to go."""
    lambda_, alpha, matrix = sparse_case(3)
    gamma = settle(lambda_, alpha, matrix * np.float32(1e-6), Stop(100, 1e-1, False))
    np.testing.assert_allclose(
        gamma.sum(axis=1), alpha.sum() + 1e-6 * matrix.sum(axis=1), rtol=1e-5
    )


@pytest.mark.parametrize("cvb0", [False, True])
@pytest.mark.parametrize("n_topics", [1, 4, 40])
def test_counts_of_any_size_that_a_corpus_takes_give_numbers(cvb0, n_topics):
    """Over-relaxed steps too, which multiply and divide what is held by sums of it."""
    rng = np.random.default_rng(0)
    lambda_ = rng.gamma(0.3, 1, (12, n_topics)).astype(np.float32) + np.float32(0.001)
    alpha = np.full(n_topics, 0.1)
    for count in (1e15, 1e20, 1e28, 8e34):
        for steps in range(unseen.RELAX_FROM, unseen.RELAX_FROM + 8):
            gamma = settle(lambda_, alpha, np.full((1, 12), count), Stop(steps, 1e-3, False), cvb0)
            tokens = gamma.sum(dtype=np.float64)
            assert tokens == pytest.approx(12 * count, rel=1e-4), (count, steps)
