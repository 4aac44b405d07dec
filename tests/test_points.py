"""Points: what is taken, and what is refused with row and column."""

import logging
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.io
import scipy.sparse

import esvi_shm
from esvi_shm import arrays
from esvi_shm.corpus import read_corpus
from esvi_shm.errors import CorpusError
from esvi_shm.points import MOST_NAMES, Points, as_points, read_points, read_share

X = np.array([[1.0, 2.0], [0.0, 4.0], [5.0, 0.0]])


def test_they_are_read_from_files(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "labelled.npz", X=X, y=np.arange(3))
    np.savez(tmp_path / "one.npz", X)
    scipy.sparse.save_npz(tmp_path / "sparse.npz", scipy.sparse.csr_matrix(X))
    (tmp_path / "named.csv").write_text("a,b\n1,2\n0,4\n5,0\n")
    (tmp_path / "plain.csv").write_text("1,2\n0,4\n5,0\n")
    scipy.io.mmwrite(tmp_path / "m.mtx", scipy.sparse.csr_matrix(X))
    for path in sorted(tmp_path.iterdir()):
        points = read_points(path)
        values = points.values.toarray() if points.is_sparse else points.values
        np.testing.assert_array_equal(values, X, err_msg=path.name)
        assert points.name == str(path)
        assert points.is_sparse == (path.name in ("sparse.npz", "m.mtx"))


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_matrix])
def test_moments_and_rows(make):
    points = as_points(make(X + 0.5 * (X > 0)))
    x = X + 0.5 * (X > 0)
    mean, variance = points.moments()
    np.testing.assert_allclose(mean, x.mean(axis=0))
    np.testing.assert_allclose(variance, x.var(axis=0))
    rows = points.rows(np.array([2, 0]))
    rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
    np.testing.assert_array_equal(rows, x[[2, 0]])
    digest = points.digest()
    points.release()
    assert points.digest() == digest and not hasattr(points, "values")


def test_small_integers_and_truth_values_are_exact_floats():
    assert as_points(np.array([[255]], np.uint8)).values.dtype == np.float32
    assert as_points(np.array([[2**31]])).values.tolist() == [[2.0**31]]
    assert as_points(np.array([[True]])).values.tolist() == [[1.0]]


