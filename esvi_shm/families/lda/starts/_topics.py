"""Where a start writes its topics: lambda, which is an array or lists."""

from collections.abc import Iterator

import numpy as np

from esvi_shm.families.contract import Arrays
from esvi_shm.families.lda import listed, listing
from esvi_shm.families.lda.cut import row_of_word

#: Numbers that are made at a time of rows that are lists.
CHUNK = 2**22


def parts(arrays: Arrays, shared: Arrays) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Parts of lambda that are to be written, float32 (n, K), and where the words' rows are there.

    The latter is int64 (V,), by word; -1: elsewhere. Lists are written when the next is asked for.
    """
    rows = row_of_word(arrays)
    if "lambda_" in shared:
        yield rows, shared["lambda_"]
        return
    lists = listed.words_of_arrays(shared)
    size, bounds = max(CHUNK // len(lists.prior), 1), arrays["block_bounds"].tolist()
    for block in np.flatnonzero(arrays["rests_here"]).tolist():
        for first in range(bounds[block], bounds[block + 1], size):
            last = min(first + size, bounds[block + 1])
            made = listed.ListedRows(lists)[first:last]
            yield np.where((rows >= first) & (rows < last), rows - first, -1), made
            write(shared, np.arange(first, last), made)


def write(shared: Arrays, rows: np.ndarray, topics: np.ndarray) -> None:
    """Write rows of lambda, int64 (n,); `topics`, float32 (n, K), are not to be used any more."""
    if "lambda_" in shared:
        shared["lambda_"][rows] = topics
        return
    lists, n_topics = listed.words_of_arrays(shared), topics.shape[1]
    bits, own = np.zeros((1, -(-n_topics // 64)), np.int64), np.zeros(n_topics + 32, np.int32)
    listing.list_rows(lists, rows, topics, bits, own)
