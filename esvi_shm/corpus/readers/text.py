"""Plain text: a `.txt[.gz]` file with one document a line, or a folder of `.txt` files by name.

Words are counted by scikit-learn's `CountVectorizer`: in lower case, runs of letters, digits and
underscores, two at least. An empty line is an empty document, so that document i stays line i.
"""

import hashlib
import itertools
import logging
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from esvi_shm.corpus.corpus import Corpus, Documents
from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files
from esvi_shm.errors import CorpusError, ParameterError

if TYPE_CHECKING:
    from esvi_shm.corpus.range import Range, Share

FORMAT = "text"
#: Files of a model directory, whose vocabulary would else be the one document of a folder.
OF_A_MODEL = ("manifest.json", "summary.json", "vocabulary.txt")
OPTIONS = frozenset({"vocabulary", "min_df", "max_df", "stop_words", "max_vocabulary"})

_log = logging.getLogger(__name__)


def matches(path: Path) -> bool:
    """Whether it is a folder, or a .txt or .txt.gz file that is not UCI's by its name."""
    if path.is_dir():
        return True
    return _files.has_suffix(path, ".txt") and not _files.stem(path).startswith("docword.")


def read_range(
    path: Path, options: ReadOptions, progress: Progress | None, share: "Share"
) -> "Range":
    """Read and count a range of plain text, in the words of all of it."""
    from esvi_shm.corpus.range import Range

    vocabulary = _vocabulary(options)
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(
        min_df=options.min_df,
        max_df=options.max_df,
        stop_words=_stop_words(options),
        max_features=options.max_vocabulary,
        vocabulary=vocabulary,
    )
    analyse = CountVectorizer().build_analyzer()
    _warn_of(options.vocabulary, vocabulary or (), analyse)
    if options.stop_words != "english":
        _warn_of(options.stop_words, vectorizer.stop_words or (), analyse)
    _tell_of_folders_in(path)
    documents = _Counted(path, progress)
    first, digest = 0, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd words, which are told above in one line
            if share.n == 1:
                matrix = vectorizer.fit_transform(documents)
            else:
                found = _survey(documents, vectorizer)
                digest, (first, last) = found.digest, share.of(found.sizes)
                vectorizer = CountVectorizer(vocabulary=found.words)
                documents = _Counted(path, progress)
                matrix = vectorizer.transform(itertools.islice(documents, first, last))
    except CorpusError:
        raise
    except ValueError as error:
        raise CorpusError(path, _fault(str(error), options, documents.n)) from None
    words = vectorizer.get_feature_names_out()
    kind = Corpus if share.n == 1 else Documents
    corpus = kind.from_sparse(matrix, words, str(path))
    return Range(corpus, first, len(found.sizes) if share.n > 1 else documents.n, digest)


class _Counted:
    """Documents of a path, and how many there were."""

    def __init__(self, path: Path, progress: Progress | None) -> None:
        is_folder = path.is_dir()
        self.documents = _folder(path, progress) if is_folder else _lines(path, progress)
        self.n = 0

    def __iter__(self) -> Iterator[str]:
        for document in self.documents:
            self.n += 1
            yield document


class _Survey(NamedTuple):
    """What has to be known of all documents before a range of them is counted."""

    words: list[str]
    sizes: np.ndarray  # different words of each document, those that are dropped too
    digest: str


