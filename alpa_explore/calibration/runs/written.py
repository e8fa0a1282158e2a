"""From fitted values to the JSON files of presets and profiles; all else in the files stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from alpa_explore.calibration.runs import tuning
from alpa_explore.calibration.runs.figures import FAMILIES, RELEASES, SHARED, Figure, Place, Values
from alpa_explore.calibration.runs.overlay import field_value, low_precision_shares
from alpa_explore.store.write import write_text

BORROWED: Mapping[str, tuple[str, ...]] = {"megatron": ("torchtitan", "compiled"), "fsdp": ("eager", "deepspeed")}
"""Fitted software -> profiles without measured runs, which have its figures."""
OWN = ("traffic_factor",)
"""Figures that these have for themselves: they follow from what is fused."""
_SECTIONS = {
    Place.DEVICE: "device",
    Place.KERNELS: "kernels",
    Place.LOW_PRECISION: "kernels",
    Place.INSIDE_NODE: "inside_node",
    Place.SOFTWARE: "figures",
}


def write_figures(figures: Iterable[Figure], values: Values, presets: Path, profiles: Path) -> tuple[Path, ...]:
    """Write the values of some figures into the files of two folders; the files that changed.

    PlanFileError where a file cannot be written.
    """
    changes: dict[Path, list[Figure]] = {}
    for figure in figures:
        for path in _files(figure, presets, profiles):
            changes.setdefault(path, []).append(figure)
    written = []
    for path, mine in sorted(changes.items()):
        text = path.read_text(encoding="utf-8")
        body: dict[str, Any] = json.loads(text)
        for figure in mine:
            _set(body, figure, values[figure.name])
        changed = json.dumps(body, indent=2, ensure_ascii=False) + "\n"
        if changed != text:
            write_text(path, changed, "the fitted figures")
            written.append(path)
    return tuple(written)


def _files(figure: Figure, presets: Path, profiles: Path) -> list[Path]:
    if figure.place is Place.SOFTWARE:
        others = () if figure.field in OWN else BORROWED.get(figure.scope, ())
        earlier = RELEASES.get(figure.scope, ()) if figure.shared else ()
        return [profiles / f"{name}.json" for name in (figure.scope, *earlier, *others)]
    families = FAMILIES.values() if figure.scope == SHARED else [FAMILIES[figure.scope]]
    return [presets / f"{name}.json" for names in families for name in names]


def _set(body: dict[str, Any], figure: Figure, value: float) -> None:
    section: dict[str, Any] = body[_SECTIONS[figure.place]]
    rounded = float(f"{field_value(figure, value):.{tuning.DIGITS}g}")
    if figure.place is Place.LOW_PRECISION:
        section[figure.field] = section[figure.field] | low_precision_shares(body["device"]["peak_flops"], rounded)
    else:
        section[figure.field] = rounded
