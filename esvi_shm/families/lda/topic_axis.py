"""The topic axis: topics travel, and words stay in the shards with their documents.

A worker that holds the topics S owns their columns of lambda and pi, and updates phi on S alone. By
Lemma 1 of the paper the mass that a pair has on S stays there:

    phi_dvk = C E(gamma_dk) E(lambda_vk) / E(pi_k) / sum over k' in S of the same,   k in S,
    C = sum over k in S of phi_dvk before

Workers touch disjoint documents and disjoint topics, and all that an update reads is their own, pi
included. So the bound F never falls, at any number of workers, where on the word axis it is only
sure to rise with one. But mass moves only between topics that are held together: the more meet the
better (`Worker.visit_together`). Storage is `full`, for C is phi's.

From node to node topics take their columns of lambda along, and `pi_total`, from which a node that
they come to has what all others contribute to their pi, exactly. Rows of lambda lie in memory as
they do on one node, and a column has a part of every page: so every node has room for all of
lambda, which is less than its phi. At rest each sums up its own documents, and nodes add that up.

Within a visit one block of words after the other is gone through as on the word axis: gamma moves
document by document, lambda and pi at the end of the block.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.noise import add_noise
from esvi_shm.families.lda.update import (
    entropy,
    factors_into,
    phi_by_logs_into,
    topic_factors_into,
)
from esvi_shm.vector import dot_1, padded


@kernel(allocates=True)
def visit(desk, topics):
    """Update phi on some topics, for all pairs of a shard; and gamma, lambda and pi of them.

    Parameters
    ----------
    desk : Desk
        Of storage `full`. On S no other worker writes any row of pi now. Nothing is left out,
        whatever its rule says.
    topics : int64 array, shape (n,)
        Those that are held, S; ascending.
    """
    shard, gamma, lambda_, phi = desk.shard, desk.gamma, desk.lambda_, desk.phi
    worker, rule, scratch, pi_rows = desk.worker, desk.rule, desk.scratch, desk.pi[1]
    n, length = topics.shape[0], padded(topics.shape[0])
    word_row, block_word_ptr, block_row_ptr = (
        shard.word_row,
        shard.block_word_ptr,
        shard.block_row_ptr,
    )
    pi_own = pi_rows[worker]
    log_topic, factor = np.empty(n), np.zeros(length, np.float32)
    contributions = np.empty((pi_rows.shape[0], n))
    x = np.empty(n, np.float32)
    rows = scratch.rows
    for block in range(block_word_ptr.shape[0] - 1):
        first, last = block_word_ptr[block], block_word_ptr[block + 1]
        if first == last:
            continue
        for p in range(pi_rows.shape[0]):
            for i in range(n):
                contributions[p, i] = pi_rows[p, topics[i]]
        topic_factors_into(contributions, contributions[worker], worker, rule, log_topic, factor)
        for w in range(last - first):
            for i in range(n):
                x[i] = lambda_[word_row[first + w], topics[i]]
            row = rows[length * w : length * (w + 1)]
            row[:] = 0.0
            factors_into(x, row, rule.cvb0, rule.power)
            for i in range(n):
                row[i] *= factor[i]
            if rule.noise > 0.0:
                word = rule.word_ids[word_row[first + w]]
                add_noise(row, n, rule.noise, rule.noise_key, word)
        change = np.zeros((last - first, n))
        for r in range(block_row_ptr[block], block_row_ptr[block + 1]):
            scratch.beat[0] += 1
            _update_row(
                shard, r, first, topics, gamma, lambda_, phi, rule, log_topic, scratch, change
            )
        for w in range(last - first):
            word = word_row[first + w]
            for i in range(n):
                k = topics[i]
                pi_own[k] += change[w, i]
                moved = lambda_[word, k] + np.float32(change[w, i])
                lambda_[word, k] = max(moved, rule.eta[word])
    scratch.rows[:] = 0.0  # what lies beyond K must be 0 in a visit of the word axis


@kernel
def _update_row(shard, r, first, topics, gamma, lambda_, phi, rule, log_topic, scratch, change):
    """Update the pairs of one (document, block of words); `change` (words, n) is added to."""
    n, length = topics.shape[0], padded(topics.shape[0])
    gamma_row, stored, rows = gamma[shard.row_doc[r]], phi[0], scratch.rows
    # In the order of `topics`, so that all but the two loops over phi run along memory.
    x, theta, total = scratch.own[:n], scratch.theta[:length], scratch.total[:n]
    before, after = scratch.old[:n], scratch.products[:n]
    for i in range(n):
        x[i] = gamma_row[topics[i]]
        total[i] = 0.0
    theta[:] = 0.0
    factors_into(x, theta, rule.cvb0, rule.power)
    for j in range(shard.row_ptr[r], shard.row_ptr[r + 1]):
        w, count, phi_row = shard.pair_word[j] - first, shard.pair_count[j], stored[j]
        mass = np.float32(0.0)
        for i in range(n):
            before[i] = phi_row[topics[i]]
            mass += before[i]
        if mass == 0.0:
            continue
        s = dot_1(theta, rows, (length * w,), length)[0]
        if s >= rule.least:
            scale, factor = mass / s, rows[length * w : length * w + n]
            for i in range(n):
                after[i] = theta[i] * factor[i] * scale
        else:
            of_word, of_pair = scratch.kept[:n], scratch.pair_phi[:n]
            for i in range(n):
                of_word[i] = lambda_[shard.word_row[first + w], topics[i]]
            phi_by_logs_into(x, of_word, log_topic, False, rule, of_pair)
            for i in range(n):
                after[i] = mass * of_pair[i]
        moved = change[w]
        for i in range(n):
            before[i] = count * (after[i] - before[i])
            total[i] += before[i]
            moved[i] += before[i]
        for i in range(n):
            phi_row[topics[i]] = after[i]
    for i in range(n):
        k = topics[i]
        gamma_row[k] = max(gamma_row[k] + total[i], rule.alpha[k])


@kernel
def tidy(shard, phi, entropies):
    """Make each phi sum to 1 again, which rounding took it from; H of each block, shape (B,)."""
    pair_count, row_ptr, block_row_ptr = shard.pair_count, shard.row_ptr, shard.block_row_ptr
    stored = phi[0]
    for block in range(entropies.shape[0]):
        entropies[block] = 0.0
        for j in range(row_ptr[block_row_ptr[block]], row_ptr[block_row_ptr[block + 1]]):
            total = 0.0
            for k in range(stored.shape[1]):
                total += np.float64(stored[j, k])
            scale = np.float32(1.0 / total)
            for k in range(stored.shape[1]):
                stored[j, k] *= scale
            entropies[block] += np.float64(pair_count[j]) * entropy(stored[j])
