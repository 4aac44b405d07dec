"""What holds for every reader: the same corpus, written in each format, reads to the same."""

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esvi_shm.corpus import Corpus, ReadOptions, known_formats, read_corpus
from esvi_shm.corpus.readers import find_reader
from esvi_shm.errors import CorpusError, ParameterError
from tests.corpus.readers.writers import CASES, WRITERS, write
from tests.corpus.strategies import matrices

DENSE = np.array([[1, 0, 2, 0], [0, 0, 0, 0], [0, 0, 3, 1]], np.float32)
WORDS = ["word000", "word001", "word002", "word003"]
GZIPPED = [case for case in CASES if case[1].endswith(".gz")]
BY_LINE = [case for case in CASES if case[0] != "npz"]


def test_every_reader_is_in_the_contract():
    assert {*WRITERS, "stdlib"} == {*known_formats()}


@pytest.mark.parametrize("form", known_formats())
def test_a_reader_is_called_by_its_module(form):
    reader = find_reader(form)
    assert reader.FORMAT == form
    assert reader.OPTIONS <= set(ReadOptions.__dataclass_fields__)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_the_same_corpus_from_every_file(form, name, tmp_path):
    path, words = write(tmp_path, form, name, DENSE)
    calls = []
    corpus = read_corpus(
        path, options=ReadOptions(vocabulary=words), progress=lambda *sizes: calls.append(sizes)
    )
    assert corpus.digest() == Corpus.from_sparse(DENSE, WORDS).digest()
    assert corpus.name == str(path)
    size = path.stat().st_size
    assert calls and calls[-1] == (size, size)


@pytest.mark.parametrize(("form", "name"), BY_LINE)
def test_a_byte_order_mark_is_no_part_of_a_file(form, name, tmp_path):
    """Editors of Windows write one, and ends of lines of their own."""
    path, words = write(tmp_path, form, name, DENSE)
    for file in tmp_path.iterdir():
        is_zipped = file.name.endswith(".gz")
        data = gzip.decompress(file.read_bytes()) if is_zipped else file.read_bytes()
        data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
        file.write_bytes(gzip.compress(data) if is_zipped else data)
    corpus = read_corpus(path, options=ReadOptions(vocabulary=words))
    assert corpus.digest() == Corpus.from_sparse(DENSE, WORDS).digest()


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=25)
@given(matrices(floats=True), st.booleans())
def test_random_corpora(form, dense, zipped):
    _, names, fractions = WRITERS[form]
    if not fractions:
        dense = np.ceil(dense / 100)
    name = next(name for name in names if name.endswith(".gz") == zipped or len(names) == 1)
    with tempfile.TemporaryDirectory() as folder:
        path, words = write(Path(folder), form, name, dense)
        if form == "svmlight" and not dense[:, 0].any():
            dense = np.roll(dense, -1, axis=1)  # no id 0 occurs, so ids begin with 1
        corpus = read_corpus(path, form, ReadOptions(vocabulary=words))
    assert np.array_equal(corpus.as_sparse().toarray(), dense)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_missing_file_and_folder(form, name, tmp_path):
    with pytest.raises(CorpusError, match="there is no such file") as caught:
        read_corpus(tmp_path / name, form)
    assert str(tmp_path / name) in str(caught.value)
    if form != "text":
        with pytest.raises(CorpusError, match="must be a file, is a folder"):
            read_corpus(tmp_path, form)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_empty_file_and_binary_garbage(form, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(CorpusError):
        read_corpus(path, form)
    garbage = np.random.default_rng(0).integers(0, 256, 50_000).astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(garbage) if name.endswith(".gz") else garbage)
    with pytest.raises(CorpusError):
        read_corpus(path, form)


@pytest.mark.parametrize(("form", "name"), GZIPPED)
def test_a_cut_gzip_file_is_refused_wherever_it_is_cut(form, name, tmp_path):
    path, words = write(tmp_path, form, name, DENSE)
    whole = path.read_bytes()
    for length in range(3, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorpusError, match="gzip data is cut or damaged"):
            read_corpus(path, form, ReadOptions(vocabulary=words))


