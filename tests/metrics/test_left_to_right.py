"""Left-to-right estimates against sums over every assignment, and what must not matter."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import gammaln

from esvi_shm.corpus import Corpus
from esvi_shm.errors import CorpusError, ParameterError
from esvi_shm.metrics import left_to_right
from esvi_shm.runtime import threads

#: Topics that disagree and a prior that wants few of them: particles differ much.
TOPICS = np.array([[0.9, 0.04, 0.1], [0.05, 0.9, 0.1], [0.05, 0.06, 0.8]])
ALPHA = np.array([0.1, 0.2, 0.05])


def exact(words):
    """p(words), summed over every assignment of topics."""
    total = 0.0
    for z in itertools.product(range(len(ALPHA)), repeat=len(words)):
        held = np.bincount(z, minlength=len(ALPHA))
        prior = gammaln(ALPHA + held).sum() - gammaln(ALPHA).sum()
        prior += gammaln(ALPHA.sum()) - gammaln(ALPHA.sum() + len(words))
        total += math.exp(prior) * np.prod([TOPICS[w, k] for w, k in zip(words, z, strict=True)])
    return total


@pytest.mark.parametrize("particles", [1, 2, 5])
@pytest.mark.parametrize("counts", [[1, 0, 0], [1, 1, 0], [2, 2, 2], [4, 1, 0]])
def test_estimates_are_unbiased(counts, particles):
    """The same document many times: each time with other random numbers."""
    corpus = Corpus.from_sparse(np.tile(counts, (4000, 1)))
    found = left_to_right(TOPICS, ALPHA, corpus, particles=particles)
    p = np.exp(found.log_likelihood)
    expected = exact(np.repeat(range(3), counts))
    if sum(counts) == 1:
        np.testing.assert_allclose(p, expected, rtol=1e-6)
    else:
        error = p.std() / math.sqrt(len(p))
        assert 0 < error < 0.05 * expected
        assert abs(p.mean() - expected) < 4 * error


def test_more_particles_are_closer():
    corpus = Corpus.from_sparse(np.tile([2, 2, 2], (300, 1)))
    expected = math.log(exact([0, 0, 1, 1, 2, 2]))
    errors = [
        np.abs(left_to_right(TOPICS, ALPHA, corpus, particles=n).log_likelihood - expected).mean()
        for n in (1, 10, 100)
    ]
    assert errors[1] < errors[0] / 2 and errors[2] < errors[1] / 2


def random_case():
    random = np.random.default_rng(1)
    counts = random.poisson(0.7, (20, 12))
    counts[3] = 0
    return random.dirichlet(np.full(12, 0.3), 5).T, np.full(5, 0.3), Corpus.from_sparse(counts)


def test_one_topic_is_a_unigram_model():
    topics, _, corpus = random_case()
    found = left_to_right(topics[:, :1], np.ones(1), corpus, particles=3)
    logs = corpus.as_sparse() @ np.log(topics[:, 0])
    np.testing.assert_allclose(found.log_likelihood, logs[found.documents], rtol=1e-5)
    assert found.perplexity == pytest.approx(math.exp(-logs.sum() / corpus.n_tokens), rel=1e-6)


def test_the_sample_is_of_documents_with_tokens_and_by_the_seed():
    topics, alpha, corpus = random_case()
    every = left_to_right(topics, alpha, corpus, particles=2)
    assert every.documents.tolist() == [d for d in range(20) if d != 3]
    assert every.n_tokens == corpus.n_tokens == every.tokens.sum()
    some = left_to_right(topics, alpha, corpus, 5, particles=2)
    assert len(some.documents) == 5 and (np.diff(some.documents) > 0).all()
    # A document's estimate does not depend on the others.
    at = np.searchsorted(every.documents, some.documents)
    np.testing.assert_array_equal(some.log_likelihood, every.log_likelihood[at])
    np.testing.assert_array_equal(some.tokens, every.tokens[at])
    expected = math.exp(-some.log_likelihood.sum() / some.tokens.sum())
    assert some.perplexity == pytest.approx(expected)
    other = left_to_right(topics, alpha, corpus, 5, particles=2, seed=1)
    assert other.documents.tolist() != some.documents.tolist()
    assert left_to_right(topics, alpha, corpus, 99, particles=2).documents.tolist() == (
        every.documents.tolist()
    )


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    topics, alpha, corpus = random_case()
    alone = left_to_right(topics, alpha, corpus, particles=3, n_workers=1)
    monkeypatch.setattr(threads, "LEAST_PAIRS", 1)
    several = left_to_right(topics, alpha, corpus, particles=3, n_workers=4)
    np.testing.assert_array_equal(several.log_likelihood, alone.log_likelihood)


def test_a_word_without_probability_is_an_infinite_perplexity():
    topics = np.array([[1.0, 0.5], [0.0, 0.5], [0.0, 0.0]])
    found = left_to_right(topics, np.ones(2), Corpus.from_sparse(np.array([[2, 1, 0], [1, 0, 1]])))
    assert np.isfinite(found.log_likelihood[0])
    assert found.log_likelihood[1] == -math.inf and found.perplexity == math.inf
    assert math.isnan(found.standard_error)


def test_bad_input():
    topics, alpha, corpus = random_case()
    for options, says in (
        ({"particles": 0}, "particles must be at least 1, got 0"),
        ({"n_documents": 0}, "n_documents must be at least 1, got 0"),
        ({"seed": -1}, "seed must be from 0"),
        ({"n_workers": 0}, "n_workers must be at least 1"),
    ):
        with pytest.raises(ParameterError, match=says):
            left_to_right(topics, alpha, corpus, **options)
    with pytest.raises(ParameterError, match=r"topics must have the shape \(12, 4\)"):
        left_to_right(topics, alpha[:4], corpus)
    with pytest.raises(CorpusError, match=r"whole numbers below 2\*\*31: got 0.5"):
        left_to_right(topics, alpha, Corpus.from_sparse(np.full((1, 12), 0.5)))


def test_the_standard_error_is_the_spread_of_the_figure():
    """Of corpora of the same kind, documents and particles drawn anew; lengths differ much."""
    random = np.random.default_rng(5)
    found = []
    for seed in range(300):
        theta = random.dirichlet(ALPHA, 40)
        lengths = random.integers(1, 30, 40)
        counts = [random.multinomial(n, TOPICS @ t) for n, t in zip(lengths, theta, strict=True)]
        corpus = Corpus.from_sparse(np.array(counts))
        found.append(left_to_right(TOPICS, ALPHA, corpus, particles=2, seed=seed))
    spread = np.std([f.perplexity for f in found])
    assert np.mean([f.standard_error for f in found]) == pytest.approx(spread, rel=0.15)


def test_the_standard_error_by_hand():
    corpus = Corpus.from_sparse(np.array([[2, 0], [0, 0], [0, 1]]))
    found = left_to_right(np.array([[0.25], [0.75]]), np.ones(1), corpus)
    logs, tokens = np.log([1 / 16, 3 / 4]), np.array([2, 1])
    rate = logs.sum() / 3
    error = math.sqrt(2 * ((logs - rate * tokens) ** 2).sum()) / 3
    assert found.standard_error == pytest.approx(math.exp(-rate) * error, rel=1e-6)
    one = left_to_right(np.array([[0.25], [0.75]]), np.ones(1), corpus, n_documents=1)
    assert math.isnan(one.standard_error)
