"""The devices of the cluster as a grid, each with its stage and the contents of its memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
    HOVER_TEXT,
    empty,
    faint,
    ground,
    hatching,
    ink,
    layout_of,
    lines,
    mixed,
    safe,
    stage_color,
    unchecked,
)
from alpa_explore.plans.phrases import layers_phrase, logical_mesh_phrase, stage_phrase, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.error_bands import bytes_with_band
from alpa_explore.plans.report.tables import stages_table
from alpa_explore.plans.report.text import fullest, recomputed_words

__all__ = ["cluster_figure", "cluster_sentence", "cluster_table"]

cluster_table = stages_table

_NODES_PIXELS, _LEAST_NODE, _MOST_NODE = 400, 34, 110
"""Height of all nodes, and of one: as many as possible on a screen."""
_HEAD, _EDGE = 17, 5
"""Height of a heading, and the edge round the boxes below it, in pixels."""
_NARROW, _CHARACTER = 440, 6.5
"""Width of the nodes in a narrow window, and of a character of a heading, in pixels."""
_NAMED_STAGES = 6
"""Stages whose nodes the sentence names one by one."""
_WIDTH = 0.86
"""Of the box of a device, which has a place of 1."""
_PARTS = (("weights, gradients, optimizer state", ""), ("activations held", "/"), ("workspace", "x"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    device: int
    column: int
    row: int
    """From the bottom; node 0 is at the top."""
    stage: PlanStage | None
    color: str


def cluster_figure(plan: Plan, theme: str = "light", *, start: int = 0, count: int = 64) -> go.Figure:
    """Nodes as rows, devices as boxes that are filled from the left as far as their memory; the devices of a stage in
    a node have a ground in its colour and a heading.

    Of a larger cluster, `count` nodes from node `start` on are shown.
    """
    cluster = plan.cluster
    nodes = range(min(max(start, 0), cluster.nodes - 1), min(start + count, cluster.nodes))
    boxes = _boxes(plan, nodes, theme)
    pixels = min(_MOST_NODE, max(_LEAST_NODE, _NODES_PIXELS / len(nodes)))
    page = "" if len(nodes) == cluster.nodes else f" Nodes {nodes[0]} to {nodes[-1]} of {cluster.nodes} are shown."
    width, edge = cluster.devices_per_node, 0.02 * cluster.devices_per_node
    unit = cluster.tiers[0].name
    joined = [
        f"{inner.name}s, joined by {units.bytes_per_second(tier.link.bandwidth)}"
        for inner, tier in pairwise(cluster.tiers)
    ]
    plain = {"showgrid": False, "zeroline": False}
    layout = layout_of(
        cluster_sentence(plan) + page,
        theme=theme,
        height=round(pixels * len(nodes)) + 150,
        margin={"l": 84},
        barmode="overlay",
        xaxis=plain
        | {
            "title": {"text": f"devices of a {unit}, joined by {_inside(cluster)} each"},
            "range": [-0.5 - 2 * edge, width - 0.5],
            "tickmode": "linear",
            "dtick": 1 if width <= 32 else 8,
        },
        yaxis=plain
        | {
            "title": {"text": "<br>".join(reversed(joined)) if len(nodes) > 1 else ""},
            "range": [0, len(nodes)],
            "tickvals": [row + 0.5 for row in range(len(nodes))],
            "ticktext": [_node_name(cluster, unit, node) for node in reversed(nodes)],
        },
    )
    bottom, height = _EDGE / pixels, 1 - (_HEAD + 2 * _EDGE) / pixels
    traces = [
        _links(len(nodes), width, edge, bottom + height / 2, theme),
        _regions(plan, boxes, theme),
        _memories(plan, boxes, bottom, height, theme),
        *_contents(plan, boxes, bottom, height),
        *_legend(plan, theme),
    ]
    return unchecked(traces, layout)


def _node_name(cluster: Cluster, unit: str, node: int) -> str:
    """'node 0'; of unlike nodes 'node 0<br>h100'."""
    if not cluster.others:
        return f"{unit} {node}"
    return f"{unit} {node}<br>{safe(cluster.part_of(node * cluster.devices_per_node).device.name)}"


def cluster_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    full = fullest(plan)
    memory = plan.device_of(full).memory_bytes
    share = units.percent(full.peak_bytes / memory)
    used = f"{bytes_with_band(plan, full.peak_bytes)} of {units.bytes_(memory)} ({share})"
    if len(plan.stages) == 1:
        return f"One stage takes all {plan.cluster.devices} devices, each with {used} in use at the peak."
    stages = f"{len(plan.stages)} stages share the {plan.cluster.devices} devices"
    return f"{stages}{_kinds_phrase(plan)}; stage {full.index} is the fullest, with {used}."


def _kinds_phrase(plan: Plan) -> str:
    """Of unlike nodes, which stages are on which: ': 0 on 1×8 h100, 1 on 1×8 a100'; of many, how many: ': 6 on h100,
    2 on a100'."""
    if not plan.cluster.others:
        return ""
    if len(plan.stages) > _NAMED_STAGES:
        counts = Counter(safe(stage.device) for stage in plan.stages)
        return ": " + ", ".join(f"{count} on {device}" for device, count in counts.items())
    return ": " + ", ".join(f"{s.index} on {submesh_phrase(s.submesh, s.device)}" for s in plan.stages)


