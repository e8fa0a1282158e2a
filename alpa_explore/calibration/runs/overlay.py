"""Values of figures on devices, links and software; and the values that these have now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from alpa_explore.calibration.runs.figures import FAMILIES, LOW_PRECISIONS, SHARED, Figure, Place, Values
from alpa_explore.cluster import Device, Link, Software
from alpa_explore.cluster.presets import load_preset
from alpa_explore.cluster.software_profiles import load_software


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
