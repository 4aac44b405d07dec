"""The topic axis on several nodes: topics hop with their columns of lambda and their sums pi."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.range import take
from esvi_shm.families.lda import Model, starts
from esvi_shm.families.lda.cut import Sizes
from esvi_shm.families.lda.worker import Worker
from esvi_shm.runtime import engine, home
from esvi_shm.runtime.serial import warm_up
from tests.families.lda.play import bound_noise
from tests.runtime.fits import Threads
from tests.runtime.meeting import Signals, fit_together, part_of
from tests.runtime.test_nodes import CORPUS, COUNTS, sums_hold
from tests.transports.test_contract import succeed, together

CONFIG = FitConfig(
    6, axis="topics", n_passes=30, evaluate_every=1, n_workers=1, n_blocks=6, inference="vb",
    tol=0.0, alpha=0.1, eta=0.1,
)  # fmt: skip


def assert_is_one_fit(results, counts=COUNTS):
    """The bound never falls, and is the same at all nodes; node 0 has all of the model."""
    found = [record.elbo_f for record in results[0].history]
    assert np.diff(found).min() > -bound_noise(counts)
    for other in results[1:]:
        assert [r[3:6] for r in other.history] == [r[3:6] for r in results[0].history]
        assert other.passes == results[0].passes == results[0].config.n_passes
    sums_hold(results[0].learned, counts, alpha=0.6, eta=0.6)


@pytest.mark.parametrize(
    ("n_nodes", "n_workers"), [pytest.param(2, 1, marks=pytest.mark.slow), (3, 1), (2, 2)]
)
def test_the_bound_never_falls(n_nodes, n_workers, monkeypatch):
    results, meeting = fit_together(
        CORPUS, replace(CONFIG, n_workers=n_workers), n_nodes, monkeypatch
    )
    assert_is_one_fit(results)
    for b in range(6):
        of_block = [node for block, node in meeting.visits if block == b]
        assert all(of_block.count(node) == 30 for node in range(n_nodes))
    whole = meeting.homes[0].shared
    total = whole["lambda_"].sum(axis=0, dtype=np.float64) - COUNTS.shape[1] * 0.1
    for at_node in meeting.homes.values():
        assert (at_node.shared["lambda_"] == whole["lambda_"]).all()
        np.testing.assert_allclose(at_node.shared["pi"].sum(axis=0), total, rtol=1e-4)


@pytest.fixture
def fit_over(monkeypatch):
    """Fit the corpus on nodes that a transport joins; their results."""
    monkeypatch.setattr(home, "Workers", Threads)
    monkeypatch.setattr(engine, "Signals", Signals)

    def fit(transport, n_nodes, config):
        def work(peers):
            own = Model.join(part_of(CORPUS, config, peers.rank, n_nodes), peers)
            return engine.fit(own, config, peers=peers)

        warm_up(config)
        return succeed(together(transport, n_nodes, work))

    return fit


@pytest.mark.parametrize(("transport", "n_nodes"), [("loopback", 3), ("tcp", 2)])
def test_over_transports(transport, n_nodes, fit_over):
    assert_is_one_fit(fit_over(transport, n_nodes, CONFIG))


def test_two_nodes_end_where_one_does(fit_over):
    differences = []
    for seed in range(3):
        config = replace(CONFIG, seed=seed, n_passes=100, evaluate_every=0)
        two, *_ = fit_over("loopback", 2, config)
        one = engine.fit(CORPUS, replace(config, n_workers=2))
        differences.append(two.history[-1].elbo - one.history[-1].elbo)
    spread = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert abs(np.mean(differences)) < 3 * spread + 5


@pytest.mark.parametrize("start", starts.known())
def test_starts_do_not_depend_on_the_number_of_nodes(start, monkeypatch):
    config = replace(CONFIG, start=start, n_passes=0)
    (one, *_), _ = fit_together(CORPUS, config, 1, monkeypatch)
    (two, *_), _ = fit_together(CORPUS, config, 2, monkeypatch)
    near = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(one.learned.lambda_rows, two.learned.lambda_rows, **near)
    gamma = (np.concatenate(result.learned.of_units) for result in (one, two))
    np.testing.assert_allclose(*gamma, **near)


def test_rests_on_the_way(monkeypatch):
    config = replace(
        CONFIG, inference="anneal", n_passes=60, refold_after=(5,), noise=0.1, evaluate_every=20,
        learn_priors="both", repair_after=(50,),
    )  # fmt: skip
    one, _ = fit_together(CORPUS, config, 1, monkeypatch)
    two, _ = fit_together(CORPUS, config, 2, monkeypatch)
    assert two[0].at_rest == two[1].at_rest and two[0].at_rest["repairs_tried"] > 0
    assert [r[3:6] for r in two[0].history] == [r[3:6] for r in two[1].history]
    assert two[0].history[-1].elbo == pytest.approx(one[0].history[-1].elbo, rel=0.03)
    learned = two[0].learned
    assert (learned.alpha == two[1].learned.alpha).all() and learned.alpha.std() > 0
    sums_hold(learned, alpha=learned.alpha.sum(), eta=6 * learned.eta[0])


def test_a_refold_is_into_the_same_topics_at_all_nodes(monkeypatch):
    found, unfold = [], Worker._unfold_again

    def noted(self):
        found.append(self.shared["lambda_"].copy())
        unfold(self)

    monkeypatch.setattr(Worker, "_unfold_again", noted)
    config = replace(CONFIG, n_passes=3, refold_after=(2,), evaluate_every=0)
    fit_together(CORPUS, config, 3, monkeypatch)
    first, second = found[-2:]  # those before are of small fits, for the compiler
    assert first.shape == (COUNTS.shape[1], 6) and (first == second).all()


def test_a_node_without_a_token_passes_topics_on(monkeypatch):
    counts = COUNTS.copy()
    counts[20:] = 0
    corpus = Corpus.from_sparse(counts)
    parts = [take(corpus, 0, 20), take(corpus, 20, 40)]
    results, meeting = fit_together(corpus, CONFIG, 2, monkeypatch, parts=parts)
    assert {node for _, node in meeting.visits} == {0}
    assert_is_one_fit(results, counts)


def test_what_ends_the_passes_leaves_a_whole_model(monkeypatch):
    config = replace(CONFIG, n_passes=10**6, max_time=0.3, evaluate_every=0)
    results, _ = fit_together(CORPUS, config, 2, monkeypatch)
    assert [r.stopped for r in results] == ["max_time", "max_time"]
    sums_hold(results[0].learned, alpha=0.6, eta=0.6)


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1), st.data())
def test_topics_that_come_have_their_sums_over_all_nodes(n_topics, n_workers, seed, data):
    n_blocks = data.draw(st.integers(1, n_topics))
    sizes = Sizes(n_workers, n_blocks, 2, 1, 1, (1,), (1,), (1,), (1,), (1,), 1, 2, 0)
    model = Model(FitConfig(n_topics, axis="topics"), sizes)
    random = np.random.default_rng(seed)
    pi = random.random((n_workers + 1, n_topics))
    before, total = pi.copy(), random.random((1, n_topics)) * 100
    block = data.draw(st.integers(0, n_blocks - 1))
    model.arrived({"pi": pi, "pi_total": total}, block)
    topics, rest = model.topics_of(block), np.ones(n_topics, bool)
    rest[topics] = False
    np.testing.assert_allclose(pi[:, topics].sum(axis=0), total[0, topics], rtol=1e-12)
    assert (pi[:, rest] == before[:, rest]).all() and (pi[:-1] == before[:-1]).all()
