"""Each family's expectations and gain, against numerical integration and one another."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import digamma, gammaln, multigammaln

from esvi_shm.families._mixture.normal import Diagonal, Full, Spherical
from esvi_shm.families.bernoulli import Bernoulli
from esvi_shm.families.multinomial import Multinomial
from esvi_shm.families.poisson import Poisson
from esvi_shm.mixture_options import MixtureOptions

OPTIONS = MixtureOptions()
COUNTS = {"feature": np.array([0.7]), "mean": np.array([1.3])}
NORMAL = {
    "mean": np.array([0.4]), "mean_precision": np.array([1.5]),
    "degrees_of_freedom": np.array([3.0]), "scale": np.array([0.8]),
}  # fmt: skip
X = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
Y = np.array([0.1, -0.4, 1.2, 0.7])


def posterior(log_joint, lo, hi):
    """The normaliser of exp(log_joint), and a function that integrates under it."""
    total = integrate.quad(lambda p: np.exp(log_joint(p)), lo, hi)[0]

    def mean(f):
        return integrate.quad(lambda p: f(p) * np.exp(log_joint(p)), lo, hi)[0] / total

    return np.log(total), mean


def expected(kind, x):
    t = kind.features(x[:, None])
    found = kind.expect(np.array([len(x)], float), t.sum(axis=0, dtype=float)[:, None])
    return found.theta[:, 0], found.constant[0], found.gain[0]


def test_bernoulli():
    prior = stats.beta(0.7, 0.7)
    total, mean = posterior(
        lambda p: prior.logpdf(p) + X.sum() * np.log(p) + (1 - X).sum() * np.log1p(-p), 0, 1
    )
    theta, constant, gain = expected(Bernoulli(1, OPTIONS, COUNTS), X)
    assert theta[0] == pytest.approx(mean(lambda p: np.log(p) - np.log1p(-p)), rel=1e-6)
    assert constant == pytest.approx(mean(lambda p: np.log1p(-p)), rel=1e-6)
    assert gain == pytest.approx(total, rel=1e-6)


def test_poisson():
    x = np.array([0.0, 2.0, 5.0, 1.0])
    prior = stats.gamma(0.7, scale=1.3 / 0.7)
    total, mean = posterior(lambda r: prior.logpdf(r) + x.sum() * np.log(r) - len(x) * r, 1e-12, 60)
    kind = Poisson(1, OPTIONS, COUNTS)
    theta, constant, gain = expected(kind, x)
    assert theta[0] == pytest.approx(mean(np.log), rel=1e-6)
    assert constant == pytest.approx(-mean(lambda r: r), rel=1e-6)
    assert gain == pytest.approx(total, rel=1e-6)
    np.testing.assert_allclose(kind.log_base(x[:, None]), -gammaln(x + 1), atol=1e-12)


def test_multinomial_of_two_is_a_binomial():
    prior = stats.beta(0.7, 0.7)
    x = np.array([[2.0, 1.0], [0.0, 4.0]])
    total, mean = posterior(
        lambda p: prior.logpdf(p) + x[:, 0].sum() * np.log(p) + x[:, 1].sum() * np.log1p(-p), 0, 1
    )
    kind = Multinomial(2, OPTIONS, {"feature": COUNTS["feature"], "mean": np.ones(2)})
    found = kind.expect(np.array([2.0]), x.sum(axis=0)[:, None])
    wanted = [mean(np.log), mean(lambda p: np.log1p(-p))]
    np.testing.assert_allclose(found.theta[:, 0], wanted, rtol=1e-6)
    assert found.gain[0] == pytest.approx(total, rel=1e-6)
    wanted = stats.multinomial([3, 4], [0.2, 0.8]).logpmf(x) - x @ np.log([0.2, 0.8])
    np.testing.assert_allclose(kind.log_base(x), wanted, atol=1e-12)


def test_a_gaussian_of_one_feature():
    m0, beta0, a0, b0 = 0.4, 1.5, 1.5, 0.4
    precision = stats.gamma(a0, scale=1 / b0)

    mu, lam = np.linspace(-4, 5, 71), np.linspace(1e-3, 25, 150)
    m, p = mu[None, :], lam[:, None]
    grid = precision.logpdf(p) + stats.norm(m0, 1 / np.sqrt(beta0 * p)).logpdf(m)
    grid = grid + sum(stats.norm(m, 1 / np.sqrt(p)).logpdf(y) for y in Y)
    weights = np.exp(grid - grid.max())
    total = integrate.simpson(integrate.simpson(weights, x=mu), x=lam)

    def mean(values):
        return integrate.simpson(integrate.simpson(weights * values, x=mu), x=lam) / total

    theta, constant, gain = expected(Diagonal(1, OPTIONS, NORMAL), Y)
    assert theta[0] == pytest.approx(mean(p * m), rel=1e-3)
    assert theta[1] == pytest.approx(mean(-0.5 * p + 0 * m), rel=1e-3)
    log_g = 0.5 * (np.log(p) - np.log(2 * np.pi) - p * m * m)
    assert constant == pytest.approx(mean(log_g), rel=2e-3)
    assert gain == pytest.approx(np.log(total) + grid.max(), rel=1e-3)


def test_with_one_feature_the_three_covariances_are_one():
    found = []
    for kind in (Diagonal, Spherical, Full):
        prior = {**NORMAL, "scale": NORMAL["scale"].reshape((1, 1) if kind is Full else 1)}
        made = kind(1, OPTIONS, prior)
        made.dtype = np.float64
        found.append(expected(made, Y))
    for theta, constant, gain in found[1:]:
        np.testing.assert_allclose(theta, found[0][0])
        assert constant == pytest.approx(found[0][1])
        assert gain == pytest.approx(found[0][2])


def test_the_gain_of_full_is_a_product_of_students_predictive_densities():
    random = np.random.default_rng(1)
    x = random.normal(size=(6, 3))
    scale = np.cov(random.normal(size=(9, 3)).T)
    prior = {
        "mean": np.array([0.1, 0.2, -0.3]), "mean_precision": np.array([0.7]),
        "degrees_of_freedom": np.array([4.5]), "scale": scale,
    }  # fmt: skip
    kind = Full(3, OPTIONS, prior)
    t, wanted = kind.features(x), 0.0
    beta, nu, m, s = 0.7, 4.5, prior["mean"], scale
    for row in x:
        df = nu - 2
        shape = s * (beta + 1) / (beta * df)
        wanted += stats.multivariate_t(m, shape, df=df).logpdf(row)
        s = s + beta / (beta + 1) * np.outer(row - m, row - m)
        m = (beta * m + row) / (beta + 1)
        beta, nu = beta + 1, nu + 1
    found = kind.expect(np.array([6.0]), t.sum(axis=0)[:, None])
    assert found.gain[0] == pytest.approx(wanted)
    np.testing.assert_allclose(
        kind.describe(np.array([6.0]), t.sum(axis=0)[:, None])["means"][0], m
    )


def test_the_features_of_full_are_a_quadratic_form():
    random = np.random.default_rng(2)
    x, matrix = random.normal(size=(4, 3)), np.cov(random.normal(size=(9, 3)).T)
    prior = {**NORMAL, "mean": np.zeros(3), "scale": np.eye(3)}
    kind = Full(3, OPTIONS, prior)
    times = np.where(kind.rows == kind.columns, -0.5, -1.0)  # each product once
    theta = matrix[kind.rows, kind.columns] * times
    wanted = -0.5 * np.einsum("ni,ij,nj->n", x, matrix, x)
    np.testing.assert_allclose(kind.features(x)[:, 3:] @ theta, wanted)


def many(kind, x):
    """Statistics of 70 components, and counts; the last one has no points."""
    z = np.eye(70)[np.random.default_rng(3).integers(69, size=len(x))]
    return z.sum(axis=0), (z.T @ kind.features(x)).T


def test_many_components_of_diag_are_computed_side_by_side():
    x = np.random.default_rng(2).normal(size=(300, 6))
    prior = {**NORMAL, "mean": np.linspace(-1.0, 1.0, 6), "scale": np.linspace(0.5, 2.0, 6)}
    kind = Diagonal(6, OPTIONS, prior)
    n, s = many(kind, x)
    found, said = kind.expect(n, s), kind.describe(n, s)
    m, beta, a = said["means"].T, 1.5 + n, 1.5 + 0.5 * n
    precision, b = 1.0 / said["covariances"].T, a * said["covariances"].T
    np.testing.assert_allclose(found.theta, np.vstack([precision * m, -0.5 * precision]), rtol=1e-6)
    log_precision = digamma(a) - np.log(b)
    constant = (log_precision - 1 / beta - precision * m * m - np.log(2 * np.pi)).sum(axis=0) / 2
    np.testing.assert_allclose(found.constant, constant, rtol=1e-6)
    log_z = gammaln(a) - a * np.log(b) - 0.5 * np.log(beta)
    b0 = 0.5 * prior["scale"][:, None]
    log_z -= gammaln(1.5) - 1.5 * np.log(b0) - 0.5 * np.log(1.5) + 0.5 * n * np.log(2 * np.pi)
    np.testing.assert_allclose(found.gain, log_z.sum(axis=0), rtol=1e-6, atol=1e-9)


def test_many_components_of_full_are_computed_side_by_side():
    random = np.random.default_rng(2)
    x, scale = random.normal(size=(300, 5)), np.cov(random.normal(size=(9, 5)).T)
    prior = {**NORMAL, "mean": np.linspace(-1.0, 1.0, 5), "scale": scale}
    kind = Full(5, OPTIONS, {**prior, "degrees_of_freedom": np.array([6.0])})
    n, s = many(kind, x)
    found, said = kind.expect(n, s), kind.describe(n, s)
    m, beta, nu = said["means"], 1.5 + n, 6.0 + n
    precision = np.linalg.inv(said["covariances"])
    log_det = np.linalg.slogdet(said["covariances"])[1] + 5 * np.log(nu)  # of the inverse of W
    located = np.einsum("kij,kj->ki", precision, m)
    np.testing.assert_allclose(found.theta[:5], located.T, rtol=1e-8, atol=1e-9)
    times = np.where(kind.rows == kind.columns, -0.5, -1.0)
    products = precision[:, kind.rows, kind.columns] * times
    np.testing.assert_allclose(found.theta[5:], products.T, rtol=1e-8, atol=1e-9)
    digammas = digamma(0.5 * (nu - np.arange(5)[:, None])).sum(axis=0)
    constant = digammas + 5 * np.log(2.0) - log_det - 5 / beta - (located * m).sum(axis=1)
    np.testing.assert_allclose(found.constant, 0.5 * (constant - 5 * np.log(2 * np.pi)), rtol=1e-8)

    def log_z(beta, nu, log_det):
        return (
            0.5 * nu * (5 * np.log(2.0) - log_det) + multigammaln(0.5 * nu, 5) - 2.5 * np.log(beta)
        )

    gain = [log_z(*each) for each in zip(beta, nu, log_det, strict=True)]
    gain -= log_z(1.5, 6.0, np.linalg.slogdet(scale)[1]) + 2.5 * n * np.log(2 * np.pi)
    np.testing.assert_allclose(found.gain, gain, rtol=1e-8, atol=1e-9)
