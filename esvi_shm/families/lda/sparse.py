"""Storage `sparse`: as `margins`, with gamma, lambda, phi_doc and phi_word as lists of topics.

Only the scratch of a visit grows with the number of topics then, so thousands of topics fit where
whole rows would not. The updates are those of `margins` and `active`. Passes of all topics work on
a window of whole rows: rows of a block are unpacked, updated and listed again, a few at a time.
Over active sets lists are changed as they are, which takes no time for topics that are not there. A
row that has no more topics than places (`listed`) has the same iterates as with `margins`. What has
no place goes evenly to all topics that are not listed: so every token stays one. gamma and lambda
are the sums of the margins after an evaluation, before it what was kept of them.

Passes of all topics are those in which topics still form, by cvb0 and tempered: there a document
has a little of very many, and to give that to its largest ones instead, or to leave it out, hardens
it before its time and ends at a lower bound (`bench/RESULTS.md`). Over active sets next to nothing
is without a place, and goes to the listed topics in proportion: else all topics would be live
again.

With much that has no place F is that of no phi. How much it was is in the summary.
"""

from collections.abc import Sequence

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.contract import Arrays
from esvi_shm.families.lda import margins
from esvi_shm.families.lda.desk import prepare_words
from esvi_shm.families.lda.few import BATCH
from esvi_shm.families.lda.listed import (
    DOCUMENT_PLACES,
    ROW_PLACES,
    SPARE,
    Listed,
    lay_out,
    make_window,
    of_arrays,
    unpack_into,
    word_row_into,
)
from esvi_shm.families.lda.listing import choose_topics, put_row, tokens_to_list
from esvi_shm.families.lda.starts.random import random_phi_into
from esvi_shm.families.lda.update import FLUSH_ROWS, entropy, topic_factors_into
from esvi_shm.vector import unsigned

#: What the storage keeps of phi; see `margins.ARRAYS`.
ARRAYS = tuple((name, what, "listed", text) for name, what, _, text in margins.ARRAYS)

add_words = margins.add_words


def attach(
    shards: Sequence[Arrays], alpha: np.ndarray, tokens: Sequence[np.ndarray]
) -> list[tuple[Listed, ...]]:
    """gamma, phi_doc and phi_word of all shards, as the kernels of one worker take them.

    `tokens` are those of each shard's documents, float64, shape (D_p,).
    """
    window, none = make_window(alpha), np.zeros_like(alpha)
    return [
        (
            of_arrays("gamma", arrays, alpha.copy(), window, of_documents),
            of_arrays("phi_doc", arrays, none, window),
            of_arrays("phi_word", arrays, none, window),
        )
        for arrays, of_documents in zip(shards, tokens, strict=True)
    ]


@kernel(allocates=True)
def prepare(desk, block, given):
    """As `desk.prepare`, window by window."""
    lambda_, rule, scratch, window = desk.lambda_, desk.rule, desk.scratch, desk.gamma.window
    pi_others, pi_rows = desk.pi
    word_row, length = desk.shard.word_row, scratch.factor.shape[0]
    first, last = desk.shard.block_word_ptr[block], desk.shard.block_word_ptr[block + 1]
    if not given:
        own = pi_rows[desk.worker]
        topic_factors_into(pi_others, own, desk.worker, rule, scratch.log_topic, scratch.factor)
    for at in range(first, last, BATCH):
        n = min(BATCH, last - at)
        _open_words(word_row, at, n, lambda_, rule, given, window)
        here = at - first
        prepare_words(
            window.words, window.rows, 0, n, given, rule, window.priors, window.word_ids,
            scratch.rows[2 * length * here :], scratch.inverse[length * here :], scratch,
        )  # fmt: skip


@kernel
def _open_words(word_row, at, n, lambda_, rule, given, window):
    """Make the rows of n words from `at` on in the window.

    Not where the window is one of a desk's: where something is inlined numba takes what is stored
    in arrays of a `holder` for dead, and leaves it out.
    """
    for j in range(n):
        word = word_row[at + j]
        window.priors[j], window.word_ids[j] = rule.eta[word], rule.word_ids[word]
        word_row_into(lambda_, word, np.float32(0.0) if given else rule.eta[word], window.words[j])


@kernel
def _open(shard, at, n, gamma, phi):
    """Unpack n rows from `at` on into the window."""
    phi_doc, window = phi[0], gamma.window
    for j in range(n):
        unpack_into(gamma, shard.row_doc[at + j], window.gamma[j])
        unpack_into(phi_doc, at + j, window.phi[j])


