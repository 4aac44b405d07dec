"""The environment of processes that a node starts for itself, and that they end with it.

What MPI's launcher tells a process by its environment is for that process alone: one that it
starts, and that looks like a rank of the job, disturbs the job or hangs.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

#: Of MPICH and Slurm, Open MPI, and the runtimes below it.
LAUNCHERS = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "MPI_LOCAL", "HYDI_", "HYDRA_")
#: Of BLAS, OpenMP and numba, each with `_NUM_THREADS` behind.
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "BLIS", "VECLIB_MAXIMUM")


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes a process a rank of an MPI job.

    Examples
    --------
    >>> without_launcher({"PMI_RANK": "1", "PMIX_RANK": "1", "HOME": "/root"})
    {'HOME': '/root'}
    """
    return {name: value for name, value in environment.items() if not name.startswith(LAUNCHERS)}


def of_interpreter() -> dict[str, str]:
    """The environment of an interpreter beside this one: the same modules, and one thread."""
    return {
        **without_launcher(os.environ),
        **{f"{name}_NUM_THREADS": "1" for name in _THREADS},
        # Wherever sys.path was changed to find them.
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
    }


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the main process is gone")
