"""Kinds of answers: how an answer is read, compared with the truth, and shown.

An answer may be a value or text, and is read by its form: "4 ms", "0,27", "0 1 2". One that is not of its kind (a word
for a number, milliseconds for seconds) is no wrong answer: `read` and `slip` say in a sentence what is asked for, and
nothing is counted. Numbers are in SI units, as everywhere in the library. `site/grading.js` reads text in the same way.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from numbers import Real
from typing import Any, Protocol

from alpa_explore import units

_UNITS = {
    "": ("a number", units.number),
    "s": ("a number of seconds", units.seconds),
    "B": ("a number of bytes", units.bytes_),
    "FLOP": ("a number of FLOPs", units.flops),
    "FLOP/s": ("a number of FLOPs per second", units.flops_per_second),
    "B/s": ("a number of bytes per second", units.bytes_per_second),
    "share": ("a share between 0 and 1", units.percent),
    "fraction": ("a fraction, such as 0.25 for 25 %", units.percent),
}
"""Unit -> what is asked for, and how a value is shown."""
_READ = tomllib.loads((files(__package__) / "kinds.toml").read_text(encoding="utf-8"))
READING: Mapping[str, str] = _READ["reading"]
"""How text is read, as regular expressions that Python and JavaScript share."""
SCALES: Mapping[str, Mapping[str, float]] = _READ["scales"]
"""Unit -> what a typed unit is worth in it."""
SLIPS: Mapping[str, Sequence[tuple[float, str]]] = _READ["slips"]
"""Unit -> factors by which an answer in another unit differs, with the name of that unit."""
_LETTERS = "abcdefghijkl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an answer cannot be marked, as a hint."""

    hint: str


