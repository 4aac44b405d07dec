"""Files changed at random: a reader takes exactly what a plain regular expression takes."""

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esvi_shm.corpus import read_corpus
from esvi_shm.errors import CorpusError
from tests.corpus.readers.writers import WRITERS, write

NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
BLANK = r"[ \t\r]"
UCI_LINE = re.compile(rf"{BLANK}*(\d+){BLANK}+(\d+){BLANK}+({NUMBER}){BLANK}*", re.ASCII)
LDAC_LINE = re.compile(rf"{BLANK}*(\d+)((?:{BLANK}+\d+:{NUMBER})*){BLANK}*", re.ASCII)

#: Bytes that are likely to be taken for something they are not.
bits = st.lists(
    st.sampled_from([*"0123456789", "1 1 1", " ", "\n", "\r", "\t", ":", ".", "-", "e", "x", "\0"]),
    max_size=6,
).map("".join)


def mutate(text, start, cut, insert):
    start = min(start, len(text))
    return text[:start] + insert + text[start + cut :]


def legal_uci(text):
    lines = re.sub(r"(\n[ \t\r]*)*\Z", "", text).split("\n")
    pairs = [UCI_LINE.fullmatch(line) for line in lines]
    if len(pairs) != 4 or not all(pairs):
        return False
    triples = [(int(p[1]), int(p[2]), float(p[3])) for p in pairs]
    small = all(1 <= d <= 5 and 1 <= v <= 7 and x < 3.4e38 for d, v, x in triples)
    return small and any(np.float32(x) for _, _, x in triples)


def legal_ldac(text):
    lines = re.sub(r"(\n[ \t\r]*)*\Z", "", text).split("\n")
    documents = [LDAC_LINE.fullmatch(line) for line in lines]
    if not all(documents):
        return False
    found = [re.findall(rf"(\d+):({NUMBER})", d[2]) for d in documents]
    if any(int(d[1]) != len(pairs) for d, pairs in zip(documents, found, strict=True)):
        return False
    pairs = [(int(v), float(x)) for row in found for v, x in row]
    small = all(v < 2**31 - 1 and x < 3.4e38 for v, x in pairs)
    return small and any(np.float32(x) for _, x in pairs)


def accepts(name, text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(text.encode())
        try:
            read_corpus(path)
        except CorpusError:
            return False
        return True


@settings(max_examples=150)
@given(st.integers(0, 40), st.integers(0, 4), bits)
def test_uci(start, cut, insert):
    body = mutate("1 2 1\n1 7 12\n5 3 0.5\n5 6 1e2\n", start, cut, insert)
    assert accepts("docword.x.txt", f"5\n7\n4\n{body}") == legal_uci(body)


@settings(max_examples=150)
@given(st.integers(0, 40), st.integers(0, 4), bits)
def test_ldac(start, cut, insert):
    text = mutate("2 0:1 7:12\n0\n1 3:0.5\n1 6:1e2\n", start, cut, insert)
    assert accepts("x.ldac", text) == legal_ldac(text)


@pytest.mark.parametrize("form", WRITERS)
def test_damage_is_a_corpus_error_or_none(form, tmp_path):
    dense = np.random.default_rng(0).poisson(0.5, (6, 9)).astype(np.float32)
    path, _ = write(tmp_path, form, WRITERS[form][1][0], dense)
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(80):
        damaged = whole.copy()
        damaged[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(damaged[: rng.integers(1, len(whole) * 2)].tobytes())
        try:
            read_corpus(path)
        except CorpusError:
            refused += 1
    assert refused > 0
