"""The registry, and what is particular to one reader."""

import gc
import gzip
import importlib.metadata
import io
import json
import logging
import os
import subprocess
import sys
import types
import zipfile

import numpy as np
import pytest
import scipy.sparse

from esvi_shm.corpus import Corpus, ReadOptions, known_formats, read_corpus
from esvi_shm.errors import CorpusError, ParameterError


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(ParameterError, match=r"ldac, matrix_market, .*, uci, got 'csv'"):
        read_corpus("x", "csv")


def test_a_pipe_is_refused(tmp_path):
    """It would have to be read twice."""
    os.mkfifo(tmp_path / "x.txt")
    descriptor = os.open(tmp_path / "x.txt", os.O_RDWR)  # so that nobody waits for a writer
    try:
        os.write(descriptor, b"some words\n")
        with pytest.raises(CorpusError, match="must be a file, is a pipe"):
            read_corpus(tmp_path / "x.txt")
    finally:
        os.close(descriptor)


def test_a_name_that_says_nothing(tmp_path):
    path = tmp_path / "x.csv"
    with pytest.raises(CorpusError, match="no such file or folder"):
        read_corpus(path)
    path.write_text("x")
    with pytest.raises(CorpusError, match="name the format, one of ldac, matrix_market, "):
        read_corpus(path)


@pytest.mark.parametrize("name", ["x" * 5000 + ".txt", "a\0b.txt"])
def test_a_name_that_no_file_can_have(name):
    with pytest.raises(CorpusError, match="no such file"):
        read_corpus(name)
    for format in ("uci", "npz", "svmlight"):
        with pytest.raises(CorpusError, match=r"cannot be (read: File name too long|a file: emb)"):
            read_corpus(name, format)


def test_a_format_needs_a_path():
    with pytest.raises(ParameterError, match="path must be given for the format uci"):
        read_corpus(format="uci")


def test_an_entry_point_is_a_reader(monkeypatch, tmp_path):
    reader = types.ModuleType("lines")
    reader.FORMAT = "lines"
    reader.matches = lambda path: path.suffix == ".lines"
    reader.read = lambda path, options, progress: Corpus.from_tokens([path.read_text().split()])
    point = types.SimpleNamespace(name="lines", load=lambda: reader)
    others = importlib.metadata.entry_points  # which numba asks when it first compiles

    def entry_points(**given):
        return [point] if given == {"group": "esvi_shm.readers"} else others(**given)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert "lines" in known_formats()
    path = tmp_path / "x.lines"
    path.write_text("a b a")
    assert read_corpus(path).n_tokens == 3


def test_listing_the_formats_imports_no_reader():
    code = (
        "import json, sys; from esvi_shm.corpus import known_formats; known_formats();"
        "print(json.dumps([m for m in sys.modules if m.startswith('esvi_shm.corpus.readers.')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_options_out_of_range():
    # Not the default, although 1 == 1.0.
    assert ReadOptions(max_df=1).given() == {"max_df": 1}
    assert ReadOptions(max_df=1.0, min_df=1).given() == {}
    for name, value in [("min_df", 0), ("min_df", -0.1), ("max_df", 1.5), ("max_vocabulary", 0)]:
        with pytest.raises(ParameterError, match=f"{name} .* got {value}"):
            ReadOptions(**{name: value})


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("docword.Tea.txt", "vocab.Tea.txt", "1\n2\n1\n1 2 1\n"),
        ("docword.Tea.txt.gz", "vocab.Tea.txt", "1\n2\n1\n1 2 1\n"),
        ("DOCWORD.Tea.txt", "vocab.Tea.txt", "1\n2\n1\n1 2 1\n"),
        ("x.ldac", "x.vocab", "1 1:1\n"),
        ("x.dat", "vocab.txt", "1 1:1\n"),
    ],
)
def test_the_vocabulary_beside(name, words, text, tmp_path):
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_corpus(tmp_path / name).vocabulary is None
    (tmp_path / words).write_text("tea\nmilk\n")
    assert read_corpus(tmp_path / name).vocabulary == ("tea", "milk")
    (tmp_path / words).write_text("tea\n\nmilk\n")
    with pytest.raises(CorpusError, match="line 2: a vocabulary must have a word in every line"):
        read_corpus(tmp_path / name)
    (tmp_path / words).write_bytes(b"tea\n\xff\n")
    with pytest.raises(CorpusError, match=r"line 2: text must be UTF-8, got b'\\xff'"):
        read_corpus(tmp_path / name)


