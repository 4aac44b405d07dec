"""Scanning numbers out of bytes, strictly, and saying what is wrong with a line.

The kernels only say that a line is bad, which keeps them small and fast; `explain` then looks at
that one line again, field by field, and finds the words. A text always ends with a newline, so no
scan runs over its end.
"""

import math
from dataclasses import dataclass

import numpy as np

from esvi_shm.compile import kernel
from esvi_shm.corpus._matrix import INT32_MAX
from esvi_shm.errors import CorpusError

SPACE, TAB, NEWLINE, RETURN, COLON, HASH = (ord(c) for c in " \t\n\r:#")
DOT, MINUS, PLUS, LOW_E, HIGH_E, ZERO, NINE = (ord(c) for c in ".-+eE09")
#: The least number that float32 rounds to infinity.
FLOAT32_LIMIT = 2.0**128 - 2.0**103
#: Eighteen digits fit int64; what follows cannot change a float32, nor bring an id into range.
MANTISSA_LIMIT = 10**17

#: What a count may look like.
NO_COUNT, INTEGER, REAL = 0, 1, 2

#: What a kernel says about a block.
GOOD, BAD_LINE, TOO_MANY, AFTER_BLANK, TOO_LITTLE_ROOM = range(5)


@kernel(fastmath=False)
def skip_blanks(text, i):
    """Return the position of the first byte from i on that is no blank; a newline is none."""
    while text[i] == SPACE or text[i] == TAB or text[i] == RETURN:
        i += 1
    return i


@kernel(fastmath=False)
def ends_field(byte):
    """Whether a field is over before this byte."""
    return byte == SPACE or byte == NEWLINE or byte == TAB or byte == RETURN


@kernel(fastmath=False)
def scan_integer(text, i):
    """Return (value, end) of the digits at i; -1 where there are none."""
    first = i
    value = np.int64(0)
    while ZERO <= text[i] <= NINE:
        if value < MANTISSA_LIMIT:
            value = value * 10 + (np.int64(text[i]) - ZERO)
        i += 1
    return (value if i > first else np.int64(-1)), i


@kernel(fastmath=False)
def scan_number(text, i, kind):
    """Return (value, end) of an unsigned number at i; -1 where there is none, or none of `kind`."""
    value, end = scan_integer(text, i)
    whole = text[end] != DOT and text[end] | 32 != LOW_E
    if kind == INTEGER and not whole:
        return -1.0, end
    if value >= 0 and end - i <= 17 and whole:
        return np.float64(value), end
    mantissa = np.int64(0)
    shift = 0
    n_digits = 0
    while ZERO <= text[i] <= NINE:
        if mantissa < MANTISSA_LIMIT:
            mantissa = mantissa * 10 + (np.int64(text[i]) - ZERO)
        else:
            shift += 1
        n_digits += 1
        i += 1
    if text[i] == DOT:
        i += 1
        while ZERO <= text[i] <= NINE:
            if mantissa < MANTISSA_LIMIT:
                mantissa = mantissa * 10 + (np.int64(text[i]) - ZERO)
                shift -= 1
            n_digits += 1
            i += 1
    if n_digits == 0:
        return -1.0, i
    if text[i] == LOW_E or text[i] == HIGH_E:
        i += 1
        negative = text[i] == MINUS
        if negative or text[i] == PLUS:
            i += 1
        exponent, i = scan_integer(text, i)
        if exponent < 0:
            return -1.0, i
        exponent = min(exponent, 9999)
        shift += -exponent if negative else exponent
    if mantissa == 0:
        return 0.0, i
    # The power is exact up to 10**22, so common numbers are rounded once.
    number = mantissa * 10.0**shift if shift >= 0 else mantissa / 10.0 ** (-shift)
    if number >= FLOAT32_LIMIT:
        return -1.0, i
    return number, i


@dataclass(frozen=True)
class Id:
    """An id column: what it is called, its base, and the largest legal id."""

    name: str
    first: int
    last: int

    def fault(self, text: str) -> str | None:
        """Return what is wrong with a field, or None."""
        if not (text.isascii() and text.isdigit()):
            rule = f"must be an integer in {self.first}..{self.last}"
            return f"the {self.name} id {rule}, got {text!r}"
        if not self.first <= int(text) <= self.last:
            wide = " (int32)" if self.last == INT32_MAX else ""
            return f"the {self.name} id must be in {self.first}..{self.last}{wide}, got {text}"
        return None


def count_fault(text: str, kind: int) -> str | None:
    """Return what is wrong with a count, or None."""
    try:
        value = float(text)
    except ValueError:
        return f"the count must be a number, got {text!r}"
    if not math.isfinite(value) or value >= FLOAT32_LIMIT:
        return f"the count must be finite (in float32), got {text}"
    if value < 0 or text.startswith("-"):
        return f"the count must be at least 0, got {text}"
    if kind == INTEGER and not text.isdigit():
        return f"the count must be an integer, got {text!r}"
    if not set(text) <= set("0123456789.eE+-") or text.startswith("+"):
        return f"the count must be a plain decimal number, got {text!r}"
    return None


def shown(line: bytes, width: int = 60) -> str:
    """Return a line for a message, cut, with unprintable bytes escaped."""
    text = line.decode("ascii", "backslashreplace").strip()
    return repr(text if len(text) <= width else text[:width] + "...")


def header_integer(source: object, line: int, what: str, text: str, least: int) -> int:
    """Return a size given in a header."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < least:
        rule = f"the header's {what} must be an integer of at least {least}"
        raise CorpusError(source, f"{rule}, got {text[:60]!r}", line)
    return int(text)
