"""gamma of documents that the fit has not seen, at its fixed point; lambda is only read.

    phi_dvk  is proportional to  E(gamma_dk) beta_vk,      gamma_dk = alpha_k + sum_v n_dv phi_dvk

from phi uniform. Under vb E(x) = exp(digamma(x)) and beta = E(lambda) / E(pi); under cvb0
E(x) = x, and beta may be any point topics. beta is computed once for all documents; the rows that
a document needs are gathered once, side by side, so that its steps find them in the cache.

A word's row may have any scale, which cancels in phi. As in `update`, a pair whose sum over
topics underflows under vb is done in the log domain. Under cvb0 gamma is at least alpha, so only
a word that no topic knows can have such a sum, and it says nothing of theta.

Under vb most topics soon hold next to nothing of a document. Those are left out of its steps: the
first step is over all topics, the others over fewer and fewer: of many topics only over those that
hold more than most after the first, and then without those that fall to next to nothing.
A topic that is left out has gamma = alpha, so that of all that are left out one number a word says
what they take of it, sum_k E(alpha_k) beta_vk. It stands in their place as one more column: each
step is exact for such a gamma, and knows how many tokens a step over all topics would give them.
The document is done if these and the changes of the others are less than the tolerance together;
if what is left out alone would get more, the steps go on over all topics. What is left settles
slowly, so that after some steps log(gamma - alpha) moves further than a step says, but not in the
last one. With a tolerance of 0 the steps are the plain ones, over all topics.

Each document is on its own: which others there are, and on what thread, changes no bit.

Source: Blei, Ng, Jordan 2003, Figure 6 (vb); Asuncion, Welling, Smyth, Teh 2009 (cvb0); Golub and
Varga 1961 (how far steps go: "Chebyshev semi-iterative methods").
"""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from esvi_shm.compile import kernel
from esvi_shm.families.lda.beta import ALL, frozen
from esvi_shm.families.lda.exclusion import NONE
from esvi_shm.families.lda.update import TINY, Rule, least_sum, phi_by_logs_into, row_factors_into
from esvi_shm.special import digamma, exp2_32, log2_32
from esvi_shm.vector import dot_1, dot_4, floats, mix_1, mix_4, padded, unsigned

#: Under cvb0 a word whose probability is below this in a document says nothing of theta.
NOTHING = np.float32(1e-25)
#: A topic is left out where a step has halved what it holds, to less than so many tokens and less
#: than this times a K-th of the document: under vb E(gamma) is next to nothing then.
FALLING, FEW_TOKENS, FEW_OF_MEAN = np.float32(0.5), 0.3, 0.25
#: After the first of more than `MANY` topics it need not have fallen, and these hold. (Of few, one
#: that begins below the mean may yet win.)
MANY, FIRST_TOKENS, FIRST_OF_MEAN = 256, 1.0, 1.0
#: And where it holds less than this times the tolerance.
NEGLIGIBLE = 0.1
#: None is left out where the prior of all topics weighs more than so much of the document, or the
#: tolerance is more than so much of it, or there are fewer steps than this: it pays in many steps,
#: and what would come back must have the steps to do so.
PRIOR_SHARE, LOOSE, MANY_STEPS = 0.05, 0.02, 10
#: To copy a topic's values takes as long as so many steps over them: the others are copied, side by
#: side, when steps over those to leave out have taken as long as that will.
COPY = 6
#: From this step on what a topic holds is multiplied by a power of the step's ratio, by at most 8;
#: `RELAX_SOON` where of more than `MANY` topics some are left out.
RELAX_FROM, RELAX_SOON, MOST_LOG2 = 5, 1, np.float32(3.0)


def powers_of(n: int, slowest: float) -> tuple[np.float32, ...]:
    """How much further n steps go than they say, so that together they get nearest to the end.

    Of what is left a plain step takes off shares between 0 and 1, different ones in different
    directions. The n steps are those of Chebyshev for shares from `slowest` on.

    >>> [round(float(power), 2) for power in powers_of(2, 0.1)]
    [0.15, 3.31]
    """
    angles = (2 * np.arange(n) + 1) * np.pi / (2 * n)
    shares = (1 + slowest) / 2 + (1 - slowest) / 2 * np.cos(angles)
    return tuple((1 / shares - 1).astype(np.float32))