def _inside(cluster: Cluster) -> str:
    """The link inside a node, of every kind."""
    rates = dict.fromkeys(units.bytes_per_second(kind.inside_node.bandwidth) for kind in cluster.kinds)
    return " or ".join(rates)


def _boxes(plan: Plan, nodes: range, theme: str) -> list[_Box]:
    stage_of = {d: s for s in plan.stages for d in s.devices}
    boxes = []
    for row, node in enumerate(reversed(nodes)):
        for column in range(plan.cluster.devices_per_node):
            device = node * plan.cluster.devices_per_node + column
            stage = stage_of.get(device)
            color = stage_color(stage.index, theme) if stage else empty(theme)
            boxes.append(_Box(device=device, column=column, row=row, stage=stage, color=color))
    return boxes


def _links(nodes: int, width: int, edge: float, height: float, theme: str) -> dict[str, Any]:
    """Lines between the devices of each node, and one at the left that joins the nodes."""
    left = -0.5 - edge
    ends = [left, *(column + side * _WIDTH / 2 for column in range(width) for side in (-1, 1))][:-1]
    x: list[float | None] = []
    y: list[float | None] = []
    for row in range(nodes):
        for start, end in zip(ends[::2], ends[1::2], strict=True):
            x += [start, end, None]
            y += [row + height, row + height, None]
    return {
        "type": "scatter",
        "x": [*x, left, left],
        "y": [*y, height, nodes - 1 + height],
        "mode": "lines",
        "line": {"color": faint(theme), "width": 2},
        "hoverinfo": "skip",
        "showlegend": False,
        "name": "links",
    }


def _regions(plan: Plan, boxes: list[_Box], theme: str) -> dict[str, Any]:
    """The devices of a stage in each node, with a heading: a pale ground, so that the memory stands out."""
    runs = [
        (stage, list(run))
        for (_, stage), run in groupby(((b, b.stage) for b in boxes), key=lambda pair: (pair[0].row, pair[1]))
        if stage is not None
    ]
    regions = [(stage, [box for box, _ in run]) for stage, run in runs]
    return {
        "type": "bar",
        "x": [(run[0].column + run[-1].column) / 2 for _, run in regions],
        "base": [run[0].row + 0.03 for _, run in regions],
        "y": [0.94] * len(regions),
        "width": [len(run) - 0.04 for _, run in regions],
        "marker": {
            "color": [mixed(run[0].color, ground(theme), 0.78) for _, run in regions],
            "line": {"color": [run[0].color for _, run in regions], "width": 1.5},
        },
        "text": [_heading(plan, stage, len(run)) for stage, run in regions],
        "textposition": "inside",
        "insidetextanchor": "end",
        "textangle": 0,
        "constraintext": "none",
        "insidetextfont": {"color": ink(theme), "size": 12},
        "hovertext": [lines(*_stage_lines(plan, stage), f"click: selects stage {stage.index}") for stage, _ in regions],
        "hovertemplate": HOVER_TEXT,
        "customdata": [key(stage=stage.index) for stage, _ in regions],
        "showlegend": False,
        "name": "stages",
    }


def _heading(plan: Plan, stage: PlanStage, devices: int) -> str:
    """As much as fits above so many devices of a node."""
    room = devices * _NARROW / plan.cluster.devices_per_node / _CHARACTER
    share = units.percent(round(stage.peak_bytes / plan.device_of(stage).memory_bytes, 2))
    parts = (f"stage {stage.index}", layers_phrase(stage.layers), f"{units.bytes_(stage.peak_bytes)} ({share})")
    shorter = (f"{stage.index}: {share}", str(stage.index))
    headings = (" · ".join(parts), " · ".join([*parts[:2], share]), f"{parts[0]} · {share}", *shorter)
    text = next((heading for heading in headings if len(heading) <= room), "")
    first, *rest = text.split(" · ")
    return " · ".join([f"<b>{first}</b>", *rest]) if text else ""


