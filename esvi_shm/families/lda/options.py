"""The options of LDA: which go together, which have no effect, which are left open."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from esvi_shm.config import FitConfig, choose, prior_vector
from esvi_shm.errors import ParameterError, ParameterName
from esvi_shm.families.contract import Changes
from esvi_shm.families.lda import exclusion, priors, starts
from esvi_shm.families.lda.repair import TRIAL_PASSES
from esvi_shm.families.lda.schedule import ACTIVE_TOPICS, MARGINS, Schedule, settle_and_relax
from esvi_shm.families.lda.starts import _given

INFERENCES = ("vb", "cvb0", "anneal")
STORAGES = ("margins", "full", "sparse", "topk")
#: What travels.
AXES = ("words", "topics")
#: What `topk` does with the mass that it does not keep, and of how many topics it keeps one where
#: no number is given.
RESIDUALS, TOPICS_A_KEPT_ONE = ("spread", "drop"), 4


def check(config: FitConfig, has_judge: bool = True) -> None:
    """See `families.contract.Family.check`."""
    choose("inference", config.inference, INFERENCES)
    if config.storage is not None:
        choose("storage", config.storage, STORAGES)
    choose("axis", config.axis, AXES)
    if config.axis == "topics":
        if config.storage not in (None, "full"):
            rule = "must be full where topics travel (axis topics): a pair's mass must be known"
            raise ParameterError("storage", rule, config.storage)
        if config.deterministic:
            # Which topics meet depends on who is faster.
            rule = "must be words in a deterministic fit"
            raise ParameterError("axis", rule, config.axis)
    if config.leave_out is not None:
        choose("leave_out", config.leave_out, exclusion.CHOICES)
    choose("residual", config.residual, RESIDUALS)
    if config.topk is not None and config.topk > config.n_topics:
        rule = f"must be at most the number of topics, {config.n_topics}"
        raise ParameterError("topk", rule, config.topk)
    choose("start", config.start, starts.known())
    if config.seed_documents or config.seed_words or config.start_from is not None:
        choose("start", config.start, starts.from_documents())
    _given.check(config)
    choose("learn_priors", config.learn_priors, priors.LEARNED)
    prior_vector("alpha", config.alpha, config.n_topics)
    priors.check(config, has_judge)
    if config.inference == "anneal" and 0 < config.n_passes <= (config.cvb0_passes or 0):
        # Refused: the name says that vb comes after, and its objective would not.
        rule = f"must be less than the {config.n_passes} passes of anneal (cvb0 is without vb)"
        raise ParameterError("cvb0_passes", rule, config.cvb0_passes)
    schedule = Schedule(config)
    if config.repair_after and config.storage == "sparse":
        rule = "cannot be used with storage sparse: what a topic lends has no place there"
        raise ParameterError("repair_after", rule, config.repair_after)
    for n in config.repair_after:
        rules = {schedule.rule(i) for i in range(n - 1, n + TRIAL_PASSES)}
        if len(rules) > 1:
            rule = (
                f"must lie where the updates stay the same for {TRIAL_PASSES} passes: at or "
                f"after pass {schedule.n_passes + 1}"
            )
            raise ParameterError("repair_after", rule, n)


def without_effect(config: FitConfig) -> list[tuple[Any, ...]]:
    """See `families.contract.Family.without_effect`."""
    # Not refused: scripts give one set of options with each inference and number of passes.
    found: list[tuple[Any, ...]] = []
    n_passes = config.n_passes
    if config.cvb0_passes is not None and config.inference != "anneal":
        names = ParameterName("cvb0_passes"), ParameterName("inference")
        found.append(("%s has no effect with %s %s", *names, config.inference))
    if config.leave_out is not None and config.inference == "vb":
        names = ParameterName("leave_out"), ParameterName("inference")
        found.append(("%s has no effect with %s vb", *names))
    if config.relax is not None and config.relax != 1.0:
        for name in ("inference", "storage"):
            if getattr(config, name) in ("vb", "full", "topk"):
                names = ParameterName("relax"), ParameterName(name)
                found.append(("%s has no effect with %s %s", *names, getattr(config, name)))
        if config.dense_passes is not None:
            names = ParameterName("relax"), ParameterName("dense_passes")
            found.append(("%s has no effect in the passes after %s", *names))
    if config.settle is not None and config.axis == "topics":
        names = ParameterName("settle"), ParameterName("axis")
        found.append(("%s has no effect with %s topics", *names))
    if (config.temper_passes or 0) > n_passes:
        found.append(
            (
                "%s (%d) is more than %s (%d): the fit ends while it is tempered, short of its "
                "optimum", ParameterName("temper_passes"), config.temper_passes,
                ParameterName("n_passes"), n_passes,
            )
        )  # fmt: skip
    for name in ("refold_after", "repair_after"):
        late = [n for n in getattr(config, name) if n > n_passes]
        if late:
            numbers = ", ".join(map(str, late))
            text = "%s %s has no effect in %d passes"
            found.append((text, ParameterName(name), numbers, n_passes))
    settled = Schedule(config).n_passes
    if config.learn_priors != "none" and settled >= n_passes:
        text = "%s %s has no effect: the updates settle after %d of %d passes"
        name = ParameterName("learn_priors")
        found.append((text, name, config.learn_priors, settled, n_passes))
    if config.dense_passes is not None:
        if config.storage not in MARGINS:
            names = ParameterName("dense_passes"), ParameterName("storage")
            found.append(("%s has no effect with %s %s", *names, config.storage))
    if config.storage != "topk":
        for name, default in (("topk", None), ("residual", RESIDUALS[0])):
            if getattr(config, name) != default:
                names = ParameterName(name), ParameterName("storage")
                found.append(("%s has no effect with %s %s", *names, config.storage))
    # Under cvb0 it matters though nobody has asked for it.
    asked = config.leave_out not in (None, "none")
    if asked or (config.leave_out is None and config.inference == "cvb0"):
        name = ParameterName("leave_out")
        text = "%s has no effect" if asked else "%s excess, the default of cvb0, has no effect"
        if config.storage == "topk":
            found.append((f"{text} with %s topk", name, ParameterName("storage")))
        if config.axis == "topics":
            found.append((f"{text} with %s topics", name, ParameterName("axis")))
    cvb0_passes = config.cvb0_passes if config.inference == "anneal" else None
    for name in ("relax", "leave_out"):
        if cvb0_passes == 0 and getattr(config, name) is not None:
            names = ParameterName(name), ParameterName("cvb0_passes")
            found.append(("%s has no effect with %s 0", *names))
    if config.storage == "topk" and config.topk == config.n_topics:
        if config.residual != RESIDUALS[0]:
            names = ParameterName("residual"), ParameterName("topk")
            found.append(("%s has no effect with %s %d, all topics", *names, config.topk))
    if config.restarts == 1 and config.restart_passes != FitConfig.restart_passes:
        names = ParameterName("restart_passes"), ParameterName("restarts")
        found.append(("%s has no effect without %s", *names))
    if config.noise_passes and not config.noise:
        names = ParameterName("noise_passes"), ParameterName("noise")
        found.append(("%s has no effect without %s", *names))
    return found


def storages(config: FitConfig) -> tuple[Sequence[Changes], Sequence[Changes]]:
    """See `families.contract.Family.storages`."""
    if config.axis == "topics":
        return [{"storage": "full"}], []
    most = config.topk or -(-config.n_topics // TOPICS_A_KEPT_ONE)
    # A number that is given is not open.
    least = most if config.topk else 1
    if config.storage is None:
        many = config.n_topics >= ACTIVE_TOPICS and not config.topk and not config.repair_after
        margins: Changes = {"storage": "margins"}
        full: Changes = {"storage": "full"}
        numbers = range(most, least - 1, -1)
        # Words may go further by margins, and settle more often.
        settle, of_full = (settle_and_relax(c)[0] for c in (config, replace(config, **full)))
        if Schedule(config).relax_passes == 0 and settle == of_full:
            return [margins, full], _Kept(numbers, [{"storage": "sparse"}] if many else [])
        return [margins], _Kept(numbers, [{"storage": "sparse"} if many else full])
    if config.storage == "topk":
        return [{"topk": most}], _Kept(range(most - 1, least - 1, -1))
    return [{}], []


class _Kept(Sequence[Changes]):
    """Other ways, then `topk` with each of these numbers kept; there may be as many as topics."""

    def __init__(self, numbers: range, others: Sequence[Changes] = ()) -> None:
        self.numbers, self.others = numbers, others

    def __len__(self) -> int:
        return len(self.others) + len(self.numbers)

    def __getitem__(self, at: Any) -> Any:
        at = range(len(self))[at]
        if at < len(self.others):
            return self.others[at]
        return {"storage": "topk", "topk": self.numbers[at - len(self.others)]}


def check_nodes(config: FitConfig) -> None:
    """Refuse what several nodes cannot do.

    Raises
    ------
    ParameterError
    """
    if config.deterministic:
        rule = "cannot be used on several nodes"
        raise ParameterError("deterministic", rule, config.deterministic)
