"""Storage `margins`: of phi only its two margins are kept.

    phi_doc[r, k]  = sum over the words v of row r       of n_dv phi_dvk   (row: document, block)
    phi_word[i, k] = sum over the documents d of a shard of n_dv phi_dvk   (i: word of the shard)

A visit computes both afresh, adds `new - old` to gamma and lambda, and overwrites the old
margin, which gives the iterates that stored phi would give on the same schedule. The margins
are the ground truth: gamma, lambda and pi are their sums plus the priors.

Over-relaxed, phi_word goes further than to the sum of n phi (`settle_words`): what a pass changes
is mostly what the next would change too. Its sum over topics stays the word's tokens, and the first
visit that is not over-relaxed leaves nothing of it.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.desk import prepare
from esvi_shm.families.lda.exclusion import (
    NONE,
    amount_of,
    dot_own_4,
    inverse_row_into,
    kept_entropy,
    leave_out_of,
    mix_both_kept_1,
    mix_both_kept_4,
    mix_kept_1,
    mix_kept_4,
    sum_1,
    weigh_4,
)
from esvi_shm.families.lda.few import BATCH, document_factors_of
from esvi_shm.families.lda.listed import prefetch_row_of, row_of, word_row_into
from esvi_shm.families.lda.listed_words import settle_word
from esvi_shm.families.lda.starts.random import random_phi_into
from esvi_shm.families.lda.update import (
    FLUSH_ROWS,
    FLUSH_WORDS,
    count_pairs,
    cross_entropy,
    entropy,
    factors_into,
    flush_moved,
    flush_sums,
    phi_by_logs_into,
)
from esvi_shm.special import log
from esvi_shm.vector import (
    dot_4,
    mix_1,
    mix_4,
    mix_both_1,
    mix_both_4,
    prefetch_lines,
    prefetch_row,
)

#: Rows of words are asked for four pairs ahead where all together have more than `FAR` float32, so
#: that most lie in slow memory, and four of them at most 4 `NEAR`, so that they do not drive each
#: other out of the first cache. It takes a tenth less time then; rows that are near only wait for
#: the asking.
FAR, NEAR = 1 << 20, 512

#: What the storage keeps of phi: array name, what a row is, what a column is, what it holds.
ARRAYS = (
    ("phi_doc", "row", "topic", "sum of n phi over the words of a (document, block) row"),
    ("phi_word", "word", "topic", "sum of n phi over the documents of the shard, per word"),
)


@kernel
def sweep(shard, block, gamma, lambda_, phi, rule, given, want_words, want_entropy, scratch):
    """Update phi of every pair of a block in a shard, document by document: see `sweep_rows`."""
    since = scratch.since
    first_row, last_row = shard.block_row_ptr[block], shard.block_row_ptr[block + 1]
    first_word = shard.block_word_ptr[block]
    n_words = shard.block_word_ptr[block + 1] - first_word
    since[:n_words] = 0
    bound = 0.0
    for at in range(first_row, last_row, FLUSH_ROWS):
        if want_words and at > first_row:
            flush_words(shard, block, at, rule, scratch)
        bound += sweep_rows(
            shard, block, at, min(at + FLUSH_ROWS, last_row), gamma, shard.row_doc, phi[0], 0,
            lambda_, rule, given, want_words, want_entropy, scratch,
        )  # fmt: skip
    return bound


@kernel
def flush_words(shard, block, row, rule, scratch):
    """Send the sums of the words that are due for it, `FLUSH_ROWS` rows of a visit being done."""
    first_word = shard.block_word_ptr[block]
    n_words = shard.block_word_ptr[block + 1] - first_word
    spill, spilled, since = scratch.spill, scratch.spilled, scratch.since
    count_pairs(shard, first_word, row, since)
    length = scratch.theta.shape[0]
    with_beta = rule.leave_out == NONE
    flush_sums(scratch.rows, length, spill.shape[1], n_words, with_beta, since, spill, spilled)


@kernel
def sweep_rows(
    shard, block, first_row, last_row, gamma, documents, phi_doc, base, lambda_, rule, given,
    want_words, want_entropy, scratch,
):  # fmt: skip
    """Update phi of the pairs in some rows of a block, at most `FLUSH_ROWS`.

    Equivalent, for each row r (document d, words v of the block) in order, to::

        theta = E(gamma[d]); s = theta @ beta.T          # beta: the words' factors in scratch
        new = theta * ((n / s) @ beta)                   # sum over v of n phi
        gamma[d] += new - phi_doc[r]; phi_doc[r] = new   # but see update.Rule
        sums += outer(n / s, theta)                      # settle_words turns it into phi_word

    Where the rule leaves something out, theta beta of each pair is multiplied by its f
    (`exclusion`), and the sums are those of n phi itself, not to be multiplied by beta any more.

    Parameters
    ----------
    shard : Shard
    block : int
    first_row, last_row : int
    gamma : float32 array, shape (N, K)
        Row r of the shard has row `documents[r - base]` of it, and row r - base of `phi_doc`: those
        of the whole shard, or copies (`sparse`). Both are updated.
    documents : int32 array
    phi_doc : float32 array
    base : int
    lambda_ : float32 array, shape (V, K)
        Read for pairs in the log domain only: rows of the block.
    rule : Rule
    given : bool
        `lambda_` holds point topics, not Dirichlet parameters.
    want_words, want_entropy : bool
        Whether to accumulate the words' sums, and the entropy.
    scratch : Scratch

    Returns
    -------
    float
        The entropy of phi but for - sum phi_word log beta, which `settle_words` adds:
        sum n log s - sum phi_doc log theta. All of it where something is left out; 0 without
        `want_entropy`.
    """
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_ptr, word_row, block_word_ptr = shard.row_ptr, shard.word_row, shard.block_word_ptr
    rows, few, total = scratch.rows, scratch.few, scratch.total
    extra, spill, spilled = scratch.extra, scratch.spill, scratch.spilled
    norms, pair_phi, beat = scratch.norms, scratch.pair_phi, scratch.beat
    own, inverse, kept = scratch.own, scratch.inverse, scratch.kept
    excluding, cvb0, power = rule.leave_out != NONE, rule.cvb0, rule.power
    least = rule.least
    n_topics = gamma.shape[1]
    length = total.shape[0]
    stride = 2 * length
    first_word = block_word_ptr[block]
    n_words = block_word_ptr[block + 1] - first_word
    ahead = 0
    if n_words * stride > FAR and stride <= NEAR:
        ahead = stride if want_words else length
    bound = 0.0
    for r in range(first_row, last_row):
        # A watcher reads this counter to tell a long visit from a stopped worker.
        beat[0] += 1
        gamma_row = gamma[documents[r - base]]
        in_batch = (r - first_row) % BATCH
        theta = few.thetas[in_batch]
        if cvb0:
            factors_into(gamma_row, theta, cvb0, power)
        elif in_batch == 0:
            until = min(r + BATCH, last_row) - base
            document_factors_of(gamma, documents, r - base, until, rule.alpha, power, few)
        if excluding:
            inverse_row_into(gamma_row, own)
        if r + 1 < last_row:
            prefetch_row(gamma, documents[r + 1 - base])
            prefetch_row(phi_doc, r + 1 - base)
        total[:] = 0.0
        log_pairs = False
        j, end = row_ptr[r], row_ptr[r + 1]
        while j < end:
            if j + 4 <= end:
                if ahead > 0 and j + 8 <= end:
                    for i in range(j + 4, j + 8):
                        prefetch_lines(rows, stride * (pair_word[i] - first_word), ahead)
                at = (
                    stride * (pair_word[j] - first_word),
                    stride * (pair_word[j + 1] - first_word),
                    stride * (pair_word[j + 2] - first_word),
                    stride * (pair_word[j + 3] - first_word),
                )
                if excluding:
                    s, a = dot_own_4(theta, own, rows, inverse, at, kept, length)
                else:
                    s = a = dot_4(theta, rows, at, length)
                if excluding and min(min(s[0], s[1]), min(s[2], s[3])) >= least:
                    amounts = (
                        amount_of(pair_count[j], rule.leave_out),
                        amount_of(pair_count[j + 1], rule.leave_out),
                        amount_of(pair_count[j + 2], rule.leave_out),
                        amount_of(pair_count[j + 3], rule.leave_out),
                    )
                    s = weigh_4(amounts, s, a, kept, length)
                norms[j - row_ptr[r]] = s[0]
                norms[j + 1 - row_ptr[r]] = s[1]
                norms[j + 2 - row_ptr[r]] = s[2]
                norms[j + 3 - row_ptr[r]] = s[3]
                if min(min(s[0], s[1]), min(s[2], s[3])) >= least:
                    weights = (
                        pair_count[j] / s[0],
                        pair_count[j + 1] / s[1],
                        pair_count[j + 2] / s[2],
                        pair_count[j + 3] / s[3],
                    )
                    if excluding:
                        if want_words:
                            mix_both_kept_4(total, rows, kept, at, weights, length)
                        else:
                            mix_kept_4(total, rows, kept, at, weights, length)
                        if want_entropy:
                            for i in range(4):
                                bound += kept_entropy(
                                    kept, i, pair_count[j + i], s[i], n_topics, length
                                )
                    elif want_words:
                        mix_both_4(theta, total, rows, at, weights, length)
                    else:
                        mix_4(theta, total, rows, at, weights, length)
                    j += 4
                    continue
            # One pair: the last ones of a row, and each of a four with one in the log domain.
            at_1 = (stride * (pair_word[j] - first_word),)
            amount = amount_of(pair_count[j], rule.leave_out)
            s_1 = sum_1(theta, own, rows, inverse, at_1, amount, excluding, least, kept, length)
            if s_1 >= least:
                norms[j - row_ptr[r]] = s_1
                if excluding:
                    weight_1 = (pair_count[j] / s_1,)
                    if want_words:
                        mix_both_kept_1(total, rows, kept, at_1, weight_1, length)
                    else:
                        mix_kept_1(total, rows, kept, at_1, weight_1, length)
                    if want_entropy:
                        bound += kept_entropy(kept, 0, pair_count[j], s_1, n_topics, length)
                elif want_words:
                    mix_both_1(theta, total, rows, at_1, (pair_count[j] / s_1,), length)
                else:
                    mix_1(theta, total, rows, at_1, (pair_count[j] / s_1,), length)
            else:
                norms[j - row_ptr[r]] = 1.0
                if not log_pairs:
                    log_pairs = True
                    extra[:] = 0.0
                i = pair_word[j] - first_word
                _phi_by_logs_into(
                    gamma_row, lambda_, word_row[first_word + i], scratch.log_topic, given, rule,
                    amount, scratch.old[:n_topics], pair_phi,
                )  # fmt: skip
                count = np.float64(pair_count[j])
                for k in range(n_topics):
                    extra[k] += count * pair_phi[k]
                if want_words:
                    spilled[i] = True
                    for k in range(n_topics):
                        spill[i, k] += count * pair_phi[k]
                if want_entropy:
                    bound += count * entropy(pair_phi)
                    if not excluding:
                        # settle_words will take all word mass times log beta off again.
                        factor = rows[at_1[0] : at_1[0] + length]
                        bound -= count * cross_entropy(pair_phi, factor, n_topics)
            j += 1
        if not excluding:
            for k in range(n_topics):
                total[k] *= theta[k]
            if want_entropy:
                bound += cross_entropy(total, theta, n_topics)
                for j in range(row_ptr[r], end):
                    bound += np.float64(pair_count[j]) * log(np.float64(norms[j - row_ptr[r]]))
        if log_pairs:
            for k in range(n_topics):
                total[k] += extra[k]
        old = phi_doc[r - base]
        for k in range(n_topics):
            gamma_row[k] = max(gamma_row[k] + (total[k] - old[k]), rule.alpha[k] + total[k])
            old[k] = total[k]
    return bound


@kernel
def _phi_by_logs_into(gamma_row, lambda_, word, log_topic, given, rule, amount, word_lambda, phi):
    """`update.phi_by_logs_into`, and what the rule leaves out; `word_lambda` is scratch, (K,)."""
    word_row_into(lambda_, word, np.float32(0.0) if given else rule.eta[word], word_lambda)
    phi_by_logs_into(gamma_row, word_lambda, log_topic, given, rule, phi)
    if rule.leave_out != NONE:
        leave_out_of(phi, gamma_row, word_lambda, np.float64(amount))


@kernel
def settle_words(shard, block, lambda_, phi, rule, frozen, want_entropy, scratch, pi_own):
    """Turn the words' sums into phi_word, and put the change into lambda and pi.

    Equivalent to ``new = beta * sums + spill; lambda_[v] += new - phi_word;
    pi_own += (new - phi_word).sum(axis=0); phi_word[:] = new``; lambda and pi stay where `frozen`.
    Without beta where the rule leaves something out (`sweep_rows`). With its step above 1 new goes
    beyond itself, unless `frozen`: ``further = maximum(phi_word + relax * (new - phi_word), 0);
    new = further * new.sum() / further.sum()``, for each word.
    Returns what `sweep_rows` lacks of the entropy, if `want_entropy`.
    """
    eta, excluding = rule.eta, rule.leave_out != NONE
    relax = np.float32(1.0) if frozen else rule.relax
    word_row, block_word_ptr = shard.word_row, shard.block_word_ptr
    rows, length = scratch.rows, scratch.theta.shape[0]
    spill, spilled = scratch.spill, scratch.spilled
    phi_word = phi[1]
    n_topics = spill.shape[1]
    made = scratch.old[:n_topics]
    first = block_word_ptr[block]
    bound = 0.0
    moved = scratch.total
    moved[:] = 0.0
    for i in range(block_word_ptr[block + 1] - first):
        at = 2 * length * i
        if spilled[i] or want_entropy or excluding:
            row, sums = rows[at : at + n_topics], rows[at + length : at + length + n_topics]
            if not excluding:
                for k in range(n_topics):
                    sums[k] *= row[k]
            if spilled[i]:
                spilled[i], more = False, spill[i]
                for k in range(n_topics):
                    sums[k] += more[k]
                    more[k] = 0.0
            if want_entropy and not excluding:
                bound += cross_entropy(sums, row, n_topics)
            row[:] = 1.0
        word = word_row[first + i]
        if first + i + 2 < block_word_ptr[block + 1]:
            prefetch_row_of(phi_word, first + i + 2)
            prefetch_row_of(lambda_, word_row[first + i + 2])
        settle_word(
            phi_word, first + i, lambda_, word, eta[word], rows, at, length, relax, frozen, moved,
            made,
        )  # fmt: skip
        if i % FLUSH_WORDS == FLUSH_WORDS - 1 and not frozen:
            flush_moved(moved, pi_own)
    if not frozen:
        flush_moved(moved, pi_own)
    return bound


@kernel(allocates=True)
def visit(desk, block, given, frozen, want_words, want_entropy):
    """One visit of a block to a shard: update phi, gamma, the block's lambda, the worker's pi.

    Parameters
    ----------
    desk : Desk
    block, want_words, want_entropy : as for `sweep`
    given : bool
        lambda holds point topics, not Dirichlet parameters.
    frozen : bool
        lambda and pi stay as they are: documents are folded in.

    Returns
    -------
    float
        H of this block in this shard, - sum n phi log phi; 0 without `want_entropy`.
    """
    prepare(desk, block, given)
    lambda_, phi, rule, scratch = desk.lambda_, desk.phi, desk.rule, desk.scratch
    bound = sweep(
        desk.shard, block, desk.gamma, lambda_, phi, rule, given, want_words, want_entropy, scratch
    )
    if want_words:
        bound += settle_words(
            desk.shard, block, lambda_, phi, rule, frozen, want_entropy, scratch,
            desk.pi[1][desk.worker],
        )  # fmt: skip
    return bound


@kernel
def set_uniform(shard, gamma, phi, alpha):
    """phi = 1 / K for every pair, and gamma to match; the words' margin is left to a fold-in."""
    pair_count, row_doc, row_ptr = shard.pair_count, shard.row_doc, shard.row_ptr
    n_topics = gamma.shape[1]
    phi_doc = phi[0]
    for r in range(row_doc.shape[0]):
        tokens = 0.0
        for j in range(row_ptr[r], row_ptr[r + 1]):
            tokens += pair_count[j]
        for k in range(n_topics):
            phi_doc[r, k] = tokens / n_topics
    phi[1][:] = 0.0
    sum_documents(shard, gamma, phi, alpha)


