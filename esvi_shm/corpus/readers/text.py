"""Plain text: a `.txt[.gz]` file with one document a line, or a folder of `.txt` files.

Words are counted by scikit-learn's `CountVectorizer`: lower case, of two letters or digits at
least. An empty line is an empty document, so that document i stays line i.
"""

from collections.abc import Iterator
from pathlib import Path

from esvi_shm.corpus.corpus import Corpus
from esvi_shm.corpus.options import Progress, ReadOptions
from esvi_shm.corpus.readers import _files
from esvi_shm.errors import CorpusError

FORMAT = "text"
OPTIONS = frozenset({"vocabulary", "min_df", "max_df", "stop_words", "max_vocabulary"})


def matches(path: Path) -> bool:
    """Whether it is a folder, or a .txt or .txt.gz file that is not UCI's by its name."""
    if path.is_dir():
        return True
    return _files.has_suffix(path, ".txt") and not _files.stem(path).startswith("docword.")


def read(path: Path, options: ReadOptions, progress: Progress | None) -> Corpus:
    """Read and count plain text."""
    from sklearn.feature_extraction.text import CountVectorizer

    words = options.vocabulary
    vectorizer = CountVectorizer(
        min_df=options.min_df,
        max_df=options.max_df,
        stop_words=_stop_words(options),
        max_features=options.max_vocabulary,
        vocabulary=None if words is None else _files.read_vocabulary(words),
    )
    documents = _folder(path, progress) if path.is_dir() else _lines(path, progress)
    try:
        matrix = vectorizer.fit_transform(documents)
    except CorpusError:
        raise
    except ValueError as error:
        # scikit-learn's words: no word is left, or min_df is above max_df.
        raise CorpusError(path, str(error)) from None
    return Corpus.from_sparse(matrix, vectorizer.get_feature_names_out(), str(path))


def _lines(path: Path, progress: Progress | None) -> Iterator[str]:
    for _, line in _files.text_lines(path, progress):
        yield line


def _folder(path: Path, progress: Progress | None) -> Iterator[str]:
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
