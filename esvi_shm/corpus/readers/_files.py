"""Bytes of a file, plain or gzip, in large blocks of whole lines, with exact line numbers.

Everything that can go wrong with a file (missing, a folder, not readable, damaged or cut gzip)
becomes a `CorpusError` here. zlib is driven directly because Python's gzip module throws away
what it has decompressed when the file turns out to be cut, and with it the line number.
"""

import errno
import hashlib
import os
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from esvi_shm.corpus.options import Progress
from esvi_shm.errors import CorpusError

BLOCK_BYTES = 4 << 20
#: A line of more bytes is not text; without a limit a binary file would be read as one line.
MAX_LINE_BYTES = 256 << 20
GZIP_MAGIC = b"\x1f\x8b"
#: zlib packs no more than 1032 bytes into one.
GZIP_MAX_RATIO = 1032


def stem(path: Path) -> str:
    """Return the lower-case name without ``.gz``.

    >>> stem(Path("docword.NIPS.txt.gz"))
    'docword.nips.txt'
    """
    return path.name.lower().removesuffix(".gz")


def has_suffix(path: Path, *suffixes: str) -> bool:
    """Whether the name, without ``.gz``, ends in one of the suffixes."""
    return stem(path).endswith(suffixes)


def beside(path: Path, *names: str) -> Path | None:
    """Return the first of the files that lies beside `path`, plain or gzip."""
    for name in names:
        for candidate in (path.with_name(name), path.with_name(name + ".gz")):
            if candidate.is_file():
                return candidate
    return None


