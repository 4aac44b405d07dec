"""A fit, from data and a configuration to a result: what is checked, planned and begun.

    data, config -> check -> plan -> preflight -> compile -> segments, workers (`home`) -> Result

Bad names and too little memory are refused before anything is allocated.
"""

import logging
import platform
from dataclasses import replace

import numpy as np

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.errors import ParameterError
from esvi_shm.families.contract import Data, Judge
from esvi_shm.runtime import routes
from esvi_shm.runtime.compiling import compile_kernels
from esvi_shm.runtime.cores import available_cores
from esvi_shm.runtime.home import Home
from esvi_shm.runtime.layout import Layout
from esvi_shm.runtime.peers import Peers
from esvi_shm.runtime.record import Keep, Observer, Result
from esvi_shm.runtime.signals import Signals
from esvi_shm.runtime.within import lay_out_within
from esvi_shm.shared.preflight import check_scratch, choose_backing, free_descriptors
from esvi_shm.shared.segments import Run

#: Files that a fit opens beside those of each worker: bell, lock, tracker, and some for a moment.
OPEN_FILES = 16

_log = logging.getLogger(__name__)


def resolve(config: FitConfig, data: Data, peers: Peers | None = None) -> FitConfig:
    """Fill in the numbers of workers and blocks, and lower them to what there is work for."""
    family, cores = families.find(config.family), available_cores()
    if peers is not None:  # nodes of one machine share its cores
        machines = peers.gather(platform.node().encode())
        cores = max(cores // machines.count(machines[peers.rank]), 1)
    n_workers, n_units = config.n_workers or cores, family.n_units(data)
    if n_workers > n_units:
        numbers = n_workers, n_units, family.units, n_units
        _log.warning("%d workers for %d %s: using %d", *numbers)
        n_workers = n_units
    if n_workers > cores:
        _log.warning(
            "%d workers for %d available cores: no faster, and each takes 1 to 2 s to start",
            n_workers, cores,
        )  # fmt: skip
    in_all = n_workers
    if peers is not None:
        total = np.array([n_workers], np.float64)
        peers.sum_into(total)
        in_all = int(total[0])
    n_blocks = family.choose_n_blocks(data, config, in_all)
    return replace(config, n_workers=n_workers, n_blocks=n_blocks)


def check(config: FitConfig, has_judge: bool = False) -> None:
    """Refuse a configuration that no data can make right, before any are read.

    Parameters
    ----------
    config : FitConfig
    has_judge : bool
        Whether held-out data will be given.

    Raises
    ------
    ParameterError
    """
    families.find(config.family).check(config, has_judge)
    routes.check(config)
    if config.scratch is not None:
        check_scratch(config.scratch)
    if config.patience is not None:
        if not has_judge:
            raise ParameterError("patience", "must come with %s", config.patience, "holdout")
        if not config.evaluate_every:
            raise ParameterError("evaluate_every", "must be at least 1 with %s", 0, "patience")


def plan(
    data: Data, config: FitConfig, release: bool = False, peers: Peers | None = None
) -> Layout:
    """The layout that `fit` would use, for `memory.describe`; allocates nothing that lasts.

    Raises
    ------
    MemoryShortError
        If there is no memory to cut the data.
    """
    return _layout(data, resolve(config, data, peers), config.n_blocks is None, release, peers)


def _layout(
    data: Data, config: FitConfig, open_blocks: bool, release: bool, peers: Peers | None
) -> Layout:
    """The layout of a resolved configuration, with what it leaves open chosen."""
    family = families.find(config.family)
    family.prepare(config, data)
    layout = lay_out_within(data, config, open_blocks, release, peers)
    for message in family.without_effect(layout.config):
        _log.warning(*message)
    return layout


def fit(
    data: Data,
    config: FitConfig,
    observer: Observer | None = None,
    judge: Judge | None = None,
    release: bool = False,
    peers: Peers | None = None,
    keep: Keep | None = None,
) -> Result:
    """Fit a model to data with worker processes.

    Parameters
    ----------
    data : what `config.family` is fitted to
        A `Corpus` for LDA, `Points` for mixtures.
    config : FitConfig
    observer : Observer, optional
    judge : callable, optional
        Asked at each evaluation, while the clock stands still, and by a family that has to decide
        by held-out data; see `families.contract.Judge`.
    release : bool
        Release the data (see `Corpus.release`) as soon as the workers' arrays hold it.
    peers : Peers, optional
        The other nodes, which fit the same model to data of their own: `data` is this node's part
        as `Family.join` makes it.
    keep : Keep, optional
        On several nodes at each, every so many passes as at the others; node 0 is handed the whole.

    Returns
    -------
    Result
        On several nodes whole at node 0 only; the others have what is theirs.

    Raises
    ------
    ParameterError
        For a name or prior the family or route does not take, what needs a judge, or more workers
        than files may be open for.
    MemoryShortError
        Before anything is allocated, if there is no room.
    WorkerError
        If a worker failed or died.
    BoundError
        If the bound is no number.
    Interrupted
        At the second signal.
    """
    observer = observer or Observer()
    check(config, judge is not None)
    if peers is not None:
        families.find(config.family).check_nodes(config)
    open_blocks, config = config.n_blocks is None, resolve(config, data, peers)
    n_workers = config.n_workers or 1
    # Each mapping keeps one, of three segments and two a worker; and a worker's pipe and pidfd.
    _check_descriptors(n_workers, 3 + 4 * n_workers)
    layout = _layout(data, config, open_blocks, release, peers)
    observer.planned(layout)
    backing = choose_backing(layout.total_bytes, config.scratch)
    if backing == "file":  # the file of each segment stays open too
        _check_descriptors(n_workers, 2 * len(layout.tables) + 2 * n_workers)
    observer.stage("compile")
    compile_kernels(layout.config)
    with Signals() as signals, Run(backing, config.scratch) as run:
        return Home(layout, data, run, signals, observer, judge, peers, keep).run()


def _check_descriptors(n_workers: int, n_descriptors: int) -> None:
    """Refuse more workers than the limit of open files allows."""
    needed, free = n_descriptors + OPEN_FILES, free_descriptors()
    if needed > free:
        rule = f"takes {needed} open files, and {free} more may be opened (see ulimit -n)"
        raise ParameterError("n_workers", rule, n_workers)
