"""What the model directory of a mixture holds, beside history, summary and manifest.

statistics.npy   float64 (1 + T, K)   points of each component, and their sums of t(x)
centre.npy       float64 (D,)         taken off all points
prior_NAME.npy   float64              of the prior
labels.npy       int32 (N,)           most probable component of each training point
"""

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from esvi_shm import families
from esvi_shm.mixture import FittedMixture, MixtureRecord
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.runtime.record import Record

_ARRAYS = ("statistics", "centre", "labels")


def is_mixture(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is that of a mixture."""
    return "statistics.npy" in manifest["sha256"]


def names(listed: Iterable[str]) -> set[str]:
    """The files that there must be, of those that a manifest lists."""
    prior = {name for name in listed if name.startswith("prior_") and name.endswith(".npy")}
    return prior | {f"{name}.npy" for name in _ARRAYS} | {"history.csv", "summary.json"}


def read_history(folder: Path, kind: Any = Record) -> list[Any]:
    """The evaluations of `history.csv`, as records of this kind."""
    with open(folder / "history.csv", newline="") as file:
        return [
            kind(**{name: float(value) for name, value in row.items()})
            for row in csv.DictReader(file)
        ]


def write(model: FittedMixture, writer: Any) -> None:
    """Write the arrays of a mixture."""
    arrays = {name: getattr(model, name) for name in _ARRAYS}
    arrays |= {f"prior_{name}": array for name, array in model.prior.items()}
    for name, array in arrays.items():
        writer.array(f"{name}.npy", array.shape, array.dtype, [array])


def parse(folder: Path) -> FittedMixture:
    """Read a mixture from files that are whole."""
    paths = [*(folder / f"{name}.npy" for name in _ARRAYS), *folder.glob("prior_*.npy")]
    arrays = {path.stem: np.load(path, allow_pickle=False) for path in paths}
    summary = dict(json.loads((folder / "summary.json").read_text()))
    config, history = summary["config"], read_history(folder, MixtureRecord)
    statistics, centre = arrays["statistics"], arrays["centre"]
    if statistics.ndim != 2 or centre.ndim != 1 or not history:
        raise ValueError("statistics must be a matrix, centre a vector, and there be a history")
    labels, n_points = arrays["labels"], summary["n_points"]
    K = statistics.shape[1]
    if labels.shape != (n_points,) or labels.dtype.kind != "i":
        raise ValueError(f"labels must be a whole number for each of {n_points} points")
    if not ((labels >= 0) & (labels < K)).all():
        raise ValueError(f"labels must be components, 0 to {K - 1}")
    prior = {name[len("prior_") :]: array for name, array in arrays.items() if "prior_" in name}
    options = MixtureOptions(**(config["mixture"] or {}))
    made: Any = families.find(config["family"])
    shapes = made.kind.prior_shapes(len(centre), options)
    found = {name: array.shape for name, array in prior.items()}
    if found != shapes:
        raise ValueError(f"the prior must have shapes {shapes}, got {found}")
    if statistics.shape[0] != 1 + made.kind.size_of(len(centre), options)[0]:
        raise ValueError(f"there must be a row for each statistic, got {statistics.shape}")
    return FittedMixture(
        config["family"], options, statistics, prior, centre, history, summary, labels
    )