def _survey(documents: Iterable[str], vectorizer: Any) -> _Survey:
    """The words that `CountVectorizer.fit` would keep, without the counts of all documents.

    Raises ValueError as that does.
    """
    analyse, seen = vectorizer.build_analyzer(), hashlib.sha256()
    n_documents_of: Counter[str] = Counter()
    n_tokens_of: Counter[str] = Counter()
    sizes = array("i")
    for document in documents:
        encoded = document.encode("utf-8", "surrogatepass")
        seen.update(b"%d:%s" % (len(encoded), encoded))
        tokens = analyse(document)
        if vectorizer.vocabulary is not None:
            sizes.append(len(set(tokens)))
            continue
        counted = Counter(tokens)
        n_documents_of.update(counted.keys())
        n_tokens_of.update(counted)
        sizes.append(len(counted))
    lengths, digest = np.array(sizes, np.int32), seen.hexdigest()
    if vectorizer.vocabulary is not None:
        return _Survey(list(vectorizer.vocabulary), lengths, digest)
    if not n_tokens_of:
        raise ValueError("empty vocabulary")
    least, most = (
        limit if isinstance(limit, int) else limit * len(lengths)
        for limit in (vectorizer.min_df, vectorizer.max_df)
    )
    words = [word for word, n in sorted(n_documents_of.items()) if least <= n <= most]
    if not words:
        raise ValueError("no terms remain")
    if vectorizer.max_features is not None and len(words) > vectorizer.max_features:
        # In the same way, so that of words that are as frequent the same ones are kept.
        frequent = (-np.array([n_tokens_of[word] for word in words])).argsort()
        words = [words[i] for i in sorted(frequent[: vectorizer.max_features])]
    return _Survey(words, lengths, digest)


def _fault(message: str, options: ReadOptions, n_documents: int) -> str:
    """What is wrong where scikit-learn finds no words, whose message has no values."""
    if n_documents == 0:
        return "a text must have documents, the file is empty"
    if "empty vocabulary" in message:
        but = "" if options.stop_words is None else f" beside the stop words {options.stop_words}"
        rule = f"a text must have words, of two letters or digits at least{but}"
        return f"{rule}, got none in {n_documents} documents"
    return (
        f"no word is in at least min_df {options.min_df} and at most max_df {options.max_df} "
        f"of the {n_documents} documents"
    )


def _vocabulary(options: ReadOptions) -> tuple[str, ...] | None:
    words = options.vocabulary
    if words is None:
        return None
    for name in ("min_df", "max_df", "max_vocabulary"):
        if name in options.given():
            # Both choose the words: scikit-learn would not say which one it follows.
            rule = "must not be given with a vocabulary, whose words are all kept"
            raise ParameterError(name, rule, getattr(options, name))
    vocabulary = _files.read_vocabulary(words)
    if not vocabulary:
        raise CorpusError(words, "a vocabulary must have words, the file is empty")
    lines: dict[str, int] = {}
    for number, word in enumerate(vocabulary, 1):
        if lines.setdefault(word, number) != number:
            rule = f"the words must differ, got {word!r} as in line {lines[word]}"
            raise CorpusError(words, rule, number)
    return vocabulary


def _warn_of(path: object, words: Collection[str], analyse: Callable[[str], list[str]]) -> None:
    """Warn of words that no text has, since it is cut into other ones."""
    odd = [word for word in words if analyse(word) != [word]]
    if odd:
        _log.warning(
            "%s: %d of %d words cannot occur in a text, whose words are lower case, of two letters "
            "or digits at least; such as %r", path, len(odd), len(words), odd[0],
        )  # fmt: skip


def _lines(path: Path, progress: Progress | None) -> Iterator[str]:
    for _, line in _files.text_lines(path, progress):
        yield line


def _tell_of_folders_in(path: Path) -> None:
    if path.is_dir():
        inner = sorted(p.name for p in path.iterdir() if p.is_dir() and p.name[0] != ".")
        if inner:
            _log.info("%s: folders in it (such as %s) are not read", path, inner[0])


def _folder(path: Path, progress: Progress | None) -> Iterator[str]:
    if all((path / name).is_file() for name in OF_A_MODEL):
        raise CorpusError(path, "must be a corpus, and is a model that a fit has saved")
    files = sorted(p for p in path.iterdir() if _files.has_suffix(p, ".txt") and p.is_file())
    if not files:
        raise CorpusError(path, "the folder must have .txt files, has none")
    sizes = [file.stat().st_size for file in files]
    done, total = 0, sum(sizes)
    for file, size in zip(files, sizes, strict=True):
        yield "\n".join(_lines(file, None))
        done += size
        if progress is not None:
            progress(done, total)


def _stop_words(options: ReadOptions) -> str | list[str] | None:
    if options.stop_words is None or options.stop_words == "english":
        return options.stop_words
    return [word.lower() for word in _files.read_vocabulary(options.stop_words)]
