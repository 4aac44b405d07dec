"""Data frames and series as corpora."""

import numpy as np
import pandas as pd
import pytest

from esvi_shm.corpus import Corpus, as_corpus
from esvi_shm.errors import CorpusError

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


def test_a_series_holds_token_lists():
    assert as_corpus(pd.Series([["b", "a"], ["b"]])).vocabulary == ("a", "b")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (pd.DataFrame({"text": ["the cat", "a dog"]}), "integers or floats"),
        (pd.DataFrame({"a": [1, -1]}), "got -1 at row 1, column 0"),
        (pd.DataFrame({"a": [1, None]}), "got nan at row 1"),
        (pd.DataFrame(index=range(3)), "at least one token"),
        (pd.Series(["the cat"]), "split it into words"),
    ],
)
def test_a_frame_or_series_of_something_else(given, rule):
    with pytest.raises(CorpusError, match=f"{type(given).__name__}: .*{rule}"):
        as_corpus(given)
