"""What the storages of LDA share: factor rows, the pair in the log domain, sums of a visit.

One visit updates phi of every pair of a block of words in a shard of documents:

    phi_dvk  is proportional to  E(gamma_dk) E(lambda_vk) / E(pi_k),      E(x) = exp(digamma(x))

With inference `cvb0`, E(x) = x: collapsed variational Bayes with a zero-order expansion. A pair's
own share is taken out of the counts by `exclusion`; where it is not, this is also expectation
maximisation for the most probable theta and beta under Dirichlet(alpha + 1), Dirichlet(eta + 1).

It is split as theta_dk = E(gamma_dk), once per (document, block), and
beta_vk = E(lambda_vk) / E(pi_k), once per (word, visit). Scaling a document's or a word's row
cancels in phi, so both are kept relative to the row's largest value: they cannot underflow as
rows. Values below 1e-19 of the largest are 0. A pair whose sum over topics falls below `Rule.least`
(its document and its word live in different topics) is done by `phi_by_logs_into`, without noise.

Scratch layout: word i of the visit owns `rows[2 n i : 2 n (i + 1)]`, n = padded(K): first its
factors beta, then the sum over documents of count theta / s, s = sum_k theta beta; of n phi itself
where something is left out of the counts. The sums are 0 between visits: who reads them last puts 0
there, when they are in the caches already.
"""

from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.few import Few, make_few, word_factors_of
from esvi_shm.families.lda.noise import add_noise
from esvi_shm.special import digamma, exp_digamma_row, log, power_row
from esvi_shm.vector import aligned, largest_of, padded, prefetch_row

#: Below this sum of products a pair is updated in the log domain. Factors are at most 1, and
#: those left out are below 1e-19, so above it they change phi by less than K 1e-7; tempered, see
#: `least_sum`.
TINY = np.float32(1e-12)
#: One over less is no number to float32.
LEAST_LARGEST = np.float32(1e-37)
#: A float32 sum over millions of documents stalls. So a word's sums go to float64 once so many of
#: its pairs have come in; that is looked at every so many rows. (To send all words' sums each time
#: took three quarters of a pass where a block had 70,000 words.)
FLUSH_ROWS = 2048
#: The same for sums over words, of what a visit moves from topic to topic.
FLUSH_WORDS = 1024


class Scratch(NamedTuple):
    """A worker's private arrays, reused by every visit; n = padded(K)."""

    rows: np.ndarray  # float32 (2 n words,): factors and running sums of the visit's words
    theta: np.ndarray  # float32 (n,): factors of the document at hand
    total: np.ndarray  # float32 (n,): of count beta / s over its words, or of n phi; moved mass
    norms: np.ndarray  # float32 (longest row,): s of its pairs
    pair_phi: np.ndarray  # float64 (K,): phi of a pair done in the log domain
    beat: np.ndarray  # int64 (1,), shared: counts rows done, a sign of life
    log_topic: np.ndarray  # float64 (K,): -log E(pi), tempered
    factor: np.ndarray  # float32 (n,): 1 / E(pi), relative
    inverse: np.ndarray  # float32 (n words,): 1 / lambda; (0,) where nothing is left out
    own: np.ndarray  # float32 (n,): 1 / gamma of the document at hand
    kept: np.ndarray  # float32 (8 n,): what `exclusion` keeps of the pairs at hand
    products: np.ndarray  # float32 (n,): theta beta of the pair at hand; `topk` only
    old: np.ndarray  # float32 (n,): its phi before, in `topk`; else a word's row
    extra: np.ndarray  # float64 (K,): n phi of a document's pairs in the log domain
    # Sums of the words that are too large for float32, or not products with beta. Most rows are
    # never touched, and take no memory then; those that are, `spilled` tells.
    spill: np.ndarray  # float64 (words, K), 0 between visits
    spilled: np.ndarray  # bool (words,), False between visits
    since: np.ndarray  # int32 (words,): pairs since the word's sums went there
    few: Few  # of rows that are near their prior for the most part


class Rule(NamedTuple):
    """What the updates need of the configuration: the priors, and what E is.

    gamma and lambda move by changes in float32. Where much mass has left a topic, what is left
    is the rounding of what was there, which may be below the prior and even below 0; so they
    are kept at least at the prior plus the margin just written, where they are in exact sums.
    """

    alpha: np.ndarray  # float32 (K,)
    eta: np.ndarray  # float32 (V,), by word row
    eta_total: float  # sum of eta over the vocabulary
    cvb0: bool  # E(x) = x, not exp(digamma(x))
    power: float  # of all factors; 1 unless tempered
    word_ids: np.ndarray  # int32 (V,), by word row
    noise: float  # strength of the noise on the words' factors
    noise_key: int  # of this visit
    leave_out: int  # what is taken out of the counts: a number of `exclusion`
    # Of `margins`: the step of a word's margin towards the new one, from 1 on.
    relax: np.float32 = np.float32(1.0)
    least: np.float32 = TINY  # below this sum of products a pair is updated in the log domain
    drop: bool = False  # of `topk`: what is not kept is dropped, not spread
    # For `active` alone:
    most_alpha: np.float32 = np.float32(0.0)  # the largest of alpha
    tolerance: np.float32 = np.float32(0.0)  # share of a pair's tokens outside its topics


