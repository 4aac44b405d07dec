"""When a fit that may choose updates the active sets alone: where they cost less than all topics.

Few topics a document are a reason to try. That does not tell what a pair costs: under a large alpha
an empty topic has so large a factor that pairs of documents in few topics must be updated over all
topics of their words, which takes six times as long as all topics do. So each visit counts what it
had to do, and by that is judged, after a pass at most, whether the next ones are worth it. Counted,
not timed, so that the same seed gives the same numbers.
"""

import numpy as np

from esvi_shm.corpus.shard import Shard
from esvi_shm.families.lda.lists import mean_topics

#: Tried where documents live in at most this share of the topics, on average.
MOST_SHARE = 1 / 8
#: They must cost at most this share of what all topics do: with wider vectors those are cheaper.
MOST_COST = 0.7
#: Passes until the next look at the documents; and how many times longer after each trial in vain.
LOOK_PASSES, LONGER = 5, 4
#: Nanoseconds: of a visit over all topics, for each topic, by its pairs, rows (document, block) and
#: words; of one over active sets, by pairs, rows, and what `Lists.counts` counts. Fitted to AP,
#: NIPS, KOS and Reuters, 256 to 1024 topics, AVX2: within 15% where few pairs are updated over more
#: topics, within 50% where most are (`bench/RESULTS.md`).
ALL_TOPICS = np.array([0.33, 4.0, 4.0])
ACTIVE = np.array([59.0, 345.0, 2.6, 53.0, 53.0, 36.0])


class Switch:
    """The choice of one worker, from pass to pass.

    Parameters
    ----------
    shard : Shard
        Of the worker.
    n_topics : int
    n_turns : int
        Cells of a block.
    """

    def __init__(self, shard: Shard, n_topics: int, n_turns: int) -> None:
        bounds = shard.block_row_ptr[::n_turns]
        pairs, rows = np.diff(shard.row_ptr[bounds]), np.diff(bounds)
        words = np.diff(shard.block_word_ptr[::n_turns])
        self._all_topics = n_topics * (np.stack([pairs, rows, words], axis=1) @ ALL_TOPICS)
        self._fixed = np.stack([pairs, rows], axis=1) @ ACTIVE[:2]
        self._n_topics = n_topics
        self.start()

    def start(self) -> None:
        """Begin afresh, as before the first pass."""
        self.is_on = False
        self._look_after, self._pause = 0, LOOK_PASSES
        self._spent = self._saved = 0.0

    def look(self, pass_: int, gamma: np.ndarray, alpha: np.ndarray) -> bool:
        """Whether a visit is to be over active sets.

        Parameters
        ----------
        pass_ : int
            Of the visit.
        gamma : float32 array, shape (D_p, K)
            Of the shard's documents.
        alpha : float32 array, shape (K,)
        """
        if not self.is_on and pass_ >= self._look_after:
            self.is_on = mean_topics(gamma, alpha, False) <= MOST_SHARE * self._n_topics
            self._look_after = pass_ + self._pause
            self._spent = self._saved = 0.0
        return self.is_on

    def goes_on(self, block: int, counts: np.ndarray) -> bool:
        """Judge by a visit that was over active sets; whether those that follow are to be.

        Parameters
        ----------
        block : int
        counts : int64 array, shape (4,)
            See `Lists.counts`; of all cells of the block.
        """
        self._spent += self._fixed[block] + counts @ ACTIVE[2:]
        self._saved += self._all_topics[block]
        # A pass whose blocks are not all visited tells enough if it has cost too much already.
        whole = self._saved >= 0.999 * self._all_topics.sum()
        if whole or self._spent > MOST_COST * self._all_topics.sum():
            if self._spent > MOST_COST * self._saved:
                self.is_on = False
                self._pause *= LONGER
                self._look_after += self._pause
            self._spent = self._saved = 0.0
        return self.is_on
