"""The benchmark of the wire, from end to end on a few bytes."""

from bench import wire


def test_it_counts_what_has_travelled():
    found = wire.measure("tcp", None, n_blocks=4, n_bytes=1000, n_passes=3)
    assert found["bytes_per_second"] > 0
    assert 0 < found["processor_share"] <= 1.5
    assert found["bytes_per_processor_second"] > 0
