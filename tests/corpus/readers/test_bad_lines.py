"""Every bad line is refused, and the message has its number, the rule and the value."""

import gzip

import pytest

from esvi_shm.corpus import ReadOptions, read_corpus
from esvi_shm.errors import CorpusError

UCI = "3\n4\n3\n{}\n2 3 1\n3 4 1\n"
MTX = "%%MatrixMarket matrix coordinate real general\n% x\n3 4 3\n{}\n2 3 1\n3 4 1\n"
TRIPLES = [
    ("1 1", "must have 3 columns (document, word, count), got '1 1'"),
    ("1 1 1 1", "must have 3 columns (document, word, count), got '1 1 1 1'"),
    ("3abc 1 1", "the document id must be an integer in 1..3, got '3abc'"),
    ("1 3.5 1", "the word id must be an integer in 1..4, got '3.5'"),
    ("-1 1 1", "the document id must be an integer in 1..3, got '-1'"),
    ("+1 1 1", "the document id must be an integer in 1..3, got '+1'"),
    ("0 1 1", "the document id must be in 1..3, got 0"),
    ("4 1 1", "the document id must be in 1..3, got 4"),
    ("1 5 1", "the word id must be in 1..4, got 5"),
    ("1 4294967297 1", "the word id must be in 1..4, got 4294967297"),
    ("1 18446744073709551617 1", "the word id must be in 1..4, got 18446744073709551617"),
    ("1 1 -2", "the count must be at least 0, got -2"),
    ("1 1 -0", "the count must be at least 0, got -0"),
    ("1 1 nan", "the count must be finite (in float32), got nan"),
    ("1 1 inf", "the count must be finite (in float32), got inf"),
    ("1 1 1e39", "the count must be finite (in float32), got 1e39"),
    ("1 1 1e999", "the count must be finite (in float32), got 1e999"),
    ("1 1 " + "9" * 60, "the count must be finite (in float32), got 999"),
    ("1 1 x", "the count must be a number, got 'x'"),
    ("1 1 1e", "the count must be a number, got '1e'"),
    ("1 1 .", "the count must be a number, got '.'"),
    ("1 1 2x", "the count must be a number, got '2x'"),
    ("1 1 1_0", "the count must be a plain decimal number, got '1_0'"),
    ("1 1 +1", "the count must be a plain decimal number, got '+1'"),
    ("1,1,1", "must have 3 columns"),
    ("one two three", "the document id must be an integer in 1..3, got 'one'"),
    ("1 \x00 1", "the word id must be an integer in 1..4, got '\\x00'"),
    ("1 ² 1", "the word id must be an integer in 1..4, got"),
]


def refuse(path, text, line, message, **options):
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    with pytest.raises(CorpusError) as caught:
        read_corpus(path, options=ReadOptions(**options))
    where = str(path) if line is None else f"{path}, line {line}: "
    assert str(caught.value).startswith(where)
    assert message in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(("bad", "message"), TRIPLES)
@pytest.mark.parametrize("name", ["docword.x.txt", "docword.x.txt.gz"])
def test_uci(name, bad, message, tmp_path):
    refuse(tmp_path / name, UCI.format(bad), 4, message)


