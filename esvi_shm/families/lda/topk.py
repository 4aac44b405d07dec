"""Storage `topk`: of each pair's K responsibilities the C largest, and one number for the others.

    phi_dvk = kept[j, c] where k = kept_topic[j, c],  rest[j] for any other k      (j: the pair)

A visit computes all K responsibilities of a pair, as `full` does, and keeps the C largest. What is
left of the mass is spread evenly over the other K - C topics (residual `spread`), or dropped and
the kept ones divided by their sum (`drop`, L-sparse). Either way phi sums to 1, so gamma and lambda
keep their mass, and with C = K the iterates are those of `full`. A start and a loan of `repair`
spread what is left under `drop` too; the first visit drops it.

F is that of the phi held, with the entropy of what is spread: it lies below the evidence, and
below L, as ever. But phi is no longer the best one for gamma and lambda, so neither F nor the
objective need rise from pass to pass unless C = K: they come to rest lower, the smaller C is.

Source: Zhang et al. 2019, section 5 and appendix A (ESVI-LDA-TOPK); `largest` does the work of
their min-heap.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.desk import prepare
from esvi_shm.families.lda.full import flush_changes, settle_words
from esvi_shm.families.lda.largest import exchange, keep_largest, multiply_into
from esvi_shm.families.lda.repair import LENT, STAYS
from esvi_shm.families.lda.starts.random import random_phi_into
from esvi_shm.families.lda.update import (
    FLUSH_ROWS,
    count_pairs,
    entropy,
    phi_by_logs_into,
    row_factors_into,
)
from esvi_shm.special import log
from esvi_shm.vector import padded

#: What the storage keeps of phi; see `full.ARRAYS`.
ARRAYS = (
    ("kept_topic", "pair", "kept topic", "topics with the largest responsibilities of a pair"),
    ("kept", "pair", "kept", "their responsibilities"),
    ("rest", "pair", "one", "responsibility of each other topic of a pair"),
)


@kernel
def sweep(shard, block, gamma, lambda_, phi, rule, given, want_words, want_entropy, scratch):
    """Update phi of every pair of a block in a shard, document by document.

    Parameters and result as `full.sweep`, with phi the tuple of `ARRAYS`.
    """
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr = shard.row_doc, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    block_word_ptr = shard.block_word_ptr
    rows, theta, total = scratch.rows, scratch.theta, scratch.total
    products, old = scratch.products, scratch.old
    pair_phi, beat = scratch.pair_phi, scratch.beat
    bits = products.view(np.int32)
    least = rule.least
    kept_topic, kept, rest = phi
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
        total[:] = 0.0
        for j in range(row_ptr[r], row_ptr[r + 1]):
            i = pair_word[j] - first_word
            at = 2 * length * i
            expand_into(kept_topic, kept, rest, j, old)
            if multiply_into(theta, rows, at, products, length) < least:
                phi_by_logs_into(
                    gamma_row,
                    lambda_[word_row[first_word + i]],
                    scratch.log_topic,
                    given,
                    rule,
                    pair_phi,
                )
                for k in range(n_topics):
                    products[k] = pair_phi[k]
            limit, scale, others = keep_largest(
                products, bits, kept_topic, kept, j, n_topics, rule.drop
            )
            rest[j] = others
            # Over all topics, in vectors: adding 2 C numbers to each sum takes longer.
            exchange(
                products,
                bits,
                limit,
                scale,
                others,
                old,
                pair_count[j],
                total,
                rows,
                at + length,
                length,
            )
            if want_entropy:
                bound += np.float64(pair_count[j]) * entropy_held(kept[j], others, n_topics)
        for k in range(n_topics):
            gamma_row[k] = max(gamma_row[k] + total[k], rule.alpha[k])
    return bound


# Inlined for the reason that `largest.keep_largest` gives, as `add_pair` is.
@kernel(inline="always")
def expand_into(kept_topic, kept, rest, pair, phi):
    """phi of one pair over all topics; what lies beyond them is written too."""
    others = rest[pair]
    for k in range(phi.shape[0]):
        phi[k] = others
    for c in range(kept.shape[1]):
        phi[kept_topic[pair, c]] = kept[pair, c]


@kernel
def entropy_held(values, rest, n_topics):
    """- sum phi log phi over all K topics of one pair."""
    others = np.float64(rest)
    spread = (n_topics - values.shape[0]) * others * log(max(others, 1e-300))
    return entropy(values) - spread


@kernel(allocates=True)
def visit(desk, block, given, frozen, want_words, want_entropy):
    """One visit of a block to a shard; parameters and result as `margins.visit`.

    Also the same steps, for the reason that `full.visit` gives.
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
    kept_topic, kept, rest = phi
    for j in range(rest.shape[0]):
        for c in range(kept.shape[1]):
            kept_topic[j, c] = c
    kept[:] = 1.0 / gamma.shape[1]
    rest[:] = 1.0 / gamma.shape[1]
    sum_documents(shard, gamma, phi, alpha)


