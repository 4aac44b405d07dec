"""What a user can ask of a reader besides the path. Each reader takes the part that it can honour:
`read_corpus` refuses an option that would be ignored."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields

from esvi_shm.errors import ParameterError

#: Called as `progress(done_bytes, total_bytes)`; of a gzip file the bytes are compressed ones.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ReadOptions:
    """Options of `read_corpus`.

    Parameters
    ----------
    transpose : bool
        The file holds words x documents.
    vocabulary : path, optional
        File with one word a line, line i = word i.
    min_df, max_df : int or float
        Words in fewer than `min_df` or in more than `max_df` documents are dropped; an int is a
        number of documents, a float a share of them.
    stop_words : str, optional
        ``"english"`` or the path of a file with one word a line: words to drop.
    max_vocabulary : int, optional
        Keep only so many words, the most frequent ones.
    first_id : 0 or 1, optional
        The id of the first word; None takes it from the ids that occur.

    Raises
    ------
    ParameterError
        When a value is out of its range.

    Examples
    --------
    >>> ReadOptions(min_df=5, stop_words="english").given()
    {'min_df': 5, 'stop_words': 'english'}
    """

    transpose: bool = False
    vocabulary: str | os.PathLike[str] | None = None
    min_df: int | float = 1
    max_df: int | float = 1.0
    stop_words: str | os.PathLike[str] | None = None
    max_vocabulary: int | None = None
    first_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("vocabulary", "stop_words"):
            if getattr(self, name) == "":  # which pathlib takes for the current folder
                raise ParameterError(name, "must name a file", "")
        for name in ("min_df", "max_df"):
            value = getattr(self, name)
            if isinstance(value, float):
                if not 0.0 <= value <= 1.0:
                    raise ParameterError(name, "as a share must be in [0, 1]", value)
            elif value < 1:
                raise ParameterError(name, "as a number of documents must be at least 1", value)
        if self.max_vocabulary is not None and self.max_vocabulary < 1:
            raise ParameterError("max_vocabulary", "must be at least 1", self.max_vocabulary)
        if self.first_id not in (None, 0, 1):
            raise ParameterError("first_id", "must be 0 or 1", self.first_id)

    def given(self) -> dict[str, object]:
        """Return the options that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        # By type too: a max_df of 1 is one document, the default 1.0 is all of them.
        return {
            name: value
            for name, value in values.items()
            if (type(value), value) != (type(defaults[name]), defaults[name])
        }
