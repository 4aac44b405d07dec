"""Kernels and processes of the ring's two-process tests, importable by a spawned process."""

import os
from multiprocessing.connection import Connection

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.shared.ring import EMPTY, try_pop, try_push
from esvi_shm.shared.segments import Handle, attach

SPINS = 1000
END = -1


@kernel
def numbered(number):
    """The id of item `number`: every other one is negative."""
    return -number - 1 if number & 1 else number


@kernel
def push_some(ring, number, stop, spins):
    """Push items from `number` on, until `stop` or until the ring stays full."""
    misses = 0
    while number < stop and misses < spins:
        if try_push(ring, numbered(number)):
            number += 1
            misses = 0
        else:
            misses += 1
    return number


@kernel
def pop_some(ring, number, stop, spins):
    """Pop items from `number` on; return the next, and how many were not the expected ones."""
    misses = wrong = 0
    while number < stop and misses < spins:
        value = try_pop(ring)
        if value == EMPTY:
            misses += 1
        else:
            wrong += value != numbered(number)
            number += 1
            misses = 0
    return number, wrong


def push_all(handle: Handle, n_items: int, pipe: Connection) -> None:
    """Push `n_items` numbered items through each ring in turn."""
    for ring in attach(handle).arrays["rings"]:
        number = 0
        while number < n_items:
            number = push_some(ring, number, n_items, SPINS)
            os.sched_yield()
    pipe.send("pushed")


def pop_all(handle: Handle, n_items: int, pipe: Connection) -> None:
    """Pop them, and send for each ring how many were lost, repeated or out of order."""
    results = []
    for ring in attach(handle).arrays["rings"]:
        number = bad = 0
        while number < n_items:
            number, wrong = pop_some(ring, number, n_items, SPINS)
            bad += wrong
            os.sched_yield()
        results.append((bad, try_pop(ring) == EMPTY))
    pipe.send(results)


@kernel
def visit_some(incoming, outgoing, rows, stop, spins):
    """Visit blocks as they come: add 1 to every word of their rows, and send them on.

    A block whose words have reached `stop` stays. Returns (blocks that stayed, rows that were
    not the same number throughout, whether END came).
    """
    misses = done = torn = 0
    while misses < spins:
        block = try_pop(incoming)
        if block == EMPTY:
            misses += 1
            continue
        misses = 0
        if block == END:
            return done, torn, True
        row = rows[block]
        first = row[0]
        for word in range(row.shape[0]):
            torn += row[word] != first
        if first >= stop:
            done += 1
            continue
        for word in range(row.shape[0]):
            row[word] += 1
        try_push(outgoing, block)
    return done, torn, False


def pass_blocks(handle: Handle, me: int, stop: int, pipe: Connection) -> None:
    """Be one of two workers who own each block in turn; worker 0 starts and ends."""
    arrays = attach(handle).arrays
    incoming, outgoing, rows = arrays["rings"][me], arrays["rings"][1 - me], arrays["rows"]
    done = torn = 0
    if me == 0:
        for block in range(len(rows)):
            rows[block] += 1
            try_push(outgoing, block)
    ended = False
    while not ended and done < len(rows):
        some, bad, ended = visit_some(incoming, outgoing, rows, stop, SPINS)
        done += some
        torn += bad
        os.sched_yield()
    if me == 0:
        try_push(outgoing, END)
    pipe.send((done, torn, np.unique(rows).tolist() if me == 0 else None))