def scratch_word_bytes(n_topics: int, leaves_out: bool) -> int:
    """Bytes of scratch for each word of a block: all that is large."""
    return (3 if leaves_out else 2) * padded(n_topics) * 4


def make_scratch(
    most_words: int, most_pairs: int, n_topics: int, beat: np.ndarray, leaves_out: bool
) -> Scratch:
    """Scratch for blocks of up to `most_words` words and rows of up to `most_pairs` pairs.

    Parameters
    ----------
    most_words, most_pairs, n_topics : int
    beat : int64 array, shape (1,)
    leaves_out : bool
        Whether some rule takes a pair's own share out.
    """
    length = padded(n_topics)
    return Scratch(
        aligned(2 * length * max(most_words, 1)),
        aligned(length),
        aligned(length),
        aligned(most_pairs),
        np.zeros(n_topics),
        beat,
        np.zeros(n_topics),
        aligned(length),
        aligned(length * most_words if leaves_out else 0),
        aligned(length),
        aligned(8 * length),
        aligned(length),
        aligned(length),
        np.zeros(n_topics),
        np.zeros((most_words, n_topics)),
        np.zeros(most_words, np.bool_),
        np.zeros(most_words, np.int32),
        make_few(n_topics),
    )


@kernel(inline="always")
def _log_factor(x, cvb0):
    """log E(x)."""
    return log(x) if cvb0 else digamma(x)


@kernel
def row_factors_into(x, out, rule):
    """E of each of a row to the rule's power, relative: near 1 at the largest.

    Parameters
    ----------
    x : float32 array, shape (K,)
        Positive.
    out : float32 array, shape (padded(K),)
        Written; scratch, which is 0 beyond K and stays so.
    rule : Rule
    """
    factors_into(x, out, rule.cvb0, rule.power)


@kernel
def factors_into(x, out, cvb0, power):
    """`row_factors_into` for hot loops: to hand over a whole rule takes as long as a pair."""
    if cvb0:
        n_topics = x.shape[0]
        scale = np.float32(1.0) / largest_of(x, 0, n_topics)
        for k in range(n_topics):
            out[k] = x[k] * scale
    else:
        exp_digamma_row(x, out)
    if power != 1.0:
        power_row(out, power)


def least_sum(cvb0: bool, power: float) -> np.float32:
    """`least` of a rule: `TINY`, and more where the power is small.

    Of factors to a power below 1 those that are left out may be larger: up to 1e-19 to that power.
    Above this sum they change phi by less than K 1e-4.

    >>> [float(f"{least_sum(False, power):.0e}") for power in (1.0, 0.9, 0.5)]
    [1e-12, 1e-12, 3e-06]
    """
    return TINY if cvb0 else max(TINY, np.float32(1e4 * 1e-19**power))


@kernel
def topic_factors_into(pi_others, pi_own, worker, rule, log_topic, factor):
    """The factor 1 / E(pi_k) relative to its largest, and its log.

    Parameters
    ----------
    pi_others : float64 array, shape (P, K)
        Every worker's contribution to pi; row `worker` is not read.
    pi_own : float64 array, shape (K,)
        This worker's live contribution.
    worker : int
        Index of this worker.
    rule : Rule
    log_topic : float64 array, shape (K,)
        Written: -log E(pi_k), times the rule's power.
    factor : float32 array, shape (padded(K),)
        Written: exp(log_topic - max(log_topic)), zero beyond K.
    """
    n_workers, n_topics = pi_others.shape
    for k in range(n_topics):
        log_topic[k] = pi_own[k] + rule.eta_total
    for p in range(n_workers):
        if p != worker:
            for k in range(n_topics):
                log_topic[k] += pi_others[p, k]
    largest = -np.inf
    for k in range(n_topics):
        # A stale row can only be off by what moved since; a column sum is never below eta's.
        total = max(log_topic[k], rule.eta_total)
        log_topic[k] = -rule.power * _log_factor(total, rule.cvb0)
        largest = max(largest, log_topic[k])
    for k in range(n_topics):
        factor[k] = np.exp(log_topic[k] - largest)
    factor[n_topics:] = 0.0


