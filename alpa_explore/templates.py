"""Texts with expressions: templates in files, which name values as Python does, and show them as people read them.

An expression stands in braces, with a format: of Python (`{truth:,}`), or one of `FORMATS`, by which numbers are shown
as everywhere (`{n.bytes:bytes}`). It has no quote, colon or exclamation mark of its own: what needs one gets a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from string import Formatter
from types import CodeType
from typing import Any

from alpa_explore import units

FORMATS: Mapping[str, Callable[[Any], str]] = {
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


def filled(template: str, names: Mapping[str, Any], named: Mapping[str, str] | None = None) -> str:
    """A template with the values of its expressions, of these names; `named` are names of further expressions."""
    return _Shown(names, named or {}).vformat(template, (), {})


def computed(expression: str, names: Mapping[str, Any], named: Mapping[str, str] | None = None) -> Any:
    """The value of an expression of a file of this package."""
    return eval(_compiled(expression), dict(names), _Named(names, named or {}))


def joined(said: Any) -> Any:
    """A text, or every text of a list or table, with the lines of a paragraph joined."""
    if isinstance(said, str):
        return _LINE_END.sub(" ", said)
    return [*map(joined, said)] if isinstance(said, list) else {name: joined(text) for name, text in said.items()}


@cache
def _compiled(expression: str) -> CodeType:
    return compile(f"({expression})", "<template>", "eval")


class _Named(dict[str, Any]):
    """The values of further expressions, each computed when it is named."""

    def __init__(self, names: Mapping[str, Any], named: Mapping[str, str]) -> None:
        self._names, self._named = names, named

    def __missing__(self, name: str) -> Any:
        return computed(self._named[name], self._names, self._named)


class _Shown(Formatter):
    def __init__(self, names: Mapping[str, Any], named: Mapping[str, str]) -> None:
        self._names, self._named = names, named

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        return computed(field_name, self._names, self._named), field_name

    def format_field(self, value: Any, format_spec: str) -> Any:
        return FORMATS[format_spec](value) if format_spec in FORMATS else format(value, format_spec)
