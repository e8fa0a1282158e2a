"""The texts of exercises: templates in a TOML file beside the module of each lesson, by the id of the exercise.

A name in braces is a value of the exercise, with a format: of Python (`{truth:,}`), or one of `_FORMATS`, by which
numbers are shown as everywhere (`{n.bytes:bytes}`). Lines of a paragraph are joined.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

from alpa_explore import units

_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "bytes": units.bytes_,
    "seconds": units.seconds,
    "percent": units.percent,
    "count": units.count,
    "number": units.number,
    "flops": units.flops,
    "flops_per_second": units.flops_per_second,
    "bytes_per_second": units.bytes_per_second,
    "list": lambda items: str(list(items)),
    "listed": lambda items: ", ".join(map(str, items)),
}
_LINE_END = re.compile(r"(?<!\n)\n(?!\n|- )")
"""Between lines of one paragraph, not before an item of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The templates of an exercise."""

    title: str
    question: str
    why: str
    hints: tuple[str, ...]
    code: str
    premise: str
    """What the question takes for granted: 'delta changes the cuts'."""
    mistakes: tuple[str, ...] = ()
    """What was overlooked, for each wrong answer in their order: 'That is one direction only; …'."""


@cache
def texts_of(exercise: str) -> Texts:
    """The texts of an exercise by its id."""
    return _texts()[exercise]


@cache
def _texts() -> Mapping[str, Texts]:
    found: dict[str, Texts] = {}
    for road in (files(__package__) / "exercises").iterdir():
        for file in road.iterdir() if road.is_dir() else ():
            if file.name.endswith(".toml"):
                for name, said in tomllib.loads(file.read_text(encoding="utf-8")).items():
                    found[name] = Texts(**{key: _joined(value, key) for key, value in said.items()})
    return found


def _joined(text: str | list[str], key: str) -> Any:
    if isinstance(text, list):
        return tuple(_joined(one, key) for one in text)
    return text if key == "code" else _LINE_END.sub(" ", text)


class _Shown(Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        return _FORMATS[format_spec](value) if format_spec in _FORMATS else format(value, format_spec)


def filled(template: str, values: Mapping[str, Any]) -> str:
    """A template with the values that it names."""
    return _Shown().vformat(template, (), values)
