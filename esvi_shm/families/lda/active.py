"""Active sets: a visit that updates only the topics that a document and a word live in.

A document lives in the topics whose share of its tokens, gamma - alpha, is above `DOCUMENT_CUT`
of its largest, or above `TOKENS_CUT`; a word in those where lambda - eta is above `WORD_CUT` of
its largest. phi of a pair moves among the topics of both (Lemma 1 of the paper: any subset may be
updated alone), so its cost does not depend on K. After some passes a document lives in 10 to 30
topics, however many there are, and a pair in 3 or 4.

Under cvb0 a topic without tokens still has the factor alpha, or eta, so that a document has a
little of every topic, and a pair a fifth of its tokens in topics of less than half a token. The
cuts are higher then (`thresholds.document_cut`), and phi over the topics of both takes all of the
pair: what lies outside is not placed. To place it by scalars for all dead topics at once would keep
it, but the fits end no worse without (`bench/RESULTS.md`), since vb, which follows, drops it too.
What lies outside, by the bound below, is summed up by visit and reported. A pair's own share is
left out of the counts as in `exclusion`, topic by topic.

Nothing is left out unseen. Of each pair the mass that the update over all topics would put
elsewhere, as a share of what it puts into the topics of both, is (under vb) at most

    (e (B + f F) + f G) / s,      e = the largest E(gamma_k) of a topic that the document lacks,
    f = E(eta_v), of a topic that the word lacks; F = sum of 1 / E(pi_k) over all topics, G that of
    E(gamma_k) / E(pi_k) over the document's; B = sum of the word's factors, s that of the products

and of one topic that the document lacks (e b + f G) / s, b = the word's largest factor, or f.
Where the one is above `thresholds.scattered` tolerances, or the other above the tolerance
(`Rule.tolerance`; under cvb0 the first alone), the pair is updated over all topics of the word, and
where that is not enough either, over all topics: so a document and a word find new topics. Topics
whose phi is below the tolerance are left out then, if together they are at most
`thresholds.SCATTERED` tolerances; else those below the tolerance over their number, together at
most the tolerance.

The state is that of storage `margins`, and so is the order of the updates. What a margin held
outside of a list is taken back. The lists are in `lists`, loops over pairs in `esvi_shm.sparse`.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.exclusion import NONE, amount_of, scale_of
from esvi_shm.families.lda.listed import word_row_into
from esvi_shm.families.lda.listed_documents import (
    close_row,
    open_row,
    own_of_document,
    peek_at_document,
    put_document,
    whole_at,
    whole_rows,
)
from esvi_shm.families.lda.listed_words import prefetch_word, put_word
from esvi_shm.families.lda.lists import list_words
from esvi_shm.families.lda.update import (
    FLUSH_ROWS,
    FLUSH_WORDS,
    count_pairs,
    factors_into,
    flush_moved,
    topic_factors_into,
)
from esvi_shm.families.lda.wider import LEAST_SUM, least_of, update_over_all, update_over_word
from esvi_shm.sparse import (
    CHUNK,
    SLOT,
    bits_into,
    dot_entries,
    dot_own_entries,
    find_common,
    mix_entries,
    mix_kept_entries,
    weigh_entries,
)
from esvi_shm.special import log
from esvi_shm.vector import unsigned


@kernel
def _kept_entropy(theta, rows, entries, first, last, kept, weights):
    """- sum n phi log f over all pairs of a chunk: what f adds to the entropy."""
    total = 0.0
    for e in range(first, last):
        row, pair, place = entries[e] >> 32, (entries[e] >> 24) & 255, entries[e] & 0xFFFFFF
        f = np.float64(kept[e - first])
        mass = np.float64(weights[pair] * theta[place] * rows[row]) * f
        total -= mass * log(max(f, 1e-300))
    return total


@kernel
def _sweep(shard, block, gamma, whole, lambda_, phi_doc, rule, want_entropy, scratch, lists):
    """Update phi of every pair of a block in a shard, document by document: see `_sweep_rows`."""
    first_row, last_row = shard.block_row_ptr[block], shard.block_row_ptr[block + 1]
    n_words = shard.block_word_ptr[block + 1] - shard.block_word_ptr[block]
    scratch.since[:n_words] = 0
    lists.left_out[0] = 0.0
    lists.counts[:] = 0
    lists.counts[3] = lists.first[n_words]
    bound = 0.0
    for at in range(first_row, last_row, FLUSH_ROWS):
        if at > first_row:
            _flush_words(shard, block, at, scratch, lists)
        bound += _sweep_rows(
            shard, block, at, min(at + FLUSH_ROWS, last_row), gamma, whole, lambda_, phi_doc, rule,
            want_entropy, scratch, lists,
        )  # fmt: skip
    return bound


@kernel
def _flush_words(shard, block, row, scratch, lists):
    """As `margins.flush_words`; the sums are to be multiplied by beta whatever is left out."""
    first_word = shard.block_word_ptr[block]
    count_pairs(shard, first_word, row, scratch.since)
    n_words = shard.block_word_ptr[block + 1] - first_word
    _flush_sums(n_words, lists, scratch.since, scratch.spill, scratch.spilled)


@kernel
def _sweep_rows(
    shard, block, first_row, last_row, gamma, whole, lambda_, phi_doc, rule, want_entropy, scratch,
    lists,
):  # fmt: skip
    """Update phi of the pairs in some rows of a block, over the topics of both document and word.

    As `margins.sweep_rows`. Returns H but for the words' part.
    """
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_ptr, row_doc, word_row = shard.row_ptr, shard.row_doc, shard.word_row
    first_word = shard.block_word_ptr[block]
    rows, theta, total, topic_factor = lists.rows, lists.theta, lists.total, scratch.factor
    all_factors = lists.all_factors[0]
    masks, starts, slots = lists.masks, lists.starts, lists.slots
    items, entries = lists.items, lists.entries
    norms, squares = lists.norms, lists.squares
    weights, least = lists.weights, lists.least
    x, factors, places, extra = lists.x, lists.factors, lists.places, lists.extra
    reach_of, edge_of = lists.reach, lists.edge
    mine, inverse, kept = lists.mine, lists.inverse, lists.kept
    cvb0, power, leave_out = rule.cvb0, rule.power, rule.leave_out
    least_sum = least_of(rule)
    excluding = leave_out != NONE
    elsewhere = 0.0
    n_common = n_more = n_logs = n_listed = 0
    live, gained = lists.live, lists.gained
    n_topics, width = scratch.pair_phi.shape[0], gained.shape[1]
    half = entries.shape[0] // 2
    spill, spilled = scratch.spill, scratch.spilled
    bound = 0.0
    n_next = 0
    if first_row < last_row:
        n_next = peek_at_document(
            gamma, phi_doc, live, row_doc[first_row], first_row, lists.own[first_row % 2]
        )
    for r in range(first_row, last_row):
        scratch.beat[0] += 1
        d, own, n_live = row_doc[r], lists.own[r % 2], n_next
        if r + 1 < last_row:
            n_next = peek_at_document(
                gamma, phi_doc, live, row_doc[r + 1], r + 1, lists.own[(r + 1) % 2]
            )
        gamma_row = whole[whole_at(gamma, d)]
        n_own, beyond = own_of_document(
            gamma, phi_doc, live, d, r, own, n_live, x, rule.alpha, rule.most_alpha, cvb0
        )
        if n_own == 0:  # so few tokens that float32 cannot tell: in all topics
            open_row(gamma, d)
            for k in range(n_topics):
                x[k] = gamma_row[k]
                own[k] = k
            close_row(gamma, d)
            n_own = n_topics
        n_slots, before, mask = np.int64(0), np.int64(-1), np.int64(0)
        for n in range(n_own):
            a = unsigned(n)
            topic = np.int64(own[a])
            # Nobody foresees where the next 64 topics begin: no branch.
            is_next = np.int64(topic >> 6 != before)
            before, mask = topic >> 6, (mask & (is_next - 1)) | (np.int64(1) << (topic & 63))
            n_slots += is_next
            slots[unsigned(SLOT * n_slots - 2)] = before
            slots[unsigned(SLOT * n_slots - 1)] = mask
            places[a] = 64 * (n_slots - 1) + (topic & 63)
        j, end = row_ptr[r], row_ptr[r + 1]
        here = 0
        # Before the factors: the words' lines take as long to come.
        last = find_common(
            pair_word, j, min(j + CHUNK, end), first_word, slots, n_slots, masks, starts, width,
            rows, items, entries, here,
        )  # fmt: skip
        n_listed += n_own
        x[n_own] = beyond
        most = beyond
        for n in range(n_own):
            most = max(most, x[unsigned(n)])
        factors_into(x[: n_own + 1], factors, cvb0, power)
        outside = factors[n_own] if n_own < n_topics else np.float32(0.0)
        document_factors = np.float32(0.0)
        for n in range(n_own):
            a = unsigned(n)
            at = unsigned(places[a])
            theta[at], total[at] = factors[a], 0.0
            if excluding:
                mine[at] = np.float32(1.0) / x[a]
            document_factors += factors[a] * topic_factor[unsigned(own[a])]
        limit = outside / rule.tolerance
        edge_limit = document_factors / rule.tolerance
        slow = False
        while j < end:
            n_pairs = min(CHUNK, end - j)
            following = half - here
            last_following = following
            if j + CHUNK < end:
                last_following = find_common(
                    pair_word, j + CHUNK, min(j + 2 * CHUNK, end), first_word, slots, n_slots,
                    masks, starts, width, rows, items, entries, following,
                )  # fmt: skip
            n_common += last - here
            norms[:] = 0.0
            if excluding:
                squares[:] = 0.0
                dot_own_entries(theta, mine, rows, inverse, entries, here, last, norms, squares)
                for n in range(n_pairs):
                    c = unsigned(n)
                    amount = amount_of(pair_count[unsigned(j + n)], leave_out)
                    weights[c] = scale_of(amount, max(norms[c], LEAST_SUM), squares[c])
                norms[:] = 0.0
                weigh_entries(theta, mine, rows, inverse, entries, here, last, weights, kept, norms)
            else:
                dot_entries(theta, rows, entries, here, last, norms)
            some = False
            if cvb0:
                for n in range(n_pairs):
                    c, pair = unsigned(n), unsigned(j + n)
                    i, s = unsigned(pair_word[pair] - first_word), norms[c]
                    beside = outside * reach_of[i] + document_factors * edge_of[i]
                    # Over more topics there is less outside.
                    beside = min(beside, rule.tolerance * s)
                    elsewhere += np.float64(pair_count[pair] * beside) / max(s + beside, LEAST_SUM)
            for n in range(n_pairs):
                i = unsigned(pair_word[unsigned(j + n)] - first_word)
                least[unsigned(n)] = limit * reach_of[i] + edge_limit * edge_of[i] + least_sum
            for n in range(n_pairs):
                c = unsigned(n)
                weights[c] = pair_count[unsigned(j + n)] / norms[c]
                some |= norms[c] < least[c]
            if some:
                if not slow:
                    slow = True
                    open_row(gamma, d)
                for c in range(n_pairs):
                    if norms[c] >= least[c]:
                        continue
                    i = pair_word[j + c] - first_word
                    weights[c], norms[c] = 0.0, 1.0
                    n_more += lists.first[i + 1] - lists.first[i]
                    shares = (all_factors, document_factors, outside)
                    part, done = update_over_word(
                        i, pair_count[j + c], gamma_row, most, shares, rule, gained[0],
                        want_entropy, lists,
                    )  # fmt: skip
                    if not done:
                        n_logs += n_topics
                        spilled[i], word = True, word_row[first_word + i]
                        lambda_row = scratch.old[:n_topics]
                        word_row_into(lambda_, word, rule.eta[word], lambda_row)
                        part = update_over_all(
                            i, pair_count[j + c], gamma_row, lambda_row, rule, scratch.log_topic,
                            gained[0], want_entropy, lists, spill[i], scratch.pair_phi,
                        )  # fmt: skip
                    bound += part
            if excluding:
                mix_kept_entries(theta, total, rows, entries, here, last, weights, kept)
                if want_entropy:
                    bound += _kept_entropy(theta, rows, entries, here, last, kept, weights)
            else:
                mix_entries(theta, total, rows, entries, here, last, weights)
            if want_entropy:
                for c in range(n_pairs):
                    bound += np.float64(pair_count[j + c]) * log(np.float64(norms[c]))
            here, last = following, last_following
            j += CHUNK
        for n in range(n_own):
            a = unsigned(n)
            at = unsigned(places[a])
            new = theta[at] * total[at]
            if want_entropy:
                bound -= np.float64(new) * log(max(np.float64(theta[at]), 1e-300))
            x[a] = new
        if slow:
            close_row(gamma, d)
            for n in range(n_own):
                k = own[n]
                extra[k] += np.float64(x[n])
                gained[0, k >> 6] |= np.int64(1) << np.int64(k & 63)
            n_own = bits_into(gained, 0, own)
            for n in range(n_own):
                x[n], extra[own[n]] = extra[own[n]], 0.0
            gained[:] = 0
        put_document(gamma, phi_doc, live, d, r, own, x, n_own, rule.alpha)
    lists.left_out[0] += elsewhere
    counts = lists.counts
    counts[0] += n_common
    counts[1] += n_more
    counts[2] += n_logs
    counts[3] += n_listed
    return bound


@kernel
def _flush_sums(n_words, lists, since, spill, spilled):
    """As `update.flush_sums`, of the topics of each word."""
    rows, topics, first = lists.rows, lists.topics, lists.first
    for i in range(n_words):
        if since[i] < FLUSH_ROWS:
            continue
        since[i], spilled[i] = 0, True
        for at in range(first[i], first[i + 1]):
            spill[i, topics[at]] += np.float64(rows[2 * at]) * np.float64(rows[2 * at + 1])
            rows[2 * at + 1] = 0.0


@kernel
def _settle(shard, block, lambda_, phi_word, eta, want_entropy, live, lists, scratch, pi_own):
    """Turn the words' sums into phi_word, and put the change into lambda and pi; returns H."""
    word_row = shard.word_row
    first, last = shard.block_word_ptr[block], shard.block_word_ptr[block + 1]
    moved, bound = scratch.total, 0.0
    moved[:] = 0.0
    for i in range(last - first):
        word = word_row[first + i]
        if first + i + 1 < last:
            prefetch_word(lambda_, phi_word, word_row[first + i + 1], (i + 1, first + i + 1), lists)
        bound += put_word(
            lambda_, phi_word, live, word, (i, first + i), eta[word], want_entropy, lists,
            scratch.spill, scratch.spilled, moved,
        )  # fmt: skip
        if i % FLUSH_WORDS == FLUSH_WORDS - 1:
            flush_moved(moved, pi_own)
    flush_moved(moved, pi_own)
    return bound


@kernel(allocates=True)
def visit(desk, block, want_entropy, live, lists):
    """One visit of a block to a shard, over the active sets; see `margins.visit`.

    `live` (int64, (V, ceil(K / 64)), by word row) says which topics each word may live in; updated.
    Lists say so themselves, and only its width is looked at.

    Returns
    -------
    float
        H of this block in this shard, - sum n phi log phi; 0 without `want_entropy`.
    """
    shard, gamma, lambda_, (phi_doc, phi_word) = desk.shard, desk.gamma, desk.lambda_, desk.phi
    worker, rule, scratch = desk.worker, desk.rule, desk.scratch
    pi_others, pi_rows = desk.pi
    topic_factors_into(pi_others, pi_rows[worker], worker, rule, scratch.log_topic, scratch.factor)
    list_words(shard, block, lambda_, phi_word, rule, scratch.factor, live, lists, pi_rows[worker])
    whole = whole_rows(gamma)
    bound = _sweep(shard, block, gamma, whole, lambda_, phi_doc, rule, want_entropy, scratch, lists)
    return bound + _settle(
        shard, block, lambda_, phi_word, rule.eta, want_entropy, live, lists, scratch,
        pi_rows[worker],
    )  # fmt: skip
