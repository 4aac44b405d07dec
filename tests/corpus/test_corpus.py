import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.corpus import Corpus, _matrix, as_corpus
from esvi_shm.corpus.corpus import Documents
from esvi_shm.errors import CorpusError
from tests.corpus.strategies import matrices

DENSE = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0.5]])
FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


def assert_legal(corpus):
    assert corpus.indptr.dtype == np.int64
    assert corpus.indices.dtype == np.int32
    assert corpus.counts.dtype == np.float32
    assert (corpus.counts > 0).all()
    for row in range(corpus.n_documents):
        words = corpus.indices[corpus.indptr[row] : corpus.indptr[row + 1]]
        assert (np.diff(words) > 0).all()
    for values in (corpus.indptr, corpus.indices, corpus.counts):
        assert not values.flags.writeable


@given(matrices(), st.sampled_from(FORMATS), st.booleans())
def test_every_sparse_format_gives_the_matrix(dense, form, as_array):
    matrix = (sp.csr_array if as_array else sp.csr_matrix)(dense).asformat(form)
    corpus = Corpus.from_sparse(matrix)
    assert_legal(corpus)
    assert np.array_equal(corpus.as_sparse().toarray(), dense)
    assert corpus.digest() == Corpus.from_sparse(dense).digest()


@given(matrices(), st.data())
def test_duplicates_in_any_order_are_summed_and_zeros_dropped(dense, data):
    dense = np.floor(dense)
    dense[0, 0] += 1
    rows, columns = np.nonzero(dense)
    half = np.floor(dense[rows, columns] / 2)
    values = np.concatenate([half, dense[rows, columns] - half, np.zeros(1)])
    rows, columns = np.append(np.tile(rows, 2), 0), np.append(np.tile(columns, 2), 0)
    order = np.random.default_rng(data.draw(st.integers(0, 999))).permutation(len(values))
    triples = (values[order], (rows[order], columns[order]))
    matrix = sp.coo_matrix(triples, shape=dense.shape)
    by_row = np.argsort(rows[order], kind="stable")
    unsorted = sp.csr_matrix(
        (
            values[order][by_row],
            columns[order][by_row],
            np.append(0, np.cumsum(np.bincount(rows, minlength=len(dense)))),
        ),
        shape=dense.shape,
    )
    before = unsorted.indices.copy()
    for given_matrix in (matrix, unsorted):
        corpus = Corpus.from_sparse(given_matrix)
        assert_legal(corpus)
        assert np.array_equal(corpus.as_sparse().toarray(), dense)
    assert np.array_equal(unsorted.indices, before), "the caller's matrix was changed"


def test_long_rows_out_of_order_over_several_slices(monkeypatch):
    monkeypatch.setattr(_matrix, "CHUNK", 7)
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.5, (13, 40))
    for form in ("csr", "csc", "coo"):
        matrix = sp.csr_array(dense[:, ::-1])[:, ::-1].asformat(form)
        assert np.array_equal(Corpus.from_sparse(matrix).as_sparse().toarray(), dense)
    assert np.array_equal(Corpus.from_sparse(dense).as_sparse().toarray(), dense)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float64, np.longdouble])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_dtypes_and_wide_indices(dtype, form):
    matrix = sp.csr_array(DENSE.astype(dtype)).asformat(form)
    for name in ("indices", "indptr", "row", "col"):
        if form != "coo" and hasattr(matrix, name):
            setattr(matrix, name, getattr(matrix, name).astype(np.int64))
    corpus = Corpus.from_sparse(matrix)
    assert np.array_equal(corpus.as_sparse().toarray(), DENSE.astype(dtype).astype(np.float32))


def test_python_numbers_and_what_numpy_takes_for_an_array():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return DENSE

    for same in (DENSE.astype(object), Tensor(), DENSE.tolist(), tuple(map(tuple, DENSE))):
        assert as_corpus(same).digest() == Corpus.from_sparse(DENSE).digest()
    with pytest.raises(CorpusError, match="lists of numbers must be a matrix"):
        as_corpus([[1, 2], [3]])
    with pytest.raises(CorpusError, match="got dtype <U"):
        as_corpus([[1, 2], [3, "tea"]])


