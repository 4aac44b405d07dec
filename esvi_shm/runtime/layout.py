"""What a fit will hold in memory, known before anything is allocated, and how it is filled.

    segment       filled by           holds
    corpus        home                order of the words, bounds, totals
    shard_<p>     home                the pairs of worker p's documents
    parameters    home, then owners   what travels, and what all read (the family declares it)
    state_<p>     worker p            what belongs to its documents (the family declares it)
    control       see `blocks`        rings and words of the protocol

The pairs are filled in by home, one shard after the other: they are read in order and are small
beside the state, which each worker allocates and first touches itself, on its own memory node.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from esvi_shm import families
from esvi_shm.compile import kernel
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.held import HeldCorpus
from esvi_shm.corpus.shard import (
    Shard,
    ShardSizes,
    assign_blocks,
    fill_shard,
    shard_shapes,
    shard_sizes,
    split_documents,
)
from esvi_shm.families.contract import Arrays, Family, Sizes
from esvi_shm.runtime import blocks
from esvi_shm.shared.table import ArraySpec, Table

# The number of blocks, where none is asked for; `choose_n_blocks`.
#: More blocks wait less for each other: the least for each worker, where there are several.
BLOCKS_PER_WORKER = 2
#: More blocks cut a document into shorter rows, and a row costs as much as some ten pairs. On
#: documents of 6 pairs one block is twice as fast as 8, and its bound is ahead by 0.35 nats a token
#: after 20 passes (health tweets); on documents of 500, 8 blocks are ahead in both (NIPS), for
#: their factors stay in the cache and gamma is fresher.
PAIRS_A_ROW, MOST_FOR_ROWS = 20, 8
#: A worker's scratch has two rows of K floats and one of doubles for each word of a block. More
#: blocks for its sake pay until they add as many rows: margins have one of K floats for each
#: document in each block (8.2 million documents of 59 pairs: 9 blocks take twice the memory of 4).
WORDS_A_BLOCK = 16384


def mib(n_bytes: int) -> str:
    """A size in a column of a plan."""
    return f"{n_bytes / 2**20:>10.2f} MiB"


@dataclass(frozen=True)
class Layout:
    """Sizes, tables and cuts of one fit. Made by `lay_out`; allocates nothing.

    Attributes
    ----------
    config : FitConfig
        With numbers of workers and blocks filled in.
    sizes : Sizes
    model : Family
    tables : dict of str to Table
        By segment.
    released_bytes : int
        Of the corpus: what is given up once the segments hold its pairs.
    """

    config: FitConfig
    sizes: Sizes
    model: Family
    tables: Mapping[str, Table]
    word_order: np.ndarray
    block_bounds: np.ndarray
    document_bounds: np.ndarray
    released_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(table.total_bytes for table in self.tables.values())

    @property
    def filled_bytes(self) -> int:
        """Bytes of the segments that home fills with the corpus."""
        filled = ("corpus", *(f"shard_{p}" for p in range(self.sizes.n_workers)))
        return sum(self.tables[label].total_bytes for label in filled)

    def with_config(self, config: FitConfig) -> "Layout":
        """The same cut of the corpus, with arrays that the family needs for another configuration.

        Parameters
        ----------
        config : FitConfig
            With the same numbers of workers and blocks.
        """
        model = families.find(config.family)(config, self.sizes)
        tables = {**self.tables, "parameters": Table(model.shared_specs())}
        for p in range(self.sizes.n_workers):
            tables[f"state_{p}"] = Table(model.shard_specs(p))
        return replace(self, config=config, model=model, tables=tables)

    def describe(self) -> str:
        """The shared arrays, each with its shape and size, as text."""
        lines = []
        grouped: dict[tuple[str, str], list[ArraySpec]] = {}
        for label, table in self.tables.items():
            for spec in table:
                grouped.setdefault((label.split("_")[0], spec.name), []).append(spec)
        for (segment, name), specs in grouped.items():
            n_bytes = sum(spec.n_bytes for spec in specs)
            shape = " x ".join(str(n) for n in specs[0].shape)
            if len(specs) > 1:
                rows = sum(spec.shape[0] for spec in specs)
                shape = " x ".join([str(rows), *(str(n) for n in specs[0].shape[1:])])
            kind = f"{specs[0].dtype!s:<8}"
            lines.append(f"  {segment:<11}{name:<16}{shape:>22} {kind}{mib(n_bytes)}")
        lines.append(f"  {'shared arrays, total':<58}{mib(self.total_bytes)}")
        return "\n".join(lines)


def choose_n_blocks(corpus: Corpus, n_workers: int) -> int:
    """The number of blocks that suits a corpus."""
    for_rows = min(corpus.n_pairs // (PAIRS_A_ROW * max(corpus.n_documents, 1)), MOST_FOR_ROWS)
    for_workers = BLOCKS_PER_WORKER * n_workers if n_workers > 1 else 1
    # At B blocks of V / B words, P x V x 4 / B^2 rows of scratch go with the next block, D come.
    worth = math.isqrt(4 * n_workers * corpus.n_words // max(corpus.n_documents, 1))
    for_scratch = min(-(-corpus.n_words // WORDS_A_BLOCK), worth)
    return min(max(for_rows, for_workers, for_scratch), corpus.n_words)


def lay_out(corpus: Corpus, config: FitConfig, release: bool = False) -> Layout:
    """Cut the corpus and size every array.

    Parameters
    ----------
    corpus : Corpus
    config : FitConfig
        `n_workers` and `n_blocks` must be set and no more than documents and words.
    release : bool
        The corpus is to be released.

    Raises
    ------
    ParameterError
        For a name or a prior that the family does not take.
    """
    P, B = config.n_workers, config.n_blocks
    assert P is not None and B is not None
    word_order, block_bounds = assign_blocks(corpus.pairs_per_word(), B)
    bounds = split_documents(corpus.indptr, P)
    per_shard = [
        shard_sizes(corpus, int(lo), int(hi), word_order, block_bounds)
        for lo, hi in pairwise(bounds)
    ]
    sizes = Sizes(
        corpus.n_documents,
        corpus.n_words,
        P,
        B,
        tuple(int(n) for n in np.diff(bounds)),
        tuple(s.n_pairs for s in per_shard),
        tuple(s.n_rows for s in per_shard),
        tuple(s.n_word_rows for s in per_shard),
    )
    model = families.find(config.family)(config, sizes)
    model.check_corpus(corpus)
    home, every = "home, once", "all workers"
    D, V = corpus.n_documents, corpus.n_words
    tables = {
        "corpus": Table(
            [
                ArraySpec("word_ids", (V,), np.int32, home, every, "word of each word row"),
                ArraySpec("word_tokens", (V,), np.float64, home, every, "tokens, by word row"),
                ArraySpec("block_bounds", (B + 1,), np.int64, home, every, "word rows of a block"),
                ArraySpec("document_bounds", (P + 1,), np.int64, home, every, "shards' documents"),
                ArraySpec("document_tokens", (D,), np.float64, home, every, "tokens"),
            ]
        ),
        "parameters": Table(model.shared_specs()),
        "control": Table(blocks.control_specs(P, B)),
    }
    for p, size in enumerate(per_shard):
        tables[f"shard_{p}"] = Table(_shard_specs(size, B))
        tables[f"state_{p}"] = Table(model.shard_specs(p))
    released = corpus.indices.nbytes + corpus.counts.nbytes if release else 0
    return Layout(config, sizes, model, tables, word_order, block_bounds, bounds, released)


def _shard_specs(size: ShardSizes, n_blocks: int) -> list[ArraySpec]:
    text = {
        "pair_word": "index into word_row",
        "pair_count": "count of the pair",
        "row_doc": "document of each (block, document) row, from 0 in the shard",
        "row_ptr": "pairs of each row",
        "block_row_ptr": "rows of each block",
        "word_row": "word rows that occur in the shard",
        "block_word_ptr": "word rows of each block",
    }
    return [
        ArraySpec(name, shape, dtype, "home, once", "worker p; everyone at rest", text[name])
        for name, (shape, dtype) in shard_shapes(size, n_blocks).items()
    ]


def fill(layout: Layout, corpus: Corpus, arrays: Mapping[str, Arrays]) -> HeldCorpus:
    """Write the corpus into the arrays of the segments `corpus` and `shard_<p>`; return it there.

    Parameters
    ----------
    layout : Layout
        Of this corpus.
    corpus : Corpus
    arrays : mapping of str to arrays
        By segment; zeros.
    """
    held = arrays["corpus"]
    held["word_ids"][:] = layout.word_order
    held["block_bounds"][:] = layout.block_bounds
    held["document_bounds"][:] = layout.document_bounds
    word_tokens = np.zeros(corpus.n_words)
    _count_tokens(
        corpus.indptr, corpus.indices, corpus.counts, held["document_tokens"], word_tokens
    )
    held["word_tokens"][:] = word_tokens[layout.word_order]
    shards = []
    for p in range(layout.sizes.n_workers):
        lo, hi = (int(d) for d in layout.document_bounds[p : p + 2])
        shards.append(Shard(*(arrays[f"shard_{p}"][name] for name in Shard._fields)))
        fill_shard(corpus, lo, hi, layout.word_order, layout.block_bounds, shards[-1])
    return HeldCorpus(corpus, held["document_bounds"], held["word_ids"], shards)


@kernel
def _count_tokens(indptr, indices, counts, document_tokens, word_tokens):
    """Tokens of each document and of each word, float64."""
    for d in range(indptr.shape[0] - 1):
        total = 0.0
        for j in range(indptr[d], indptr[d + 1]):
            total += counts[j]
            word_tokens[indices[j]] += counts[j]
        document_tokens[d] = total
