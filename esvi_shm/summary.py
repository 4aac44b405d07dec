"""The figures of a fit, as `summary.json` holds them; the README says what they are."""

from typing import Any

import numpy as np

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.part import Part
from esvi_shm.parameters import unused_topics
from esvi_shm.runtime.record import Result


def summarise(
    result: Result, corpus: Corpus, holdout: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The figures of a finished fit.

    Parameters
    ----------
    result : Result
    corpus : Corpus
        That was fitted.
    holdout : dict, optional
        What describes the documents that judged.

    Returns
    -------
    dict
        Of what JSON can hold.
    """
    last, whole = result.history[-1], corpus.whole
    column_sums = result.learned.lambda_rows.sum(axis=0, dtype=np.float64)
    return {
        "n_documents": whole.n_documents,
        "n_words": whole.n_words,
        "n_pairs": whole.n_pairs,
        "n_tokens": whole.n_tokens,
        "n_topics": result.config.n_topics,
        "n_unused_topics": int(unused_topics(column_sums, float(result.learned.eta.sum())).sum()),
        "n_nodes": corpus.nodes.n_nodes if isinstance(corpus, Part) else 1,
        "elbo_per_token": last.elbo / whole.n_tokens,
        "holdout_perplexity": last.perplexity if np.isfinite(last.perplexity) else None,
        "holdout": holdout,
        "alpha_mean": float(result.learned.alpha.mean()),
        "eta_mean": float(result.learned.eta.mean()),
        "pairs_per_second": speed_of(result),
        **of_fit(result, whole),
    }


def speed_of(result: Result) -> float:
    """Pairs, or points, a second, of the passes alone."""
    return result.work / result.pass_seconds if result.pass_seconds else 0.0


def of_fit(result: Result, data: Any) -> dict[str, Any]:
    """The figures that every family has.

    Parameters
    ----------
    result : Result
    data : Corpus, Points or another
        What the fit is to, of all nodes.
    """
    config, last = result.config, result.history[-1]
    n_passes = round(result.passes, 3)
    return {
        "n_workers": config.n_workers,
        "n_blocks": config.n_blocks,
        "n_passes": int(n_passes) if float(n_passes).is_integer() else n_passes,
        "stopped": result.stopped,
        "elbo": last.elbo,
        # Not known where visits were cut short between two evaluations.
        "elbo_f": last.elbo_f if np.isfinite(last.elbo_f) else None,
        "fit_seconds": result.fit_seconds,
        "start_seconds": result.fit_seconds - result.pass_seconds,
        "total_seconds": last.total_seconds,
        "shared_bytes": result.shared_bytes,
        "peak_rss_bytes": result.shared_bytes + result.peak_private_bytes,
        "most_rows_at_a_node": result.most_held,
        "restarts": [restart._asdict() for restart in result.restarts],
        "at_rest": result.at_rest,
        "ending": result.ending,
        "corpus": data.name,
        "corpus_digest": data.digest(),
        "config": config.as_dict(),
    }
