"""The examples in the docstrings run."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module", ["corpus", "options", "readers", "readers._files", "shard", "split"]
)
def test_examples(module):
    done = doctest.testmod(importlib.import_module(f"esvi_shm.corpus.{module}"))
    assert done.attempted and not done.failed