POWERS = powers_of(3, 0.05)
#: From this step on that ends for good where a round of powers does not bring the document nearer:
#: it may go round for ever.
PATIENCE = 20


class Stop(NamedTuple):
    """When a document is done: after `steps`, or a step that moves it by less than `tol`."""

    steps: int
    tol: float
    of_theta: bool  # tol is of the sum of all changes of theta; else of the mean change of gamma


def make_rule(alpha: np.ndarray, cvb0: bool, power: float = 1.0) -> Rule:
    """The rule of unseen documents: there is no prior of topics and no noise."""
    nothing = frozen(np.zeros(0), np.float32), frozen(np.zeros(0), np.int32)
    return Rule(
        frozen(alpha, np.float32), nothing[0], 0.0, cvb0, power, nothing[1], 0.0, 0, NONE,
        least=least_sum(cvb0, power),
    )  # fmt: skip


@kernel(allocates=True)
def settle_documents(first, last, indptr, rows, counts, topics, rule, stop, gamma):
    """Write gamma of documents first..last-1.

    Equivalent, for a document with the rows r of beta and counts n, to
    ``gamma = alpha + n.sum() / K``; up to `steps` times ``theta = E(gamma); gamma = alpha + theta *
    ((n / (beta[r] @ theta)) @ beta[r])``, until gamma moves little.

    Parameters
    ----------
    first, last : int
    indptr, rows, counts : int64, int32 and float32 arrays
        A CSR of the documents; `rows` are numbers of rows of `topics`.
    topics : Topics
    rule : Rule
    stop : Stop
    gamma : float32 array, shape (D, K)
    """
    n_topics = gamma.shape[1]
    length = padded(n_topics)
    most = 0
    for d in range(first, last):
        most = max(most, indptr[d + 1] - indptr[d])
    # A document's rows of beta, over the live topics, and where each begins.
    near, at_of = floats(most * padded(n_topics + 1)), np.empty(most, np.int64)
    # The live topics, and what belongs to each of them, in their order; where some are left out,
    # behind them what stands for these.
    live, places = np.empty(n_topics, np.int32), np.empty(n_topics, np.int32)
    place_of = np.empty(n_topics, np.int32)
    prior, own = floats(n_topics), floats(n_topics + 1)
    held, mass, extra = floats(n_topics), floats(n_topics), floats(n_topics)
    theta, total = floats(padded(n_topics + 1)), floats(padded(n_topics + 1))
    theta[:] = 0.0
    of_live, pair_phi = floats(padded(n_topics + 1)), np.empty(n_topics)
    round_before = np.zeros(len(POWERS), np.float32)
    prior_sum, most_alpha, is_even = 0.0, np.float32(0.0), True
    for k in range(n_topics):
        prior_sum += rule.alpha[k]
        most_alpha = max(most_alpha, rule.alpha[k])
        is_even = is_even and rule.alpha[k] == rule.alpha[0]
    prior_factor = np.exp(digamma(np.float64(most_alpha)))
    for d in range(first, last):
        words, n = rows[indptr[d] : indptr[d + 1]], counts[indptr[d] : indptr[d + 1]]
        row = gamma[d]
        tokens = 0.0
        for j in range(n.shape[0]):
            tokens += n[j]
        for k in range(n_topics):
            live[k] = k
            prior[k] = rule.alpha[k]
            held[k] = tokens / n_topics
            own[k] = row[k] = rule.alpha[k] + tokens / n_topics
        if tokens == 0.0:
            continue
        limit = stop.tol * ((prior_sum + tokens) if stop.of_theta else n_topics)
        leaves_out = stop.tol > 0.0 and not rule.cvb0 and rule.power == 1.0
        leaves_out = leaves_out and n_topics * prior_factor < PRIOR_SHARE * tokens
        leaves_out = leaves_out and limit < LOOSE * tokens and stop.steps >= MANY_STEPS
        relax_from = RELAX_SOON if leaves_out and n_topics > MANY else RELAX_FROM
        # Then all E(gamma) are the same at first, and the sums of rows known.
        starts_even = leaves_out and is_even
        for j in range(n.shape[0] if starts_even else 0):
            starts_even = starts_even and topics.sums[words[j]] >= TINY
        if not starts_even:
            _copy(words, topics, length, near, at_of)
        # How long near's rows are; whether there is a column for what is left out; what a step
        # gives to that; what the steps since the last copy have taken over topics to leave out.
        n_live, width, n_apart, outside, wasted = n_topics, length, 0, 0.0, 0
        for step in range(stop.steps):
            is_last = step == stop.steps - 1
            if step == 0 and starts_even:
                theta[:n_live], by_logs = 1.0, False
                _sum_first(words, n, topics, total[:width])
            else:
                if rule.cvb0 and rule.power == 1.0:
                    theta[:n_live] = own[:n_live]
                else:
                    row_factors_into(own[: n_live + n_apart], theta[:width], rule)
                by_logs = _sum_pairs(
                    words, n, near, at_of, width, theta, total, topics, rule,
                    (row, own, live[:n_live]), pair_phi, extra,
                )  # fmt: skip
            for i in range(n_live):
                mass[i] = theta[i] * total[i]
            if n_apart > 0:
                outside = np.float64(theta[n_live]) * total[n_live]
            if by_logs:
                for i in range(n_live):
                    mass[i] += extra[live[i]]
                    extra[live[i]] = 0.0
                outside += extra.sum()
            change = np.float32(0.0)
            for i in range(n_live):
                new = prior[i] + mass[i]
                change += abs(new - own[i])
                own[i] = new
            # Twice: what is outside may lie elsewhere than where `_spread` puts it.
            if change + 2.0 * outside < limit:
                break
            # Where the live topics rest and those left out would get more, on with all.
            if 4.0 * outside > limit and 2.0 * change < limit and not is_last:
                for i in range(n_live):
                    row[live[i]] = own[i]
                for k in range(n_topics):
                    live[k], prior[k], own[k] = k, rule.alpha[k], row[k]
                    held[k] = own[k] - prior[k]
                n_live, width, n_apart, outside, leaves_out = n_topics, length, 0, 0.0, False
                _copy(words, topics, length, near, at_of)
                continue
            of_round = step % len(POWERS)
            if step >= PATIENCE and change >= round_before[of_round]:
                relax_from = stop.steps
            round_before[of_round] = change
            if step >= relax_from and stop.tol > 0.0 and not is_last:
                _relax(n_live, POWERS[(step - relax_from) % len(POWERS)], prior, held, mass, own)
            if leaves_out and not is_last:
                mean = tokens / n_topics
                few = np.float32(min(FEW_TOKENS, FEW_OF_MEAN * mean))
                # Some topic holds a K-th of the tokens.
                least = np.float32(NEGLIGIBLE * min(limit, tokens) / n_topics)
                if step == 0 and n_topics > MANY:
                    few = least = np.float32(min(FIRST_TOKENS, FIRST_OF_MEAN * mean))
                n_left = 0
                for i in range(n_live):
                    n_left += _stays(mass[i], held[i], few, least)
                wasted += width - padded(n_left + 1)
                if step == 0 or wasted >= COPY * n_left:
                    n_chosen = 0
                    for i in range(n_live):
                        row[live[i]] = prior[i]
                        # In any case: nobody foresees a branch.
                        places[unsigned(n_chosen)] = i
                        n_chosen += _stays(mass[i], held[i], few, least)
                    for i in range(n_left):
                        place = places[i]
                        live[i], prior[i], own[i] = live[place], prior[place], own[place]
                        of_live[i] = topics.of_prior[live[i]]
                    n_live, n_apart, wasted, width = n_left, 1, 0, padded(n_left + 1)
                    own[n_live] = most_alpha
                    for i in range(n_live, width):
                        of_live[i] = 0.0
                    chosen = places[:n_live]
                    if step == 0:
                        _gather(words, topics, chosen, place_of, of_live, near, at_of)
                    else:
                        _narrow(words, topics, chosen, of_live, near, at_of)
            for i in range(n_live):
                held[i] = own[i] - prior[i]
        if outside > 0.0:
            _spread(outside, live[:n_live], topics.of_prior, extra, row)
        for i in range(n_live):
            row[live[i]] = own[i]


