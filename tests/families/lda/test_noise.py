"""Noise on the words' factors: what it is, where it is, and that the bound knows of it."""

from itertools import pairwise

import numpy as np
import pytest

from esvi_shm.config import FitConfig
from esvi_shm.families.lda.noise import add_noise, visit_key
from esvi_shm.families.lda.schedule import Schedule
from tests import naive
from tests.families.lda.play import (
    assert_sums_hold,
    bound_noise,
    look,
    oracle_of,
    play,
)

COUNTS, _ = naive.simulate(15, 20, 3, 25, seed=2)
NOISY = {"n_topics": 4, "noise": 0.5, "noise_passes": 4, "n_passes": 10}


def drawn(n_topics=512, strength=1.0, key=5, word=7) -> np.ndarray:
    row = np.ones(n_topics + 3, np.float32)
    add_noise(row, n_topics, strength, key, word)
    assert (row[n_topics:] == 1).all()
    return np.log(row[:n_topics].astype(np.float64))


def test_noise_is_nearly_normal_and_independent():
    z = np.stack([drawn(key=key, word=word) for key in range(20) for word in range(20)])
    assert abs(z.mean()) < 0.01
    assert z.std() == pytest.approx(1, abs=0.01)
    assert abs((z**3).mean()) < 0.02
    assert (z**4).mean() == pytest.approx(2.7, abs=0.05)
    assert np.abs(z).max() < 3.46
    # Between topics, words and visits.
    for other in (np.roll(z, 1, axis=1), np.roll(z, 1, axis=0), np.roll(z, 20, axis=0)):
        assert abs((z * other).mean()) < 0.01
    near = np.corrcoef(z[:, :64].T) - np.eye(64)
    assert np.abs(near).max() < 0.3  # 400 rows: a standard error of 0.05


def test_noise_scales_with_its_strength_and_leaves_zeros():
    np.testing.assert_allclose(drawn(strength=0.02), 0.02 * drawn(), atol=2e-6)
    np.testing.assert_allclose(drawn(strength=10.0), 10 * drawn(), rtol=1e-4, atol=1e-5)
    row = np.zeros(16, np.float32)
    add_noise(row, 16, 1.0, 5, 7)
    assert (row == 0).all()


def test_each_visit_has_its_own_key():
    keys = {visit_key(3, pass_, worker) for pass_ in range(50) for worker in range(4)}
    assert len(keys) == 200
    assert all(0 <= key < 2**52 for key in keys)
    assert visit_key(3, 1, 2) != visit_key(4, 1, 2)
    assert visit_key(2**63 - 1, 2**31 - 1, 2**20) >= 0


def test_the_strength_goes_down_to_nothing():
    plain = {"inference": "cvb0", "temper_passes": 0, "relax": 1.0}
    schedule = Schedule(FitConfig(**plain, noise=2.0, noise_passes=4))
    assert [schedule.noise(i) for i in (0, 1, 3, 4, 99)] == [2.0, 1.5, 0.5, 0.0, 0.0]
    assert schedule.n_passes == 4
    quiet = Schedule(FitConfig(**plain, noise_passes=9))
    assert quiet.noise(0) == 0.0 and quiet.n_passes == 0


@pytest.mark.parametrize(
    "options, passes",
    [({}, 60), ({"n_passes": 10}, 6), ({"inference": "vb"}, 15), ({"noise_passes": 70}, 70)],
)
def test_noisy_passes_by_default(options, passes):
    config = FitConfig(noise=1.0, temper_passes=0, cvb0_passes=0, **options)
    assert Schedule(config).n_passes == passes
    assert play(COUNTS, noise=1.0, noise_passes=70).layout.model.settles_after == 70


def noisy_phi(fit, counts, worker, block):
    """phi (D, V, K) of a visit to the whole corpus as one block: the factors with their noise."""
    seen, pass_ = look(fit, counts), fit.passes
    strength = fit.layout.model.schedule.noise(pass_)
    key = visit_key(fit.config.seed, pass_, worker)
    pi = seen.pi.sum(axis=0) + fit.shared["eta"].sum()
    z = np.stack([drawn(fit.config.n_topics, strength, key, v) for v in range(counts.shape[1])])
    logs = naive.psi(seen.lambda_) - naive.psi(pi) + z
    logs = naive.psi(seen.gamma)[:, None] + logs[None]
    logs -= logs.max(axis=2, keepdims=True)
    phi = np.exp(logs)
    return phi / phi.sum(axis=2, keepdims=True)


