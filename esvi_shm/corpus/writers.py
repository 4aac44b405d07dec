"""Writing a corpus that comes in ranges of documents, and is never in memory as a whole.

Both formats say near their beginning what is known only at the end. A member of an `.npz` begins
with its length, so the two long ones are first collected in files without a name, which are gone
whatever happens, and then copied: for a moment the disk holds one of them twice. In a UCI file a
place is left free for the number of pairs.
"""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from typing import IO, BinaryIO

import numpy as np

from esvi_shm.compile import kernel

#: Indices, from 0 in each range; words, ascending in each document; counts.
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]

#: Bytes of a line of a UCI file at most: three numbers of int32, two blanks, a newline.
LINE_BYTES = 3 * 10 + 3
_COPY_BYTES = 1 << 20


def write_npz(
    file: BinaryIO,
    ranges: Iterable[Rows],
    n_documents: int,
    n_words: int,
    folder: str | os.PathLike[str],
) -> int:
    """Write a corpus as `scipy.sparse.save_npz` writes a CSR matrix, not compressed.

    Parameters
    ----------
    file : binary file
        Where to.
    ranges : iterable of (indptr, indices, counts)
        The documents, in order; int64, int32 and float32 arrays, `indptr` from 0 in each.
    n_documents, n_words : int
    folder : path
        For files of the while.

    Returns
    -------
    int
        The number of pairs.

    Examples
    --------
    >>> import io, scipy.sparse
    >>> file = io.BytesIO()
    >>> rows = np.array([0, 1]), np.array([2], dtype=np.int32), np.array([5], dtype=np.float32)
    >>> write_npz(file, [rows, rows], n_documents=2, n_words=3, folder=tempfile.gettempdir())
    2
    >>> scipy.sparse.load_npz(io.BytesIO(file.getvalue())).toarray().tolist()
    [[0.0, 0.0, 5.0], [0.0, 0.0, 5.0]]
    """
    offsets = np.zeros(n_documents + 1, dtype=np.int64)
    first = n_pairs = 0
    with (
        tempfile.TemporaryFile(dir=folder) as words,
        tempfile.TemporaryFile(dir=folder) as numbers,
    ):
        for indptr, indices, counts in ranges:
            last = first + len(indptr) - 1
            offsets[first + 1 : last + 1] = indptr[1:] + n_pairs
            words.write(indices.astype("<i4", copy=False).data)
            numbers.write(counts.astype("<f4", copy=False).data)
            first, n_pairs = last, n_pairs + len(indices)
        assert first == n_documents
        # As scipy would have it: int32 where that will do.
        if n_pairs < 2**31:
            offsets = offsets.astype(np.int32)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            small = {
                "format": np.array(b"csr"),
                "shape": np.array([n_documents, n_words]),
                "indptr": offsets,
            }
            for name, array in small.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            for name, source, kind in (("indices", words, "<i4"), ("data", numbers, "<f4")):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _copy_vector(source, kind, n_pairs, member)
                source.close()  # which gives its room back
    return n_pairs


def _copy_vector(source: IO[bytes], kind: str, length: int, target: IO[bytes]) -> None:
    """Write a vector as .npy, whose bytes lie in a file."""
    about = {"descr": kind, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(target, about)
    source.seek(0)
    shutil.copyfileobj(source, target, _COPY_BYTES)


@kernel
def format_lines(first, indptr, indices, counts, out):
    """Write lines "document word count" of UCI's format, ids from 1; return their bytes.

    Parameters
    ----------
    first : int
        Number of the first document, from 0.
    indptr, indices, counts : int64, int32, float32 arrays
        Whole counts below 2**31.
    out : uint8 array
        `LINE_BYTES` for each pair.
    """
    end = 0
    for d in range(len(indptr) - 1):
        for j in range(indptr[d], indptr[d + 1]):
            for field in range(3):
                if field == 0:
                    number = first + d + 1
                elif field == 1:
                    number = np.int64(indices[j]) + 1
                else:
                    number = np.int64(counts[j])
                digits, rest = 1, number
                while rest >= 10:
                    rest //= 10
                    digits += 1
                for place in range(end + digits - 1, end - 1, -1):
                    out[place] = 48 + number % 10
                    number //= 10
                end += digits
                out[end] = 10 if field == 2 else 32
                end += 1
    return end


def write_uci(file: BinaryIO, ranges: Iterable[Rows], n_documents: int, n_words: int) -> int:
    """Write a corpus of whole counts as a UCI bag of words; see `write_npz`.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> rows = np.array([0, 1]), np.array([2], dtype=np.int32), np.array([5], dtype=np.float32)
    >>> write_uci(file, [rows, rows], n_documents=2, n_words=3)
    2
    >>> file.getvalue().split()
    [b'2', b'3', b'2', b'1', b'3', b'5', b'2', b'3', b'5']
    """
    file.write(f"{n_documents}\n{n_words}\n".encode())
    place, width = file.tell(), 19  # digits of an int64
    file.write(b" " * width + b"\n")
    first = n_pairs = 0
    for indptr, indices, counts in ranges:
        out = np.empty(LINE_BYTES * len(indices), dtype=np.uint8)
        file.write(out[: format_lines(first, indptr, indices, counts, out)].data)
        first, n_pairs = first + len(indptr) - 1, n_pairs + len(indices)
    assert first == n_documents
    file.seek(place)
    file.write(str(n_pairs).rjust(width).encode())
    file.seek(0, os.SEEK_END)
    return n_pairs