@kernel
def _close(shard, at, n, gamma, phi):
    """List the n rows of the window again, by a look at all topics."""
    phi_doc, window = phi[0], gamma.window
    bits, own = window.bits, window.own
    for j in range(n):
        r, d = at + j, shard.row_doc[at + j]
        gamma_row, phi_row = window.gamma[j], window.phi[j]
        n_topics = gamma_row.shape[0]
        n_own, total = choose_topics(phi_doc, r, phi_row, bits, own)
        window.without_place[1] += put_row(phi_doc, r, phi_row, own, n_own, total, True)
        if total >= 0.0:
            rest, prior = phi_doc.rest[r], gamma.prior
            for k in range(n_topics):
                gamma_row[k] = max(gamma_row[k] - phi_row[k] + rest, prior[k] + rest)
            first = phi_doc.first[r]
            for i in range(n_own):
                k, value = unsigned(own[i]), phi_doc.values[unsigned(first + i)]
                gamma_row[k] = max(gamma_row[k] - rest + value, prior[k] + value)
        for k in range(n_topics):
            phi_row[k] = 0.0
        outside = _list_document(d, gamma, window, gamma_row, True)
        window.without_place[0] += outside * _share_of(shard, r, gamma.tokens[d])


@kernel(inline="always")
def _share_of(shard, r, tokens):
    """The share of a document's tokens that a row of it has."""
    of_row = 0.0
    for j in range(shard.row_ptr[r], shard.row_ptr[r + 1]):
        of_row += shard.pair_count[j]
    return of_row / tokens


@kernel(inline="always")
def _list_document(d, gamma, window, row, spread):
    """List a document's row of the window, which is at the prior then; what had no place."""
    n, total = choose_topics(gamma, d, row, window.bits, window.own)
    tokens = np.float32(gamma.tokens[d])
    total = tokens_to_list(gamma.prior, row, gamma.window.own, n, total, tokens)
    outside = put_row(gamma, d, row, window.own, n, total, spread)
    for k in range(row.shape[0]):
        row[k] = gamma.prior[k]
    return outside


@kernel(allocates=True)
def visit(desk, block, given, frozen, want_words, want_entropy):
    """One visit of a block to a shard; parameters and result as `margins.visit`."""
    prepare(desk, block, given)
    lambda_, phi, rule, scratch = desk.lambda_, desk.phi, desk.rule, desk.scratch
    bound = _sweep(
        desk.shard, block, desk.gamma, lambda_, phi, rule, given, want_words, want_entropy, scratch
    )
    if want_words:
        bound += margins.settle_words(
            desk.shard, block, lambda_, phi, rule, frozen, want_entropy, scratch,
            desk.pi[1][desk.worker],
        )  # fmt: skip
    return bound


@kernel
def _sweep(shard, block, gamma, lambda_, phi, rule, given, want_words, want_entropy, scratch):
    """As `margins.sweep`, window by window."""
    window = gamma.window
    first_row, last_row = shard.block_row_ptr[block], shard.block_row_ptr[block + 1]
    n_words = shard.block_word_ptr[block + 1] - shard.block_word_ptr[block]
    scratch.since[:n_words] = 0
    window.without_place[:] = 0.0
    bound = 0.0
    for at in range(first_row, last_row, BATCH):
        if want_words and at > first_row and (at - first_row) % FLUSH_ROWS == 0:
            margins.flush_words(shard, block, at, rule, scratch)
        n = min(BATCH, last_row - at)
        _open(shard, at, n, gamma, phi)
        bound += margins.sweep_rows(
            shard, block, at, at + n, window.gamma, window.rows, window.phi, at, lambda_, rule,
            given, want_words, want_entropy, scratch,
        )  # fmt: skip
        _close(shard, at, n, gamma, phi)
    return bound


@kernel
def lay_out_rows(shard, gamma, phi_doc, phi_word):
    """Where the places of all rows begin."""
    row_doc, row_ptr, pair_word = shard.row_doc, shard.row_ptr, shard.pair_word
    n_topics = gamma.prior.shape[0]
    gamma.first[:] = 0
    for r in range(row_doc.shape[0]):
        pairs = row_ptr[r + 1] - row_ptr[r]
        phi_doc.first[r + 1] = pairs
        gamma.first[row_doc[r] + 1] += pairs
    lay_out(phi_doc.first, ROW_PLACES, n_topics, phi_doc.values.shape[0] - 1)
    lay_out(gamma.first, DOCUMENT_PLACES, n_topics, gamma.values.shape[0] - 1)
    first = phi_word.first
    first[:] = 0
    for j in range(pair_word.shape[0]):
        first[pair_word[j] + 1] += 1
    for i in range(first.shape[0] - 1):
        first[i + 1] = first[i] + min(first[i + 1] + SPARE, n_topics)


