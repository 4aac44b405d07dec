"""A sparse matrix saved by `scipy.sparse.save_npz`; pickled objects in it are refused.

Of a CSR matrix (CSC with the option `transpose`) a node holds its own documents only; one of
another format is read whole, and then cut.
"""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files
from esvi_shm.errors import CorpusError

if TYPE_CHECKING:
    from esvi_shm.corpus.range import Range, Share

FORMAT = "npz"
OPTIONS = frozenset({"transpose", "vocabulary"})
#: What numpy and scipy raise of a file that is another one, cut, or lies about its sizes.
_DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    OverflowError,
    RuntimeError,  # of zipfile, where it is encrypted
    zipfile.BadZipFile,
    zlib.error,
)
T = TypeVar("T")


def matches(path: Path) -> bool:
    """Whether the name ends in .npz."""
    return path.name.lower().endswith(".npz")


def read_range(
    path: Path, options: ReadOptions, progress: Progress | None, share: "Share"
) -> "Range":
    """Read a range of the documents of a scipy sparse matrix."""
    from esvi_shm.corpus.range import Range, cut

    with _files.LineBlocks(path):
        pass  # opened only for the plain message about a missing file or a folder
    words = options.vocabulary
    vocabulary = None if words is None else _files.read_vocabulary(words)
    found = None if share.n == 1 else _told(path, lambda: _take(path, options.transpose, share))
    if found is None:
        matrix = _told(path, lambda: _load(path))
        if options.transpose:
            matrix = matrix.T
        corpus = Corpus.from_sparse(matrix, vocabulary, str(path))
        whole = Range(corpus, 0, corpus.n_documents, "")
        result = whole if share.n == 1 else cut(corpus, share)
    else:
        result = _range_of(path, vocabulary, share, *found)
    if progress is not None:
        size = path.stat().st_size
        progress(size, size)
    return result


def _range_of(
    path: Path, vocabulary: Any, share: "Share", matrix: Any, first: int, n_documents: int
) -> "Range":
    from esvi_shm.arrays import digest_of
    from esvi_shm.corpus._matrix import compress
    from esvi_shm.corpus.range import Range

    # Rows of the part are told of by their number in it.
    where = f"{path}: rows from {first} on" if first else str(path)
    arrays, n_words = compress(matrix, where)
    corpus = share.corpus(*arrays, n_words, vocabulary, str(path))
    return Range(corpus, first, n_documents, _told(path, lambda: digest_of(path)))


def _take(path: Path, transpose: bool, share: "Share") -> tuple[Any, int, int] | None:
    from esvi_shm.arrays import take_csr

    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        return take_csr(archive, share.of, by_columns=transpose)


def _load(path: Path) -> Any:
    import scipy.sparse

    # Opened here: numpy leaves a damaged file open.
    with open(path, "rb") as file:
        return scipy.sparse.load_npz(file)


def _told(path: Path, read: Callable[[], T]) -> T:
    """What `read` returns; what is wrong with the file in a user's words."""
    try:
        return read()
    except _DAMAGED as error:
        rule = "must be a sparse matrix saved by scipy.sparse.save_npz"
        if "allow_pickle" in str(error):  # numpy's advice is for those who trust the file
            raise CorpusError(
                path, f"{rule}, but is no such file, or has pickled objects"
            ) from None
        raise CorpusError(path, f"{rule}, but: {error}") from None
    except MemoryError as error:
        # numpy allocates what the header of an array says before it reads the array.
        raise CorpusError(path, f"says that it holds more than there is memory: {error}") from None
    except (TypeError, AttributeError, IndexError):
        raise CorpusError(path, "holds no sparse matrix (see scipy.sparse.save_npz)") from None
