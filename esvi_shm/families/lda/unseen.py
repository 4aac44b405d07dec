"""gamma of documents that the fit has not seen, at its fixed point; lambda is only read.

    phi_dvk  is proportional to  E(gamma_dk) beta_vk,      gamma_dk = alpha_k + sum_v n_dv phi_dvk

from phi uniform. Under vb E(x) = exp(digamma(x)) and beta = E(lambda) / E(pi); under cvb0
E(x) = x, and beta may be any point topics. beta is computed once for all documents; the rows that
a document needs are gathered once, side by side, so that its steps find them in the cache.

A word's row may have any scale, which cancels in phi. As in `update`, a pair whose sum over
topics underflows under vb is done in the log domain. Under cvb0 gamma is at least alpha, so only
a word that no topic knows can have such a sum, and it says nothing of theta.

Under vb most topics soon hold next to nothing of a document. Those that hold less than a tenth of
the tolerance are left out of its steps, their gamma kept, until the others have settled; the last
step is always one over all topics, and the document is done only if gamma moves by less than the
tolerance in it. That halves the time on long documents; a tolerance of 0 leaves out nothing.

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
#: A topic is left out where it holds less than this times the tolerance.
NEGLIGIBLE = 0.1


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


@kernel
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


@kernel
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
    near = np.empty(most * length, np.float32)
    # The live topics, and what belongs to each of them, in their order.
    live = np.empty(n_topics, np.int64)
    prior, own = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
    mass, extra = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
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
            own[k] = row[k] = rule.alpha[k] + tokens / n_topics
        if tokens == 0.0:
            continue
        limit = stop.tol * ((prior_sum + tokens) if stop.of_theta else n_topics)
        # Some topic holds a K-th of the tokens.
        least = NEGLIGIBLE * min(limit, tokens) / n_topics
        n_live, width = n_topics, length
        _gather(topics.beta, length, words, live, near, width)
        for step in range(stop.steps):
            if rule.cvb0 and rule.power == 1.0:
                theta[:n_live] = own[:n_live]
            else:
                row_factors_into(own[:n_live], theta[:width], rule)
            by_logs = _sum_pairs(
                words, n, near, width, theta, total, topics, rule, row, own, live[:n_live],
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
                n_left += mass[i] >= least
            settled, next_to_last = change < limit, step >= stop.steps - 2
            if n_live == n_topics and settled:
                break
            # Fewer topics are worth new rows where they fill at most half of the vectors.
            fewer = 2 * padded(n_left) <= width and not (rule.cvb0 or settled or next_to_last)
            all_again = n_live < n_topics and (settled or next_to_last)
            if fewer or all_again:
                for i in range(n_live):
                    row[live[i]] = own[i]
                n_left = 0
                for i in range(n_topics if all_again else n_live):
                    if all_again or mass[i] >= least:
                        live[n_left] = i if all_again else live[i]
                        n_left += 1
                n_live, width = n_left, padded(n_left)
                for i in range(n_live):
                    prior[i], own[i] = rule.alpha[live[i]], row[live[i]]
                _gather(topics.beta, length, words, live[:n_live], near, width)
        for i in range(n_live):
            row[live[i]] = own[i]


@kernel
def _gather(beta, length, words, live, near, width):
    """Put the live topics of a document's rows of beta side by side, each row `width` long."""
    n_live = live.shape[0]
    for j in range(words.shape[0]):
        source = beta[length * words[j] : length * (words[j] + 1)]
        target = near[width * j : width * (j + 1)]
        if width == length:
            for k in range(length):
                target[k] = source[k]
        else:
            for i in range(n_live):
                target[i] = source[live[i]]
            for i in range(n_live, width):
                target[i] = 0.0


@kernel
def _sum_pairs(
    words, counts, near, width, theta, total, topics, rule, row, own, live, pair_phi, extra
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
            at = (width * j, width * (j + 1), width * (j + 2), width * (j + 3))
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
        at_1 = (width * j,)
        (s_1,) = dot_1(theta, near, at_1, width)
        if s_1 >= least:
            mix_1(theta, total, near, at_1, (counts[j] / s_1,), width)
        elif not rule.cvb0:
            if not by_logs:
                by_logs = True
                extra[:] = 0.0
                for i in range(live.shape[0]):
                    row[live[i]] = own[i]
            word_row = topics.lambda_[topics.words[words[j]]]
            phi_by_logs_into(row, word_row, topics.log_topic, False, rule, pair_phi)
            for k in range(extra.shape[0]):
                extra[k] += counts[j] * pair_phi[k]
        j += 1
    return by_logs
