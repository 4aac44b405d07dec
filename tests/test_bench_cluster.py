"""The model of a cluster: its numbers make sense."""

import json

import pytest

from bench import cluster

SMALL = ["--shape", "nips", "--workers", "2", "--passes", "2", "--scale", "0.2", "--no-vary"]


@pytest.fixture
def modelled(tmp_path):
    """Rows of a run with some options, one for each number of nodes."""

    def run(*arguments):
        cluster.main([*SMALL, *arguments, "--out", str(tmp_path)])
        return json.loads((tmp_path / "cluster-nips.json").read_text())["results"]["nodes"]

    return run


def test_one_node_sends_nothing_and_several_are_faster(modelled):
    one, two = modelled("--nodes", "1", "2", "--own-core", "--scale", "20")
    assert one["bytes"] == 0 < two["bytes"]
    for row in (one, two):
        assert 0 < row["efficiency"] <= 1
        assert 0 <= row["home"] <= 1 and 0 <= row["wire"] <= 1
    assert 1 < two["pairs_per_second"] / one["pairs_per_second"] < 2


def test_a_slow_wire_is_what_limits(modelled):
    rates = []
    for bandwidth in ("1e6", "1e8", "1e10"):
        (row,) = modelled("--nodes", "2", "--bandwidth", bandwidth, "--noise", "0")
        rates.append(row["pairs_per_second"])
        if bandwidth == "1e6":
            assert row["limit"] == "wire"
    assert rates[0] < rates[1] <= 1.02 * rates[2]


def test_the_same_seed_gives_the_same_figures(modelled):
    again = [modelled("--nodes", "2")[0] for _ in range(2)]
    for row in again:
        row.pop("simulated_in")
    assert again[0] == again[1]


def test_hops_and_bytes_are_those_of_the_passes(modelled):
    for row in modelled("--nodes", "2", "3", "--passes", "3"):
        # A pass is a visit to each node, and begins where the one before has ended.
        hops = round(row["hops"] * row["seconds"] * row["nodes"])
        assert 3 * (row["nodes"] - 1) * row["blocks"] <= hops <= 6 * row["nodes"] * row["blocks"]
        rows = hops / row["blocks"] * 4 * 128 * 12_419 * row["packed"]
        assert rows < row["bytes"] * row["seconds"] * row["nodes"] < 1.1 * rows
        assert 0 < row["age"] < row["seconds"] and 0 < row["unseen"] < 1


def test_a_shorter_way_and_a_faster_home_are_no_slower():
    options = cluster.parser().parse_args([*SMALL, "--noise=0", "--latency=5e-3"])
    slow, near, quick = (
        cluster.run(options, 2, **changes)["seconds"]
        for changes in ({}, {"latency": 0.01}, {"home": 0.1})
    )
    assert near < 0.9 * slow and quick < 1.02 * slow
