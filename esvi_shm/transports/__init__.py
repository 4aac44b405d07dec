"""Ways to join the nodes of a fit: a module each, found by file name; entry points add others.

`connect("tcp", options, digest)` gives the `Peers` that home plays with. `contract` says what a
transport is, `ferry` joins it to home, `protocol` is what all nodes keep to.
"""

import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import Any

from esvi_shm.config import choose
from esvi_shm.transports.contract import Options
from esvi_shm.transports.ferry import Ferry

_GROUP = "esvi_shm.transports"
_NO_TRANSPORTS = {"contract", "ferry", "protocol"}


def known() -> list[str]:
    """Names of all transports."""
    names = {module.name for module in pkgutil.iter_modules(__path__)}
    here = {name for name in names - _NO_TRANSPORTS if not name.startswith("_")}
    return sorted(here | {point.name for point in entry_points(group=_GROUP)})


def find(name: str) -> Any:
    """The module of a transport.

    Raises
    ------
    ParameterError
        For a name that is not known; the message lists those that are.
    """
    choose("transport", name, known())
    for point in entry_points(group=_GROUP):
        if point.name == name:
            return point.load()
    return importlib.import_module(f"{__name__}.{name}")


def check(name: str, options: Options) -> None:
    """Raise ParameterError if the options are not those that the transport needs."""
    find(name).check(options)


def connect(name: str, options: Options, digest: bytes) -> Ferry:
    """Find the other nodes, and agree with them that all run the same fit.

    Parameters
    ----------
    name : str
        One of `known()`.
    options : Options
    digest : bytes
        32 bytes (SHA-256) of all that must be the same on every node.

    Returns
    -------
    Ferry
        The `Peers` of this node.

    Raises
    ------
    ParameterError
        If the options are not those that the transport needs.
    PeerError
        If a node does not come in time, or runs another fit.

    Examples
    --------
    >>> alone = connect("loopback", Options(rank=0, nodes=("only",)), bytes(32))
    >>> alone.gather(b"part")
    [b'part']
    >>> alone.close()
    """
    transport = find(name)
    transport.check(options)
    return Ferry(transport.connect(options), options, digest)
