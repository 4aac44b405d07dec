"""The table of a segment: every array in it, declared once, with who writes and who reads it.

A `Table` turns declarations into offsets. Each array begins on its own boundary of 128 bytes, so
that two arrays never share a cache line (nor the pair of lines that processors fetch together).
It allocates nothing: it makes views of a buffer that someone else owns.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from esvi_shm.errors import ParameterError

#: Bytes. Every array begins at a multiple of it.
ALIGNMENT = 128


@dataclass(frozen=True)
class ArraySpec:
    """One shared array.

    Parameters
    ----------
    name : str
        Its name in the table, and in `Table.views`.
    shape : tuple of int
        Each 0 or more.
    dtype : anything that `numpy.dtype` takes, of fixed size, without Python objects
        Kept as a `numpy.dtype`.
    writer, readers : str
        Plain words: who writes it, who reads it, and when.
    what : str
        What it holds, with its unit.

    Raises
    ------
    ParameterError
        If a size is negative, or the dtype has no size or holds Python objects.

    Examples
    --------
    >>> spec = ArraySpec("gamma", (10, 4), "float32", "its worker", "all at rest", "counts")
    >>> spec.n_bytes
    160
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any
    writer: str
    readers: str
    what: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        if any(size < 0 for size in self.shape):
            raise ParameterError(f"shape of {self.name}", "must not be negative", self.shape)
        if self.dtype.hasobject or self.dtype.itemsize == 0:
            raise ParameterError(
                f"dtype of {self.name}", "must be of fixed size and hold no objects", self.dtype
            )

    @property
    def n_bytes(self) -> int:
        """Bytes of the array, without padding."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


class Table:
    """Where each array of a segment lies. Immutable and picklable.

    Parameters
    ----------
    specs : iterable of ArraySpec
        In the order in which they lie in memory.

    Attributes
    ----------
    total_bytes : int
        Bytes of the whole segment, a multiple of 128.

    Raises
    ------
    ParameterError
        If two arrays have the same name.

    Examples
    --------
    >>> table = Table([
    ...     ArraySpec("n", (3,), "int64", "the parent, at the start", "workers", "counts"),
    ...     ArraySpec("x", (2, 2), "float32", "its worker", "the parent, at rest", "means"),
    ... ])
    >>> table.total_bytes, table.offset("x"), table["x"].shape
    (256, 128, (2, 2))
    >>> views = table.views(bytearray(table.total_bytes))
    >>> views["x"]
    array([[0., 0.],
           [0., 0.]], dtype=float32)
    """

    def __init__(self, specs: Iterable[ArraySpec]) -> None:
        self._specs: dict[str, ArraySpec] = {}
        self._offsets: dict[str, int] = {}
        end = 0
        for spec in specs:
            if spec.name in self._specs:
                raise ParameterError("array name", "must be unique in its table", spec.name)
            self._specs[spec.name] = spec
            self._offsets[spec.name] = end
            end += -(-spec.n_bytes // ALIGNMENT) * ALIGNMENT
        self.total_bytes = end

    def __getitem__(self, name: str) -> ArraySpec:
        """Return the declaration of an array; KeyError if there is none."""
        return self._specs[name]

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[ArraySpec]:
        return iter(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)

    def offset(self, name: str) -> int:
        """Return the byte at which an array begins; KeyError if there is none."""
        return self._offsets[name]

    def describe(self) -> str:
        """Return the table as text, a line an array: shape, dtype, bytes, writer, readers."""
        rows = [("array", "shape", "dtype", "bytes", "writer", "readers", "what")]
        for spec in self:
            shape = " x ".join(str(size) for size in spec.shape) or "scalar"
            facts = (spec.name, shape, str(spec.dtype), str(spec.n_bytes))
            rows.append((*facts, spec.writer, spec.readers, spec.what))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
                 for row in rows]  # fmt: skip
        return "\n".join([*lines, f"total {self.total_bytes} bytes"])

    def views(self, buffer: Any) -> dict[str, npt.NDArray[Any]]:
        """Return an array for each declaration, all views of `buffer`.

        Each array keeps the buffer exported: it may outlive every other reference to it.

        Parameters
        ----------
        buffer : object with the buffer interface, of at least `total_bytes` bytes
            A `mmap`, a `bytearray`. A read-only one gives read-only arrays.

        Raises
        ------
        ParameterError
            If the buffer is too short.
        """
        # frombuffer holds the export; np.ndarray(buffer=...) lets go of it, and crashes later.
        memory = np.frombuffer(buffer, np.uint8) if self.total_bytes else np.empty(0, np.uint8)
        if memory.size < self.total_bytes:
            raise ParameterError("buffer", f"must have {self.total_bytes} bytes", memory.size)
        arrays = {}
        for spec in self:
            start = self._offsets[spec.name]
            part = memory[start : start + spec.n_bytes]
            arrays[spec.name] = part.view(spec.dtype).reshape(spec.shape)
        return arrays
