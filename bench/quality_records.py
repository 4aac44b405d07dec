"""The scored states of `bench.quality` on disk, one JSON object a line, and what is chosen by them.

A line is appended by one write, so that several runs may share a file; a last line that was cut
off by a crash is dropped when the file is next opened.
"""

import itertools
import json
import os
from pathlib import Path
from typing import Any

Record = dict[str, Any]

#: Ways out of poor optima, as options of a fit.
WAYS_OUT: dict[str, dict[str, Any]] = {
    "anneal, 4 restarts": {"inference": "anneal", "restarts": 4},
    "anneal, noise 0.3": {"inference": "anneal", "noise": 0.3},
    "anneal, noise 1": {"inference": "anneal", "noise": 1.0},
    "anneal, repaired": {"inference": "anneal", "repair_after": (71, 84)},
    "anneal, refolded": {"inference": "anneal", "refold_after": (50,)},
}
#: Our systems, as options of a fit. By default cvb0 ends at a power of 0.9, and leaves pairs out.
OURS: dict[str, dict[str, Any]] = {
    "cvb0": {"inference": "cvb0"},
    "cvb0, power 1": {"inference": "cvb0", "power": 1.0},
    "cvb0, power 0.8": {"inference": "cvb0", "power": 0.8},
    "cvb0, leaving the pair out": {"inference": "cvb0", "leave_out": "pair"},
    "cvb0, leaving a token out": {"inference": "cvb0", "leave_out": "token"},
    "cvb0, leaving nothing out": {"inference": "cvb0", "leave_out": "none"},
    "cvb0, learning alpha": {"inference": "cvb0", "learn_priors": "alpha"},
    "anneal": {"inference": "anneal"},
    "vb": {"inference": "vb"},
    **WAYS_OUT,
}
PEERS = ("scikit-learn", "gensim", "tomotopy", "tomotopy, learning alpha")
#: The (alpha, eta) of which each system takes its best.
GRID = tuple(itertools.product((0.02, 0.05, 0.1), (0.01, 0.05, 0.1)))


class Records:
    """What a file holds, and what is added to it.

    Parameters
    ----------
    path : Path
        Made with its folder when the first record is added.

    Raises
    ------
    ValueError
        For a line before the last that is no JSON object.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[Record] = []
        if path.exists():
            self._load()

    def _load(self) -> None:
        text = self.path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            print(f"{self.path}: the last line was cut off, and is dropped")
            os.truncate(self.path, whole)
        for number, line in enumerate(text[:whole].splitlines(), start=1):
            try:
                self.all.append(json.loads(line))
            except json.JSONDecodeError as error:
                message = f"{self.path}, line {number}: must be a JSON object, {error}"
                raise ValueError(message) from None

    def add(self, **record: Any) -> None:
        """Keep a record, on the disk too."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record).encode() + b"\n"
        with open(self.path, "ab", buffering=0) as file:
            file.write(line)
        self.all.append(record)

    def find(self, **wanted: Any) -> list[Record]:
        """All records with these values."""
        return [r for r in self.all if all(r.get(key) == v for key, v in wanted.items())]


def choose(records: list[Record]) -> dict[str, float]:
    """The priors of the record with the least perplexity of the validation documents.

    >>> choose([{"alpha": 0.1, "eta": 0.01, "validation": 9.0},
    ...         {"alpha": 0.1, "eta": 0.05, "validation": 8.0}])
    {'alpha': 0.1, 'eta': 0.05}
    """
    best = min(records, key=lambda record: record["validation"])
    return {"alpha": best["alpha"], "eta": best["eta"]}
