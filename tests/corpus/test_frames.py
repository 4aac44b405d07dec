"""Data frames and series as corpora."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from esvi_shm.corpus import Corpus, as_corpus
from esvi_shm.errors import CorpusError
from esvi_shm.points import as_points

DENSE = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0.5]])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_data_frame_names_its_words(is_sparse):
    frame = pd.DataFrame(DENSE, columns=[f"word {v}" for v in range(DENSE.shape[1])])
    if is_sparse:
        frame = frame.astype(pd.SparseDtype(frame.dtypes.iloc[0], 0))
    corpus = as_corpus(frame)
    assert corpus.digest() == Corpus.from_sparse(DENSE, frame.columns).digest()
    assert corpus.vocabulary == tuple(frame.columns)
    assert as_corpus(frame.set_axis(range(DENSE.shape[1]), axis=1)).vocabulary is None


def test_columns_of_any_types_of_numbers_are_taken():
    frame = pd.DataFrame(DENSE, columns=[f"word {v}" for v in range(DENSE.shape[1])])
    mixed = frame.astype({"word 0": "Int64", "word 1": np.uint8, "word 2": bool, "word 3": "f4"})
    assert as_corpus(mixed).digest() == as_corpus(frame).digest()
    np.testing.assert_array_equal(as_points(mixed).values, DENSE)


@pytest.mark.parametrize("fill", [np.nan, 1.0, 0.0])
def test_a_sparse_frame_may_be_filled_with_anything(fill):
    frame = pd.DataFrame(DENSE, dtype=float).astype(pd.SparseDtype(float, fill))
    assert as_corpus(frame).digest() == as_corpus(pd.DataFrame(DENSE)).digest()


def test_points_of_a_sparse_frame_stay_sparse_and_one_of_text_names_its_column():
    frame = pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(DENSE))
    points = as_points(frame)
    assert points.is_sparse
    np.testing.assert_array_equal(points.values.toarray(), DENSE)
    with pytest.raises(CorpusError, match=r"DataFrame: column 'kind' must hold numbers, got 'oak'"):
        as_points(pd.DataFrame({"size": [1.0], "kind": ["oak"]}))


def test_masked_counts_are_refused():
    with pytest.raises(CorpusError, match="must have no masked counts"):
        as_corpus(np.ma.masked_equal(DENSE, 3))
    assert as_corpus(np.ma.masked_equal(DENSE, 9)).digest() == as_corpus(DENSE).digest()


def test_a_series_holds_token_lists():
    assert as_corpus(pd.Series([["b", "a"], ["b"]])).vocabulary == ("a", "b")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (pd.DataFrame({"text": ["the cat", "a dog"]}), "'text' must hold .*'the cat' in row 0"),
        (pd.DataFrame({"a": [1, 2], "b": [3, "4"]}), "'b' must hold numbers, got '4' in row 1"),
        (pd.DataFrame({"a": [1, None], "b": ["2", "3"]}).convert_dtypes(), "'a' .* <NA> in row 1"),
        (pd.DataFrame({"a": [1], "b": pd.to_datetime(["2020"])}), "column 'b' must hold numbers"),
        (pd.DataFrame({"a": [1, -1]}), "got -1 at row 1, column 0"),
        (pd.DataFrame({"a": [1, None]}), "got nan at row 1"),
        (pd.DataFrame(index=range(3)), "at least one token"),
        (pd.Series(["the cat"]), "split it into words"),
    ],
)
def test_a_frame_or_series_of_something_else(given, rule):
    with pytest.raises(CorpusError, match=f"{type(given).__name__}: .*{rule}"):
        as_corpus(given)
