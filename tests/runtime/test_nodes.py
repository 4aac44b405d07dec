"""A fit on several nodes, without a transport: home and its peers."""

import errno
import mmap
import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.part import join
from esvi_shm.corpus.range import take
from esvi_shm.corpus.split import split_documents
from esvi_shm.errors import CorpusError, MemoryShortError, ParameterError
from esvi_shm.families.lda import Model, likeness, starts
from esvi_shm.families.lda.schedule import TOLERANCE
from esvi_shm.runtime import engine, home, memory
from esvi_shm.runtime.nodes import Nodes
from esvi_shm.runtime.serial import SerialFit
from esvi_shm.shared.segments import Segment
from tests import naive
from tests.runtime.meeting import Meeting, fit_together

COUNTS, TOPICS = naive.simulate(40, 24, 3, 40, seed=0)
CORPUS = Corpus.from_sparse(COUNTS)
CONFIG = FitConfig(
    3, n_passes=6, n_workers=2, n_blocks=7, inference="vb", tol=0.0, alpha=0.1, eta=0.1
)


def sums_hold(learned, counts=COUNTS, alpha=0.3, eta=0.3):
    gamma = np.concatenate(learned.of_units)
    near = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(gamma.sum(axis=1), counts.sum(axis=1) + alpha, **near)
    words = counts.sum(axis=0)[learned.word_ids]
    rows = np.asarray(learned.lambda_rows)
    np.testing.assert_allclose(rows.sum(axis=1), words + eta, **near)
    np.testing.assert_allclose(
        gamma.sum(axis=0) - len(gamma) * learned.alpha,
        learned.lambda_rows.sum(axis=0) - learned.eta.sum(),
        **near,
    )


@pytest.mark.parametrize("n_nodes", [1, 2, 3])
def test_nodes_end_where_one_does(n_nodes, monkeypatch):
    config = replace(CONFIG, n_passes=40, inference="anneal", evaluate_every=20)
    results, _ = fit_together(CORPUS, config, n_nodes, monkeypatch)
    one = engine.fit(CORPUS, config)
    assert results[0].history[-1].elbo == pytest.approx(one.history[-1].elbo, rel=0.02)
    sums_hold(results[0].learned)


def test_every_node_knows_the_same_bound_and_is_visited_once_a_pass(monkeypatch):
    results, meeting = fit_together(CORPUS, CONFIG, 3, monkeypatch)
    for result in results[1:]:
        for mine, first in zip(result.history, results[0].history, strict=True):
            assert mine[3:6] == first[3:6]
            assert mine.passes == first.passes
    assert results[0].history[-1].passes == CONFIG.n_passes
    for node in range(3):
        pi = meeting.homes[node].shared["pi"].sum(axis=0)
        learned = results[0].learned
        np.testing.assert_allclose(pi, learned.lambda_rows.sum(axis=0) - 24 * 0.1, rtol=1e-4)
    for b in range(7):
        of_block = [node for block, node in meeting.visits if block == b]
        for p in range(CONFIG.n_passes):
            assert sorted(of_block[3 * p : 3 * p + 3]) == [0, 1, 2]


def test_memory_is_that_of_the_rows_that_are_here_and_of_some_that_were(monkeypatch):
    reserved, given_back = [], []
    reserve, give_back = Segment.reserve, Segment.give_back

    def note_reserve(self, name=None, rows=slice(None)):
        if name == "lambda_":
            reserved.append(rows)
        reserve(self, name, rows)

    def note_give_back(self, name, rows):
        given_back.append(rows)
        before = os.stat(self.handle.path).st_blocks
        give_back(self, name, rows)
        freed = 512 * (before - os.stat(self.handle.path).st_blocks)
        assert freed >= self.arrays[name][rows].nbytes - 2 * mmap.PAGESIZE > 0

    monkeypatch.setattr(Segment, "reserve", note_reserve)
    monkeypatch.setattr(Segment, "give_back", note_give_back)
    counts = np.tile(COUNTS, (1, 4))
    config = replace(CONFIG, n_topics=512, n_workers=1, n_passes=2, n_blocks=12, start="random")
    results, meeting = fit_together(Corpus.from_sparse(counts), config, 4, monkeypatch)
    assert given_back
    assert all(rows != slice(None) for rows in reserved)
    kept = 0
    for rank, at_node in meeting.homes.items():
        travelling = at_node.nodes.rows
        n_bytes = travelling.shared["lambda_"].nbytes
        assert travelling.limit == int(n_bytes * 2.5 / 4)
        most = max(8, meeting.peers[rank].most_held) + 1  # blocks are not all of one size
        assert travelling.held <= travelling.most_held <= n_bytes * most // 12
        kept += len(meeting.peers[rank].held) + len(travelling.left)
    assert len(reserved) == len(given_back) + kept
    assert len(reserved) < meeting.carried  # some came back to where their pages were
    sums_hold(results[0].learned, counts, 51.2, 51.2)


