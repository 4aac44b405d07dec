"""One node of a run of real processes: `python -m tests.transports.node TRANSPORT OPTIONS WORK`.

OPTIONS is JSON, WORK is `play`, or `endless`: passes without end, which says "visits" once, or
`fail`: the same, and an error of rank 1; of mpi also `late`: rank 1 does not come, and `end`: a
play that ends as a command does that a signal has ended, and rank 1 takes its time for it.
"""

import atexit
import json
import sys
import time

from esvi_shm import transports
from esvi_shm.errors import EsviError, InputError
from esvi_shm.runtime import signals
from esvi_shm.transports.contract import Options
from tests.transports.home import HomeRows, play


def endless(peers):
    """Visit for ever; what is waiting is told once work is under way."""
    rows = HomeRows(peers.rank, peers.n_nodes, 12, 5000)
    peers.begin(rows, [range(peers.n_nodes)] * 12)
    peers.release(10**9)
    while True:
        for _, block in peers.poll(1.0):
            rows.lambda_[block] += 1
            rows.visits += (1, 0)
            peers.visited(block)
        if rows.visits[0] > 50:
            # One write: mpiexec puts what ranks write between each other's.
            sys.stdout.write(f"visits {peers.rank}\n")
            sys.stdout.flush()
            rows.visits[0] = -(10**9)


def clean_up(rank):
    """What is registered last is done first."""
    time.sleep(float(rank))  # in which rank 0 would have ended
    sys.stdout.write(f"cleaned up {rank}\n")


def main():
    name, options, work = sys.argv[1:]
    given = json.loads(options)
    given["nodes"] = tuple(given.get("nodes", ()))
    if work == "late":
        from mpi4py import MPI

        if MPI.COMM_WORLD.Get_rank() == 1:
            time.sleep(60)  # until the job is aborted
    try:
        peers = transports.connect(name, Options(**given), bytes(32))
        try:
            if work == "fail" and peers.rank == 1:
                raise InputError("no such file")
            if work in ("play", "end"):
                play(peers)
            else:
                endless(peers)
        except BaseException as error:
            peers.close(f"{type(error).__name__}: {error}")
            raise
        peers.close()
        if work == "end":
            atexit.register(clean_up, peers.rank)
            signals.broken_off.append(KeyboardInterrupt())
            signals.end(0)
    except EsviError as error:
        print(f"rank {given.get('rank')}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    sys.stdout.write(f"played {peers.rank}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
