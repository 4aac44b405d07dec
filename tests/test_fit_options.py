"""Options of ``python -m esvi_shm.fit``: what they set, and what is refused."""

import functools
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import esvi_shm
from esvi_shm import fit, store
from esvi_shm.config import FitConfig
from tests import commands
from tests.commands import write_uci

pytestmark = pytest.mark.usefixtures("nothing_left")
run = functools.partial(commands.run, "fit")


def test_the_version_is_told():
    assert run("--version").stdout.split() == ["esvi_shm", esvi_shm.__version__]


def test_the_help_tells_the_defaults():
    defaults = vars(fit._parser().parse_args([]))
    config = fit._config(fit._parser().parse_args([]))
    assert config == FitConfig()
    text = fit._parser().format_help()
    for option in ("topics", "alpha", "eta", "passes", "evaluate_every", "route"):
        assert f"(default: {defaults[option]})" in " ".join(text.split())
    # A line may end within an option.
    assert "(default:margins,orwhat--max-memoryhasroomfor)" in "".join(text.split())


def test_a_corpus_may_follow_any_option(capsys):
    given = fit._parser().parse_args(["--refold-after", "10,20", "x.txt"])
    assert (given.refold_after, given.corpus) == ((10, 20), "x.txt")
    assert fit._config(given).refold_after == (10, 20)
    for text in ("10,", "a", "1 2", ""):
        with pytest.raises(SystemExit):
            fit._parser().parse_args(["--refold-after", text])
        says = f"--refold-after: must be whole numbers with commas between, got {text!r}"
        assert capsys.readouterr().err.endswith(f"argument {says}\n")


