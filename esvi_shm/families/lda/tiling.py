"""The tiles of documents and words: which topics lie in one tile, and what a visit's words have.

Tiles are a worker's own. Its order of the topics puts those that live in the same documents beside
each other, so that a document's topics lie in few tiles; it is found from the worker's own
documents, again now and then, and nothing but speed depends on it: all that is shared or
kept from visit to visit is by topic.

Which topics a document or a word may live in is kept from visit to visit, a bit for each, so that
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
from esvi_shm.families.lda.noise import add_noise
from esvi_shm.families.lda.update import row_factors_into
from esvi_shm.shared.table import ArraySpec
from esvi_shm.tiles import (
    CHUNK,
    SLOT,
    TILE,
    TILE_BITS,
    above_into,
    aligned,
    bits_into,
    lowest,
    n_tiles,
    popcount,
    prefetch_value,
)
from esvi_shm.vector import LANES, padded

DOCUMENT_CUT = np.float32(1e-3)
#: More tokens than this are a topic in a document of any length: in a long one E(gamma) would else
#: be too much to leave out, and all its pairs would be updated over all topics in every pass.
TOKENS_CUT = np.float32(0.02)
WORD_CUT = np.float32(1e-5)
#: What is no more above its prior is rounding.
ROUNDING = np.float32(4e-6)
#: A word is in all topics where the factor of one that it has no tokens in is above this share of
#: its factors' sum: with a large eta.
EDGE_CUT = np.float32(1e-6)
#: A pair that is updated over more topics than its document lives in leaves out those below the
#: tolerance each, where together they are at most this many times the tolerance: the document of a
#: word of 2,000 topics else has a millionth of a token in each, and its list is as long (NIPS,
#: 8192 topics: 2,000 topics a document, and no more than 6 with a hundredth of a token).
SCATTERED = 10.0
#: Under cvb0 a topic without tokens still has the factor alpha, and a document has a little of
#: every topic: a fifth of its tokens lie in topics of less than half a token (AP, 256 topics, 50
#: passes), and what the fit ends with is as good without them (`bench/RESULTS.md`).
CVB0_DOCUMENT_CUT, CVB0_TOKENS_CUT = np.float32(0.1), np.float32(0.2)
CVB0_WORD_CUT, CVB0_WORD_TOKENS_CUT = np.float32(0.1), np.float32(0.02)
#: A pair that is updated over more topics, and its tolerance under cvb0: see `placing`.
CVB0_PLACED = np.float32(0.1)
#: Documents from which the order of topics is found, at most.
ORDER_DOCUMENTS = 8192


class Lists(NamedTuple):
    """A worker's private arrays for active sets; n = padded(K), T the tiles of K topics."""

    rows: np.ndarray  # float32 (16 (T words + 1),): the words' tiles, see `tiles`
    lanes: np.ndarray  # uint8 (T words + 1,)
    table: np.ndarray  # int64 (2 ceil(T / 64) words,)
    mass: np.ndarray  # float32 (words,): sum of the word's factors; that of other topics at most
    edge: (
        np.ndarray
    )  # float32 (words,): its factor E(eta) where it has no tokens, without 1 / E(pi)
    order: np.ndarray  # int32 (8 T,): the topic at each place of the tiles; -1: none
    place: np.ndarray  # int32 (K,): where a topic is
    live: np.ndarray  # int64 (documents, ceil(K / 64)): topics that a document may live in
    own: np.ndarray  # int32 (2, n + 16): those of the document at hand, and of the next
    listed: np.ndarray  # int32 (2, n + 16): topics of a word, and of the next
    at: np.ndarray  # int64 (2, n + 16): where they are in `rows`
    x: np.ndarray  # float32 (n + 16,): parameters in the order of a list
    factors: np.ndarray  # float32 (n + 16,): their factors
    slots: np.ndarray  # int64 (5 T,), see `tiles`
    slot_of: np.ndarray  # int64 (T,): the document's slot for a tile; -1: none
    theta: np.ndarray  # float32 (8 T,): the document's factors by slot
    total: np.ndarray  # float32 (8 T,): sum of count beta / s by slot
    entries: np.ndarray  # int64 (2 (16 T + 1),), see `tiles`: of a chunk and of the next
    partial: np.ndarray  # float32 (8 16,), see `tiles`
    norms: np.ndarray  # float32 (16,): s of a chunk's pairs
    weights: np.ndarray  # float32 (16,): count / s
    extra: np.ndarray  # float64 (K,): what pairs done over more topics add to a document
    left_out: np.ndarray  # float64 (1,): tokens of a visit outside of its active sets, at most
    # Where a pair's own share is left out of the counts, else (1,); f as in `exclusion`:
    inverse: np.ndarray  # float32 (8 (T words + 1),): 1 / lambda of the words' tiles
    mine: np.ndarray  # float32 (8 T,): 1 / gamma of the document by slot
    kept: np.ndarray  # float32 (8 (16 T + 1),): f by entry of a chunk
    products: np.ndarray  # float32 (n + 16,): theta beta, and f, of a pair over more topics
    shares: np.ndarray  # float32 (n + 16,)


