"""What `python -m esvi_shm.fit` does to fit on several nodes: `--transport` and what goes with it.

Each node runs the same command. It reads the corpus and keeps a range of its documents (of points:
of these), or reads a file of its own; node 0 prints and saves what all have found.
"""

import argparse
import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from esvi_shm.errors import CorpusError, ParameterError

if TYPE_CHECKING:
    from esvi_shm.config import FitConfig
    from esvi_shm.corpus import Corpus
    from esvi_shm.points import Points
    from esvi_shm.runtime.peers import Peers

#: Options that say which node this is, with their defaults; none without `--transport`.
OPTIONS = {"rank": None, "nodes": None, "key_file": None, "corpus_part": False}
#: Parameters that may differ from node to node.
_OWN = ("n_workers", "scratch")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a fit on several nodes."""
    group = parser.add_argument_group(
        "several nodes", "every node runs the same command; node 0 prints and saves"
    )
    group.add_argument(
        "--transport", metavar="NAME",
        help="mpi: nodes are the ranks that mpirun has started; tcp: those of --nodes; python -m "
        "esvi_shm.launch tries that out on one machine (default: this machine alone)",
    )  # fmt: skip
    group.add_argument("--rank", type=int, metavar="R", help="tcp: the number of this node, from 0")
    group.add_argument(
        "--nodes", metavar="HOST:PORT,HOST:PORT...",
        help="tcp: where each node listens, in the order of their ranks, the same at all",
    )  # fmt: skip
    group.add_argument(
        "--key-file", metavar="FILE",
        help="tcp: a file with a secret, the same at all nodes, that nobody else may read (mode "
        "600); needed for addresses beyond this machine",
    )  # fmt: skip
    group.add_argument(
        "--corpus-part", action="store_true",
        help="CORPUS is this node's own documents, with the same vocabulary at all nodes "
        "(default: all nodes read the same corpus, and each keeps a range of it)",
    )  # fmt: skip


@contextlib.contextmanager
def joined(given: argparse.Namespace, config: "FitConfig") -> Iterator["Peers | None"]:
    """The other nodes, while this one is one of them; None without `--transport`.

    Raises
    ------
    ParameterError
        For what does not go together, or differs from node to node.
    PeerError
        If another node does not come, fails or is lost.
    """
    if given.transport is None:
        for name, default in OPTIONS.items():
            if getattr(given, name) != default:
                raise ParameterError(name, "must come with transport", getattr(given, name))
        yield None
        return
    from esvi_shm import command, families, transports

    families.find(config.family).check_nodes(config)
    share = command.share_of(given.holdout)
    if given.corpus_part and share is not None:
        # Only node 0 judges: what the others would set aside would be lost.
        raise ParameterError("holdout", "must be a file with corpus_part", given.holdout)
    which = share if share is not None or given.holdout is None else "a file"
    same = {
        "holdout": which, "corpus_part": given.corpus_part, "plan": given.plan,
        "save_every": given.save_every,
    }  # fmt: skip
    options = transports.Options(
        given.rank,
        tuple(given.nodes.split(",")) if given.nodes else (),
        given.key_file,
        route="balanced" if config.route == "balanced" else "lap",
        seed=config.seed,
    )
    # What must be the same is compared by name, below.
    peers = transports.connect(given.transport, options, bytes(32))
    try:
        agree(config, same, peers)
        yield peers
    except BaseException as error:
        peers.close(str(error) or type(error).__name__)
        raise
    peers.close()


def agree(config: "FitConfig", others: dict[str, Any], peers: "Peers") -> None:
    """Refuse a parameter that is not the same at all nodes.

    Parameters
    ----------
    config : FitConfig
    others : dict
        What else must be the same.
    peers : Peers

    Raises
    ------
    ParameterError
        On every node.
    """
    every = config.as_dict()
    every |= {**(every.pop("mixture") or {}), **others}
    mine = {name: value for name, value in every.items() if name not in _OWN}
    said = [json.loads(part) for part in peers.gather(json.dumps(mine).encode())]
    for rank, other in enumerate(said):
        for name, value in other.items():
            if value != said[0].get(name):
                first = f"{said[0].get(name)!r} at node 0, {value!r} at node {rank}"
                raise ParameterError(
                    name, f"must be the same at all nodes ({first})", mine.get(name)
                )


def own_part(corpus: "Corpus", is_part: bool, peers: "Peers") -> "Corpus":
    """This node's documents, as part of what all nodes have.

    Raises
    ------
    CorpusError
        On every node: if the corpora do not go together.
    """
    from esvi_shm.corpus.part import join, take
    from esvi_shm.corpus.split import split_documents

    if not is_part:
        _check_same(corpus, peers, "documents")
        bounds = split_documents(corpus.indptr, peers.n_nodes)
        corpus = take(corpus, *(int(d) for d in bounds[peers.rank : peers.rank + 2]))
    return join(corpus, peers)


def own_points(points: "Points", is_part: bool, family: str, peers: "Peers") -> "Points":
    """This node's points, as part of what all nodes have.

    Raises
    ------
    CorpusError
        On every node: if the points do not go together.
    """
    from esvi_shm import families
    from esvi_shm.points import Points

    if not is_part:
        _check_same(points, peers, "points")
        first, last = (points.n_points * r // peers.n_nodes for r in (peers.rank, peers.rank + 1))
        points = Points(points.values[first:last].copy(), points.name)
    joined: Points = families.find(family).join(points, peers)
    return joined


def _check_same(data: "Corpus | Points", peers: "Peers", units: str) -> None:
    """Refuse data that are not those of node 0."""
    digests = peers.gather(data.digest().encode())
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            rule = (
                f"all nodes must read the same corpus, and that of node {rank} differs from "
                f"node 0's (--corpus-part: each has its own {units})"
            )
            raise CorpusError(data.name, rule)
