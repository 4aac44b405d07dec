"""A fit, from a corpus and a configuration to a result: what is checked, planned and begun.

    corpus, config -> check -> plan -> preflight -> compile -> segments, workers (`home`) -> Result

Bad names and too little memory are refused before anything is allocated.
"""

import logging
import os
from dataclasses import replace

import psutil

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.families.contract import Judge
from esvi_shm.runtime import routes
from esvi_shm.runtime.home import Home
from esvi_shm.runtime.layout import Layout, choose_n_blocks, lay_out
from esvi_shm.runtime.record import Observer, Result
from esvi_shm.runtime.serial import warm_up
from esvi_shm.runtime.signals import Signals
from esvi_shm.shared.preflight import choose_backing
from esvi_shm.shared.segments import Run

_log = logging.getLogger(__name__)


def available_cores() -> int:
    """Cores that this process may use: its affinity, within the control group's quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return min(cores, psutil.cpu_count() or cores)


def resolve(config: FitConfig, corpus: Corpus) -> FitConfig:
    """Fill in the numbers of workers and blocks, and lower them to what there is work for."""
    n_workers = config.n_workers or available_cores()
    if n_workers > corpus.n_documents:
        _log.warning("%d workers for %d documents: using %d", n_workers, *[corpus.n_documents] * 2)
        n_workers = corpus.n_documents
    n_blocks = min(config.n_blocks or choose_n_blocks(corpus, n_workers), corpus.n_words)
    return replace(config, n_workers=n_workers, n_blocks=n_blocks)


def check(config: FitConfig, has_judge: bool = False) -> None:
    """Refuse a configuration that no corpus can make right, before one is read.

    Parameters
    ----------
    config : FitConfig
    has_judge : bool
        Whether held-out documents will be given.

    Raises
    ------
    ParameterError
    """
    families.find(config.family).check(config, has_judge)
    routes.check(config)
    if config.patience is not None:
        if not has_judge:
            raise ParameterError("patience", "must come with holdout", config.patience)
        if not config.evaluate_every:
            raise ParameterError("evaluate_every", "must be at least 1 with patience", 0)


def plan(corpus: Corpus, config: FitConfig) -> Layout:
    """The layout that `fit` would use; allocates nothing."""
    return lay_out(corpus, resolve(config, corpus))


def fit(
    corpus: Corpus,
    config: FitConfig,
    observer: Observer | None = None,
    judge: Judge | None = None,
) -> Result:
    """Fit a model to a corpus with worker processes.

    Parameters
    ----------
    corpus : Corpus
    config : FitConfig
    observer : Observer, optional
    judge : callable, optional
        Asked at each evaluation, while the clock stands still; see `families.contract.Judge`.

    Returns
    -------
    Result

    Raises
    ------
    ParameterError
        For a name or prior the family or route does not take, or what needs a judge.
    MemoryShortError
        Before anything is allocated, if there is no room.
    WorkerError
        If a worker failed or died.
    Interrupted
        At the second signal.
    """
    observer = observer or Observer()
    check(config, judge is not None)
    layout = plan(corpus, config)
    observer.planned(layout)
    backing = choose_backing(layout.total_bytes)
    observer.stage("compile")
    warm_up(layout.config)
    with Signals() as signals, Run(backing) as run:
        return Home(layout, corpus, run, signals, observer, judge).run()
