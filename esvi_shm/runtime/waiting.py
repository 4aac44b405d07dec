"""Waiting until something can be read, for less than a millisecond too."""

import select
from collections.abc import Sequence

#: What `poll` rounds shorter waits up to, in seconds; the descriptors that `select` takes.
LEAST_POLL, MOST_SELECT = 1e-3, 1024


def readable(descriptors: Sequence[int], seconds: float) -> list[int]:
    """The descriptors that can be read, or have ended, after waiting so long at most for one.

    Examples
    --------
    >>> import os
    >>> bell = os.eventfd(1)
    >>> readable([bell], 0.0003) == [bell], os.eventfd_read(bell), readable([bell], 0.0003)
    (True, 1, [])
    >>> os.close(bell)
    """
    if 0.0 < seconds < LEAST_POLL and max(descriptors, default=0) < MOST_SELECT:
        return select.select(descriptors, (), (), seconds)[0]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(1000.0 * seconds)]
