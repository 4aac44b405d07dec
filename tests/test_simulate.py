"""The command: ``python -m esvi_shm.simulate``, as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from esvi_shm import LDA, metrics, simulate
from esvi_shm.corpus import read_corpus

OWN = ["--documents", "400", "--words", "150", "--tokens", "40000", "--topics", "4"]


def run(path: Path, *arguments: str) -> int:
    return simulate.main([str(path), *map(str, arguments), "--quiet"])


def test_a_published_corpus_made_small_from_the_shell(tmp_path):
    out = tmp_path / "x.npz"
    arguments = ["--like", "nytimes", "--scale", "0.001", "--topics", "16", "--workers", "2"]
    command = [sys.executable, "-m", "esvi_shm.simulate", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    corpus = read_corpus(out)
    assert (corpus.n_documents, corpus.n_words, corpus.n_tokens) == (298, 3246, 98_800)
    assert corpus.n_pairs == pytest.approx(69_700, rel=0.02)
    said = f"298 documents, 3,246 words, 98,800 tokens, {corpus.n_pairs:,} pairs ("
    assert done.stdout.startswith(said)
    assert done.stdout.endswith(f"saved in {out}, its topics in {tmp_path / 'x.topics.npy'}\n")
    topics = np.load(tmp_path / "x.topics.npy", allow_pickle=False)
    assert (topics.shape, topics.dtype) == ((3246, 16), np.float32)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npz", "x.topics.npy"]


def test_the_number_of_threads_changes_no_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(simulate, "RANGE_TOKENS", 1000)
    for workers in (1, 3):
        assert run(tmp_path / f"{workers}.npz", *OWN, "--workers", workers) == 0
    for name in ("{}.npz", "{}.topics.npy"):
        one, three = ((tmp_path / name.format(n)).read_bytes() for n in (1, 3))
        assert one == three


def test_uci_holds_the_same_corpus(tmp_path):
    assert run(tmp_path / "x.npz", *OWN) == run(tmp_path / "docword.x.txt", *OWN) == 0
    one, other = read_corpus(tmp_path / "x.npz"), read_corpus(tmp_path / "docword.x.txt")
    assert one.digest() == other.digest()
    np.testing.assert_array_equal(
        np.load(tmp_path / "x.topics.npy"), np.load(tmp_path / "docword.x.topics.npy")
    )


def test_a_fit_finds_the_true_topics(tmp_path):
    out = tmp_path / "x.npz"
    assert run(out, *OWN, "--alpha", "0.2") == 0
    true = np.load(tmp_path / "x.topics.npy")
    # By another seed the topics are others, which the fit does not find.
    assert run(tmp_path / "y.npz", *OWN, "--alpha", "0.2", "--seed", "1") == 0
    others = np.load(tmp_path / "y.topics.npy")
    lda = LDA(n_components=4, n_workers=1, n_passes=40, random_state=0, restarts=3).fit(out)
    found, missed = (
        metrics.topic_stability(lda.components_.T, [topics]).similarity for topics in (true, others)
    )
    assert found.min() > 0.85
    assert missed.max() < 0.7


def test_an_older_corpus_stays_where_the_new_one_fails(tmp_path, monkeypatch, capsys):
    out = tmp_path / "x.npz"
    assert run(out, *OWN) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert run(out, *OWN, "--seed", "1") == 1
    assert "No space left" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "--documents must be given where --like is not, got None"),
        (OWN[:4], "--tokens must be given where --like is not, got None"),
        (["--like", "bible"], "--like must be one of 20news, ap, enron, kos, nips, nytimes,"),
        (["--like", "ap", "--scale", "0"], "--scale must be greater than 0, got 0.0"),
        (["--like", "ap", "--scale", "nan"], "--scale must be greater than 0, got nan"),
        ([*OWN, "--scale", "2"], "--scale must come with --like, got 2.0"),
        ([*OWN, "--workers", "0"], "--workers must be at least 1, got 0"),
        ([*OWN, "--pairs", "41000"], "--pairs must be at least one for each of the 400"),
        ([*OWN, "--pairs", "39999"], "--pairs must be from about"),
        ([*OWN, "--topics", "0"], "--topics must be from 1"),
        (["--like", "umbc", "--scale", "1e4"], "--documents must be from 1 to 2**31 - 1"),
        ([*OWN, "--words", "2000000000"], "not enough memory: to draw the corpus takes"),
    ],
)
def test_bad_options(arguments, says, tmp_path, capsys):
    assert run(tmp_path / "x.npz", *arguments) == 2
    assert capsys.readouterr().err.startswith(f"esvi_shm.simulate: error: {says}")
    assert list(tmp_path.iterdir()) == []


def test_bad_places(tmp_path, monkeypatch, capsys):
    (tmp_path / "text.npz").write_text("mine")
    for path, says in (
        (tmp_path / "x.mtx", "OUT must end with .npz, or be called docword.X.txt"),
        (tmp_path / "gone" / "x.npz", "OUT must be a file in a folder that exists"),
        (tmp_path / "text.npz", "OUT must be a new file, or one that begins with PK"),
    ):
        assert run(path, *OWN) == 2
        assert says in capsys.readouterr().err
    monkeypatch.setattr("esvi_shm.shared.preflight.free_space", lambda folder: 1000)
    assert run(tmp_path / "x.npz", *OWN) == 2
    assert "x.npz: takes about 482,400 bytes for a while; 1,000 are free" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["text.npz"]


def test_the_help_lists_the_sizes():
    told = simulate._parser().format_help()
    assert "  pubmed           8,200,000     141,043     737,900,000   483,450,157" in told
