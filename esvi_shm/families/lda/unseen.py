"""gamma of documents that the fit has not seen, at its fixed point; lambda is only read.

    phi_dvk  is proportional to  E(gamma_dk) beta_vk,      gamma_dk = alpha_k + sum_v n_dv phi_dvk

from phi uniform. Under vb E(x) = exp(digamma(x)) and beta = E(lambda) / E(pi); under cvb0
E(x) = x, and beta may be any point topics. beta is computed once for all documents; the rows that
a document needs are gathered once, side by side, so that its steps find them in the cache.

A word's row may have any scale, which cancels in phi. As in `update`, a pair whose sum over
topics underflows under vb is done in the log domain. Under cvb0 gamma is at least alpha, so only
a word that no topic knows can have such a sum, and it says nothing of theta.

Under vb most topics soon hold next to nothing of a document. Those that are falling fast and hold
little are left out of its steps until the others have settled; the last step is always one over
all topics, and the document is done only if gamma moves by less than the tolerance in it. What is
left then settles slowly, so that after some steps log(gamma - alpha) moves further than a step
says (over-relaxation), but not in the last one. With a tolerance of 0 the steps are the plain ones.

Each document is on its own: which others there are, and on what thread, changes no bit.

Source: Blei, Ng, Jordan 2003, Figure 6 (vb); Asuncion, Welling, Smyth, Teh 2009 (cvb0).
"""

from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.exclusion import NONE
from esvi_shm.families.lda.update import TINY, Rule, phi_by_logs_into, row_factors_into
from esvi_shm.special import digamma, log
from esvi_shm.vector import dot_1, dot_4, mix_1, mix_4, padded

#: Under cvb0 a word whose probability is below this in a document says nothing of theta.
NOTHING = np.float32(1e-25)
#: A topic is left out where a step has halved what it holds, to less than so many tokens and less
#: than this times a K-th of the document: under vb E(gamma) is next to nothing then.
FALLING, FEW_TOKENS, FEW_OF_MEAN = 0.5, 0.3, 0.25
#: And where it holds less than this times the tolerance.
NEGLIGIBLE = 0.1
#: To copy a topic's values takes as long as so many steps over them: the others are copied, side by
#: side, when steps over those to leave out have taken as long as that will.
COPY = 6
#: From this step on what a topic holds is multiplied by a power of the step's ratio, 1.75 in all;
#: the ratio is bounded in it.
RELAX_FROM, MOST_RATIO = 8, np.float32(4.0)


class Topics(NamedTuple):
    """What documents need of the topics. Arrays are as `frozen` returns them."""

    beta: np.ndarray  # float32 (U padded(K),): U rows, zeros beyond K
    words: np.ndarray  # int64 (U,): the row of lambda_ behind each row of beta
    lambda_: np.ndarray  # float32 (V, K); without rows where beta was given
    log_topic: np.ndarray  # float64 (K,): -log E(pi)


class Stop(NamedTuple):
    """When a document is done: after `steps`, or a step that moves it by less than `tol`."""

    steps: int
    tol: float
    of_theta: bool  # tol is of the sum of all changes of theta; else of the mean change of gamma


def frozen(array: np.ndarray, dtype: type) -> np.ndarray:
    """A read-only view, or a copy where type or order differ: one type for compiled code."""
    view = np.ascontiguousarray(array, dtype).view(np.ndarray)[...]
    view.setflags(write=False)
    return view


def make_rule(alpha: np.ndarray, cvb0: bool, power: float = 1.0) -> Rule:
    """The rule of unseen documents: there is no prior of topics and no noise."""
    nothing = frozen(np.zeros(0), np.float32), frozen(np.zeros(0), np.int32)
    return Rule(frozen(alpha, np.float32), nothing[0], 0.0, cvb0, power, nothing[1], 0.0, 0, NONE)


def given_topics(beta: np.ndarray) -> Topics:
    """Point topics, float32 (V, padded(K)); row v is word v."""
    n_words, length = beta.shape
    return Topics(
        frozen(beta, np.float32).reshape(-1),
        frozen(np.arange(n_words), np.int64),
        frozen(np.zeros((0, length)), np.float32),
        frozen(np.zeros(length), np.float64),
    )


def expected_topics(lambda_: np.ndarray, pi: np.ndarray, words: np.ndarray, rule: Rule) -> Topics:
    """beta of some words, from lambda (V, K) and its column sums."""
    beta = np.zeros((len(words), padded(len(pi))), np.float32)
    log_topic = np.empty(len(pi))
    held, numbers = frozen(lambda_, np.float32), frozen(words, np.int64)
    _expected_topics(held, numbers, frozen(pi, np.float64), rule, log_topic, beta)
    return Topics(
        frozen(beta, np.float32).reshape(-1), numbers, held, frozen(log_topic, np.float64)
    )


