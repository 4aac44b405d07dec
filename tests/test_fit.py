"""The command: ``python -m esvi_shm.fit``, as a user runs it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest

import esvi_shm
from esvi_shm import fit
from esvi_shm.config import FitConfig

SHM = Path("/dev/shm")


def write_uci(folder: Path, n_documents: int = 60, n_words: int = 40, name: str = "tea") -> str:
    random = np.random.default_rng(1)
    matrix = random.poisson(0.4, (n_documents, n_words))
    rows, columns = np.nonzero(matrix)
    body = "".join(f"{d + 1} {v + 1} {matrix[d, v]}\n" for d, v in zip(rows, columns, strict=True))
    path = folder / f"docword.{name}.txt"
    path.write_text(f"{n_documents}\n{n_words}\n{len(rows)}\n{body}")
    (folder / f"vocab.{name}.txt").write_text("".join(f"word{v}\n" for v in range(n_words)))
    return str(path)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "esvi_shm.fit", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(command(*arguments), capture_output=True, text=True)


@pytest.fixture(autouse=True)
def nothing_left():
    """Segments of other runs may come and go; those that a test's own fits made must go."""
    before = set(os.listdir(SHM))
    yield
    ours = [n for n in set(os.listdir(SHM)) - before if _is_dead(n)]
    assert ours == []


def _is_dead(name: str) -> bool:
    from esvi_shm.shared.runs import run_folders

    run_name = "-".join(name.split("-")[:3])
    locks = [folder / f"{run_name}.lock" for folder in run_folders()]
    return name.startswith("esvi-") and not any(lock.exists() for lock in locks)


