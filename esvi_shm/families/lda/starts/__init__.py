"""Where a fit begins: topics to fold the documents into, or random responsibilities.

A start gives point topics, written into lambda_; every worker then folds its own documents in
(gamma from uniform, a few sweeps with the topics held still) and the last sweep leaves the
margins of phi, from which gamma, lambda and pi are set. `random` sets phi directly.

==============  ==================================================================
seeded          topic k is some random documents, smoothed by the corpus at equal weight
spread          the same with documents that are far from one another, and their nearest
scikit-learn    E(lambda) with lambda drawn from Gamma(100, 1/100), as scikit-learn does
random          phi of each pair uniform on the simplex
==============  ==================================================================

Each is a module here, found by its file name, with one function:

    start(config, corpus, arrays, shared) -> generator of commands; see `contract.Family.start`

A start that makes topics of documents also has the `choose_documents` that `_documents` asks for
them. Only such a start goes with topics that are given (`_given`: those of a model, or seed
words), which take the place of documents.
"""

import importlib
import logging
import pkgutil
from types import ModuleType

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus

_log = logging.getLogger(__name__)


def prepare(config: FitConfig, data: Corpus) -> None:
    """See `families.contract.Family`; no start here imports much."""
    n_twins = 0 if data.vocabulary is None else len(data.vocabulary) - len({*data.vocabulary})
    if n_twins:
        _log.warning(
            "%s: %d words are called like one before them: documents that are matched by name "
            "later have all tokens of such a name in the first", data.name, n_twins,
        )  # fmt: skip


def known() -> list[str]:
    """Names of all starts."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))


def find(name: str) -> ModuleType:
    """The module of a known start."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def from_documents() -> list[str]:
    """Names of the starts that make topics of documents."""
    return [name for name in known() if hasattr(find(name), "choose_documents")]
