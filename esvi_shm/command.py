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
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from esvi_shm import __version__
from esvi_shm.errors import EsviError, Interrupted, ParameterError, ParameterName
from esvi_shm.runtime.signals import Signals, broken_off
from esvi_shm.runtime.signals import end as end  # of the commands

if TYPE_CHECKING:
    from esvi_shm.corpus import Corpus
    from esvi_shm.corpus.range import Range, Share
    from esvi_shm.mixture import FittedMixture
    from esvi_shm.model import FittedModel
    from esvi_shm.progress import Progress
    from esvi_shm.runtime.record import Keep, Result

_log = logging.getLogger(__name__)

#: What a corpus may be, for the help of a command.
FORMATS = (
    "UCI docword file, LDA-C, Matrix Market (documents x words), svmlight, scipy .npz, "
    "a text file with one document a line, or a folder of .txt files (words of text: lower case, "
    "runs of two or more letters, digits or underscores)"
)


def make_parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """The parser of a command, with what --help says around the options, and --version."""
    parser = argparse.ArgumentParser(
        prog=f"python -m esvi_shm.{name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"esvi_shm {__version__}")
    return parser


def add_model_and_corpus(parser: argparse.ArgumentParser) -> Any:
    """Add MODEL and CORPUS with its options, and return the group of the latter."""
    parser.add_argument("model", metavar="MODEL", help="model directory, from fit --out")
    corpus = parser.add_argument_group("corpus")
    corpus.add_argument("corpus", metavar="CORPUS", help=FORMATS)
    add_reading_options(corpus)
    return corpus


def _share_or_number(text: str) -> int | float:
    """'5' is a number of documents, '0.5' a share of them."""
    return float(text) if "." in text or "e" in text.lower() else int(text)


#: The options of `add_reading_options`, with their defaults.
READING = {
    "format": None, "vocabulary": None, "transpose": False, "stop_words": None, "first_id": None,
    "max_vocabulary": None, "min_df": 1, "max_df": 1.0,
}  # fmt: skip


def numbers(name: str, text: str, rule: str) -> Any:
    """What an option says: a number, a vector of numbers with commas between, or a .npy file.

    Parameters
    ----------
    name, text : str
        The option, and what was given.
    rule : str
        What is told of text that is none of these.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> numbers("alpha", "0.1", "must be numbers"), numbers("alpha", "1,2", "must be numbers")
    (0.1, array([1., 2.]))
    """
    import numpy as np

    if text.endswith(".npy"):
        try:
            # What is mapped is as long as it says.
            array = np.load(text, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, OverflowError, zipfile.BadZipFile) as error:
            raise ParameterError(name, f"must be a .npy file of numbers ({error})", text) from None
        if not isinstance(array, np.ndarray):
            raise ParameterError(name, "must be a .npy file of numbers (it is an .npz)", text)
        return np.array(array) if array.ndim else array.item()
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(name, rule, text) from None
    return found[0] if len(found) == 1 else np.array(found)


def refuse(given: argparse.Namespace, defaults: Mapping[str, Any], where: str) -> None:
    """Refuse options that say nothing, rather than leave them unheard.

    Parameters
    ----------
    given : argparse.Namespace
    defaults : dict
        The options, with their defaults.
    where : str
        What they have no meaning with.

    Raises
    ------
    ParameterError
    """
    for name, default in defaults.items():
        if getattr(given, name) != default:
            raise ParameterError(name, f"has no meaning {where}", getattr(given, name))


def add_reading_options(group: Any) -> None:
    """Add the options that `read` honours to a parser or a group of its arguments."""
    group.add_argument(
        "--format", metavar="NAME", help="format of CORPUS (default: told by its name)"
    )
    group.add_argument(
        "--vocabulary", metavar="FILE",
        help="words, line i the i-th word of the matrix or file (default: vocab.X.txt beside "
        "docword.X.txt, X.vocab or vocab.txt beside LDA-C, else w0, w1...); it may name more words "
        "than occur in LDA-C and svmlight, and must name each in UCI, Matrix Market and .npz; "
        "text: the words that count, all others do not",
    )  # fmt: skip
    group.add_argument("--transpose", action="store_true", help="the matrix is words x documents")
    group.add_argument(
        "--min-df", type=_share_or_number, default=1, metavar="N",
        help="text: drop words in fewer documents; 5 is a number, 0.01 a share (default: 1); not "
        "with --vocabulary",
    )  # fmt: skip
    group.add_argument(
        "--max-df", type=_share_or_number, default=1.0, metavar="N",
        help="text: drop words in more documents, likewise (default: 1.0, a share: none); not with "
        "--vocabulary",
    )  # fmt: skip
    group.add_argument(
        "--stop-words", metavar="english|FILE",
        help="text: words to drop, one a line, in any case (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--max-vocabulary", type=int, metavar="N",
        help="text: keep the N most frequent words (default: all); not with --vocabulary",
    )  # fmt: skip
    group.add_argument(
        "--first-id", type=int, metavar="0|1",
        help="svmlight: id of the first word (default: 0 if a 0 occurs, else 1; told when read)",
    )  # fmt: skip


def check_out(folder: str | None, save_every: int | None) -> None:
    """Refuse what will not do of --out and --save-every, before anything is read.

    Raises
    ------
    ParameterError
    ModelError
    """
    from esvi_shm import store

    if save_every is not None:
        if folder is None:
            raise ParameterError("save_every", "must come with %s", save_every, "out")
        if save_every < 1:
            raise ParameterError("save_every", "must be at least 1", save_every)
    if folder is not None:
        store.check_target(folder)


def keep(
    every: int | None,
    folder: str | None,
    model_of: "Callable[[Result], FittedModel | FittedMixture]",
    progress: "Progress | None",
) -> "Keep | None":
    """What has a fit save its model while it is under way, if every so many passes are asked for.

    What keeps a model from being saved does not end the fit: it says so, and an older one stays.

    Parameters
    ----------
    every, folder
        As for `check_out`.
    model_of : callable
        The model of a result.
    progress : Progress or None
        None: this node saves nothing, another one does.
    """
    from esvi_shm import store
    from esvi_shm.errors import ModelError
    from esvi_shm.runtime.record import Keep

    if every is None or folder is None:
        return None

    def save(result: "Result") -> None:
        if progress is None:
            return
        try:
            store.save(model_of(result), folder)
        except (ModelError, OSError) as error:
            _log.warning(
                "pass %g: the model cannot be saved, and the fit goes on: %s", result.passes, error
            )
        else:
            progress.say(f"pass {result.passes:g}: saved in {folder}")

    return Keep(every, save)


@contextlib.contextmanager
def told_all_the_same(tell: Callable[[], None]) -> Iterator[None]:
    """Where a model cannot be saved after all, tell what was found: it took long."""
    from esvi_shm.errors import ModelError

    try:
        yield
    except (ModelError, OSError):
        tell()
        raise


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to write that is there whole or not at all, and in place of an older one.

    Parameters
    ----------
    path : str
    """
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, aside = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's mode is the owner's alone; an ordinary file has what the umask leaves.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(aside, 0o666 & ~mask)
        os.replace(aside, path)
    except BaseException as error:
        os.unlink(aside)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path  # of a write nobody else says where it was to go
        raise


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
    from esvi_shm.corpus.range import EVERYTHING

    corpus = read_range(given, path, progress, EVERYTHING).corpus
    tell_size(corpus, progress)
    return corpus


def read_range(
    given: argparse.Namespace, path: str | None, progress: "Progress", share: "Share"
) -> "Range":
    """Read a range of a corpus, and nothing is told; see `read`."""
    from esvi_shm.corpus import ReadOptions
    from esvi_shm.corpus.readers import read_range

    options = ReadOptions(
        transpose=given.transpose,
        vocabulary=given.vocabulary,
        min_df=given.min_df,
        max_df=given.max_df,
        stop_words=given.stop_words,
        max_vocabulary=given.max_vocabulary,
        first_id=given.first_id,
    )
    return read_range(path, given.format, options, progress.reading, share)


def tell_size(corpus: Any, progress: "Progress") -> None:
    """Tell how large a corpus is, or what several nodes have of it together."""
    progress.n_tokens = corpus.n_tokens
    progress.say(
        f"{corpus.name}: {corpus.n_documents:,} documents, {corpus.n_words:,} words, "
        f"{corpus.n_pairs:,} pairs, {corpus.n_tokens:,} tokens"
    )


def check_output(
    name: str,
    path: str | None,
    read: Iterable[str | None],
    folder: str | None = None,
    begins: bytes = b"",
) -> None:
    """Refuse, before the work begins, what cannot be written or would do harm.

    A file that is read is not written over, and a model's folder holds nothing else.

    Parameters
    ----------
    name : str
        Of the option that says where to write.
    path : str or None
    read : iterable of str or None
        Files and folders that the command reads.
    folder : str, optional
        Of the model.
    begins : bytes
        What a file begins with that may be written over: not every file that is read is named.

    Raises
    ------
    ParameterError
    """
    if path is None:
        return
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(parent):
        raise ParameterError(name, "must be a file in a folder that exists", path)
    if folder is not None and os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep):
        raise ParameterError(name, f"must not lie in the folder of the model, {folder}", path)
    from esvi_shm import store

    if store.is_model(parent):
        rule = f"must not lie in the folder of a model, {os.path.dirname(path) or os.curdir}"
        raise ParameterError(name, rule, path)
    for other in filter(None, read):
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise ParameterError(name, "must not be a file that is read", path)
        if os.path.isdir(other) and os.path.realpath(parent) == os.path.realpath(other):
            raise ParameterError(name, f"must not lie in {other}, which is read", path)
    if begins and os.path.isfile(path):
        with open(path, "rb") as file:
            first = file.read(len(begins))
        if first not in (b"", begins):
            rule = f"must be a new file, or one that begins with {begins.decode()}"
            raise ParameterError(name, rule, path)


def _option(parameter: str, parameters: Mapping[str, str]) -> str:
    """The option that sets a parameter, where `parameters` says for each option what it sets.

    An argument without a name is written in capitals there, as --help has it.
    """
    option = {of: option for option, of in parameters.items()}.get(parameter, parameter)
    return option if option.isupper() else "--" + option.replace("_", "-")


def _as_options(error: EsviError, parameters: Mapping[str, str]) -> str:
    """The message, with a parameter called by the option that sets it."""
    if isinstance(error, ParameterError):
        return str(error.renamed(lambda name: _option(name, parameters)))
    return str(error)


@contextlib.contextmanager
def _log_with_options(parameters: Mapping[str, str]) -> Iterator[None]:
    """What is logged calls a parameter by its option too."""

    def rename(record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                _option(value, parameters) if isinstance(value, ParameterName) else value
                for value in record.args
            )
        return True

    # Of a logger only its own records are filtered, of a handler those of all below.
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(rename)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(rename)


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
    logging.basicConfig(format="%(levelname)s: %(message)s", stream=sys.stderr)
    # What this package found or decided is told, quiet or not: that is no progress. Of others,
    # warnings.
    ours = logging.getLogger("esvi_shm")
    before = ours.level
    ours.setLevel(logging.INFO)
    try:
        with _log_with_options(parameters), Signals(at_once=True) as signals:
            return _done(name, work, given, parameters, signals)
    finally:
        ours.setLevel(before)


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
        if isinstance(error, Interrupted):
            broken_off.append(error)
        _tell(f"{name}: error: {_as_options(error, parameters)}")
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        broken_off.append(interrupt)
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


def share_of(text: str | None) -> float | None:
    """The share that --holdout asks for; None for a file, or without the option."""
    from esvi_shm.metrics.holdout import check_share

    try:
        return None if text is None else check_share(float(text))
    except ParameterError:
        raise
    except ValueError:
        return None
