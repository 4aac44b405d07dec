"""The benchmarks: their scorer against other scorers, and each from end to end on a tiny corpus."""

import importlib
import json
import math

import numpy as np
import pytest
from scipy.special import gammaln, psi

from bench import common, plan, published, score
from esvi_shm import simulate
from esvi_shm.corpus.corpus import Corpus

K, ALPHA, ETA = 3, 0.3, 0.07


@pytest.fixture
def corpus():
    counts = np.random.default_rng(1).poisson(0.8, (12, 9))
    counts[4] = 0  # an empty document
    counts[:, 7] = 0  # a word that never occurs
    return Corpus.from_sparse(counts)


@pytest.fixture
def state(corpus):
    random = np.random.default_rng(2)
    gamma = random.gamma(1.0, 2.0, (corpus.n_documents, K)) + 0.01
    lambda_ = random.gamma(1.0, 2.0, (corpus.n_words, K)) + 0.01
    return gamma, lambda_


def bound_by_loops(corpus, gamma, lambda_):
    """E_q[log p(w, z, theta, beta)] - E_q[log q], one expectation after the other."""
    theta = [psi(row) - psi(row.sum()) for row in gamma]
    beta = [psi(lambda_[:, k]) - psi(lambda_[:, k].sum()) for k in range(K)]

    def kl(x, prior, expected):
        """KL from Dirichlet(x) to a symmetric Dirichlet(prior)."""
        of_x = gammaln(x.sum()) - gammaln(x).sum()
        of_prior = gammaln(len(x) * prior) - len(x) * gammaln(prior)
        return of_x - of_prior + ((x - prior) * expected).sum()

    total = 0.0
    for d, row in enumerate(corpus.as_sparse().toarray().tolist()):
        for v, n in enumerate(row):
            weights = [math.exp(theta[d][k] + beta[k][v]) for k in range(K)]
            phi = [w / sum(weights) for w in weights]
            for k in range(K):
                total += n * phi[k] * (theta[d][k] + beta[k][v] - math.log(phi[k]))
        total -= kl(gamma[d], ALPHA, theta[d])
    return total - sum(kl(lambda_[:, k], ETA, beta[k]) for k in range(K))


def test_scorer_is_the_bound_written_out(corpus, state, monkeypatch):
    expected = bound_by_loops(corpus, *state)
    assert score.elbo(corpus, *state, ALPHA, ETA) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(score, "CHUNK", 5)
    assert score.elbo(corpus, *state, ALPHA, ETA) == pytest.approx(expected, rel=1e-12)


def test_scorer_is_scikit_learns_bound(corpus, state):
    from sklearn.decomposition import LatentDirichletAllocation

    gamma, lambda_ = state
    matrix = corpus.as_sparse().astype(np.float64)
    model = LatentDirichletAllocation(
        K, doc_topic_prior=ALPHA, topic_word_prior=ETA, max_iter=1, random_state=0
    ).fit(matrix)
    model.components_ = np.ascontiguousarray(lambda_.T)
    theirs = model._approx_bound(matrix, gamma, sub_sampling=False)
    assert score.elbo(corpus, gamma, lambda_, ALPHA, ETA) == pytest.approx(theirs, rel=1e-10)


def test_settled_documents_are_a_fixed_point_and_raise_the_bound(corpus, state):
    gamma, lambda_ = state
    settled = score.settle_documents(corpus, gamma, lambda_, ALPHA, tol=1e-10, most=10_000)
    before = score.elbo(corpus, gamma, lambda_, ALPHA, ETA)
    assert score.elbo(corpus, settled, lambda_, ALPHA, ETA) > before
    np.testing.assert_allclose(settled[4], ALPHA)
    tokens = corpus.as_sparse().sum(axis=1)
    np.testing.assert_allclose(settled.sum(axis=1) - K * ALPHA, np.ravel(tokens), rtol=1e-6)
    again = score.settle_documents(corpus, settled, lambda_, ALPHA, most=1)
    np.testing.assert_allclose(again, settled, rtol=1e-6)


@pytest.fixture
def tiny(tmp_path):
    """A corpus file, and the options to save beside it."""
    counts = np.random.default_rng(3).poisson(0.6, (40, 30))
    documents, words = np.nonzero(counts)
    lines = [f"{d + 1} {v + 1} {counts[d, v]}" for d, v in zip(documents, words, strict=True)]
    path = tmp_path / "docword.tiny.txt"
    path.write_text("\n".join(["40", "30", str(len(lines)), *lines]) + "\n")
    return [str(path), "--topics", "4", "--out", str(tmp_path / "out")], tmp_path / "out"


RUNS = {
    "lda": ["--passes=3", "--seeds=2", "--repeats=1", "--iterations=2", "--gensim-passes=2"],
    "scale": ["--many=40", "--passes=4", "--dense=1", "--warm=1"],
    "kernel": ["--warm=1", "--repeats=2", "--blocks", "2", "4"],
    "scaling": ["--passes=3", "--seeds=2", "--repeats=1"],
    "memory": ["--passes=2"],
    "transform": ["--passes=3", "--repeats=1", "--cores", "1"],
    "priors": ["--passes=20", "--seeds=2", "--holdout=0.3"],
    "end_to_end": ["--passes=2", "--repeats=1"],
    "topk": ["--passes=4", "--kept", "1", "2", "--residuals", "spread", "drop"],
    "plan": ["--passes=2", "--workers=2", "--storages=margins"],
    "starts": ["--passes=2", "--seeds=2", "--starts", "seeded:2+0.5", "spread"],
}


