"""A part of a corpus, as one of several nodes has it, and what the nodes know of the whole.

    join(corpus, nodes) -> Part        each node its own documents, in the order of the nodes

Nodes have to cut the same words into the same blocks, and number all documents, so they add up
and tell each other the little that takes (`join`). Documents that a start asks for are fetched
from the nodes that have them (`HeldPart.rows`).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from esvi_shm.corpus import _rows
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.held import HeldCorpus
from esvi_shm.errors import CorpusError


class Nodes(Protocol):
    """What nodes do together, all of them in the same order."""

    rank: int
    n_nodes: int

    def gather(self, part: bytes) -> list[bytes]:
        """Every node's part, by rank, on every node."""

    def sum_into(self, array: np.ndarray) -> None:
        """Replace a float64 array by its sum over all nodes."""


@dataclass(frozen=True)
class Whole:
    """Sizes of a corpus that several nodes hold together; see `Corpus`, which says the same."""

    name: str
    n_documents: int
    n_words: int
    n_pairs: int
    n_tokens: int | float
    word_pairs: np.ndarray
    word_tokens: np.ndarray
    sha256: str

    def pairs_per_word(self) -> np.ndarray:
        """In how many documents each word occurs, int64 (V,)."""
        return self.word_pairs

    def digest(self) -> str:
        """SHA-256 of the parts' digests."""
        return self.sha256


class Part(Corpus):
    """The documents of one node: `whole.n_documents` in all, these from `first_document` on.

    Made by `join`. It may hold no token, if another one does.
    """

    may_be_empty = True
    first_document: int
    nodes: Nodes


def join(corpus: Corpus, nodes: Nodes) -> Part:
    """Have the nodes know what their corpora are together.

    Raises
    ------
    CorpusError
        On every node: if one has another vocabulary or no document, or none has a token.
    """
    part = Part(
        corpus.indptr, corpus.indices, corpus.counts, corpus.n_words, corpus.vocabulary, corpus.name
    )
    words = hashlib.sha256()
    for word in corpus.vocabulary or ():
        encoded = word.encode("utf-8", "surrogatepass")
        words.update(b"%d:%s" % (len(encoded), encoded))
    known = "" if corpus.vocabulary is None else words.hexdigest()
    facts = f"{corpus.n_words} {known or '-'} {corpus.n_documents} {corpus.digest()}"
    parts = [facts.encode().split() for facts in map(bytes.decode, nodes.gather(facts.encode()))]
    for rank, (n_words, digest, n_documents, _) in enumerate(parts):
        if n_words != parts[0][0]:
            numbers = f"node {rank} has {n_words.decode()} words, node 0 {parts[0][0].decode()}"
            raise CorpusError(corpus.name, f"all nodes must have the same vocabulary: {numbers}")
        if digest != parts[0][1]:
            where = f"that of node {rank} differs from node 0's"
            raise CorpusError(corpus.name, f"all nodes must have the same vocabulary: {where}")
        if n_documents == b"0":
            raise CorpusError(corpus.name, f"every node must have a document, node {rank} has none")
    sizes = np.array([corpus.n_documents, corpus.n_pairs, corpus.n_tokens], np.float64)
    word_pairs, word_tokens = corpus.pairs_per_word().astype(np.float64), np.zeros(corpus.n_words)
    _rows.count_tokens(
        corpus.indptr, corpus.indices, corpus.counts, np.zeros(corpus.n_documents), word_tokens
    )
    for array in (sizes, word_pairs, word_tokens):
        nodes.sum_into(array)
    if sizes[2] <= 0:
        raise CorpusError(corpus.name, "a corpus must have at least one token, no node has one")
    n_tokens = float(sizes[2])
    whole = Whole(
        corpus.name,
        int(sizes[0]),
        corpus.n_words,
        int(sizes[1]),
        int(n_tokens) if n_tokens.is_integer() else n_tokens,
        word_pairs.astype(np.int64),
        word_tokens,
        hashlib.sha256(b" ".join(p[3] for p in parts)).hexdigest(),
    )
    first_document = sum(int(p[2]) for p in parts[: nodes.rank])
    for name, value in (("_whole", whole), ("first_document", first_document), ("nodes", nodes)):
        object.__setattr__(part, name, value)
    return part


class HeldPart(HeldCorpus):
    """What answers questions about all documents, wherever they are; asked by all nodes at once."""

    def __init__(
        self,
        part: Part,
        document_bounds: np.ndarray,
        word_ids: np.ndarray,
        shards: Sequence,
    ) -> None:
        super().__init__(part, document_bounds, word_ids, shards)
        self._nodes, self._whole = part.nodes, part.whole
        self._first, self._n_here = part.first_document, part.n_documents
        self.n_documents = part.whole.n_documents

    def rows(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Corpus.rows`."""
        local = documents - self._first
        places = np.flatnonzero((local >= 0) & (local < self._n_here))
        return gather_rows(self._nodes, len(documents), places, super().rows(local[places]))

    def document_tokens(self) -> np.ndarray:
        """See `Corpus.document_tokens`."""
        return self.of_all(super().document_tokens())

    def of_all(self, array: np.ndarray) -> np.ndarray:
        """See `Corpus.of_all`."""
        parts = self._nodes.gather(array.tobytes())
        return np.concatenate([np.frombuffer(part) for part in parts])

    def pairs_per_word(self) -> np.ndarray:
        """See `Corpus.pairs_per_word`."""
        return self._whole.pairs_per_word()


def gather_rows(
    nodes: Nodes, n_rows: int, places: np.ndarray, rows: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a sparse matrix, of which each node has some, as all nodes then have them.

    Parameters
    ----------
    nodes : Nodes
        All call this together.
    n_rows : int
        Rows of all nodes.
    places : int array, shape (n,)
        Which rows are here.
    rows : tuple
        These rows, as `Corpus.rows` gives them: indptr, indices, values.
    """
    mine = (places.astype(np.int64), np.diff(rows[0]).astype(np.int64))
    values = rows[1].astype(np.int32), rows[2].astype(np.float32)
    message = b"".join(array.tobytes() for array in (np.array([len(places)]), *mine, *values))
    found = [_parse(part) for part in nodes.gather(message)]
    sizes = np.zeros(n_rows, np.int64)
    for there, sizes_there, _, _ in found:
        sizes[there] = sizes_there
    indptr = _rows.offsets(sizes)
    indices, counts = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    for there, sizes_there, their_indices, their_counts in found:
        starts = np.cumsum(sizes_there) - sizes_there
        at = np.repeat(indptr[there] - starts, sizes_there) + np.arange(sizes_there.sum())
        indices[at], counts[at] = their_indices, their_counts
    return indptr, indices, counts


def _parse(message: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    n = int(np.frombuffer(message, np.int64, 1)[0])
    places = np.frombuffer(message, np.int64, n, 8)
    sizes = np.frombuffer(message, np.int64, n, 8 + 8 * n)
    n_pairs = int(sizes.sum())
    indices = np.frombuffer(message, np.int32, n_pairs, 8 + 16 * n)
    counts = np.frombuffer(message, np.float32, n_pairs, 8 + 16 * n + 4 * n_pairs)
    return places, sizes, indices, counts
