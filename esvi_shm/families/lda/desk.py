"""What the visits of one worker work on, as one argument of the storages' kernels."""

from esvi_shm.compile import Holder, holder, kernel


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
def set_rule(desk, rule):
    """Have the visits that follow go by another rule."""
    desk.rule = rule