#: The others start many processes or peers, which takes them most of their time: slow tests.
QUICK = ("kernel", "scale", "topk")


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RUNS],
)
def test_each_benchmark_runs(name, tiny, capsys):
    pytest.importorskip("matplotlib", reason="an optional extra: pip install esvi_shm[bench]")
    if name == "lda":
        pytest.importorskip("gensim", reason="an optional extra: pip install esvi_shm[bench]")
        pytest.importorskip("threadpoolctl")
    if name == "transform":
        pytest.importorskip("threadpoolctl")
    if name == "scaling" and common.machine()["cores"] < 2:
        pytest.skip("two workers need two cores")
    arguments, out = tiny
    importlib.import_module(f"bench.{name}").main(arguments + RUNS[name])
    saved = json.loads((out / f"{name}-tiny.json").read_text())
    assert saved["benchmark"] == name and saved["results"]
    assert {"date", "processor", "cores", "versions"} <= set(saved["machine"])
    assert (out / f"{name}-tiny.png").read_bytes().startswith(b"\x89PNG")
    if name == "lda":
        assert set(saved["results"]["curves"]) == {"esvi_shm", "scikit-learn", "gensim"}
    if name == "transform":
        assert saved["results"]["documents"] == 8
        assert saved["results"]["largest_difference"] < 0.02
        bounds = saved["results"]["bound_per_token"]
        assert bounds["esvi_shm"] == pytest.approx(bounds["scikit-learn"], abs=1e-3)


@pytest.mark.slow
def test_the_plan_is_what_a_fit_holds(tmp_path):
    """Within a tenth, for each storage, where arrays and processes both count."""
    sizes = ["--documents=3000", "--words=6000", "--tokens=400000", "--topics=16"]
    corpus = str(tmp_path / "drawn.npz")
    assert simulate.main([*sizes, "--quiet", corpus]) == 0
    plan.main([corpus, "--passes=2", "--workers", "1", "2", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "plan-drawn.json").read_text())["results"]["rows"]
    assert len(rows) == 8
    assert {row["storage"] for row in rows if row["shared"] > row["measured"] / 5} > {"full"}
    assert {row["storage"]: row["off"] for row in rows if abs(row["off"]) > plan.TARGET} == {}


@pytest.mark.slow
def test_a_published_size_is_drawn_and_fitted(tmp_path, capsys):
    arguments = ["--like=nytimes", "--scale=0.0005", "--topics=4", "--passes=2", "--workers=1"]
    published.main([*arguments, "--out", str(tmp_path), "--folder", str(tmp_path)])
    found = json.loads((tmp_path / "published-nytimes.json").read_text())["results"]
    assert found["n_documents"] == 149
    assert found["pairs_per_second"] > 0
    assert found["peak"] > found["shared"] > 0
    assert "million pairs/s" in capsys.readouterr().out
    published.main([*arguments, "--folder", str(tmp_path), "--plan"])
    assert "peak, about" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["published-nytimes.json"]


def test_the_benchmark_of_mixtures_runs(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="an optional extra: pip install esvi_shm[bench]")
    pytest.importorskip("threadpoolctl", reason="an optional extra: pip install esvi_shm[bench]")
    from bench import mixtures

    random = np.random.default_rng(4)
    x = np.repeat(np.eye(3), 20, axis=0) * 6 + random.normal(size=(60, 3))
    np.savez(tmp_path / "gmm_tiny.npz", X=np.column_stack([x, np.ones(60)]))
    options = ["--components=4", "--iterations=3", "--passes=6", "--rounds=1"]
    options += ["--out", str(tmp_path), "--peers", str(tmp_path / "peers.jsonl")]
    mixtures.main([str(tmp_path / "gmm_tiny.npz"), *options])
    results = json.loads((tmp_path / "mixtures-gmm_tiny.json").read_text())["results"]
    results.update(results["peer"])
    assert len(results["esvi_shm"]) == len(results["batch"]) == 7
    # The same bound at the same start, and ends that are not far apart.
    bounds = [results[name][i][1] for i in (0, -1) for name in ("esvi_shm", "scikit-learn")]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-9)
    assert bounds[2] > bounds[3] - 0.05 * abs(bounds[3])
    assert all(len(found) == 1 for found in results["points_a_second"])
    assert (tmp_path / "mixtures-gmm_tiny.png").exists()
    assert "3 features" in capsys.readouterr().out  # the constant one is left out


@pytest.mark.parametrize("name", RUNS)
def test_an_absent_corpus_skips_with_the_reason(name, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"bench.{name}").main([str(tmp_path / "docword.gone.txt")])
    assert not end.value.code
    assert "skipped: " in capsys.readouterr().out
