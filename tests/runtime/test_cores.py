"""How many cores a fit takes, and that more workers than that are told."""

import logging
import os

import numpy as np
import pytest

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime import engine
from esvi_shm.runtime.cores import available_cores
from tests.shared.test_preflight import machine


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("", {}, 8),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "300000 100000"}, 3),
        ("0::/", {"cpu.max": "9900000 100000"}, 8),
        ("0::/", {"cpu.max": "10000 100000"}, 1),  # a tenth of a core
        ("0::/", {"cpu.max": "nonsense"}, 8),
        ("0::/", {"cpu.max": "100000 nonsense"}, 8),
        ("0::/", {"cpu.max": "100000 0"}, 8),
        # Its own group, and those above it: the least of all quotas.
        ("0::/a/b", {"a/b/cpu.max": "200000 100000"}, 2),
        ("0::/a/b", {"a/cpu.max": "200000 50000", "a/b/cpu.max": "600000 100000"}, 4),
        ("0::/a/b", {"a/c/cpu.max": "100000 100000"}, 8),  # of another group
        ("0::/docker/0123", {"cpu.max": "200000 100000"}, 2),  # only its root is mounted
        ("3:cpu,cpuacct:/x", {"cpu,cpuacct/x/cpu.cfs_quota_us": 500000}, 8),  # half a limit
        (
            "4:memory:/x\n3:cpuacct,cpu:/x\n0::/",
            {"cpu/x/cpu.cfs_quota_us": 500000, "cpu/x/cpu.cfs_period_us": 100000},
            5,
        ),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100000}, 8),
        ("3:cpuset:/", {"cpuset/cpu.cfs_quota_us": 1, "cpuset/cpu.cfs_period_us": 1}, 8),
    ],
)
def test_the_least_quota_counts(groups, files, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert available_cores(machine(tmp_path, groups, files)) == cores


def test_a_quota_above_the_affinity_does_not_help(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert available_cores(machine(tmp_path, "0::/", {"cpu.max": "400000 100000"})) == 1


def test_more_workers_than_cores_are_told(monkeypatch, caplog):
    monkeypatch.setattr(engine, "available_cores", lambda: 2)
    corpus = Corpus.from_sparse(np.ones((5, 4)))
    for n_workers in (None, 1, 2):
        assert engine.resolve(FitConfig(n_workers=n_workers), corpus).n_workers == (n_workers or 2)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        assert engine.resolve(FitConfig(n_workers=3), corpus).n_workers == 3
    (record,) = caplog.records
    assert record.getMessage().startswith("3 workers for 2 available cores")
