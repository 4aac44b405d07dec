"""How fast a large UCI file is read: `python -m bench.reading --lines 70000000`.

The file is made here, in a temporary folder: documents of 230 lines, distinct words in rising
order, drawn by Zipf's law, as in the NY Times corpus of the UCI repository. Each reading is a
whole `read_corpus` in a process of its own, compiled kernels cached; its peak memory is what the
process held at most. Lines a second over the whole call: opening, checking, building the matrix.
"""

import argparse
import gzip
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from bench import common

TARGET = 3e6  # lines a second
WORDS_A_DOCUMENT, N_WORDS = 230, 102_660
CHUNK = 4000  # documents written at a time
READ = """
import json, resource, sys, time
from pathlib import Path
from esvi_shm.corpus.readers import read_corpus
small, large = map(Path, sys.argv[1:])
read_corpus(small)  # loads the kernels
started = time.perf_counter()
corpus = read_corpus(large)
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([corpus.n_pairs, seconds, peak * 1024]))
"""


def write_corpus(path: Path, n_lines: int, seed: int = 0) -> None:
    """Write a UCI file of about so many lines."""
    random = np.random.default_rng(seed)
    n_documents = max(n_lines // WORDS_A_DOCUMENT, 1)
    with open(path, "w") as file:
        file.write(f"{n_documents}\n{N_WORDS}\n{n_documents * WORDS_A_DOCUMENT}\n")
        for first in range(0, n_documents, CHUNK):
            n = min(CHUNK, n_documents - first)
            # Distinct and rising: cumulated gaps, the words of low number more often.
            gaps = random.random((n, WORDS_A_DOCUMENT)) ** 3 + 1e-3
            places = np.cumsum(gaps, axis=1)
            places = (places / (places[:, -1:] + 1e-3)) ** 2 * (N_WORDS - WORDS_A_DOCUMENT)
            words = places.astype(np.int64) + np.arange(1, WORDS_A_DOCUMENT + 1)
            documents = np.repeat(np.arange(first + 1, first + n + 1), WORDS_A_DOCUMENT)
            counts = random.geometric(0.7, documents.size)
            lines = map("%d %d %d".__mod__, zip(documents, words.ravel(), counts, strict=True))
            file.write("\n".join(lines) + "\n")


def measure(small: Path, large: Path) -> tuple[int, float, int]:
    """Pairs, seconds and peak bytes of one reading."""
    command = common.python("-c", READ, str(small), str(large))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    n_pairs, seconds, peak = json.loads(done.stdout)
    return n_pairs, seconds, peak


def main() -> None:
    """Write the file, read it several times plain and compressed, print lines a second."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, default=70_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the file is made for the while")
    options = parser.parse_args()
    print(common.describe(common.machine()))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        small, large = Path(name, "docword.small.txt"), Path(name, "docword.large.txt")
        write_corpus(small, 1000)
        write_corpus(large, options.lines)
        print(f"{options.lines:,} lines, {large.stat().st_size / 1e9:.2f} GB")
        packed = Path(f"{large}.gz")
        with open(large, "rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        for path in (large, packed):
            runs = [measure(small, path) for _ in range(options.runs)]
            rates = [n_pairs / seconds for n_pairs, seconds, _ in runs]
            print(
                f"{path.name}: {common.median(rates) / 1e6:.2f} million lines/s "
                f"({', '.join(f'{rate / 1e6:.2f}' for rate in rates)}), "
                f"peak {max(peak for *_, peak in runs) / 2**30:.2f} GiB; "
                + common.verdict(common.median(rates) / 1e6, TARGET / 1e6)
            )


if __name__ == "__main__":
    main()
