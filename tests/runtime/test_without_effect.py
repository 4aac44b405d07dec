"""Options that a fit takes and cannot use: they are told, once, and it goes on."""

import pytest

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime import engine
from tests.runtime.fits import COUNTS


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"inference": "vb", "cvb0_passes": 3}, ["cvb0_passes has no effect with inference vb"]),
        (
            {"inference": "cvb0", "cvb0_passes": 0},
            ["cvb0_passes has no effect with inference cvb0"],
        ),
        ({"inference": "vb", "leave_out": "token"}, ["leave_out has no effect with inference vb"]),
        ({"inference": "vb", "relax": 1.5}, ["relax has no effect with inference vb"]),
        ({"storage": "full", "relax": 1.5}, ["relax has no effect with storage full"]),
        (
            {"inference": "cvb0", "dense_passes": 3, "relax": 1.5},
            ["relax has no effect in the passes after dense_passes"],
        ),
        ({"axis": "topics", "settle": 2}, ["settle has no effect with axis topics"]),
        (
            {"axis": "topics", "inference": "cvb0"},
            ["leave_out excess, the default of cvb0, has no effect with axis topics"],
        ),
        ({"axis": "topics", "inference": "cvb0", "leave_out": "none"}, []),
        # What chooses active sets has them in passes of vb alone, which are never over-relaxed.
        ({"relax": 1.5, "inference": "cvb0", "n_topics": 600}, []),
        ({"relax": 1.0, "inference": "vb"}, []),
        ({"relax": 1.0, "storage": "full"}, []),
        (
            {"inference": "anneal", "cvb0_passes": 0, "relax": 1.5, "leave_out": "pair"},
            [
                "relax has no effect with cvb0_passes 0",
                "leave_out has no effect with cvb0_passes 0",
            ],
        ),
        (
            {"storage": "topk", "topk": 3, "n_topics": 3, "residual": "drop"},
            ["residual has no effect with topk 3, all topics"],
        ),
        ({"restart_passes": 3}, ["restart_passes has no effect without restarts"]),
        ({"inference": "anneal", "relax": 1.5, "settle": 2, "leave_out": "pair"}, []),
        ({"inference": "anneal", "cvb0_passes": 6}, []),
        ({"inference": "anneal", "cvb0_passes": 3, "n_passes": 0}, []),
        ({"temper_passes": 7}, []),
        (
            {"temper_passes": 8},
            [
                "temper_passes (8) is more than n_passes (7): the fit ends while "
                "it is tempered, short of its optimum"
            ],
        ),
        ({"refold_after": (1, 7)}, []),
        ({"refold_after": (1, 8, 9)}, ["refold_after 8, 9 has no effect in 7 passes"]),
    ],
)
def test_what_has_no_effect_is_told_once(options, messages, caplog, monkeypatch):
    monkeypatch.setattr(engine, "available_cores", lambda: 1)
    config = FitConfig(**{"n_passes": 7, "n_workers": 1, **options})
    engine.check(config)
    engine.plan(Corpus.from_sparse(COUNTS), config)
    assert [record.getMessage() for record in caplog.records] == messages
