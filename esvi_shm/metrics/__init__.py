"""How good topics are, whoever fitted them: on unseen text, to a reader, and as peers would say.

    corpus -> align -> split_tokens -> observed half -> fold_in -> theta
                                       scored half, theta -> completion_perplexity
    top words, corpus -> coherence_npmi, topic_diversity
    lambda, corpus -> held_out_bound -> the figures of scikit-learn and gensim
    topics of several fits -> topic_stability
    lambda, gamma -> dirichlet_interval

Nothing here knows a model or a file: all take arrays and a `Corpus`, so that topics of any
system can be scored by the same code. Nothing here changes the topics that it is given.
"""

from esvi_shm.metrics.alignment import Alignment, align
from esvi_shm.metrics.bounds import HeldOutBound, held_out_bound, infer_gamma
from esvi_shm.metrics.coherence import Coherence, coherence_npmi, topic_diversity
from esvi_shm.metrics.completion import (
    Completion,
    Half,
    completion_perplexity,
    fold_in,
    point_topics,
    split_tokens,
)
from esvi_shm.metrics.intervals import Interval, dirichlet_interval
from esvi_shm.metrics.stability import (
    Matching,
    Stability,
    match_topics,
    topic_stability,
    weights_of_words,
)

__all__ = [
    "Alignment",
    "Coherence",
    "Completion",
    "Half",
    "HeldOutBound",
    "Interval",
    "Matching",
    "Stability",
    "align",
    "coherence_npmi",
    "completion_perplexity",
    "dirichlet_interval",
    "fold_in",
    "held_out_bound",
    "infer_gamma",
    "match_topics",
    "point_topics",
    "split_tokens",
    "topic_diversity",
    "topic_stability",
    "weights_of_words",
]
