"""What the commands share: how their errors end, and the options that reading takes."""

import argparse
import logging
import sys
from dataclasses import fields

import pytest

from esvi_shm import command
from esvi_shm.corpus import ReadOptions
from esvi_shm.errors import CorpusError, EsviError, Interrupted, ParameterError


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


@pytest.mark.parametrize(("quiet", "level"), [(True, logging.ERROR), (False, logging.INFO)])
def test_decisions_are_told_unless_it_is_to_be_quiet(quiet, level):
    ours, levels = logging.getLogger("esvi_shm"), []
    before = ours.level
    command.run("name", lambda _: levels.append(ours.level), argparse.Namespace(quiet=quiet), {})
    assert levels == [level]
    assert ours.level == before


def test_a_reader_that_went_away_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout", None)
    command_end = command.run("name", _broken_pipe, argparse.Namespace(quiet=True), {})
    assert command_end == 0
    assert capsys.readouterr().err == ""


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


def test_closed_streams_take_what_is_written(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", None)

    def work(given):
        print("results")
        print("progress", file=sys.stderr)

    assert command.run("name", work, argparse.Namespace(quiet=False), {}) == 0