@pytest.mark.parametrize("start", starts.known())
def test_starts_do_not_depend_on_the_number_of_nodes(start, monkeypatch):
    config = replace(CONFIG, start=start, n_passes=0)
    if start != "random":
        config = replace(config, seed_documents=None if start == "scikit-learn" else 2)
    (one, *_), _ = fit_together(CORPUS, config, 1, monkeypatch)
    (two, *_), meeting = fit_together(CORPUS, config, 2, monkeypatch)
    one, two = one.learned, two.learned
    for at_node in meeting.homes.values():
        pi = at_node.shared["pi"].sum(axis=0)
        np.testing.assert_allclose(pi, two.lambda_rows.sum(axis=0) - 24 * 0.1, rtol=1e-4)
    np.testing.assert_array_equal(one.word_ids, two.word_ids)
    # Blocks are swept in another order.
    near = {"rtol": 0.15, "atol": 0.5}
    np.testing.assert_allclose(one.lambda_rows, two.lambda_rows, **near)
    np.testing.assert_allclose(np.concatenate(one.of_units), np.concatenate(two.of_units), **near)


def test_priors_are_learned_from_all_documents(monkeypatch):
    config = replace(CONFIG, learn_priors="both", n_passes=12)
    one, two = (fit_together(CORPUS, config, n, monkeypatch)[0] for n in (1, 2))
    assert (two[0].learned.alpha == two[1].learned.alpha).all()
    assert (two[0].learned.eta == two[1].learned.eta).all()
    np.testing.assert_allclose(two[0].learned.alpha.sum(), one[0].learned.alpha.sum(), rtol=0.3)
    learned = two[0].learned
    sums_hold(learned, alpha=learned.alpha.sum(), eta=3 * learned.eta[0])


@pytest.mark.parametrize("learned", ["alpha", "eta", "both"])
def test_under_cvb0_node_0_judges_the_priors_of_all(learned, monkeypatch):
    asked = []

    def worse(priors):  # the nearer to where they began
        return -sum(abs(np.log(prior / 0.1)) for prior in priors)

    def judge(lambda_, word_ids, alpha, **_):
        tokens = lambda_.sum(axis=1) - COUNTS.sum(axis=0)[word_ids]  # K eta, of every word
        assert np.ptp(tokens) < 0.02
        asked.append((float(alpha.mean()), float(tokens.mean()) / 3))
        return worse(asked[-1])

    def never(*_):
        raise AssertionError("node 0 is to be asked")

    config = replace(CONFIG, inference="cvb0", learn_priors=learned, n_passes=12, leave_out="none")
    results, _ = fit_together(CORPUS, config, 2, monkeypatch, [judge, never])
    alpha, eta = (getattr(results[0].learned, name) for name in ("alpha", "eta"))
    for name, prior in (("alpha", alpha), ("eta", eta)):
        assert (prior == getattr(results[1].learned, name)).all()
        assert (prior == 0.1).all() == (learned not in (name, "both"))
    # What was kept is the best that was asked for.
    best = min(asked, key=worse)
    assert alpha.mean() == pytest.approx(best[0], rel=1e-3)
    assert eta[0] == pytest.approx(best[1], rel=0.02)
    sums_hold(results[0].learned, alpha=alpha.sum(), eta=3 * eta[0])


@pytest.mark.parametrize("storage", ["margins", "full", "topk"])
def test_repairs_are_made_by_all_nodes(storage, monkeypatch):
    drawn = []

    def choose(excess, n, random):
        if n:  # no kernels are to be compiled
            drawn.append(excess)
        return choose_documents(excess, n, random)

    choose_documents = likeness.choose_documents
    monkeypatch.setattr(likeness, "choose_documents", choose)
    # Six topics where there are three: some are double.
    config = replace(CONFIG, n_topics=6, repair_after=(2, 14), n_passes=30, storage=storage)
    one, _ = fit_together(CORPUS, config, 1, monkeypatch)
    of_one, drawn = drawn[0], []
    two, meeting = fit_together(CORPUS, config, 2, monkeypatch)
    assert two[0].at_rest == two[1].at_rest
    assert two[0].at_rest["repairs_tried"] > 0
    for homes in zip(*(meeting.homes[rank].shared["moves"] for rank in (0, 1)), strict=True):
        assert homes[0] == homes[1]
    for excess in drawn[::2], drawn[1::2]:
        assert len(excess[0]) == 40
    for mine, theirs in zip(two[0].history, two[1].history, strict=True):
        assert mine.elbo == theirs.elbo
    assert np.corrcoef(of_one, drawn[0])[0, 1] > 0.9
    assert two[0].history[-1].elbo == pytest.approx(one[0].history[-1].elbo, rel=0.02)
    sums_hold(two[0].learned, alpha=0.6, eta=0.6)