def test_the_callers_arrays_stay_its_own():
    matrix = sp.csr_matrix(DENSE.astype(np.float32))
    corpus = Corpus.from_sparse(matrix)
    digest = corpus.digest()
    matrix.data[:] = 7
    assert corpus.counts.max() == 3
    assert digest == Corpus.from_sparse(DENSE).digest()


def test_sizes_and_words():
    corpus = Corpus.from_sparse(DENSE, ["a", "b", "c", "d"], name="here")
    assert (corpus.n_documents, corpus.n_words, corpus.n_pairs) == (3, 4, 4)
    assert corpus.n_tokens == 6.5
    assert isinstance(Corpus.from_sparse(np.floor(DENSE)).n_tokens, int)
    assert corpus.nbytes == 4 * 8 + 4 * 4 + 4 * 4
    assert corpus.word(3) == "d"
    assert Corpus.from_sparse(DENSE).word(3) == "w3"
    assert "here" in repr(corpus)
    with pytest.raises(IndexError, match=r"0\.\.3, got 4"):
        corpus.word(4)


def test_digest_knows_sizes_counts_and_words_but_not_the_name():
    same = Corpus.from_sparse(DENSE, list("abcd"), name="other")
    corpus = Corpus.from_sparse(DENSE, list("abcd"))
    assert corpus.digest() == same.digest()
    wider = np.hstack([DENSE, np.zeros((3, 1))])
    others = [
        Corpus.from_sparse(DENSE),
        Corpus.from_sparse(DENSE, ["a", "b", "cd", ""]),
        Corpus.from_sparse(wider),
        Corpus.from_sparse(DENSE * 2, list("abcd")),
        Corpus.from_sparse(DENSE[::-1], list("abcd")),
    ]
    assert len({corpus.digest(), *(other.digest() for other in others)}) == 6


def test_a_pickled_corpus_is_read_only_too():
    corpus = pickle.loads(pickle.dumps(Corpus.from_sparse(DENSE, list("abcd"))))
    assert_legal(corpus)
    assert corpus.vocabulary == ("a", "b", "c", "d")


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, 1e39])
@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo"])
def test_a_bad_count_is_named(value, form):
    dense = DENSE.copy()
    dense[2, 1] = value
    matrix = dense if form == "dense" else sp.csr_array(dense).asformat(form)
    with pytest.raises(CorpusError, match=rf"got {value!r} at row 2, column 1".replace("+", r"\+")):
        Corpus.from_sparse(matrix)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((2, 3)), "at least one token, got none in 2 documents"),
        (np.zeros((0, 3)), "at least one token"),
        (np.ones(3), "2 dimensions, got 1"),
        (np.array([["a"]]), "got dtype <U1"),
        (np.array([[1j]]), "got dtype complex128"),
        (np.array([[1, 2], [3, "tea"]], object), "got 'tea' at row 1, column 1"),
        (np.array([[None, 2]], object), "got None at row 0, column 0"),
        (sp.coo_matrix(([1.0], ([0], [0])), shape=(1, 2**31)), "words must be at most 2147483647"),
        (
            sp.coo_matrix(([1.0], ([0], [0])), shape=(2**31 - 1, 1)),
            "documents must be at most",
        ),
        (sp.csr_matrix(([1.0], [0], [0, 1]), shape=(1, 2**31 - 1)), "only 1 pairs, got 2147483647"),
    ],
)
def test_no_corpus(matrix, message):
    with pytest.raises(CorpusError, match=message):
        Corpus.from_sparse(matrix)


@pytest.mark.parametrize("name", ["row", "col", "data"])
def test_triples_of_different_lengths_are_refused(name):
    matrix = sp.coo_matrix(np.ones((30, 30)))
    setattr(matrix, name, getattr(matrix, name)[:2])
    with pytest.raises(CorpusError, match="same length"):
        Corpus.from_sparse(matrix)


def test_sums_that_float32_cannot_hold_are_refused():
    with pytest.raises(CorpusError, match="sum to at most"):
        Corpus.from_sparse(np.array([[3e38], [3e38]]))
    assert Corpus.from_sparse(np.array([[1e30], [1e30]])).n_tokens > 1e30


def test_an_index_out_of_range_is_named():
    matrix = sp.csr_matrix(DENSE)
    matrix.indices[1] = 4
    with pytest.raises(CorpusError, match=r"column indices must be in 0..3, got 4"):
        Corpus.from_sparse(matrix)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("offsets", [[0, 9, 2, 3, 4], [0, 1, 2, 3, 99], [1, 1, 2, 3, 4]])