@pytest.mark.parametrize(("bad", "message"), TRIPLES)
def test_matrix_market(bad, message, tmp_path):
    refuse(tmp_path / "x.mtx", MTX.format(bad), 4, message)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the header's D (documents) is missing"),
        ("3\n4\n", 3, "the header's NNZ (pairs) is missing"),
        ("3\nx\n1\n1 1 1\n", 2, "W (words) must be an integer of at least 0, got 'x'"),
        ("3\n4\n-1\n1 1 1\n", 3, "NNZ (pairs) must be an integer of at least 0, got '-1'"),
        ("3 4\n1\n1 1 1\n", 1, "D (documents) must be an integer of at least 0, got '3 4'"),
        ("3\n4\n2\n1 1 1\n", 4, "the header (line 3) says 2 pairs, the file ends after 1"),
        ("3\n4\n1\n1 1 1\n2 2 2\n", 5, "says 1 pairs, but there is one more: '2 2 2'"),
        ("3\n4\n2\n1 1 1\n\n2 2 2\n", 6, "must not come before '2 2 2', but line 5 is one"),
        ("3\n4\n100000000000000000\n1 1 1\n", 3, "pairs, which do not fit a file of 29 bytes"),
        ("3\n4\n1" + "0" * 18 + "\n1 1 1\n", 3, "must be an integer of at least 0"),
        ("2147483648\n4\n1\n1 1 1\n", 3, "documents must be at most 2147483647 (int32)"),
        ("3\n9999999999\n1\n1 1 1\n", 3, "words must be at most 2147483647 (int32)"),
        ("2147483647\n4\n1\n1 1 1\n", 3, "documents must be at most 10000000 where there are"),
        ("4\n2147483647\n1\n1 1 1\n", 3, "only 1 pairs, got 2147483647"),
        ("3\n4\n1\n1 1 0\n", None, "at least one token, got none in 3 documents"),
        ("3\n4\n0\n", None, "at least one token, got none in 3 documents"),
    ],
)
def test_uci_header(text, line, message, tmp_path):
    refuse(tmp_path / "docword.x.txt", text, line, message)


def test_a_gzip_header_that_cannot_be_true(tmp_path):
    refuse(tmp_path / "docword.x.txt.gz", "3\n4\n999999999\n1 1 1\n", 3, "do not fit a file")


BANNER = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1 1 1\n", 1, "must be '%%MatrixMarket matrix coordinate real|integer|pattern general'"),
        ("%%MatrixMarket matrix array real general\n1 1\n1\n", 1, "matrix array real general"),
        ("%%MatrixMarket matrix coordinate complex general\n", 1, "complex"),
        ("%%MatrixMarket matrix coordinate real symmetric\n", 1, "symmetric"),
        (BANNER, 1, "the line with rows, columns and entries is missing"),
        (BANNER + "%\n1 1\n", 3, "must have 3 columns (rows, columns, entries), got '1 1'"),
        (BANNER + "1 1 x\n", 2, "entries must be an integer of at least 0, got 'x'"),
        (BANNER + "1 1 1\n1 1 1\n1 1 1\n", 4, "says 1 pairs, but there is one more"),
        (
            BANNER.replace("real", "integer") + "1 1 1\n1 1 1.5\n",
            3,
            "must be an integer, got '1.5'",
        ),
        (BANNER.replace("real", "pattern") + "1 1 1\n1 1 1\n", 3, "must have 2 columns"),
    ],
)
def test_matrix_market_header(text, line, message, tmp_path):
    refuse(tmp_path / "x.mtx", text, line, message)


def test_columns_of_a_transposed_file_have_their_own_names(tmp_path):
    text = BANNER + "1 2 1\n2 1 1\n"
    refuse(tmp_path / "x.mtx", text, 3, "the word id must be in 1..1, got 2", transpose=True)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("2 0:1", "the line says 2 pairs, but has 1"),
        ("1 0:1 1:1", "the line says 1 pairs, but has 2"),
        ("x 0:1", "the number of pairs must be an integer, got 'x'"),
        ("1.0 0:1", "the number of pairs must be an integer, got '1.0'"),
        ("1 0", "must have pairs id:count, got '0'"),
        ("1 0 :1", "must have pairs id:count, got '0'"),
        ("1 :1", "the word id must be an integer in 0..2147483646, got '' in ':1'"),
        ("1 -1:1", "the word id must be an integer in 0..2147483646, got '-1' in '-1:1'"),
        ("1 2147483648:1", "the word id must be in 0..2147483646, got 2147483648"),
        ("1 0:", "the count must be a number, got '' in '0:'"),
        ("1 0:x", "the count must be a number, got 'x' in '0:x'"),
        ("1 0:-1", "the count must be at least 0, got -1 in '0:-1'"),
        ("1 0:nan", "the count must be finite"),
        ("1 0:1:2", "the count must be a number, got '1:2'"),
    ],
)
def test_ldac_and_svmlight(bad, message, tmp_path):
    refuse(tmp_path / "x.ldac", f"1 0:1\n0\n{bad}\n1 1:1\n", 3, message)
    if "number of pairs" not in message and "the line says" not in message:
        refuse(tmp_path / "x.svm", f"# x\n1 0:1\n{bad} # a comment\n-1 1:1\n", 3, message)


