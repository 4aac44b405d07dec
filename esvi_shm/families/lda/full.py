"""Storage `full`: phi of every pair is kept.

    phi[j, k] = phi_dvk of the shard's pair j

The same updates as `margins` where these are not over-relaxed and words settle as often, with the
margins' changes taken from the change of each phi. It needs K floats for every pair and is slower;
it is here because the paper states its algorithm on phi, and as a check of `margins`.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.desk import prepare
from esvi_shm.families.lda.exclusion import (
    NONE,
    amount_of,
    inverse_row_into,
    leave_out_of,
    sum_1,
)
from esvi_shm.families.lda.starts.random import random_phi_into
from esvi_shm.families.lda.update import (
    FLUSH_ROWS,
    FLUSH_WORDS,
    count_pairs,
    entropy,
    flush_moved,
    phi_by_logs_into,
    row_factors_into,
)

#: What the storage keeps of phi; see `margins.ARRAYS`.
ARRAYS = (("phi", "pair", "topic", "responsibilities of each (document, word) pair"),)


@kernel
def sweep(shard, block, gamma, lambda_, phi, rule, given, want_words, want_entropy, scratch):
    """Update phi of every pair of a block in a shard, document by document.

    Parameters and result as `margins.sweep`. The words' sums hold the *change* of
    sum_d n phi here, in float64 in `spill` after each flush.
    """
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr = shard.row_doc, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    block_word_ptr = shard.block_word_ptr
    rows, theta, total = scratch.rows, scratch.theta, scratch.total
    pair_phi, beat = scratch.pair_phi, scratch.beat
    own, inverse, kept = scratch.own, scratch.inverse, scratch.kept
    excluding, least = rule.leave_out != NONE, rule.least
    stored = phi[0]
    n_topics = gamma.shape[1]
    length = theta.shape[0]
    first_word = block_word_ptr[block]
    n_words = block_word_ptr[block + 1] - first_word
    since, spill, spilled = scratch.since, scratch.spill, scratch.spilled
    since[:n_words] = 0
    bound = 0.0
    first_row = block_row_ptr[block]
    for r in range(first_row, block_row_ptr[block + 1]):
        if want_words and r > first_row and (r - first_row) % FLUSH_ROWS == 0:
            count_pairs(shard, first_word, r, since)
            flush_changes(rows, length, n_words, since, spill, spilled)
        beat[0] += 1
        gamma_row = gamma[row_doc[r]]
        row_factors_into(gamma_row, theta, rule)
        if excluding:
            inverse_row_into(gamma_row, own)
        total[:] = 0.0
        for j in range(row_ptr[r], row_ptr[r + 1]):
            i = pair_word[j] - first_word
            at = 2 * length * i
            factor = rows[at : at + length]
            change = rows[at + length : at + 2 * length]
            count = pair_count[j]
            old = stored[j]
            amount = amount_of(count, rule.leave_out)
            s = sum_1(theta, own, rows, inverse, (at,), amount, excluding, least, kept, length)
            if s >= least:
                scale = np.float32(1.0) / s
                for k in range(n_topics):
                    new = (kept[k] if excluding else theta[k] * factor[k]) * scale
                    total[k] += count * (new - old[k])
                    change[k] += count * (new - old[k])
                    old[k] = new
            else:
                phi_by_logs_into(
                    gamma_row,
                    lambda_[word_row[first_word + i]],
                    scratch.log_topic,
                    given,
                    rule,
                    pair_phi,
                )
                if excluding:
                    word_lambda = lambda_[word_row[first_word + i]]
                    leave_out_of(pair_phi, gamma_row, word_lambda, np.float64(amount))
                for k in range(n_topics):
                    new = np.float32(pair_phi[k])
                    total[k] += count * (new - old[k])
                    change[k] += count * (new - old[k])
                    old[k] = new
            if want_entropy:
                bound += np.float64(count) * entropy(old)
        for k in range(n_topics):
            gamma_row[k] = max(gamma_row[k] + total[k], rule.alpha[k])
    return bound


@kernel
def flush_changes(rows, length, n_words, since, spill, spilled):
    """As `update.flush_sums`, of the running changes."""
    n_topics = spill.shape[1]
    for i in range(n_words):
        if since[i] < FLUSH_ROWS:
            continue
        since[i], spilled[i] = 0, True
        change = rows[2 * length * i + length : 2 * length * (i + 1)]
        for k in range(n_topics):
            spill[i, k] += change[k]
            change[k] = 0.0


@kernel
def settle_words(shard, block, lambda_, eta, frozen, scratch, pi_own):
    """Put the words' changes into lambda and pi, unless `frozen`."""
    word_row, block_word_ptr = shard.word_row, shard.block_word_ptr
    rows, length = scratch.rows, scratch.theta.shape[0]
    spill, spilled = scratch.spill, scratch.spilled
    n_topics = lambda_.shape[1]
    first = block_word_ptr[block]
    moved = scratch.total[:n_topics]
    moved[:] = 0.0
    for i in range(block_word_ptr[block + 1] - first):
        lambda_row = lambda_[word_row[first + i]]
        prior = eta[word_row[first + i]]
        change = rows[2 * length * i + length : 2 * length * (i + 1)]
        if spilled[i]:
            spilled[i], more = False, spill[i]
            for k in range(n_topics):
                change[k] += more[k]
                more[k] = 0.0
        for k in range(n_topics):
            moved[k] += change[k]
            if not frozen:
                lambda_row[k] = max(lambda_row[k] + change[k], prior)
            change[k] = 0.0
        if i % FLUSH_WORDS == FLUSH_WORDS - 1 and not frozen:
            flush_moved(moved, pi_own)
    if not frozen:
        flush_moved(moved, pi_own)


