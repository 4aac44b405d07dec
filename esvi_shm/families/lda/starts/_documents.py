"""Topics of documents: half the corpus's distribution of words, half that of a few documents.

Topics that are given (see `_given`) come first; the documents of the others are chosen by the
start (`seeded`, `spread`). Everything but the corpus's half, which the workers write, is done by
the main process: it is little, and two workers must not add to one number.
"""

from collections.abc import Callable, Generator

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.config import FitConfig
from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.counter import uniform
from esvi_shm.families.contract import Arrays
from esvi_shm.families.lda.starts import _given, _topics
from esvi_shm.families.lda.totals import FOLD_SWEEPS, REFOLD_SWEEPS, fold_in

#: Documents that a topic starts from, where no number is asked for.
DOCUMENTS = 1
#: Relative noise on the corpus's half. A word that a topic's documents lack has the same weight in
#: every such topic, and exact ties are saddle points of coordinate ascent.
NOISE = 0.01

#: How a start chooses: (corpus, tokens of each document, K topics, M documents for each, random)
#: -> int64 (K, M), numbers of documents that are not empty.
Chooser = Callable[[AnyCorpus, np.ndarray, int, int, np.random.Generator], np.ndarray]


def start(
    choose: Chooser, config: FitConfig, corpus: AnyCorpus, arrays: Arrays, shared: Arrays
) -> Generator[str, bool, None]:
    """Write the topics and fold the documents in."""
    yield "corpus_topics"
    free = np.setdiff1d(np.arange(config.n_topics), _given.topics_of(config))
    random = np.random.default_rng([config.seed, 0x5EED])
    tokens = corpus.document_tokens()
    n_documents = config.seed_documents or DOCUMENTS
    documents = choose(corpus, tokens, len(free), n_documents, random)
    pairs = corpus.rows(documents.ravel())
    eta = shared["eta"][np.argsort(arrays["word_ids"])]
    write_given = _given.writer(config, corpus, eta)
    for rows, topics in _topics.parts(arrays, shared):
        write_given(topics, rows)
        add_documents(topics, free, tokens[documents], pairs, rows)
    # Documents near their best under the topics of a model do not lower its bound: on AP it is
    # lower by 0.006 nats a token after the sweeps of a fold-in, higher by 0.020 after the longer.
    n_sweeps = FOLD_SWEEPS if config.start_from is None else REFOLD_SWEEPS
    yield from fold_in("unfold", n_sweeps)


@kernel
def corpus_topics_into(topics, first, last, word_tokens, n_tokens, word_ids, seed):
    """Half the corpus distribution, with a little noise, in every topic; words first..last-1."""
    for v in range(first, last):
        weight = 0.5 * word_tokens[v] / n_tokens
        for k in range(topics.shape[1]):
            noise = 1.0 + NOISE * (2.0 * uniform(seed, word_ids[v], k) - 1.0)
            topics[v - first, k] = weight * noise


@kernel
def add_documents(topics, free, tokens, pairs, row_of_word):
    """Add to topic free[i] half the mean distribution of the words of its documents.

    They are the rows n i to n (i + 1) - 1 of `pairs`, n = tokens.shape[1]. Words whose row is -1
    are left out.
    """
    indptr, indices, counts = pairs
    n_topics, n_documents = tokens.shape
    for i in range(n_topics):
        for m in range(n_documents):
            scale = 0.5 / (n_documents * tokens[i, m])
            for j in range(indptr[n_documents * i + m], indptr[n_documents * i + m + 1]):
                row = row_of_word[indices[j]]
                if row >= 0:
                    topics[row, free[i]] += np.float32(counts[j] * scale)
