"""The command: ``python -m esvi_shm.fit``, as a user runs it."""

import functools
import json
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import esvi_shm
from esvi_shm import fit
from tests import commands
from tests.commands import command, write_uci

pytestmark = pytest.mark.usefixtures("nothing_left")
run = functools.partial(commands.run, "fit")


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
    assert "\r" not in done.stderr and "%|" not in done.stderr + done.stdout
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


def test_a_share_held_out_is_judged_and_ends_the_fit(tmp_path, capsys, threads):
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
    assert f"held-out perplexity {found[-1]:.2f} (15 documents" in captured.out
    for share, told in ((0.9, f"; {0.9 * found[-1]:.2f} after 2 passes)"), (0.9995, ")")):
        model.history[0] = model.history[0]._replace(perplexity=share * found[-1])
        model.history[1:-1] = []
        fit._print_results(model, 0)
        assert f"{found[-1]:.2f} (15 documents{told}\n" in capsys.readouterr().out
    assert "held out: 15 documents" in captured.err
    assert f"held-out perplexity {found[0]:.2f}, " in captured.err
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [e["perplexity"] for e in events if e["event"] == "evaluation"] == found


def test_a_file_held_out_is_aligned_by_word(tmp_path, capsys, threads):
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


def test_quiet_and_no_table(tmp_path, capfd):
    arguments = [write_uci(tmp_path), "--topics", "2", "--workers", "1", "--passes", "3"]
    assert fit.main([*arguments, "--quiet", "--top-words", "0"]) == 0
    # Of the worker too.
    captured = capfd.readouterr()
    assert captured.err == ""
    assert "word" not in captured.out


def test_full_disks_under_progress_and_log_do_not_end_a_fit(tmp_path, caplog, threads):
    arguments = [write_uci(tmp_path), "--topics", "2", "--passes", "3", "--workers", "1"]
    assert fit.main([*arguments, "--log-json", "/dev/full"]) == 0
    assert caplog.text.count("/dev/full: No space left on device") == 1
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("fit", *arguments), stdout=subprocess.PIPE, stderr=full, text=True
        )
    assert done.returncode == 0
    assert "ELBO" in done.stdout


def test_interpreted_kernels_are_refused_at_once(tmp_path):
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    for module, arguments in [("fit", []), ("evaluate", [str(tmp_path)])]:
        done = commands.run(module, *arguments, write_uci(tmp_path), env=environment)
        assert done.returncode == 2
        assert done.stderr.startswith(f"esvi_shm.{module}: error: NUMBA_DISABLE_JIT is set")
        assert done.stderr.count("\n") == 1


def test_unused_topics_are_called_so_in_the_table(tmp_path, capsys, threads):
    out = tmp_path / "model"
    arguments = [write_uci(tmp_path), "--topics", "60", "--out", str(out), "--workers", "1"]
    assert fit.main(arguments) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:61]]
    unused = [row for row in lines if row[2:] == ["(unused)"]]
    summary = json.loads((out / "summary.json").read_text())
    assert 0 < len(unused) == summary["n_unused_topics"] < 60
    assert all(row[1] == "0.0%" for row in unused)
    assert all(word.startswith("word") for row in lines if row not in unused for word in row[2:])
    assert [not t.words for t in esvi_shm.load(out).topics(3)] == [row in unused for row in lines]


def test_max_time_ends_a_fit_early(tmp_path, capsys, threads):
    out = tmp_path / "model"
    arguments = [write_uci(tmp_path), "--topics", "3", "--passes", "100000000", "--tol", "0",
                 "--evaluate-every", "0", "--max-time", "0.2", "--workers", "1",
                 "--out", str(out)]  # fmt: skip
    assert fit.main(arguments) == 0
    assert "stopped by max_time" in capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    assert summary["stopped"] == "max_time"
    assert 0 < summary["n_passes"] < 100000000
    assert summary["fit_seconds"] >= 0.2


def run_on_terminal(*arguments: str) -> tuple[str, str]:
    """Standard output, and what a terminal showed of standard error."""
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))  # of no width, there is no room for a bar
    process = subprocess.Popen(
        command("fit", *arguments), stdout=subprocess.PIPE, stderr=terminal, text=True
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


def test_a_terminal_shows_a_bar(tmp_path):
    """And a file plain lines: see the first test."""
    # Long enough that the main process has to wait for the workers.
    arguments = [write_uci(tmp_path), "--topics", "3", "--passes", "2000", "--evaluate-every",
                 "1000", "--tol", "0", "--workers", "1"]  # fmt: skip
    stdout, shown = run_on_terminal(*arguments)
    # One bar for each, however often it moves.
    assert BAR_AT_ITS_END.findall(shown) == ["reading", "fitting"]
    assert "ELBO/token" in shown
    assert "pass 1000" not in shown
    assert "starting workers" in shown
    # The results are the same kind of lines as in a file.
    assert [line.split()[0] for line in stdout.splitlines()[:4]] == ["topic", "0", "1", "2"]
    assert "%|" not in stdout


def test_quiet_is_quiet_on_a_terminal_too(tmp_path):
    arguments = [write_uci(tmp_path), "--topics", "2", "--passes", "3", "--workers", "1"]
    _, shown = run_on_terminal(*arguments, "--quiet")
    assert shown == ""


def test_plan_prints_every_array_and_fits_nothing(tmp_path, capsys):
    arguments = [write_uci(tmp_path), "--topics", "3", "--workers", "2", "--plan"]
    assert fit.main(arguments) == 0
    captured = capsys.readouterr()
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
        assert name in captured.out
    assert "pass" not in captured.err


def test_storage_full_is_planned(tmp_path, capsys):
    assert fit.main([write_uci(tmp_path), "--topics", "3", "--storage", "full", "--plan"]) == 0
    told = capsys.readouterr().out
    assert " phi " in told and "phi_doc" not in told


def test_storage_topk_is_planned_and_fitted(tmp_path, capsys, caplog, threads):
    corpus, folder = write_uci(tmp_path), tmp_path / "model"
    options = "--topics", "3", "--storage", "topk", "--topk", "2", "--residual", "drop"
    assert fit.main([corpus, *options, "--plan"]) == 0
    split = [line.split() for line in capsys.readouterr().out.splitlines()]
    lines = {words[1]: words for words in split if words[0] == "state"}
    assert lines["kept_topic"][4:6] == ["2", "uint8"] and lines["kept"][4:6] == ["2", "float32"]
    quick = "--passes", "3", "--workers", "1", "--out", str(folder)
    assert fit.main([corpus, *options, *quick]) == 0
    config = json.loads((folder / "summary.json").read_text())["config"]
    assert (config["storage"], config["topk"], config["residual"]) == ("topk", 2, "drop")
    assert fit.main([corpus, "--topics", "3", "--topk", "2", "--plan"]) == 0
    assert "--topk has no effect with --storage margins" in caplog.text


def test_more_workers_than_documents_are_clamped_and_said(tmp_path, caplog, capsys):
    arguments = [write_uci(tmp_path, n_documents=2), "--topics", "2", "--workers", "9", "--plan"]
    assert fit.main(arguments) == 0
    assert "9 workers for 2 documents: using 2" in caplog.text
    assert "processes (1 + 2)" in capsys.readouterr().out


@pytest.mark.parametrize("example", sorted((Path(__file__).parents[1] / "examples").glob("*.py")))
def test_examples_run(example, tmp_path):
    done = subprocess.run(  # from elsewhere; from standard input see `runtime.test_ends`
        [sys.executable, str(example), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(esvi_shm.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert "ELBO" in done.stdout