BAD = [
    ([[1.0, np.nan]], "must be finite, got nan in row 0, column 1"),
    (np.vstack([np.zeros((5000, 2)), [[0, -np.inf]]]), "got -inf in row 5000, column 1"),
    (scipy.sparse.csr_matrix([[0, 0], [0, np.inf]]), "got inf in row 1, column 1"),
    (np.array([["a"]]), "must be real numbers, got type <U1"),
    (np.array([[None]]), "must be real numbers, got type object"),
    (np.array([[1j]]), "must be real numbers, got type complex128"),
    (np.arange(3.0), r"must have two dimensions.*got shape \(3,\)"),
    (np.empty((0, 2)), r"must have points and features, got shape \(0, 2\)"),
    ([[1.0], [2.0, 3.0]], "must be a matrix of numbers"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_what_is_no_matrix_of_finite_numbers_is_refused(given, message):
    with pytest.raises(CorpusError, match=message):
        as_points(given)


def test_files_that_are_not_what_their_name_says(tmp_path):
    for name in ("x.npy", "x.npz", "x.mtx"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(CorpusError, match=name):
            read_points(tmp_path / name)
    (tmp_path / "x.csv").write_text("1,2\n3\n")
    with pytest.raises(CorpusError, match=r"x\.csv: must be a whole \.csv file"):
        read_points(tmp_path / "x.csv")
    for text, message in (("", "must have points"), ("a,b\n", "must have points"),
                          ("1,x\n2,3\n", "line 1 must be names or numbers, not some")):  # fmt: skip
        (tmp_path / "x.csv").write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(CorpusError, match=message):
                read_points(tmp_path / "x.csv")
    np.save(tmp_path / "o.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(CorpusError, match=r"o\.npy"):
        read_points(tmp_path / "o.npy")
    np.savez(tmp_path / "two.npz", a=X, b=X)
    with pytest.raises(CorpusError, match="must be called X, it has a, b"):
        read_points(tmp_path / "two.npz")
    with pytest.raises(CorpusError, match="No such file"):
        read_points(tmp_path / "none.npy")
    with pytest.raises(CorpusError, match=r"must end in one of \.csv, \.mtx, \.npy, \.npz"):
        read_points(tmp_path / "x.txt")


@pytest.mark.parametrize("text", ["\ufeff5\n6\n", "\ufeffa\n5\n6\n", "5\r\n6\r\n", "#a\n5\n\n6\n"])
def test_a_csv_of_other_programs_loses_no_point(text, tmp_path):
    (tmp_path / "x.csv").write_bytes(text.encode())
    assert read_points(tmp_path / "x.csv").values.tolist() == [[5.0], [6.0]]


@pytest.mark.parametrize("n_columns", [3, MOST_NAMES, MOST_NAMES + 1])
def test_a_csv_with_names_says_what_its_features_are(n_columns, tmp_path, caplog):
    """A label among them is one, too."""
    caplog.set_level(logging.INFO)
    names = [f"size {i}" for i in range(n_columns - 1)]
    path = tmp_path / "x.csv"
    path.write_text(",".join(["class", *names]) + "\r\n" + ",".join(["1"] * n_columns) + "\r\n")
    assert read_points(path).n_features == n_columns
    told = ", ".join((["class", *names])[:MOST_NAMES]) + ", ..." * (n_columns > MOST_NAMES)
    assert caplog.messages == [f"{path}: every column is a feature: {told}"]
    path.write_text("1,2\n3,4\n")
    read_points(path)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("text", ["1,2\n#3,4\n5,6\n", "1,2\n3,4#5\n"])
def test_marks_in_a_csv_are_no_comments(text, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(CorpusError, match=r"x\.csv, line 2: column . \(from 0\) must hold numbers"):
        read_points(tmp_path / "x.csv")


@pytest.mark.parametrize("column", [7, -1])
def test_columns_that_a_sparse_matrix_has_not_are_refused(column):
    matrix = scipy.sparse.csr_matrix(np.eye(5))
    matrix.indices[3] = column
    with pytest.raises(CorpusError, match=rf"column indices must be in 0\.\.4, got {column}"):
        as_points(matrix)


def test_sparse_points_are_the_same_however_they_are_stored():
    wanted = as_points(scipy.sparse.csr_matrix([[0.0, 2.0, 4.0], [6.0, 0.0, 0.0]]))
    data, indices = np.array([4.0, 1.0, 1.0, 6.0]), np.array([2, 1, 1, 0], np.int64)
    given = scipy.sparse.csr_matrix((data, indices, np.array([0, 3, 4])), shape=(2, 3))
    found = as_points(given)  # unsorted, with a pair that comes twice
    assert found.digest() == wanted.digest()
    assert given.nnz == 4
    long = scipy.sparse.csr_array(wanted.values.astype(np.int64))
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    assert (as_points(long).values != wanted.values).nnz == 0


FILES = {
    "rows.npy": lambda path, dense: np.save(path, dense),
    "columns.npy": lambda path, dense: np.save(path, np.asfortranarray(dense)),
    "whole numbers.npy": lambda path, dense: np.save(path, dense.astype(np.int64)),
    "x.npz": lambda path, dense: np.savez_compressed(path, X=dense, y=np.arange(len(dense))),
    "columns.npz": lambda path, dense: np.savez(path, np.asfortranarray(dense)),
    "csr.npz": lambda path, dense: scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(dense)),
    "coo.npz": lambda path, dense: scipy.sparse.save_npz(path, scipy.sparse.coo_matrix(dense)),
    "csc.npz": lambda path, dense: scipy.sparse.save_npz(path, scipy.sparse.csc_matrix(dense)),
    "x.csv": lambda path, dense: np.savetxt(path, dense, delimiter=","),
    "names.csv": lambda path, dense: path.write_bytes(
        b"\xef\xbb\xbfa,b,c\r\n" + b"".join(b"%d,%d,%d\r\n\r\n" % tuple(row) for row in dense)
    ),
    "x.mtx": lambda path, dense: scipy.io.mmwrite(path, scipy.sparse.coo_matrix(dense)),
    "dense.mtx": lambda path, dense: scipy.io.mmwrite(path, dense),
}


def values_of(points):
    return points.values.toarray() if points.is_sparse else points.values


@pytest.mark.parametrize("name", FILES)
def test_shares_are_the_points(name, tmp_path):
    dense = np.random.default_rng(0).poisson(2.0, (11, 3)).astype(float)
    path = tmp_path / name
    FILES[name](path, dense)
    whole = read_points(path)
    for n in (1, 2, 5, 30):
        found = [read_share(path, which, n) for which in range(n)]
        stacked = np.concatenate([values_of(points) for points, _ in found])
        assert (stacked == values_of(whole)).all()
        filled = [points for points, _ in found if points.n_points]
        assert {points.values.dtype for points in filled} == {whole.values.dtype}
        assert {points.is_sparse for points in filled} == {whole.is_sparse}
        assert {points.n_features for points, _ in found} == {3}
        assert len({digest for _, digest in found}) == 1


@pytest.mark.parametrize("name", ["rows.npy", "x.npz", "csr.npz", "x.csv"])
def test_a_share_takes_its_part_of_memory(name, tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "CHUNK", 2**14)
    dense = np.random.default_rng(0).random((40_000, 3))
    path = tmp_path / name
    FILES[name](path, dense)

    def peak(which, n):
        read_share(path, which, n)  # what is imported is there
        tracemalloc.start()
        try:
            points, _ = read_share(path, which, n)
            return tracemalloc.get_traced_memory()[1], points.n_bytes
        finally:
            tracemalloc.stop()

    (every, n_bytes), (quarter, _) = peak(0, 1), peak(1, 4)
    assert every - quarter > 0.6 * n_bytes


def test_what_is_wrong_with_a_share_is_told(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,4\n5,oops\n7,8\n")
    assert read_share(path, 0, 2)[0].n_points == 2
    with pytest.raises(CorpusError, match=r"line 3: column 1 .* must hold numbers, got 'oops'"):
        read_share(path, 1, 2)
    path = tmp_path / "x.npy"
    np.save(path, np.ones((4, 2)))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CorpusError, match="the end is missing"):
        read_share(path, 1, 2)
    np.save(path, np.array([["a", "b"]], object), allow_pickle=True)
    with pytest.raises(CorpusError, match="objects"):
        read_share(path, 0, 2)
    path.write_bytes(b"")
    with pytest.raises(CorpusError, match=r"whole \.npy file"):
        read_share(path, 0, 2)
    with pytest.raises(CorpusError, match="No such file"):
        read_share(tmp_path / "none.npy", 0, 2)
    np.savez(tmp_path / "x.npz", np.arange(40.0))
    for which in range(2):
        with pytest.raises(CorpusError, match=r"got shape \(40,\)"):
            read_share(tmp_path / "x.npz", which, 2)
    dense = np.ones((40, 2))
    dense[37, 1] = np.nan
    np.save(tmp_path / "x.npy", dense)
    with pytest.raises(CorpusError, match=r"share 2 of 2: must be finite, got nan in row 17,"):
        read_share(tmp_path / "x.npy", 1, 2)


@pytest.mark.parametrize("name", ["x.npz", "csr.npz"])
def test_an_archive_that_is_encrypted_is_refused(name, tmp_path):
    path = tmp_path / name
    FILES[name](path, np.eye(4))
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = -1
        while (place := data.find(mark, place + 1)) >= 0:
            data[place + at] |= 1
    path.write_bytes(data)
    readers = [read_points, lambda path: read_share(path, 0, 2)]
    for read in [*readers, read_corpus] if name == "csr.npz" else readers:
        with pytest.raises(CorpusError, match="encrypted"):
            read(path)


@pytest.mark.parametrize("family", ["poisson", "multinomial"])
def test_counts_too_large_for_sums_are_refused(family):
    counts = np.ones((4, 2))
    counts[2, 1] = 1e300
    with pytest.raises(CorpusError, match=r"from 0 to 1e\+30, got 1e\+300 in row 2, column 1"):
        esvi_shm.Mixture(2, family=family, n_workers=1).fit(counts)


def test_columns_with_names_are_matched_by_them(tmp_path):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "x.csv").write_text('"b",a\n2,1\n\n4,3\n')
    frame = pandas.DataFrame({"b": [2.0, 4.0], "a": [1.0, 3.0]})
    for given in (read_points(tmp_path / "x.csv"), as_points(frame)):
        assert given.features == ["b", "a"]
        assert given.in_order_of(["a", "b"]).values.tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert given.in_order_of(None) is given
        with pytest.raises(CorpusError, match="must have the features a, c; got b, a"):
            given.in_order_of(["a", "c"])
    assert as_points(frame.to_numpy()).features is None
    assert as_points(frame.set_axis(["a", "a"], axis=1)).features is None
    assert as_points(frame.set_axis([1, "a"], axis=1)).features is None
    (tmp_path / "y.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(CorpusError, match="line 1: must name each of the 3 columns, got 2"):
        read_points(tmp_path / "y.csv")
    sparse = Points(scipy.sparse.csr_matrix(frame.to_numpy()), features=["b", "a"])
    assert sparse.in_order_of(["a", "b"]).values.toarray().tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("share", [None, (1, 2)])
@pytest.mark.parametrize("begins, told", [(b"a,b\n\n", "'b'"), (b"", r"1 \(from 0\)")])
@pytest.mark.parametrize("cell", [b"", b"x"])
def test_a_cell_that_is_no_number_is_named_with_its_line(share, begins, told, cell, tmp_path):
    lines = [b"1,2\n", b"3,4\n", b"\n", b"5,6\n", b"7," + cell + b"\n"]
    (tmp_path / "x.csv").write_bytes(begins + b"".join(lines))
    line = begins.count(b"\n") + len(lines)
    says = rf"x\.csv, line {line}: column {told} must hold numbers, got '{cell.decode()}'"
    with pytest.raises(CorpusError, match=says):
        read_points(tmp_path / "x.csv") if share is None else read_share(tmp_path / "x.csv", *share)
