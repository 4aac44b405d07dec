"""What the commands share: how their errors end, and the options that reading takes."""

import argparse
import functools
import io
import logging
import os
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

import esvi_shm
from esvi_shm import command, store
from esvi_shm.__main__ import COMMANDS
from esvi_shm.corpus import ReadOptions
from esvi_shm.errors import CorpusError, EsviError, Interrupted, ParameterError, ParameterName
from tests.stored import make_model


def test_an_array_is_told_by_its_shape():
    """Its numbers would take many lines."""
    assert str(ParameterError("means", "is odd", np.eye(3))) == "means is odd, got shape (3, 3)"
    assert str(ParameterError("tol", "is odd", np.float64(3).item())) == "tol is odd, got 3.0"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_its_version(name, capsys):
    with pytest.raises(SystemExit) as caught:
        COMMANDS[name].main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.split() == ["esvi_shm", esvi_shm.__version__]


def end(error: BaseException | None, capsys) -> tuple[int, str]:
    def work(given):
        if error is not None:
            raise error

    code = command.run("name", work, argparse.Namespace(quiet=False), {"topics": "n_topics"})
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


@pytest.mark.parametrize(
    "error, code, says",
    [
        (None, 0, ""),
        (EsviError("failed"), 1, "name: error: failed\n"),
        (CorpusError("file", "is bad", 3), 2, "name: error: file, line 3: is bad\n"),
        (Interrupted("second signal"), 130, "name: error: second signal\n"),
        (KeyboardInterrupt(), 130, "name: interrupted\n"),
        (OSError(28, "No space left"), 1, "name: error: [Errno 28] No space left\n"),
        # Parameters are called by their options, whatever they are called inside.
        (ParameterError("n_topics", "must be x", 0), 2, "name: error: --topics must be x, got 0\n"),
        (ParameterError("top_words", "must be", 1), 2, "name: error: --top-words must be, got 1\n"),
    ],
)
def test_errors_end_a_command_with_one_line(error, code, says, capsys):
    assert end(error, capsys) == (code, says)


def test_an_error_calls_a_parameter_by_its_option_only_where_it_is_meant(capsys):
    error = ParameterError("tol", "must be less than tolerance", 1)
    assert end(error, capsys) == (2, "name: error: --tol must be less than tolerance, got 1\n")


@pytest.mark.parametrize("quiet", [True, False])
def test_what_is_found_in_the_data_is_told_quiet_or_not(quiet):
    ours, levels = logging.getLogger("esvi_shm"), []
    before = ours.level
    command.run("name", lambda _: levels.append(ours.level), argparse.Namespace(quiet=quiet), {})
    assert levels == [logging.INFO]
    assert ours.level == before


def test_what_is_logged_calls_parameters_by_their_options(caplog):
    def work(given):
        log = logging.getLogger("esvi_shm.some.module")
        log.warning("%s is %s, not %d", ParameterName("n_topics"), ParameterName("top_words"), 3)
        log.warning("n_topics as a word is %s", "n_topics")
        log.info("nothing")

    caplog.handler.setLevel(logging.INFO)
    for _ in range(2):
        command.run("name", work, argparse.Namespace(quiet=False), {"topics": "n_topics"})
        assert caplog.messages == [
            "--topics is --top-words, not 3", "n_topics as a word is n_topics", "nothing"
        ]  # fmt: skip
        caplog.clear()
    # From Python they keep their names.
    work(None)
    assert caplog.messages[0] == "n_topics is top_words, not 3"


def test_a_reader_that_went_away_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout", None)
    command_end = command.run("name", _broken_pipe, argparse.Namespace(quiet=True), {})
    assert command_end == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["fit", "infer", "evaluate", "simulate", "gc"])
def test_help_imports_nothing_heavy(name):
    code = (
        f"import sys\nfrom esvi_shm import {name}\n"
        f"try: {name}.main(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'numpy', 'numba', 'scipy', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: python -m esvi_shm.{name} ")


def _broken_pipe(given):
    raise BrokenPipeError


def test_every_reading_option_is_on_the_command_line_with_its_default():
    parser = argparse.ArgumentParser()
    command.add_reading_options(parser)
    defaults = vars(parser.parse_args([]))
    assert defaults.pop("format") is None
    assert defaults == {field.name: field.default for field in fields(ReadOptions)}
    given = parser.parse_args(["--min-df", "5", "--max-df", "0.5"])
    assert (type(given.min_df), type(given.max_df)) == (int, float)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_words_that_the_encoding_lacks_are_shown_by_their_codes(encoding, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding))
    work = functools.partial(_print, "t\xe9 \u8336 \udc80")
    assert command.run("name", work, argparse.Namespace(quiet=False), {}) == 0
    shown = {
        "ascii": rb"t\xe9 \u8336 \udc80",
        "latin-1": b"t\xe9 \\u8336 \\udc80",
        "utf-8": "t\xe9 \u8336 ".encode() + rb"\udc80",
    }
    assert raw.getvalue().strip() == shown[encoding]


def _print(text, given):
    print(text)


def test_full_streams_are_an_error_and_no_traceback():
    """Results that were not printed count; words about it are lost where nobody takes them."""
    code = (
        "import argparse, sys\n"
        "from esvi_shm import command\n"
        "def work(given): print('results' * 10000)\n"
        "sys.exit(command.run('name', work, argparse.Namespace(quiet=False), {}))"
    )
    with open("/dev/full", "w") as full:
        for stderr in (subprocess.PIPE, full):
            done = subprocess.run(
                [sys.executable, "-c", code], stdout=full, stderr=stderr, text=True
            )
            assert done.returncode == 1
            if stderr != full:
                assert done.stderr == "name: error: [Errno 28] No space left on device\n"


def test_what_is_read_is_not_written_over(tmp_path):
    corpus, model = tmp_path / "corpus.txt", tmp_path / "model"
    corpus.write_text("tea")
    model.mkdir()
    (tmp_path / "link").symlink_to(corpus)
    command.check_output("json", str(tmp_path / "new"), [str(corpus), None], str(model))
    command.check_output("json", None, [str(corpus)], str(model))
    command.check_output("json", str(tmp_path / "model.json"), [], str(model))
    store.save(make_model(1.0), tmp_path / "another")
    for name in ("new", "summary.json", "gamma.npy"):
        with pytest.raises(ParameterError, match=r"json must not lie in the folder of a model, /"):
            command.check_output("json", str(tmp_path / "another" / name), [], str(model))
    for path in (corpus, tmp_path / "link"):
        with pytest.raises(ParameterError, match="json must not be a file that is read, got"):
            command.check_output("json", str(path), ["stdlib", str(corpus)])
    with pytest.raises(ParameterError, match="json must not lie in "):
        command.check_output("json", str(model / "log"), [str(model)])
    for path in (tmp_path, tmp_path / "gone" / "file"):
        with pytest.raises(ParameterError, match="json must be a file in a folder that exists"):
            command.check_output("json", str(path), [])
    for folder in (model, f"{model}/"):
        with pytest.raises(ParameterError, match="json must not lie in the folder of the model"):
            command.check_output("json", str(model / "log"), [], str(folder))


def test_closed_streams_take_what_is_written(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", None)

    def work(given):
        print("results")
        print("progress", file=sys.stderr)

    assert command.run("name", work, argparse.Namespace(quiet=False), {}) == 0


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    with command.whole_file(str(path)) as file:
        file.write(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    with pytest.raises(KeyboardInterrupt), command.whole_file(str(path)) as file:
        file.write(b"second")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