def test_uci_out_of_order_with_duplicates_and_zeros(tmp_path):
    rng = np.random.default_rng(0)
    triples = np.column_stack([rng.integers(1, 6, 200), rng.integers(1, 9, 200)])
    counts = rng.integers(0, 3, 200)
    dense = np.zeros((5, 8))
    np.add.at(dense, tuple(triples.T - 1), counts)
    body = "".join(f"{d}\t{v}  {n} \n" for (d, v), n in zip(triples, counts, strict=True))
    path = tmp_path / "docword.x.txt"
    path.write_text(f"5\n8\n200\n{body}")
    assert np.array_equal(read_corpus(path).as_sparse().toarray(), dense)


def test_disorder_that_begins_in_a_later_block(tmp_path, monkeypatch):
    from esvi_shm.corpus.readers import _files

    monkeypatch.setattr(_files, "BLOCK_BYTES", 64)
    docs = [*range(1, 100), 7, *range(100, 150), 3]
    path = tmp_path / "docword.x.txt"
    body = "".join(f"{d} 1 {d}\n" for d in docs)
    path.write_text(f"150\n1\n{len(docs)}\n{body}")
    expected = np.arange(1.0, 151.0)
    expected[[6, 2, 149]] = 14, 6, 0
    assert np.array_equal(read_corpus(path).as_sparse().toarray()[:, 0], expected)


def test_matrix_market_pattern_integer_and_blank_lines(tmp_path):
    path = tmp_path / "x.mtx"
    banner = "%%matrixmarket MATRIX coordinate {} general\n% a comment\n\n2 2 2\n"
    path.write_text(banner.format("pattern") + "2 1\n\n1 2\n")
    assert read_corpus(path).as_sparse().toarray().tolist() == [[0, 1], [1, 0]]
    path.write_text(banner.format("integer") + "2 1 7\n1 2 9\n")
    assert read_corpus(path).as_sparse().toarray().tolist() == [[0, 9], [7, 0]]


def test_svmlight_from_one_and_from_zero(tmp_path):
    path = tmp_path / "x.svm"
    path.write_text("# made by hand\n1,2 3:1 1:2\n-1.5e0\n+1 2:0.5 # x:y\n")
    assert read_corpus(path).as_sparse().toarray().tolist() == [[2, 0, 1], [0, 0, 0], [0, 0.5, 0]]
    path.write_text("1 0:1 2:2\n")
    assert read_corpus(path).as_sparse().toarray().tolist() == [[1, 0, 2]]


@pytest.mark.parametrize(
    ("text", "first_id", "row", "told"),
    [
        ("1 1:1 2:2\n", None, [1, 2], "word ids begin with 1, since no 0 occurs"),
        ("1 0:1 2:2\n", None, [1, 0, 2], "word ids begin with 0, since a 0 occurs"),
        ("1 1:1 2:2\n", 0, [0, 1, 2], None),
        ("1 1:1 2:2\n", 1, [1, 2], None),
        ("1 0:1 2:2\n", 0, [1, 0, 2], None),
    ],
)
def test_the_first_id_of_svmlight_is_told_or_given(text, first_id, row, told, tmp_path, caplog):
    path, words = tmp_path / "x.svm", tmp_path / "words"
    path.write_text(text)
    words.write_text("".join(f"word{v}\n" for v in range(9)))
    with caplog.at_level(logging.INFO, "esvi_shm"):
        for vocabulary in (None, words):  # which says nothing of where ids begin
            corpus = read_corpus(path, options=ReadOptions(False, vocabulary, first_id=first_id))
            counts = corpus.as_sparse().toarray()[0].tolist()
            assert counts == row + [0] * (len(counts) - len(row))
            assert len(counts) == (9 if vocabulary else len(row))
    messages = [record.getMessage() for record in caplog.records]
    decided = "" if told is None else f"{told} (else give first_id); "
    assert messages == [f"{path}: {decided}labels and query ids are left out"] * 2


def test_a_first_id_that_cannot_be(tmp_path):
    path, words = tmp_path / "x.svm", tmp_path / "words"
    path.write_text("1 0:1 2:2\n")
    with pytest.raises(CorpusError, match="with first_id 1 word ids must be at least 1, got 0"):
        read_corpus(path, options=ReadOptions(first_id=1))
    words.write_text("tea\nmilk\n")
    with pytest.raises(CorpusError, match=r"has 2 words, but with ids from 0 a word has id 2"):
        read_corpus(path, options=ReadOptions(vocabulary=words))
    with pytest.raises(ParameterError, match="first_id must be 0 or 1, got 2"):
        ReadOptions(first_id=2)
    with pytest.raises(ParameterError, match="first_id is not for the format ldac, got 0"):
        read_corpus(tmp_path / "x.ldac", "ldac", ReadOptions(first_id=0))


