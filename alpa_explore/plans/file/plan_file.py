"""Plan files: JSON that a person can read and compare, safe to open from a stranger (no pickle, checked, limited)."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from alpa_explore import units
from alpa_explore.errors import PlanFileError
from alpa_explore.plans.file.check import first_fault
from alpa_explore.plans.file.document import FORMAT, VERSION, from_document, rename_older_keys, to_document
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.text import printable
from alpa_explore.store.write import write_text

MAX_BYTES = 128 * 2**20
"""Largest plan file that is read: a plan for 512 devices takes a tenth of it."""
_LINE = 150
"""Characters up to which a list or an object stays on one line."""
_DEPTH = 4
"""Levels below which nothing is broken over lines: an operator of a stage is one line."""
_AGAIN = "Write it again with `alpa-explore plan … -o FILE`, or ask for another copy."


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the plan file, whole or not at all. PlanFileError when that is impossible (folder missing, disk full)."""
    write_text(path, plan_text(plan), "The plan")


def plan_text(plan: Plan) -> str:
    """The text of the plan file: the same plan always gives the same text."""
    try:
        text = _lines(to_document(plan)) + "\n"
    except ValueError as error:  # json's: NaN and infinity are not JSON
        raise PlanFileError(
            "The plan was not written",
            found=f"a figure in it is not a number ({error})",
            remedy="Check the cluster's figures (bandwidths, FLOP/s): one of them may be 0.",
        ) from error
    if len(text) > MAX_BYTES:
        raise PlanFileError(
            "The plan was not written",
            found=f"{units.bytes_(len(text))} are more than plan files may hold",
            remedy="Plan with fewer layers: candidates grow with their square.",
        )
    return text


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file; nothing in it is run, imported or followed.

    PlanFileError, with one line that says what to do, when the file is missing, cut off, damaged, too large, from a
    newer version, or not a plan.
    """
    document = _parse(_read(path), path)
    _recognise(document, path)
    rename_older_keys(document)
    fault = first_fault(document)
    if fault is not None:
        raise PlanFileError("The plan file is damaged", found=f"{path}, {fault}", remedy=_AGAIN)
    return from_document(document)


def _read(path: str | os.PathLike[str]) -> str:
    where = Path(path)
    try:
        status = where.stat()
        if stat.S_ISDIR(status.st_mode):
            raise PlanFileError("There is no plan file", found=f"{path} is a folder", remedy="Name a file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise PlanFileError(
                "There is no plan file", found=f"{path} is a pipe or a device", remedy="Copy it to a file first."
            )
        if status.st_size > MAX_BYTES:
            raise _too_large(path)
        with where.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise PlanFileError(
            "There is no plan file", found=str(path), remedy="Check the name; `alpa-explore plan … -o FILE` writes one."
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        found = f"{path}: {getattr(error, 'strerror', None) or error}"
        raise PlanFileError(
            "The plan file cannot be read", found=found, remedy="Check that you may read it."
        ) from error
    if len(content) > MAX_BYTES:  # it has grown meanwhile
        raise _too_large(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_a_plan(path, f"byte {error.start} is not UTF-8 text") from error


def _parse(text: str, path: str | os.PathLike[str]) -> Any:
    try:
        document = json.loads(text, parse_constant=_refuse)
        # Half of a surrogate pair is legal in JSON and in no other text: it could never be written or shown again.
        if re.search(r"\\u[dD][89a-fA-F]", text):
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise _not_a_plan(path, "lists nested too deeply") from error
    except ValueError as error:
        body = text.strip()
        if body.startswith("{") and not body.endswith("}") and f'"{FORMAT}"' in body[:200]:
            found = f"{path} ends after {units.bytes_(len(text))} in the middle of the text"
            raise PlanFileError("The plan file is cut off", found=found, remedy=_AGAIN) from error
        raise _not_a_plan(path, f"not JSON, {error}" if body else "the file is empty") from error
    return document


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _recognise(document: Any, path: str | os.PathLike[str]) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _not_a_plan(path, f'it has no "format": "{FORMAT}"')
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise PlanFileError("The plan file is damaged", found=f"{path}, version: {version!r:.40}", remedy=_AGAIN)
    if version > VERSION:
        raise PlanFileError(
            "The plan file is from a newer alpa_explore",
            found=f"{path} has version {version}; this one reads {VERSION}",
            remedy="Upgrade with `pip install --upgrade alpa-explore`, or plan again.",
        )


def _too_large(path: str | os.PathLike[str]) -> PlanFileError:
    return PlanFileError(
        "The plan file is too large",
        found=f"{path} has more than {units.bytes_(MAX_BYTES)}",
        remedy="A plan is far smaller: check that it is the right file.",
    )


def _not_a_plan(path: str | os.PathLike[str], why: str) -> PlanFileError:
    return PlanFileError(
        "The file is not a plan",
        found=printable(f"{path}, {why}"),
        remedy="Name a file that `alpa-explore plan … -o FILE` or `plan.save` wrote.",
    )


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with one layer, operator, candidate or figure a line, so that two plans can be compared line by line."""
    nested = isinstance(value, dict | list) and any(isinstance(v, dict | list) for v in _parts(value))
    if depth == _DEPTH or (depth > 1 and not nested) or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if depth > 1:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if len(line) <= _LINE:
            return line
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        parts = [f"{json.dumps(k, ensure_ascii=False)}: {_lines(v, depth + 1)}" for k, v in value.items()]
        return "{" + inner + ("," + inner).join(parts) + outer + "}"
    return "[" + inner + ("," + inner).join(_lines(v, depth + 1) for v in value) + outer + "]"


def _parts(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value
