"""Real processes over TCP and MPI: they play a fit of random rows, and end when one is killed."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from esvi_shm.transports import mpi
from tests.transports.home import free_addresses, write_key

NODE = [sys.executable, "-m", "tests.transports.node"]
#: Seconds after which a dead node is named, and the others have ended.
LIMIT = 10.0
HAS_MPI = importlib.util.find_spec("mpi4py") is not None
needs_mpi = pytest.mark.skipif(
    not HAS_MPI or shutil.which("mpiexec") is None,
    reason="no mpi4py or no mpiexec: pip install 'esvi_shm[mpi-local]'",
)


def start(command, **options):
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@contextlib.contextmanager
def killed_in_the_end(processes):
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def tcp_nodes(tmp_path, n_nodes, work, with_key=True):
    """The processes of a run."""
    nodes = free_addresses(n_nodes)
    write_key(tmp_path / "key")
    key_file = str(tmp_path / "key") if with_key else None
    commands = [
        [*NODE, "tcp", json.dumps({"rank": j, "nodes": nodes, "key_file": key_file}), work]
        for j in range(n_nodes)
    ]
    with killed_in_the_end([start(command) for command in commands]) as processes:
        yield processes


@pytest.fixture
def mpi_environment(tmp_path):
    """Of mpiexec: what it leaves in a folder of its own."""
    return {**os.environ, "TMPDIR": str(tmp_path)}


def scratch():
    """MPI's shared memory."""
    return {
        f"/dev/shm/{n}" for n in os.listdir("/dev/shm") if f"/dev/shm/{n}".startswith(mpi.SCRATCH)
    }


@pytest.mark.parametrize("n_nodes, with_key", [(2, True), (3, False)])
def test_nodes_over_tcp_play(tmp_path, n_nodes, with_key):
    with tcp_nodes(tmp_path, n_nodes, "play", with_key) as processes:
        for j, process in enumerate(processes):
            out, error = process.communicate(timeout=60)
            assert (process.returncode, out) == (0, f"played {j}\n"), error


@needs_mpi
@pytest.mark.parametrize("n_nodes", [2, 3])
def test_nodes_over_mpi_play(mpi_environment, tmp_path, n_nodes):
    before = scratch()
    command = ["mpiexec", "-n", str(n_nodes), *NODE, "mpi", "{}", "play"]
    with killed_in_the_end([start(command, env=mpi_environment)]) as (process,):
        out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert sorted(out.split("\n")) == ["", *(f"played {j}" for j in range(n_nodes))]
    assert scratch() <= before and os.listdir(tmp_path) == []


@needs_mpi
def test_a_rank_of_mpi_that_ends_without_finalisers_leaves_time_to_the_others(mpi_environment):
    before = scratch()
    command = ["mpiexec", "-n", "2", *NODE, "mpi", "{}", "end"]
    with killed_in_the_end([start(command, env=mpi_environment)]) as (process,):
        out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert sorted(out.split("\n")) == ["", "cleaned up 0", "cleaned up 1"]
    assert scratch() <= before


@pytest.mark.parametrize("n_nodes", [2, 3])
def test_a_node_over_tcp_that_is_killed_is_named_by_the_others(tmp_path, n_nodes):
    with tcp_nodes(tmp_path, n_nodes, "endless") as processes:
        for j, process in enumerate(processes):
            assert process.stdout.readline() == f"visits {j}\n"
        processes[1].kill()
        began = time.monotonic()
        for j in {*range(n_nodes)} - {1}:
            _, error = processes[j].communicate(timeout=LIMIT)
            assert processes[j].returncode == 1
            assert "node 1 (127.0.0.1:" in error and "Traceback" not in error
        assert time.monotonic() - began < LIMIT


@pytest.mark.slow  # ten seconds are what it takes
def test_a_node_over_tcp_that_stands_still_is_named(tmp_path):
    with tcp_nodes(tmp_path, 2, "endless") as processes:
        for j, process in enumerate(processes):
            assert process.stdout.readline() == f"visits {j}\n"
        processes[1].send_signal(signal.SIGSTOP)
        _, error = processes[0].communicate(timeout=30)
        assert processes[0].returncode == 1
        assert "node 1 (127.0.0.1:" in error and "has said nothing for 10 s" in error


@needs_mpi
def test_a_rank_of_mpi_that_is_killed_ends_the_job_and_leaves_nothing(mpi_environment):
    before = scratch()
    command = ["mpiexec", "-n", "3", *NODE, "mpi", "{}", "endless"]
    with killed_in_the_end([start(command, env=mpi_environment)]) as (process,):
        told = sorted(process.stdout.readline() for _ in range(3))
        assert told == [f"visits {j}\n" for j in range(3)]
        launcher = psutil.Process(process.pid)
        ranks = [p for p in launcher.children(recursive=True) if "node" in " ".join(p.cmdline())]
        assert len(ranks) == 3
        ranks[1].kill()
        out, error = process.communicate(timeout=LIMIT)
        assert process.returncode != 0
        # Hydra ends the others before they can speak, and says which process it saw end.
        assert any(str(rank.pid) in out + error for rank in ranks) or "node" in error
        _, alive = psutil.wait_procs(ranks, timeout=LIMIT)
        assert alive == []
    assert scratch() <= before


@needs_mpi
def test_a_rank_of_mpi_that_does_not_come_is_named(mpi_environment):
    before = scratch()
    command = ["mpiexec", "-n", "2", *NODE, "mpi", '{"wait": 0.5}', "late"]
    with killed_in_the_end([start(command, env=mpi_environment)]) as (process,):
        _, error = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "node 1 (rank 1 of mpirun) has not come in 0.5 s" in error
    assert scratch() <= before


@needs_mpi
def test_a_rank_of_mpi_that_fails_is_named_by_the_others(mpi_environment):
    before = scratch()
    command = ["mpiexec", "-n", "3", *NODE, "mpi", "{}", "fail"]
    with killed_in_the_end([start(command, env=mpi_environment)]) as (process,):
        _, error = process.communicate(timeout=30)
    assert process.returncode != 0
    assert error.count("node 1 (rank 1 of mpirun) ended the fit: InputError: no such file") == 2
    assert scratch() <= before
