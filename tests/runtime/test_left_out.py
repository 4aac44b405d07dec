"""A fit tells what its active sets leave out."""

import numpy as np

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.lda import left_out
from esvi_shm.families.lda.schedule import TOLERANCE
from tests.runtime.fits import COUNTS


def test_the_end_of_a_fit_tells_it(threaded_fit):
    options = {"n_topics": 12, "n_passes": 12, "storage": "margins", "seed": 3, "evaluate_every": 0}
    ended = threaded_fit(**options, dense_passes=2)
    found = ended.result.ending["active_left_out"]
    sample = left_out.draw(len(COUNTS), 3)
    gamma = np.concatenate(ended.result.learned.of_units)[sample]
    documents = Corpus.from_sparse(COUNTS).rows(sample)
    wanted = left_out.measure(
        documents, gamma, ended.serial.lambda_, np.arange(COUNTS.shape[1]),
        ended.result.learned.alpha, ended.result.learned.eta, TOLERANCE,
    )  # fmt: skip
    assert found == wanted and found["documents"] == len(COUNTS)
    for changes in ({"dense_passes": 12}, {"inference": "cvb0", "dense_passes": 2}, {}):
        assert "active_left_out" not in threaded_fit(**{**options, **changes}).result.ending
