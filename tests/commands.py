"""The commands as a user runs them, and a corpus for them."""

import subprocess
import sys
from pathlib import Path

import numpy as np


def write_uci(folder: Path, n_documents: int = 60, n_words: int = 40, name: str = "tea") -> str:
    random = np.random.default_rng(1)
    matrix = random.poisson(0.4, (n_documents, n_words))
    rows, columns = np.nonzero(matrix)
    body = "".join(f"{d + 1} {v + 1} {matrix[d, v]}\n" for d, v in zip(rows, columns, strict=True))
    path = folder / f"docword.{name}.txt"
    path.write_text(f"{n_documents}\n{n_words}\n{len(rows)}\n{body}")
    (folder / f"vocab.{name}.txt").write_text("".join(f"word{v}\n" for v in range(n_words)))
    return str(path)


def command(name: str, *arguments: object) -> list[str]:
    """A command line of this interpreter."""
    return [sys.executable, "-m", f"esvi_shm.{name}", *map(str, arguments)]


def run(name: str, *arguments: object, **options) -> subprocess.CompletedProcess:
    """A command from its start to its end, with what it has printed."""
    return subprocess.run(command(name, *arguments), capture_output=True, text=True, **options)
