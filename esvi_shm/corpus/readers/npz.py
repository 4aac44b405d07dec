"""A sparse matrix saved by `scipy.sparse.save_npz`; pickled objects in it are refused."""

import zipfile
import zlib
from pathlib import Path

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files
from esvi_shm.errors import CorpusError

FORMAT = "npz"
OPTIONS = frozenset({"transpose", "vocabulary"})
#: What numpy and scipy raise of a file that is another one, cut, or lies about its sizes.
_DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
)


def matches(path: Path) -> bool:
    """Whether the name ends in .npz."""
    return path.name.lower().endswith(".npz")


def read(path: Path, options: ReadOptions, progress: Progress | None) -> Corpus:
    """Read a scipy sparse matrix."""
    import scipy.sparse

    with _files.LineBlocks(path):
        pass  # opened only for the plain message about a missing file or a folder
    try:
        # Opened here: numpy leaves a damaged file open.
        with open(path, "rb") as file:
            matrix = scipy.sparse.load_npz(file)
    except _DAMAGED as error:
        rule = "must be a sparse matrix saved by scipy.sparse.save_npz"
        raise CorpusError(path, f"{rule}, but: {error}") from None
    except MemoryError as error:
        # numpy allocates what the header of an array says before it reads the array.
        raise CorpusError(path, f"says that it holds more than there is memory: {error}") from None
    except (TypeError, AttributeError, NotImplementedError, IndexError) as error:
        raise CorpusError(path, f"holds no sparse matrix: {error}") from None
    if options.transpose:
        matrix = matrix.T
    if progress is not None:
        size = path.stat().st_size
        progress(size, size)
    words = options.vocabulary
    vocabulary = None if words is None else _files.read_vocabulary(words)
    return Corpus.from_sparse(matrix, vocabulary, str(path))
