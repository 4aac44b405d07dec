"""How good topics are, whoever fitted them: on unseen text, to a reader, and as peers would say.

    corpus -> align -> split_tokens -> observed half -> fold_in -> theta
                                       scored half, theta -> completion_perplexity
    topics, corpus -> left_to_right
    top words, corpus -> coherence_npmi, topic_diversity
    lambda, corpus -> infer_gamma (or PreparedTopics, for many calls) -> mean_of -> theta
    lambda, corpus -> held_out_bound -> the figures of scikit-learn and gensim
    topics of several fits -> topic_stability
    lambda, gamma -> dirichlet_interval

Nothing here knows a model or a file: all take arrays and a `Corpus`, so that topics of any
system can be scored by the same code. Nothing here changes the topics that it is given.
"""

from esvi_shm.metrics.alignment import Alignment, align
from esvi_shm.metrics.bounds import HeldOutBound, held_out_bound
from esvi_shm.metrics.coherence import Coherence, coherence_npmi, topic_diversity
from esvi_shm.metrics.completion import (
    Completion,
    Half,
    completion_perplexity,
    split_tokens,
)
from esvi_shm.metrics.holdout import HeldOut, set_aside
from esvi_shm.metrics.inference import (
    PreparedTopics,
    fold_in,
    infer_gamma,
    mean_of,
    point_topics,
)
from esvi_shm.metrics.intervals import Interval, dirichlet_interval
from esvi_shm.metrics.left_to_right import LeftToRight, left_to_right
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
    "HeldOut",
    "HeldOutBound",
    "Interval",
    "LeftToRight",
    "Matching",
    "PreparedTopics",
    "Stability",
    "align",
    "coherence_npmi",
    "completion_perplexity",
    "dirichlet_interval",
    "fold_in",
    "held_out_bound",
    "infer_gamma",
    "left_to_right",
    "match_topics",
    "mean_of",
    "point_topics",
    "set_aside",
    "split_tokens",
    "topic_diversity",
    "topic_stability",
    "weights_of_words",
]
