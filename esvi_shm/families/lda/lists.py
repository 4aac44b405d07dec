"""Which topics documents and words live in, and what a visit's words have of theirs.

Which topics a document or a word may live in is kept from visit to visit, as lists where rows are
lists (`listed_documents`, `listed_words`), else a bit for each, so that
a visit does not look at all K: where a bit is not set, gamma or lambda is at its prior, but for
rounding. All bits are found anew, by one look at all values, after whatever may have set a value
elsewhere: a pass of all topics, or a command.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from esvi_shm.compile import kernel
from esvi_shm.families.lda.cut import Sizes
from esvi_shm.families.lda.exclusion import NONE
from esvi_shm.families.lda.listed import ROUNDING, n_rows_of, row_of, word_row_into
from esvi_shm.families.lda.listed_words import own_topics, peek_at_word
from esvi_shm.families.lda.noise import add_noise
from esvi_shm.families.lda.thresholds import EDGE_CUT, document_cut, scattered
from esvi_shm.families.lda.update import factors_into
from esvi_shm.shared.table import ArraySpec
from esvi_shm.sparse import CHUNK, SLOT, above_into, popcount
from esvi_shm.vector import LANES, aligned, padded, unsigned

#: Documents by which it is judged how many topics one lives in, at most.
SAMPLE_DOCUMENTS = 8192


class Lists(NamedTuple):
    """A worker's private arrays for active sets; n = padded(K), W = ceil(K / 64)."""

    rows: np.ndarray  # float32 (2 K words,): the words' factors and sums, see `sparse`
    topics: np.ndarray  # int32 (K words,): which topics they are of
    first: np.ndarray  # int64 (words + 1,): where each word's begin
    masks: np.ndarray  # int64 (W words,), see `sparse`
    starts: np.ndarray  # int32 (W words,), see `sparse`
    reach: np.ndarray  # float32 (words,): what topics that a document lacks may have, see `active`
    edge: (
        np.ndarray
    )  # float32 (words,): its factor E(eta) where it has no tokens, without 1 / E(pi)
    all_factors: np.ndarray  # float32 (1,): sum of 1 / E(pi), relative, over all topics
    live: np.ndarray  # int64 (documents, W): topics that a document may live in
    gained: np.ndarray  # int64 (1, W): topics that come to a document, 0 between documents
    own: np.ndarray  # int32 (2, n + 16): those of the document at hand, and of the next
    listed: np.ndarray  # int32 (2, n + 16): topics that a word may live in, and the next
    x: np.ndarray  # float32 (n + 16,): parameters in the order of a list
    factors: np.ndarray  # float32 (n + 16,): their factors
    slots: np.ndarray  # int64 (2 W,), see `sparse`
    places: np.ndarray  # int32 (n + 16,): where the document's topics are in `theta` and `total`
    theta: np.ndarray  # float32 (64 W,): the document's factors
    total: np.ndarray  # float32 (64 W,): sum of count beta / s in its topics
    items: np.ndarray  # int64 (2 (16 (W + K) + 1),), see `sparse`
    entries: np.ndarray  # int64 (32 K,), see `sparse`: of a chunk and of the next
    norms: np.ndarray  # float32 (16,): s of a chunk's pairs
    squares: np.ndarray  # float32 (16,): a of a chunk's pairs, where own shares are left out
    weights: np.ndarray  # float32 (16,): count / s
    least: np.ndarray  # float32 (16,): below it a pair is updated over more topics
    extra: np.ndarray  # float64 (K,): what pairs done over more topics add to a document
    left_out: np.ndarray  # float64 (1,): tokens of a visit outside of its active sets, at most
    # int64 (4,): what a visit had to do: topics of pairs in common; topics of pairs updated over
    # more, and in the log domain; topics of documents and words that were listed
    counts: np.ndarray
    # Where a pair's own share is left out of the counts, else (1,); f as in `exclusion`:
    inverse: np.ndarray  # float32 (K words,): 1 / lambda of the words' topics
    mine: np.ndarray  # float32 (64 W,): 1 / gamma of the document's topics
    kept: np.ndarray  # float32 (16 K,): f by entry of a chunk
    products: np.ndarray  # float32 (n + 16,): theta beta, and f, of a pair over more topics
    shares: np.ndarray  # float32 (n + 16,)


