"""Priors learned between two passes: Minka's fixed point, and a guard on every step.

With phi given, gamma_d = alpha + n_d and lambda_k = eta + m_k (n_dk, m_kv: tokens of topic k in
document d, and of word v in topic k), and all that the bound F has of a prior is

    sum_d [lnB(alpha + n_d) - lnB(alpha)],      lnB(x) = sum_i log Gamma(x_i) - log Gamma(sum_i x_i)

(likewise for eta, with the topics in place of the documents): the log likelihood of counts n_d
under a Dirichlet-multinomial. Its fixed point, in E[log theta_dk] = digamma(gamma_dk) -
digamma(sum gamma_d) and the same under the prior, is

    alpha_k <- alpha_k  sum_d [digamma(alpha_k + n_dk) - digamma(alpha_k)]
                      / sum_d [digamma(sum alpha + n_d) - digamma(sum alpha)]

It is the maximum of a bound that holds for whole counts; for a count below 1 it need not, and
steps may be lengthened. So a step is kept only if what it is judged by rises: F, or held-out text
where there is some. Under cvb0, whose counts are soft (it would take them for documents with many
topics), the fixed point does not lead to where text is predicted best, and no other shape of alpha
than the one at hand gains more than 1 in 10,000 (AP, reuters21578, 20news): there alpha is scaled,
down or up, as long as the text agrees. Each time it is asked costs as much as some passes, so that
is done once, late: with the larger alpha that is mostly given topics form that predict better.

The workers sum over their documents and words; nothing but `trial` and the sums is written until
a prior is chosen, and then gamma and lambda move with it: the margins of phi stay as they are.

Source: Minka, Estimating a Dirichlet distribution, 2000, eq. 55; Wallach, Mimno, McCallum,
Rethinking LDA: why priors matter, NIPS 2009 (alpha by topic, eta for all words).
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.config import LEAST_PRIOR, MOST_PRIOR, FitConfig
from esvi_shm.errors import ParameterError
from esvi_shm.families.contract import Arrays, Judge
from esvi_shm.families.lda.listed import lambda_of, n_rows_of, row_of, word_row_into
from esvi_shm.families.lda.totals import everywhere, sum_up, whole_rows
from esvi_shm.special import digamma, log_gamma

LEARNED = ("none", "alpha", "eta", "both")
#: Passes between two times that priors are learned, at most; there are at most `TIMES` in a short
#: fit, `TIMES_OF_JUDGE` where held-out text decides on eta, which takes longer (more of them move
#: perplexity by less than 0.02%).
EVERY, TIMES, TIMES_OF_JUDGE = 10, 4, 2
#: Values of a prior tried each time, at most; the next time goes on from the best. Changes (of
#: the logarithm) that are not worth another.
TRIALS, ENOUGH = 5, 3e-3
#: A prior changes by this factor at most in a step; a step grows to so many of Minka's.
MOST_CHANGE, MOST_STRIDE = 8.0, 8.0
#: Steps are shortened to a quarter of one that did not pay, down to this part of Minka's.
LEAST_STRIDE = 1 / 16
#: alpha is scaled by this, as long as perplexity falls by this share: of long documents it would
#: else go down to nothing, for a gain of as much.
SCALE, WORTH = 0.25, 2e-4

#: Columns of `topic_sums`; `document_sums` has K columns, then the same two.
CHANGE, LNB = 0, 1

#: A script that measures a prior: what it is judged by, and where the fixed point takes it.
Measure = Callable[[np.ndarray], Generator[str, bool, tuple[float, np.ndarray]]]


@kernel(allocates=True)
def sum_documents_into(gamma, held, trial, sums):
    """Over the shard's documents, under the prior `trial`, the sums of the fixed point and of F.

    Parameters
    ----------
    gamma : float32 array, shape (D_p, K)
        At its sums.
    held : float32 array, shape (K,)
        The prior in gamma.
    trial : float64 array, shape (K,)
    sums : float64 array, shape (K + 2,)
        Written. For each topic sum_d [digamma(trial_k + n_dk) - digamma(trial_k)]; the same of the
        rows' sums; sum_d [lnB(trial + n_d) - lnB(trial)].
    """
    n_topics = trial.shape[0]
    total, made = trial.sum(), np.empty_like(held)
    digamma_total, log_gamma_total = digamma(total), log_gamma(total)
    sums[:] = 0.0
    below, above = np.empty(n_topics), np.empty(n_topics)
    for k in range(n_topics):
        below[k] = digamma(trial[k])
        above[k] = log_gamma(trial[k])
    lnb = 0.0
    for d in range(n_rows_of(gamma)):
        row, tokens = row_of(gamma, d, made), 0.0
        for k in range(n_topics):
            # Exact, and 0 for a topic that the document does not use, as most are.
            n = np.float64(row[k]) - np.float64(held[k])
            if n > 0.0:
                tokens += n
                sums[k] += digamma(trial[k] + n) - below[k]
                lnb += log_gamma(trial[k] + n) - above[k]
        if tokens > 0.0:
            sums[n_topics + CHANGE] += digamma(total + tokens) - digamma_total
            lnb -= log_gamma(total + tokens) - log_gamma_total
    sums[n_topics + LNB] = lnb


@kernel(allocates=True)
def add_topics(lambda_, first, last, n_topics, held, trial, sums):
    """Add word rows first..last-1 to the sums over words under the prior `trial` of every word.

    ``sums += [sum (digamma(trial + m) - digamma(trial)), sum (lnG(trial + m) - lnG(trial))]``
    with m = lambda - held, held: float32 (V,). The terms of the topics' sums are `measure_eta`'s.
    """
    digamma_trial, log_gamma_trial = digamma(trial), log_gamma(trial)
    made = np.empty(n_topics, np.float32)
    for v in range(first, last):
        change, lnb = 0.0, 0.0
        word_row_into(lambda_, v, held[v], made)
        for k in range(n_topics):
            m = np.float64(made[k]) - np.float64(held[v])
            if m > 0.0:
                change += digamma(trial + m) - digamma_trial
                lnb += log_gamma(trial + m) - log_gamma_trial
        sums[CHANGE] += change
        sums[LNB] += lnb


@kernel
def _sums_of_topics(pi, total):
    """What `add_topics` leaves out, of the column sums: tokens pi (K,) and prior `total`."""
    change, lnb = 0.0, 0.0
    for k in range(pi.shape[0]):
        tokens = max(pi[k], 0.0)
        change += digamma(total + tokens) - digamma(total)
        lnb += log_gamma(total + tokens) - log_gamma(total)
    return change, lnb


def check(config: FitConfig, has_judge: bool) -> None:
    """Refuse what cannot be learned.

    Raises
    ------
    ParameterError
    """
    learned = config.learn_priors
    if config.symmetric_alpha:
        if learned not in ("alpha", "both"):
            rule = "must be alpha or both with %s"
            raise ParameterError("learn_priors", rule, learned, "symmetric_alpha")
        if np.ndim(config.alpha):
            rule = "must be one number with %s"
            raise ParameterError("alpha", rule, config.alpha, "symmetric_alpha")
    if learned in ("eta", "both") and np.ndim(config.eta):
        raise ParameterError("eta", "must be one number to be learned", config.eta)
    if learned != "none" and config.inference == "cvb0" and not has_judge:
        # Only held-out text tells how soft its counts are.
        raise ParameterError("learn_priors", "must come with %s under cvb0", learned, "holdout")


def next_time(n_passes: int, settled: int, last: int, times: int = TIMES) -> int:
    """The next number of passes, above `n_passes`, after which priors are learned.

    Not before the updates have settled: tempered ones, and those of cvb0 before vb, leave
    documents with more topics than they will have. `last` is the number of all passes; in a short
    fit there are at most so many `times`.

    >>> [next_time(n, settled=50, last=100) for n in (0, 59, 60)], next_time(0, 14, 20)
    ([60, 60, 70], 16)
    """
    left = last - settled
    every = max(left // times, 1)
    every = min(EVERY, every + (left // every > times))
    return settled + every * max((n_passes - settled) // every + 1, 1)


def time_of_alpha(settled: int, last: int) -> int:
    """The number of passes after which alpha is scaled, see `next_time`; once.

    >>> time_of_alpha(80, 100), time_of_alpha(20, 25), time_of_alpha(80, 1000)
    (90, 22, 90)
    """
    return settled + min(EVERY, max((last - settled) // 2, 1))


def climb(measure: Measure, start: np.ndarray) -> Generator[str, bool, np.ndarray]:
    """Follow the fixed point from `start` as long as the measure rises; returns where it ends.

    Steps are taken in the logarithm. One that pays is followed by one twice as far, since the fixed
    point is slow near its end; one that does not is dropped, and a shorter one tried.
    """
    here = start.copy()
    value, target = yield from measure(here)
    stride, furthest = 1.0, np.log(MOST_CHANGE)
    for _ in range(TRIALS):
        direction = np.log(np.clip(target, LEAST_PRIOR, MOST_PRIOR) / here)
        if np.abs(direction).max() < ENOUGH or stride < LEAST_STRIDE:
            break
        step = np.exp(np.clip(stride * direction, -furthest, furthest))
        trial = np.clip(here * step, LEAST_PRIOR, MOST_PRIOR)
        tried, beyond = yield from measure(trial)
        if tried > value:
            here, value, target = trial, tried, beyond
            stride = min(2.0 * stride, MOST_STRIDE)
        else:
            stride /= 4.0
    return here


def scale(
    measure: Callable[[np.ndarray], Generator[Any, Any, float]], start: np.ndarray
) -> Generator[Any, Any, np.ndarray]:
    """`start` times what the measure is highest with.

    First in steps of `SCALE`, down or up, and then between the best and those beside it, where a
    parabola through them has its top.
    """

    def times(steps: float) -> np.ndarray:
        return np.clip(start * SCALE**steps, LEAST_PRIOR, MOST_PRIOR)

    found, best = {0: (yield from measure(start))}, 0
    for direction in (1, -1):
        while best + direction not in found and len(found) <= TRIALS:
            step = best + direction
            found[step] = yield from measure(times(step))
            if found[step] <= found[best] + WORTH * abs(found[best]):
                break
            best = step
        if best:
            break
    beside = [found.get(best + side, -np.inf) - found[best] for side in (-1, 1)]
    if not np.isfinite(beside).all() or sum(beside) >= 0.0:
        return times(best)
    between = best + float(np.clip((beside[0] - beside[1]) / (2.0 * sum(beside)), -0.5, 0.5))
    if (yield from measure(times(between))) > found[best]:
        return times(between)
    return times(best)


def ask(
    judge: Judge, whole: Arrays | None, word_ids: np.ndarray, alpha: np.ndarray, more: float = 0.0
) -> Generator[Any, Any, float]:
    """What speaks for a prior, the higher the better: what the judge of node 0 says, on every node.

    Of all topics (`totals.whole_rows`), with `more` in every number of lambda.
    """
    found = np.zeros(1)
    if whole is not None:
        tried = lambda_of({**whole, "eta": whole["eta"] + more})  # lists lack the prior
        if more and isinstance(tried, np.ndarray):
            tried = tried + np.float32(more)
        found[0] = -judge(tried, word_ids, alpha, roughly=True)
    yield found
    return float(found[0])


def learn(
    config: FitConfig, word_ids: np.ndarray, shared: Arrays, judge: Judge | None
) -> Generator[str, bool, None]:
    """Learn the priors that the configuration names, and have gamma and lambda follow.

    Parameters
    ----------
    config : FitConfig
    word_ids : int array, shape (V,)
        The word of each word row.
    shared : mapping of str to arrays
        Of the family; `alpha` and `eta` are written.
    judge : callable or None
        Decides in place of F; see `contract.Judge`.
    """
    alpha, eta = shared["alpha"], shared["eta"]
    n_topics, n_words = len(alpha), len(eta)

    def measure_alpha(trial: np.ndarray) -> Generator[str, bool, tuple[float, np.ndarray]]:
        shared["trial_alpha"][:] = trial
        yield "sum_under_alpha"
        sums = yield from everywhere(shared["document_sums"])
        by_topic, change = sums[:n_topics], sums[n_topics + CHANGE]
        if config.symmetric_alpha:
            by_topic = np.full(n_topics, by_topic.mean())
        value = sums[n_topics + LNB]
        if judge is not None:
            value = yield from ask(judge, whole, word_ids, trial)
        # Counts that are next to nothing say nothing of a prior.
        return value, trial * by_topic / change if change > 0.0 else trial

    def measure_eta(trial: np.ndarray) -> Generator[str, bool, tuple[float, np.ndarray]]:
        shared["trial_eta"][:] = trial
        yield "sum_under_eta"
        sums = yield from everywhere(shared["topic_sums"])
        change, lnb = _sums_of_topics(pi, n_words * float(trial[0]))
        value = sums[LNB] - lnb
        if judge is not None:
            value = yield from ask(judge, whole, word_ids, alpha, float(trial[0] - eta[0]))
        return value, trial * sums[CHANGE] / (n_words * change) if change > 0.0 else trial

    # What has left a topic is to be 0, not what rounding left of it.
    pi = yield from sum_up(shared)
    # It stays as it is until a prior is chosen.
    whole = None if judge is None else (yield from whole_rows(shared))
    if config.learn_priors in ("alpha", "both"):
        if judge is not None:
            under = partial(ask, judge, whole, word_ids)
            alpha[:] = yield from scale(under, alpha.copy())
        if judge is None or config.inference != "cvb0":
            alpha[:] = yield from climb(measure_alpha, alpha)
    if config.learn_priors in ("eta", "both"):
        eta[:] = yield from climb(measure_eta, eta[:1])
    yield "take_priors"
    yield from sum_up(shared)
