"""A fit on several nodes, without a transport."""

import numpy as np
import pytest

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.runtime import engine
from tests import naive
from tests.runtime.meeting import fit_together

COUNTS, TOPICS = naive.simulate(40, 24, 3, 40, seed=0)
CORPUS = Corpus.from_sparse(COUNTS)


@pytest.mark.parametrize("n_nodes", [1, 2, 3])
@pytest.mark.parametrize("inference", ["vb", "anneal"])
def test_a_fit_on_nodes_ends_as_one_on_one_does(n_nodes, inference, monkeypatch):
    config = FitConfig(
        3, n_passes=40, n_workers=2, n_blocks=7, inference=inference, tol=0.0, alpha=0.1, eta=0.1
    )
    results, meeting = fit_together(CORPUS, config, n_nodes, monkeypatch)
    one = engine.fit(CORPUS, config)
    first = results[0]
    assert [r.history for r in results].count(first.history) <= n_nodes
    assert first.history[-1].elbo == pytest.approx(one.history[-1].elbo, rel=0.02)
    learned = first.learned
    gamma = np.concatenate(learned.of_units)
    assert gamma.shape == (40, 3)
    np.testing.assert_allclose(gamma.sum(axis=1), COUNTS.sum(axis=1) + 0.3, rtol=1e-4)
    words = COUNTS.sum(axis=0)[learned.word_ids]
    np.testing.assert_allclose(learned.lambda_rows.sum(axis=1), words + 0.3, rtol=1e-4)