@pytest.mark.parametrize("storage", ["margins", "full", "sparse", "topk"])
def test_a_noisy_visit_follows_the_equations(storage):
    fit = play(COUNTS, storage=storage, **NOISY)
    for _ in range(5):
        phi = noisy_phi(fit, COUNTS, 0, 0)
        mass = COUNTS[..., None] * phi
        fit.run_pass()
        seen = look(fit, COUNTS)
        np.testing.assert_allclose(seen.phi_word[0], mass.sum(axis=0), rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(seen.phi_doc[:, 0], mass.sum(axis=1), rtol=2e-3, atol=2e-3)
        entropy = -(COUNTS[..., None] * naive._x_log_x(phi)).sum()
        assert seen.entropy[0, 0] == pytest.approx(entropy, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("storage", ["margins", "full", "sparse", "topk"])
@pytest.mark.parametrize("inference", ["vb", "anneal"])
def test_the_bound_is_exact_in_noisy_passes(storage, inference):
    options = {**NOISY, "noise": 2.0, "inference": inference, "n_workers": 2, "n_blocks": 3}
    if storage == "topk":  # which leaves nothing out
        options["leave_out"] = "none"
    fit, full = (play(COUNTS, storage=s, **options) for s in (storage, "full"))
    for _ in range(6):
        for one in (fit, full):
            one.run_pass()
        bound, lda = fit.bound(), oracle_of(full, COUNTS)
        full.bound()
        assert_sums_hold(fit, COUNTS)
        near = {"rel": 1e-5, "abs": 20 * bound_noise(COUNTS)}
        assert bound.elbo_f == pytest.approx(lda.bound_f(), **near)
        assert bound.elbo >= bound.elbo_f - bound_noise(COUNTS)


def test_noise_depends_on_the_seed_alone():
    def lambda_(**options):
        fit = play(COUNTS, **{**NOISY, "start": "scikit-learn", "seed": 1, **options})
        fit.run_pass()
        return fit.lambda_

    one = lambda_()
    assert (one == lambda_()).all()
    assert (one != lambda_(noise=0.0)).mean() > 0.9
    start = play(COUNTS, **{**NOISY, "start": "scikit-learn", "seed": 1})
    other = play(COUNTS, **{**NOISY, "start": "scikit-learn", "seed": 1})
    # The same state under another seed: only the noise is another.
    other.layout.model.config.__dict__["seed"] = 2
    for fit in (start, other):
        fit.run_pass()
    assert (start.lambda_ != other.lambda_).mean() > 0.9


def test_refolding_is_without_noise():
    more = {"n_blocks": 2, "refold_after": 1}
    before = play(COUNTS, **{**NOISY, **more}).gamma.copy()
    quiet, noisy = (play(COUNTS, **{**NOISY, "noise": s, **more}) for s in (0.0, 1.0))
    noisy.run_pass()
    for fit in (quiet, noisy):
        for name in ("phi_doc", "phi_word", "gamma"):
            fit.shards[0][name][:] = noisy.shards[0][name]
        for name in ("lambda_", "pi"):
            fit.shared[name][:] = noisy.shared[name]
        fit.rest(1)
    assert (quiet.gamma != before).any()
    np.testing.assert_array_equal(quiet.gamma, noisy.gamma)
    np.testing.assert_array_equal(quiet.lambda_, noisy.lambda_)


def test_vb_climbs_again_after_the_noise():
    fit = play(COUNTS, **NOISY)
    bounds = []
    for _ in range(12):
        fit.run_pass()
        bounds.append(fit.bound().elbo_f)
    settled = bounds[NOISY["noise_passes"] :]
    assert all(b >= a - bound_noise(COUNTS) for a, b in pairwise(settled))


def test_noise_breaks_exact_ties():
    """Two topics that are the same stay the same for ever, unless something tells them apart."""
    counts = np.kron(np.eye(2), np.full((5, 6), 3.0))
    gaps = {}
    for noise in (0.0, 0.03):
        fit = play(counts, n_topics=2, noise=noise, noise_passes=10, seed=4)
        for array in (*fit.shards[0].values(), fit.shared["lambda_"], fit.shared["pi"]):
            if array.ndim == 2 and array.dtype != np.int64:
                array[:] = array.mean(axis=1, keepdims=True)
        for _ in range(60):
            fit.run_pass()
        gaps[noise] = np.abs(np.diff(fit.lambda_, axis=1)).max()
    assert gaps[0.0] < 1e-3
    assert gaps[0.03] > 10
