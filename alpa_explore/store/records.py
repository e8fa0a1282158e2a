"""Dataclasses as JSON and back, by the types of their fields: one description serves writing, reading and checking.

`plain` gives what JSON can hold. `record` makes the dataclass again: of a field that the JSON lacks the default is
taken, keys that name no field are ignored. Its values are checked as `read.conform` does, unless a schema did that.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from alpa_explore.store.read import conform

_T = TypeVar("_T")
_Reader = Callable[[Any, str], Any]
"""(value, its place) -> the value of a field. ValueError where it is of another kind."""
_SCALARS = frozenset((str, int, float, bool, NoneType))


def plain(value: Any) -> Any:
    """A value, and the records in it, as dicts, tuples, lists, strings, numbers, booleans and None: what JSON can hold.
    A tuple stays one; it holds records or none."""
    kind = type(value)
    if kind in _SCALARS or (kind is tuple and not (value and is_dataclass(value[0]))):
        return value
    if is_dataclass(kind):
        pairs = ((name, getattr(value, name)) for name in _names(kind))
        return {name: one if type(one) in _SCALARS else plain(one) for name, one in pairs}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        each = (plain(one) for one in value)
        return tuple(each) if kind is tuple else list(each)
    return value.value if isinstance(value, enum.Enum) else value


def record(kind: type[_T], body: Mapping[str, Any], place: str = "it", *, checked: bool = True) -> _T:
    """The dataclass `kind` from an object of JSON. ValueError, with the place of what does not fit."""
    hint: Any = kind
    reader = _reader(hint, checked)
    assert reader is not None, "a dataclass"
    found: _T = reader(body, place)
    return found


@cache  # Memo of a pure function.
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.init)


@cache  # Memo of a pure function.
def _reader(hint: Any, checked: bool) -> _Reader | None:
    """How a value of this type is read; None where it is taken as it is."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _optional(*(_reader(one, checked) for one in arguments if one is not NoneType))
    if origin in (tuple, list, Sequence):
        return _several(tuple(_reader(one, checked) for one in arguments if one is not ...), checked)
    if origin in (dict, Mapping):
        return _by_key(_reader(arguments[1], checked), checked)
    if isinstance(hint, type) and is_dataclass(hint):
        return _of_fields(hint, checked)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return lambda value, _place: hint(value)
    if isinstance(hint, type) and issubclass(hint, tuple):
        return lambda value, _place: hint(*value)  # a named tuple
    return (lambda value, place: conform(value, hint, place)) if checked and hint in _SCALARS else None


def _read(reader: _Reader | None, value: Any, place: str) -> Any:
    return value if reader is None else reader(value, place)


def _optional(reader: _Reader | None) -> _Reader:
    return lambda value, place: None if value is None else _read(reader, value, place)


def _several(readers: tuple[_Reader | None, ...], checked: bool) -> _Reader:
    """A list: of entries of one kind where one reader is given."""

    def read(value: Any, place: str) -> tuple[Any, ...]:
        if checked:
            conform(value, list, place)
        if not any(readers):
            return tuple(value)
        if len(readers) != 1 and len(readers) != len(value):
            raise ValueError(f"{place} has {len(value)} entries in place of {len(readers)}")
        return tuple(_read(readers[n % len(readers)], one, f"{place}[{n}]") for n, one in enumerate(value))

    return read


def _by_key(reader: _Reader | None, checked: bool) -> _Reader:
    def read(value: Any, place: str) -> dict[str, Any]:
        if checked:
            conform(value, {}, place)
        return {key: _read(reader, one, f"{place}[{key!r}]") for key, one in value.items()}

    return read


def _of_fields(kind: type, checked: bool) -> _Reader:
    hints = get_type_hints(kind)
    known = [(f.name, f, _reader(hints[f.name], checked)) for f in fields(kind) if f.init]
    needed = [name for name, f, _ in known if f.default is MISSING and f.default_factory is MISSING]

    def read(value: Any, place: str) -> Any:
        if checked:
            conform(value, dict.fromkeys(needed), place)
        return kind(**{n: _read(one, value[n], f"{place}[{n!r}]") for n, _, one in known if n in value})

    return read
