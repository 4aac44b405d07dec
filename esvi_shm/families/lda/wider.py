"""Active sets: pairs for which the topics that document and word have in common are not enough.

What lies outside of them is bounded as `active` tells. Where that is too much, the pair is updated
over all topics of its word, and where that is not enough either, over all topics, by logarithms.
"""

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.families.lda.exclusion import NONE, amount_of, leave_out_of, scale_of
from esvi_shm.families.lda.thresholds import least_concentrated, placing
from esvi_shm.families.lda.update import entropy, factors_into, phi_by_logs_into
from esvi_shm.special import log

#: Below this sum of products a pair is done in the log domain; tempered, see `least_of`.
LEAST_SUM = np.float32(1e-25)


@kernel(inline="always")
def least_of(rule):
    """Tempered, factors count that are 0 beside the largest without: then it is the rule's."""
    return LEAST_SUM if rule.cvb0 or rule.power == 1.0 else rule.least


@kernel(inline="always")
def _sum_from(least, n, products):
    """Sum of the products of a word's n topics that are not below `least`."""
    total = np.float32(0.0)
    for j in range(n):
        total += products[j] if products[j] >= least else np.float32(0.0)
    return total


@kernel
def _weigh_listed(n, first, amount, s, lists):
    """As `exclusion.weigh_1`, over a word's n topics; `products` of `lists` are w, then w f."""
    x, products, shares, inverse = lists.x, lists.products, lists.shares, lists.inverse
    a = 0.0  # float32 has no room for the square of what is next to `LEAST_SUM`
    for j in range(n):
        shares[j] = np.float32(1.0) / x[j] + inverse[first + j]
        a += np.float64(products[j]) * np.float64(products[j]) * np.float64(shares[j])
    scale = np.float32(scale_of(np.float64(amount), np.float64(s), a))
    s = np.float32(0.0)
    for j in range(n):
        shares[j] = np.float32(1.0) / (np.float32(1.0) + scale * products[j] * shares[j])
        products[j] *= shares[j]
        s += products[j]
    return s


@kernel
def update_over_word(i, count, gamma_row, most, shares, rule, bits, want_entropy, lists):
    """Update one pair over all topics of its word; returns its H but for the word's, and whether.

    It is not done where what is left out may still be too much. `most` is the document's largest
    gamma, `shares` (F, G, e) of `active`'s docstring.
    """
    x, factors, rows = lists.x, lists.factors, lists.rows
    products, own_shares = lists.products, lists.shares
    topics, first = lists.topics, lists.first[i]
    n = lists.first[i + 1] - first
    for j in range(n):
        x[j] = gamma_row[topics[first + j]]
    x[n] = most  # so that the scale is theta's
    factors_into(x[: n + 1], factors, rule.cvb0, rule.power)
    s = np.float32(0.0)
    for j in range(n):
        products[j] = factors[j] * rows[2 * (first + j)]
        own_shares[j] = 1.0
        s += products[j]
    least_sum = least_of(rule)
    if rule.leave_out != NONE and s >= least_sum:
        s = _weigh_listed(n, first, amount_of(count, rule.leave_out), s, lists)
    all_factors, document_factors, beyond = shares
    left_out = lists.edge[i] * (document_factors + beyond * all_factors)
    if s < least_sum or left_out > rule.tolerance * s:
        return 0.0, False
    # What is negligible is not placed: it would keep the document's lists long. A word of thousands
    # of topics else puts a millionth of a token into each.
    tolerance = placing(rule.tolerance, rule.cvb0)
    least = tolerance * s
    kept = _sum_from(least, n, products)
    if kept < least_concentrated(tolerance) * s:
        least /= np.float32(n)
        kept = _sum_from(least, n, products)
    weight, extra = count / kept, lists.extra
    for j in range(n):
        if products[j] >= least:
            k = topics[first + j]
            extra[k] += np.float64(weight * products[j])
            bits[k >> 6] |= np.int64(1) << np.int64(k & 63)
            rows[2 * (first + j) + 1] += weight * factors[j] * own_shares[j]
    bound = 0.0
    if want_entropy:
        bound = np.float64(count) * log(np.float64(kept))
        for j in range(n):
            if products[j] >= least:
                mass = np.float64(weight * products[j])
                bound -= mass * log(np.float64(factors[j] * own_shares[j]))
    return bound, True


@kernel
def update_over_all(
    i, count, gamma_row, lambda_row, rule, log_topic, bits, want_entropy, lists, word_mass, phi
):
    """Update one pair over all topics in the log domain; returns its H but for the word's.

    `phi` is scratch.
    """
    extra = lists.extra
    phi_by_logs_into(gamma_row, lambda_row, log_topic, False, rule, phi)
    if rule.leave_out != NONE:
        leave_out_of(phi, gamma_row, lambda_row, np.float64(amount_of(count, rule.leave_out)))
    tolerance = np.float64(placing(rule.tolerance, rule.cvb0))
    least, kept = tolerance, 0.0
    for k in range(phi.shape[0]):
        kept += phi[k] if phi[k] >= least else 0.0
    if kept < least_concentrated(tolerance):  # as in `update_over_word`
        least /= phi.shape[0]
    kept = 0.0
    for k in range(phi.shape[0]):
        if phi[k] < least:
            phi[k] = 0.0
        kept += phi[k]
    for k in range(phi.shape[0]):
        if phi[k] > 0.0:
            phi[k] /= kept
            extra[k] += np.float64(count) * phi[k]
            word_mass[k] += np.float64(count) * phi[k]
            bits[k >> 6] |= np.int64(1) << np.int64(k & 63)
    bound = 0.0
    if want_entropy:
        bound = entropy(phi)
        for at in range(lists.first[i], lists.first[i + 1]):
            bound += phi[lists.topics[at]] * log(max(np.float64(lists.rows[2 * at]), 1e-300))
    return np.float64(count) * bound
