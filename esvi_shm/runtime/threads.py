"""Work on documents that changes nothing but its own rows, on threads of this process.

Inference on unseen documents only reads the topics, so it needs none of what a fit's processes
are for: no owner, no ring, no segment. Kernels hold no GIL; threads share the topics as they lie
in memory and start at once, where a process first takes about a second to load its kernels, longer
than most of this work lasts. Threads take ranges of documents as they come, several for each, as
some documents settle sooner than others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np

from esvi_shm.config import check_workers
from esvi_shm.corpus.split import split_documents
from esvi_shm.runtime.cores import available_cores

#: Ranges for each thread, and the pairs below which a range is not worth a hand-over.
RANGES_PER_WORKER, LEAST_PAIRS = 16, 2048
#: Results for each thread that may wait for whoever takes them.
AHEAD = 2

Result = TypeVar("Result")


def for_documents(
    work: Callable[[int, int], object], indptr: np.ndarray, n_workers: int | None = None
) -> None:
    """Call `work(first, last)` for ranges of documents that together are all of them.

    Parameters
    ----------
    work : callable
        Safe to run on several threads at once for different documents.
    indptr : int64 array, shape (D + 1,)
        Row offsets of the documents, as pairs are the work; or what else it takes, summed up, of
        what else is to be worked on: words have ranges as documents have.
    n_workers : int or None
        Threads at most; None: one for each core that this process may use.

    Raises
    ------
    ParameterError
        If `n_workers` is not a whole number from 1 on.
    Exception
        The first that `work` raises.

    Examples
    --------
    >>> lengths = np.zeros(3)
    >>> def measure(first, last):
    ...     lengths[first:last] = np.diff(indptr)[first:last]
    >>> indptr = np.array([0, 2, 2, 5])
    >>> for_documents(measure, indptr, n_workers=2)
    >>> lengths.tolist()
    [2.0, 0.0, 3.0]
    """
    if n_workers is None:
        n_workers = available_cores()
    check_workers(n_workers)
    n_documents, n_pairs = len(indptr) - 1, int(indptr[-1])
    if n_documents == 0:
        return
    n_ranges = min(n_documents, n_workers * RANGES_PER_WORKER, max(1, n_pairs // LEAST_PAIRS))
    bounds = split_documents(indptr, n_ranges).tolist()
    if min(n_workers, n_ranges) == 1:
        for first, last in pairwise(bounds):
            work(first, last)
        return
    threads = ThreadPoolExecutor(min(n_workers, n_ranges))
    try:
        for _ in threads.map(work, bounds[:-1], bounds[1:]):
            pass
    finally:
        # Ctrl-C waits for the ranges at hand, not for those that nobody has begun.
        threads.shutdown(cancel_futures=True)


def in_order(
    work: Callable[[int, int], Result], ranges: Iterable[tuple[int, int]], n_workers: int
) -> Iterator[Result]:
    """Yield `work(first, last)` of ranges, in their order, while threads work on those that follow.

    No more than `AHEAD` results a thread are kept, however slowly they are taken.

    Parameters
    ----------
    work : callable
        Safe to run on several threads at once for different ranges.
    ranges : iterable of (int, int)
    n_workers : int
        Threads.

    Raises
    ------
    Exception
        What `work` raises, in its turn.

    Examples
    --------
    >>> list(in_order(range, [(0, 2), (2, 5)], n_workers=2))
    [range(0, 2), range(2, 5)]
    """
    threads = ThreadPoolExecutor(n_workers)
    waiting: deque[Future[Result]] = deque()
    try:
        for first, last in ranges:
            if len(waiting) == AHEAD * n_workers:
                yield waiting.popleft().result()
            waiting.append(threads.submit(work, first, last))
        while waiting:
            yield waiting.popleft().result()
    finally:
        # As above; and where nobody takes the rest.
        threads.shutdown(cancel_futures=True)