@kernel(allocates=True)
def set_random(shard, phi, first_document, word_ids, seed, pair_phi):
    """phi of every pair uniform on the simplex; returns H by block."""
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr = shard.row_doc, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    phi_doc, phi_word = phi
    entropies = np.zeros(block_row_ptr.shape[0] - 1)
    phi_doc[:] = 0.0
    phi_word[:] = 0.0
    for b in range(entropies.shape[0]):
        for r in range(block_row_ptr[b], block_row_ptr[b + 1]):
            for j in range(row_ptr[r], row_ptr[r + 1]):
                i = pair_word[j]
                pair = (first_document + row_doc[r]) * word_ids.shape[0] + word_ids[word_row[i]]
                random_phi_into(pair_phi, pair, seed)
                entropies[b] += pair_count[j] * entropy(pair_phi)
                for k in range(pair_phi.shape[0]):
                    phi_doc[r, k] += pair_count[j] * pair_phi[k]
                    phi_word[i, k] += pair_count[j] * pair_phi[k]
    return entropies


@kernel
def sum_documents(shard, gamma, phi, alpha):
    """gamma_d = alpha + the sum of its rows of phi_doc."""
    row_doc = shard.row_doc
    phi_doc = phi[0]
    for d in range(gamma.shape[0]):
        for k in range(gamma.shape[1]):
            gamma[d, k] = alpha[k]
    for r in range(row_doc.shape[0]):
        row = gamma[row_doc[r]]
        for k in range(gamma.shape[1]):
            row[k] += phi_doc[r, k]


@kernel(allocates=True)
def add_words(shard, block, phi, first_row, sums):
    """Add this shard's sum of n phi to `sums`, float64, for its word rows from `first_row`."""
    word_row, block_word_ptr = shard.word_row, shard.block_word_ptr
    phi_word, made = phi[1], np.empty(sums.shape[1], np.float32)
    for i in range(block_word_ptr[block], block_word_ptr[block + 1]):
        at = word_row[i] - first_row
        if 0 <= at < sums.shape[0]:
            row = row_of(phi_word, i, made)
            for k in range(row.shape[0]):
                sums[at, k] += row[k]