@register_jitable
def bits_width(n: int) -> int:
    """How many int64 have a bit for each of n topics or tiles; in kernels too."""
    return -(-n // 64)


@register_jitable
def least_concentrated(tolerance: float) -> float:
    """The share of a pair that topics above the tolerance must have, for the others to be left."""
    return max(1.0 - SCATTERED * tolerance, 0.5)


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


def word_bytes(n_topics: int, leaves_out: bool) -> int:
    """Bytes of tiles for each word of a block, at most: what is not used is not touched."""
    n = n_tiles(n_topics)
    return n * ((3 if leaves_out else 2) * TILE * 4 + 1) + 16 * bits_width(n) + 8


def document_bytes(n_topics: int) -> int:
    """Bytes for each document of a shard."""
    return 8 * bits_width(n_topics)


def specs(sizes: Sizes, n_topics: int) -> list[ArraySpec]:
    """The shared arrays of active sets."""
    V, B = sizes.n_words, sizes.n_blocks
    owner, everyone = "the owner of the row's block", "the owner; everyone while no block is out"
    worker, home = "worker p its row, at the end of a visit", "home, at the end"
    return [
        ArraySpec(
            "live_topics", (V, bits_width(n_topics)), np.int64, owner, everyone,
            "a bit for each topic, by row: not set where lambda_ is at its prior",
        ),
        ArraySpec(
            "cvb0_left_out", (sizes.n_workers, B), np.float64, worker, home,
            "tokens outside of the active sets in the last visit by cvb0, at most",
        ),
        ArraySpec(
            "active_visits", (sizes.n_workers,), np.int64, worker, home,
            "how many of the worker's visits were over active sets",
        ),
        ArraySpec("knows_live", (B,), np.bool_, owner, everyone, "whether live_topics holds"),
    ]  # fmt: skip


def make_lists(most_words: int, n_documents: int, n_topics: int, leaves_out: bool) -> Lists:
    """Lists for blocks of up to `most_words` words, where any topic may be anywhere."""
    n, tiles = padded(n_topics) + LANES, n_tiles(n_topics)
    own_share = TILE * tiles if leaves_out else 0
    order = np.full(TILE * tiles, -1, np.int32)
    order[:n_topics] = np.arange(n_topics)
    return Lists(
        rows=aligned(2 * TILE * (tiles * most_words + 1)),
        lanes=np.zeros(tiles * most_words + 1, np.uint8),
        table=np.zeros(2 * bits_width(tiles) * most_words, np.int64),
        mass=np.zeros(most_words, np.float32),
        edge=np.zeros(most_words, np.float32),
        order=order,
        place=np.arange(n_topics, dtype=np.int32),
        live=np.zeros((n_documents, bits_width(n_topics)), np.int64),
        own=np.zeros((2, n), np.int32),
        listed=np.zeros((2, n), np.int32),
        at=np.zeros((2, n), np.int64),
        x=np.zeros(n, np.float32),
        factors=np.zeros(n, np.float32),
        slots=np.zeros(SLOT * tiles, np.int64),
        slot_of=np.full(tiles, -1, np.int64),
        theta=aligned(TILE * tiles),
        total=aligned(TILE * tiles),
        entries=np.zeros(2 * (CHUNK * tiles + 1), np.int64),
        partial=aligned(TILE * CHUNK),
        norms=np.zeros(CHUNK, np.float32),
        weights=np.zeros(CHUNK, np.float32),
        extra=np.zeros(n_topics),
        left_out=np.zeros(1),
        inverse=aligned(own_share * most_words + TILE),
        mine=aligned(own_share + 1),
        kept=aligned(own_share * CHUNK + TILE),
        products=np.zeros(n, np.float32),
        shares=np.ones(n, np.float32),
    )


@kernel
def find_live_documents(gamma, alpha, most_alpha, live):
    """Which topics each document may live in, by one look at all of gamma."""
    for d in range(gamma.shape[0]):
        above_into(gamma[d], alpha, most_alpha * ROUNDING, live[d])


@kernel
def mean_topics(gamma, alpha, cvb0):
    """How many topics a document lives in, on average over at most `ORDER_DOCUMENTS` documents."""
    step = max(1, -(-gamma.shape[0] // ORDER_DOCUMENTS))
    n, n_sampled = 0, 0
    for d in range(0, gamma.shape[0], step):
        largest = np.float32(0.0)
        for k in range(gamma.shape[1]):
            largest = max(largest, gamma[d, k] - alpha[k])
        cut = document_cut(largest, cvb0)
        for k in range(gamma.shape[1]):
            n += gamma[d, k] - alpha[k] >= cut
        n_sampled += 1
    return n / max(n_sampled, 1)


@kernel
def find_live_words(first, last, lambda_, eta, live):
    """Which topics the words of rows `first` to `last` - 1 may live in, by one look at lambda."""
    zeros = np.zeros(lambda_.shape[1], np.float32)
    for word in range(first, last):
        above_into(lambda_[word], zeros, eta[word] + eta[word] * ROUNDING, live[word])


@kernel
def order_topics(gamma, alpha, live, cvb0, order, place):
    """Put topics that live in the same documents into the same tile, one tile after the other.

    A tile begins with the topic of the most documents that is left, and takes seven times the one
    that shares the most documents with those in it. Not a clustering by distance: those tried
    (average linkage, Ward) leave as many tiles to a document.

    Parameters
    ----------
    gamma : float32 array, shape (D, K)
    alpha : float32 array, shape (K,)
    live : int64 array, shape (D, ceil(K / 64))
    cvb0 : bool
    order, place : int32 arrays
        Written, as in `Lists`.
    """
    n_documents, n_topics = gamma.shape
    step = max(1, -(-n_documents // ORDER_DOCUMENTS))
    n_sampled = -(-n_documents // step)
    listed = np.empty(n_topics, np.int32)
    of_document = np.zeros(n_sampled + 1, np.int64)
    topics = np.empty(64 * n_sampled + n_topics, np.int32)
    of_topic = np.zeros(n_topics + 1, np.int64)
    for i in range(n_sampled):
        d, n = step * i, of_document[i]
        largest = np.float32(0.0)
        n_live = bits_into(live, d, listed)
        for j in range(n_live):
            largest = max(largest, gamma[d, listed[j]] - alpha[listed[j]])
        if n + n_live > topics.shape[0]:
            more = np.empty(2 * topics.shape[0] + n_live, np.int32)
            more[:n] = topics[:n]
            topics = more
        for j in range(n_live):
            k = listed[j]
            if gamma[d, k] - alpha[k] >= document_cut(largest, cvb0):
                topics[n] = k
                of_topic[k + 1] += 1
                n += 1
        of_document[i + 1] = n
    size = of_topic[1:].copy()
    for k in range(n_topics):
        of_topic[k + 1] += of_topic[k]
    documents, cursor = np.empty(of_topic[n_topics], np.int32), of_topic[:-1].copy()
    for i in range(n_sampled):
        for j in range(of_document[i], of_document[i + 1]):
            documents[cursor[topics[j]]] = i
            cursor[topics[j]] += 1
    shared, left = np.zeros(n_topics, np.int64), np.ones(n_topics, np.bool_)
    for at in range(n_topics):
        if at % TILE == 0:
            shared[:] = 0
        best = -1
        for k in range(n_topics):
            # By documents shared, then by documents.
            if left[k] and (
                best < 0
                or shared[k] > shared[best]
                or (shared[k] == shared[best] and size[k] > size[best])
            ):
                best = k
        left[best] = False
        order[at], place[best] = best, at
        for j in range(of_topic[best], of_topic[best + 1]):
            i = documents[j]
            for a in range(of_document[i], of_document[i + 1]):
                shared[topics[a]] += 1


@kernel
def _word_factors(x, n, n_topics, rule, word, factors):
    """Factors of a word in its n topics, but for 1 / E(pi); returns E(prior), given behind them."""
    row_factors_into(x[: n + 1], factors, rule)
    edge = factors[n] if n < n_topics else np.float32(0.0)
    if rule.noise > 0.0:
        add_noise(factors, n, rule.noise, rule.noise_key, rule.word_ids[word])
    return edge


@kernel
def list_words(shard, block, lambda_, phi_word, rule, topic_factor, live, lists, pi_own):
    """Make the tiles of each word of a block; returns how many tiles there are, with tile 0.

    What this shard has put into topics that the word no longer lives in is taken back.
    """
    word_row, rows, lanes, table = shard.word_row, lists.rows, lists.lanes, lists.table
    excluding, inverse = rule.leave_out != NONE, lists.inverse
    first, last = shard.block_word_ptr[block], shard.block_word_ptr[block + 1]
    n_topics, width = lambda_.shape[1], bits_width(lists.slot_of.shape[0])
    x, factors, place, eta = lists.x, lists.factors, lists.place, rule.eta
    all_factors = np.float32(0.0)
    for k in range(n_topics):
        all_factors += topic_factor[k]
    tile = 1
    n_next = 0
    if first < last:
        n_next = bits_into(live, word_row[first], lists.listed[0])
    for i in range(last - first):
        word, listed = word_row[first + i], lists.listed[i % 2]
        n_live = n_next
        if first + i + 1 < last:
            following, ahead = word_row[first + i + 1], lists.listed[(i + 1) % 2]
            n_next = bits_into(live, following, ahead)
            for j in range(n_next):
                prefetch_value(lambda_, following, ahead[j])
        prior = eta[word]
        largest = np.float32(0.0)
        for j in range(n_live):
            largest = max(largest, lambda_[word, listed[j]] - prior)
        rounding = prior * ROUNDING
        cut = max(word_cut(largest, rule.cvb0), rounding)
        n = 0
        for j in range(n_live):
            k = listed[j]
            value = lambda_[word, k]
            if value - prior >= cut and value - prior > rounding:
                x[n] = value
                listed[n] = k
                n += 1
                continue
            taken = phi_word[first + i, k]
            if taken > 0.0:
                value = max(value - taken, prior)
                lambda_[word, k] = value
                pi_own[k] -= taken
                phi_word[first + i, k] = 0.0
            if value - prior <= rounding:
                live[word, k >> 6] &= ~(np.int64(1) << np.int64(k & 63))
        edge, mass = np.float32(0.0), np.float32(0.0)
        if n > 0:
            x[n] = prior
            edge = _word_factors(x, n, n_topics, rule, word, factors)
            for j in range(n):
                factors[j] *= topic_factor[listed[j]]
                mass += factors[j]
        # With few tokens float32 cannot tell them from the prior.
        if n == 0 or (edge > EDGE_CUT * mass and not rule.cvb0):
            n = n_topics
            for k in range(n_topics):
                listed[k] = k
                x[k] = lambda_[word, k]
            x[n] = prior
            edge = _word_factors(x, n, n_topics, rule, word, factors)
            mass = np.float32(0.0)
            for k in range(n_topics):
                factors[k] *= topic_factor[k]
                mass += factors[k]
        lists.mass[i], lists.edge[i] = mass + edge * all_factors, edge
        own = 2 * width * i
        for w in range(width):
            table[own + 2 * w] = 0
        for j in range(n):
            at = place[listed[j]] >> TILE_BITS
            table[own + 2 * (at >> 6)] |= np.int64(1) << np.int64(at & 63)
        before = tile
        for w in range(width):
            table[own + 2 * w + 1] = tile
            tile += popcount(table[own + 2 * w])
        for j in range(2 * TILE * before, 2 * TILE * tile):
            rows[j] = 0.0
        for t in range(before, tile):
            lanes[t] = 0
        for j in range(n):
            p = place[listed[j]]
            at, lane = p >> TILE_BITS, p & (TILE - 1)
            below = (np.int64(1) << np.int64(at & 63)) - 1
            mask, base = table[own + 2 * (at >> 6)], table[own + 2 * (at >> 6) + 1]
            t = base + popcount(mask & below)
            rows[2 * TILE * t + lane] = factors[j]
            lanes[t] |= np.uint8(1) << np.uint8(lane)
            if excluding:
                inverse[TILE * t + lane] = np.float32(1.0) / x[j]
    return tile


@kernel
def topics_of_word(i, table, lanes, order, width, listed, at):
    """List the topics of word i of the visit, and where they are in `rows`; returns the number."""
    n = 0
    for w in range(width):
        left, tile = table[2 * (width * i + w)], table[2 * (width * i + w) + 1]
        while left != 0:
            first = TILE * (64 * w + lowest(left))
            of_tile = np.int64(lanes[tile])
            while of_tile != 0:
                lane = lowest(of_tile)
                listed[n] = order[first + lane]
                at[n] = 2 * TILE * tile + lane
                n += 1
                of_tile &= of_tile - 1
            tile += 1
            left &= left - 1
    return n
