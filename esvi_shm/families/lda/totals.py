"""What the main process has the workers add up at rest: gamma, pi and lambda from the margins.

The scripts here are parts of those of `Model`; see `families.contract.Family.start`.
"""

from collections.abc import Generator
from typing import Any

import numpy as np

from esvi_shm.families.contract import Arrays, WholeRows

#: Sweeps of each worker over its own documents, with the topics held still, at a start.
FOLD_SWEEPS = 5
#: The same where documents are folded in afresh during a fit, or into the topics of a model.
REFOLD_SWEEPS = 15
#: Numbers of lambda that nodes add up at once where topics travel: 4 MiB.
PIECE = 2**19


def fold_in(unfold: str, n_sweeps: int) -> Generator[str, Any, None]:
    """Fold the documents in, from uniform phi (a command sets that) and with the topics held still.

    The last sweep leaves the margins of words too.
    """
    yield unfold
    for _ in range(n_sweeps - 1):
        yield "sweep"
    yield "last_sweep"


def sum_up(shared: Arrays) -> Generator[Any, Any, np.ndarray]:
    """Set gamma, pi and lambda to the sums of the margins, and the priors.

    Returns pi over all documents of the fit, float64 (K,): the same bits on every node.
    """
    yield "sum_documents"
    # A row more than there are workers is that of the other nodes.
    pi, n_workers = shared["pi"], len(shared["entropy"])
    own = pi[:n_workers].sum(axis=0)
    total = own.copy()
    yield total
    pi[n_workers:] = total - own
    yield "clear_words"
    yield "add_words"
    if "pi_total" in shared:
        shared["pi_total"][0] = total
        yield from _add_up_topics(shared)
    return total


def _add_up_topics(shared: Arrays) -> Generator[Any, Any, None]:
    """Where topics travel, every node has all words: lambda of its documents becomes that of all.

    A number that is the prior at every node stays the prior, to the bit.
    """
    lambda_, eta = shared["lambda_"], shared["eta"].astype(np.float32)[:, None]
    n_rows = max(PIECE // lambda_.shape[1], 1)
    for first in range(0, len(lambda_), n_rows):
        rows, prior = lambda_[first : first + n_rows], eta[first : first + n_rows]
        sums = rows.astype(np.float64) - prior
        yield sums
        rows[:] = prior + sums


def everywhere(sums: np.ndarray) -> Generator[Any, Any, np.ndarray]:
    """The workers' rows of sums, added up over the workers of all nodes."""
    total = sums.sum(axis=0)
    yield total
    return total


def whole_rows(shared: Arrays) -> Generator[Any, Any, Arrays | None]:
    """The shared arrays with all rows of all nodes, at node 0; None at others."""
    rows = yield WholeRows()
    return None if rows is None else {**shared, **rows}
