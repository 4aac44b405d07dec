"""The examples in the docstrings of all modules run and say the truth."""

import doctest
import importlib
import pkgutil

import pytest

import esvi_shm

MODULES = [
    module.name
    for module in pkgutil.walk_packages(esvi_shm.__path__, "esvi_shm.")
    # A script that ends the interpreter when it is imported has no examples.
    if not module.name.endswith("__main__")
]
EXAMPLES = [
    test
    for name in MODULES
    for test in doctest.DocTestFinder().find(importlib.import_module(name))
    if test.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda test: test.name)
def test_example(example):
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


def test_every_room_has_examples():
    rooms = {test.name.split(".")[1] for test in EXAMPLES}
    public = {"config", "errors", "corpus", "shared", "families", "runtime", "metrics", "model"}
    assert rooms >= public | {"estimators"}
    assert len({test.name for test in EXAMPLES}) == len(EXAMPLES) >= 50