def test_svmlight_with_query_ids(tmp_path):
    path = tmp_path / "x.svm"
    path.write_text("1 qid:1 1:2 3:1\n0 qid:23\n2\tqid:4 2:5 # qid:x\n")
    assert read_corpus(path).as_sparse().toarray().tolist() == [[2, 0, 1], [0, 0, 0], [0, 5, 0]]


def test_npz_with_a_pickle_or_without_a_matrix(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, format="csr", data=np.array([object()], dtype=object))
    with pytest.raises(CorpusError, match=r"save_npz|no sparse matrix"):
        read_corpus(path)
    np.savez(path, X=np.eye(3))
    with pytest.raises(CorpusError, match=r"save_npz|no sparse matrix"):
        read_corpus(path)


@pytest.mark.parametrize("size", [2**50, 2**62, 2**64, -1])
def test_npz_whose_header_lies_about_a_size(size, tmp_path):
    path = tmp_path / "x.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(np.eye(3)))
    header = io.BytesIO()
    facts = {"descr": "<f8", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(header, facts)
    with zipfile.ZipFile(path) as file:
        arrays = {name: file.read(name) for name in file.namelist()}
    assert "data.npy" in arrays
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {**arrays, "data.npy": header.getvalue() + b"x" * 24}.items():
            file.writestr(name, content)
    with pytest.raises(CorpusError, match=r"x\.npz: (says that it holds more|must be a sparse)"):
        read_corpus(path)


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "here.txt").write_text("tea milk\n")
    monkeypatch.chdir(tmp_path)
    assert read_corpus(".").vocabulary == ("milk", "tea")
    for format in (None, "text", "uci"):
        with pytest.raises(CorpusError, match="'': a path must name a file or a folder"):
            read_corpus("", format)
    for name in ("vocabulary", "stop_words"):
        with pytest.raises(ParameterError, match=f"{name} must name a file, got ''"):
            ReadOptions(**{name: ""})


def test_text_options_and_folder(tmp_path, caplog):
    for name, text in [("b.txt", "Milk the\ntea"), ("a.txt", "tea milk jam"), ("c.md", "no")]:
        (tmp_path / name).write_text(text)
    corpus = read_corpus(tmp_path)
    assert corpus.vocabulary == ("jam", "milk", "tea", "the")
    assert corpus.as_sparse().toarray().tolist() == [[1, 1, 1, 0], [0, 1, 1, 1]]
    assert read_corpus(tmp_path, options=ReadOptions(min_df=2)).vocabulary == ("milk", "tea")
    stop = tmp_path / "stop"
    stop.write_text("Milk\nJAM\n")
    options = ReadOptions(stop_words=stop)
    assert read_corpus(tmp_path, options=options).vocabulary == ("tea", "the")
    assert read_corpus(tmp_path, options=ReadOptions(max_df=1)).vocabulary == ("jam", "the")
    seen = []
    read_corpus(tmp_path, progress=lambda *done_and_total: seen.append(done_and_total))
    assert seen == [(12, 24), (24, 24)]
    english = ReadOptions(stop_words="english", max_vocabulary=2)
    assert read_corpus(tmp_path, options=english).vocabulary == ("milk", "tea")
    caplog.set_level(logging.INFO)
    (tmp_path / ".hidden").mkdir()
    read_corpus(tmp_path)
    assert not caplog.messages
    (tmp_path / "empty").mkdir()
    read_corpus(tmp_path)
    assert caplog.messages == [f"{tmp_path}: folders in it (such as empty) are not read"]
    with pytest.raises(CorpusError, match=r"must have \.txt files, has none"):
        read_corpus(tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "a text must have documents, the file is empty"),
        ("\n\n", {}, "a text must have words, of two letters or digits at least, got none in 2 d"),
        ("a b\n", {}, "at least, got none in 1 documents"),
        ("the\n", {"stop_words": "english"}, "at least beside the stop words english, got none"),
        ("tea\nmilk\n", {"min_df": 3},
         "no word is in at least min_df 3 and at most max_df 1.0 of the 2 documents"),
        ("tea\nmilk\n", {"min_df": 2},
         "no word is in at least min_df 2 and at most max_df 1.0 of the 2 documents"),
        ("tea\ntea\n", {"max_df": 0.5}, "no word is in at least min_df 1 and at most max_df 0.5"),
    ],
)  # fmt: skip
def test_text_without_words_is_an_error_with_file_and_value(text, options, message, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(CorpusError, match=message) as caught:
        read_corpus(path, options=ReadOptions(**options))
    assert str(caught.value).startswith(f"{path}: ")


def test_the_vocabulary_of_a_text(tmp_path, caplog):
    path, words = tmp_path / "x.txt", tmp_path / "words"
    path.write_text("tea milk tea\njam\n")
    words.write_text("tea\nnone\njam\n")
    corpus = read_corpus(path, options=ReadOptions(vocabulary=words))
    assert corpus.vocabulary == ("tea", "none", "jam")
    assert corpus.as_sparse().toarray().tolist() == [[2, 0, 0], [0, 0, 1]]
    assert caplog.records == []
    for name, value in [("min_df", 2), ("max_df", 0.5), ("max_vocabulary", 1)]:
        with pytest.raises(ParameterError, match=f"{name} must not be given with a .* {value}"):
            read_corpus(path, options=ReadOptions(vocabulary=words, **{name: value}))
    words.write_text("")
    with pytest.raises(
        CorpusError, match="a vocabulary must have words, the file is empty"
    ) as error:
        read_corpus(path, options=ReadOptions(vocabulary=words))
    assert str(error.value).startswith(f"{words}: ")
    words.write_text("tea\njam\ntea\n")
    with pytest.raises(CorpusError, match="line 3: the words must differ, got 'tea' as in line 1"):
        read_corpus(path, options=ReadOptions(vocabulary=words))


def test_words_that_no_text_has_are_told_in_one_line(tmp_path, caplog, recwarn):
    path, words, stop = tmp_path / "x.txt", tmp_path / "words", tmp_path / "stop"
    path.write_text("tea milk\n")
    words.write_text("Tea\nmilk\na\n")
    stop.write_text("Jam\nice-cream\n")  # stop words are taken in lower case
    read_corpus(path, options=ReadOptions(vocabulary=words, stop_words=stop))
    read_corpus(path, options=ReadOptions(stop_words="english"))
    said = "words cannot occur in a text, whose words are lower case, of two letters or digits at "
    assert [record.getMessage() for record in caplog.records] == [
        f"{words}: 2 of 3 {said}least; such as 'Tea'",
        f"{stop}: 1 of 2 {said}least; such as 'ice-cream'",
    ]
    assert len(recwarn) == 0


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"tea\nmilk\ncaf\xe9\n")
    with pytest.raises(CorpusError, match=r"line 3: text must be UTF-8, got b'\\xe9'"):
        read_corpus(path)


