"""Active sets: a visit that updates only the topics that a document and a word live in.

A document lives in the topics whose share of its tokens, gamma - alpha, is above `DOCUMENT_CUT`
of its largest, or above `TOKENS_CUT`; a word in those where lambda - eta is above `WORD_CUT` of
its largest. phi of a pair moves among the topics of both (Lemma 1 of the paper: any subset may be
updated alone), so its cost does not depend on K. After some passes a document lives in 10 to 30
topics, however many there are, and a pair in 3 or 4.

Under cvb0 a topic without tokens still has the factor alpha, or eta, so that a document has a
little of every topic, and a pair a fifth of its tokens in topics of less than half a token. The
cuts are higher then (`lists.document_cut`), and phi over the topics of both takes all of the
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
Where the one is above `lists.scattered` tolerances, or the other above the tolerance
(`Rule.tolerance`; under cvb0 the first alone), the pair is updated over all topics of the word, and
where that is not enough either, over all topics: so a document and a word find new topics. Topics
whose phi is below the tolerance are left out then, if together they are at most
`lists.SCATTERED` tolerances; else those below the tolerance over their number, together at most the
tolerance.

The state is that of storage `margins`, and so is the order of the updates. What a margin held
outside of a list is taken back. The lists are in `lists`, loops over pairs in `esvi_shm.sparse`.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.exclusion import NONE, amount_of, scale_of
from esvi_shm.families.lda.listed_words import close_word, held, hold, open_word, prefetch_entry
from esvi_shm.families.lda.lists import (
    ROUNDING,
    document_cut,
    list_words,
)
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
    prefetch_value,
    weigh_entries,
)
from esvi_shm.special import log
from esvi_shm.vector import unsigned


@kernel(inline="always")
def _add_to(live, row, k):
    """Note that a document or a word lives in a topic."""
    live[row, k >> np.uint64(6)] |= np.int64(1) << np.int64(k & np.uint64(63))


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
def _sweep(shard, block, gamma, lambda_, phi_doc, rule, want_entropy, scratch, lists):
    """Update phi of every pair of a block in a shard, document by document: see `sweep_rows`."""
    first_row, last_row = shard.block_row_ptr[block], shard.block_row_ptr[block + 1]
    begin(shard, block, scratch, lists)
    bound = 0.0
    for at in range(first_row, last_row, FLUSH_ROWS):
        if at > first_row:
            flush_words(shard, block, at, scratch, lists)
        bound += sweep_rows(
            shard, block, at, min(at + FLUSH_ROWS, last_row), gamma, shard.row_doc, phi_doc, 0,
            lists.live, lambda_, rule, want_entropy, scratch, lists,
        )  # fmt: skip
    return bound


@kernel
def begin(shard, block, scratch, lists):
    """Before the first rows of a visit, whose words are listed."""
    n_words = shard.block_word_ptr[block + 1] - shard.block_word_ptr[block]
    scratch.since[:n_words] = 0
    lists.left_out[0] = 0.0
    lists.counts[:] = 0
    lists.counts[3] = lists.first[n_words]


@kernel
def flush_words(shard, block, row, scratch, lists):
    """As `margins.flush_words`; the sums are to be multiplied by beta whatever is left out."""
    first_word = shard.block_word_ptr[block]
    count_pairs(shard, first_word, row, scratch.since)
    n_words = shard.block_word_ptr[block + 1] - first_word
    _flush_sums(n_words, lists, scratch.since, scratch.spill, scratch.spilled)


@kernel
def sweep_rows(
    shard, block, first_row, last_row, gamma, documents, phi_doc, base, live, lambda_, rule,
    want_entropy, scratch, lists,
):  # fmt: skip
    """Update phi of the pairs in some rows of a block, over the topics of both document and word.

    As `margins.sweep_rows`; `live` has a row for each of gamma, a bit for each topic that the
    document may live in. Returns H but for the words' part.
    """
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_ptr, word_row = shard.row_ptr, shard.word_row
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
    n_topics, width = gamma.shape[1], live.shape[1]
    half = entries.shape[0] // 2
    spill, spilled = scratch.spill, scratch.spilled
    bound = 0.0
    n_next = 0
    if first_row < last_row:
        n_next = bits_into(live, documents[first_row - base], lists.own[first_row % 2])
    for r in range(first_row, last_row):
        scratch.beat[0] += 1
        d, old = documents[r - base], phi_doc[r - base]
        own = lists.own[r % 2]
        n_live = n_next
        if r + 1 < last_row:
            following, ahead = documents[r + 1 - base], lists.own[(r + 1) % 2]
            n_next = bits_into(live, following, ahead)
            for n in range(n_next):
                k = ahead[unsigned(n)]
                prefetch_value(gamma, following, k)
                prefetch_value(phi_doc, r + 1 - base, k)
        largest = np.float32(0.0)
        for n in range(n_live):
            k = unsigned(own[unsigned(n)])
            largest = max(largest, gamma[d, k] - rule.alpha[k])
        cut = document_cut(largest, cvb0)
        beyond = rule.most_alpha + rule.most_alpha * ROUNDING
        n_own = 0
        for n in range(n_live):
            k = unsigned(own[unsigned(n)])
            above = gamma[d, k] - rule.alpha[k]
            rounding = rule.alpha[k] * ROUNDING
            if above > rounding and above >= cut:
                x[unsigned(n_own)] = gamma[d, k]
                own[unsigned(n_own)] = k
                n_own += 1
                continue
            if old[k] > 0.0:
                gamma[d, k] = max(gamma[d, k] - old[k], rule.alpha[k])
                old[k] = 0.0
            if gamma[d, k] - rule.alpha[k] <= rounding:
                live[d, k >> np.uint64(6)] &= ~(np.int64(1) << np.int64(k & np.uint64(63)))
            beyond = max(beyond, gamma[d, k])
        if n_own == 0:  # so few tokens that float32 cannot tell: in all topics
            for k in range(n_topics):
                x[k] = gamma[d, k]
                own[k] = k
            n_own = n_topics
        n_slots, before = 0, -1
        for n in range(n_own):
            a = unsigned(n)
            k = own[a]
            if k >> 6 != before:
                before = k >> 6
                slots[unsigned(SLOT * n_slots)] = before
                slots[unsigned(SLOT * n_slots + 1)] = 0
                n_slots += 1
            slots[unsigned(SLOT * n_slots - 1)] |= np.int64(1) << np.int64(k & 63)
            places[a] = 64 * (n_slots - 1) + (k & 63)
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
                for c in range(n_pairs):
                    if norms[c] >= least[c]:
                        continue
                    i, slow = pair_word[j + c] - first_word, True
                    weights[c], norms[c] = 0.0, 1.0
                    n_more += lists.first[i + 1] - lists.first[i]
                    shares = (all_factors, document_factors, outside)
                    part, done = update_over_word(
                        i, pair_count[j + c], gamma[d], most, shares, rule, live[d],
                        want_entropy, lists,
                    )  # fmt: skip
                    if not done:
                        n_logs += n_topics
                        spilled[i] = True
                        part = update_over_all(
                            i, pair_count[j + c], gamma[d], lambda_[word_row[first_word + i]], rule,
                            scratch.log_topic, live[d], want_entropy, lists, spill[i],
                            scratch.pair_phi,
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
            k, at = unsigned(own[a]), unsigned(places[a])
            new = theta[at] * total[at]
            if want_entropy:
                bound -= np.float64(new) * log(max(np.float64(theta[at]), 1e-300))
            if slow:
                new += np.float32(extra[k])
                extra[k] = 0.0
            if new > 0.0:
                _add_to(live, d, k)
            gamma[d, k] = max(gamma[d, k] + (new - old[k]), rule.alpha[k] + new)
            old[k] = new
        if slow:
            n_live = bits_into(live, d, own)
            for a in range(n_live):
                k = own[a]
                if extra[k] > 0.0:
                    new = np.float32(extra[k])
                    extra[k] = 0.0
                    gamma[d, k] = max(gamma[d, k] + (new - old[k]), rule.alpha[k] + new)
                    old[k] = new
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
def settle(shard, block, lambda_, phi_word, eta, want_entropy, live, lists, scratch, pi_own):
    """Turn the words' sums into phi_word, and put the change into lambda and pi; returns H."""
    word_row, rows = shard.word_row, lists.rows
    topics, first_of = lists.topics, lists.first
    first, last = shard.block_word_ptr[block], shard.block_word_ptr[block + 1]
    moved, spill, spilled = scratch.total, scratch.spill, scratch.spilled
    bound = 0.0
    moved[:] = 0.0
    for i in range(last - first):
        word = word_row[first + i]
        if first + i + 1 < last:
            following = word_row[first + i + 1]
            for n in range(first_of[i + 1], first_of[i + 2]):
                k = topics[unsigned(n)]
                prefetch_value(lambda_, following, k)
                prefetch_entry(phi_word, first + i + 1, k)
        prior = eta[word]
        open_word(phi_word, first + i)
        for n in range(first_of[i], first_of[i + 1]):
            at = unsigned(n)
            k = unsigned(topics[at])
            factor = rows[unsigned(2 * n)]
            new = factor * rows[unsigned(2 * n + 1)]
            if spilled[i]:
                new += np.float32(spill[i, k])
                spill[i, k] = 0.0
            if want_entropy:
                bound -= np.float64(new) * log(max(np.float64(factor), 1e-300))
            if new > 0.0:
                _add_to(live, word, k)
            change = new - held(phi_word, first + i, k)
            moved[k] += change
            lambda_[word, k] = max(lambda_[word, k] + change, prior + new)
            hold(phi_word, first + i, k, new)
        if spilled[i]:  # and of topics that are not in its list
            spilled[i], more = False, spill[i]
            for k in range(more.shape[0]):
                if more[k] > 0.0:
                    new, more[k] = np.float32(more[k]), 0.0
                    live[word, k >> 6] |= np.int64(1) << np.int64(k & 63)
                    moved[k] += new
                    hold(phi_word, first + i, k, held(phi_word, first + i, k) + new)
                    value = lambda_[word, k] + new
                    lambda_[word, k] = max(value, prior + held(phi_word, first + i, k))
        close_word(phi_word, first + i, live[word], lambda_[word], prior, moved)
        if i % FLUSH_WORDS == FLUSH_WORDS - 1:
            flush_moved(moved, pi_own)
    flush_moved(moved, pi_own)
    return bound


@kernel(allocates=True)
def visit(desk, block, want_entropy, live, lists):
    """One visit of a block to a shard, over the active sets; see `margins.visit`.

    `live` (int64, (V, ceil(K / 64)), by word row) says which topics each word may live in; updated.

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
    bound = _sweep(shard, block, gamma, lambda_, phi_doc, rule, want_entropy, scratch, lists)
    return bound + settle(
        shard, block, lambda_, phi_word, rule.eta, want_entropy, live, lists, scratch,
        pi_rows[worker],
    )  # fmt: skip