@kernel
def word_factors_into(
    lambda_, word_row, first, last, topic_factor, rule, eta, word_ids, few, rows
):  # fmt: skip
    """beta_vk = E(lambda_vk) / E(pi_k) of words first..last-1, relative.

    With the rule's noise, if any. (Pairs in the log domain go without: see `update`.) `eta` and
    `word_ids` are by row of `lambda_`.
    """
    length = topic_factor.shape[0]
    cvb0, power, noise = rule.cvb0, rule.power, rule.noise
    if not cvb0:
        word_factors_of(lambda_, word_row, first, last, eta, power, topic_factor, few, rows)
    for i in range(last - first if cvb0 else 0):
        at = 2 * length * i
        if first + i + 2 < last:
            prefetch_row(lambda_, word_row[first + i + 2])
        row = rows[at : at + length]
        factors_into(lambda_[word_row[first + i]], row, cvb0, power)
        for k in range(length):
            row[k] *= topic_factor[k]
    for i in range(last - first if noise > 0.0 else 0):
        row = rows[2 * length * i : 2 * length * i + length]
        word = word_ids[word_row[first + i]]
        add_noise(row, lambda_.shape[1], noise, rule.noise_key, word)


@kernel
def given_factors_into(topics, word_row, first, last, rows, length):
    """beta_vk = topics_vk over its largest value: point topics instead of E(lambda) / E(pi)."""
    n_topics = topics.shape[1]
    for i in range(last - first):
        row = rows[2 * length * i : 2 * length * i + length]
        weights = topics[word_row[first + i]]
        largest = np.float32(0.0)
        for k in range(n_topics):
            largest = max(largest, weights[k])
        if largest < LEAST_LARGEST:  # the word is in no topic: it says nothing of any
            row[:n_topics] = np.float32(1.0)
        else:
            scale = np.float32(1.0) / largest
            for k in range(n_topics):
                row[k] = weights[k] * scale
        row[n_topics:] = 0.0


@kernel
def phi_by_logs_into(gamma_row, word_row, log_topic, given, rule, phi):
    """phi of one pair by log-sum-exp, in float64; returns log of the normaliser.

    `word_row` is a row of lambda, or (`given`) of point topics. Nothing is left out.
    """
    n_topics = gamma_row.shape[0]
    largest = -np.inf
    for k in range(n_topics):
        if given:
            phi[k] = log(max(np.float64(word_row[k]), 1e-300))
        else:
            phi[k] = rule.power * _log_factor(np.float64(word_row[k]), rule.cvb0) + log_topic[k]
        phi[k] += rule.power * _log_factor(np.float64(gamma_row[k]), rule.cvb0)
        largest = max(largest, phi[k])
    total = 0.0
    for k in range(n_topics):
        phi[k] = np.exp(phi[k] - largest)
        total += phi[k]
    for k in range(n_topics):
        phi[k] /= total
    return largest + np.log(total)


@kernel
def entropy(phi):
    """- sum phi log phi, with 0 log 0 = 0."""
    total = 0.0
    for k in range(phi.shape[0]):
        total -= phi[k] * log(max(phi[k], 1e-300))
    return total


@kernel
def count_pairs(shard, first_word, row, since):
    """Add the pairs of the last `FLUSH_ROWS` rows before `row` to those of each word."""
    pair_word, row_ptr = shard.pair_word, shard.row_ptr
    for j in range(row_ptr[row - FLUSH_ROWS], row_ptr[row]):
        since[pair_word[j] - first_word] += 1


@kernel
def flush_sums(rows, length, n_topics, n_words, with_beta, since, spill, spilled):
    """Add the running sums, or beta times them, to the float64 sums of the words due for it.

    Due are those of `FLUSH_ROWS` pairs since the last time; their sums and pairs start at 0 again.
    """
    for i in range(n_words):
        if since[i] < FLUSH_ROWS:
            continue
        since[i], spilled[i] = 0, True
        row = rows[2 * length * i : 2 * length * (i + 1)]
        total = spill[i]
        for k in range(n_topics):
            beta = np.float64(row[k]) if with_beta else 1.0
            total[k] += beta * np.float64(row[length + k])
            row[length + k] = 0.0


@kernel
def flush_moved(moved, pi_own):
    """Add what was moved to the float64 sums, shape (K,) both; start it at 0."""
    for k in range(pi_own.shape[0]):
        pi_own[k] += moved[k]
        moved[k] = 0.0


@kernel
def cross_entropy(mass, factor, n_topics):
    """- sum over k of mass_k log factor_k; where the factor is 0 the mass is 0 too."""
    total = 0.0
    for k in range(n_topics):
        total -= np.float64(mass[k]) * log(max(np.float64(factor[k]), 1e-300))
    return total
