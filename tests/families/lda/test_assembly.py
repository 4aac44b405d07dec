"""The machine code of the inner kernel: vectors where the time goes, and no calls there.

The functions looked at are those a visit spends its time in: `margins.sweep`, and what it calls
that LLVM did not inline, but for the rare paths (`phi_by_logs_into` for pairs whose document and
word have no topic in common, `flush_sums` every few thousand documents) and numba's wrappers.

A loop is taken to be the lines from a label to a later jump back to it; it is innermost if there
is no smaller loop between them. Of an innermost loop it is asked:

- it calls nothing: a call of libm's exp or log keeps a loop scalar;
- where it divides one number at a time, it is the remainder of a vector loop. digamma, its
  exponential and log each need a division, so a division marks the loops with the polynomials,
  and nothing else divides there but the pair's own count / s, which is outside of any loop over
  topics. A remainder steps one element, and there is a loop that divides vectors for it. (A loop
  that was not vectorised has no such partner, or is unrolled and steps by several.)

The dot products and scaled additions must be loops of packed multiply-adds, 16 topics a step.
"""

import platform
import re
import subprocess
import sys
from functools import cache

import pytest

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64",
    reason="reads x86-64 assembly; the names of instructions differ elsewhere",
)

# A kernel that comes from the disk cache has no assembly to inspect: this process has an empty
# cache folder of its own. It compiles for these types and runs nothing.
PROGRAM = """
import numba
import numpy as np
from esvi_shm.corpus.shard import ShardSizes, empty_shard
from esvi_shm.families.lda import margins
from esvi_shm.families.lda.update import Rule, make_scratch

matrix, row = np.ones((1, 1), np.float32), np.ones(1, np.float32)
shard = empty_shard(ShardSizes(1, 1, 1), 1)
scratch = make_scratch(1, 1, 1, np.zeros(1, np.int64), True)
rule = Rule(row, row, 1.0, False, 1.0, np.zeros(1, np.int32), 0.0, 0, 2)
arguments = shard, 0, matrix, matrix, (matrix, matrix), rule, False, True, True, scratch
signature = tuple(map(numba.typeof, arguments))
margins.sweep.compile(signature)
print(margins.sweep.inspect_asm(margins.sweep.signatures[0]))
"""
#: What works on whole rows: a loop that calls it is none over topics, but one over rows, whose own
#: loops LLVM has left out for rows of no topics, or over windows of rows.
OF_ROWS = ("above_into", "power_row", "sweep_rows")
RARE = ("phi_by_logs_into", "leave_out_of", "count_pairs", "flush_sums")


@pytest.fixture(scope="module")
def assembly(tmp_path_factory) -> str:
    environment = {
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def functions(assembly: str) -> dict[str, list[str]]:
    """Instructions and labels of each function."""
    found: dict[str, list[str]] = {}
    for line in map(str.strip, assembly.splitlines()):
        if start := re.match(r"([_A-Za-z][\w.$]*):", line):
            lines = found[start[1]] = []
        elif found and line and not line.startswith("#") and re.match(r"\.L\w+:|\w", line):
            lines.append(line)
    return found


def hot(assembly: str) -> list[tuple[str, list[str]]]:
    """The package's functions but for the rare ones and the wrappers (`_ZN7cpython...`)."""
    return [
        (name, lines)
        for name, lines in functions(assembly).items()
        if name.startswith("_ZN8esvi_shm") and not any(part in name for part in RARE)
    ]


def innermost_loops(lines: list[str]) -> list[list[str]]:
    labels = {line.split(":")[0]: i for i, line in enumerate(lines) if line.startswith(".L")}
    loops = []
    for i, line in enumerate(lines):
        jump = re.match(r"j\w+\s+(\.L\w+)", line)
        if jump and labels.get(jump[1], i) < i:
            loops.append((labels[jump[1]], i))
    return [
        lines[first : last + 1]
        for first, last in loops
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in loops)
    ]


def count(pattern: str, loop: list[str]) -> int:
    return sum(re.match(pattern, line) is not None for line in loop)


def steps_one_element(loop: list[str]) -> bool:
    return count(r"inc[lq] |inc[lq]\t|add[lq]\s+\$1,|lea[lq]\s+1\(", loop) > 0


def test_the_kernel_itself_is_among_what_is_looked_at(assembly):
    names = [name for name, _ in hot(assembly)]
    assert sum("margins10sweep_rows" in name for name in names) == 1
    assert sum(len(innermost_loops(lines)) for _, lines in hot(assembly)) >= 10


def test_pairs_are_packed_multiply_adds(assembly):
    """Four loops at least: dot_4, mix_4, mix_both_4, and those over single pairs."""
    (sweep,) = (lines for name, lines in hot(assembly) if "margins10sweep_rows" in name)
    good = 0
    for loop in innermost_loops(sweep):
        fused = count(r"vfn?madd\d+ps", loop)
        apart = min(count(r"v?mulps", loop), count(r"v?addps", loop))
        scalar = count(r"v?f?\w*(mul|add|sub|div)\w*s[sd]\s", loop)
        good += max(fused, apart) > 0 and scalar == 0 and count(r"add[lq]\s+\$16,", loop) > 0
    assert good >= 4


def test_references_to_arrays_are_not_counted(assembly):
    assert "NRT_incref" not in assembly


def test_no_calls_in_innermost_loops(assembly):
    for name, lines in hot(assembly):
        for loop in innermost_loops(lines):
            if not any(part in line for line in loop for part in OF_ROWS):
                assert count("call", loop) == 0, (name, loop)


def test_scalar_divisions_only_in_remainders_of_vector_loops(assembly):
    packed = 0
    for name, lines in hot(assembly):
        loops = innermost_loops(lines)
        scalar = [loop for loop in loops if count(r"v?divs[sd]\b", loop)]
        vector = [loop for loop in loops if count(r"v?divp[sd]\b", loop)]
        assert all(map(steps_one_element, scalar)), (name, scalar)
        assert len(scalar) <= len(vector), name
        packed += len(vector)
    # The factors of a document; the cross entropy of its topics.
    assert packed >= 2
