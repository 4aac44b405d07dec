"""The memory plan: complete, and what is allocated."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import MemoryShortError
from esvi_shm.families.lda.cut import BYTES_A_WORD, choose_n_blocks
from esvi_shm.runtime.engine import fit, plan
from esvi_shm.runtime.layout import Layout
from esvi_shm.shared import preflight
from esvi_shm.shared.table import ALIGNMENT
from tests.families.lda.play import cases
from tests.runtime.fits import COUNTS


@settings(max_examples=30)
@given(cases())
def test_total_bytes_are_the_sum_of_all_arrays(case):
    fit = case.fit()
    n_bytes = 0
    for label, table in fit.layout.tables.items():
        assert fit.arrays[label].keys() == {spec.name for spec in table}
        for spec in table:
            array = fit.arrays[label][spec.name]
            assert (array.shape, array.dtype, array.nbytes) == (
                spec.shape,
                spec.dtype,
                spec.n_bytes,
            )
            n_bytes += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    assert fit.layout.total_bytes == n_bytes


@pytest.mark.parametrize("storage", ["margins", "full", "sparse", "topk"])
def test_the_plan_lists_every_array_once(storage):
    config = FitConfig(n_topics=3, n_workers=2, n_blocks=4, storage=storage)
    layout = plan(Corpus.from_sparse(COUNTS), config)
    lines = layout.describe().splitlines()
    listed = [tuple(line.split()[:2]) for line in lines[:-1]]
    declared = {
        (label.split("_")[0], spec.name) for label, table in layout.tables.items() for spec in table
    }
    assert sorted(listed) == sorted(declared)
    assert lines[-1].split()[2:] == ["total", f"{layout.total_bytes / 2**20:.2f}", "MiB"]
    of_documents = ["state", "gamma_size" if storage == "sparse" else "gamma"]
    (gamma,) = (line for line in lines if line.split()[:2] == of_documents)
    assert ("30" if storage == "sparse" else "30 x 3") in gamma  # over all shards


def test_every_array_says_who_writes_and_reads_it():
    layout = plan(Corpus.from_sparse(COUNTS), FitConfig(n_workers=2))
    for table in layout.tables.values():
        for spec in table:
            assert spec.writer and spec.readers and spec.what


@settings(max_examples=30)
@given(cases())
def test_the_corpus_is_filled_in(case):
    fit, counts = case.fit(), case.counts
    held = fit.corpus_arrays
    assert sorted(held["word_ids"]) == list(range(counts.shape[1]))
    np.testing.assert_allclose(held["document_tokens"], counts.sum(axis=1, dtype=float))
    np.testing.assert_allclose(
        held["word_tokens"], counts.sum(axis=0, dtype=float)[held["word_ids"]]
    )
    assert held["document_bounds"][[0, -1]].tolist() == [0, len(counts)]
    assert held["block_bounds"][[0, -1]].tolist() == [0, counts.shape[1]]
    total = sum(shard["pair_count"].sum(dtype=float) for shard in fit.shards)
    np.testing.assert_allclose(total, counts.sum(dtype=float))


@pytest.mark.parametrize(
    ("documents", "pairs", "words", "n_workers", "n_blocks"),
    [
        (50, 50 * 99, 99, 1, 4),  # 99 pairs a document: 20 a row
        (50, 50 * 6, 99, 1, 1),
        (50, 50 * 6, 99, 3, 6),
        (50, 50 * 9999, 9999, 2, 8),
        (50, 50 * 9999, 9999, 8, 16),
        (50, 50 * 6, 140_000, 1, 9),
        (8_200_000, 8_200_000 * 59, 141_043, 2, 4),
        (8_200_000, 8_200_000 * 59, 141_043, 1, 2),
        (50_000, 50_000 * 6, 140_000, 1, 3),
        (50, 50 * 9999, 3, 8, 3),
    ],
)
def test_the_number_of_blocks_is_chosen(documents, pairs, words, n_workers, n_blocks):
    corpus = SimpleNamespace(n_documents=documents, n_pairs=pairs, n_words=words)
    assert choose_n_blocks(corpus, n_workers) == n_blocks


def test_the_chosen_number_of_blocks_is_used():
    layout = plan(Corpus.from_sparse(np.ones((50, 99))), FitConfig(n_workers=1))
    assert layout.sizes.n_blocks == 4


def few_of(n_words: int) -> Corpus:
    """Three pairs in a large vocabulary."""
    pairs = ([1.0, 1.0, 1.0], [0, 5, n_words - 1], [0, 1, 2, 3])
    return Corpus.from_sparse(scipy.sparse.csr_matrix(pairs, shape=(3, n_words)), name="few.svm")


def peak_of(act) -> int:
    tracemalloc.start()
    try:
        act()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("n_blocks, held", [(2, 1.0), (4, 0.75), (8, 0.375), (16, 0.3125)])
def test_of_few_blocks_a_node_holds_its_own_and_two_more(n_blocks, held):
    sizes = SimpleNamespace(n_nodes=8, n_blocks=n_blocks)
    layout = Layout(None, SimpleNamespace(sizes=sizes), None, {})
    assert layout.most_held == held


def test_a_plan_takes_no_more_memory_than_it_asked_for():
    corpus, config = few_of(1_000_000), FitConfig(n_workers=2)
    plan(few_of(1000), config)  # kernels are loaded
    assert 0.5 < peak_of(lambda: plan(corpus, config)) / (BYTES_A_WORD * corpus.n_words) < 1


@pytest.mark.parametrize("act", [plan, fit])
def test_a_vocabulary_that_no_memory_can_order_is_refused_before_it_is(act, monkeypatch):
    corpus, config = few_of(90_000_000), FitConfig(n_workers=2)
    monkeypatch.setattr(preflight, "free_memory", lambda: 2**31)

    def refused():
        with pytest.raises(MemoryShortError, match=r"few\.svm: the order of 90000000 words takes"):
            act(corpus, config)

    assert peak_of(refused) < 2**20
