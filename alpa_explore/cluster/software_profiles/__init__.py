"""Software profiles: one JSON file for each framework beside this module, each with the source of its figures."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from alpa_explore.cluster.software import Software
from alpa_explore.errors import UnknownNameError, nearest_names


# Memo of a pure function.
@cache
def by_name(package: str) -> dict[str, dict[str, Any]]:
    """Name or alias -> the contents of its JSON file, of all such files of a package."""
    found: dict[str, dict[str, Any]] = {}
    for entry in sorted(files(package).iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".json"):
            body = json.loads(entry.read_text(encoding="utf-8"))
            found |= dict.fromkeys((body["name"], *body.get("aliases", ())), body)
    return found


def software_names() -> tuple[str, ...]:
    """The names that `Cluster.parse(…, software=…)` accepts, without aliases."""
    return tuple(sorted({body["name"] for body in by_name(__package__).values()}))


def load_software(name: str) -> Software:
    """The profile of a name or alias, in any case. UnknownNameError offers the nearest names."""
    known = by_name(__package__)
    if name.lower() not in known:
        raise UnknownNameError("Unknown software", found=repr(name), remedy=nearest_names(name, software_names()))
    body = known[name.lower()]
    return Software(name=body["name"], label=body["label"], source=body["source"], **body["figures"])
