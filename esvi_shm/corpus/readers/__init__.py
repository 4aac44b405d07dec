"""Reading a corpus from a file or a folder: one module a format.

The registry is this folder: a module whose name has no leading underscore is a reader, and its
name is the format's. Readers elsewhere come through the entry point group `esvi_shm.readers`,
each a module, or an object like one, under its format's name. A reader offers

    FORMAT : str                                   its name
    OPTIONS : frozenset of str                     the fields of ReadOptions that it honours
    matches(path) -> bool                          whether the path's name is one of its own
    read(path, options, progress) -> Corpus        or a CorpusError

or, in place of `read`, so that a node need not hold the documents of others (see `corpus.range`)

    read_range(path, options, progress, share) -> Range

Listing the formats imports none of them.
"""

import importlib
import importlib.metadata
import os
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.errors import CorpusError, ParameterError

if TYPE_CHECKING:
    from esvi_shm.corpus.range import Range, Share

GROUP = "esvi_shm.readers"


def known_formats() -> tuple[str, ...]:
    """Return the names of all formats, sorted.

    Examples
    --------
    >>> "uci" in known_formats()
    True
    """
    return tuple(sorted({*_own(), *_plugins()}))


def find_reader(format: str) -> Any:
    """Return the reader of a format.

    Raises
    ------
    ParameterError
        When there is no such format; the message lists the known ones.

    Examples
    --------
    >>> find_reader("uci").FORMAT
    'uci'
    """
    if format in _own():
        return importlib.import_module(f"{__name__}.{format}")
    if format in (plugins := _plugins()):
        return plugins[format].load()
    raise ParameterError("format", f"must be one of {', '.join(known_formats())}", format)


def read_corpus(
    path: str | os.PathLike[str] | None = None,
    format: str | None = None,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Read a corpus.

    Parameters
    ----------
    path : path, optional
        A file or a folder; None reads the demonstration corpus `stdlib`.
    format : str, optional
        One of `known_formats`; by default the one whose names match that of the path.
    options : ReadOptions, optional
        What else to ask of the reader.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` from time to time.

    Raises
    ------
    CorpusError
        When the file is not what its format says: names the file, the line, the rule, the value.
    ParameterError
        When the format is not known, or an option means nothing to it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "docword.tea.txt")
    >>> _ = path.write_text("2\\n3\\n2\\n1 1 4\\n2 3 1\\n")
    >>> read_corpus(path).n_tokens
    5
    """
    from esvi_shm.corpus.range import EVERYTHING

    return read_range(path, format, options, progress, EVERYTHING).corpus


def read_range(
    path: str | os.PathLike[str] | None,
    format: str | None,
    options: ReadOptions | None,
    progress: Progress | None,
    share: "Share",
) -> "Range":
    """Read a range of a corpus.

    Parameters
    ----------
    path, format, options, progress
        As for `read_corpus`, whose errors it raises.
    share : esvi_shm.corpus.range.Share
        Which of how many ranges.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from esvi_shm.corpus.range import Share
    >>> path = pathlib.Path(tempfile.mkdtemp(), "docword.tea.txt")
    >>> _ = path.write_text("2\\n3\\n2\\n1 1 4\\n2 3 1\\n")
    >>> found = read_range(path, None, None, None, Share(1, 2))
    >>> found.first, found.corpus.n_documents, found.corpus.n_tokens
    (1, 1, 1)
    """
    options = options or ReadOptions()
    if path == "":  # which pathlib takes for the current folder
        raise CorpusError("''", "a path must name a file or a folder, and is empty")
    if path is None:
        format = format or "stdlib"
    else:
        path = Path(path)
        format = format or _format_of(path)
    reader = find_reader(format)
    honoured = getattr(reader, "OPTIONS", None)
    for name, value in options.given().items():
        if honoured is not None and name not in honoured:
            raise ParameterError(name, f"is not for the format {format}", value)
    if path is None and format != "stdlib":
        raise ParameterError("path", f"must be given for the format {format}", path)
    if hasattr(reader, "read_range"):
        return reader.read_range(path, options, progress, share)
    from esvi_shm.corpus.range import Range, cut

    corpus = reader.read(path, options, progress)
    return Range(corpus, 0, corpus.n_documents, "") if share.n == 1 else cut(corpus, share)


def _own() -> list[str]:
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return [name for name in names if not name.startswith("_")]


def _plugins() -> dict[str, Any]:
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def _format_of(path: Path) -> str:
    # That it is missing is the better message where the name says nothing either.
    if not os.path.exists(path):  # false too where no file can have that name
        raise CorpusError(path, "there is no such file or folder")
    matching = [name for name in known_formats() if find_reader(name).matches(path)]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(known_formats())
    if matching:
        raise CorpusError(path, f"may be {' or '.join(matching)}: name the format")
    hint = " (or is it points of a mixture?)" if str(path).endswith((".npy", ".csv")) else ""
    if str(path).lower().endswith((".csv", ".tsv", ".json", ".jsonl")):
        hint += "; of texts in a table write one document a line, and that is format text"
    raise CorpusError(path, f"the name says no format; name the format, one of {known}{hint}")
