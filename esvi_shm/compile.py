"""How every kernel is compiled, and where the machine code is kept.

`kernel` is `numba.njit` with the options that all kernels share. Numba's disk cache notices an
edited function but not an edited callee in another file, so the cache folder is named by a hash
of all sources of the package: an edit anywhere compiles afresh. The folder lies in the user's
cache directory (site-packages may be read-only); where that cannot be written either, in a
private temporary folder. numba's own setting is changed only while our kernels are decorated,
so other numba code in the process keeps its cache where it was.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from esvi_shm.errors import InputError

if numba.config.DISABLE_JIT:
    # Interpreted, a kernel that reads and writes shared memory atomically cannot work at all.
    raise InputError("NUMBA_DISABLE_JIT is set, but kernels must be compiled: unset it")

#: No inf/NaN assumptions: only what lets sums be reordered and multiply-adds be fused.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

#: Kernels of other versions of the sources are kept for 30 days.
KEEP_SECONDS = 30 * 24 * 3600


def _source_digest() -> str:
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "esvi_shm" / f"kernels-{_source_digest()}"
    try:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _remove_unused(folder.parent)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        # Named by user and digest, so that the parent and its workers agree on it; private.
        folder = Path(tempfile.gettempdir()) / f"esvi_shm-{os.getuid()}-{_source_digest()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid() or folder.is_symlink():
            folder = Path(tempfile.mkdtemp(prefix="esvi_shm-kernels-"))
    return str(folder)


def _remove_unused(base: Path) -> None:
    """Remove the kernels of other versions of the sources that were last compiled long ago."""
    for other in base.glob("kernels-*"):
        if time.time() - other.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


CACHE_FOLDER = _cache_folder()


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a module-level function as a kernel: no GIL, numpy errors, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        settings: dict[str, Any] = {
            "cache": True,
            "nogil": True,
            "error_model": "numpy",
            "fastmath": FASTMATH,
            **options,
        }
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = CACHE_FOLDER
        try:
            return numba.njit(**settings)(function)
        finally:
            numba.config.CACHE_DIR = before

    return decorate if function is None else decorate(function)