@register_jitable
def _stays(mass, held, few, least):
    """Whether a topic is not left out."""
    return (mass >= few) | ((mass >= least) & (mass > FALLING * held))


@kernel
def _relax(n, power, prior, held, mass, own):
    """Let what each of n topics holds go further than the step from `held` to `mass`; same sum."""
    before = after = np.float32(0.0)
    for i in range(n):
        # Of what holds nothing no ratio is known.
        known = held[i] > np.float32(1e-30) and mass[i] > np.float32(1e-30)
        further = power * (log2_32(mass[i]) - log2_32(held[i])) if known else np.float32(0.0)
        own[i] = mass[i] * exp2_32(min(max(further, -MOST_LOG2), MOST_LOG2))
        before += mass[i]
        after += own[i]
    # In float64: what is held times a sum may be more than a float32 holds, in whatever order.
    scale = np.float64(before) / np.float64(after) if after > 0.0 else 1.0
    for i in range(n):
        own[i] = prior[i] + own[i] * scale


@kernel
def _spread(tokens, live, of_prior, part, row):
    """Give tokens to the topics that are not live, as by their E(alpha); evenly if that is 0.

    The others are written afterwards; `part` is scratch.
    """
    everything = 0.0
    for k in range(row.shape[0]):
        part[k] = of_prior[k]
    for i in range(live.shape[0]):
        part[live[i]] = 0.0
    for k in range(row.shape[0]):
        everything += part[k]
    if everything == 0.0:
        part[:] = 1.0
        everything = row.shape[0] - live.shape[0]
    for k in range(row.shape[0]):
        row[k] += tokens * (part[k] / everything)


