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
    lambda_, rule, scratch = desk.lambda_, desk.rule, desk.scratch
    rows, log_topic, factor = scratch.rows, scratch.log_topic, scratch.factor
    pi_others, pi_rows = desk.pi
    word_row, block_word_ptr = desk.shard.word_row, desk.shard.block_word_ptr
    first, last = block_word_ptr[block], block_word_ptr[block + 1]
    if given:
        given_factors_into(lambda_, word_row, first, last, rows, factor.shape[0])
        return
    topic_factors_into(pi_others, pi_rows[desk.worker], desk.worker, rule, log_topic, factor)
    word_factors_into(lambda_, word_row, first, last, factor, rule, scratch.few, rows)
    if rule.leave_out != NONE:
        inverse_words_into(lambda_, word_row, first, last, factor.shape[0], scratch.inverse)


@kernel(allocates=True)
def set_rule(desk, rule):
    """Have the visits that follow go by another rule."""
    desk.rule = rule