@register_jitable
def bits_width(n: int) -> int:
    """How many int64 have a bit for each of n topics; in kernels too."""
    return -(-n // 64)


def word_bytes(n_topics: int, leaves_out: bool) -> int:
    """Bytes of lists for each word of a block, at most: what is not used is not touched."""
    return n_topics * (16 if leaves_out else 12) + 12 * bits_width(n_topics) + 16


def document_bytes(n_topics: int) -> int:
    """Bytes for each document of a shard."""
    return 8 * bits_width(n_topics)


def specs(sizes: Sizes, n_topics: int, has_lists: bool) -> list[ArraySpec]:
    """The shared arrays of active sets; where words have lists, these say where they live."""
    V, B = sizes.n_words, sizes.n_blocks
    owner, everyone = "the owner of the row's block", "the owner; everyone while no block is out"
    worker, home = "worker p its row, at the end of a visit", "home, at the end"
    live = [
        ArraySpec(
            "live_topics", (V, bits_width(n_topics)), np.int64, owner, everyone,
            "a bit for each topic, by row: not set where lambda_ is at its prior",
        ),
        ArraySpec("knows_live", (B,), np.bool_, owner, everyone, "whether live_topics holds"),
    ]  # fmt: skip
    return [
        *([] if has_lists else live),
        ArraySpec(
            "cvb0_left_out", (sizes.n_workers, B), np.float64, worker, home,
            "tokens outside of the active sets in the last visit by cvb0, at most",
        ),
        ArraySpec(
            "active_visits", (sizes.n_workers,), np.int64, worker, home,
            "how many of the worker's visits were over active sets; 0 where that was given up",
        ),
    ]  # fmt: skip


def make_lists(most_words: int, n_documents: int, n_topics: int, leaves_out: bool) -> Lists:
    """Lists for blocks of up to `most_words` words, where any topic may be anywhere."""
    n, width = padded(n_topics) + LANES, bits_width(n_topics)
    own_share = n_topics if leaves_out else 0
    return Lists(
        rows=aligned(2 * n_topics * most_words),
        topics=np.zeros(n_topics * most_words + 1, np.int32),
        first=np.zeros(most_words + 1, np.int64),
        masks=np.zeros(width * most_words, np.int64),
        starts=np.zeros(width * most_words, np.int32),
        reach=np.zeros(most_words, np.float32),
        edge=np.zeros(most_words, np.float32),
        all_factors=np.zeros(1, np.float32),
        live=np.zeros((n_documents, width), np.int64),
        gained=np.zeros((1, width), np.int64),
        own=np.zeros((2, n), np.int32),
        listed=np.zeros((2, n), np.int32),
        x=aligned(n),
        factors=aligned(n),
        slots=np.zeros(SLOT * width, np.int64),
        places=np.zeros(n, np.int32),
        theta=aligned(64 * width),
        total=aligned(64 * width),
        items=np.zeros(2 * (CHUNK * (width + n_topics) + 1), np.int64),
        entries=np.zeros(2 * CHUNK * n_topics, np.int64),
        norms=np.zeros(CHUNK, np.float32),
        squares=np.zeros(CHUNK, np.float32),
        weights=np.zeros(CHUNK, np.float32),
        least=np.zeros(CHUNK, np.float32),
        extra=np.zeros(n_topics),
        left_out=np.zeros(1),
        counts=np.zeros(4, np.int64),
        inverse=aligned(own_share * most_words + 1),
        mine=aligned(64 * width),
        kept=aligned(CHUNK * own_share + 1),
        products=aligned(n),
        shares=aligned(n),
    )


@kernel
def find_live_documents(gamma, priors, live):
    """Which topics each document may live in, by one look at all of gamma."""
    for d in range(gamma.shape[0]):
        above_into(gamma[d], priors, np.float32(0.0), live[d])


@kernel(allocates=True)
def mean_topics(gamma, alpha, cvb0):
    """How many topics a document lives in, on average over at most `SAMPLE_DOCUMENTS` documents."""
    n_documents, made = n_rows_of(gamma), np.empty_like(alpha)
    step = max(1, -(-n_documents // SAMPLE_DOCUMENTS))
    n, n_sampled = 0, 0
    for d in range(0, n_documents, step):
        row = row_of(gamma, d, made)
        largest = np.float32(0.0)
        for k in range(row.shape[0]):
            largest = max(largest, row[k] - alpha[k])
        cut = document_cut(largest, cvb0)
        for k in range(row.shape[0]):
            n += row[k] - alpha[k] >= cut
        n_sampled += 1
    return n / max(n_sampled, 1)


@kernel(allocates=True)
def find_live_words(first, last, lambda_, eta, live):
    """Which topics the words of rows `first` to `last` - 1 may live in, by one look at lambda."""
    zeros = np.zeros(lambda_.shape[1], np.float32)
    for word in range(first, last):
        above_into(lambda_[word], zeros, eta[word] + eta[word] * ROUNDING, live[word])


@kernel(inline="always")
def _word_factors(x, n, n_topics, rule, word, factors):
    """Factors of a word in its n topics, but for 1 / E(pi); returns E(prior), given behind them."""
    factors_into(x[: n + 1], factors, rule.cvb0, rule.power)
    edge = factors[n] if n < n_topics else np.float32(0.0)
    if rule.noise > 0.0:
        add_noise(factors, n, rule.noise, rule.noise_key, rule.word_ids[word])
    return edge


@kernel(inline="always")
def _place_factors(n, at, topics, factors, topic_factor, rows):
    """Put a word's factors into its row, their sums at 0; returns their sum and the largest."""
    mass = largest = np.float32(0.0)
    for j in range(n):
        here = at + j
        value = factors[unsigned(j)] * topic_factor[unsigned(topics[unsigned(here)])]
        rows[unsigned(2 * here)], rows[unsigned(2 * here + 1)] = value, 0.0
        mass += value
        largest = max(largest, value)
    return mass, largest


@kernel
def list_words(shard, block, lambda_, phi_word, rule, topic_factor, live, lists, pi_own):
    """List the topics of each word of a block, with their factors; returns how many there are.

    What this shard has put into topics that the word no longer lives in is taken back.
    """
    word_row, rows, topics = shard.word_row, lists.rows, lists.topics
    masks, starts, inverse = lists.masks, lists.starts, lists.inverse
    excluding, cvb0 = rule.leave_out != NONE, rule.cvb0
    first, last = shard.block_word_ptr[block], shard.block_word_ptr[block + 1]
    n_topics, width = pi_own.shape[0], live.shape[1]
    x, factors, eta = lists.x, lists.factors, rule.eta
    all_factors, share = np.float32(0.0), np.float32(1.0 / scattered(rule.tolerance))
    for k in range(n_topics):
        all_factors += topic_factor[k]
    lists.all_factors[0] = all_factors
    at = 0
    n_next = 0
    if first < last:
        n_next = peek_at_word(lambda_, word_row[first], live, lists.listed[0])
    for i in range(last - first):
        word, n_live = word_row[first + i], n_next
        if first + i + 1 < last:
            n_next = peek_at_word(lambda_, word_row[first + i + 1], live, lists.listed[(i + 1) % 2])
        prior, own = eta[word], width * i
        lists.first[i] = at
        n = own_topics(
            lambda_, phi_word, live, word, (i, first + i), n_live, prior, cvb0, lists, at, pi_own
        )
        edge = mass = peak = np.float32(0.0)
        if n > 0:
            x[n] = prior
            edge = _word_factors(x, n, n_topics, rule, word, factors)
            mass, peak = _place_factors(n, at, topics, factors, topic_factor, rows)
        # With few tokens float32 cannot tell them from the prior.
        if n == 0 or (edge > EDGE_CUT * mass and not cvb0):
            n = n_topics
            for w in range(width):
                masks[own + w] = 0
            for k in range(n_topics):
                masks[own + (k >> 6)] |= np.int64(1) << np.int64(k & 63)
                topics[at + k] = k
            word_row_into(lambda_, word, prior, x[:n_topics])
            x[n] = prior
            edge = _word_factors(x, n, n_topics, rule, word, factors)
            mass, peak = _place_factors(n, at, topics, factors, topic_factor, rows)
        reach = mass + edge * all_factors
        if not cvb0:  # no topic factor is above 1
            reach = max(max(peak, edge), reach * share)
        lists.reach[i], lists.edge[i] = reach, edge
        begin = at
        for w in range(width):
            starts[own + w] = begin
            begin += popcount(masks[own + w])
        if excluding:
            for j in range(n):
                inverse[unsigned(at + j)] = np.float32(1.0) / x[unsigned(j)]
        at += n
    lists.first[last - first] = at
    return at
