"""What E is in each pass: which inference, and how far it is tempered.

A visit looks up its own block's pass, so nobody waits for a change: blocks a pass apart work by
different rules for a moment, as they do with parameters of different age.

Tempering updates phi by (E(gamma) E(lambda) / E(pi)) ** power, with a power that rises, to 1:
early on, when the topics are still those of a few documents, a token is not yet held to the
first topic that suits it (deterministic annealing; Ueda and Nakano 1998, Katahira et al. 2008).
Under `cvb0` it ends at 0.9: its topics predict best while they are still tempered
(`bench/RESULTS.md`), and climb J with the entropy of phi weighted by 1 / power.

cvb0 leaves a pair's own share out of the counts (see `exclusion`): its topics predict better then,
and vb goes on from them to a higher bound; where it does not go on, half as much again. Such a pass
takes twice as long, and while the topics still form it need not be. Over-relaxed margins (see
`margins`) of words that settle several times a pass form them in fewer passes, and better ones;
with inference `cvb0` nothing is left out at first where they are. The last passes go without, so
that all sums are those of phi at the end.

Noise (see `noise`) goes down to 0 over its passes in the same way.

cvb0 first and then vb reaches a better optimum of vb's own bound than vb does, and predicts
unseen text nearly as well as cvb0 (or better); tempering helps both. Between the two passes of cvb0
come ever rarer: that ends higher than an abrupt change, and is as good as an E between the two
(`bench/RESULTS.md`).
"""

from esvi_shm.config import FitConfig
from esvi_shm.families.lda import exclusion

#: The storages that keep margins of phi alone, which active sets and over-relaxed words need.
MARGINS = (None, "margins", "sparse")
#: The power in the first tempered pass.
FIRST_POWER = 0.8
#: Passes of cvb0 before those of vb, and of a power that rises, where none are asked for.
MOST_CVB0_PASSES, MOST_TEMPER_PASSES = 50, 70
#: Passes, and the share of all, in which passes of cvb0 come ever rarer, likewise.
MOST_MIXED_PASSES, MIXED_SHARE = 20, 0.2
#: The power that stays, where none is asked for.
CVB0_POWER = 0.9
#: Noisy passes where none are asked for; vb only needs its ties broken.
MOST_NOISE_PASSES, VB_NOISE_PASSES = 60, 15
#: Share of a pair's tokens that may go to topics outside of its active sets (`active`), at most.
TOLERANCE = 1e-3
#: From so many topics on active sets are tried in passes of vb where `dense_passes` says nothing,
#: after so many passes, and used where they cost less (`switch`): half of the time at 512 topics;
#: at 256 they save a third on AP and cost a tenth more on NIPS (`bench/RESULTS.md`).
ACTIVE_TOPICS, DENSE_PASSES = 512, 20
#: Under cvb0: that over its tokens inside. What a pair has outside is no sign there that it lives
#: elsewhere: at 10 times the tokens inside so many pairs were updated over more topics that a pass
#: took 7 to 14 times as long as over all (AP, 1024 topics).
CVB0_TOLERANCE = 1000.0
#: Of over-relaxed fits: the share of the passes of cvb0 that go further; the share that leaves
#: nothing out where nothing else is asked for; and so many passes at most (two thirds of 100 that
#: leave nothing out cost AP 1% of its perplexity).
RELAX_SHARE, MOST_RELAX_PASSES = 5 / 6, 80
PLAIN_SHARE, MOST_PLAIN_PASSES = 2 / 3, 25
#: Where a fit makes passes by cvb0, words settle so often in each pass (less where they have few
#: pairs: `cut.choose_n_turns`), and go so much further in those, if nothing else is asked for.
#: Visits over active sets, which take long for each word, would take as many times longer.
CVB0_SETTLE, CVB0_RELAX = 4, 1.8


def settle_and_relax(config: FitConfig) -> tuple[int, float]:
    """How often a pass the words settle, and their step in the first passes.

    Examples
    --------
    >>> settle_and_relax(FitConfig(inference="cvb0", n_passes=25))
    (4, 1.8)
    >>> settle_and_relax(FitConfig(inference="cvb0", n_passes=25, relax=1.0))
    (4, 1.0)
    >>> settle_and_relax(FitConfig(inference="vb"))
    (1, 1.0)
    """
    of_cvb0 = config.inference == "cvb0" or (
        config.inference == "anneal" and config.cvb0_passes != 0 and config.n_topics < ACTIVE_TOPICS
    )
    goes_further = (
        of_cvb0
        and config.storage in MARGINS
        and config.axis == "words"
        and config.dense_passes is None
    )
    settle, relax = (CVB0_SETTLE, CVB0_RELAX) if goes_further else (1, 1.0)
    return (
        settle if config.settle is None else config.settle,
        relax if config.relax is None else config.relax,
    )


