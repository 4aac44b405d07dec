"""The examples in the docstrings run."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "alignment",
        "bounds",
        "coherence",
        "completion",
        "inference",
        "intervals",
        "left_to_right",
        "stability",
    ],
)
def test_examples(module):
    done = doctest.testmod(importlib.import_module(f"esvi_shm.metrics.{module}"))
    assert done.attempted and not done.failed