def test_a_file_system_that_cannot_free_a_part_of_a_file_is_told_of(monkeypatch, caplog):
    def give_back(self, name, rows):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(Segment, "give_back", give_back)
    config = replace(CONFIG, n_blocks=12, n_workers=1)
    results, meeting = fit_together(CORPUS, config, 4, monkeypatch)
    assert "scratch: this node keeps all 288 bytes of what travels" in caplog.text
    sums_hold(results[0].learned)
    for at in meeting.homes.values():
        assert at.nodes.rows.held <= at.nodes.rows.whole


def test_a_full_folder_for_what_is_put_together_is_an_error(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(
        Nodes, "most_held", lambda self: monkeypatch.setattr(os, "posix_fallocate", full) or 1.0
    )  # from when the passes are over
    with pytest.raises(MemoryShortError, match=r"a file in /\S+ needs 288 bytes; \d+ are free"):
        fit_together(CORPUS, CONFIG, 2, monkeypatch)


def test_judges_see_all_topics_at_node_0(monkeypatch):
    seen = []

    def judge(lambda_, word_ids, alpha):
        words = COUNTS.sum(axis=0)[word_ids]
        np.testing.assert_allclose(lambda_.sum(axis=1), words + 0.3, rtol=1e-4)
        seen.append(len(seen))
        return 100.0 + len(seen)

    def never(*_):
        raise AssertionError("node 0 is to be asked")

    config = replace(CONFIG, evaluate_every=2, patience=2, n_passes=50)
    results, _ = fit_together(CORPUS, config, 2, monkeypatch, [judge, never])
    assert [r.stopped for r in results] == ["patience", "patience"]
    assert len(seen) == len(results[1].history) == 3
    assert [r.perplexity for r in results[1].history] == [101, 102, 103]


def test_the_clock_of_any_node_ends_the_passes_of_all(monkeypatch):
    config = replace(CONFIG, n_passes=10**6, max_time=0.3, evaluate_every=0)
    results, _ = fit_together(CORPUS, config, 2, monkeypatch)
    assert [r.stopped for r in results] == ["max_time", "max_time"]
    assert results[0].passes == results[1].passes > 0
    sums_hold(results[0].learned)


def test_a_clock_that_is_ahead_of_that_of_node_0_ends_the_passes_of_all(monkeypatch):
    should_stop = home.Home._should_stop

    def ahead(self, now):
        return self.nodes.peers.rank == 1 or should_stop(self, now)

    monkeypatch.setattr(home.Home, "_should_stop", ahead)
    config = replace(CONFIG, n_passes=10**6, max_time=1e6, evaluate_every=0, tol=0.0)
    results, _ = fit_together(CORPUS, config, 2, monkeypatch)
    assert [r.stopped for r in results] == ["max_time", "max_time"]
    assert results[0].fit_seconds < 1e3


def test_restarts_are_the_same_at_all_nodes(monkeypatch):
    config = replace(CONFIG, restarts=3, restart_passes=2, n_passes=3)
    results, _ = fit_together(CORPUS, config, 2, monkeypatch)
    assert results[0].restarts == results[1].restarts
    assert len(results[0].restarts) == 3
    sums_hold(results[0].learned)


def test_active_sets_are_those_of_the_words_that_come(monkeypatch):
    config = replace(CONFIG, n_topics=20, n_passes=16, dense_passes=4, storage="margins")
    results, _ = fit_together(CORPUS, config, 2, monkeypatch)
    dense, _ = fit_together(CORPUS, replace(config, dense_passes=None), 2, monkeypatch)
    sums_hold(results[0].learned, alpha=2.0, eta=2.0)
    elbo, of_dense = (found[0].history[-1].elbo for found in (results, dense))
    assert elbo == pytest.approx(of_dense, rel=0.01)
    found = results[0].ending["active_left_out"]
    assert found["documents"] == 40 and found["tokens"] == CORPUS.n_tokens
    assert 0 <= found["mass"] < TOLERANCE
    assert "active_left_out" not in results[1].ending


def test_lists_of_all_nodes_are_gathered_as_whole_rows(monkeypatch):
    config = replace(CONFIG, n_topics=20, n_passes=16, dense_passes=4, storage="sparse")
    results, _ = fit_together(CORPUS, config, 2, monkeypatch)
    sums_hold(results[0].learned, alpha=2.0, eta=2.0)
    margins, _ = fit_together(CORPUS, replace(config, storage="margins"), 2, monkeypatch)
    elbo, of_margins = (found[0].history[-1].elbo for found in (results, margins))
    assert elbo == pytest.approx(of_margins, rel=0.02)
    assert 0 <= results[0].ending["without_place"]["phi_doc"] < 0.1


def test_a_block_that_comes_back_lives_in_other_topics():
    config = replace(CONFIG, n_topics=20, dense_passes=0)
    shared = {"knows_live": np.ones(3, bool)}
    Model(config, SerialFit(CORPUS, config).sizes).arrived(shared, 1)
    assert shared["knows_live"].tolist() == [True, False, True]


def test_what_is_taken_within_a_limit_of_memory_fits_at_every_node(monkeypatch):
    # Node 1 has nearly all documents: what fits at node 0 does not fit there.
    monkeypatch.setattr(memory, "private_bytes", lambda: 80 * 2**20)
    whole = Corpus.from_sparse(np.tile(COUNTS, (200, 1)))
    parts = [take(whole, 0, 4), take(whole, 4, 8000)]
    config = replace(CONFIG, n_topics=100, n_workers=1, n_blocks=None, n_passes=1)
    free, _ = fit_together(whole, config, 2, monkeypatch, parts=parts)
    most = max(result.shared_bytes for result in free)
    code = Model(config, SerialFit(CORPUS, CONFIG).sizes).code_bytes()
    limit = 80 * 2**20 + memory.TRACKER_BYTES + memory.WORKER_BYTES + 2 * code
    limited = replace(config, max_memory=limit + most - 2**19)
    results, _ = fit_together(whole, limited, 2, monkeypatch, parts=parts)
    ways = {(r.config.storage, r.config.topk, r.config.n_blocks) for r in results}
    assert len(ways) == 1 and ways != {("margins", None, free[0].config.n_blocks)}
    assert results[1].shared_bytes < free[1].shared_bytes
    with pytest.raises(ParameterError, match=r"max_memory must be at least 1\d\d"):
        fit_together(whole, replace(config, max_memory=2**20), 2, monkeypatch, parts=parts)


def test_what_nodes_cannot_do_is_refused(monkeypatch):
    config = replace(CONFIG, n_passes=100, deterministic=True)
    with pytest.raises(ParameterError, match="deterministic cannot be used on several nodes"):
        fit_together(CORPUS, config, 2, monkeypatch, [lambda *_: 1.0] * 2)


class TestParts:
    """What nodes know of the corpus that they have together."""

    @staticmethod
    def together(corpora):
        import threading

        meeting, found = Meeting(len(corpora)), [None] * len(corpora)

        def work(rank):
            try:
                found[rank] = join(corpora[rank], meeting.peers[rank])
            except CorpusError as error:
                found[rank] = error

        threads = [threading.Thread(target=work, args=(r,)) for r in range(len(corpora))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def test_sizes_are_those_of_the_whole(self):
        bounds = split_documents(CORPUS.indptr, 3)
        parts = self.together([take(CORPUS, a, b) for a, b in pairwise(bounds.tolist())])
        for part, first in zip(parts, bounds, strict=False):
            assert part.first_document == first
            for name in ("n_documents", "n_words", "n_pairs", "n_tokens"):
                assert getattr(part.whole, name) == getattr(CORPUS, name)
            assert (part.whole.pairs_per_word() == CORPUS.pairs_per_word()).all()
            np.testing.assert_allclose(part.whole.word_tokens, COUNTS.sum(axis=0))
        assert len({part.whole.digest() for part in parts}) == 1

    @pytest.mark.parametrize(
        ("other", "rule"),
        [
            (Corpus.from_tokens([["a", "c"]]), "same vocabulary: that of node 1"),
            (Corpus.from_tokens([["a"]]), "node 1 has 1 words, node 0 2"),
            (take(Corpus.from_tokens([["a", "b"]]), 0, 0), "node 1 has none"),
        ],
    )
    def test_nodes_that_do_not_go_together_are_named_on_all(self, other, rule):
        for error in self.together([Corpus.from_tokens([["a", "b"]]), other]):
            assert isinstance(error, CorpusError)
            assert rule in str(error)
