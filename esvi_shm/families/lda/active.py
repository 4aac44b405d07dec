"""Active sets: a visit that updates only the topics that a document and a word live in.

A document lives in the topics whose share of its tokens, gamma - alpha, is above `DOCUMENT_CUT`
of its largest; a word in those where lambda - eta is above `WORD_CUT` of its largest. phi of a
pair moves among the topics of both (Lemma 1 of the paper: any subset may be updated alone), so
its cost does not depend on K. After some passes a document lives in 15 to 30 topics, however many
there are.

Nothing is left out unseen. Of each pair the mass that the update over all topics would put
elsewhere is at most e B / s of its tokens, with e the largest factor of a topic that the document
does not live in, B the sum of the word's factors, and s the sum over the topics of both. Where
that is above `Rule.tolerance`, the pair is updated over all topics of the word: so a document
finds new topics.

The state is that of storage `margins`, and so is the order of the updates. Lists are made anew in
each visit, from gamma and lambda; what a margin held outside of them is taken back.

The words of a visit lie one after the other in `places`, each as three rows: its factors, its sums,
its topics. What a pair takes is then often in three neighbouring lines of the cache. A word of few
topics has its factors and sums in the order of its topics; a word of many has them in the place of
each topic.
"""

from typing import NamedTuple

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.noise import add_noise
from esvi_shm.families.lda.update import (
    FLUSH_ROWS,
    FLUSH_WORDS,
    flush_moved,
    phi_by_logs_into,
    row_factors_into,
    topic_factors_into,
)
from esvi_shm.listed import above_into, dot_listed, mix_listed
from esvi_shm.special import log
from esvi_shm.vector import LANES, padded, prefetch_lines, prefetch_row

DOCUMENT_CUT = np.float32(1e-3)
WORD_CUT = np.float32(1e-5)
#: What is no more above its prior is rounding.
ROUNDING = np.float32(4e-6)
#: Words with more topics have a whole row: then a document's list is the shorter one.
MOST_COMPACT = 48
#: Pairs between the one at hand and the one whose rows are asked for.
AHEAD = 4
#: Below this sum of products a pair is done in the log domain.
LEAST_SUM = np.float32(1e-25)


class Lists(NamedTuple):
    """A worker's private arrays for active sets; n = padded(K)."""

    rows: np.ndarray  # float32 (3 n words,): the words' rows; 0 between visits
    topics: np.ndarray  # int32 (3 n words,): the same memory
    start: np.ndarray  # int64 (words,): where the word's rows begin
    width: np.ndarray  # int64 (words,): how long its rows are
    n_topics: np.ndarray  # int64 (words,): how many topics it has
    mass: np.ndarray  # float32 (words,): sum of the word's factors
    own: np.ndarray  # int32 (n,): topics of the document at hand
    own_total: np.ndarray  # float32 (n,): sum of count beta / s, in the order of `own`
    taken: np.ndarray  # float32 (n,): what `dot_listed` took for `mix_listed`
    x: np.ndarray  # float32 (n,): parameters in the order of a list
    factors: np.ndarray  # float32 (n,): their factors
    every: np.ndarray  # float32 (n,): factors of the document at hand, all topics
    outside: np.ndarray  # float32 (n,): sum of count beta / s of pairs over all topics of the word
    zeros: np.ndarray  # float32 (n,)


def word_bytes(n_topics: int) -> int:
    """Bytes of lists for each word of a block, at most: what is not used is not touched."""
    return 3 * padded(n_topics) * 4


def make_lists(most_words: int, n_topics: int) -> Lists:
    """Lists for blocks of up to `most_words` words; memory that is not used is not touched."""
    n = padded(n_topics) + 16
    rows = np.zeros(3 * padded(n_topics) * most_words, np.float32)
    return Lists(
        rows,
        rows.view(np.int32),
        np.zeros(most_words, np.int64),
        np.zeros(most_words, np.int64),
        np.zeros(most_words, np.int64),
        np.zeros(most_words, np.float32),
        np.zeros(n, np.int32),
        *(np.zeros(n, np.float32) for _ in range(7)),
    )


