"""Writers: what they write is what readers, ours and scipy's, read."""

import tempfile
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse

from esvi_shm.corpus import Corpus, read_corpus
from esvi_shm.corpus.writers import LINE_BYTES, format_lines, write_npz, write_uci


def matrix(seed: int = 0) -> scipy.sparse.csr_matrix:
    """60 documents, some of them empty, counts of one to seven digits."""
    random = np.random.default_rng(seed)
    counts = random.integers(1, 10 ** random.integers(1, 8, (60, 120)))
    counts *= (random.random((60, 120)) < 0.2) & (random.random((60, 1)) < 0.9)
    return scipy.sparse.csr_matrix(counts.astype(np.float32))


def ranges(counts: scipy.sparse.csr_matrix, bounds: list[int]):
    """The rows, cut, as the arrays of a corpus."""
    for first, last in pairwise(bounds):
        part = counts[first:last]
        yield part.indptr.astype(np.int64), part.indices.astype(np.int32), part.data


CUTS = [[0, 60], [0, 1, 1, 40, 60]]


def same(corpus: Corpus, counts: scipy.sparse.csr_matrix) -> None:
    assert (corpus.n_documents, corpus.n_words) == counts.shape
    np.testing.assert_array_equal(corpus.indptr, counts.indptr)
    np.testing.assert_array_equal(corpus.indices, counts.indices)
    np.testing.assert_array_equal(corpus.counts, counts.data)


@pytest.mark.parametrize("cuts", CUTS)
def test_npz_is_read_by_scipy_and_here(cuts, tmp_path):
    counts, path = matrix(), tmp_path / "x.npz"
    with open(path, "wb") as file:
        assert write_npz(file, ranges(counts, cuts), *counts.shape, tmp_path) == counts.nnz
    read = scipy.sparse.load_npz(path)
    assert (read.format, read.indices.dtype, read.data.dtype) == ("csr", np.int32, np.float32)
    assert (read != counts).nnz == 0 and read.shape == counts.shape
    same(read_corpus(path), counts)
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]
    with np.load(path) as members:  # scipy widens all three where indptr is wider
        assert members["indptr"].dtype == np.int32


@pytest.mark.parametrize("cuts", CUTS)
def test_uci_is_read_here(cuts, tmp_path):
    counts, path = matrix(), tmp_path / "docword.x.txt"
    with open(path, "wb") as file:
        assert write_uci(file, ranges(counts, cuts), *counts.shape) == counts.nnz
    same(read_corpus(path), counts)
    head = [line.split() for line in path.read_text().splitlines()[:3]]
    assert head == [["60"], ["120"], [str(counts.nnz)]]


def test_lines_are_those_of_python():
    last = 2**31 - 1
    indices = np.array([0, 9, last - 1, 998], dtype=np.int32)
    counts = np.array([1, 2147483520, 10, 99], dtype=np.float32)
    out = np.empty(LINE_BYTES * 4, dtype=np.uint8)
    n = format_lines(last - 2, np.array([0, 3, 4]), indices, counts, out)
    assert out[:n].tobytes().decode() == (
        f"{last - 1} 1 1\n{last - 1} 10 2147483520\n{last - 1} {last} 10\n{last} 999 99\n"
    )


def test_where_there_is_no_room_for_files_of_the_while_nothing_is_left(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with open(tmp_path / "x.npz", "wb") as file, pytest.raises(OSError, match="No space"):
        write_npz(file, ranges(matrix(), CUTS[0]), 60, 120, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]
