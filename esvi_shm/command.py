"""What the commands share: the options that say how a corpus is read, and how errors end a command.

Only the standard library is imported at the top, as in the commands themselves.
"""

import argparse
import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from esvi_shm.errors import EsviError, ParameterError
from esvi_shm.runtime.signals import ASKING_TO_STOP, Signals

if TYPE_CHECKING:
    from esvi_shm.corpus import Corpus
    from esvi_shm.progress import Progress

#: What a corpus may be, for the help of a command.
FORMATS = (
    "UCI docword file, LDA-C, Matrix Market (documents x words), svmlight, scipy .npz, "
    "a text file with one document a line, or a folder of .txt files"
)


def _share_or_number(text: str) -> int | float:
    """'5' is a number of documents, '0.5' a share of them."""
    return float(text) if "." in text or "e" in text.lower() else int(text)


def add_reading_options(group: Any) -> None:
    """Add the options that `read` honours to a parser or a group of its arguments."""
    group.add_argument(
        "--format", metavar="NAME", help="format of CORPUS (default: told by its name)"
    )
    group.add_argument(
        "--vocabulary", metavar="FILE",
        help="words, one a line (default: vocab.X.txt beside docword.X.txt)",
    )  # fmt: skip
    group.add_argument("--transpose", action="store_true", help="the matrix is words x documents")
    group.add_argument(
        "--min-df", type=_share_or_number, default=1, metavar="N",
        help="text: drop words in fewer documents; 5 is a number, 0.01 a share (default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--max-df", type=_share_or_number, default=1.0, metavar="N",
        help="text: drop words in more documents (default: 1.0)",
    )  # fmt: skip
    group.add_argument(
        "--stop-words", metavar="english|FILE", help="text: words to drop (default: none)"
    )
    group.add_argument(
        "--max-vocabulary", type=int, metavar="N", help="text: keep the N most frequent words"
    )


def read(given: argparse.Namespace, path: str | None, progress: "Progress") -> "Corpus":
    """Read a corpus as the options say, and tell its size.

    Parameters
    ----------
    given : argparse.Namespace
        With the options of `add_reading_options`.
    path : str or None
        As for `esvi_shm.corpus.read_corpus`, whose errors it raises.
    progress : Progress
    """
    from esvi_shm.corpus import ReadOptions, read_corpus

    options = ReadOptions(
        transpose=given.transpose,
        vocabulary=given.vocabulary,
        min_df=given.min_df,
        max_df=given.max_df,
        stop_words=given.stop_words,
        max_vocabulary=given.max_vocabulary,
    )
    corpus = read_corpus(path, given.format, options, progress.reading)
    progress.n_tokens = corpus.n_tokens
    progress.say(
        f"{corpus.name}: {corpus.n_documents:,} documents, {corpus.n_words:,} words, "
        f"{corpus.n_pairs:,} pairs, {corpus.n_tokens:,} tokens"
    )
    return corpus


def check_output(
    name: str, path: str | None, read: Iterable[str | None], folder: str | None = None
) -> None:
    """Refuse to write over what is read, or into a model's folder, which holds nothing else.

    Parameters
    ----------
    name : str
        Of the option that says where to write.
    path : str or None
    read : iterable of str or None
        Files that the command reads.
    folder : str, optional
        Of the model.

    Raises
    ------
    ParameterError
    """
    if path is None:
        return
    if folder is not None and os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep):
        raise ParameterError(name, f"must not lie in the folder of the model, {folder}", path)
    for other in filter(None, read):
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise ParameterError(name, "must not be a file that is read", path)


def _as_options(error: EsviError, parameters: Mapping[str, str]) -> str:
    """The message, with a parameter called by the option that sets it."""
    if isinstance(error, ParameterError):
        options = {parameter: option for option, parameter in parameters.items()}
        option = options.get(error.name, error.name).replace("_", "-")
        return str(error).replace(error.name, f"--{option}", 1)
    return str(error)


def run(
    name: str,
    work: Callable[[argparse.Namespace], None],
    given: argparse.Namespace,
    parameters: Mapping[str, str],
) -> int:
    """Do the work of a command, with one line on standard error where it fails.

    Parameters
    ----------
    name : str
        The command's, for its messages.
    work : callable
        Called with `given`; prints its results.
    given : argparse.Namespace
        With `quiet`.
    parameters : dict of str
        Option: the parameter it sets, where the names differ.

    Returns
    -------
    int
        The exit code.
    """
    # A stream that was closed by whoever called takes what is written, and forgets it.
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A word that the terminal's encoding lacks is shown by its code, as on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    level = logging.ERROR if given.quiet else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s: %(message)s", stream=sys.stderr)
    with Signals(at_once=True) as signals:
        return _done(name, work, given, parameters, signals)


def end(code: int) -> NoReturn:
    """End the process with an exit code, which a Ctrl-C that comes only now does not change."""
    for number in ASKING_TO_STOP:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def _done(
    name: str,
    work: Callable[[argparse.Namespace], None],
    given: argparse.Namespace,
    parameters: Mapping[str, str],
    signals: Signals,
) -> int:
    """Do the work, and tell how it ended."""
    try:
        work(given)
        sys.stdout.flush()
    except EsviError as error:
        _tell(f"{name}: error: {_as_options(error, parameters)}")
        return error.exit_code
    except KeyboardInterrupt:
        _tell(f"{name}: interrupted")
        return 128 + (signals.received or signal.SIGINT)
    except BrokenPipeError:
        # Whoever read the results has read enough; the interpreter must not flush again.
        # (Pipes to workers and lines of progress end otherwise: see `processes`, `progress`.)
        sys.stdout = None
        return 0
    except OSError as error:
        _tell(f"{name}: error: {error}")
        try:
            sys.stdout.flush()
        except OSError:
            sys.stdout = None  # as above
        return 1
    return 0


def _tell(text: str) -> None:
    """A line on standard error; lost where nobody takes it."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)
