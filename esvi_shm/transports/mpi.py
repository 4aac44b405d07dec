"""Nodes that mpirun (or srun) has started: a rank is a node.

mpi4py is imported here, when a fit asks for it, and nowhere else: never in a worker. All calls
return at once: messages are looked for (`Improbe`), and taken and sent in the background, a few
at a time for each node. MPI is finalised when the process ends, however it
does. Where a node could not be told how the fit ended, or has died, that would wait for ever: then
the job is aborted, after everything of this process has been cleaned up.
"""

import atexit
import contextlib
import importlib.util
import itertools
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from esvi_shm.errors import ParameterError
from esvi_shm.transports.contract import BATCH, Options
from esvi_shm.transports.protocol.frames import HEADER, MAC_BYTES, MOST_BODY, Buffer

_log = logging.getLogger(__name__)

#: Where launchers say how many processes they have started.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
#: Messages to a node that are under way at once.
MOST_SENDS = 4
#: The longest message: as much as the ferry writes at once.
MOST_BYTES = BATCH + MOST_BODY + HEADER.size + MAC_BYTES
#: Seconds between two looks for messages: behind one that came, when none came in some looks, and
#: when none came for `QUIET` seconds. A block that waits for a look is one that no worker has, and
#: a look takes a worker's time where they share a core.
SHORT_NAP, NAP, LONG_NAP, QUIET = 0.0003, 0.001, 0.004, 0.1
#: Seconds that messages may be under way at the end, and that other nodes have to clean up.
FAREWELL, CLEAN_UP = 5.0, 2.0

#: How names of MPICH's shared memory begin.
SCRATCH = "/dev/shm/mpich_"

_tags = itertools.count(1000)


def check(options: Options) -> None:
    """Raise ParameterError unless mpi4py is there and nothing is said that MPI knows better."""
    if options.rank is not None:
        raise ParameterError("rank", "is mpirun's to say with transport mpi", options.rank)
    if options.nodes:
        raise ParameterError("nodes", "are mpirun's to say with transport mpi", options.nodes)
    if options.key_file is not None:
        raise ParameterError("key_file", "is of no use with transport mpi", options.key_file)
    if importlib.util.find_spec("mpi4py") is None:
        rule = "needs mpi4py: pip install 'esvi_shm[mpi]' where there is an MPI, else "
        raise ParameterError("transport", rule + "pip install 'esvi_shm[mpi-local]'", "mpi")