@kernel(allocates=True)
def _expected_topics(lambda_, words, pi, rule, log_topic, beta):
    """beta = E(lambda) / E(pi), to the power and up to a factor a row; log_topic likewise."""
    n_topics, length = lambda_.shape[1], beta.shape[1]
    largest = -np.inf
    for k in range(n_topics):
        log_topic[k] = -rule.power * (log(pi[k]) if rule.cvb0 else digamma(pi[k]))
        largest = max(largest, log_topic[k])
    factor = np.zeros(length, np.float32)
    for k in range(n_topics):
        factor[k] = np.exp(log_topic[k] - largest)
    for i in range(words.shape[0]):
        row_factors_into(lambda_[words[i]], beta[i], rule)
        for k in range(length):
            beta[i, k] *= factor[k]


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
        A CSR of the documents; `rows` are numbers of rows of `topics.beta`.
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
    near, at_of = np.empty(most * length, np.float32), np.empty(most, np.int64)
    # The live topics, and what belongs to each of them, in their order.
    live = np.empty(n_topics, np.int64)
    places = np.empty(n_topics, np.int64)
    prior, own = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
    held, mass = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
    extra = np.empty(n_topics, np.float32)
    theta, total = np.zeros(length, np.float32), np.zeros(length, np.float32)
    pair_phi = np.empty(n_topics)
    prior_sum = 0.0
    for k in range(n_topics):
        prior_sum += rule.alpha[k]
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
        # Some topic holds a K-th of the tokens.
        least = NEGLIGIBLE * min(limit, tokens) / n_topics
        few = min(FEW_TOKENS, FEW_OF_MEAN * tokens / n_topics)
        leaves_out = stop.tol > 0.0 and not rule.cvb0
        n_live, width, wasted = n_topics, length, 0
        # What is read in every step is worth a copy, side by side.
        copied = not leaves_out
        if copied:
            _gather(topics.beta, length, words, live, near, at_of, width)
        for step in range(stop.steps):
            if rule.cvb0 and rule.power == 1.0:
                theta[:n_live] = own[:n_live]
            else:
                row_factors_into(own[:n_live], theta[:width], rule)
            state = (row, own, live[:n_live])
            if copied:
                by_logs = _sum_pairs(
                    words, n, near, at_of, width, theta, total, topics, rule, state,
                    pair_phi, extra,
                )  # fmt: skip
            else:
                for j in range(n.shape[0]):
                    at_of[j] = length * words[j]
                by_logs = _sum_pairs(
                    words, n, topics.beta, at_of, width, theta, total, topics, rule, state,
                    pair_phi, extra,
                )  # fmt: skip
            change, n_left = 0.0, 0
            for i in range(n_live):
                mass[i] = theta[i] * total[i]
                if by_logs:
                    mass[i] += extra[live[i]]
                new = prior[i] + mass[i]
                change += abs(new - own[i])
                own[i] = new
                places[n_left] = i
                n_left += mass[i] >= few or (mass[i] >= least and mass[i] > FALLING * held[i])
            settled, next_to_last = change < limit, step >= stop.steps - 2
            if n_live == n_topics and settled:
                break
            if n_live < n_topics and (settled or next_to_last):
                for i in range(n_live):
                    row[live[i]] = own[i]
                for k in range(n_topics):
                    live[k], prior[k], own[k] = k, rule.alpha[k], row[k]
                    held[k] = own[k] - prior[k]
                n_live, width, wasted, copied = n_topics, length, 0, False
                continue
            if step >= RELAX_FROM and stop.tol > 0.0 and not (settled or next_to_last):
                _relax(n_live, prior, held, mass, own)
            for i in range(n_live):
                held[i] = own[i] - prior[i]
            wasted += width - padded(n_left)
            if leaves_out and wasted >= COPY * n_left and not next_to_last:
                for i in range(n_live):
                    row[live[i]] = prior[i]
                for i in range(n_left):
                    at = places[i]
                    live[i], prior[i], own[i], held[i] = live[at], prior[at], own[at], held[at]
                n_live, width, wasted, copied = n_left, padded(n_left), 0, True
                _gather(topics.beta, length, words, live[:n_live], near, at_of, width)
        for i in range(n_live):
            row[live[i]] = own[i]


@kernel
def _relax(n, prior, held, mass, own):
    """Let what each of n topics holds go further than the step from `held` to `mass`; same sum."""
    before = after = np.float32(0.0)
    for i in range(n):
        ratio = np.float32(1.0)
        if held[i] > np.float32(0.0):
            ratio = min(mass[i] / held[i], MOST_RATIO)
        root = np.sqrt(ratio)
        own[i] = mass[i] * root * np.sqrt(root)
        before += mass[i]
        after += own[i]
    # In float64: what is held times a sum may be more than a float32 holds, in whatever order.
    scale = np.float64(before) / np.float64(after)
    for i in range(n):
        own[i] = prior[i] + own[i] * scale


@kernel
def _gather(beta, length, words, live, near, at_of, width):
    """Put the live topics of a document's rows of beta side by side, each row `width` long."""
    n_live = live.shape[0]
    for j in range(words.shape[0]):
        source = beta[length * words[j] : length * (words[j] + 1)]
        target = near[width * j : width * (j + 1)]
        for i in range(n_live):
            target[i] = source[live[i]]
        for i in range(n_live, width):
            target[i] = 0.0
        at_of[j] = width * j


@kernel
def _sum_pairs(
    words, counts, near, at_of, width, theta, total, topics, rule, state, pair_phi, extra
):
    """total = sum of n beta / (theta @ beta) over a document's words.

    Returns whether there were pairs in the log domain: their n phi are in `extra`, by topic.
    """
    least = NOTHING if rule.cvb0 else TINY
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