def test_decisions_and_what_has_no_effect_are_one_line_each_on_standard_error(tmp_path):
    corpus = tmp_path / "x.svm"
    corpus.write_text("1 1:2 2:1\n2 2:3\n")
    done = run(
        str(corpus), "--topics", "2", "--plan", "--refold-after", "3,200",
        "--inference", "vb", "--cvb0-passes", "5", "--workers", "1",
    )  # fmt: skip
    assert done.returncode == 0
    assert re.findall("^(?:INFO|WARNING).*", done.stderr, re.M) == [
        f"INFO: {corpus}: word ids begin with 1, since no 0 occurs (else give --first-id); labels "
        "and query ids are left out",
        "WARNING: --cvb0-passes has no effect with --inference vb",
        "WARNING: --refold-after 200 has no effect in 100 passes",
    ]
    quiet = run(str(corpus), "--topics", "2", "--plan", "--temper-passes", "9", "--passes", "5",
                "--workers", "1", "--quiet")  # fmt: skip
    lines = quiet.stderr.splitlines()
    assert len(lines) == 2 and lines[0].startswith(f"INFO: {corpus}: word ids begin with 1")
    assert lines[1].startswith("WARNING: --temper-passes (9) is more than --passes (5): the fit")


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--refold-after", "0"], "--refold-after must be at least 1, got 0"),
        (["--cvb0-passes", "100"], "--cvb0-passes must be less than the 100 passes of anneal"),
        (["--transpose", "--format", "ldac"], "--transpose is not for the format ldac, got True"),
        (["--max-df", "1"], "--max-df is not for the format uci, got 1"),
        (["--first-id", "1"], "--first-id is not for the format uci, got 1"),
        (["--topics", "0"], "--topics must be at least 1, got 0"),
        (["--components", "5"], "--components has no meaning with family lda, got 5"),
        (["--covariance", "full"], "--covariance has no meaning with family lda, got 'full'"),
        (["--feature-prior", "2"], "--feature-prior has no meaning with family lda, got 2.0"),
        (["--strict"], "--strict has no meaning with family lda, got True"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--passes", "-1"], "--passes must be at least 0, got -1"),
        (["--topics", "1" + 20 * "0"], "--topics must be less than 2**31"),
        (["--passes", "1" + 20 * "0"], "--passes must be less than 2**31"),
        (["--seed", str(2**63)], "--seed must be less than 2**63"),
        (["--tol", "inf"], "--tol must be at least 0, got inf"),
        (["--top-words", "-1"], "--top-words must be at least 0, got -1"),
        (["--alpha", "0"], "--alpha must be greater than 0, got 0.0"),
        (["--eta", "-1"], "--eta must be greater than 0, got -1.0"),
        (
            ["--alpha", "x"],
            "--alpha must be a number, numbers with commas between, a .npy file, or ",
        ),
        (["--alpha", "0.1,0.2"], "--alpha must be a number or have 50 values, got 2"),
        (["--eta", "0.1,0.2"], "--eta must be a number or have 40 values, got 2"),
        (["--alpha", "0.1,-1", "--topics", "2"], "--alpha must lie between 1e-6 and 1e6, got -1.0"),
        (["--alpha", "nowhere.npy"], "--alpha must be a .npy file of numbers"),
        (["--learn-priors", "x"], "--learn-priors must be one of alpha, both, eta, none, got 'x'"),
        (
            ["--learn-priors", "x", "--eta", "auto"],
            "--learn-priors must be one of alpha, both, eta",
        ),
        (["--symmetric-alpha"], "--learn-priors must be alpha or both with --symmetric-alpha"),
        (
            ["--inference", "cvb0", "--alpha", "auto"],
            "--learn-priors must come with --holdout under cvb0, got 'alpha'",
        ),
        (["--alpha", "nan"], "--alpha must be greater than 0, got nan"),
        (["--max-time", "0"], "--max-time must be greater than 0, got 0.0"),
        (["--restarts", "0"], "--restarts must be at least 1, got 0"),
        (["--restart-passes", "0"], "--restart-passes must be at least 1, got 0"),
        (["--repair-after", "60,30"], "--repair-after must lie where the updates stay the same"),
        (["--repair-after", "0"], "--repair-after must be at least 1, got 0"),
        (["--route", "x"], "--route must be one of balanced, lap, random, ring, got 'x'"),
        (["--storage", "x"], "--storage must be one of full, margins, sparse, topk, got 'x'"),
        (
            ["--axis", "topics", "--storage", "topk"],
            "--storage must be full where topics travel (axis topics)",
        ),
        (["--storage", "topk", "--topk", "0"], "--topk must be at least 1, got 0"),
        (["--topk", "51"], "--topk must be at most the number of topics, 50, got 51"),
        (["--residual", "x"], "--residual must be one of drop, spread, got 'x'"),
        (["--start", "x"], "--start must be one of random, scikit-learn, seeded, spread, got 'x'"),
        (["--seed-documents", "0"], "--seed-documents must be at least 1, got 0"),
        (["--seed-documents", "2000"], "--seed-documents must be at most 1000, got 2000"),
        (
            ["--seed-documents", "2", "--start", "random"],
            "--start must be one of seeded, spread, got 'random'",
        ),
        (["--start-from", "nowhere"], "nowhere: not a model directory"),
        (["--seed-words", "nowhere"], "nowhere: there is no such file"),
        (["--noise", "-1"], "--noise must be between 0 and 10, got -1.0"),
        (["--noise-passes", "-1"], "--noise-passes must be at least 0, got -1"),
        (["--inference", "x"], "--inference must be one of anneal, cvb0, vb, got 'x'"),
        (["--leave-out", "x"], "--leave-out must be one of excess, none, pair, token, got 'x'"),
        (["--settle", "0"], "--settle must be at least 1, got 0"),
        (["--settle", "1001"], "--settle must be at most 1000, got 1001"),
        (["--relax", "0.5"], "--relax must be at least 1 and less than 2, got 0.5"),
        (["--format", "x"], "--format must be one of"),
        (["--holdout", "1"], "--holdout as a share must lie in (0, 1), got 1.0"),
        (["--holdout", "nan"], "--holdout as a share must lie in (0, 1), got nan"),
        (["--holdout", "0.001"], "--holdout must set aside some and not all of 60 documents"),
        (["--holdout", "nowhere.txt"], "nowhere.txt"),
        (["--patience", "0", "--holdout", "0.5"], "--patience must be at least 1, got 0"),
        (["--patience", "2"], "--patience must come with --holdout, got 2"),
        (["--deterministic", "--route", "random"], "--route must be lap or ring"),
        (["--stop-words", "english"], "--stop-words"),
        (["--min-df", "2"], "--min-df"),
        (["--max-memory", "8X"], "--max-memory must be a whole number of bytes from 1 on, or a "),
        (["--max-memory", "1M"], "--max-memory must be at least "),
        (["--scratch", "nowhere"], "--scratch must be a folder that exists, got 'nowhere'"),
    ],
)
def test_bad_options(arguments, says, tmp_path, capsys):
    assert fit.main([write_uci(tmp_path), "--out", str(tmp_path / "model"), *arguments]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
    assert not (tmp_path / "model").exists()


def write_seed_words(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "seeds.txt"
    path.write_text(text)
    return ["--seed-words", str(path)]


@pytest.mark.parametrize(
    "text, says",
    [
        ("word1\n\nword2 tee  mlk\n", "topic 2 (line 3 of a file) has words that do not, got "
         "'tee, mlk'"),
        ("word1\nword2\nword3\nword4\n\n", "--seed-words must be for at most 3 topics"),
        ("\n \n", "seeds.txt: a file of seed words must have words"),
    ],
)  # fmt: skip
def test_bad_seed_words(text, says, tmp_path, capsys):
    arguments = [write_uci(tmp_path), "--topics", "3", *write_seed_words(tmp_path, text)]
    assert fit.main(arguments) == 2
    assert says in capsys.readouterr().err


def test_a_fit_from_a_model_and_from_words(tmp_path, caplog, capsys, threads):
    good, model = write_uci(tmp_path), str(tmp_path / "model")
    quick = ["--passes", "3", "--workers", "1", "--out", model]
    words = write_seed_words(tmp_path, "word3 word4\n\nword5\n")
    assert fit.main([good, "--topics", "4", *quick, *words]) == 0
    config = esvi_shm.load(model).summary["config"]
    assert config["seed_words"] == [["word3", "word4"], [], ["word5"]]
    # Into the same folder, of a corpus with other words; the model has fewer topics.
    other = write_uci(tmp_path, n_words=50, name="more")
    assert fit.main([other, "--topics", "5", *quick, "--start-from", model]) == 0
    assert f"{model} has 40 of the 50 words of {other}" in caplog.text
    found = esvi_shm.load(model)
    assert found.summary["config"]["start_from"] == model
    assert found.lambda_.shape == (50, 5)
    assert fit.main([good, "--topics", "4", "--start-from", model]) == 2
    assert "--start-from must be a model of at most 4 topics, got 5" in capsys.readouterr().err
    assert fit.main([good, "--topics", "5", "--start-from", model, *words]) == 2
    assert "--seed-words cannot be given together with" in capsys.readouterr().err
    (tmp_path / "vocab.more.txt").write_text("".join(f"other{v}\n" for v in range(50)))
    assert fit.main([other, "--topics", "5", "--start-from", model]) == 2
    assert "--start-from must share words with the corpus" in capsys.readouterr().err


def test_bad_corpora_and_targets(tmp_path, capsys):
    good = write_uci(tmp_path)
    empty = tmp_path / "docword.empty.txt"
    empty.write_text("")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    short = tmp_path / "short.txt"
    short.write_text("a\nb\n")
    for arguments, says in [
        (["nowhere.txt"], "nowhere.txt"),
        ([""], "a path must name a file or a folder"),
        ([good, "--vocabulary", ""], "--vocabulary must name a file"),
        ([good, "--log-json", str(tmp_path / "no/log")], "--log-json must be a file in a folder"),
        ([good, "--log-json", good], "--log-json must not be a file that is read"),
        ([good, "--holdout", str(short), "--log-json", str(short)], "must not be a file that is"),
        ([good, "--seed-words", str(short), "--log-json", str(short)], "must not be a file that"),
        ([good, "--eta", str(short), "--log-json", str(short)], "--eta must be a number"),
        ([good, "--log-json", str(short)], "must be a new file, or one that begins with {"),
        ([str(empty)], "docword.empty.txt"),
        ([good, "--vocabulary", str(short)], "vocabulary"),
        ([good, "--out", str(tmp_path / "taken")], "not a model"),
    ]:
        assert fit.main(arguments) == 2
        assert says in capsys.readouterr().err


def test_priors_from_the_shell(tmp_path, capsys, threads):
    corpus, out = write_uci(tmp_path), tmp_path / "model"
    np.save(tmp_path / "alpha.npy", [0.2, 0.3])
    quick = [corpus, "--topics", "2", "--passes", "10", "--workers", "1", "--quiet", "--out",
             str(out), "--inference", "vb"]  # fmt: skip
    assert fit.main([*quick, "--alpha", str(tmp_path / "alpha.npy"), "--eta", "0.5"]) == 0
    model = esvi_shm.load(out)
    assert (model.alpha.tolist(), set(model.eta)) == ([0.2, 0.3], {0.5})
    assert "on average" not in capsys.readouterr().out
    arguments = [*quick, "--alpha", "0.2,0.3", "--learn-priors", "both"]
    assert fit.main(arguments) == 0
    model = esvi_shm.load(out)
    assert model.alpha.tolist() != [0.2, 0.3] and model.eta[0] != 0.05
    assert model.summary["config"]["alpha"] == [0.2, 0.3]
    printed = capsys.readouterr().out
    assert f"alpha {model.alpha.mean():.4g} on average" in printed
    assert f"eta {model.eta[0]:.4g}" in printed
    for name, bad in (("a.npy", b""), ("b.npy", b"text")):
        (tmp_path / name).write_bytes(bad)
        assert fit.main([*quick, "--alpha", str(tmp_path / name)]) == 2
        assert "--alpha must be a .npy file of numbers" in capsys.readouterr().err
    np.savez(tmp_path / "d.npz", alpha=[0.2, 0.3])
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    shape = "{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }"
    damaged = [(tmp_path / "d.npz").read_bytes(), b"PK\x03\x04garbage"]
    damaged += [header + (shape % n).ljust(117).encode() + b"\n" + bytes(80)
                for n in (10**13, 10**30)]  # fmt: skip
    for content in damaged:
        (tmp_path / "e.npy").write_bytes(content)
        assert fit.main([*quick, "--alpha", str(tmp_path / "e.npy")]) == 2
        assert "--alpha must be a .npy file of numbers" in capsys.readouterr().err
    np.save(tmp_path / "c.npy", ["x", "y"])
    assert fit.main([*quick, "--alpha", str(tmp_path / "c.npy")]) == 2
    assert "--alpha must be a number or a vector" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, told",
    [
        (["--save-every", "5"], "--save-every must come with --out, got 5"),
        (["--save-every", "0", "--out", "model"], "--save-every must be at least 1, got 0"),
    ],
)
@pytest.mark.parametrize("family", ["lda", "gaussian"])
def test_when_to_save_is_refused_before_anything_is_read(options, told, family, capsys):
    assert fit.main(["not-there.npz", "--family", family, *options]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("family", ["lda", "gaussian"])
def test_a_model_that_cannot_be_saved_on_the_way_does_not_end_the_fit(
    family, tmp_path, monkeypatch, caplog, threads
):
    corpus, out, save, n_saved = write_uci(tmp_path), tmp_path / "model", store.save, []
    if family != "lda":
        corpus = str(tmp_path / "points.npy")
        np.save(corpus, np.random.default_rng(0).normal(size=(40, 2)))

    def saving(model, folder):
        n_saved.append(model.summary["n_passes"])
        if len(n_saved) == 2:
            raise OSError(28, "No space left on device")
        save(model, folder)
        assert esvi_shm.load(folder).summary["n_passes"] == n_saved[-1]

    monkeypatch.setattr(store, "save", saving)
    arguments = [corpus, "--family", family, "--topics", "2", "--workers", "1", "--passes", "7"]
    arguments += ["--tol", "0", "--save-every", "2", "--quiet", "--out", str(out)]
    assert fit.main(arguments) == 0
    assert n_saved == [2, 4, 6, 7]
    assert "pass 4: the model cannot be saved, and the fit goes on: [Errno 28]" in caplog.text
    assert esvi_shm.load(out).summary["stopped"] == "passes"


def test_more_topics_than_there_is_memory_for_are_refused(tmp_path, capsys):
    assert fit.main([write_uci(tmp_path), "--topics", "2000000000"]) == 2
    assert "not enough memory" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["lda", "gaussian"])
def test_a_full_disk_is_refused_before_the_fit_and_after_it_leaves_the_results(
    family, tmp_path, monkeypatch, capsys, threads
):
    corpus, out = write_uci(tmp_path), tmp_path / "model"
    if family != "lda":
        corpus = str(tmp_path / "points.npy")
        np.save(corpus, np.random.default_rng(0).normal(size=(40, 2)))
    arguments = [corpus, "--family", family, "--topics", "3", "--workers", "1", "--passes", "2"]
    arguments += ["--quiet", "--out", str(out)]
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "disk full")))
    assert fit.main(arguments) == 1
    told = capsys.readouterr()
    assert "(stopped by passes)" in told.out
    assert told.err.endswith(f"error: [Errno 28] disk full: '{out}'\n")
    room = {"lda": 4 * 3 * (60 + 40), "gaussian": 4 * 40 + 8 * 3 * (1 + 4)}[family]
    for free, code in ((room - 1, 2), (room, 1)):
        monkeypatch.setattr(store, "free_space", lambda _, free=free: free)
        assert fit.main(arguments) == code
        told = capsys.readouterr()
        assert ("the model takes about 0.0 MiB" in told.err) == (told.out == "") == (code == 2)
    assert not out.exists()


def test_the_help_and_the_docstring_name_the_topics_from_which_active_sets_begin():
    from esvi_shm.config import FitConfig
    from esvi_shm.families.lda.schedule import ACTIVE_TOPICS, DENSE_PASSES

    # The default of --dense-passes is None, so the test of the defaults does not see it.
    text = " ".join(fit._parser().format_help().split())
    assert f"or below {ACTIVE_TOPICS} topics; else {DENSE_PASSES})" in text
    text = " ".join((FitConfig.__doc__ or "").split())
    assert f"fewer than {ACTIVE_TOPICS} topics; else {DENSE_PASSES}," in text
