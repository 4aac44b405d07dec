"""Ranges of documents on threads: each document once, errors told, nothing begun after one."""

import doctest
import threading

import numpy as np
import pytest

from esvi_shm.errors import ParameterError
from esvi_shm.runtime import threads
from esvi_shm.runtime.threads import LEAST_PAIRS, for_documents


@pytest.mark.parametrize("n_workers", [None, 1, 2, 5])
@pytest.mark.parametrize("lengths", [[3], [0, 0, 7], [LEAST_PAIRS] * 50, [9 * LEAST_PAIRS, 1, 0]])
def test_every_document_is_in_one_range(lengths, n_workers):
    calls = []
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    for_documents(lambda first, last: calls.append((first, last)), indptr, n_workers)
    covered = [d for first, last in sorted(calls) for d in range(first, last)]
    assert covered == list(range(len(lengths)))


def test_threads_work_at_the_same_time():
    indptr = np.arange(4) * LEAST_PAIRS
    meeting = threading.Barrier(3, timeout=60)
    for_documents(lambda first, last: meeting.wait(), indptr, n_workers=3)


def test_one_worker_and_little_work_start_no_thread():
    seen = set()
    for indptr, n_workers in ((np.arange(4) * LEAST_PAIRS, 1), (np.arange(4), 3)):
        for_documents(lambda first, last: seen.add(threading.get_ident()), indptr, n_workers)
    assert seen == {threading.get_ident()}


@pytest.mark.parametrize("n_workers", [1, 2])
def test_an_error_ends_the_work(n_workers):
    begun = []

    def work(first, last):
        begun.append(first)
        raise OSError(f"no such thing: {first}")

    with pytest.raises(OSError, match="no such thing: 0"):
        for_documents(work, np.arange(2000) * LEAST_PAIRS, n_workers)
    assert n_workers > 1 or begun == [0]


def test_examples():
    done = doctest.testmod(threads)
    assert done.attempted and not done.failed


@pytest.mark.parametrize("n_workers", [0, -1, 1.5, True])
def test_numbers_of_workers_are_checked(n_workers):
    with pytest.raises(ParameterError, match="n_workers"):
        for_documents(lambda first, last: None, np.array([0, 1]), n_workers)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_results_come_in_order_and_not_too_far_ahead(n_workers):
    begun = []

    def ranges():
        for i in range(40):
            begun.append(i)
            yield i, i + 1

    for taken, (first, _) in enumerate(threads.in_order(lambda *r: r, ranges(), n_workers)):
        assert first == taken
        assert len(begun) <= taken + 1 + threads.AHEAD * n_workers
    assert len(begun) == 40


def test_an_error_of_a_range_comes_in_its_turn_and_the_rest_is_not_begun():
    def work(first, last):
        if first == 2:
            raise LookupError("on purpose")
        done.append(first)
        return first

    done, results = [], []
    with pytest.raises(LookupError, match="on purpose"):
        for result in threads.in_order(work, [(i, i + 1) for i in range(30)], 1):
            results.append(result)
    assert results == [0, 1]
    assert len(done) < 10