def test_stdlib_parses_and_never_imports(tmp_path):
    words = " ".join(f"topic{chr(97 + i) * 3}" for i in range(20))
    for i in range(5):
        (tmp_path / f"m{i}.py").write_text(f'"""{words} {words}"""\nraise SystemExit("imported")\n')
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "t.py").write_text(f'"""{words} hidden"""')
    corpus = read_corpus(tmp_path, "stdlib")
    assert corpus.n_documents == 5
    assert corpus.digest() == read_corpus(tmp_path, "stdlib").digest()
    with pytest.raises(CorpusError, match="none has enough words"):
        read_corpus(tmp_path / "test" / "nothing", "stdlib")


def test_stdlib_takes_methods_and_leaves_out_short_texts(tmp_path):
    words = " ".join(f"topic{chr(97 + i) * 3}" for i in range(12))
    short = words.rsplit(" ", 1)[0]
    for i in range(5):
        (tmp_path / f"m{i}.py").write_text(
            f'"""{short}"""\nclass A:\n    def f(self):\n        """{words}"""\n'
            f'        def g():\n            """{words}"""\n'
        )
    corpus = read_corpus(tmp_path, "stdlib")
    assert (corpus.n_documents, corpus.n_words, corpus.n_tokens) == (5, 12, 60)
    assert gc.isenabled()


def test_stdlib_is_there():
    corpus = read_corpus()
    assert corpus.n_documents > 1000 and 1000 < corpus.n_words < 10_000
    assert (np.diff(corpus.indptr) > 0).all()
    assert {"socket", "thread"} <= set(corpus.vocabulary)
    assert not {"the", "and"} & set(corpus.vocabulary)
    assert gc.isenabled()


REAL = {
    "ap": (2246, 10473, 302031, 435838),
    "nips": (1500, 12419, 746316, 1932365),
    "dblp": (54595, 1513, 291365, 294757),
    "enron80bin": (39861, 80, 309543, 309543),
}


@pytest.mark.parametrize("name", REAL)
def test_real_corpora(name, data_folder):
    corpus = read_corpus(data_folder / f"docword.{name}.txt.gz")
    found = corpus.n_documents, corpus.n_words, corpus.n_pairs, corpus.n_tokens
    assert found == REAL[name]
    assert len(corpus.vocabulary) == corpus.n_words


def test_ap_is_the_same_in_two_formats(data_folder):
    uci = read_corpus(data_folder / "docword.ap.txt.gz")
    ldac = read_corpus(data_folder / "orig" / "ap.dat.gz")
    assert np.array_equal(uci.indices, ldac.indices)
    assert np.array_equal(uci.counts, ldac.counts)