@kernel(allocates=True)
def set_uniform(shard, gamma, phi, alpha):
    """phi = 1 / K for every pair, and gamma to match; the words' margin is left to a fold-in."""
    pair_count, row_ptr = shard.pair_count, shard.row_ptr
    phi_doc, phi_word = phi
    phi_doc.size[:] = 0
    for r in range(phi_doc.size.shape[0]):
        tokens = 0.0
        for j in range(row_ptr[r], row_ptr[r + 1]):
            tokens += pair_count[j]
        phi_doc.rest[r] = tokens / phi_doc.prior.shape[0]
    phi_word.size[:] = 0
    phi_word.rest[:] = 0.0
    sum_documents(shard, gamma, phi, alpha)


@kernel(allocates=True)
def set_random(shard, phi, first_document, word_ids, seed, pair_phi):
    """phi of every pair uniform on the simplex; returns H by block."""
    pair_word, pair_count = shard.pair_word, shard.pair_count
    row_doc, row_ptr = shard.row_doc, shard.row_ptr
    block_row_ptr, word_row = shard.block_row_ptr, shard.word_row
    phi_doc, phi_word = phi
    window = phi_doc.window
    block_word_ptr, n_topics = shard.block_word_ptr, pair_phi.shape[0]
    entropies = np.zeros(block_row_ptr.shape[0] - 1)
    row = window.phi[0]
    for b in range(entropies.shape[0]):
        # As large as a visit's factors.
        first_word = block_word_ptr[b]
        of_words = np.zeros((block_word_ptr[b + 1] - first_word, n_topics), np.float32)
        for r in range(block_row_ptr[b], block_row_ptr[b + 1]):
            for j in range(row_ptr[r], row_ptr[r + 1]):
                i = pair_word[j]
                pair = (first_document + row_doc[r]) * word_ids.shape[0] + word_ids[word_row[i]]
                random_phi_into(pair_phi, pair, seed)
                entropies[b] += pair_count[j] * entropy(pair_phi)
                for k in range(n_topics):
                    row[k] += pair_count[j] * pair_phi[k]
                    of_words[i - first_word, k] += pair_count[j] * pair_phi[k]
            n, total = choose_topics(phi_doc, r, row, window.bits, window.own)
            put_row(phi_doc, r, row, window.own, n, total, True)
            row[:] = 0.0
        for i in range(of_words.shape[0]):
            word = of_words[i]
            n, total = choose_topics(phi_word, first_word + i, word, window.bits, window.own)
            put_row(phi_word, first_word + i, word, window.own, n, total, True)
    return entropies


@kernel(allocates=True)
def sum_documents(shard, gamma, phi, alpha):
    """gamma_d = alpha + the sum of its rows of phi_doc, listed."""
    row_doc, block_row_ptr = shard.row_doc, shard.block_row_ptr
    phi_doc, window = phi[0], gamma.window
    n_topics = alpha.shape[0]
    for k in range(n_topics):
        gamma.prior[k] = alpha[k]
        for j in range(BATCH):
            window.gamma[j, k] = gamma.prior[k]
    # The rows of a cell are in the order of the documents: each goes on where it was left.
    following = block_row_ptr[:-1].copy()
    rests = np.zeros(BATCH, np.float32)
    listed, spread = np.zeros(BATCH, np.bool_), np.zeros(BATCH, np.bool_)
    row = window.phi[0]
    n_documents = gamma.size.shape[0]
    for at in range(0, n_documents, BATCH):
        rests[:], listed[:], spread[:] = 0.0, False, False
        for c in range(following.shape[0]):
            r = following[c]
            while r < block_row_ptr[c + 1] and row_doc[r] < at + BATCH:
                j = row_doc[r] - at
                if phi_doc.rest[r] > 0.0 and phi_doc.size[r] > 0:
                    unpack_into(phi_doc, r, row)
                    for k in range(n_topics):
                        window.gamma[j, k] += row[k]
                        row[k] = 0.0
                else:
                    for i in range(phi_doc.first[r], phi_doc.first[r] + phi_doc.size[r]):
                        window.gamma[j, phi_doc.topics[i]] += phi_doc.values[i]
                    if phi_doc.size[r] == 0:
                        rests[j] += phi_doc.rest[r]
                listed[j] |= phi_doc.size[r] > 0
                spread[j] |= phi_doc.rest[r] > 0.0
                r += 1
            following[c] = r
        for j in range(min(BATCH, n_documents - at)):
            if not listed[j]:
                gamma.size[at + j], gamma.rest[at + j] = 0, rests[j]
                continue
            for k in range(n_topics if rests[j] > 0.0 else 0):
                window.gamma[j, k] += rests[j]
            _list_document(at + j, gamma, window, window.gamma[j], spread[j])
