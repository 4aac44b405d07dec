"""Start `spread`: each topic from a document far from those of other topics, and its nearest.

Documents are chosen as k-means++ chooses its first centres (Arthur and Vassilvitskii 2007): the
next one with a probability proportional to its squared distance from the nearest one so far. The
distance is taken between sketches: rows of sqrt(count) idf, hashed with signs into `WIDTH` places
(a count sketch, which keeps scalar products: Charikar, Chen, Farach-Colton 2002), of length 1.
A sketch costs O(pairs), a choice O(documents); of many documents only a random part is sketched.
"""

from collections.abc import Generator
from typing import Any

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.counter import uniform
from esvi_shm.families.lda.starts import _documents

#: Places of a sketch: two documents' cosine is off by about 1 / sqrt(WIDTH).
WIDTH = 256
#: Documents that are sketched at most: these, or so many for each topic.
SKETCHED, SKETCHED_PER_TOPIC = 20_000, 20


def choose_documents(
    corpus: AnyCorpus,
    tokens: np.ndarray,
    n_topics: int,
    n_documents: int,
    random: np.random.Generator,
) -> np.ndarray:
    """For each topic a document far from the others', and its nearest ones.

    See `_documents.Chooser`. The first of each topic are distinct as long as there are enough
    documents that are not empty; a document may be near to several of them.
    """
    candidates = np.flatnonzero(tokens > 0).astype(np.int64)
    most = max(SKETCHED, SKETCHED_PER_TOPIC * n_topics)
    if len(candidates) > most:
        candidates = np.sort(random.choice(candidates, most, replace=False))
    sketch = np.zeros((len(candidates), WIDTH), np.float32)
    idf = np.log(corpus.n_documents / np.maximum(corpus.pairs_per_word(), 1))
    key = int(random.integers(2**63))
    sketch_into(corpus.rows(candidates), idf, key, sketch)
    chosen = np.empty((n_topics, n_documents), np.int64)
    left = np.ones(len(candidates), bool)
    far = np.ones(len(candidates))
    for k in range(n_topics):
        if not left.any():
            left[:], far[:] = True, 1.0
        weight = np.where(left, far, 0.0)
        if weight.sum() <= 0.0:  # the rest are copies of those chosen
            weight = left.astype(np.float64)
        first = int(random.choice(len(candidates), p=weight / weight.sum()))
        left[first] = False
        near = sketch @ sketch[first]
        np.minimum(far, np.maximum(1.0 - near, 0.0), out=far)
        near[first] = np.inf
        n_near = min(n_documents, len(candidates))
        nearest = np.argpartition(-near, n_near - 1)[:n_near]
        nearest = nearest[np.lexsort((nearest, -near[nearest]))]
        chosen[k] = candidates[np.resize(nearest, n_documents)]
    return chosen


@kernel(allocates=True)
def sketch_into(pairs, idf, key, sketch):
    """sketch[i]: the pairs of document i, hashed; of length 1, or 0."""
    indptr, indices, counts = pairs
    for i in range(sketch.shape[0]):
        row = sketch[i]
        for j in range(indptr[i], indptr[i + 1]):
            v = indices[j]
            place = np.int64(uniform(key, v, 0) * (2 * row.shape[0]))
            weight = np.float32(np.sqrt(counts[j]) * idf[v])
            row[place >> 1] += weight if place & 1 else -weight
        length = np.sqrt((row * row).sum())
        if length > 0.0:
            row /= length


def start(*arguments: Any) -> Generator[str, bool, None]:
    """See `starts`."""
    return _documents.start(choose_documents, *arguments)