def _memories(plan: Plan, boxes: list[_Box], bottom: float, height: float, theme: str) -> dict[str, Any]:
    """A box for the memory of each device; where it is pressed, filled or not, it selects the device."""
    return {
        "type": "bar",
        "x": [b.column for b in boxes],
        "base": [b.row + bottom for b in boxes],
        "y": [height] * len(boxes),
        "width": _WIDTH,
        "marker": {"color": ground(theme), "line": {"color": ink(theme), "width": 1}},
        "hovertext": [_text(plan, b) for b in boxes],
        "hovertemplate": HOVER_TEXT,
        "customdata": ["" if b.stage is None else key(stage=b.stage.index, device=b.device) for b in boxes],
        "name": "memory of a device",
        "showlegend": False,
    }


def _contents(plan: Plan, boxes: list[_Box], bottom: float, height: float) -> list[dict[str, Any]]:
    """The parts of each device's peak, beside each other from the left edge of its box."""
    used = [(b, b.stage) for b in boxes if b.stage is not None]
    filled = [b.column - _WIDTH / 2 for b, _ in used]
    traces = []
    for part, (name, pattern) in enumerate(_PARTS):
        widths = [_WIDTH * _parts(stage)[part] / plan.device_of(stage).memory_bytes for _, stage in used]
        traces.append(
            {
                "type": "bar",
                "x": [left + width / 2 for left, width in zip(filled, widths, strict=True)],
                "base": [b.row + bottom for b, _ in used],
                "y": [height] * len(used),
                "width": widths,
                "marker": {"color": [b.color for b, _ in used], "line": {"width": 0}, "pattern": hatching(pattern)},
                "hoverinfo": "skip",
                "customdata": [key(stage=stage.index, device=b.device) for b, stage in used],
                "name": name,
                "showlegend": False,
            }
        )
        filled = [left + width for left, width in zip(filled, widths, strict=True)]
    return traces


def _legend(plan: Plan, theme: str) -> list[dict[str, Any]]:
    """Grey, no stage's colour: the hatching distinguishes the parts."""
    entry = {"type": "bar", "x": [None], "y": [None], "hoverinfo": "skip"}
    memories = dict.fromkeys(units.bytes_(kind.device.memory_bytes) for kind in plan.cluster.kinds)
    free = {"color": ground(theme), "line": {"color": ink(theme), "width": 1}}
    return [
        *(
            entry | {"name": name, "marker": {"color": faint(theme), "pattern": hatching(pattern)}}
            for name, pattern in _PARTS
        ),
        entry | {"name": f"free of {' or '.join(memories)}", "marker": free},
    ]


def _parts(stage: PlanStage) -> tuple[float, float, float]:
    return stage.weight_bytes, stage.activations_held_bytes, stage.workspace_bytes


def _text(plan: Plan, box: _Box) -> str:
    per_node = plan.cluster.devices_per_node
    kind = f"{safe(plan.cluster.part_of(box.device).device.name)}, " if plan.cluster.others else ""
    title = (
        f"<b>device {box.device}</b> ({kind}{_place(plan.cluster, box.device)}, device {box.device % per_node} in it)"
    )
    stage = box.stage
    if stage is None:
        return lines(title, "not used")
    click = f"click: selects device {box.device} and its stage, {stage.index}"
    return lines(title, *_stage_lines(plan, stage), click)


def _place(cluster: Cluster, device: int) -> str:
    """'node 3', 'pod 1, node 3', 'rack 1, tray 20'; numbers count from the first of the cluster."""
    tiers = [(tier.name, tier.devices) for tier in cluster.tiers[:-1]]
    if cluster.devices_per_host < cluster.devices_per_node:
        tiers.insert(0, (cluster.levels[0].name, cluster.devices_per_host))
    return ", ".join(f"{name} {device // size}" for name, size in reversed(tiers))


def _stage_lines(plan: Plan, stage: PlanStage) -> tuple[str, ...]:
    memory = plan.device_of(stage).memory_bytes
    share = units.percent(stage.peak_bytes / memory)
    return (
        stage_phrase(stage),
        logical_mesh_phrase(stage.logical_mesh),
        f"{units.seconds(stage.latency_seconds)} per microbatch",
        *([f"recomputes {words}"] if (words := recomputed_words(stage)) else []),
        f"weights, gradients, optimizer state {units.bytes_(stage.weight_bytes)}",
        f"activations held {stage.microbatches_held} × {units.bytes_(stage.activation_bytes)}",
        f"workspace {units.bytes_(stage.workspace_bytes)}",
        f"peak {units.bytes_(stage.peak_bytes)} of {units.bytes_(memory)} ({share}) on each of its devices",
    )
