"""Random corpora for hypothesis."""

import numpy as np
from hypothesis import strategies as st


@st.composite
def matrices(draw, max_documents=8, max_words=9, floats=True):
    """A dense documents x words matrix with a token: sparse, with empty rows and columns."""
    shape = draw(st.integers(1, max_documents)), draw(st.integers(1, max_words))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrix = rng.integers(1, 2000, shape) * (rng.random(shape) < draw(st.floats(0.05, 0.9)))
    if floats and draw(st.booleans()):
        matrix = matrix * rng.random(shape)
    matrix = matrix.astype(np.float32)
    if not matrix.any():
        matrix[rng.integers(shape[0]), rng.integers(shape[1])] = 1
    return matrix
