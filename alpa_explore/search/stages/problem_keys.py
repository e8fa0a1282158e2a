"""Keys of stage problems: stages with equal keys have equal problems and are solved once."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.intra_op.stage.stage_graph import StageGraph


def problem_key(stage: StageGraph, prices: str) -> str:
    """The same for stages whose problems are equal, if their `price_key` is the same."""
    return sha256(f"{stage.structure_key} {prices}".encode()).hexdigest()


def price_key(mesh: LogicalMesh, device: Device, solver: str) -> str:
    """A digest of everything but the stage that the prices of choices depend on: not the names and sources of figures,
    nor the memory of a device."""
    figures = replace(device, name="", source="", memory_bytes=0, peak_flops=dict(sorted(device.peak_flops.items())))
    body = (replace(mesh.squeezed(), kind=0), figures, solver)
    return sha256(repr(body).encode()).hexdigest()
