"""The examples in the docstrings of the room run and say the truth."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["atomics", "ring", "table", "runs", "preflight", "segments"])
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"esvi_shm.shared.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
