"""The demonstration corpus: what Python's standard library says about itself.

Docstrings of its modules, classes, functions and methods, one document each, and the topics of
`help()`. Always there, no download, no licence question. The sources are parsed, never imported:
importing some of them opens a browser or a window. The walk is sorted, so one version of Python
gives one corpus.
"""

import ast
import gc
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers._stop_words import STOP_WORDS
from esvi_shm.errors import CorpusError

FORMAT = "stdlib"
OPTIONS: frozenset[str] = frozenset()

#: Not part of the library, or tests, or tables and copies without prose.
SKIPPED = frozenset(
    "site-packages dist-packages __pycache__ test tests idle_test encodings pydoc_data lib2to3 "
    "turtledemo ensurepip idlelib".split()
)
WORD = re.compile(r"[a-z]{3,}")
MIN_TOKENS = 12
MIN_DF = 5
#: Words in more than this share of documents are Python's boilerplate ("return", "object").
MAX_DF = 0.08

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def matches(path: Path) -> bool:
    """Return False: it is read when no path is given, or by name."""
    return False


def read(path: Path | None, options: ReadOptions, progress: Progress | None) -> Corpus:
    """Read the docstrings of the standard library, or of the Python sources in a folder."""
    root = Path(sysconfig.get_paths()["stdlib"]) if path is None else path
    collecting = gc.isenabled()
    # The collector would walk the young syntax trees, which have no cycles, for half of the time.
    gc.disable()
    try:
        documents = [_tokens(text) for text in _docstrings(root, progress)]
    finally:
        if collecting:
            gc.enable()
    if path is None:
        documents += [_tokens(text) for text in _topics()]
    documents = [tokens for tokens in documents if len(tokens) >= MIN_TOKENS]
    df = Counter(word for tokens in documents for word in set(tokens))
    most = max(MAX_DF * len(documents), MIN_DF)
    kept = [[word for word in tokens if MIN_DF <= df[word] <= most] for tokens in documents]
    kept = [tokens for tokens in kept if tokens]
    if not kept:
        raise CorpusError(root, "must have Python sources with docstrings, none has enough words")
    name = "stdlib" if path is None else str(path)
    return Corpus.from_tokens(kept, name)


def _tokens(text: str) -> list[str]:
    return [word for word in WORD.findall(text.lower()) if word not in STOP_WORDS]


def _docstrings(root: Path, progress: Progress | None) -> Iterator[str]:
    """Yield the docstrings of all sources that can be read and parsed, in sorted order."""
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        files += [Path(folder, name) for name in sorted(names) if name.endswith(".py")]
    for done, file in enumerate(files, 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of odd escapes in other people's strings
                tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        yield from _docstrings_of(tree)
        if progress is not None:
            progress(done, len(files))


def _docstrings_of(node: ast.Module | Definition) -> Iterator[str]:
    """Yield the docstring of a definition and of those in it; not of functions in functions."""
    text = ast.get_docstring(node, clean=False)
    if text:
        yield text
    if isinstance(node, ast.Module | ast.ClassDef):
        for child in node.body:
            if isinstance(child, Definition):
                yield from _docstrings_of(child)


def _topics() -> list[str]:
    """Return the texts behind ``help("topics")``, of which some Pythons are built without."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    return [topics[name] for name in sorted(topics)]
