"""Start `seeded`: each topic from random documents, distinct as long as there are enough."""

from collections.abc import Generator
from typing import Any

import numpy as np

from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.families.lda.starts import _documents


def choose_documents(
    corpus: AnyCorpus,
    tokens: np.ndarray,
    n_topics: int,
    n_documents: int,
    random: np.random.Generator,
) -> np.ndarray:
    """`n_documents` documents that are not empty for each topic.

    See `_documents.Chooser`; `corpus` is not looked at. Each document comes as often as any other,
    or once less.
    """
    filled = np.flatnonzero(tokens > 0)
    rounds = -(-n_topics * n_documents // len(filled))
    chosen = [random.permutation(filled) for _ in range(rounds)]
    documents = np.concatenate([filled[:0], *chosen])[: n_topics * n_documents]
    return documents.astype(np.int64).reshape(n_documents, n_topics).T.copy()


def start(*arguments: Any) -> Generator[str, bool, None]:
    """See `starts`."""
    return _documents.start(choose_documents, *arguments)