@pytest.mark.parametrize(("form", "name"), GZIPPED)
def test_a_plain_file_named_gz_and_a_wrong_checksum(form, name, tmp_path):
    path, words = write(tmp_path, form, name, DENSE)
    whole = path.read_bytes()
    wrong = bytearray(whole)
    wrong[-6] ^= 1
    for data in (gzip.decompress(whole), bytes(wrong)):
        path.write_bytes(data)
        with pytest.raises(CorpusError, match="gzip data is cut or damaged"):
            read_corpus(path, form, ReadOptions(vocabulary=words))


@pytest.mark.parametrize(("form", "name"), GZIPPED)
def test_several_gzip_members_and_padding_are_one_file(form, name, tmp_path):
    path, words = write(tmp_path, form, name, DENSE)
    data = gzip.decompress(path.read_bytes())
    half = len(data) // 2
    path.write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]) + b"\0" * 100)
    corpus = read_corpus(path, options=ReadOptions(vocabulary=words))
    assert corpus.digest() == Corpus.from_sparse(DENSE, WORDS).digest()


@pytest.mark.parametrize(("form", "name"), BY_LINE)
@pytest.mark.parametrize("ending", ["crlf", "no last newline", "blank lines"])
def test_ends_of_lines(form, name, ending, tmp_path):
    path, words = write(tmp_path, form, name, DENSE)
    zipped = name.endswith(".gz")
    data = gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()
    if ending == "crlf":
        data = data.replace(b"\n", b"\r\n")
    elif ending == "no last newline":
        data = data.removesuffix(b"\n")
    elif form == "text":
        pytest.skip("in plain text an empty line is an empty document")
    else:
        data += b"\n \r\n\n"
    path.write_bytes(gzip.compress(data) if zipped else data)
    corpus = read_corpus(path, options=ReadOptions(vocabulary=words))
    assert corpus.digest() == Corpus.from_sparse(DENSE, WORDS).digest()


@pytest.mark.parametrize("form", [form for form in WRITERS if form not in ("text", "npz")])
def test_many_blocks(form, tmp_path, monkeypatch):
    from esvi_shm.corpus.readers import _files

    monkeypatch.setattr(_files, "BLOCK_BYTES", 50)
    dense = np.random.default_rng(1).poisson(0.8, (50, 30)).astype(np.float32)
    dense[0, 0] = 1
    path, words = write(tmp_path, form, WRITERS[form][1][0], dense)
    corpus = read_corpus(path, options=ReadOptions(vocabulary=words))
    assert np.array_equal(corpus.as_sparse().toarray(), dense)


@pytest.mark.parametrize("form", ["uci", "matrix_market", "npz"])
def test_transpose(form, tmp_path):
    path, words = write(tmp_path, form, WRITERS[form][1][0], DENSE.T, WORDS)
    corpus = read_corpus(path, options=ReadOptions(vocabulary=words, transpose=True))
    assert corpus.digest() == Corpus.from_sparse(DENSE, WORDS).digest()


@pytest.mark.parametrize("form", ["uci", "matrix_market", "npz", "ldac", "svmlight"])
def test_a_vocabulary_that_is_too_short(form, tmp_path):
    path, words = write(tmp_path, form, WRITERS[form][1][0], DENSE, WORDS[:2])
    with pytest.raises(CorpusError):
        read_corpus(path, options=ReadOptions(vocabulary=words))


@pytest.mark.parametrize("form", known_formats())
def test_an_option_that_would_be_ignored_is_refused(form):
    given = {"min_df": 2, "transpose": True, "vocabulary": "words.txt", "first_id": 0}
    for name in given.keys() - find_reader(form).OPTIONS:
        with pytest.raises(ParameterError, match=f"{name} is not for the format {form}"):
            read_corpus("x", form, ReadOptions(**{name: given[name]}))
