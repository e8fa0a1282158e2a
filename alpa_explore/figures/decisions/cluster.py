"""The devices of the cluster as a grid, each with its stage and the contents of its memory."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
    HOVER_TEXT,
    dress,
    empty,
    faint,
    hatching,
    ink_on,
    lines,
    stage_color,
    stage_marker,
)
from alpa_explore.plans.phrases import layers_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.tables import stages_table
from alpa_explore.plans.report.text import fullest

__all__ = ["cluster_figure", "cluster_sentence", "cluster_table"]

cluster_table = stages_table

_WIDTH, _HEAD, _GAUGE = 0.9, 0.36, 0.5
"""Of a cell of 1 × 1: the width of its box, and the heights of its heading and of its memory gauge."""
_BOTTOM = (1 - _HEAD - _GAUGE) / 2
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
    """Nodes as rows, devices as boxes: a heading in the stage's colour above a gauge of the device's memory.

    Of a larger cluster, `count` nodes from node `start` on are shown.
    """
    cluster = plan.cluster
    nodes = range(min(max(start, 0), cluster.nodes - 1), min(start + count, cluster.nodes))
    stage_of = {d: s for s in plan.stages for d in s.devices}
    boxes = []
    for row, node in enumerate(reversed(nodes)):
        for column in range(cluster.devices_per_node):
            device = node * cluster.devices_per_node + column
            stage = stage_of.get(device)
            color = stage_color(stage.index, theme) if stage else empty(theme)
            boxes.append(_Box(device=device, column=column, row=row, stage=stage, color=color))
    figure = go.Figure()
    _gauges(figure, plan, boxes, theme)
    _headings(figure, plan, boxes, theme)
    height = 150 + min(130, max(34, 1500 // len(nodes))) * len(nodes)
    width = cluster.devices_per_node
    figure.update_xaxes(
        title=f"devices of a node, joined by {units.bytes_per_second(cluster.inside_node.bandwidth)} each",
        range=[-0.5, width - 0.5],
        tickmode="linear",
        dtick=1 if width <= 32 else 8,
        showgrid=False,
        zeroline=False,
    )
    figure.update_yaxes(
        title=f"nodes, joined by {units.bytes_per_second(cluster.between_nodes.bandwidth)}" if len(nodes) > 1 else "",
        range=[0, len(nodes)],
        tickvals=[row + 0.5 for row in range(len(nodes))],
        ticktext=[f"node {node}" for node in reversed(nodes)],
        showgrid=False,
        zeroline=False,
    )
    page = "" if len(nodes) == cluster.nodes else f" Nodes {nodes[0]} to {nodes[-1]} of {cluster.nodes} are shown."
    figure = dress(figure, cluster_sentence(plan) + page, theme=theme, height=height, barmode="overlay")
    return figure.update_layout(margin={"l": 96})


def cluster_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    full, memory = fullest(plan), plan.cluster.device.memory_bytes
    used = f"{units.bytes_(full.peak_bytes)} of {units.bytes_(memory)} ({units.percent(full.peak_bytes / memory)})"
    if len(plan.stages) == 1:
        return f"One stage takes all {plan.cluster.devices} devices, each with {used} in use at the peak."
    stages = f"{len(plan.stages)} stages share the {plan.cluster.devices} devices"
    return f"{stages}; stage {full.index} is the fullest, with {used}."


def _gauges(figure: go.Figure, plan: Plan, boxes: list[_Box], theme: str) -> None:
    """A box for the memory of each device, filled from the bottom with the parts of its peak."""
    figure.add_trace(
        go.Bar(
            x=[b.column for b in boxes],
            base=[b.row + _BOTTOM for b in boxes],
            y=[_GAUGE] * len(boxes),
            width=_WIDTH,
            marker={"color": empty(theme), "line": {"color": faint(theme), "width": 1}},
            hovertext=[_text(plan, b) for b in boxes],
            hovertemplate=HOVER_TEXT,
            name="memory of a device",
            showlegend=False,
        )
    )
    memory = plan.cluster.device.memory_bytes
    used = [b for b in boxes if b.stage is not None]
    filled = [0.0] * len(used)
    for part, (name, pattern) in enumerate(_PARTS):
        shares = [_parts(b.stage)[part] / memory for b in used if b.stage is not None]
        figure.add_trace(
            go.Bar(
                x=[b.column for b in used],
                y=[_GAUGE * share for share in shares],
                width=_WIDTH,
                base=[b.row + _BOTTOM + _GAUGE * y for b, y in zip(used, filled, strict=True)],
                marker={
                    "color": [b.color for b in used],
                    "line": {"width": 0},
                    "pattern": hatching(pattern),
                },
                hovertext=[_text(plan, b) for b in used],
                hovertemplate=HOVER_TEXT,
                name=name,
                customdata=[_key(b) for b in used],
                legendgroup=name,
                showlegend=False,
            )
        )
        # Grey in the legend, no stage's colour: the hatching distinguishes the parts.
        figure.add_trace(
            go.Bar(
                x=[None],
                y=[None],
                name=name,
                legendgroup=name,
                marker={"color": faint(theme), "pattern": hatching(pattern)},
            )
        )
        filled = [y + share for y, share in zip(filled, shares, strict=True)]


def _headings(figure: go.Figure, plan: Plan, boxes: list[_Box], theme: str) -> None:
    for stage in plan.stages:
        of_stage = [b for b in boxes if b.stage is stage]
        figure.add_trace(
            go.Bar(
                x=[b.column for b in of_stage],
                base=[b.row + _BOTTOM + _GAUGE for b in of_stage],
                y=[_HEAD] * len(of_stage),
                width=_WIDTH,
                marker=stage_marker(stage.index, theme),
                text=[_label(plan, stage)] * len(of_stage),
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                insidetextfont={"color": ink_on(stage_color(stage.index, theme))},
                hovertext=[_text(plan, b) for b in of_stage],
                hovertemplate=HOVER_TEXT,
                customdata=[_key(b) for b in of_stage],
                name=f"stage {stage.index}",
                showlegend=False,
            )
        )


def _key(box: _Box) -> str:
    return key(device=box.device) if box.stage is None else key(stage=box.stage.index, device=box.device)


def _parts(stage: PlanStage) -> tuple[float, float, float]:
    return stage.weight_bytes, stage.activations_held_bytes, stage.workspace_bytes


def _label(plan: Plan, stage: PlanStage) -> str:
    """As much as fits into the heading: cells are narrow where a node has many devices."""
    share = units.percent(round(stage.peak_bytes / plan.cluster.device.memory_bytes, 2))
    if plan.cluster.devices_per_node > 8:
        return str(stage.index)
    if plan.cluster.devices_per_node > 4:
        return f"<b>stage {stage.index}</b><br>{share}"
    return f"<b>stage {stage.index}</b> · {layers_phrase(stage.layers)}<br>{units.bytes_(stage.peak_bytes)} ({share})"


def _text(plan: Plan, box: _Box) -> str:
    per_node = plan.cluster.devices_per_node
    title = f"<b>device {box.device}</b> (node {box.device // per_node}, device {box.device % per_node} in it)"
    stage = box.stage
    if stage is None:
        return lines(title, "not used")
    return lines(
        title,
        f"stage {stage.index}: {layers_phrase(stage.layers)}",
        f"submesh {stage.submesh}, logical mesh {stage.logical_mesh}",
        f"{units.seconds(stage.latency_seconds)} a microbatch",
        f"weights, gradients, optimizer state {units.bytes_(stage.weight_bytes)}",
        f"activations held {stage.microbatches_held} × {units.bytes_(stage.activation_bytes)}",
        f"workspace {units.bytes_(stage.workspace_bytes)}",
        f"peak {units.bytes_(stage.peak_bytes)} of {units.bytes_(plan.cluster.device.memory_bytes)}",
    )
