"""The form of JSON that a stranger may have written: which keys it has, and of what kind each value is.

A form is a type (float: a finite number; int: a whole one of 0 to 2⁶³ − 1); a list with the form of its items, or,
where it has several, with a form for each place; or a dict from key to form, in which `EACH` is for every key that is
not named, and keys without a form are left alone. What is read behind a check needs no other one.
"""

import math
from typing import Any

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
