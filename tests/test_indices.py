"""Sparse matrices whose index arrays lie are refused by all that takes one, before all else."""

import numpy as np
import pytest
import scipy.sparse

from esvi_shm.corpus import Corpus
from esvi_shm.errors import CorpusError
from esvi_shm.points import as_points

DENSE = np.random.default_rng(0).poisson(1.0, (12, 8)).astype(float)
TAKERS = [Corpus.from_sparse, as_points]


def damaged(form, name, at, value):
    matrix = scipy.sparse.csr_matrix(DENSE).asformat(form, copy=True)
    if form == "bsr":
        matrix = scipy.sparse.bsr_matrix(DENSE, blocksize=(3, 2))
    array = getattr(matrix, name)
    array[at] = value
    return matrix


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("form, name", [
    ("csr", "indices"), ("csc", "indices"), ("bsr", "indices"), ("coo", "row"), ("coo", "col"),
])  # fmt: skip
@pytest.mark.parametrize("value", [2 * 10**9, -1, -(2**31), 12])
def test_an_index_out_of_range(take, form, name, value):
    with pytest.raises(
        CorpusError, match=rf"(row|column) indices must be in 0\.\.\d+, got {value}"
    ):
        take(damaged(form, name, 3, value))


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize("at, value", [(1, -(10**9)), (1, 2**31 - 1), (-1, 10**6), (0, 1)])
def test_offsets_that_do_not_ascend_to_the_end(take, form, at, value):
    with pytest.raises(CorpusError, match="indptr must ascend from 0 and end within the indices"):
        take(damaged(form, "indptr", at, value))


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_data_that_are_too_short(take, form):
    matrix = scipy.sparse.csr_matrix(DENSE).asformat(form)
    matrix.data = matrix.data[:-3]
    with pytest.raises(CorpusError, match=r"indptr must ascend|must have the same length"):
        take(matrix)
