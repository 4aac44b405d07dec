"""What holds for every reader that a node keeps a range of: the ranges are the corpus."""

import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from esvi_shm.corpus import ReadOptions, read_corpus
from esvi_shm.corpus.range import Share
from esvi_shm.corpus.readers import _files, read_range
from esvi_shm.corpus.split import split_documents
from esvi_shm.errors import CorpusError
from tests.corpus.readers.writers import CASES, WRITERS, write
from tests.corpus.strategies import matrices


def ranges(path, n, form=None, options=None):
    return [read_range(path, form, options, None, Share(which, n)) for which in range(n)]


def are_the_corpus(found, whole):
    """Ranges of about the same numbers of pairs, one behind the other."""
    matrices = [part.corpus.as_sparse() for part in found]
    assert (scipy.sparse.vstack(matrices) != whole.as_sparse()).nnz == 0
    assert {part.n_documents for part in found} == {whole.n_documents}
    assert {part.corpus.vocabulary for part in found} == {whole.vocabulary}
    assert len({part.digest for part in found}) == 1
    bounds = split_documents(whole.indptr, len(found))
    assert [part.first for part in found] == bounds[:-1].tolist()


@pytest.mark.parametrize(("form", "name"), CASES)
@pytest.mark.parametrize("block_bytes", [64, _files.BLOCK_BYTES])
def test_ranges_of_every_file(form, name, block_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "BLOCK_BYTES", block_bytes)
    dense = np.random.default_rng(0).poisson(0.6, (60, 9)).astype(np.float32)
    dense[[4, 59]] = 0
    path, words = write(tmp_path, form, name, dense)
    options = ReadOptions(vocabulary=words)
    whole = read_corpus(path, form, options)
    for n in (1, 2, 5):
        are_the_corpus(ranges(path, n, form, options), whole)


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=20)
@given(matrices(floats=True), st.integers(2, 5))
def test_ranges_of_random_corpora(form, dense, n):
    _, names, fractions = WRITERS[form]
    if not fractions:
        dense = np.ceil(dense / 100)
    with tempfile.TemporaryDirectory() as folder:
        path, words = write(Path(folder), form, names[0], dense)
        options = ReadOptions(vocabulary=words)
        are_the_corpus(ranges(path, n, form, options), read_corpus(path, form, options))


def test_documents_in_any_order(tmp_path):
    dense = np.random.default_rng(1).poisson(0.5, (40, 20))
    lines = [f"{d + 1} {v + 1} {dense[d, v]}\n" for d, v in np.argwhere(dense)]
    np.random.default_rng(2).shuffle(lines)
    path = tmp_path / "docword.x.txt"
    path.write_text(f"40\n20\n{len(lines)}\n{''.join(lines)}")
    are_the_corpus(ranges(path, 3), read_corpus(path))


@pytest.mark.parametrize(
    "kept",
    [{}, {"min_df": 3}, {"max_df": 0.4}, {"max_vocabulary": 7}, {"stop_words": "english"}],
)
def test_the_words_of_a_text_are_those_of_all_its_documents(kept, tmp_path):
    random = np.random.default_rng(3)
    words = [f"w{i}" for i in range(30)] + ["the", "über"]
    lines = [" ".join(random.choice(words, random.integers(0, 9))) for _ in range(50)]
    path = tmp_path / "x.txt"
    path.write_text("\n".join(lines))
    options = ReadOptions(**kept)
    whole, found = read_corpus(path, options=options), ranges(path, 3, options=options)
    assert {part.corpus.vocabulary for part in found} == {whole.vocabulary}
    stacked = scipy.sparse.vstack([part.corpus.as_sparse() for part in found])
    assert (stacked != whole.as_sparse()).nnz == 0


@pytest.mark.parametrize(
    ("text", "kept", "told"),
    [
        ("", {}, "file is empty"),
        ("a a\n\n", {}, "none in 2 doc"),
        ("an an", {"min_df": 2}, "no wo"),
    ],
)
def test_a_text_without_words_is_refused_by_every_node(text, kept, told, tmp_path):
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(CorpusError, match=told):
        read_range(tmp_path / "x.txt", None, ReadOptions(**kept), None, Share(1, 2))


