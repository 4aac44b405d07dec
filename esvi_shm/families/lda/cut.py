"""How a corpus is cut: documents into shards, words into blocks, and the arrays that hold them.

segment       holds
corpus        order of the words, bounds, totals
shard_<p>     the pairs of worker p's documents
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from esvi_shm.config import FitConfig
from esvi_shm.corpus import _rows
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.held import HeldCorpus
from esvi_shm.corpus.part import HeldPart, Part, Whole
from esvi_shm.corpus.shard import (
    Shard,
    assign_blocks,
    fill_shard,
    shard_shapes,
    shard_sizes,
    split_documents,
)
from esvi_shm.families import contract
from esvi_shm.families.contract import Arrays
from esvi_shm.families.lda.listed import lambda_places, n_word_places
from esvi_shm.families.lda.schedule import settle_and_relax
from esvi_shm.shared.preflight import check_memory
from esvi_shm.shared.table import ArraySpec

# The number of blocks, where none is asked for; `choose_n_blocks`.
#: More blocks wait less for each other: the least for each worker, where there are several.
BLOCKS_PER_WORKER = 2
#: More blocks cut a document into shorter rows, and a row costs as much as some ten pairs. On
#: documents of 6 pairs one block is twice as fast as 8, and its bound is ahead by 0.35 nats a token
#: after 20 passes (health tweets); on documents of 500, 8 blocks are ahead in both (NIPS), for
#: their factors stay in the cache and gamma is fresher.
PAIRS_A_ROW, MOST_FOR_ROWS = 20, 8
#: On the topic axis: the groups that are at a worker at once, half of the topics with two workers.
GROUPS_PER_WORKER = 4
#: A worker's scratch has two rows of K floats and one of doubles for each word of a block. More
#: blocks for its sake pay until they add as many rows: margins have one of K floats for each
#: document in each block (8.2 million documents of 59 pairs: 9 blocks take twice the memory of 4).
WORDS_A_BLOCK = 16384
#: Where it is chosen, words settle after so many of their pairs at least (on average), but twice a
#: pass in any case: what belongs to a word takes as long as 6 pairs (NIPS, 128 topics). AP, 128
#: topics, has a perplexity of 2119 by 4 times in 30 passes, of 2111 by 2 in 37, which take as long
#: (`bench/RESULTS.md`).
PAIRS_A_SETTLE, LEAST_SETTLE = 12, 2
#: What `Cut` holds at most for each word of the vocabulary, for a while; and more for each turn.
BYTES_A_WORD, BYTES_A_WORD_AND_TURN = 36, 13


@dataclass(frozen=True)
class Sizes(contract.Sizes):
    """The sizes of one fit; per shard in order of the workers.

    `n_documents` are those of this node, from `first_document` on of `n_documents_in_all`.
    """

    n_documents: int
    n_words: int
    shard_documents: tuple[int, ...]
    shard_pairs: tuple[int, ...]
    shard_rows: tuple[int, ...]
    shard_words: tuple[int, ...]
    # Where rows are lists (`listed`): places of the words' margins, and of lambda.
    shard_word_places: tuple[int, ...]
    lambda_places: int
    n_documents_in_all: int
    first_document: int
    n_turns: int = 1  # of a visit, see `corpus.shard`


def choose_n_blocks(corpus: Corpus | Whole, n_workers: int) -> int:
    """The number of blocks that suits a corpus, and so many workers in all."""
    for_rows = min(corpus.n_pairs // (PAIRS_A_ROW * max(corpus.n_documents, 1)), MOST_FOR_ROWS)
    for_workers = BLOCKS_PER_WORKER * n_workers if n_workers > 1 else 1
    # At B blocks of V / B words, P x V x 4 / B^2 rows of scratch go with the next block, D come.
    worth = math.isqrt(4 * n_workers * corpus.n_words // max(corpus.n_documents, 1))
    for_scratch = min(-(-corpus.n_words // WORDS_A_BLOCK), worth)
    return min(max(for_rows, for_workers, for_scratch), corpus.n_words)


def choose_n_groups(n_workers: int) -> int:
    """The number of groups of topics that travel: one where they need not, else some at each."""
    return GROUPS_PER_WORKER * n_workers if n_workers > 1 else 1


def choose_n_turns(config: FitConfig, n_workers: int, pairs_a_word: float) -> int:
    """The turns of a visit, for so many workers in all, and pairs of a word on average.

    Examples
    --------
    >>> [choose_n_turns(FitConfig(settle=4), n, 30.0) for n in (1, 2, 3, 16)]
    [4, 2, 2, 1]
    """
    if config.axis == "topics":
        return 1
    settle = settle_and_relax(config)[0]
    if config.settle is None:
        settle = min(settle, max(int(pairs_a_word / PAIRS_A_SETTLE), LEAST_SETTLE))
    return -(-settle // n_workers)


class Cut:
    """A corpus, cut; see `families.contract.Cut`.

    Parameters
    ----------
    corpus : Corpus
    config : FitConfig
        `n_workers` and `n_blocks` must be set and no more than documents and words.
    """

    def __init__(self, corpus: Corpus, config: FitConfig) -> None:
        P, B = config.n_workers, config.n_blocks
        assert P is not None and B is not None
        what = f"{corpus.name}: the order of {corpus.n_words} words"
        n_nodes = corpus.nodes.n_nodes if isinstance(corpus, Part) else 1
        n_turns = choose_n_turns(config, P * n_nodes, corpus.whole.n_pairs / corpus.n_words)
        self.words_travel = config.axis == "words"
        bytes_a_word = BYTES_A_WORD + BYTES_A_WORD_AND_TURN * n_turns
        check_memory(bytes_a_word * corpus.n_words, what)
        pairs_per_word = corpus.whole.pairs_per_word()
        self.word_order, self.block_bounds = assign_blocks(pairs_per_word, B)
        self.document_bounds = split_documents(corpus.indptr, P)
        self._per_shard, places = [], []
        for lo, hi in pairwise(self.document_bounds.tolist()):
            found = np.zeros((n_turns, corpus.n_words), np.int32)
            cut = corpus, lo, hi, self.word_order, self.block_bounds, n_turns
            self._per_shard.append(shard_sizes(*cut, found))
            places.append(n_word_places(found, config.n_topics))
        self.sizes = Sizes(
            P,
            B,
            n_nodes,
            corpus.n_documents,
            corpus.n_words,
            tuple(int(n) for n in np.diff(self.document_bounds)),
            tuple(s.n_pairs for s in self._per_shard),
            tuple(s.n_rows for s in self._per_shard),
            tuple(s.n_word_rows for s in self._per_shard),
            tuple(places),
            int(lambda_places(pairs_per_word, config.n_topics).sum()),
            corpus.whole.n_documents,
            corpus.first_document if isinstance(corpus, Part) else 0,
            n_turns,
        )
        self.largest_block = int(np.diff(self.block_bounds).max())
        self.released_bytes = corpus.indices.nbytes + corpus.counts.nbytes

    def data_specs(self) -> list[ArraySpec]:
        home, every, s = "home, once", "all workers", self.sizes
        D, V, P, B = s.n_documents, s.n_words, s.n_workers, s.n_blocks
        return [
            ArraySpec("word_ids", (V,), np.int32, home, every, "word of each word row"),
            ArraySpec("word_tokens", (V,), np.float64, home, every, "tokens, by word row"),
            ArraySpec("block_bounds", (B + 1,), np.int64, home, every, "word rows of a block"),
            ArraySpec("document_bounds", (P + 1,), np.int64, home, every, "shards' documents"),
            ArraySpec("document_tokens", (D,), np.float64, home, every, "tokens"),
            ArraySpec("rests_here", (B,), np.bool_, home, every, "blocks of words that rest here"),
            ArraySpec("word_pairs", (V,), np.int64, home, every, "pairs, by word row"),
        ]

    def shard_data_specs(self, worker: int) -> list[ArraySpec]:
        text = {
            "pair_word": "index into word_row",
            "pair_count": "count of the pair",
            "row_doc": "document of each (block, document) row, from 0 in the shard",
            "row_ptr": "pairs of each row",
            "block_row_ptr": "rows of each cell",
            "word_row": "word rows that occur in each cell",
            "block_word_ptr": "word rows of each cell",
        }
        shapes = shard_shapes(self._per_shard[worker], self.sizes.n_blocks * self.sizes.n_turns)
        return [
            ArraySpec(name, shape, dtype, "home, once", "worker p; everyone at rest", text[name])
            for name, (shape, dtype) in shapes.items()
        ]

    def fill(self, data: Corpus, arrays: Mapping[str, Arrays]) -> HeldCorpus:
        held = arrays["corpus"]
        held["word_ids"][:] = self.word_order
        held["block_bounds"][:] = self.block_bounds
        held["document_bounds"][:] = self.document_bounds
        word_tokens = np.zeros(data.n_words)
        tokens = held["document_tokens"]
        _rows.count_tokens(data.indptr, data.indices, data.counts, tokens, word_tokens)
        held["rests_here"][:] = True
        if isinstance(data, Part):
            word_tokens = data.whole.word_tokens
            if self.words_travel:
                rank, n_nodes = data.nodes.rank, data.nodes.n_nodes
                held["rests_here"][:] = np.arange(len(held["rests_here"])) % n_nodes == rank
        held["word_tokens"][:] = word_tokens[self.word_order]
        held["word_pairs"][:] = data.whole.pairs_per_word()[self.word_order]
        shards = []
        for p, (lo, hi) in enumerate(pairwise(self.document_bounds.tolist())):
            shards.append(Shard(*(arrays[f"shard_{p}"][name] for name in Shard._fields)))
            words = self.word_order, self.block_bounds
            fill_shard(data, lo, hi, *words, shards[-1], self.sizes.n_turns)
        bounds, word_ids = held["document_bounds"], held["word_ids"]
        if isinstance(data, Part):
            return HeldPart(data, bounds, word_ids, shards)
        return HeldCorpus(data, bounds, word_ids, shards)


def word_rows(arrays: Arrays, block: int) -> slice:
    """The rows of a block of words."""
    first, last = arrays["block_bounds"][block : block + 2].tolist()
    return slice(first, last)


def row_of_word(arrays: Arrays) -> np.ndarray:
    """The row of each word, int64 (V,); -1 where it rests at another node."""
    rows = np.argsort(arrays["word_ids"])
    of_block = np.repeat(arrays["rests_here"], np.diff(arrays["block_bounds"]))
    return np.where(of_block[rows], rows, -1)
