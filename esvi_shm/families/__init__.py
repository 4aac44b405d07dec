"""Model families: one module each, found by file name; entry points add others.

A name with an underscore is no family, but what several have in common.

`find("lda")` imports that module alone, so a worker loads only the kernels that it runs.
"""

import importlib
import pkgutil
from importlib.metadata import entry_points

from esvi_shm.config import choose
from esvi_shm.families.contract import Family

_GROUP = "esvi_shm.families"


def known() -> list[str]:
    """Names of all families that can be fitted."""
    names = {module.name for module in pkgutil.iter_modules(__path__)}
    here = {name for name in names if name != "contract" and not name.startswith("_")}
    return sorted(here | {point.name for point in entry_points(group=_GROUP)})


def find(name: str) -> type[Family]:
    """The `Model` class of a family.

    Raises
    ------
    ParameterError
        For a name that is not known; the message lists those that are.
    """
    choose("family", name, known())
    for point in entry_points(group=_GROUP):
        if point.name == name:
            return point.load()
    return importlib.import_module(f"{__name__}.{name}").Model
