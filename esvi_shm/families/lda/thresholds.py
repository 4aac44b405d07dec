"""From which share on a topic counts: what active sets leave out, see `active`."""

import numpy as np
from numba.extending import register_jitable

DOCUMENT_CUT = np.float32(1e-3)
#: More tokens than this are a topic in a document of any length: in a long one E(gamma) would else
#: be too much to leave out, and all its pairs would be updated over all topics in every pass.
TOKENS_CUT = np.float32(0.02)
WORD_CUT = np.float32(1e-5)
#: A word is in all topics where the factor of one that it has no tokens in is above this share of
#: its factors' sum: with a large eta.
EDGE_CUT = np.float32(1e-6)
#: A pair leaves out topics that are below the tolerance each, where together they are at most this
#: many times the tolerance: the document of a word of 2,000 topics else has a millionth of a token
#: in each, and its list is as long (NIPS, 8192 topics: 2,000 topics a document, and no more than 6
#: with a hundredth of a token).
SCATTERED = 10.0
#: Under cvb0 a topic without tokens still has the factor alpha, and a document has a little of
#: every topic: a fifth of its tokens lie in topics of less than half a token (AP, 256 topics, 50
#: passes), and what the fit ends with is as good without them (`bench/RESULTS.md`).
CVB0_DOCUMENT_CUT, CVB0_TOKENS_CUT = np.float32(0.1), np.float32(0.2)
CVB0_WORD_CUT, CVB0_WORD_TOKENS_CUT = np.float32(0.1), np.float32(0.02)
#: A pair that is updated over more topics, and its tolerance under cvb0: see `placing`.
CVB0_PLACED = np.float32(0.1)


@register_jitable
def least_concentrated(tolerance: float) -> float:
    """The share of a pair that topics above the tolerance must have, for the others to be left."""
    return max(1.0 - SCATTERED * tolerance, 0.5)


@register_jitable
def scattered(tolerance: float) -> float:
    """How many times the tolerance topics that are below it may have together."""
    return max(1.0, min(SCATTERED, 0.5 / tolerance))


@register_jitable
def document_cut(largest, cvb0):
    """Tokens from which on a topic is one of a document's, by its largest topic."""
    if cvb0:
        return min(largest * CVB0_DOCUMENT_CUT, CVB0_TOKENS_CUT)
    return min(largest * DOCUMENT_CUT, TOKENS_CUT)


@register_jitable
def word_cut(largest, cvb0):
    """Tokens from which on a topic is one of a word's, by its largest topic."""
    if cvb0:
        return min(largest * CVB0_WORD_CUT, CVB0_WORD_TOKENS_CUT)
    return largest * WORD_CUT


@register_jitable
def placing(tolerance, cvb0):
    """The tolerance by which a pair that is updated over more topics leaves some out again."""
    return CVB0_PLACED if cvb0 else tolerance
