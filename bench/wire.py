"""How many bytes of rows a second travel between two nodes: `python -m bench.wire`.

Two processes with the real protocol, and a home whose visits take no time: blocks hop as fast as
they can, in both directions at once, which is what two busy nodes ask of the wire. Counted are the
rows alone, each hop once, over the seconds from release to rest; the processor's seconds are those
of both processes, and say on a machine full of other work what a free one would do. Beside it
stand a plain copy of memory, and a bare socket between two threads.
"""

import argparse
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import common
from esvi_shm import transports
from esvi_shm.runtime.peers import REST, VISIT
from esvi_shm.transports.contract import Options

TARGET = 0.5e9  # bytes a second
N_NODES = 2


class _Rows:
    """Blocks of one array each."""

    def __init__(self, n_blocks: int, n_bytes: int) -> None:
        self.blocks = np.ones((n_blocks, n_bytes), np.uint8)
        self.share = np.zeros(128)

    def pack(self, block: int) -> memoryview:
        return self.blocks[block].data

    def most(self, block: int) -> int:
        return self.blocks.shape[1]

    def unpack(self, block: int, data: memoryview) -> None:
        self.blocks[block] = np.frombuffer(data, np.uint8)

    def hold(self, block: int) -> None:
        pass

    def drop(self, block: int) -> None:
        pass

    def contribution(self) -> np.ndarray:
        self.share[0] += 1  # something new goes with every block
        return self.share

    def set_others(self, total: np.ndarray) -> None:
        pass


def be_node(name: str, options: dict[str, Any], n_blocks: int, n_bytes: int, n_passes: int) -> None:
    """One of the nodes; prints what it found as JSON."""
    options["nodes"] = tuple(options.get("nodes", ()))
    peers = transports.connect(name, Options(**options), bytes(32))
    peers.begin(_Rows(n_blocks, n_bytes), [range(peers.n_nodes)] * n_blocks)
    peers.gather(b"")
    began, processor, n_visits, is_out = time.perf_counter(), time.process_time(), 0, True
    peers.release(n_passes)
    while is_out:
        for kind, block in peers.poll(1.0):
            is_out = is_out and kind != REST
            if kind == VISIT:
                n_visits += 1
                peers.visited(block)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    peers.close()
    found = {"seconds": seconds, "processor": processor, "visits": n_visits}
    # One write: mpiexec puts what ranks write between each other's.
    sys.stdout.write(json.dumps(found) + "\n")


def measure(
    name: str, key_file: str | None, n_blocks: int, n_bytes: int, n_passes: int
) -> dict[str, float]:
    """Bytes a second of one run, and the processors' share."""
    sizes = [str(n_blocks), str(n_bytes), str(n_passes)]
    node = common.python("-m", "bench.wire", "--node", name)
    if name == "mpi":
        commands = [["mpiexec", "-n", str(N_NODES), *node, json.dumps({}), *sizes]]
    else:
        nodes = free_addresses()
        commands = [
            [*node, json.dumps({"rank": j, "nodes": nodes, "key_file": key_file}), *sizes]
            for j in range(N_NODES)
        ]
    running = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in commands]
    lines = "".join(process.communicate()[0] for process in running).splitlines()
    found = [json.loads(line) for line in lines]
    assert len(found) == N_NODES, "a node failed; see above"
    # A pass is one hop: the next one begins where the block is. An odd number ends away from home.
    n_hops = n_blocks * (n_passes + n_passes % 2)
    seconds = max(node["seconds"] for node in found)
    return {
        "bytes_per_second": n_hops * n_bytes / seconds,
        "processor_share": sum(node["processor"] for node in found) / seconds / N_NODES,
        "bytes_per_processor_second": n_hops * n_bytes / sum(node["processor"] for node in found),
    }


def free_addresses() -> list[str]:
    """Addresses with ports that are free."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(N_NODES)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in taken]
    for one in taken:
        one.close()
    return found


def copy_rate(n_bytes: int) -> float:
    """Bytes a second of a plain copy of that many bytes."""
    source, target = np.ones(n_bytes, np.uint8), np.zeros(n_bytes, np.uint8)
    began, n_copies = time.perf_counter(), 20
    for _ in range(n_copies):
        target[:] = source
    return n_copies * n_bytes / (time.perf_counter() - began)


def socket_rate(n_bytes: int = 2**29) -> float:
    """Bytes a second from one thread to another through a bare socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            chunk = bytes(2**18)
            with socket.create_connection(server.getsockname()) as out:
                for _ in range(n_bytes // len(chunk)):
                    out.sendall(chunk)

        thread = threading.Thread(target=send)
        thread.start()
        into, _ = server.accept()
        buffer, began, left = bytearray(2**20), time.perf_counter(), n_bytes
        with into:
            while left:
                left -= into.recv_into(buffer)
        thread.join()
        return n_bytes / (time.perf_counter() - began)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument("--bytes", type=int, default=4_000_000, help="of a block")
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder to save in")
    options = parser.parse_args()
    facts = common.machine()
    print(common.describe(facts))
    print(f"{options.blocks} blocks of {options.bytes / 1e6:g} MB, {options.passes} passes")
    ways = [("tcp", "tcp", False), ("tcp, every frame with a MAC", "tcp", True)]
    if importlib.util.find_spec("mpi4py") is not None and shutil.which("mpiexec") is not None:
        ways.append(("mpi", "mpi", False))
    results: dict[str, Any] = {
        "copy": copy_rate(options.bytes),
        "socket": common.median([socket_rate() for _ in range(options.runs)]),
    }
    print(f"plain copy {results['copy'] / 1e9:.2f} GB/s, bare socket", end=" ")
    print(f"{results['socket'] / 1e9:.2f} GB/s")
    with tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, "key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(os.urandom(32).hex())
        sizes = options.blocks, options.bytes, options.passes
        for label, name, has_key in ways:
            runs = [measure(name, key if has_key else None, *sizes) for _ in range(options.runs)]
            rate, share, work = (
                common.median([run[what] for run in runs])
                for what in ("bytes_per_second", "processor_share", "bytes_per_processor_second")
            )
            results[label] = runs
            said = common.verdict(rate / 1e9, TARGET / 1e9) if name == "tcp" and not has_key else ""
            print(
                f"{label}: {rate / 1e9:.2f} GB/s of rows in both directions together, "
                f"each node {share:.0%} of a core, {work / 1e9:.2f} GB a second of processor "
                f"(sender and receiver); {said}"
            )
    options.out.mkdir(parents=True, exist_ok=True)
    saved = {
        "benchmark": "wire",
        "options": {**vars(options), "out": str(options.out)},
        "machine": facts,
        "results": results,
    }
    path = options.out / "wire.json"
    path.write_text(json.dumps(saved, indent=1) + "\n")
    print(f"saved {path}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--node"]:
        _, _, name, options, *sizes = sys.argv
        be_node(name, json.loads(options), *map(int, sizes))
    else:
        main()