def test_svmlight_label_and_blank_line(tmp_path):
    refuse(tmp_path / "x.svm", "1 0:1\nspam 0:1\n", 2, "the label must be a number, got 'spam'")
    for query in ("qid:", "qid:x", "qid", "qid:1:2", "qid:-1"):
        message = f"the query id must be qid: and an integer, got '{query}'"
        refuse(tmp_path / "x.svm", f"1 qid:1 0:1\n1 {query} 0:1\n", 2, message)
    refuse(tmp_path / "x.svm", "1 0:1 qid:1\n", 1, "must be an integer in 0..2147483646, got 'qid'")
    refuse(tmp_path / "x.svm", "1 qi\n", 1, "must have pairs id:count, got 'qi'")
    refuse(tmp_path / "x.ldac", "1 qid:1 0:1\n", 1, "must be an integer in 0..2147483646")
    refuse(tmp_path / "x.svm", "1 0:1\n\n1 0:1\n", 3, "line 2 is one before '1 0:1'")
    refuse(tmp_path / "x.ldac", "1 0:1\n\n1 0:1\n", 3, "line 2 is one before '1 0:1'")


def test_the_line_of_a_word_that_the_vocabulary_lacks(tmp_path):
    words = tmp_path / "vocab.txt"
    words.write_text("tea\nmilk\n")
    refuse(tmp_path / "x.ldac", "1 1:1\n1 2:1\n", 2, "the word id must be in 0..1, got 2")
    message = "the word id must be in 0..2, got 3"
    refuse(tmp_path / "x.svm", "1 1:1\n1 3:1\n", 2, message, vocabulary=words)
    # With an id 0 they begin there, which shows only at the end.
    message = "has 2 words, but with ids from 0 a word has id 2"
    refuse(tmp_path / "x.svm", "1 0:1\n1 2:1\n", None, message, vocabulary=words)


@pytest.mark.parametrize("first", ["1 0:1", "1 7:1"])
@pytest.mark.parametrize("name", ["x.svm", "x.ldac.gz"])
def test_the_line_of_an_id_that_no_other_bears_out(first, name, tmp_path):
    text = f"{first}\n1 2147483646:1\n1 5:1\n"
    message = "words must be at most 100000000 where there are only 3 pairs, got 2147483647"
    refuse(tmp_path / name, text, 2, message)
    text = text.replace("2147483646", "99999999")
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if ".gz" in name else text.encode())
    assert read_corpus(tmp_path / name).n_words >= 99_999_999


def test_line_numbers_in_a_later_block(tmp_path, monkeypatch):
    from esvi_shm.corpus.readers import _files

    monkeypatch.setattr(_files, "BLOCK_BYTES", 64)
    body = "".join(f"{d} 1 1\n" for d in range(1, 501))
    text = f"600\n4\n501\n{body}9 9 9\n"
    refuse(tmp_path / "docword.x.txt", text, 504, "the word id must be in 1..4, got 9")
    refuse(tmp_path / "x.ldac", "1 0:1\n" * 500 + "1 0\n", 501, "must have pairs")


def test_the_line_where_a_gzip_file_is_cut(tmp_path):
    path = tmp_path / "docword.x.txt.gz"
    data = b"3\n4\n3\n1 1 1\n2 2 1\n3 3 1\n"
    path.write_bytes(gzip.compress(data, 0)[:-12])  # stored: ends within the last line
    with pytest.raises(CorpusError, match=r"line 6: the gzip data is cut or damaged"):
        read_corpus(path)


def test_a_line_without_end(tmp_path, monkeypatch):
    from esvi_shm.corpus.readers import _files

    monkeypatch.setattr(_files, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(_files, "BLOCK_BYTES", 64)
    text = "1\n1\n1\n" + " " * 200_000
    refuse(tmp_path / "docword.x.txt", text, 4, "lines must have at most 1000 bytes")
