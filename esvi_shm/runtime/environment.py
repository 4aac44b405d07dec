"""The environment of processes that a node starts for itself.

What MPI's launcher tells a process by its environment is for that process alone: one that it
starts, and that looks like a rank of the job, disturbs the job or hangs.
"""

from collections.abc import Mapping

#: Of MPICH and Slurm, Open MPI, and the runtimes below it.
LAUNCHERS = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "MPI_LOCAL", "HYDI_", "HYDRA_")


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes a process a rank of an MPI job.

    Examples
    --------
    >>> without_launcher({"PMI_RANK": "1", "PMIX_RANK": "1", "HOME": "/root"})
    {'HOME': '/root'}
    """
    return {name: value for name, value in environment.items() if not name.startswith(LAUNCHERS)}
