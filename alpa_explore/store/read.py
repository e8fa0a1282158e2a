"""Read files that a stranger may have written: regular files only, so many bytes at most, JSON that fits in memory.

A pipe or a device would be waited for, or have no end. A small text can stand for gigabytes of lists, and nesting or
numbers without bounds end in errors far from the file. Everything that is refused is an OSError (what cannot be opened)
or a ValueError (what it holds), whose text goes into the error of the caller.

A form says which keys a value from JSON has, and of what kind each is: a type (float: a finite number; int: a whole one
of 0 to 2⁶³ − 1); a list with the form of its items, or, where it has several, with a form for each place; or a dict
from key to form, in which `EACH` is for every key that is not named, and keys without a form are left alone. What is
read behind a check needs no other one.
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


EACH = "*"
"""Key of a form for all other keys of an object."""
_NAMES = {float: "a finite number", int: "a whole number of 0 to 2⁶³ − 1", str: "a text", list: "a list"}


def conform(value: Any, form: Any, place: str = "it") -> Any:
    """`value`, which has this form. ValueError, with the place of what has not."""
    if isinstance(form, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{place} is {_found(value)} in place of an object")
        if missing := [key for key in form if key != EACH and key not in value]:
            raise ValueError(f"{place} has no {missing[0]!r}")
        for key, one in value.items():
            if (of_key := form.get(key, form.get(EACH))) is not None:
                conform(one, of_key, f"{place}[{key!r}]")
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise ValueError(f"{place} is {_found(value)} in place of a list")
        if len(form) > 1 and len(form) != len(value):
            raise ValueError(f"{place} has {len(value)} entries in place of {len(form)}")
        for number, one in enumerate(value):
            conform(one, form[number if len(form) > 1 else 0], f"{place}[{number}]")
    elif not _is(value, form):
        raise ValueError(f"{place} is {_found(value)} in place of {_NAMES.get(form, form.__name__)}")
    return value


def _is(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and 0 <= value < 2**63
    return isinstance(value, kind)


def _found(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}…"
