"""A fit of two documents that calls every kernel of a larger one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from esvi_shm import families
from esvi_shm.config import FitConfig, GivenTopics
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.lda.cut import Cut
from esvi_shm.families.lda.schedule import Schedule


def toy(config: FitConfig) -> tuple[Corpus, FitConfig, Sequence[int]]:
    """See `families.contract.Family.toy`."""
    # Not by `from_sparse`: it imports scipy.sparse, which a worker has no other use for.
    offsets, words = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
    corpus = Corpus(offsets, words, np.array([1, 2, 1], np.float32), n_words=2)
    alpha = float(np.ravel(config.alpha)[0])
    eta = float(np.ravel(config.eta)[0])
    # Of numbers of topics only the bytes matter: another type is another kernel.
    width = np.min_scalar_type(config.n_topics - 1).itemsize
    n_topics = 2 if width == 1 else 2 ** (4 * width) + 1
    given = config.start_from
    if given is not None:  # others, as small; the last topic is left to the start
        topics = np.ones((2, n_topics - 1), np.float32)
        given = GivenTopics(topics, [corpus.word(0), corpus.word(1)], "")
    small = replace(
        config, n_topics=n_topics, topk=None, n_workers=1, n_blocks=1, alpha=alpha, eta=eta,
        start_from=given, seed_words=(),
    )  # fmt: skip
    # Whatever comes only after some passes comes now.
    small = replace(small, cvb0_passes=0, temper_passes=0)
    if Schedule(config).dense_passes is not None:
        small = replace(small, dense_passes=0)
    # Rests of each kind: the first of those with a number, and the first of the others.
    others = families.find(config.family)(
        replace(small, refold_after=(), repair_after=()), Cut(corpus, small).sizes
    )
    rests = [*config.refold_after[:1], *config.repair_after[:1], others.next_rest(0)]
    return corpus, small, [n for n in rests if n is not None]
