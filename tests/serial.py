"""The workers of a fit, played one after the other in this process, on private arrays.

The family's real kernels and the real shards, with the order of the visits in the hands of the
test: what a run of the engine does with processes and rings, without either.
"""

from collections.abc import Iterable

import numpy as np

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.corpus import Corpus
from esvi_shm.corpus.shard import (
    assign_blocks,
    count_pairs_per_word,
    empty_shard,
    fill_shard,
    shard_sizes,
    split_documents,
)
from esvi_shm.families.contract import Bound, Sizes
from esvi_shm.shared.table import Table


def _private(specs) -> dict[str, np.ndarray]:
    table = Table(specs)
    return table.views(bytearray(table.total_bytes))


class SerialFit:
    """A fit with P workers played in turn; `visit(p, b)` is the only thing that moves."""

    def __init__(self, corpus: Corpus, config: FitConfig) -> None:
        P, B = config.n_workers or 1, config.n_blocks or 1
        word_order, block_bounds = assign_blocks(count_pairs_per_word(corpus), B)
        bounds = split_documents(corpus.indptr, P)
        matrix = corpus.as_sparse()
        document_tokens = np.asarray(matrix.sum(axis=1, dtype=np.float64)).ravel()
        word_tokens = np.asarray(matrix.sum(axis=0, dtype=np.float64)).ravel()
        self.config, self.bounds, self.document_tokens = config, bounds, document_tokens
        self.corpus_arrays = {
            "word_ids": word_order,
            "block_bounds": block_bounds,
            "word_tokens": word_tokens[word_order],
            "document_bounds": bounds,
            "document_tokens": document_tokens,
        }
        cuts = [(corpus, lo, hi, word_order, block_bounds) for lo, hi in zip(bounds, bounds[1:], strict=False)]
        sizes = [shard_sizes(*cut) for cut in cuts]
        self.sizes = Sizes(
            corpus.n_documents,
            corpus.n_words,
            P,
            B,
            tuple(int(n) for n in np.diff(bounds)),
            *(tuple(column) for column in zip(*sizes, strict=True)),
        )
        self.model = families.find(config.family)(config, self.sizes)
        self.shared = _private(self.model.shared_specs())
        self.shards = []
        for p, (cut, size) in enumerate(zip(cuts, sizes, strict=True)):
            shard = empty_shard(size, B)
            fill_shard(*cut, shard)
            arrays = {**shard._asdict(), **_private(self.model.shard_specs(p))}
            arrays["document_tokens"] = document_tokens[bounds[p] : bounds[p + 1]]
            self.shards.append(arrays)
        self.model.initialise(self.corpus_arrays, self.shared)
        self.workers = [
            self.model.worker(
                p, self.corpus_arrays, self.shared, self.shards, np.zeros(1, np.int64)
            )
            for p in range(P)
        ]
        self._play(self.model.start(self.corpus_arrays, self.shared))

    def _play(self, script):
        while True:
            try:
                name = next(script)
            except StopIteration as stop:
                return stop.value
            for worker in self.workers:
                worker.command(name)

    def visit(self, worker: int, block: int, want_entropy: bool = True) -> None:
        self.workers[worker].visit(block, want_entropy)

    def run_pass(self, order: Iterable[tuple[int, int]] | None = None) -> None:
        """Every (worker, block) once, or the visits given."""
        if order is None:
            order = [(p, b) for b in range(self.sizes.n_blocks) for p in range(len(self.workers))]
        for worker, block in order:
            self.visit(worker, block)

    def bound(self) -> Bound:
        return self._play(self.model.evaluate(self.shared))

    @property
    def gamma(self) -> np.ndarray:
        """(D, K), float32."""
        return np.concatenate([arrays["gamma"] for arrays in self.shards])

    @property
    def lambda_(self) -> np.ndarray:
        """(V, K), float32, in the order of the vocabulary."""
        out = np.empty_like(self.shared["lambda_"])
        out[self.corpus_arrays["word_ids"]] = self.shared["lambda_"]
        return out
