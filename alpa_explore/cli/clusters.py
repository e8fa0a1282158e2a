"""`alpa-explore clusters`: list the device presets, with all figures and their sources."""

import argparse
from typing import Any

from alpa_explore import units
from alpa_explore.cli.output import answer
from alpa_explore.plans.report.text import render_table

COMMAND = """clusters  list the devices that a cluster can have
    List the devices that `--cluster NODESxDEVICES:DEVICE` accepts, with their figures and sources.
--json  print JSON"""

_NOTE = """
A cluster is NODESxDEVICES:DEVICE, such as 2x8:a100. Links: bandwidth
of one device inside a node and of a whole node between nodes; then latency.

Sources"""


def run(options: argparse.Namespace) -> int:
    """Print the presets."""
    rows = _rows()
    shown = [
        {
            "device": row["device"],
            "also": ", ".join(row["aliases"]),
            "memory_bytes": row["memory_bytes"],
            "float16": units.flops_per_second(row["peak_flops"].get("float16", row["peak_flops"]["float32"])),
            "float32": units.flops_per_second(row["peak_flops"]["float32"]),
            "memory bandwidth": units.bytes_per_second(row["memory_bandwidth"]),
            "inside a node": _link(row["inside_node"]),
            "between nodes": _link(row["between_nodes"]),
        }
        for row in rows
    ]
    sources = (
        f"  {row['device']}: {row['source']}\n    inside a node: {row['inside_node']['source']}\n"
        f"    between nodes: {row['between_nodes']['source']}"
        for row in rows
    )
    return answer(options, rows, lambda: "\n".join((render_table(shown), _NOTE, *sources)))


def _rows() -> list[dict[str, Any]]:
    """One row per device, with its aliases."""
    from dataclasses import asdict

    from alpa_explore.cluster.presets import load_preset, preset_names

    row_of: dict[str, dict[str, Any]] = {}
    for name in preset_names():
        device, inside, between = load_preset(name)
        figures = asdict(device) | {"software": device.software.name}
        row = {"device": figures.pop("name"), "aliases": [], **figures}
        row |= {"inside_node": asdict(inside), "between_nodes": asdict(between)}
        row_of.setdefault(device.name, row)
        if name != device.name:
            row_of[device.name]["aliases"].append(name)
    return list(row_of.values())


def _link(link: dict[str, Any]) -> str:
    return f"{units.bytes_per_second(link['bandwidth'])}, {units.seconds(link['latency_seconds'])}"
