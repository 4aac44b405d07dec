"""MPI: what is found out before it is used. Real runs are in `test_processes`."""

import importlib.util
import types

import pytest

from esvi_shm import transports
from esvi_shm.errors import ParameterError
from esvi_shm.runtime.environment import without_launcher
from esvi_shm.transports import mpi
from esvi_shm.transports.contract import Options


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in mpi.SIZES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", mpi.SIZES)
def test_a_launcher_of_another_mpi_is_refused(monkeypatch, name, caplog):
    monkeypatch.setenv(name, "4")
    with pytest.raises(
        ParameterError, match=f"transport must be started.*alone, though {name} says 4"
    ):
        mpi.check_launcher(1, "Open MPI v5\nrest")
    with caplog.at_level("INFO"):
        mpi.check_launcher(4, "Open MPI v5")
        assert caplog.records == []
        monkeypatch.setenv(name, "1")
        mpi.check_launcher(1, "Open MPI v5")
    assert "one node: more are started by mpirun" in caplog.text


def test_without_mpi4py_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ParameterError, match=r"pip install 'esvi_shm\[mpi-local\]'"):
        transports.check("mpi", Options())


@pytest.mark.parametrize(
    "options, message",
    [
        (Options(rank=0), "rank is mpirun's to say"),
        (Options(nodes=("127.0.0.1:4000",)), "nodes are mpirun's to say"),
        (Options(key_file="key"), "key_file is of no use"),
    ],
)
def test_what_mpi_knows_better_is_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        transports.check("mpi", options)


def test_workers_see_nothing_of_the_launcher():
    environment = {
        "PMI_RANK": "0",
        "PMIX_NAMESPACE": "x",
        "OMPI_COMM_WORLD_RANK": "0",
        "PRTE_MCA_x": "y",
        "MPI_LOCALNRANKS": "2",
        "PATH": "/bin",
        "ESVI_SHM_DATA": "d",
    }
    assert without_launcher(environment) == {"PATH": "/bin", "ESVI_SHM_DATA": "d"}


def test_looks_are_close_behind_a_message_and_rare_where_none_comes(monkeypatch):
    """While some come shorter than a visit takes: 4 ms halved the rate of two nodes."""
    waiting, now = [], [5.0]
    monkeypatch.setattr(mpi, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    world = types.SimpleNamespace(
        Get_rank=lambda: 0,
        Get_size=lambda: 2,
        Improbe=lambda *_: waiting.pop() if waiting else None,
    )
    module = types.SimpleNamespace(
        COMM_WORLD=world, Exception=RuntimeError, BYTE=None, THREAD_SERIALIZED=2,
        Query_thread=lambda: 2, Status=lambda: types.SimpleNamespace(Get_count=lambda _: 3),
    )  # fmt: skip
    done = types.SimpleNamespace(Test=lambda: True)
    link = mpi.MpiLink(module)

    def look(times):
        for _ in range(times):
            list(link.read())
        return link.nap

    for _ in range(2):
        assert look(20) == mpi.NAP <= 0.001
        assert look(500) == mpi.NAP  # looks for other reasons take no time
        now[0] += 1.1 * mpi.QUIET
        assert look(1) == mpi.LONG_NAP
        waiting.append(types.SimpleNamespace(Irecv=lambda _: done))
        assert look(1) == mpi.SHORT_NAP < mpi.NAP
        assert look(1) < mpi.NAP