class Schedule:
    """The rule of each pass.

    Parameters
    ----------
    config : FitConfig

    Examples
    --------
    >>> schedule = Schedule(FitConfig(inference="anneal", n_passes=100))
    >>> [schedule.cvb0(pass_) for pass_ in (0, 49, 69, 70)]
    [True, True, False, False]
    >>> sum(schedule.cvb0(pass_) for pass_ in range(50, 70))
    10
    >>> [round(schedule.power(pass_), 3) for pass_ in (0, 35, 70)]
    [0.8, 0.9, 1.0]
    """

    def __init__(self, config: FitConfig) -> None:
        self.inference = config.inference
        self.cvb0_passes = min(MOST_CVB0_PASSES, config.n_passes // 2)
        if config.cvb0_passes is not None:
            self.cvb0_passes = config.cvb0_passes
        self.temper_passes = min(MOST_TEMPER_PASSES, 7 * config.n_passes // 10)
        if config.temper_passes is not None:
            self.temper_passes = config.temper_passes
        elif config.inference == "vb":
            self.temper_passes = 0
        self.last_power = CVB0_POWER if config.inference == "cvb0" else 1.0
        if config.power is not None:
            self.last_power = config.power
        # By its own new phi a pair of storage `topk` would leave out what is not kept, and on the
        # topic axis what is elsewhere.
        without = config.storage == "topk" or config.axis == "topics"
        all_cvb0 = config.inference == "cvb0"
        choice = config.leave_out or ("excess" if all_cvb0 else "pair")
        self._left_out = exclusion.NONE if without else exclusion.CHOICES.index(choice)
        cvb0_passes = config.n_passes if all_cvb0 else self.cvb0_passes
        self.relax_passes = self.plain_passes = 0
        self._relax = settle_and_relax(config)[1]
        if self._relax > 1.0 and self.inference != "vb" and config.storage in MARGINS:
            self.relax_passes = min(int(RELAX_SHARE * cvb0_passes), MOST_RELAX_PASSES)
            if all_cvb0 and config.leave_out is None:
                self.plain_passes = min(int(PLAIN_SHARE * cvb0_passes), MOST_PLAIN_PASSES)
        self.leaves_out = self._left_out != exclusion.NONE and config.inference != "vb"
        self.strength = config.noise
        most = VB_NOISE_PASSES if config.inference == "vb" else MOST_NOISE_PASSES
        self.noise_passes = min(most, 3 * config.n_passes // 5)
        if config.noise_passes is not None:
            self.noise_passes = config.noise_passes
        if config.noise == 0.0:
            self.noise_passes = 0
        self.chooses = (
            config.dense_passes is None
            and config.n_topics >= ACTIVE_TOPICS
            and config.storage in MARGINS
            and config.axis == "words"
        )
        self.dense_passes = DENSE_PASSES if self.chooses else config.dense_passes
        self.mixed_passes = 0
        # Passes of vb over active sets are many times cheaper than those of cvb0.
        if config.inference == "anneal" and config.cvb0_passes is None and not self.chooses:
            self.mixed_passes = min(MOST_MIXED_PASSES, int(MIXED_SHARE * config.n_passes))

    def cvb0(self, pass_: int) -> bool:
        """Whether E(x) = x in a pass (from 0)."""
        if self.inference != "anneal":
            return self.inference == "cvb0"
        n = pass_ - self.cvb0_passes
        return n < 0 or (n < self.mixed_passes and self._mixed(n + 1) > self._mixed(n))

    def _mixed(self, n: int) -> int:
        """Passes of cvb0 among the first n of the mixed ones; their share falls from 1 to 0."""
        return int(n - n * n / (2 * (self.mixed_passes + 1)))

    def power(self, pass_: int) -> float:
        """The power of the factors in a pass (from 0)."""
        if pass_ >= self.temper_passes:
            return self.last_power
        first = min(FIRST_POWER, self.last_power)
        return first + (self.last_power - first) * pass_ / self.temper_passes

    def leave_out(self, pass_: int) -> int:
        """What a pair leaves out of the counts in a pass (from 0): a number of `exclusion`."""
        if pass_ < self.plain_passes or not self.cvb0(pass_):
            return exclusion.NONE
        return self._left_out

    def relax(self, pass_: int) -> float:
        """The step of the words' margins in a pass (from 0); above 1: over-relaxed."""
        return self._relax if pass_ < self.relax_passes else 1.0

    def noise(self, pass_: int) -> float:
        """The strength of the noise in a pass (from 0)."""
        if pass_ >= self.noise_passes:
            return 0.0
        return self.strength * (1.0 - pass_ / self.noise_passes)

    def tolerance(self, pass_: int) -> float:
        """What a pair may leave outside of its active topics in a pass (from 0); 0: all are active.

        Under cvb0 a topic without tokens still has the factor alpha, so much is outside; only
        where nearly all is, more topics are looked at.
        """
        if self.dense_passes is None or pass_ < self.dense_passes:
            return 0.0
        return CVB0_TOLERANCE if self.cvb0(pass_) else TOLERANCE

    def rule(self, pass_: int) -> tuple[bool, float, float, float, int]:
        """What a pass (from 0) is made by: cvb0, power, noise, step, what is left out."""
        cvb0, leave_out = self.cvb0(pass_), self.leave_out(pass_)
        return cvb0, self.power(pass_), self.noise(pass_), self.relax(pass_), leave_out

    @property
    def n_passes(self) -> int:
        """Passes after which the rule stays as it is."""
        cvb0_passes = self.cvb0_passes + self.mixed_passes if self.inference == "anneal" else 0
        early = max(self.plain_passes, self.relax_passes)
        return max(self.temper_passes, self.noise_passes, cvb0_passes, early)
