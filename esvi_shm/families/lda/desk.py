"""What the visits of one worker work on, as one argument of the storages' kernels."""

from esvi_shm.compile import Holder, holder, kernel
from esvi_shm.families.lda.exclusion import NONE, inverse_words_into
from esvi_shm.families.lda.update import (
    given_factors_into,
    topic_factors_into,
    word_factors_into,
)


@holder("shard", "gamma", "lambda_", "phi", "pi", "worker", "rule", "scratch")
class Desk(Holder):
    """A worker's arrays, kept in compiled form.

    Attributes
    ----------
    shard : Shard
    gamma : float32 array, shape (D_p, K)
        Of the shard's documents.
    lambda_ : float32 array, shape (V, K)
        Or lists, as gamma and phi may be.
    phi : tuple of arrays
        What the storage keeps; see its `ARRAYS`.
    pi : tuple of float64 arrays, shapes (P, K)
        (rows to read the other workers' contributions from, live rows). Row `worker` of the
        live rows is read and updated.
    worker : int
    rule : Rule
        As `set_rule` has set it.
    scratch : Scratch
    """


@kernel(allocates=True)
def sit_down(shard, gamma, lambda_, phi, pi, worker, rule, scratch):
    """The desk of a worker."""
    return Desk(shard, gamma, lambda_, phi, pi, worker, rule, scratch)


@kernel(allocates=True)
def prepare(desk, block, given):
    """Put the factors of a block's words into the scratch: a visit over all topics begins so.

    Parameters
    ----------
    desk : Desk
    block : int
    given : bool
        lambda holds point topics, not Dirichlet parameters.
    """
    rule, scratch = desk.rule, desk.scratch
    pi_others, pi_rows = desk.pi
    word_row, block_word_ptr = desk.shard.word_row, desk.shard.block_word_ptr
    if not given:
        own = pi_rows[desk.worker]
        topic_factors_into(pi_others, own, desk.worker, rule, scratch.log_topic, scratch.factor)
    prepare_words(
        desk.lambda_, word_row, block_word_ptr[block], block_word_ptr[block + 1], given, rule,
        rule.eta, rule.word_ids, scratch.rows, scratch.inverse, scratch,
    )  # fmt: skip


@kernel
def prepare_words(
    lambda_, word_row, first, last, given, rule, eta, word_ids, rows, inverse, scratch
):  # fmt: skip
    """Put the factors of words first..last-1 into `rows`, and 1 / lambda into `inverse`.

    `eta` and `word_ids` are by row of `lambda_`. The topics' factors are in the scratch.
    """
    factor = scratch.factor
    length = factor.shape[0]
    if given:
        given_factors_into(lambda_, word_row, first, last, rows, length)
        return
    word_factors_into(
        lambda_, word_row, first, last, factor, rule, eta, word_ids, scratch.few, rows
    )
    if rule.leave_out != NONE:
        inverse_words_into(lambda_, word_row, first, last, length, inverse)


@kernel(allocates=True)
def set_rule(desk, rule):
    """Have the visits that follow go by another rule."""
    desk.rule = rule