@kernel(allocates=True)
def visit(desk, block, given, frozen, want_words, want_entropy):
    """One visit of a block to a shard; parameters and result as `margins.visit`.

    Also the same steps: a kernel that is handed `sweep` and `settle_words` as arguments would
    not be kept in numba's disk cache.
    """
    prepare(desk, block, given)
    lambda_, phi, rule, scratch = desk.lambda_, desk.phi, desk.rule, desk.scratch
    bound = sweep(
        desk.shard, block, desk.gamma, lambda_, phi, rule, given, want_words, want_entropy, scratch
    )
    if want_words:
        pi_own = desk.pi[1][desk.worker]
        settle_words(desk.shard, block, lambda_, rule.eta, frozen, scratch, pi_own)
    return bound


@kernel
def set_uniform(shard, gamma, phi, alpha):
    """phi = 1 / K for every pair, and gamma to match."""
    phi[0][:] = 1.0 / gamma.shape[1]
    sum_documents(shard, gamma, phi, alpha)


@kernel(allocates=True)
def set_random(shard, phi, first_document, word_ids, seed, pair_phi):
    """phi of every pair uniform on the simplex; returns H by block."""
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr = shard.row_doc, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    stored = phi[0]
    entropies = np.zeros(block_row_ptr.shape[0] - 1)
    for b in range(entropies.shape[0]):
        for r in range(block_row_ptr[b], block_row_ptr[b + 1]):
            for j in range(row_ptr[r], row_ptr[r + 1]):
                word = word_ids[word_row[pair_word[j]]]
                pair = (first_document + row_doc[r]) * word_ids.shape[0] + word
                random_phi_into(pair_phi, pair, seed)
                stored[j] = pair_phi
                entropies[b] += pair_count[j] * entropy(pair_phi)
    return entropies


@kernel
def sum_documents(shard, gamma, phi, alpha):
    """gamma_d = alpha + sum over its pairs of n phi."""
    pair_count, row_doc, row_ptr = shard.pair_count, shard.row_doc, shard.row_ptr
    stored = phi[0]
    for d in range(gamma.shape[0]):
        for k in range(gamma.shape[1]):
            gamma[d, k] = alpha[k]
    for r in range(row_doc.shape[0]):
        row = gamma[row_doc[r]]
        for j in range(row_ptr[r], row_ptr[r + 1]):
            for k in range(gamma.shape[1]):
                row[k] += pair_count[j] * stored[j, k]


@kernel
def add_words(shard, block, phi, first_row, sums):
    """Add this shard's sum of n phi to `sums`, float64, for its word rows from `first_row`."""
    pair_word, pair_count, row_ptr = shard.pair_word, shard.pair_count, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    stored = phi[0]
    for j in range(row_ptr[block_row_ptr[block]], row_ptr[block_row_ptr[block + 1]]):
        at = word_row[pair_word[j]] - first_row
        if 0 <= at < sums.shape[0]:
            for k in range(stored.shape[1]):
                sums[at, k] += np.float64(pair_count[j]) * np.float64(stored[j, k])
