"""How much memory a fit takes in all: its shared arrays, and what each process has of its own.

What a process has of its own is its interpreter, numpy, numba and the kernels, which was
measured, and its private arrays, which the family knows. The main process is looked at while the
plan is made: it then holds the data, what the start imports, and whatever else is in a user's
program.
"""

import tempfile

from esvi_shm.errors import MemoryShortError
from esvi_shm.runtime.layout import PLAN_WIDTH, Layout, mib
from esvi_shm.runtime.processes import private_bytes
from esvi_shm.shared.preflight import choose_backing
from esvi_shm.shared.runs import SHARED_FOLDER

#: Bytes of a worker beside its arrays and kernels, and of multiprocessing's resource tracker (a
#: process of its own). Measured with Python 3.11, numba 0.68 on x86-64; compiling takes more, once.
WORKER_BYTES, TRACKER_BYTES = 64 * 2**20, 6 * 2**20


def scratch_bytes(layout: Layout) -> int:
    """Bytes of the private arrays of all workers, at most."""
    return layout.sizes.n_workers * layout.model.scratch_bytes(layout.cut.largest_block)


def process_bytes(layout: Layout) -> int:
    """Bytes of all processes beside their arrays, as far as can be told before they run."""
    kept, code = private_bytes() - layout.released_bytes, layout.model.code_bytes()
    return kept + code + TRACKER_BYTES + layout.sizes.n_workers * (WORKER_BYTES + code)


def peak_bytes(layout: Layout) -> int:
    """Bytes that a fit will hold at its peak: `peak_rss_bytes` of its summary, and the tracker."""
    loading = private_bytes() + layout.filled_bytes
    return max(loading, layout.total_bytes + scratch_bytes(layout) + process_bytes(layout))


def describe(layout: Layout) -> str:
    """The whole plan as text: every shared array, and a line for each of the other parts."""
    n_workers = layout.sizes.n_workers
    parts = {
        f"private arrays of the workers ({n_workers}), at most": scratch_bytes(layout),
        f"processes (1 + {n_workers}) with kernels, about": process_bytes(layout),
        "peak, about": peak_bytes(layout),
    }
    lines = [f"  {name:<{PLAN_WIDTH}}{mib(n_bytes)}" for name, n_bytes in parts.items()]
    return "\n".join([layout.describe(), *lines, f"  {_place(layout)}"])


def _place(layout: Layout) -> str:
    """Where the shared arrays would lie now, or why there is no room for them."""
    scratch = layout.config.scratch
    try:
        backing = choose_backing(layout.total_bytes, scratch)
    except MemoryShortError as error:
        return str(error)
    folder = f"files in {scratch or tempfile.gettempdir()}" if backing == "file" else SHARED_FOLDER
    return f"shared arrays lie in {folder}"