@kernel
def _sum_first(words, counts, topics, total):
    """total = sum of n beta / beta.sum() over a document's words."""
    begins, listed, values, numbers = topics.begins, topics.listed, topics.values, topics.topics
    length = total.shape[0]
    total[:] = 0.0
    for j in range(words.shape[0]):
        word = words[j]
        weight, at = counts[j] / topics.sums[word], begins[word]
        if listed[word] == ALL:
            mix_1(total, total, values, (at,), (weight,), length)
        else:
            of_topic = topics.numbered[word]
            for i in range(listed[word]):
                k = numbers[unsigned(of_topic + i)]
                total[unsigned(k)] += weight * values[unsigned(at + i)]


@kernel
def _copy(words, topics, length, near, at_of):
    """Put a document's rows side by side."""
    begins, listed, values, numbers = topics.begins, topics.listed, topics.values, topics.topics
    for j in range(words.shape[0]):
        word, target = words[j], length * j
        source, n = begins[word], listed[word]
        at_of[j] = target
        if n == ALL:
            for k in range(length):
                near[unsigned(target + k)] = values[unsigned(source + k)]
        else:
            for k in range(length):
                near[unsigned(target + k)] = 0.0
            of_topic = topics.numbered[word]
            for i in range(n):
                k = numbers[unsigned(of_topic + i)]
                near[unsigned(target + k)] = values[unsigned(source + i)]


