"""Seed words of topics, from a file."""

from pathlib import Path

from esvi_shm.corpus.readers._files import text_lines
from esvi_shm.errors import CorpusError


def read_seed_words(path: str) -> tuple[tuple[str, ...], ...]:
    """The words of each topic from a file: one topic a line, words by white space.

    Parameters
    ----------
    path : str
        Empty lines are topics without words; those at the end are no topics.

    Returns
    -------
    tuple of tuple of str

    Raises
    ------
    CorpusError
        If there is no such file, or no word in it.
    """
    topics = [tuple(line.split()) for _, line in text_lines(Path(path))]
    while topics and not topics[-1]:
        topics.pop()
    if not topics:
        raise CorpusError(path, "a file of seed words must have words, one topic a line")
    return tuple(topics)
