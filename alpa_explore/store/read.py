"""Read files that a stranger may have written: regular files only, so many bytes at most, JSON that fits in memory.

A pipe or a device would be waited for, or have no end. A small text can stand for gigabytes of lists, and nesting or
numbers without bounds end in errors far from the file. Everything that is refused is an OSError (what cannot be opened)
or a ValueError (what it holds), whose text goes into the error of the caller.
"""

import errno
import json
import math
import os
import re
import stat
from io import BufferedReader
from itertools import chain
from typing import Any, NoReturn

MOST_DEPTH = 64
"""Lists and objects inside each other. Plan files have 7."""
MOST_PARTS = 6_000_000
"""Lists, and objects, of which one counts as four, in one text: 72 bytes each. The plan of a model of 405 billion
parameters on 2,048 GPUs has 600,000."""
MOST_INTEGER = 10**30
"""Magnitude of an integer: larger than any FLOPs, and a float can hold it. Above 10³⁰⁸ none can."""
_PIECE_BYTES = 2**20
_LARGE_NUMBER = re.compile(rb"(?<![\d.])\d{20}|[eE]\+?\d{3}")
"""What a number out of range has; so do some texts and small numbers."""


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading. OSError, as from `open`, also where it is a folder, a pipe, a socket or a device."""
    # O_NONBLOCK: a pipe without a writer is opened, too, rather than waited for.
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", os.fspath(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_bytes(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The content of a regular file. OSError; ValueError where there are more bytes, counted while they are read."""
    with open_regular(path) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return content


def read_table(path: str | os.PathLike[str], most_bytes: int, most_line: int, encoding: str = "utf-8") -> str:
    """The text of a CSV file. OSError; ValueError where it is too long, or one line of it, or where it is no text."""
    content = read_bytes(path, most_bytes)
    start = 0
    while len(content) - start > most_line:  # a line becomes a list of cells, however many
        end = max(
            content.rfind(b"\n", start, start + most_line + 1), content.rfind(b"\r", start, start + most_line + 1)
        )
        if end < 0:
            line = content.count(b"\n", 0, start) + 1
            raise ValueError(f"line {line} has more than {most_line:,} bytes")
        start = end + 1
    return content.decode(encoding)


def read_json(path: str | os.PathLike[str], most_bytes: int) -> Any:
    """The JSON in a file. OSError and ValueError as for `read_bytes` and `parse_json`."""
    return parse_json(read_bytes(path, most_bytes))


def parse_json(text: bytes | str, *, most_depth: int | None = MOST_DEPTH, infinity: bool = False) -> Any:
    """What a JSON text stands for. ValueError: no JSON, too many lists, nested too deeply, or a number out of range.

    NaN is refused, and the infinities are unless `infinity`. `most_depth` None: as deep as Python reads.
    """
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    PartCount().add(content)
    hooks: dict[str, Any] = {"parse_int": _integer, "parse_float": _float} if _LARGE_NUMBER.search(content) else {}
    try:
        value = json.loads(text, parse_constant=_number_or_infinity if infinity else _not_a_number, **hooks)
    except RecursionError:
        raise ValueError("lists nested too deeply") from None
    if most_depth is not None:
        _check_depth(value, most_depth)
    return value


class PartCount:
    """The lists and objects in a text that comes in pieces. ValueError at the piece with which there are too many."""

    def __init__(self) -> None:
        self._parts = 0

    def add(self, piece: bytes) -> None:
        """Count a piece; brackets inside texts count, too."""
        self._parts += piece.count(b"[") + 4 * piece.count(b"{")
        if self._parts > MOST_PARTS:
            raise ValueError(f"more than {MOST_PARTS:,} lists (an object counts as four)")


def read_pieces(stream: Any, most_bytes: int) -> bytes:
    """The rest of a stream, which may unpack to far more than its file. ValueError: too many bytes or lists."""
    pieces, count, size = [], PartCount(), 0
    while piece := stream.read(_PIECE_BYTES):
        size += len(piece)
        if size > most_bytes:
            raise ValueError(f"more than {most_bytes // 2**20:,} MiB of text")
        count.add(piece)
        pieces.append(piece)
    return b"".join(pieces)


def _check_depth(value: Any, most: int) -> None:
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(most):
        if not level:
            return
        values = chain.from_iterable(part.values() if type(part) is dict else part for part in level)
        level = [part for part in values if type(part) is list or type(part) is dict]
    if level:
        raise ValueError("lists nested too deeply")


def _integer(digits: str) -> int:
    if len(digits) > 32 or abs(int(digits)) > MOST_INTEGER:
        raise ValueError(f"{digits[:20]}… is too large, an integer of {len(digits)} digits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is too large for a number")
    return value


def _number_or_infinity(constant: str) -> float:
    return _not_a_number(constant) if constant == "NaN" else float(constant)


def _not_a_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