def test_offsets_that_lead_astray_are_refused(kind, offsets):
    matrix = kind(DENSE if kind is sp.csc_matrix else DENSE.T)
    matrix.indptr[:] = offsets
    with pytest.raises(CorpusError, match="indptr must ascend from 0"):
        Corpus.from_sparse(matrix)


def test_vocabulary_of_another_length():
    with pytest.raises(CorpusError, match=r"it has 2, the corpus has 4 words$"):
        Corpus.from_sparse(DENSE, ["a", "b"])
    with pytest.raises(CorpusError, match=r"it has 3, .* 4 words; .* transposed"):
        Corpus.from_sparse(DENSE, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("indptr", "indices", "counts", "message"),
    [
        ([0, 2, 1], [0, 1], [1, 1], "indptr must ascend"),
        ([0, 9, 2], [0, 1], [1, 1], "indptr must ascend"),
        ([0, 1, 1], [0, 1], [1, 1], "indptr must ascend"),
        ([0, 1, 2], [0, 2], [1, 1], "words must be in 0..1, got 2 at row 1"),
        ([0, 0, 2], [1, 1], [1, 1], "without duplicates, got 1 at row 1"),
        ([0, 0, 2], [0, 1], [1, 0], "greater than 0, got 0.0 at row 1, column 1"),
        ([0, 0, 2], [0, 1], [1, np.inf], "got inf at row 1, column 1"),
        ([0, 2], [0, 1], [1], "matching lengths"),
    ],
)
def test_the_constructor_checks(indptr, indices, counts, message):
    arrays = np.array(indptr), np.array(indices, np.int32), np.array(counts, np.float32)
    with pytest.raises(CorpusError, match=message):
        Corpus(*arrays, 2)


def test_from_tokens():
    corpus = Corpus.from_tokens([["tea", "milk", "tea"], [], ("jam",)])
    assert corpus.vocabulary == ("jam", "milk", "tea")
    assert corpus.as_sparse().toarray().tolist() == [[0, 1, 2], [0, 0, 0], [1, 0, 0]]
    assert_legal(corpus)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["tea milk"], "document 0 must be a list of tokens, got str"),
        ([["tea"], 3], "document 1 must be a list of tokens, got int"),
        ([["tea"], ["milk", 3]], "document 1: tokens must be strings, got 3"),
        ([[], []], "at least one token"),
        ([], "at least one token"),
    ],
)
def test_bad_tokens(documents, message):
    with pytest.raises(CorpusError, match=message):
        Corpus.from_tokens(documents)


def test_as_corpus(tmp_path):
    corpus = Corpus.from_sparse(DENSE)
    assert as_corpus(corpus) is corpus
    assert as_corpus(DENSE).digest() == corpus.digest()
    assert as_corpus(sp.csc_array(DENSE)).digest() == corpus.digest()
    assert as_corpus([["a"], ["b"]]).vocabulary == ("a", "b")
    path = tmp_path / "docword.x.txt"
    path.write_text("1\n1\n1\n1 1 2\n")
    assert as_corpus(path).n_tokens == as_corpus(str(path)).n_tokens == 2
    with pytest.raises(CorpusError, match="int: a corpus must be"):
        as_corpus(3)


def test_importing_is_light():
    code = (
        "import sys, esvi_shm.corpus.readers; print({'sklearn', 'scipy', 'numba'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "given", [np.zeros((2, 3)), sp.csr_matrix((2, 3)), [[], []], np.zeros((0, 3)), []]
)
def test_documents_that_are_only_read_may_hold_no_token(given):
    found = as_corpus(given, may_be_empty=True)
    assert type(found) is Documents
    assert (found.n_tokens, found.n_pairs) == (0, 0)
    assert found.n_documents == (len(given) if isinstance(given, list) else given.shape[0])
    assert type(pickle.loads(pickle.dumps(found))) is Documents
    with pytest.raises(CorpusError, match="at least one token"):
        as_corpus(given)
    # In all else they are held to the same rules.
    with pytest.raises(CorpusError, match="counts must be finite"):
        as_corpus(-np.ones((1, 2)), may_be_empty=True)
