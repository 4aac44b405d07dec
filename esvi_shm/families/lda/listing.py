"""Rows of lists, written: which topics get a place, and how a row of sums follows its parts.

Topics are chosen by a look at all (`choose_topics`) or at some (`choose_among`), and put by
`put_row`. Over active sets a list is changed as it is, where that can be done (`change_row`).
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.listed import ROUNDING, mark, unpack_into
from esvi_shm.sparse import above_into, bits_into, lowest, popcount
from esvi_shm.vector import largest_of, unsigned

#: A share of a row that is not worth a place where not all topics have one.
LEAST_SHARE = np.float32(1e-5)
#: What a row has more or less than its tokens may be rounding up to this share.
TOKENS_ROUNDING = np.float32(1e-4)
#: Looks for the limit above which a row has no more topics than places; fewer where it is so near.
LOOKS, NEARLY = 12, 7 / 8


@kernel(inline="always")
def _count(bits):
    n = 0
    for w in range(bits.shape[1]):
        n += popcount(bits[0, w])
    return n


@kernel
def choose_topics(listed, i, row, bits, own):
    """Choose the topics of a row that get a place, by a look at all of them.

    Parameters
    ----------
    listed : Listed
    i : int
        The row's number. What is listed of it gives a first guess of the limit.
    row : float32 array, shape (K,)
    bits : int64 array, shape (1, ceil(K / 64))
        Scratch.
    own : int32 array, shape (K + 16,)
        Written: the topics, ascending.

    Returns
    -------
    tuple
        How many they are; what all topics have beyond the prior, or -1 where those chosen have all.
    """
    prior, places = listed.prior, listed.first[i + 1] - listed.first[i]
    above_into(row, prior, np.float32(0.0), bits[0])
    n, total = _count(bits), np.float32(-1.0)
    if n > places:
        total = np.float32(0.0)
        for k in range(row.shape[0]):
            total += row[k] - prior[k]
        # A row's largest value is not below what it has beyond the prior.
        least, high = LEAST_SHARE * total, largest_of(row, 0, row.shape[0])
        low, middle = least, max(_least_listed(listed, i), least)
        for look in range(LOOKS):
            above_into(row, prior, middle, bits[0])
            n = _count(bits)
            if n > places:
                low = middle
            elif n >= max(np.int64(NEARLY * places), 1) or middle == least:
                break
            else:
                high = middle
            middle = np.float32(np.sqrt(np.float64(low) * np.float64(high)))
            if look == 0 and n <= places:
                middle = least  # most often there are places for all that are worth one
        if n > places:
            above_into(row, prior, high, bits[0])
            n = _count(bits)
        if n == 0:  # the largest are all the same, and no limit tells them apart: the first of them
            above_into(row, prior, low, bits[0])
    end = 0
    for w in range(bits.shape[1]):
        left = bits[0, w]
        while left != 0 and end < places:
            own[unsigned(end)] = 64 * w + lowest(left)
            left &= left - 1
            end += 1
    return end, total


@kernel(inline="always")
def _least_listed(listed, i):
    """The least that a listed topic of a row has beyond the prior; 0 where none is."""
    least = np.float32(np.inf)
    first = listed.first[i]
    for j in range(listed.size[i]):
        at = unsigned(first + j)
        least = min(least, listed.values[at] - listed.prior[unsigned(listed.topics[at])])
    return least if listed.size[i] > 0 else np.float32(0.0)


@kernel
def choose_among(row, prior, places, own, n):
    """The same among n topics, outside of which the row is at the prior; `own` has them first."""
    m = 0
    total = largest = np.float32(0.0)
    for j in range(n):
        k = unsigned(own[unsigned(j)])
        value = row[k] - prior[k]
        if value > 0.0:
            own[unsigned(m)] = k
            m += 1
            total += value
            largest = max(largest, value)
    if m <= places:
        return m, np.float32(-1.0)
    low, high = min(LEAST_SHARE * total, np.float32(0.5) * largest), largest
    found = _above(row, prior, low, own, m)
    if found > places:
        for _ in range(LOOKS):
            middle = np.float32(np.sqrt(np.float64(low) * np.float64(high)))
            found = _above(row, prior, middle, own, m)
            if found > places:
                low = middle
                continue
            high = middle
            if found >= max(np.int64(NEARLY * places), 1):
                break
        # Where the largest are all the same no limit tells them apart: the first of them.
        low = high if _above(row, prior, high, own, m) > 0 else low
    n = 0
    for j in range(m):
        k = unsigned(own[unsigned(j)])
        if row[k] - prior[k] > low and n < places:
            own[unsigned(n)] = k
            n += 1
    return n, total


@kernel(inline="always")
def _above(row, prior, limit, own, n):
    found = 0
    for j in range(n):
        k = unsigned(own[unsigned(j)])
        found += row[k] - prior[k] > limit
    return found


@kernel(inline="always")
def put_row(listed, i, row, own, n, total, spread):
    """List n topics of a row; what has no place goes to them in proportion, or (`spread`) evenly
    to the others. Returns how much that is.
    """
    topics, values, prior = listed.topics, listed.values, listed.prior
    n_topics = row.shape[0]
    rest, scale, outside = np.float32(0.0), np.float32(1.0), np.float32(0.0)
    if total >= 0.0:
        inside = np.float32(0.0)
        for j in range(n):
            k = unsigned(own[unsigned(j)])
            inside += row[k] - prior[k]
        outside = max(total - inside, np.float32(0.0))
        if inside > 0.0 and (inside > total or n == n_topics or not spread):
            scale = total / inside
        else:
            rest = outside / np.float32(n_topics - n)
    first = listed.first[i]
    for j in range(n):
        k, at = unsigned(own[unsigned(j)]), unsigned(first + j)
        value = row[k]
        if scale != 1.0:
            value = prior[k] + (value - prior[k]) * scale
        topics[at], values[at] = k, value
    listed.size[i], listed.rest[i] = n, rest
    return outside


@kernel(inline="always")
def has_topics(listed, i, topics, at, n):
    """Whether a row has these n topics, from place `at` on, and no others."""
    first = listed.first[i]
    others = np.int64(listed.size[i] != n) + np.int64(listed.rest[i] > 0.0)
    if others == 0:
        for j in range(n):
            here = np.int64(listed.topics[unsigned(first + j)])
            others += here != np.int64(topics[unsigned(at + j)])
    return others == 0


@kernel(inline="always")  # to hand over lists takes as long as most rows
def change_row(sums, i, part, r, topics, at, values, n, rounding, spread):
    """Put a new row into a margin, and what that changes into the row of its sums.

    Equivalent to ``sums[i] += new - part[r]; part[r] = new``, new being 0 but for some topics. What
    is above its prior by no more than `ROUNDING` of that, and `rounding`, is not listed any more.

    Parameters
    ----------
    sums, part : Listed
        The second one without a prior; the first one at least at its own beside what the other has.
        That has its tokens in all, which is made good: where it has lost topics, less is there than
        is taken from it.
    i, r : int
        Their rows.
    topics : int32 array
        From place `at` on the n topics of the new row, ascending; at least one place more.
    values : float32 array
        What it has of them, from place 0 on.
    rounding : float32
    spread : bool
        Whether what other margins have of topics that are not listed stays there in the row of the
        sums; else the topics listed get it.

    Returns
    -------
    tuple of float
        What had no place in the row of the sums, and in that of the margin.
    """
    window = part.window
    first, n_listed = sums.first[i], sums.size[i]
    first_old, n_old = part.first[r], part.size[r]
    if sums.rest[i] > 0.0 or part.rest[r] > 0.0:  # after passes of all topics
        return _change_row_anew(sums, i, part, r, topics, at, values, n, rounding, spread)
    made, made_values = window.own, window.values
    prior = sums.prior
    a = b = m = 0
    has = np.float32(0.0)
    for j in range(n_listed):
        k = np.int64(sums.topics[unsigned(first + j)])
        is_old = (np.int64(part.topics[unsigned(first_old + a)]) == k) & (a < n_old)
        is_new = (np.int64(topics[unsigned(at + b)]) == k) & (b < n)
        old = part.values[unsigned(first_old + a)] if is_old else np.float32(0.0)
        new = values[unsigned(b)] if is_new else np.float32(0.0)
        least = prior[unsigned(k)]
        value = max(sums.values[unsigned(first + j)] + (new - old), least + new)
        made[unsigned(m)], made_values[unsigned(m)] = k, value
        has += value - least
        m += value - least > rounding + least * ROUNDING
        a += is_old
        b += is_new
    places = part.first[r + 1] - first_old
    # Most rows are changed in place: few topics come or go.
    if a < n_old or b < n or n > places:
        return _change_row_anew(sums, i, part, r, topics, at, values, n, rounding, spread)
    for j in range(m):
        here, there = unsigned(first + j), unsigned(j)
        sums.topics[here], sums.values[here] = made[there], made_values[there]
    sums.size[i] = m
    m = 0
    for j in range(n):
        here, value = unsigned(first_old + m), values[unsigned(j)]
        part.topics[here], part.values[here] = topics[unsigned(at + j)], value
        m += value > 0.0
    part.size[r] = m
    scale_to_tokens(sums, i, has)
    return np.float32(0.0), np.float32(0.0)


@kernel(inline="always")
def scale_to_tokens(sums, i, has):
    """Have what a row lists add up to its tokens, unless it does up to rounding."""
    tokens = np.float32(sums.tokens[i])
    if abs(has - tokens) <= TOKENS_ROUNDING * tokens or has <= 0.0:
        return
    scale = tokens / has
    for j in range(sums.first[i], sums.first[i] + sums.size[i]):
        base = sums.prior[unsigned(sums.topics[unsigned(j)])]
        sums.values[unsigned(j)] = base + (sums.values[unsigned(j)] - base) * scale


@kernel(inline="always")
def tokens_to_list(prior, row, own, n, total, tokens):
    """What n topics of a row and the others are to have together, see `put_row`.

    Not what the row has: what was kept of it may be less than what was taken from it.
    """
    if total >= 0.0:
        return tokens
    has = np.float32(0.0)
    for j in range(n):
        k = unsigned(own[unsigned(j)])
        has += row[k] - prior[k]
    return tokens if abs(has - tokens) > TOKENS_ROUNDING * tokens else total


@kernel
def _change_row_anew(sums, i, part, r, topics, at, values, n, rounding, spread):
    """The same where topics come to a row, or more than it has places for, by whole rows."""
    window = part.window
    row, old, bits, own = window.sums, window.word, window.bits, window.own
    n_topics, tokens = row.shape[0], np.float32(sums.tokens[i])
    left = max(sums.rest[i] - part.rest[r], np.float32(0.0)) if spread else np.float32(0.0)
    if n_topics * left <= TOKENS_ROUNDING * tokens:
        left = np.float32(0.0)
    bits[:] = 0
    mark(sums, i, bits[0])
    mark(part, r, bits[0])
    for j in range(n):
        topic = np.int64(topics[unsigned(at + j)])
        bits[0, topic >> 6] |= np.int64(1) << (topic & 63)
    if sums.rest[i] > 0.0 or part.rest[r] > 0.0:
        for k in range(n_topics):
            bits[0, k >> 6] |= np.int64(1) << np.int64(k & 63)
    unpack_into(part, r, old)
    n_had = bits_into(bits, 0, own)
    for j in range(n_had):
        k = unsigned(own[unsigned(j)])
        row[k] = sums.prior[k] + sums.rest[i]
    for j in range(sums.size[i]):
        place = unsigned(sums.first[i] + j)
        row[unsigned(sums.topics[place])] = sums.values[place]
    for j in range(n_had):
        k = unsigned(own[unsigned(j)])
        row[k] -= old[k]
        old[k] = 0.0
    for j in range(n):
        old[unsigned(topics[unsigned(at + j)])] = values[unsigned(j)]
    n_own, total = choose_among(old, part.prior, part.first[r + 1] - part.first[r], own, n_had)
    outside_part = put_row(part, r, old, own, n_own, total, False)
    bits_into(bits, 0, own)
    for j in range(n_had):
        old[unsigned(own[unsigned(j)])] = 0.0
    for j in range(part.size[r]):
        place = unsigned(part.first[r] + j)
        old[unsigned(part.topics[place])] = part.values[place]
    for j in range(n_had):
        k = unsigned(own[unsigned(j)])
        least = sums.prior[k]
        value = max(row[k] + old[k], least + old[k]) - left
        row[k] = value if value - least > rounding + least * ROUNDING else least
        old[k] = 0.0
    n_own, total = choose_among(row, sums.prior, sums.first[i + 1] - sums.first[i], own, n_had)
    tokens = max(tokens - n_topics * left, np.float32(0.0))
    total = tokens_to_list(sums.prior, row, own, n_own, total, tokens)
    outside_sums = put_row(sums, i, row, own, n_own, total, False)
    if left > 0.0:
        sums.rest[i] = left
        for j in range(sums.first[i], sums.first[i] + sums.size[i]):
            sums.values[unsigned(j)] += left
    return outside_sums, outside_part


@kernel
def list_rows(listed, numbers, rows, bits, own):
    """List whole rows, float32 (n, K), as those of these numbers, int64 (n,).

    What has no place goes evenly to the others. `bits` and `own` as for `choose_topics`.
    """
    for j in range(rows.shape[0]):
        n, total = choose_topics(listed, numbers[j], rows[j], bits, own)
        put_row(listed, numbers[j], rows[j], own, n, total, True)
