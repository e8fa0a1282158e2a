"""Device presets: data files beside this module, one JSON file a device, each figure with its source."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from alpa_explore.cluster.device import Device, Link
from alpa_explore.errors import UnknownNameError, nearest_names


@cache
def _presets() -> dict[str, str]:
    """Preset name or alias -> file name."""
    found: dict[str, str] = {}
    for entry in sorted(files(__package__).iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".json"):
            body = json.loads(entry.read_text())
            for name in (body["name"], *body.get("aliases", ())):
                found[name] = entry.name
    return found


def preset_names() -> tuple[str, ...]:
    """The names and aliases that `Cluster.parse` knows."""
    return tuple(sorted(_presets()))


def load_preset(name: str) -> tuple[Device, Link, Link]:
    """(device, link inside a node, link between nodes) of a preset. UnknownNameError offers the nearest names."""
    body = _body(name)
    device = Device(name=body["name"], source=body["source"], **body["device"])
    return device, Link(**body["inside_node"]), Link(**body["between_nodes"])


def load_section(name: str, section: str) -> dict[str, Any] | None:
    """More that a preset's file holds under `section`, for those who know what it means; None where it has none."""
    found: dict[str, Any] | None = _body(name).get(section)
    return found


def _body(name: str) -> dict[str, Any]:
    known = _presets()
    if name.lower() not in known:
        raise UnknownNameError("Unknown device", found=repr(name), remedy=nearest_names(name, known))
    body: dict[str, Any] = json.loads((files(__package__) / known[name.lower()]).read_text())
    return body