def test_ids_of_other_ranges_count(tmp_path):
    """Where no vocabulary says how many words there are, or from which id they are counted."""
    (tmp_path / "x.ldac").write_text("1 0:1\n1 7:1\n")
    assert [part.corpus.n_words for part in ranges(tmp_path / "x.ldac", 2)] == [8, 8]
    (tmp_path / "x.svm").write_text("0 0:1\n0 7:1\n")
    assert [part.corpus.indices.tolist() for part in ranges(tmp_path / "x.svm", 2)] == [[0], [7]]


@pytest.mark.parametrize("stored", ["csr", "csc", "coo"])
@pytest.mark.parametrize("transpose", [False, True])
def test_sparse_matrices_however_they_are_stored(stored, transpose, tmp_path):
    dense = np.random.default_rng(0).poisson(0.4, (30, 12)).astype(np.float32)
    dense[[0, 7, 29]] = 0
    matrix = scipy.sparse.csr_matrix(dense.T if transpose else dense).asformat(stored)
    path, options = tmp_path / "x.npz", ReadOptions(transpose=transpose)
    scipy.sparse.save_npz(path, matrix)
    for n in (1, 3):
        are_the_corpus(ranges(path, n, None, options), read_corpus(path, None, options))


def test_a_damaged_matrix_is_refused_by_every_node(tmp_path):
    """Also by nodes whose own documents come before the damage, and where sizes are lies."""
    path = tmp_path / "x.npz"
    arrays = {"format": b"csr", "shape": [4, 3], "data": np.arange(1.0, 5), "indices": [0, 1, 2, 0]}
    for indptr, told in (
        ([0, 1, 2, 3, 9], "data must be as long"),
        ([0, 1, 3, 2, 4], "indptr must ascend"),
        ([0, 1, 2, 4], "indptr must be 5"),
        ([0.0, 1, 2, 3, 4], "indptr must be 5"),
    ):
        np.savez(path, indptr=indptr, **arrays)
        for which in range(2):
            with pytest.raises(CorpusError, match=told):
                read_range(path, None, None, None, Share(which, 2))
    np.savez(path, indptr=[0, 1, 2, 3, 4], **arrays)
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(1.0, 5).tobytes()) + 31] ^= 64  # in the last count
    path.write_bytes(data)
    for which in range(2):
        with pytest.raises(CorpusError, match="CRC"):
            read_range(path, None, None, None, Share(which, 2))
    np.savez(path, indptr=[0, 1, 2, 3, 4], **{**arrays, "data": [1.0, 2.0, 3.0, -4.0]})
    assert read_range(path, None, None, None, Share(0, 2)).corpus.n_tokens == 3
    with pytest.raises(CorpusError, match=r"rows from 2 on: counts must .* got -4.0 at row 1"):
        read_range(path, None, None, None, Share(1, 2))


@pytest.mark.parametrize("form", ["uci", "matrix_market", "ldac", "svmlight", "npz"])
def test_other_bytes_give_another_digest(form, tmp_path):
    found = []
    for count in (1, 2):
        dense = np.ones((4, 3), np.float32)
        dense[3, 2] = count  # in the range of another node
        path, _ = write(tmp_path, form, WRITERS[form][1][0], dense)
        found.append(read_range(path, form, None, None, Share(0, 2)))
    assert found[0].corpus.digest() == found[1].corpus.digest()
    assert found[0].digest != found[1].digest


@pytest.mark.parametrize("form", ["uci", "ldac", "text", "npz"])
def test_a_range_takes_its_share_of_memory(form, tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "BLOCK_BYTES", 2**14)
    dense = np.random.default_rng(0).poisson(0.5, (4000, 100)).astype(np.float32)
    path, words = write(tmp_path, form, WRITERS[form][1][0], dense)

    def peak(share):
        options = ReadOptions(vocabulary=words)
        read_range(path, form, options, None, share)  # what is imported and compiled is there
        tracemalloc.start()
        try:
            found = read_range(path, form, options, None, share)
            return tracemalloc.get_traced_memory()[1], found.corpus.nbytes
        finally:
            tracemalloc.stop()

    (every, n_bytes), (quarter, _) = peak(Share(0, 1)), peak(Share(1, 4))
    assert every - quarter > 0.6 * n_bytes
