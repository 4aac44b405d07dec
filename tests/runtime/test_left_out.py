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
    wanted = left_out.measure(
        Corpus.from_sparse(COUNTS), sample, gamma, ended.serial.lambda_, np.arange(COUNTS.shape[1]),
        ended.result.learned.alpha, ended.result.learned.eta, TOLERANCE,
    )  # fmt: skip
    assert found == wanted and found["documents"] == len(COUNTS)
    for changes in ({"dense_passes": 12}, {}):
        ending = threaded_fit(**{**options, **changes}).result.ending
        assert not {"active_left_out", "active_visits", "cvb0_left_out"} & ending.keys()


def test_what_cvb0_leaves_out_is_told_too(threaded_fit):
    options = {
        "n_topics": 12,
        "n_passes": 12,
        "storage": "margins",
        "dense_passes": 2,
        "alpha": 1.0,
    }
    options |= {"n_workers": 1, "n_blocks": 3, "deterministic": True, "alpha": 1.0}
    ended = threaded_fit(**options, inference="anneal", cvb0_passes=7)
    found = ended.result.ending
    assert found["active_visits"] == 3 * 10 and "active_left_out" in found
    # That of the last pass of cvb0.
    same = threaded_fit(**{**options, "n_passes": 7}, inference="cvb0", temper_passes=8, power=1.0)
    assert 0.001 < found["cvb0_left_out"] < 1
    assert "active_left_out" not in same.result.ending
