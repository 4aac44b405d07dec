"""What `python -m esvi_shm.fit` does to fit on several nodes: `--transport` and what goes with it.

Each node runs the same command. It reads the corpus and keeps a range of its documents (of points:
of these), or reads a file of its own; node 0 prints and saves what all have found.
"""

import argparse
import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from esvi_shm import command
from esvi_shm.errors import CorpusError, ParameterError

if TYPE_CHECKING:
    from esvi_shm.config import FitConfig
    from esvi_shm.corpus import Corpus
    from esvi_shm.corpus.range import Range
    from esvi_shm.metrics.holdout import HeldOut
    from esvi_shm.points import Points
    from esvi_shm.progress import Progress
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
        "600), of 16 to 4096 bytes; needed for addresses beyond this machine",
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
                raise ParameterError(name, "must come with %s", getattr(given, name), "transport")
        yield None
        return
    from esvi_shm import families, transports

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
        with contextlib.suppress(Exception):  # the first error is the one to be told
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
    if config.start_from is not None:  # wherever it lies
        every["start_from"] = f"topics {config.start_from.digest()[:16]}"
    mine = {name: value for name, value in every.items() if name not in _OWN}
    said = [json.loads(part) for part in peers.gather(json.dumps(mine).encode())]
    for rank, other in enumerate(said):
        for name, value in other.items():
            if value != said[0].get(name):
                first = f"{said[0].get(name)!r} at node 0, {value!r} at node {rank}"
                raise ParameterError(
                    name, f"must be the same at all nodes ({first})", mine.get(name)
                )


def read_own(given: argparse.Namespace, progress: "Progress", peers: "Peers") -> "Range":
    """Read this node's documents: a range of the corpus, or with `--corpus-part` all of it.

    Raises
    ------
    CorpusError
        On every node: if they have not read the same.
    """
    from esvi_shm.corpus.range import EVERYTHING, Share

    share = EVERYTHING if given.corpus_part else Share(peers.rank, peers.n_nodes)
    found = command.read_range(given, given.corpus, progress, share)
    if not given.corpus_part:
        _check_same(found.digest, found.corpus.name, peers, "documents")
    return found


def set_aside(found: "Range", share: float, seed: int, peers: "Peers") -> "tuple[Corpus, HeldOut]":
    """Of this node's documents those to train on, and those of all nodes that judge.

    The same ones as on one machine.
    """
    import numpy as np

    from esvi_shm.corpus.corpus import Corpus
    from esvi_shm.corpus.part import gather_rows
    from esvi_shm.metrics.holdout import HeldOut, aside_name, draw, take

    corpus = found.corpus
    held, kept = draw(found.n_documents, share, seed)
    last = found.first + corpus.n_documents
    places, own = (np.flatnonzero((found.first <= d) & (d < last)) for d in (held, kept))
    rows = corpus.rows(held[places] - found.first)
    arrays = gather_rows(peers, len(held), places, rows)
    aside = Corpus(*arrays, corpus.n_words, corpus.vocabulary, aside_name(corpus.name, len(held)))
    training = take(corpus, kept[own] - found.first, corpus.name)
    words = corpus.vocabulary or [corpus.word(v) for v in range(corpus.n_words)]
    return training, HeldOut(aside, words, seed)


def read_own_points(path: str, is_part: bool, peers: "Peers") -> "Points":
    """Read this node's points: a range of those of the file, or with `--corpus-part` all of them.

    Raises
    ------
    CorpusError
        On every node: if they have not read the same.
    """
    from esvi_shm.points import read_points, read_share

    if is_part:
        return read_points(path)
    points, digest = read_share(path, peers.rank, peers.n_nodes)
    _check_same(digest, points.name, peers, "points")
    return points


def own_share(points: "Points", peers: "Peers") -> "Points":
    """This node's range of points that all nodes have.

    Raises
    ------
    CorpusError
        On every node: if they are not the same.
    """
    from esvi_shm.points import Points, bounds_of

    _check_same(points.digest(), points.name, peers, "points")
    first, last = bounds_of(points.n_points, (peers.rank, peers.n_nodes))
    return Points(points.values[first:last].copy(), points.name, points.features)


def _check_same(digest: str, name: str, peers: "Peers", units: str) -> None:
    """Refuse data that are not those of node 0."""
    digests = peers.gather(digest.encode())
    for rank, other in enumerate(digests):
        if other != digests[0]:
            rule = (
                f"all nodes must read the same corpus, and that of node {rank} differs from "
                f"node 0's (--corpus-part: each has its own {units})"
            )
            raise CorpusError(name, rule)
