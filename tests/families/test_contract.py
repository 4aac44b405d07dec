"""What the engine relies on, for every family that there is; a new one is tested here too."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.families.contract import Bound
from esvi_shm.points import as_points
from esvi_shm.runtime.serial import SerialFit
from esvi_shm.shared.table import Table
from tests.naive import simulate

COUNTS, _ = simulate(20, 15, 3, 30, seed=3)
#: What each family is fitted to; other families than these are of points.
DATA = {
    "lda": lambda: Corpus.from_sparse(COUNTS),
    "bernoulli": lambda: as_points(COUNTS > 0),
}
pytestmark = pytest.mark.parametrize("name", families.known())


def fitted(name: str, n_workers: int = 2) -> SerialFit:
    config = FitConfig(family=name, n_topics=4, n_workers=n_workers, n_blocks=4)
    return SerialFit(DATA.get(name, lambda: as_points(COUNTS))(), config)


def test_it_is_found_by_its_name(name):
    model = families.find(name)
    config = FitConfig(family=name)
    assert pickle.loads(pickle.dumps(config)) == config
    assert len(set(model.commands)) == len(model.commands) > 0
    with pytest.raises(ParameterError, match=f"family must be one of .*{name}.*, got 'none'"):
        families.find("none")


def test_it_can_tell_before_a_fit_what_it_will_do(name):
    model = families.find(name)
    assert model.without_effect(FitConfig(family=name)) == []  # the defaults all have one
    few, many = (fitted(name).layout.model.scratch_bytes(n) for n in (10, 1000))
    assert 0 <= few <= many < 10**9


def test_the_ways_to_hold_its_state_get_smaller(name):
    layout, config = fitted(name).layout, FitConfig(family=name, n_topics=9)
    same, smaller = families.find(name).storages(config)
    assert len(same) >= 1

    def n_bytes(changes):
        model = families.find(name)(replace(config, **changes), layout.sizes)
        return sum(spec.n_bytes for spec in [*model.shared_specs(), *model.shard_specs(0)])

    sizes = [n_bytes(smaller[at]) for at in range(len(smaller))]
    # The first is tried before all others, whatever it takes.
    assert sizes[1:] == sorted(set(sizes[1:]), reverse=True)
    assert all(n_bytes(changes) > 0 for changes in same)


def test_its_arrays_are_valid(name):
    fit = fitted(name)
    Table(fit.layout.model.shared_specs())
    for worker in range(2):
        names = {spec.name for spec in fit.layout.model.shard_specs(worker)}
        assert names
        assert not names & fit.arrays[f"shard_{worker}"].keys()
        for spec in Table(fit.layout.model.shard_specs(worker)):
            assert spec.writer and spec.readers and spec.what


def test_it_yields_only_commands_that_it_declares(name):
    fit = fitted(name)
    model = fit.layout.model
    start = model.start(fit.held, fit.corpus_arrays, fit.shared)
    for script in (start, model.evaluate(fit.shared, 0)):
        yielded = []
        while True:
            try:
                yielded.append(next(script))
            except StopIteration as stop:
                value = stop.value
                break
            if isinstance(yielded[-1], np.ndarray):
                assert yielded.pop().dtype == np.float64
                continue
            for worker in fit.workers:
                worker.command(yielded[-1])
        assert yielded and set(yielded) <= set(model.commands)
    assert set(model.tours) <= set(model.commands)
    assert isinstance(value, Bound)


def test_visits_raise_the_bound_and_evaluating_does_not_change_it(name):
    fit = fitted(name)
    before = fit.bound()
    for _ in range(5):
        fit.run_pass()
    after = fit.bound()
    assert np.isfinite([*before, *after]).all()
    assert after.elbo_f > before.elbo_f
    assert after.elbo >= after.elbo_f - 1e-2
    assert fit.bound() == pytest.approx(after, rel=1e-9)


def test_visits_to_one_shard_leave_those_of_others_alone(name):
    fit = fitted(name)
    states = [{k: a.copy() for k, a in fit.arrays[f"state_{p}"].items()} for p in range(2)]
    fit.visit(0, 1)
    for key, array in fit.arrays["state_1"].items():
        np.testing.assert_array_equal(array, states[1][key], err_msg=key)
    assert any((fit.arrays["state_0"][key] != states[0][key]).any() for key in states[0])


def test_long_visits_show_signs_of_life(name):
    fit = fitted(name, n_workers=1)
    beat = np.zeros(1, np.int64)
    worker = fit.layout.model.worker(0, fit.corpus_arrays, fit.shared, fit.shards, beat)
    worker.visit(0, 0, want_entropy=False)
    assert beat[0] > 0


def test_one_worker_gives_the_same_bits_again(name):
    bounds = []
    for _ in range(2):
        fit = fitted(name, n_workers=1)
        fit.run_pass()
        bounds.append(fit.bound())
    assert bounds[0] == bounds[1]