def connect(options: Options) -> "MpiLink":
    """Join the job.

    Raises
    ------
    ParameterError
        If mpi4py finds no MPI, or another than that of the launcher.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        rule = f"needs an MPI that mpi4py can load ({error}); pip install 'esvi_shm[mpi-local]'"
        raise ParameterError("transport", rule, "mpi") from None
    atexit.unregister(_finalize)
    atexit.register(_finalize)
    check_launcher(MPI.COMM_WORLD.Get_size(), MPI.Get_library_version())
    return MpiLink(MPI)


def _finalize() -> None:
    """Part from the job. mpi4py does when the interpreter ends, which it need not (`signals.end`).

    To the launcher a rank that has not is one that has crashed: it kills the others, which may
    still be cleaning up.
    """
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized():
        MPI.Finalize()


def check_launcher(size: int, library: str) -> None:
    """Raise ParameterError if a launcher has started more processes than MPI sees; tell of one."""
    for name in SIZES:
        said = os.environ.get(name, "")
        if said.isdigit() and int(said) > 1 and size == 1:
            rule = (
                f"must be started by the launcher of mpi4py's own MPI ({library.split(chr(10))[0]}"
                f"): each process is alone, though {name} says {said}"
            )
            raise ParameterError("transport", rule, "mpi")
    if size == 1:
        _log.info("one rank of MPI, and so one node: more are started by mpirun -n NODES")


def unlink_scratch() -> None:
    """Take the names off MPICH's shared memory, which all nodes have mapped by now.

    It removes them itself when it is finalised, and never where the job is killed or aborted.
    """
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if SCRATCH in line}
    for path in paths:
        # Another node on this machine may have been faster; what is unlinked ends in "(deleted)".
        with contextlib.suppress(OSError):
            os.unlink(path)


class MpiLink:
    """One rank of the job."""

    def __init__(self, mpi: Any) -> None:
        self._mpi, self._world = mpi, mpi.COMM_WORLD
        self.rank, self.n_nodes = self._world.Get_rank(), self._world.Get_size()
        self.names = [f"node {j} (rank {j} of mpirun)" for j in range(self.n_nodes)]
        self.threads = mpi.Query_thread() >= mpi.THREAD_SERIALIZED
        self.nap, self._came = SHORT_NAP, time.monotonic()
        # All nodes count their fits alike, so nothing of an earlier one is taken for this one's.
        self._tag = next(_tags)
        self._sends: list[deque[tuple[Any, bytes]]] = [deque() for _ in range(self.n_nodes)]
        self._receives: dict[int, tuple[Any, int]] = {}
        self._buffers: dict[int, bytearray] = {}
        self._ended: set[int] = set()
        self._unheard = {j for j in range(self.n_nodes) if j != self.rank}

    def key(self, sender: int, receiver: int) -> bytes | None:
        """No MAC: who may join is the launcher's to say."""
        return None

    def write(self, to: int, buffers: Sequence[Buffer]) -> int:
        """Take all bytes for a node, or none while enough are under way."""
        sends = self._sends[to]
        try:
            while sends and sends[0][0].Test():
                sends.popleft()
            if len(sends) >= MOST_SENDS:
                return 0
            data = b"".join(buffers)
            request = self._world.Isend([data, self._mpi.BYTE], to, self._tag)
        except self._mpi.Exception as error:
            raise BrokenPipeError(0, str(error)) from error
        sends.append((request, data))
        return len(data)

    def read(self) -> Iterator[tuple[int, memoryview | None]]:
        """What has come, by its sender; each is to be used before the next is asked for."""
        is_quiet = time.monotonic() - self._came > QUIET
        self.nap = LONG_NAP if is_quiet else min(1.25 * self.nap, NAP)
        for j in range(self.n_nodes):
            if j == self.rank or j in self._ended:
                continue
            try:
                data = self._take(j)
            except self._mpi.Exception:
                self._ended.add(j)
                yield j, None
                continue
            if data is not None:
                self.nap, self._came = SHORT_NAP, time.monotonic()
                yield j, data

    def _take(self, source: int) -> memoryview | None:
        """The next message of a node, once it is all here."""
        if source not in self._receives:
            status = self._mpi.Status()
            message = self._world.Improbe(source, self._tag, status)
            if message is None:
                return None
            size = status.Get_count(self._mpi.BYTE)
            if size > MOST_BYTES:
                raise self._mpi.Exception(self._mpi.ERR_TRUNCATE)
            buffer = self._buffers.setdefault(source, bytearray(MOST_BYTES))
            request = message.Irecv([memoryview(buffer)[:size], self._mpi.BYTE])
            self._receives[source] = request, size
        request, size = self._receives[source]
        if not request.Test():
            return None
        del self._receives[source]
        if source in self._unheard:
            self._unheard.remove(source)
            if not self._unheard:
                unlink_scratch()
        return memoryview(self._buffers[source])[:size]

    def descriptors(self) -> Sequence[int]:
        """MPI has none."""
        return []

    def close(self, was_told: bool) -> None:
        """See that everything has been sent, or that the job ends all the same."""
        limit = time.monotonic() + FAREWELL
        left = [request for sends in self._sends for request, _ in sends]
        try:
            while left and time.monotonic() < limit:
                left = [request for request in left if not request.Test()]
                if left:
                    time.sleep(self.nap)
        except self._mpi.Exception:
            was_told = False
        if left or not was_told:
            atexit.register(self._abort)

    def _abort(self) -> None:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        time.sleep(CLEAN_UP)
        unlink_scratch()  # whether or not all have come: nobody joins a job that ends
        self._world.Abort(1)
