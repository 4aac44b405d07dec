"""Start `random`: phi of each pair uniform on the simplex, without topics or a fold-in."""

from collections.abc import Generator

from esvi_shm.compile import kernel
from esvi_shm.config import FitConfig
from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.counter import uniform
from esvi_shm.families.contract import Arrays
from esvi_shm.special import log


def start(
    config: FitConfig, corpus: AnyCorpus, arrays: Arrays, shared: Arrays
) -> Generator[str, bool, None]:
    """See `starts`."""
    yield "random_phi"


@kernel
def random_phi_into(phi, pair, seed):
    """phi of one pair, uniform on the simplex: normalised exponentials. `pair` counts in all."""
    total = 0.0
    for k in range(phi.shape[0]):
        phi[k] = -log(uniform(seed, pair, k))
        total += phi[k]
    for k in range(phi.shape[0]):
        phi[k] /= total