def test_a_fit_from_the_shell(tmp_path):
    out = tmp_path / "model"
    done = run(
        write_uci(tmp_path), "--topics", "4", "--passes", "20", "--workers", "2",
        "--evaluate-every", "5", "--tol", "0", "--out", str(out), "--top-words", "3",
        "--log-json", str(tmp_path / "log"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Results on standard output, and only those; progress on standard error, as plain lines.
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["topic", "share", "words"]
    table = [line.split() for line in lines[1:5]]
    assert [row[0] for row in table] == ["0", "1", "2", "3"]
    assert all(len(row) == 5 and row[2].startswith("word") for row in table)
    assert "ELBO" in lines[-1]
    assert "\r" not in done.stderr
    assert [m for m in re.findall(r"pass (\d+):", done.stderr)] == ["5", "10", "15", "20"]
    model = esvi_shm.load(out)
    assert model.summary["n_workers"] == 2
    assert [record.passes for record in model.history] == [5, 10, 15, 20]
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [e["event"] for e in events if e["event"] != "stage"] == [
        "plan", "evaluation", "evaluation", "evaluation", "evaluation", "summary",
    ]  # fmt: skip
    assert events[-1]["elbo"] == model.elbo
    assert events[-1]["peak_rss_bytes"] == model.summary["peak_rss_bytes"]
    # The plan has no memory for compiling, which is needed once.
    if not any(e.get("name") == "compiling" for e in events):
        (planned,) = (e["peak_bytes"] for e in events if e["event"] == "plan")
        assert planned == pytest.approx(model.summary["peak_rss_bytes"], rel=0.25)


def test_a_share_held_out_is_judged_and_ends_the_fit(tmp_path, capsys):
    corpus, out, log = write_uci(tmp_path), tmp_path / "model", tmp_path / "log"
    arguments = [corpus, "--topics", "4", "--passes", "400", "--workers", "1", "--tol", "0",
                 "--inference", "vb", "--evaluate-every", "2", "--holdout", "0.25", "--patience",
                 "3", "--out", str(out), "--log-json", str(log)]  # fmt: skip
    assert fit.main(arguments) == 0
    captured = capsys.readouterr()
    model = esvi_shm.load(out)
    found = [record.perplexity for record in model.history]
    assert all(1 < perplexity < 60 for perplexity in found)
    assert model.summary["stopped"] == "patience"
    assert min(found) == found[-4]
    assert (model.summary["n_documents"], len(model.gamma)) == (45, 45)
    assert model.summary["holdout"]["n_documents"] == 15
    assert model.summary["holdout_perplexity"] == found[-1]
    assert f"held-out perplexity {found[-1]:.2f} (15 documents)" in captured.out
    assert "held out: 15 documents" in captured.err
    assert f"held-out perplexity {found[0]:.2f}, " in captured.err
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [e["perplexity"] for e in events if e["event"] == "evaluation"] == found


def test_a_file_held_out_is_aligned_by_word(tmp_path, capsys):
    text, other = tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_text("sea ship salt\nship sea rum\nhill tree path\ntree path the\n" * 5)
    other.write_text("tree gull the sea\nship ship sea\n" * 3)
    out = tmp_path / "model"
    arguments = [str(text), "--topics", "2", "--passes", "4", "--workers", "1", "--stop-words",
                 "english", "--min-df", "5", "--out", str(out), "--seed", "3"]  # fmt: skip
    assert fit.main([*arguments, "--holdout", str(other)]) == 0
    assert "outside the vocabulary: 2 words, 6 tokens" in capsys.readouterr().err
    model = esvi_shm.load(out)
    assert model.summary["n_documents"] == 20
    assert model.summary["holdout"]["source"] == str(other)
    from esvi_shm import evaluate

    figures = tmp_path / "figures.json"
    assert evaluate.main([str(out), str(other), "--seed", "3", "--json", str(figures)]) == 0
    wanted = json.loads(figures.read_text())["perplexity"]
    assert model.summary["holdout_perplexity"] == pytest.approx(wanted, rel=1e-6)
    other.write_text("gull\n")
    capsys.readouterr()
    assert fit.main([*arguments, "--holdout", str(other)]) == 2
    assert "b.txt: there must be a word in common" in capsys.readouterr().err


def test_priors_from_the_shell(tmp_path, capsys):
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
    np.save(tmp_path / "c.npy", ["x", "y"])
    assert fit.main([*quick, "--alpha", str(tmp_path / "c.npy")]) == 2
    assert "--alpha must be a number or a vector" in capsys.readouterr().err


def test_restarts_and_repairs_are_told(tmp_path):
    out = tmp_path / "model"
    done = run(
        write_uci(tmp_path), "--topics", "4", "--passes", "12", "--workers", "1", "--tol", "0",
        "--inference", "vb", "--restarts", "2", "--restart-passes", "3", "--repair-after", "6",
        "--evaluate-every", "0", "--out", str(out), "--log-json", str(tmp_path / "log"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["n_passes"] == 12
    assert summary["restarts"][0]["seed"] == 0 and len(summary["restarts"]) == 2
    assert summary["at_rest"].keys() == {"repairs_tried", "repairs_kept"}
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [e["event"] for e in events if e["event"] != "stage"] == [
        "plan", "restart", "restart", "rest", "evaluation", "summary",
    ]  # fmt: skip
    told = [{"seed": e["seed"], "objective": e["objective"]} for e in events[:9]
            if e["event"] == "restart"]  # fmt: skip
    assert told == summary["restarts"]
    assert done.stderr.count("start with seed") == 2
    assert "pass 6: " in done.stderr and "repairs tried" in done.stderr


def test_quiet_and_no_table(tmp_path):
    done = run(write_uci(tmp_path), "--topics", "2", "--quiet", "--top-words", "0")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "word" not in done.stdout


def test_full_disks_under_progress_and_log_do_not_end_a_fit(tmp_path):
    arguments = [write_uci(tmp_path), "--topics", "2", "--passes", "3", "--workers", "1"]
    done = run(*arguments, "--log-json", "/dev/full")
    assert done.returncode == 0
    assert done.stderr.count("WARNING: /dev/full: No space left on device") == 1
    with open("/dev/full", "w") as full:
        done = subprocess.run(command(*arguments), stdout=subprocess.PIPE, stderr=full, text=True)
    assert done.returncode == 0
    assert "ELBO" in done.stdout


def test_interpreted_kernels_are_refused_at_once(tmp_path):
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    for module, arguments in [("fit", []), ("evaluate", [str(tmp_path)])]:
        arguments = [sys.executable, "-m", f"esvi_shm.{module}", *arguments, write_uci(tmp_path)]
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
        assert done.returncode == 2
        assert done.stderr.startswith(f"esvi_shm.{module}: error: NUMBA_DISABLE_JIT is set")
        assert done.stderr.count("\n") == 1


def test_unused_topics_are_called_so_in_the_table(tmp_path):
    out = tmp_path / "model"
    done = run(write_uci(tmp_path), "--topics", "60", "--out", str(out), "--workers", "1")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[1:61]]
    unused = [row for row in lines if row[2:] == ["(unused)"]]
    summary = json.loads((out / "summary.json").read_text())
    assert 0 < len(unused) == summary["n_unused_topics"] < 60
    assert all(row[1] == "0.0%" for row in unused)
    assert all(word.startswith("word") for row in lines if row not in unused for word in row[2:])
    assert [not t.words for t in esvi_shm.load(out).topics(3)] == [row in unused for row in lines]


def test_max_time_ends_a_fit_early(tmp_path):
    out = tmp_path / "model"
    done = run(
        write_uci(tmp_path), "--topics", "3", "--passes", "100000000", "--tol", "0",
        "--evaluate-every", "0", "--max-time", "0.2", "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "stopped by max_time" in done.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert summary["stopped"] == "max_time"
    assert 0 < summary["n_passes"] < 100000000
    assert summary["fit_seconds"] >= 0.2


def run_on_terminal(*arguments: str) -> tuple[str, str]:
    """Standard output, and what a terminal showed of standard error."""
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))  # of no width, there is no room for a bar
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=terminal, text=True
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # EIO: nobody has the terminal open any more
            break
    os.close(ours)
    stdout, _ = process.communicate()
    assert process.returncode == 0, shown
    return stdout, shown.decode()


#: The last state of a bar: the one that the terminal goes to a new line after.
BAR_AT_ITS_END = re.compile(r"\r(\w+): +\d+%\|[^\r]*\r\n")


def test_a_terminal_shows_a_bar_and_a_file_plain_lines(tmp_path):
    # Long enough that the main process has to wait for the workers.
    arguments = [write_uci(tmp_path), "--topics", "3", "--passes", "2000", "--evaluate-every",
                 "1000", "--tol", "0", "--workers", "1"]  # fmt: skip
    stdout, shown = run_on_terminal(*arguments)
    # One bar for each, however often it moves.
    assert BAR_AT_ITS_END.findall(shown) == ["reading", "fitting"]
    assert "ELBO/token" in shown
    assert "pass 1000" not in shown
    assert "starting workers" in shown
    done = run(*arguments)
    assert "\r" not in done.stderr and "%|" not in done.stderr
    assert re.findall(r"^pass (\d+): ELBO ", done.stderr, re.M) == ["1000", "2000"]
    # The results are the same kind of lines for both.
    for text in (stdout, done.stdout):
        assert [line.split()[0] for line in text.splitlines()[:4]] == ["topic", "0", "1", "2"]
        assert "%|" not in text


def test_quiet_is_quiet_on_a_terminal_too(tmp_path):
    _, shown = run_on_terminal(write_uci(tmp_path), "--topics", "2", "--passes", "3", "--quiet")
    assert shown == ""


def test_plan_prints_every_array_and_fits_nothing(tmp_path):
    done = run(write_uci(tmp_path), "--topics", "3", "--workers", "2", "--plan")
    assert done.returncode == 0
    for name in (
        "lambda_",
        "gamma",
        "phi_doc",
        "phi_word",
        "pair_word",
        "rings",
        "total",
        "private arrays of the workers (2)",
        "processes (1 + 2)",
        "peak",
    ):
        assert name in done.stdout
    assert "pass" not in done.stderr


def test_storage_full_is_planned_and_fitted(tmp_path):
    done = run(write_uci(tmp_path), "--topics", "3", "--storage", "full", "--passes", "3", "--plan")
    assert " phi " in done.stdout and "phi_doc" not in done.stdout


def test_storage_topk_is_planned_and_fitted(tmp_path):
    corpus, folder = write_uci(tmp_path), tmp_path / "model"
    options = "--topics", "3", "--storage", "topk", "--topk", "2", "--residual", "drop"
    planned = run(corpus, *options, "--plan")
    split = [line.split() for line in planned.stdout.splitlines()]
    lines = {words[1]: words for words in split if words[0] == "state"}
    assert lines["kept_topic"][4:6] == ["2", "uint8"] and lines["kept"][4:6] == ["2", "float32"]
    done = run(corpus, *options, "--passes", "3", "--workers", "1", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    config = json.loads((folder / "summary.json").read_text())["config"]
    assert (config["storage"], config["topk"], config["residual"]) == ("topk", 2, "drop")
    told = run(corpus, "--topics", "3", "--topk", "2", "--plan").stderr
    assert "WARNING: topk has no effect with storage margins\n" in told


def test_version_and_help_import_nothing_heavy():
    code = (
        "import sys\nfrom esvi_shm import fit\n"
        "try: fit.main(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'numpy', 'numba', 'scipy', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert run("--version").stdout.split() == ["esvi_shm", esvi_shm.__version__]


def test_the_help_tells_the_defaults():
    defaults = vars(fit._parser().parse_args([]))
    config = fit._config(fit._parser().parse_args([]))
    assert config == FitConfig()
    text = fit._parser().format_help()
    for option in ("topics", "alpha", "eta", "passes", "evaluate_every", "route", "storage"):
        assert f"(default: {defaults[option]})" in " ".join(text.split())


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
        f"INFO: {corpus}: word ids begin with 1, since no 0 occurs (else give first_id)",
        "WARNING: cvb0_passes has no effect with inference vb",
        "WARNING: refold_after 200 has no effect in 100 passes",
    ]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--refold-after", "0"], "--refold-after must be at least 1, got 0"),
        (["--cvb0-passes", "100"], "--cvb0-passes must be less than the 100 passes of anneal"),
        (["--transpose", "--format", "ldac"], "--transpose is not for the format ldac, got True"),
        (["--max-df", "1"], "--max-df is not for the format uci, got 1"),
        (["--first-id", "1"], "--first-id is not for the format uci, got 1"),
        (["--topics", "0"], "--topics must be at least 1, got 0"),
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
        (["--alpha", "0.1,0.2"], "--alpha must be a number or have 50 values, got (2,)"),
        (["--eta", "0.1,0.2"], "--eta must be a number or have 40 values, got (2,)"),
        (["--alpha", "0.1,-1", "--topics", "2"], "--alpha must lie between 1e-6 and 1e6, got -1.0"),
        (["--alpha", "nowhere.npy"], "--alpha must be a .npy file of numbers"),
        (["--learn-priors", "x"], "--learn-priors must be one of alpha, both, eta, none, got 'x'"),
        (
            ["--learn-priors", "x", "--eta", "auto"],
            "--learn-priors must be one of alpha, both, eta",
        ),
        (["--symmetric-alpha"], "--learn-priors must be alpha or both with symmetric_alpha"),
        (
            ["--inference", "cvb0", "--alpha", "auto"],
            "--learn-priors must come with holdout under cvb0, got 'alpha'",
        ),
        (["--alpha", "nan"], "--alpha must be greater than 0, got nan"),
        (["--max-time", "0"], "--max-time must be greater than 0, got 0.0"),
        (["--restarts", "0"], "--restarts must be at least 1, got 0"),
        (["--restart-passes", "0"], "--restart-passes must be at least 1, got 0"),
        (["--repair-after", "60,30"], "--repair-after must lie where the updates stay the same"),
        (["--repair-after", "0"], "--repair-after must be at least 1, got 0"),
        (["--route", "x"], "--route must be one of balanced, lap, random, ring, got 'x'"),
        (["--storage", "x"], "--storage must be one of full, margins, topk, got 'x'"),
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
        (["--format", "x"], "--format must be one of"),
        (["--holdout", "1"], "--holdout as a share of the documents must lie in (0, 1), got 1.0"),
        (["--holdout", "nan"], "--holdout as a share of the documents must lie in (0, 1), got nan"),
        (["--holdout", "0.001"], "--holdout must set aside some and not all of 60 documents"),
        (["--holdout", "nowhere.txt"], "nowhere.txt"),
        (["--patience", "0", "--holdout", "0.5"], "--patience must be at least 1, got 0"),
        (["--patience", "2"], "--patience must come with holdout, got 2"),
        (["--deterministic", "--route", "random"], "--route must be lap or ring"),
        (["--stop-words", "english"], "--stop-words"),
        (["--min-df", "2"], "--min-df"),
        (["--topics", "2000000000"], "not enough memory"),
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


def test_a_fit_from_a_model_and_from_words(tmp_path, caplog, capsys):
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


def test_more_workers_than_documents_are_clamped_and_said(tmp_path):
    done = run(write_uci(tmp_path, n_documents=2), "--topics", "2", "--workers", "9")
    assert done.returncode == 0
    assert "9 workers for 2 documents: using 2" in done.stderr


def _start_long_fit(tmp_path: Path) -> tuple[subprocess.Popen, Path]:
    """A fit that would take very long, with its work under way."""
    out = tmp_path / "model"
    arguments = command(
        write_uci(tmp_path, 400, 200), "--topics", "8", "--passes", "100000000", "--tol", "0",
        "--evaluate-every", "20", "--workers", "2", "--out", str(out),
    )  # fmt: skip
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    for line in process.stderr:
        if line.startswith("pass 20:"):
            return process, out
    raise AssertionError("the fit ended before its work was under way")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_saves_what_there_is(number, tmp_path):
    process, out = _start_long_fit(tmp_path)
    os.killpg(process.pid, number)  # as a terminal or a batch system does: to all of them
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert f"stopped by {number.name}" in stdout
    assert stderr.count(f"WARNING: the fit was ended by {number.name} after ") == 1
    model = esvi_shm.load(out)
    assert model.summary["stopped"] == number.name
    np.testing.assert_allclose(
        (model.lambda_ - model.eta[:, None]).sum(), model.summary["n_tokens"], rtol=1e-5
    )


def test_the_second_signal_aborts(tmp_path):
    process, out = _start_long_fit(tmp_path)
    # Stop the workers so that the first signal cannot end the fit before the second comes.
    # (Not the resource tracker: it would stay stopped.)
    children = [int(pid) for pid in _children(process.pid) if _is_worker(pid)]
    assert len(children) == 2
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGINT)
    while _pending(process.pid, signal.SIGINT):
        pass
    os.kill(process.pid, signal.SIGTERM)
    _, stderr = process.communicate()
    assert process.returncode == 143, stderr
    assert "second signal" in stderr
    assert not out.exists()
    assert not any(_alive(pid) for pid in children)


def test_a_burst_of_signals_in_the_passes_aborts_with_one_line(tmp_path):
    process, out = _start_long_fit(tmp_path)
    children = [int(pid) for pid in _children(process.pid) if _is_worker(pid)]
    for pid in children:
        os.kill(pid, signal.SIGSTOP)  # see above
    for _ in range(6):
        os.kill(process.pid, signal.SIGINT)
        while _alive(process.pid) and _pending(process.pid, signal.SIGINT):
            pass
    _, stderr = process.communicate()
    # A shell says 130 of both; the second is for one in the moment before the interpreter ends.
    assert process.returncode in (130, -signal.SIGINT), stderr
    last = stderr.splitlines()[-1]
    assert last == "esvi_shm.fit: error: stopped by the second signal; nothing was saved"
    assert "Traceback" not in stderr
    assert not out.exists()
    assert not any(_alive(pid) for pid in children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_burst_of_signals_among_the_imports_ends_with_one_line(number, tmp_path):
    """Raised within the import of compiled code, an exception would be printed by that code."""
    process = subprocess.Popen(
        command(write_uci(tmp_path), "--out", str(tmp_path / "model")),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while "numpy" not in Path(f"/proc/{process.pid}/maps").read_text():
        assert process.poll() is None
    for _ in range(6):
        os.kill(process.pid, number)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (128 + number, "")
    assert stderr == "esvi_shm.fit: interrupted\n"
    assert sorted(os.listdir(tmp_path)) == ["docword.tea.txt", "vocab.tea.txt"]


@pytest.mark.parametrize("module", ["fit", "evaluate", "gc"])
def test_a_ctrl_c_before_all_is_imported_just_ends_the_command(module):
    code = (
        "import os, runpy, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Striking:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'argparse': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.modules.pop('argparse', None)\n"
        "sys.meta_path.insert(0, Striking())\n"
        f"runpy.run_module('esvi_shm.{module}', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _pending(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [int(m, 16) for m in re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", status, re.M)]
    return any(mask >> (number - 1) & 1 for mask in masks)


def _alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_killed_worker_is_named(tmp_path):
    process, out = _start_long_fit(tmp_path)
    workers = [pid for pid in _children(process.pid) if _is_worker(pid)]
    assert len(workers) == 2
    os.kill(int(workers[1]), signal.SIGKILL)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert f"worker 1 (process {workers[1]}) was ended by signal SIGKILL" in stderr
    assert "likely cause" in stderr
    assert not out.exists()
    assert not any(_alive(int(pid)) for pid in workers)


def _is_worker(pid: str) -> bool:
    return b"runtime.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("example", sorted((Path(__file__).parents[1] / "examples").glob("*.py")))
def test_examples_run(example, tmp_path):
    # From elsewhere, and from standard input: neither a file nor a main guard is needed.
    for arguments, given in [([str(example)], None), (["-"], example.read_text())]:
        done = subprocess.run(
            [sys.executable, *arguments, str(tmp_path)],
            input=given,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(esvi_shm.__file__).parents[1])},
        )
        assert done.returncode == 0, done.stderr
        assert "ELBO" in done.stdout
