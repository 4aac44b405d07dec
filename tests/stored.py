"""Small models for the model directory, made without a fit."""

import numpy as np

import esvi_shm
from esvi_shm.model import FittedModel
from esvi_shm.parameters import Parameters
from esvi_shm.runtime.record import Record

#: The files of a model.
FILES = {
    "manifest.json",
    "lambda.npy",
    "gamma.npy",
    "alpha.npy",
    "eta.npy",
    "vocabulary.txt",
    "history.csv",
    "summary.json",
}


def make_model(value: float) -> FittedModel:
    """A small model without a fit; `value` tells one from another."""
    parameters = Parameters(
        np.full((3, 2), value, np.float32),
        np.array([2, 0, 1]),
        [np.ones((1, 2), np.float32), np.ones((2, 2), np.float32)],
        np.ones(2),
        np.ones(3),
    )
    summary = {
        "config": {"family": "lda"},
        "corpus_digest": "",
        **dict.fromkeys(("n_documents", "n_words", "n_pairs", "n_tokens", "n_topics"), 1),
    }
    return FittedModel(
        parameters, ["a", "b", "c"], [Record(1.0, 0.5, 0.6, -1.0, -2.0, -2.0)], summary
    )


def value_of(folder) -> float:
    return float(esvi_shm.load(folder).lambda_[0, 0])
