"""The figures of scikit-learn and gensim are those that they report themselves."""

import math

import numpy as np
import pytest

from bench import score
from esvi_shm.corpus import Corpus, as_corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics import (
    align,
    bounds,
    held_out_bound,
    infer_gamma,
    left_to_right,
    point_topics,
)


def corpora() -> tuple[np.ndarray, np.ndarray]:
    """Counts of three topics, for training and to be held out (with an empty document)."""
    rng = np.random.default_rng(5)
    topics = rng.dirichlet(np.full(30, 0.1), 3)
    theta = rng.dirichlet(np.full(3, 0.2), 60)
    counts = np.array([rng.multinomial(40, row @ topics) for row in theta])
    held_out = counts[45:]
    held_out[3] = 0
    return counts[:45], held_out


@pytest.mark.parametrize("priors", [(0.1, 0.05), (1.0, 0.5)])
def test_scikit_learn_reports_it(priors):
    from sklearn.decomposition import LatentDirichletAllocation

    train, held_out = corpora()
    peer = LatentDirichletAllocation(
        3, doc_topic_prior=priors[0], topic_word_prior=priors[1], random_state=0
    ).fit(train)
    lambda_, alpha = peer.components_.T.copy(), np.full(3, priors[0])
    before = lambda_.tobytes()
    corpus = Corpus.from_sparse(held_out)
    found = held_out_bound(lambda_, alpha, np.full(30, priors[1]), corpus)
    x = held_out.astype(float)
    assert found.scikit_learn == pytest.approx(peer.perplexity(x), rel=1e-7)
    assert found.bound == pytest.approx(peer.score(x), rel=1e-7)
    assert found.n_tokens == held_out.sum()
    gamma = infer_gamma(lambda_, alpha, corpus, steps=2000, tol=1e-6)
    theta = gamma / gamma.sum(axis=1, keepdims=True)
    peer.set_params(max_doc_update_iter=2000, mean_change_tol=1e-6)
    np.testing.assert_allclose(theta, peer.transform(x), rtol=1e-4)
    np.testing.assert_allclose(gamma[3], alpha)
    assert lambda_.tobytes() == before


def test_gensim_reports_it():
    models = pytest.importorskip("gensim.models")
    train, held_out = corpora()
    alpha, eta = np.array([0.1, 0.3, 0.2]), np.linspace(0.05, 0.2, 30)
    chunks = [
        [[(int(v), int(row[v])) for v in np.flatnonzero(row)] for row in counts]
        for counts in (train, held_out)
    ]
    peer = models.LdaModel(
        chunks[0], num_topics=3, id2word={v: f"w{v}" for v in range(30)}, alpha=alpha, eta=eta,
        passes=20, iterations=2000, gamma_threshold=1e-6, random_state=0, dtype=np.float64,
    )  # fmt: skip
    lambda_, corpus = peer.state.get_lambda().T, Corpus.from_sparse(held_out)
    gamma = infer_gamma(lambda_, alpha, corpus, steps=2000, tol=1e-6).astype(np.float64)
    found = held_out_bound(lambda_, alpha, eta, corpus, gamma)
    assert found.bound == pytest.approx(peer.bound(chunks[1], gamma=gamma[:, None]), rel=1e-9)
    # On its own it starts elsewhere, so it stops elsewhere.
    assert found.gensim == pytest.approx(2 ** -peer.log_perplexity(chunks[1]), rel=1e-4)
    default = held_out_bound(lambda_, alpha, eta, corpus)
    assert default.gensim == pytest.approx(found.gensim, rel=1e-3)


def random_state(n_documents: int = 7, n_words: int = 40, n_topics: int = 5):
    rng = np.random.default_rng(2)
    lambda_ = rng.gamma(0.5, 2.0, (n_words, n_topics)) + 0.02
    return lambda_, Corpus.from_sparse(rng.poisson(0.7, (n_documents, n_words)))


def test_the_bound_is_that_of_the_independent_scorer():
    lambda_, corpus = random_state()
    gamma = np.random.default_rng(0).gamma(1.0, 1.0, (7, 5))
    found = held_out_bound(lambda_, np.full(5, 0.3), np.full(40, 0.1), corpus, gamma)
    expected = score.elbo(corpus, gamma, lambda_, 0.3, 0.1)
    assert found.bound == pytest.approx(expected, rel=1e-12)
    assert found.scikit_learn == pytest.approx(math.exp(-expected / corpus.n_tokens))
    assert found.gensim == pytest.approx(2 ** (-expected / corpus.n_tokens))


@pytest.mark.parametrize("chunk", [1, 7, 60])
def test_chunks_do_not_matter(monkeypatch, chunk):
    lambda_, corpus = random_state()
    priors = np.full(5, 0.3), np.full(40, 0.1)
    whole = held_out_bound(lambda_, *priors, corpus)
    monkeypatch.setattr(bounds, "CHUNK", chunk)
    assert held_out_bound(lambda_, *priors, corpus).bound == pytest.approx(whole.bound, rel=1e-12)


def test_gamma_is_at_its_best():
    """No direction raises the bound: infer_gamma settles where it is highest."""
    lambda_, corpus = random_state()
    priors = np.full(5, 0.3), np.full(40, 0.1)
    gamma = infer_gamma(lambda_, priors[0], corpus, steps=5000, tol=1e-12)
    best = held_out_bound(lambda_, *priors, corpus, gamma).bound
    rng = np.random.default_rng(1)
    for _ in range(20):
        other = gamma * rng.uniform(0.95, 1.05, gamma.shape)
        assert held_out_bound(lambda_, *priors, corpus, other).bound < best


def test_an_overflow_is_infinite():
    lambda_ = np.full((2000, 20), 1e-3) + np.eye(2000, 20)
    corpus = Corpus.from_sparse(np.eye(1, 2000))
    found = held_out_bound(lambda_, np.full(20, 0.1), np.full(2000, 0.01), corpus)
    assert found.scikit_learn == found.gensim == math.inf
    assert math.isfinite(found.bound)


def test_shapes_are_checked():
    lambda_, corpus = random_state()
    with pytest.raises(ParameterError, match=r"lambda_ must have the shape \(40, 4\)"):
        infer_gamma(lambda_, np.ones(4), corpus)
    with pytest.raises(ParameterError, match="eta must have 40 values"):
        held_out_bound(lambda_, np.ones(5), np.ones(39), corpus)


def test_what_has_no_token_or_another_gamma_is_refused():
    lambda_, alpha, eta = np.ones((2, 3)), np.ones(3), np.ones(2)
    empty = as_corpus(np.zeros((2, 2)), may_be_empty=True)
    with pytest.raises(CorpusError, match="there must be a token"):
        held_out_bound(lambda_, alpha, eta, empty)
    with pytest.raises(CorpusError, match="there must be a token"):
        left_to_right(point_topics(lambda_), alpha, empty)
    with pytest.raises(CorpusError, match="there must be a token"):
        align(empty, ["w0", "w1"])
    corpus = Corpus.from_sparse(np.ones((2, 2)))
    with pytest.raises(ParameterError, match=r"gamma must have the shape \(2, 3\)"):
        held_out_bound(lambda_, alpha, eta, corpus, np.ones((5, 3)))