@kernel
def _gather(words, topics, chosen, place_of, of_live, near, at_of):
    """Put the chosen topics of a document's rows side by side, and what stands for the others."""
    begins, listed, values, numbers = topics.begins, topics.listed, topics.values, topics.topics
    n, width = chosen.shape[0], padded(chosen.shape[0] + 1)
    # Of what is not chosen all goes to the place behind, which is written afterwards.
    place_of[:] = n
    for i in range(n):
        place_of[chosen[i]] = i
    for j in range(words.shape[0]):
        word, target = words[j], unsigned(width * j)
        source = begins[word]
        at_of[j] = width * j
        if listed[word] == ALL:
            for i in range(n):
                near[target + unsigned(i)] = values[unsigned(source + chosen[unsigned(i)])]
            for i in range(n, width):
                near[target + unsigned(i)] = 0.0
        else:
            for i in range(width):
                near[target + unsigned(i)] = 0.0
            of_topic = topics.numbered[word]
            for i in range(listed[word]):
                place = place_of[unsigned(numbers[unsigned(of_topic + i)])]
                near[target + unsigned(place)] = values[unsigned(source + i)]
        _set_apart(j, words, topics.apart, of_live, n, near, at_of)


@kernel
def _narrow(words, topics, chosen, of_live, near, at_of):
    """Keep the chosen places of a document's rows, and what stands for all others."""
    n, width = chosen.shape[0], padded(chosen.shape[0] + 1)
    for j in range(words.shape[0]):
        source, target = unsigned(at_of[j]), unsigned(width * j)
        at_of[j] = width * j
        for i in range(n):
            near[target + unsigned(i)] = near[source + unsigned(chosen[unsigned(i)])]
        for i in range(n, width):
            near[target + unsigned(i)] = 0.0
        _set_apart(j, words, topics.apart, of_live, n, near, at_of)


@kernel(inline="always")
def _set_apart(j, words, apart, of_live, n, near, at_of):
    """After row j: write the place behind n topics of it and those before, by fours."""
    width = padded(n + 1)
    if j % 4 == 3:
        at = (at_of[j - 3], at_of[j - 2], at_of[j - 1], at_of[j])
        known = dot_4(of_live, near, at, width)
        for i in range(4):
            near[at[i] + n] = max(apart[words[j - 3 + i]] - known[i], np.float32(0.0))
    elif j == words.shape[0] - 1:
        for i in range(j - j % 4, j + 1):
            (of_row,) = dot_1(of_live, near, (at_of[i],), width)
            near[at_of[i] + n] = max(apart[words[i]] - of_row, np.float32(0.0))


@kernel
def _sum_pairs(
    words, counts, near, at_of, width, theta, total, topics, rule, state, pair_phi, extra
):
    """total = sum of n beta / (theta @ beta) over a document's words.

    Returns whether there were pairs in the log domain: their n phi are in `extra`, by topic.
    """
    least = NOTHING if rule.cvb0 else rule.least
    by_logs = False
    total[:width] = 0.0
    n = words.shape[0]
    j = 0
    while j < n:
        if j + 4 <= n:
            at = (at_of[j], at_of[j + 1], at_of[j + 2], at_of[j + 3])
            s = dot_4(theta, near, at, width)
            if min(min(s[0], s[1]), min(s[2], s[3])) >= least:
                weights = (
                    counts[j] / s[0],
                    counts[j + 1] / s[1],
                    counts[j + 2] / s[2],
                    counts[j + 3] / s[3],
                )
                mix_4(theta, total, near, at, weights, width)
                j += 4
                continue
        # One pair: the last ones of a document, and each of a four with one that underflows.
        at_1 = (at_of[j],)
        (s_1,) = dot_1(theta, near, at_1, width)
        if s_1 >= least:
            mix_1(theta, total, near, at_1, (counts[j] / s_1,), width)
        elif not rule.cvb0:
            if not by_logs:
                by_logs = True
                row, own, live = state
                extra[:] = 0.0
                for i in range(live.shape[0]):
                    row[live[i]] = own[i]
            word_row = topics.lambda_[topics.words[words[j]]]
            phi_by_logs_into(state[0], word_row, topics.log_topic, False, rule, pair_phi)
            for k in range(extra.shape[0]):
                extra[k] += counts[j] * pair_phi[k]
        j += 1
    return by_logs
