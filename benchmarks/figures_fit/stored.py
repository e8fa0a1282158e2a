"""Values of figures on devices, links and software; the values that these have now; and, after a fit, in the JSON files
of presets and profiles, in which all else stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from alpa_explore.cluster import Device, Link, Software
from alpa_explore.cluster.presets import load_preset
from alpa_explore.cluster.software_profiles import load_software
from alpa_explore.store.write import write_text
from benchmarks.figures_fit import tuning
from benchmarks.figures_fit.figures import FAMILIES, LOW_PRECISIONS, RELEASES, SHARED, Figure, Place, Values

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


def overlaid(figures: Iterable[Figure], values: Values, device: Device, inside: Link) -> tuple[Device, Link]:
    """A device with its software, and the link inside a node, with the figures that concern them at these values.

    Figures that concern neither are ignored, so that one set of values serves every device.
    """
    changes: dict[Place, dict[str, Any]] = {place: {} for place in Place}
    for figure in figures:
        if figure.concerns(device.name, device.software.name):
            changes[figure.place][figure.field] = field_value(figure, values[figure.name])
    kernels = device.kernels
    if kernels is not None:
        shares = changes[Place.LOW_PRECISION]
        kernels = replace(
            kernels,
            **changes[Place.KERNELS],
            shares={**kernels.shares, **low_precision_shares(device.peak_flops, shares["shares"])}
            if shares
            else kernels.shares,
        )
    software: Software = replace(device.software, **changes[Place.SOFTWARE])
    device = replace(device, kernels=kernels, software=software, **changes[Place.DEVICE])
    return device, replace(inside, **changes[Place.INSIDE_NODE])


def field_value(figure: Figure, value: float) -> float:
    """The value of the field of a figure."""
    return 1 - value if figure.complement else value


def low_precision_shares(peaks: Mapping[str, float], share: float) -> dict[str, float]:
    """One share for every low precision that a device computes in."""
    return {dtype: share for dtype in LOW_PRECISIONS if dtype in peaks}


def stored_values(figures: Iterable[Figure]) -> dict[str, float]:
    """The values in the presets and profiles now, clipped to the bounds; those of a generation are its first
    device's."""
    return {figure.name: min(max(_stored(figure), figure.low), figure.high) for figure in figures}


def _stored(figure: Figure) -> float:
    if figure.place is Place.SOFTWARE:
        return field_value(figure, float(getattr(load_software(figure.scope), figure.field)))
    device, inside, _ = load_preset(FAMILIES["h100" if figure.scope == SHARED else figure.scope][0])
    if figure.place is Place.DEVICE:
        return float(getattr(device, figure.field))
    if figure.place is Place.INSIDE_NODE:
        return float(getattr(inside, figure.field))
    if figure.place is Place.LOW_PRECISION:
        return next(iter(getattr(device.kernels, figure.field).values()), figure.start)
    return float(getattr(device.kernels, figure.field))


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
