"""Writing a plan file: JSON that a person can read, and that two plans can be compared in line by line."""

import json
import math
import os
from typing import Any

from alpa_explore import units
from alpa_explore.errors import PlanFileError
from alpa_explore.plans.file import tuning
from alpa_explore.plans.file.document import to_document
from alpa_explore.plans.value import PlanValue
from alpa_explore.store.write import write_text


def save_plan(plan: PlanValue, path: str | os.PathLike[str]) -> None:
    """Write the plan file, whole or not at all. PlanFileError when that is impossible (folder missing, disk full)."""
    write_text(path, plan_text(plan), "The plan")


def plan_text(plan: PlanValue) -> str:
    """The text of the plan file: the same plan always gives the same text."""
    try:
        text = _lines(to_document(plan)) + "\n"
    except ValueError as error:  # json's: NaN and infinity are not JSON
        raise PlanFileError(
            "The plan was not written",
            found=f"a figure in it is not a number ({error})",
            remedy="Check the cluster's figures (bandwidths, FLOP/s): one of them may be 0.",
        ) from error
    if len(text) > tuning.MAX_BYTES:
        raise PlanFileError(
            "The plan was not written",
            found=f"{units.bytes_(len(text))} are more than plan files may hold",
            remedy="Plan with fewer layers: candidates grow with their square.",
        )
    return text


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""One encoder for all lines, because making one takes longer than most lines."""


def _line(value: Any) -> str:
    """JSON in one line; numbers, of which a plan has half a million, as the encoder writes them, without it."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return _encode(value)


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with one layer, operator, candidate or figure a line, so that two plans can be compared line by line."""
    if not isinstance(value, dict | list) or not value or depth == tuning.BROKEN_LEVELS:
        return _line(value)
    nested = any(isinstance(v, dict | list) for v in _parts(value))
    if depth > 1 and not nested:
        return _line(value)
    if depth > 1:
        line = _line(value)
        if len(line) <= tuning.LINE_CHARACTERS:
            return line
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        parts = [f"{_line(k)}: {_lines(v, depth + 1)}" for k, v in value.items()]
        return "{" + inner + ("," + inner).join(parts) + outer + "}"
    return "[" + inner + ("," + inner).join(_lines(v, depth + 1) for v in value) + outer + "]"


def _parts(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value