@kernel(allocates=True)
def set_random(shard, phi, first_document, word_ids, seed, pair_phi):
    """The largest of phi uniform on the simplex, for every pair; returns H by block."""
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr = shard.row_doc, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    kept_topic, kept, rest = phi
    n_topics = pair_phi.shape[0]
    dense = np.zeros(padded(n_topics), np.float32)
    bits = dense.view(np.int32)
    entropies = np.zeros(block_row_ptr.shape[0] - 1)
    for b in range(entropies.shape[0]):
        for r in range(block_row_ptr[b], block_row_ptr[b + 1]):
            for j in range(row_ptr[r], row_ptr[r + 1]):
                word = word_ids[word_row[pair_word[j]]]
                pair = (first_document + row_doc[r]) * word_ids.shape[0] + word
                random_phi_into(pair_phi, pair, seed)
                for k in range(n_topics):
                    dense[k] = pair_phi[k]
                for c in range(kept.shape[1]):
                    kept_topic[j, c] = c
                rest[j] = keep_largest(dense, bits, kept_topic, kept, j, n_topics, False)[2]
                entropies[b] += pair_count[j] * entropy_held(kept[j], rest[j], n_topics)
    return entropies


@kernel(allocates=True)
def sum_documents(shard, gamma, phi, alpha):
    """gamma_d = alpha + sum over its pairs of n phi."""
    pair_count, row_doc, row_ptr = shard.pair_count, shard.row_doc, shard.row_ptr
    kept_topic, kept, rest = phi
    n_topics = gamma.shape[1]
    for d in range(gamma.shape[0]):
        for k in range(n_topics):
            gamma[d, k] = alpha[k]
    totals = np.empty((1, n_topics))
    for r in range(row_doc.shape[0]):
        row = gamma[row_doc[r]]
        totals[:] = 0.0
        everywhere = 0.0
        for j in range(row_ptr[r], row_ptr[r + 1]):
            everywhere += add_pair(kept_topic, kept, rest, j, pair_count[j], totals, 0)
        for k in range(n_topics):
            row[k] += totals[0, k] + everywhere


@kernel(inline="always")
def add_pair(kept_topic, kept, rest, pair, count, totals, to):
    """Add n phi of a pair to a row of sums, but for what each topic has, which it returns."""
    n, others = np.float64(count), np.float64(rest[pair])
    for c in range(kept.shape[1]):
        totals[to, kept_topic[pair, c]] += n * (np.float64(kept[pair, c]) - others)
    return n * others


@kernel(allocates=True)
def add_words(shard, block, phi, first_row, sums):
    """Add this shard's sum of n phi to `sums`, float64, for its word rows from `first_row`."""
    pair_word, pair_count, row_ptr = shard.pair_word, shard.pair_count, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    kept_topic, kept, rest = phi
    everywhere = np.zeros(sums.shape[0])
    for j in range(row_ptr[block_row_ptr[block]], row_ptr[block_row_ptr[block + 1]]):
        word = word_row[pair_word[j]] - first_row
        if 0 <= word < sums.shape[0]:
            everywhere[word] += add_pair(kept_topic, kept, rest, j, pair_count[j], sums, word)
    for i in range(sums.shape[0]):
        for k in range(sums.shape[1]):
            sums[i, k] += everywhere[i]


@kernel
def take_over(phi, moves):
    """Give what each freed topic keeps to the one that takes over; see `repair.take_over`.

    What a topic has of the rest stays where it is.
    """
    kept_topic, kept, rest = phi
    for less in range(moves.shape[0]):
        greater = moves[less]
        if greater == STAYS or greater == less:
            continue
        for j in range(rest.shape[0]):
            from_, to = -1, -1
            for c in range(kept.shape[1]):
                if kept_topic[j, c] == less:
                    from_ = c
                elif kept_topic[j, c] == greater:
                    to = c
            if from_ >= 0 and to >= 0:
                kept[j, to] += kept[j, from_]
                kept[j, from_] = 0.0
            elif from_ >= 0:
                kept_topic[j, from_] = greater


@kernel(allocates=True)
def lend(phi, topics, n_topics):
    """Have each pair lend a share to some topics, as `repair.lend`, and keep the largest then.

    Parameters
    ----------
    phi : tuple of arrays
        As in `ARRAYS`; updated.
    topics : int array
    n_topics : int
        K.
    """
    kept_topic, kept, rest = phi
    dense = np.zeros(padded(n_topics), np.float32)
    bits = dense.view(np.int32)
    for j in range(rest.shape[0]):
        expand_into(kept_topic, kept, rest, j, dense)
        dense[n_topics:] = 0.0
        for k in range(n_topics):
            dense[k] *= np.float32(1.0 - LENT)
        for k in topics:
            dense[k] += np.float32(LENT / topics.shape[0])
        rest[j] = keep_largest(dense, bits, kept_topic, kept, j, n_topics, False)[2]
