"""Reading a plan file: safe to do with one from a stranger (no pickle, checked, limited in size)."""

import json
import os
import re
from pathlib import Path
from typing import Any, TypeVar

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError, PlanFileError
from alpa_explore.plans.file import tuning
from alpa_explore.plans.file.check import first_fault
from alpa_explore.plans.file.document import FORMAT, VERSION, from_document, rename_older_keys
from alpa_explore.plans.file.schema import unknown_keys
from alpa_explore.plans.value import PlanValue
from alpa_explore.store.read import open_regular, parse_json
from alpa_explore.units import printable

_P = TypeVar("_P", bound=PlanValue)
_AGAIN = "Write it again with `alpa-explore plan … -o FILE`, or ask for another copy."


def read_plan(path: str | os.PathLike[str], kind: type[_P]) -> _P:
    """The plan in a file, as a value of the class `kind`; nothing in the file is executed or imported.

    PlanFileError, with one line that says what to do, when the file is missing, truncated, damaged, too large, from a
    newer version, or not a plan.
    """
    document = _parse(_read(path), path)
    _check_version(document, path)
    try:
        renamed = rename_older_keys(document)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    fault = first_fault(document)
    if fault is not None:
        for new, old in renamed.items():  # name what the file holds
            fault = fault.replace(new, old, 1) if fault.startswith(new) else fault
        raise _damaged(path, fault)
    if unknown := unknown_keys(document):
        document["warnings"] = [*document["warnings"], _ignored(unknown)]
    try:
        return from_document(document, kind)
    except AlpaExploreError as error:  # a figure that no device or link can have
        raise _damaged(path, printable(f"{error.what}: {error.found}")) from error


def _ignored(unknown: list[str]) -> str:
    """A warning: what the file says there may change what the plan means."""
    more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
    names = ", ".join(name if len(name) <= 80 else f"{name[:79]}…" for name in sorted(unknown)[:3])
    what = "a figure in it is" if len(unknown) == 1 else f"{len(unknown)} figures in it are"
    return printable(f"The plan file may be of a later version: {what} not known here, and ignored ({names}{more}).")


def _read(path: str | os.PathLike[str]) -> str:
    file = Path(path)
    if file.is_dir():
        raise PlanFileError("There is no plan file", found=f"{path} is a folder", remedy="Name a file in it.")
    try:
        with open_regular(file) as stream:
            content = stream.read(tuning.MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise PlanFileError(
            "There is no plan file", found=str(path), remedy="Check the name; `alpa-explore plan … -o FILE` writes one."
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        found = f"{path}: {getattr(error, 'strerror', None) or error}"
        raise PlanFileError(
            "The plan file cannot be read", found=found, remedy="Check that you may read it."
        ) from error
    if len(content) > tuning.MAX_BYTES:
        raise _too_large(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_a_plan(path, f"byte {error.start} is not UTF-8 text") from error


def _parse(text: str, path: str | os.PathLike[str]) -> Any:
    try:
        document = parse_json(text)
        # JSON allows half of a surrogate pair; such text could never be encoded, so neither written nor shown.
        if re.search(r"\\u[dD][89a-fA-F]", text):
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except ValueError as error:
        body = text.strip()
        if body.startswith("{") and not body.endswith("}") and f'"{FORMAT}"' in body[:200]:
            found = f"{path} ends after {units.bytes_(len(text))} in the middle of the text"
            raise PlanFileError("The plan file is truncated", found=found, remedy=_AGAIN) from error
        raise _not_a_plan(path, f"not JSON, {error}" if body else "the file is empty") from error
    return document


def _check_version(document: Any, path: str | os.PathLike[str]) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _not_a_plan(path, f'it has no "format": "{FORMAT}"')
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged(path, f"version: {version!r:.40}")
    if version > VERSION:
        raise PlanFileError(
            "The plan file is from a newer alpa_explore",
            found=f"{path} has version {version}; this one reads {VERSION}",
            remedy="Upgrade with `pip install --upgrade alpa-explore`, or plan again.",
        )


def _damaged(path: str | os.PathLike[str], fault: str) -> PlanFileError:
    return PlanFileError("The plan file is damaged", found=f"{path}, {fault}", remedy=_AGAIN)


def _too_large(path: str | os.PathLike[str]) -> PlanFileError:
    return PlanFileError(
        "The plan file is too large",
        found=f"{path} has more than {units.bytes_(tuning.MAX_BYTES)}",
        remedy="A plan is far smaller: check that it is the right file.",
    )


def _not_a_plan(path: str | os.PathLike[str], why: str) -> PlanFileError:
    return PlanFileError(
        "The file is not a plan",
        found=printable(f"{path}, {why}"),
        remedy="Name a file that `alpa-explore plan … -o FILE` or `plan.save` wrote.",
    )