def read_vocabulary(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the words of a file with one word a line."""
    words = []
    for number, line in text_lines(Path(path)):
        word = line.strip()
        if not word:
            raise CorpusError(path, "a vocabulary must have a word in every line", number)
        words.append(word)
    return tuple(words)


def text_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a UTF-8 file, without the ends of lines."""
    with LineBlocks(path, progress) as blocks:
        number = 0
        for block in blocks:
            for raw in block.tobytes().split(b"\n")[:-1]:
                number += 1
                try:
                    yield number, raw.removesuffix(b"\r").decode("utf-8")
                except UnicodeDecodeError as error:
                    value = raw[error.start : error.end]
                    raise CorpusError(path, f"text must be UTF-8, got {value!r}", number) from None


class LineBlocks:
    """Iterate over a file in blocks of whole lines.

    A block is a uint8 array whose last byte is a newline, also where the file's last line has
    none; it is overwritten by the next one. A byte order mark is no part of the first. `line` is
    the number of the next line to be read: `next_line` counts it up, and who iterates adds the
    lines of a block when done with it.
    """

    def __init__(self, path: Path, progress: Progress | None = None, hashing: bool = False) -> None:
        self.path = path
        self.line = 1
        self.digest = ""
        self._progress = progress
        self._hash = hashlib.sha256() if hashing else None
        try:
            self._file = open(path, "rb", buffering=0)
            self.size = os.fstat(self._file.fileno()).st_size
            head = self._file.read(2)
            self._file.seek(0)
        except (OSError, ValueError) as error:
            raise _plain(path, error) from None
        self.is_gzip = head == GZIP_MAGIC or path.name.lower().endswith(".gz")
        self._source = self._opened()
        self._buffer = np.empty(min(BLOCK_BYTES, max(self.size, 4096) * 8) + 1, dtype=np.uint8)
        self._start = self._stop = 0
        self._begun = self._ended = False

    def _opened(self) -> Any:
        return _Gunzip(self._file) if self.is_gzip else self._file

    def rewind(self, line: int = 1) -> None:
        """Go back to a line that has been read; of what was read till now `digest` is the SHA-256.

        It is there where the bytes were to be hashed, and of the first time that they were read.
        """
        if self._hash is not None:
            self.digest, self._hash = self._hash.hexdigest(), None
        self._file.seek(0)
        self._source = self._opened()
        self._start = self._stop = 0
        self._begun, self._ended, self.line = False, False, 1
        while self.line < line:
            self.next_line()

    def __enter__(self) -> "LineBlocks":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def most_bytes(self) -> int:
        """No more bytes than this can follow: a bound to hold a header against."""
        return self.size * GZIP_MAX_RATIO if self.is_gzip else self.size

    def next_line(self) -> bytes | None:
        """Return the next line without its end; None at the end of the file."""
        width = 1 << 12
        while True:
            head = self._buffer[self._start : min(self._stop, self._start + width)].tobytes()
            end = head.find(b"\n")
            if end >= 0:
                self._start += end + 1
                self.line += 1
                return head[:end].removesuffix(b"\r")
            if len(head) == self._stop - self._start and not self._fill():
                return None
            width *= 2

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            end = self._last_newline()
            if end < self._start:
                if not self._fill():
                    return
                continue
            block = self._buffer[self._start : end + 1]
            self._start = end + 1
            yield block

    def _last_newline(self) -> int:
        """Position of the last newline in the buffer, or -1."""
        width = 1 << 12
        while True:
            lo = max(self._start, self._stop - width)
            found = self._buffer[lo : self._stop].tobytes().rfind(b"\n")
            if found >= 0:
                return lo + found
            if lo == self._start:
                return -1
            width *= 4

    def _fill(self) -> bool:
        """Read on behind what is left in the buffer; False when there is nothing more."""
        if self._ended:
            return False
        left = self._stop - self._start
        if left + 1 >= len(self._buffer):
            if left > MAX_LINE_BYTES:
                rule = f"lines must have at most {MAX_LINE_BYTES} bytes; is this a text file?"
                raise CorpusError(self.path, rule, self.line)
            bigger = np.empty(2 * len(self._buffer), dtype=np.uint8)
        else:
            bigger = self._buffer
        bigger[:left] = self._buffer[self._start : self._stop].copy()
        self._buffer, self._start, self._stop = bigger, 0, left
        # One byte stays free for the newline that the last line may lack.
        room = self._buffer.data[left:-1]
        while len(room):
            try:
                n = self._source.readinto(room)
            except (OSError, EOFError, zlib.error) as error:
                if self._stop > left and not isinstance(error, OSError):
                    break  # hand out what came before; the same error comes again
                raise _plain(self.path, error, self.line) from None
            if n == 0:
                self._ended = True
                if self._stop and self._buffer[self._stop - 1] != ord("\n"):
                    self._buffer[self._stop] = ord("\n")
                    self._stop += 1
                break
            if self._hash is not None:
                self._hash.update(room[:n])
            self._stop += n
            room = room[n:]
        if not self._begun:
            self._begun = True
            if self._buffer[: min(self._stop, len(BOM_UTF8))].tobytes() == BOM_UTF8:
                self._start = len(BOM_UTF8)
        if self._progress is not None:
            self._progress(self._file.tell(), self.size)
        return self._stop > left


class _Gunzip:
    """`readinto` over the decompressed bytes of a gzip file, of several members too."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._zlib = zlib.decompressobj(wbits=31)
        self._raw = b""
        self._fed = False

    def readinto(self, room: memoryview) -> int:
        while True:
            if self._zlib.eof:
                self._raw = self._zlib.unused_data.lstrip(b"\0")  # padding is legal
                self._zlib = zlib.decompressobj(wbits=31)
                self._fed = False
            if not self._raw:
                self._raw = self._file.read(1 << 20)
                if not self._raw:
                    if self._fed:
                        raise EOFError("the end is missing")
                    return 0
                if not self._fed:
                    self._raw = self._raw.lstrip(b"\0")
                    if not self._raw:
                        continue
            self._fed = True
            out = self._zlib.decompress(self._raw, len(room))
            self._raw = self._zlib.unconsumed_tail
            if out:
                room[: len(out)] = out
                return len(out)


def _plain(path: Path, error: Exception, line: int | None = None) -> CorpusError:
    """Say in a user's words why a file could not be read."""
    if isinstance(error, FileNotFoundError):
        return CorpusError(path, "there is no such file")
    if isinstance(error, IsADirectoryError):
        return CorpusError(path, "must be a file, is a folder")
    if isinstance(error, OSError) and error.errno == errno.ESPIPE:
        return CorpusError(path, "must be a file, is a pipe: it is read twice")
    if isinstance(error, OSError):
        return CorpusError(path, f"cannot be read: {error.strerror or error}", line)
    if isinstance(error, ValueError):
        return CorpusError(path, f"cannot be a file: {error}")
    return CorpusError(path, f"the gzip data is cut or damaged ({error})", line)