@kernel
def _list_words(shard, block, lambda_, phi_word, rule, topic_factor, lists, pi_own):
    """List the topics of each word of a block, with their factors."""
    word_row, rows = shard.word_row, lists.rows
    first, last = shard.block_word_ptr[block], shard.block_word_ptr[block + 1]
    n_topics, length = lambda_.shape[1], topic_factor.shape[0]
    x, factors, zeros = lists.x, lists.factors, lists.zeros[:n_topics]
    listed, topics = lists.own, lists.topics
    at = 0
    for i in range(last - first):
        word = word_row[first + i]
        if first + i + 2 < last:
            prefetch_row(lambda_, word_row[first + i + 2])
        lambda_row, old = lambda_[word], phi_word[first + i]
        prior = rule.eta[word]
        n_above = above_into(lambda_row, zeros, prior + prior * ROUNDING, listed)
        if n_above == 0:  # so few tokens that float32 cannot tell: in all topics
            n_above = above_into(lambda_row, zeros, np.float32(0.0), listed)
        largest = np.float32(0.0)
        for j in range(n_above):
            largest = max(largest, lambda_row[listed[j]] - prior)
        cut = largest * WORD_CUT
        n = 0
        for j in range(n_above):
            k = listed[j]
            if lambda_row[k] - prior >= cut:
                x[n] = lambda_row[k]
                listed[n] = k
                n += 1
            elif old[k] > 0.0:
                lambda_row[k] = max(lambda_row[k] - old[k], prior)
                pi_own[k] -= old[k]
                old[k] = 0.0
        lists.n_topics[i] = n
        row_factors_into(x[:n], factors, rule)
        if rule.noise > 0.0:
            add_noise(factors, n, rule.noise, rule.noise_key, rule.word_ids[word])
        mass = np.float32(0.0)
        end = -(-n // LANES) * LANES
        width = length if n > MOST_COMPACT else end
        for j in range(n):
            value = factors[j] * topic_factor[listed[j]]
            rows[at + (listed[j] if n > MOST_COMPACT else j)] = value
            topics[at + 2 * width + j] = listed[j]
            mass += value
        lists.start[i], lists.width[i] = at, width
        at += 2 * width + end
        lists.mass[i] = mass


@kernel
def _update_outside(i, count, lists):
    """Update one pair over all topics of its word; returns their sum s, below which it is not."""
    every, outside, rows, topics = lists.every, lists.outside, lists.rows, lists.topics
    n, start, width = lists.n_topics[i], lists.start[i], lists.width[i]
    s = np.float32(0.0)
    for j in range(n):
        k = topics[start + 2 * width + j]
        s += every[k] * rows[start + (k if n > MOST_COMPACT else j)]
    if s >= LEAST_SUM:
        weight = count / s
        for j in range(n):
            k = topics[start + 2 * width + j]
            at = start + (k if n > MOST_COMPACT else j)
            outside[k] += weight * rows[at]
            rows[at + width] += weight * every[k]
    return s


@kernel
def _update_by_logs(
    gamma_row, lambda_row, i, count, rule, log_topic, lists, document_mass, word_mass
):
    """The same in the log domain: adds the mass; returns its share of H but for the words'."""
    n, start = lists.n_topics[i], lists.start[i]
    first = start + 2 * lists.width[i]
    listed = lists.topics[first : first + n]
    phi = np.empty(n)
    phi_by_logs_into(
        gamma_row[listed], lambda_row[listed], log_topic[listed], False, rule, phi
    )  # rare: copies do not matter
    entropy = 0.0
    for j in range(n):
        place = listed[j] if n > MOST_COMPACT else j
        document_mass[listed[j]] += count * phi[j]
        word_mass[place] += count * phi[j]
        # `_settle` will take all mass of the word times log beta off again.
        beta = np.float64(lists.rows[start + place])
        entropy += phi[j] * (log(max(beta, 1e-300)) - log(max(phi[j], 1e-300)))
    return count * entropy


@kernel
def _sweep(shard, block, gamma, lambda_, phi_doc, rule, want_entropy, scratch, lists):
    """Update phi of every pair of a block in a shard, document by document; returns H and spill.

    As `margins.sweep`, over the topics of both document and word.
    """
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr, word_row = shard.row_doc, shard.row_ptr, shard.word_row
    first_word = shard.block_word_ptr[block]
    n_words = shard.block_word_ptr[block + 1] - first_word
    rows, theta, total = lists.rows, scratch.theta, scratch.total
    own, x, factors = lists.own, lists.x, lists.factors
    own_total, taken = lists.own_total, lists.taken
    topics, starts, widths = lists.topics, lists.start, lists.width
    n_of, mass_of = lists.n_topics, lists.mass
    n_topics, length = gamma.shape[1], theta.shape[0]
    theta[:] = 0.0
    total[:] = 0.0
    spill = np.zeros((0, 0))
    extra = np.zeros(n_topics)
    bound = 0.0
    first_row, last_row = shard.block_row_ptr[block], shard.block_row_ptr[block + 1]
    last_pair = row_ptr[last_row] - 1
    for r in range(first_row, last_row):
        if r > first_row and (r - first_row) % FLUSH_ROWS == 0:
            if spill.shape[0] == 0:
                spill = np.zeros((n_words, length))
            _flush_sums(lists, spill)
        scratch.beat[0] += 1
        gamma_row, old = gamma[row_doc[r]], phi_doc[r]
        if r + 1 < last_row:
            prefetch_row(gamma, row_doc[r + 1])
        n_above = above_into(gamma_row, rule.alpha, rule.most_alpha * ROUNDING, own)
        if n_above == 0:  # as for words
            n_above = above_into(gamma_row, lists.zeros[:n_topics], np.float32(0.0), own)
        largest = np.float32(0.0)
        for a in range(n_above):
            largest = max(largest, gamma_row[own[a]] - rule.alpha[own[a]])
        cut = largest * DOCUMENT_CUT
        beyond = rule.most_alpha
        n_own = 0
        for a in range(n_above):
            k = own[a]
            if gamma_row[k] - rule.alpha[k] >= cut:
                x[n_own] = gamma_row[k]
                own[n_own] = k
                n_own += 1
                continue
            if old[k] > 0.0:
                gamma_row[k] = max(gamma_row[k] - old[k], rule.alpha[k])
                old[k] = 0.0
            beyond = max(beyond, gamma_row[k])
        x[n_own] = beyond
        row_factors_into(x[: n_own + 1], factors, rule)
        limit = factors[n_own] / rule.tolerance if n_own < n_topics else np.float32(0.0)
        for a in range(n_own):
            theta[own[a]] = factors[a]
        slow = False
        factors[n_own : n_own + LANES] = 0.0
        own[n_own : n_own + LANES] = 0
        own_total[: n_own + LANES] = 0.0
        for j in range(row_ptr[r], row_ptr[r + 1]):
            i = pair_word[j] - first_word
            # Of a later row too: its pairs follow at once. (One beyond the last is not read.)
            prefetch_lines(rows, starts[pair_word[min(j + AHEAD, last_pair)] - first_word])
            n, at, width = n_of[i], starts[i], widths[i]
            if n > MOST_COMPACT:
                s = dot_listed(factors, 0, rows, at, own, 0, n_own, taken)
            else:
                s = dot_listed(rows, at, theta, 0, topics, at + 2 * width, n, taken)
            if s < LEAST_SUM or limit * mass_of[i] > s:
                if not slow:
                    slow = True
                    row_factors_into(gamma_row, lists.every, rule)
                s = _update_outside(i, pair_count[j], lists)
                if s < LEAST_SUM:
                    if spill.shape[0] == 0:
                        spill = np.zeros((n_words, length))
                    bound += _update_by_logs(
                        gamma_row, lambda_[word_row[first_word + i]], i,
                        np.float64(pair_count[j]), rule, scratch.log_topic, lists, extra, spill[i],
                    )  # fmt: skip
                elif want_entropy:
                    bound += np.float64(pair_count[j]) * log(np.float64(s))
                continue
            weight = pair_count[j] / s
            if n > MOST_COMPACT:
                mix_listed(factors, 0, own_total, 0, rows, at + width, own, 0, n_own, taken, weight)
            else:
                mix_listed(
                    rows, at, rows, at + width, total, 0, topics, at + 2 * width, n, taken, weight
                )
            if want_entropy:
                bound += np.float64(pair_count[j]) * log(np.float64(s))
        for a in range(n_own):
            total[own[a]] += own_total[a]
        for a in range(n_own):
            k = own[a]
            total[k] *= theta[k]
            if want_entropy:
                bound -= np.float64(total[k]) * log(max(np.float64(theta[k]), 1e-300))
        if slow:
            for k in range(n_topics):
                total[k] += lists.outside[k] * lists.every[k]
                if want_entropy and lists.outside[k] > 0.0:
                    mass = np.float64(lists.outside[k]) * np.float64(lists.every[k])
                    bound -= mass * log(max(np.float64(lists.every[k]), 1e-300))
                total[k] += extra[k]
                lists.outside[k] = 0.0
                extra[k] = 0.0
            for k in range(n_topics):
                gamma_row[k] = max(gamma_row[k] + (total[k] - old[k]), rule.alpha[k] + total[k])
                old[k] = total[k]
                total[k] = 0.0
                theta[k] = 0.0
        else:
            for a in range(n_own):
                k = own[a]
                gamma_row[k] = max(gamma_row[k] + (total[k] - old[k]), rule.alpha[k] + total[k])
                old[k] = total[k]
                total[k] = 0.0
                theta[k] = 0.0
    return bound, spill


@kernel
def _flush_sums(lists, spill):
    """Add beta times the running sums to the float64 sums of each word; start the sums at 0."""
    rows = lists.rows
    for i in range(spill.shape[0]):
        n, start, width = lists.n_topics[i], lists.start[i], lists.width[i]
        for j in range(n):
            place = lists.topics[start + 2 * width + j] if n > MOST_COMPACT else j
            at = start + place
            spill[i, place] += np.float64(rows[at]) * np.float64(rows[at + width])
            rows[at + width] = 0.0


@kernel
def _settle(shard, block, lambda_, phi_word, eta, want_entropy, lists, moved, spill, pi_own):
    """Turn the words' sums into phi_word, and put the change into lambda and pi; returns H."""
    word_row, rows, topics = shard.word_row, lists.rows, lists.topics
    first, last = shard.block_word_ptr[block], shard.block_word_ptr[block + 1]
    bound = 0.0
    moved[:] = 0.0
    for i in range(last - first):
        n, start, width = lists.n_topics[i], lists.start[i], lists.width[i]
        word = word_row[first + i]
        old, lambda_row, prior = phi_word[first + i], lambda_[word], eta[word]
        for j in range(n):
            k = topics[start + 2 * width + j]
            place = k if n > MOST_COMPACT else j
            at = start + place
            new = rows[at] * rows[at + width]
            if spill.shape[0] > 0:
                new += np.float32(spill[i, place])
            if want_entropy:
                bound -= np.float64(new) * log(max(np.float64(rows[at]), 1e-300))
            change = new - old[k]
            moved[k] += change
            lambda_row[k] = max(lambda_row[k] + change, prior + new)
            old[k] = new
            rows[at] = 0.0
            rows[at + width] = 0.0
        # The last vector's sums beyond a short list, and the topics.
        rows[start + width + (n if n <= MOST_COMPACT else width) : start + 2 * width + n] = 0.0
        if i % FLUSH_WORDS == FLUSH_WORDS - 1:
            flush_moved(moved, pi_own)
    flush_moved(moved, pi_own)
    return bound


@kernel
def visit(shard, block, gamma, lambda_, phi, pi, rule, worker, want_entropy, scratch, lists):
    """One visit of a block to a shard, over the active sets; see `margins.visit`.

    Returns
    -------
    float
        H of this block in this shard, - sum n phi log phi; 0 without `want_entropy`.
    """
    pi_others, pi_rows = pi
    phi_doc, phi_word = phi
    topic_factors_into(pi_others, pi_rows[worker], worker, rule, scratch.log_topic, scratch.factor)
    _list_words(shard, block, lambda_, phi_word, rule, scratch.factor, lists, pi_rows[worker])
    bound, spill = _sweep(shard, block, gamma, lambda_, phi_doc, rule, want_entropy, scratch, lists)
    return bound + _settle(
        shard, block, lambda_, phi_word, rule.eta, want_entropy, lists, scratch.total, spill,
        pi_rows[worker],
    )  # fmt: skip