class Kind(Protocol):
    """A kind of answer."""

    @property
    def asks(self) -> str:
        """What is asked for: 'a number of seconds'."""

    def read(self, answer: object) -> Any:
        """The value of an answer, or a Refusal."""

    def same(self, value: Any, truth: Any) -> bool:
        """Whether a value that was read is right."""

    def slip(self, value: Any, truth: Any, *, far: bool = False) -> str:
        """The hint for a value that is right in another unit, if `far` in one of ten times or more; '' where it is
        not."""
        return ""

    def side(self, value: Any, truth: Any) -> str:
        """What can be said of a wrong value without telling the truth; '' for nothing."""
        return ""

    def show(self, value: Any) -> str:
        """A value as people read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Kind):
    """A number, in the SI unit `unit`: '', 's', 'B', 'FLOP', 'FLOP/s', 'B/s', 'share' (0.25, not 25 %), or 'fraction',
    which may be above 1."""

    unit: str = ""
    tolerance: float = 0.02
    """Relative; 0 for numbers that are counted."""

    def __post_init__(self) -> None:
        assert self.unit in _UNITS, f"a unit is one of {sorted(_UNITS)}"

    @property
    def asks(self) -> str:
        """'a number of seconds (± 2 %)'."""
        near = f" (± {units.percent(self.tolerance)})" if self.tolerance else ""
        return ("a whole number" if not self.unit and not self.tolerance else _UNITS[self.unit][0]) + near

    def read(self, answer: object) -> float | Refusal:
        """The number, also from text with a unit; a word or a list is refused with a hint."""
        if isinstance(answer, str):
            return self._from_text(answer)
        item = getattr(answer, "item", None)
        if item is not None and getattr(answer, "size", 1) == 1:
            answer = item()  # of numpy, or a tensor
        if isinstance(answer, bool) or not isinstance(answer, Real):
            comma = "; a decimal point in place of a comma" if isinstance(answer, tuple) else ""
            kind = type(answer).__name__
            return Refusal(hint=f"The answer is of type {kind}. This exercise asks for {self.asks}{comma}.")
        value = float(answer)
        if not math.isfinite(value):
            return Refusal(hint=f"The answer is {value}. This exercise asks for {self.asks}.")
        return value

    def _from_text(self, text: str) -> float | Refusal:
        measure = re.fullmatch(READING["measure"], text.strip(READING["quotes"]))
        if measure is None:
            return Refusal(hint=f"The answer is text. This exercise asks for {self.asks}.")
        digits = measure[1].replace("−", "-")
        if re.fullmatch(READING["either"], digits):
            return Refusal(
                hint=(
                    f"{digits} can mean {digits.replace(',', '')} or {digits.replace(',', '.')}. Write it without a "
                    "comma."
                )
            )
        if "," in digits:
            if re.fullmatch(READING["decimal_comma"], digits):
                digits = digits.replace(",", ".")
            elif re.fullmatch(READING["thousands"], digits):
                digits = digits.replace(",", "")
            else:
                return Refusal(hint=f"Where are the commas of {digits}? This exercise asks for {self.asks}.")
        scales = SCALES[self.unit]
        if (scale := scales.get(measure[2] or "")) is None:
            known = ", ".join(unit for unit in scales if unit)
            return Refusal(hint=f"Unknown here: {measure[2]!r}. This exercise asks for {self.asks}; known are {known}.")
        value = float(digits) * scale
        return value if math.isfinite(value) else Refusal(hint=f"This exercise asks for {self.asks}.")

    def same(self, value: float, truth: float) -> bool:
        """Whether they agree to the tolerance."""
        return math.isclose(value, truth, rel_tol=self.tolerance or 1e-9, abs_tol=1e-12)

    def slip(self, value: float, truth: float, *, far: bool = False) -> str:
        """'An answer in milliseconds? …'."""
        for factor, name in SLIPS.get(self.unit, ()):
            if far and 0.1 < factor < 10:
                continue
            if truth and self.same(value, truth * factor) and not self.same(truth, truth * factor):
                return f"An answer in {name}? This exercise asks for {self.asks}."
        return ""

    def side(self, value: float, truth: float) -> str:
        """Too large or too small, and about how much; of a share above 1 also what it is as per cent."""
        if self.unit == "share" and value > 1:
            far = self._far(value / 100, truth).replace("It", "it", 1)
            return f"The answer is between 0 and 1; if {value:.4g} % ({value / 100:.4g}) is meant, {far}"
        return self._far(value, truth)

    def _far(self, value: float, truth: float) -> str:
        side = "large" if value > truth else "small"
        if value * truth <= 0:
            return f"It is too {side}."
        ratio = max(value / truth, truth / value)
        if ratio < 1.1:
            return f"It is a little too {side}."
        return f"It is too {side}, by a factor of about {units.number(float(f'{ratio:.2g}'))}."

    def show(self, value: float) -> str:
        """'0.0123 (12.3 ms)': what to type, and how people read it."""
        plain = f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"
        readable = _UNITS[self.unit][1](value) if self.unit else plain
        return plain if readable.replace(",", "").strip() == plain else f"{plain} ({readable})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Kind):
    """One of several options, by its letter (a, b, …) or its text."""

    options: tuple[str, ...]

    @property
    def asks(self) -> str:
        """'one of the letters "a" to "d"'."""
        return f'one of the letters "a" to "{_LETTERS[len(self.options) - 1]}"'

    def read(self, answer: object) -> str | Refusal:
        """The text of the option."""
        if isinstance(answer, str):
            text = answer.strip().casefold().rstrip(".)")
            if len(text) == 1 and text in _LETTERS[: len(self.options)]:
                return self.options[_LETTERS.index(text)]
            for option in self.options:
                if option.casefold().rstrip(".") == text:
                    return option
        return Refusal(hint=f"Answer with {self.asks}, in quotes.")

    def same(self, value: str, truth: str) -> bool:
        """Whether they are the same option."""
        assert truth in self.options, f"the truth {truth!r} is not among the options"
        return value == truth

    def show(self, value: str) -> str:
        """'b) a slower network'."""
        return f"{_LETTERS[self.options.index(value)]}) {value}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Every option with its letter."""
        return tuple(map(self.show, self.options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Kind):
    """Several numbers: a list, in an order that counts or not."""

    of: str
    """'layers', 'ranks', 'sizes of the mesh': what is listed."""
    ordered: bool = False

    @property
    def asks(self) -> str:
        """'a list of ranks'."""
        return f"a list of {self.of}" + (", in order" if self.ordered else ", in any order")

    def read(self, answer: object) -> tuple[float, ...] | Refusal:
        """The numbers as a tuple, sorted where their order does not count; also from text, or a single one."""
        if isinstance(answer, str):
            inner = re.sub(READING["around"], "", answer)
            parts = [part.strip(READING["quotes"]) for part in re.split(READING["between"], inner) if part]
            answer = [float(part) if re.fullmatch(READING["item"], part) else part for part in parts]
        listed = [answer] if isinstance(answer, Real) else answer
        if not isinstance(listed, Iterable):
            return Refusal(hint=f"This exercise asks for {self.asks}, such as [1, 2].")
        items = [getattr(item, "item", lambda item=item: item)() for item in listed]
        if not items or not all(isinstance(item, int | float) and not isinstance(item, bool) for item in items):
            return Refusal(hint=f"This exercise asks for {self.asks}, as numbers such as [1, 2].")
        return tuple(map(float, items)) if self.ordered else tuple(sorted({float(item) for item in items}))

    def same(self, value: tuple[Any, ...], truth: Sequence[Any]) -> bool:
        """Whether the same are listed."""
        expected = self.read(truth)
        assert not isinstance(expected, Refusal), "the truth is a list"
        return value == expected

    def side(self, value: tuple[Any, ...], truth: Sequence[Any]) -> str:
        """How many are right."""
        if self.ordered and len(value) != len(truth):
            return f"There are {len(truth)}, not {len(value)}."
        right = sum(a == b for a, b in zip(value, truth, strict=False)) if self.ordered else len({*value} & {*truth})
        return f"{right} of {len(truth)} are right" + (
            f", {len(value) - right} are not." if right < len(value) else "."
        )

    def show(self, value: Sequence[Any]) -> str:
        """'[0, 1]'."""
        return f"[{', '.join(f'{item:g}' for item in value)}]"
