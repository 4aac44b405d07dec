"""Writing a matrix in each format: the other half of the contract suite.

Plain Python, or the writers of scipy and scikit-learn, so that it shares nothing with the readers.
"""

import gzip
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file


def number(x):
    return repr(int(x)) if x == int(x) else repr(float(x))


def write_lines(path, lines):
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def uci(path, dense, words):
    rows, columns = np.nonzero(dense)
    body = [f"{d + 1} {v + 1} {number(dense[d, v])}" for d, v in zip(rows, columns, strict=True)]
    write_lines(path, [*map(str, (*dense.shape, len(body))), *body])


def matrix_market(path, dense, words):
    target = gzip.open(path, "wb") if path.suffix == ".gz" else open(path, "wb")
    with target as file:
        scipy.io.mmwrite(file, sp.coo_matrix(dense.astype(float)), precision=17, symmetry="general")


def ldac(path, dense, words):
    lines = []
    for row in dense:
        pairs = [f"{v}:{number(row[v])}" for v in np.flatnonzero(row)]
        lines.append(" ".join([str(len(pairs)), *pairs]))
    write_lines(path, lines)


def svmlight(path, dense, words, zero_based=True):
    target = gzip.open(path, "wb") if path.suffix == ".gz" else open(path, "wb")
    with target as file:
        dump_svmlight_file(
            sp.csr_matrix(dense.astype(float)),
            np.arange(len(dense)),
            file,
            zero_based=zero_based,
            comment="rows",
        )


def npz(path, dense, words):
    with open(path, "wb") as file:
        sp.save_npz(file, sp.csr_matrix(dense))


def text(path, dense, words):
    write_lines(path, [" ".join(np.repeat(words, row.astype(int))) for row in dense])


#: Format -> (writer, names of a file, whether fractions can be written).
WRITERS = {
    "uci": (uci, ["docword.x.txt", "docword.x.txt.gz"], True),
    "matrix_market": (matrix_market, ["x.mtx", "X.MTX", "x.mtx.gz"], True),
    "ldac": (ldac, ["x.ldac", "x.lda-c", "x.dat", "x.dat.gz"], True),
    "svmlight": (svmlight, ["x.svm", "x.svmlight", "x.libsvm", "x.svm.gz"], True),
    "npz": (npz, ["x.npz"], True),
    "text": (text, ["x.txt", "x.txt.gz"], False),
}

CASES = [(form, name) for form, (_, names, _) in WRITERS.items() for name in names]


def write(folder: Path, form: str, name: str, dense, words=None) -> tuple[Path, Path]:
    """Write the matrix and its words; return both paths."""
    words = words or [f"word{v:03d}" for v in range(dense.shape[1])]
    path, vocabulary = folder / name, folder / "words.txt"
    write_lines(vocabulary, words)
    WRITERS[form][0](path, dense, words)
    return path, vocabulary
