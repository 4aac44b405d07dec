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


def test_quiet_and_no_table(tmp_path):
    done = run(write_uci(tmp_path), "--topics", "2", "--quiet", "--top-words", "0")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "word" not in done.stdout


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
    for name in ("lambda_", "gamma", "phi_doc", "phi_word", "pair_word", "rings", "total"):
        assert name in done.stdout
    assert "pass" not in done.stderr


def test_storage_full_is_planned_and_fitted(tmp_path):
    done = run(write_uci(tmp_path), "--topics", "3", "--storage", "full", "--passes", "3", "--plan")
    assert " phi " in done.stdout and "phi_doc" not in done.stdout


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


@pytest.mark.parametrize(
    "arguments, says",
    [
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
        (["--alpha", "nan"], "--alpha must be greater than 0, got nan"),
        (["--max-time", "0"], "--max-time must be greater than 0, got 0.0"),
        (["--route", "x"], "--route must be one of balanced, lap, random, ring, got 'x'"),
        (["--storage", "x"], "--storage must be one of full, margins, got 'x'"),
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


def test_a_fit_from_a_model_and_from_words(tmp_path, capsys, caplog):
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
