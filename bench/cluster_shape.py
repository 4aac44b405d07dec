"""What a corpus of some shape gives the workers and the wire of a cluster to do.

Words follow Zipf's law with a shift, as stop words are left out: the word of rank r is in
c / (r + q) documents, so that the first is in a given share of them and all pairs are as many as
asked for. Blocks are cut as in a fit (`assign_blocks`). Documents are alike, and words are spread
evenly over them; so are the shards. Then

pairs      of block b at a shard: its pairs / P
words      of block b at a shard: the sum over its words of 1 - exp(-documents of the word / P)
documents  of block b at a shard: D / P (1 - (1 - share of b in all pairs)^(pairs of a document))

A row of lambda is sent as `runtime.packing` sends it: a bit for each topic, and what differs from
the prior.
"""

from dataclasses import dataclass

import numpy as np

from esvi_shm.corpus.split import assign_blocks
from esvi_shm.runtime.packing import BITS
from esvi_shm.simulate import LIKE


@dataclass(frozen=True)
class Shape:
    """The size of a corpus.

    Attributes
    ----------
    documents, words, pairs : int
    most_common : float
        The share of documents that the most common word is in.
    """

    documents: int
    words: int
    pairs: int
    most_common: float

    def documents_of_words(self) -> np.ndarray:
        """In how many documents each word is, the most common first.

        Examples
        --------
        >>> found = Shape(1000, 500, 20_000, 0.3).documents_of_words()
        >>> bool(abs(found.sum() - 20_000) < 1), bool(abs(found[0] - 300) < 1)
        (True, True)
        """
        ranks = np.arange(1, self.words + 1)
        low, high = 0.0, 100.0 * self.words
        for _ in range(80):  # the shift: more of it, more pairs
            shift = (low + high) / 2
            found = self.most_common * self.documents * (1 + shift) / (ranks + shift)
            low, high = (shift, high) if found.sum() < self.pairs else (low, shift)
        return found


#: UMBC's pairs are not published: as many a token as PubMed's.
PAIRS_A_TOKEN = 483_450_157 / 737_900_000


def shape_of(name: str, most_common: float, scale: float = 1.0) -> Shape:
    """The shape of a corpus that `esvi_shm.simulate` knows, or a part of its documents."""
    sizes = LIKE[name]
    pairs = sizes.pairs or round(sizes.tokens * PAIRS_A_TOKEN)
    return Shape(round(sizes.documents * scale), sizes.words, round(pairs * scale), most_common)


@dataclass(frozen=True)
class Load:
    """What there is to do in a fit, by block.

    Attributes
    ----------
    pairs, seconds : list of float
        Of a visit of each block at any worker.
    wire_bytes : int64 array
        Of each block's rows as they are sent.
    dense_by_wire : float
        Bytes of rows by bytes sent.
    n_topics, n_visits : int
        Visits of all blocks in all passes.
    longest : float
        The seconds that the slowest block is at work in a pass, at all workers one after another,
        by those of a worker: above 1 it is what the others wait for.
    margins : float
        Bytes of the margins at each node.
    """

    pairs: list[float]
    seconds: list[float]
    wire_bytes: np.ndarray
    dense_by_wire: float
    n_topics: int
    n_visits: int
    longest: float
    margins: float


@dataclass(frozen=True)
class Visit:
    """Nanoseconds of a visit, and bytes of rows.

    Attributes
    ----------
    pair, word, document : float
        Each of these in the block and the shard, at `topics` topics; they go with the topics.
    topics : int
    word_topics : float
        Topics that a word lives in at most, and is packed with; 0: rows are sent whole.
    """

    pair: float
    word: float
    document: float
    topics: int
    word_topics: float


def load_of(
    shape: Shape, visit: Visit, n_blocks: int, n_nodes: int, n_workers: int, n_passes: int
) -> Load:
    """Cut a corpus into blocks, and into shards for all workers of all nodes."""
    shards = n_nodes * n_workers
    documents_of = shape.documents_of_words()
    order, bounds = assign_blocks(np.maximum(documents_of, 1).astype(np.int64), n_blocks)
    documents_of = documents_of[order]

    def by_block(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, bounds[:-1])

    pairs = by_block(documents_of) / shards
    words = by_block(-np.expm1(-documents_of / shards))
    away = 1 - pairs / pairs.sum()
    documents = shape.documents / shards * (1 - away ** (shape.pairs / shape.documents))
    # Cut by its most common word, a block is in no fewer documents than that.
    documents = np.maximum(documents, np.maximum.reduceat(documents_of, bounds[:-1]) / shards)
    seconds = (visit.pair * pairs + visit.word * words + visit.document * documents) * 1e-9
    seconds *= visit.topics / 128
    dense = 4.0 * visit.topics * np.diff(bounds)
    wire = dense
    if visit.word_topics:
        lives = np.minimum(documents_of, visit.word_topics)
        wire = by_block(4 + 4 * -(-visit.topics // BITS) + 4 * lives)
    rows = documents.sum() + words.sum()
    return Load(
        pairs.tolist(),
        seconds.tolist(),
        wire.astype(np.int64),
        float(dense.sum() / wire.sum()),
        visit.topics,
        n_blocks * shards * n_passes,
        float(seconds.max() * shards / seconds.sum()),
        float(rows * n_workers * visit.topics * 4),
    )
