"""Layers: the forward operators in order, their FLOPs, and the bytes that a cut behind each of them would send.

A layer is a run of consecutive forward operators (Alpa, §5.2, Eq. 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
    HOVER_TEXT,
    dress,
    empty,
    faint,
    ink,
    ink_on,
    lines,
    safe,
    stage_color,
    stage_marker,
)
from alpa_explore.plans.phrases import layers_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import layers_table, stage_of_layer

__all__ = ["layers_figure", "layers_sentence", "layers_table"]

_NARROW, _CHARACTER = 480, 7.0
"""Width of the strip of stages and layers, a narrow one, and of a character in it, in pixels."""


def layers_figure(plan: Plan, theme: str = "light") -> go.Figure:
    """FLOPs of each operator as bars in its stage's colour, above the bytes that would cross a cut behind it."""
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, row_heights=[0.13, 0.52, 0.35], vertical_spacing=0.05)
    _strip(figure, plan, theme)
    _flops(figure, plan, theme)
    _cuts(figure, plan, theme)
    count = sum(len(layer.operators) for layer in plan.layers)
    figure.update_xaxes(range=[-0.5, count - 0.5], showgrid=False, zeroline=False)
    figure.update_xaxes(title="forward operators in order of execution", row=3, col=1)
    return dress(figure, layers_sentence(plan), theme=theme, height=560, barmode="overlay", showlegend=False)


def layers_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    layers = plan.layers
    count, step = sum(len(layer.operators) for layer in layers), _operators_per_mark(plan)
    sharing = "" if step == 1 else f" Each mark stands for up to {step} operators."
    if len(layers) == 1:
        return f"One layer holds all {count:,} forward operators.{sharing}"
    mean = sum(layer.flops for layer in layers) / len(layers)
    above = max(layer.flops for layer in layers) / mean - 1 if mean else 0.0
    most = units.bytes_(max(layer.cut_bytes for layer in layers))
    return (
        f"{len(layers)} layers hold {count:,} forward operators: the largest computes {units.percent(above)} more than "
        f"the mean (delta allows {units.percent(plan.options.delta)}), and at most {most} cross a cut.{sharing}"
    )


def _ends(plan: Plan) -> list[int]:
    """For each layer, the index of the operator that follows its last one."""
    return list(accumulate(len(layer.operators) for layer in plan.layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    """A stage or a layer in the strip at the top, over operators `start` to `end` (exclusive)."""

    row: str
    """'stage' or 'layer'."""
    start: int
    end: int
    stage: int
    label: str
    text: str
    """On hover."""
    key: str


def _strip(figure: go.Figure, plan: Plan, theme: str) -> None:
    """Two rows of boxes at the top: the stages, and the layers in them."""
    ends = _ends(plan)
    starts = [0, *ends[:-1]]
    stage_of = stage_of_layer(plan)
    boxes = [
        _Box(
            row="stage",
            start=starts[s.layers[0]],
            end=ends[s.layers[1]],
            stage=s.index,
            label=_fitting(ends[s.layers[1]] - starts[s.layers[0]], ends[-1], f"stage {s.index}", f"{s.index}"),
            text=lines(
                f"<b>stage {s.index}</b>",
                layers_phrase(s.layers),
                f"{len(s.devices)} devices",
                f"click: selects stage {s.index}",
            ),
            key=key(stage=s.index),
        )
        for s in plan.stages
    ] + [
        _Box(
            row="layer",
            start=starts[layer.index],
            end=ends[layer.index],
            stage=stage_of[layer.index],
            label=_fitting(
                len(layer.operators), ends[-1], f"{layer.index} · {units.flops(layer.flops)}", f"{layer.index}"
            ),
            text=lines(
                f"<b>layer {layer.index}</b>, stage {stage_of[layer.index]}",
                f"{len(layer.operators)} forward operators",
                units.flops(layer.flops),
                f"{units.bytes_(layer.cut_bytes)} cross the cut behind it",
                f"click: selects layer {layer.index}",
            ),
            key=key(stage=stage_of[layer.index], layer=layer.index),
        )
        for layer in plan.layers
    ]
    for stage in plan.stages:
        of_stage = [b for b in boxes if b.stage == stage.index]
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=[b.row for b in of_stage],
                base=[b.start - 0.5 for b in of_stage],
                x=[b.end - b.start for b in of_stage],
                customdata=[b.key for b in of_stage],
                marker=stage_marker(stage.index, theme) | {"line": {"width": 1, "color": empty(theme)}},
                width=0.9,
                text=[b.label for b in of_stage],
                textposition="inside",
                insidetextanchor="middle",
                constraintext="none",
                textangle=0,
                insidetextfont={"color": ink_on(stage_color(stage.index, theme))},
                hovertext=[b.text for b in of_stage],
                hovertemplate=HOVER_TEXT,
                name=f"stage {stage.index}",
            ),
            row=1,
            col=1,
        )
    figure.update_yaxes(categoryorder="array", categoryarray=["layer", "stage"], row=1, col=1, showgrid=False)


def _fitting(operators: int, of: int, *labels: str) -> str:
    """The first label that fits, in a narrow window, into a box of so many of all operators; '' for none."""
    room = _NARROW * operators / (of or 1) / _CHARACTER
    return next((label for label in labels if len(label) <= room), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """One bar: an operator, or, of a very long model, some neighbours in one layer."""

    layer: int
    first: int
    """Index of its first operator."""
    count: int
    flops: int
    """Of all its operators."""
    crossing_bytes: int
    """Across the cheapest cut behind one of its operators."""
    text: str
    key: str


def _marks(plan: Plan) -> list[_Mark]:
    step = _operators_per_mark(plan)
    stage_of, place, marks = stage_of_layer(plan), 0, []
    for layer in plan.layers:
        for at in range(0, len(layer.operators), step):
            names = layer.operators[at : at + step]
            flops, crossing = sum(layer.operator_flops[at : at + step]), min(layer.operator_cut_bytes[at : at + step])
            single = len(names) == 1
            parts: dict[str, int | str] = {"stage": stage_of[layer.index], "layer": layer.index}
            if single:
                parts["operator"] = names[0]
            marks.append(
                _Mark(
                    layer=layer.index,
                    first=place,
                    count=len(names),
                    flops=flops,
                    crossing_bytes=crossing,
                    key=key(**parts),
                    text=lines(
                        f"<b>{safe(names[0])}</b>" if single else f"<b>{safe(names[0])}</b> to {safe(names[-1])}",
                        f"layer {layer.index}",
                        units.flops(flops),
                        f"{'cut behind it' if single else 'cheapest cut among them'}: {units.bytes_(crossing)}",
                    ),
                )
            )
            place += len(names)
    return marks


def _operators_per_mark(plan: Plan) -> int:
    return -(-sum(len(layer.operators) for layer in plan.layers) // tuning.LAYER_MARKS) or 1


def _flops(figure: go.Figure, plan: Plan, theme: str) -> None:
    marks = _marks(plan)
    flops = [mark.flops for mark in marks]
    click = "this operator" if _operators_per_mark(plan) == 1 else "their layer"
    divisor, unit = units.flops_axis(max(flops, default=0))
    for stage in plan.stages:
        of_stage = [mark for mark in marks if stage.layers[0] <= mark.layer <= stage.layers[1]]
        figure.add_trace(
            go.Bar(
                x=[mark.first + (mark.count - 1) / 2 for mark in of_stage],
                y=[mark.flops / divisor for mark in of_stage],
                width=[mark.count for mark in of_stage],
                marker=stage_marker(stage.index, theme),
                customdata=[mark.key for mark in of_stage],
                hovertext=[mark.text for mark in of_stage],
                hovertemplate=f"%{{hovertext}}<br>click: selects {click}<extra></extra>",
                name=f"stage {stage.index}",
            ),
            row=2,
            col=1,
        )
    top = 1.05 * max(flops, default=0) / divisor or 1.0
    _boundaries(figure, plan, theme, top, row=2)
    figure.update_yaxes(title=unit, range=[0, top], row=2, col=1)


def _cuts(figure: go.Figure, plan: Plan, theme: str) -> None:
    """Bytes that a cut behind each operator would send (C of Eq. 6), and the cuts that were made."""
    crossing, marks = [c for layer in plan.layers for c in layer.operator_cut_bytes], _marks(plan)
    divisor, unit = units.bytes_axis(max(crossing, default=0))
    figure.add_trace(
        go.Scatter(
            x=[mark.first + mark.count - 0.5 for mark in marks],
            y=[mark.crossing_bytes / divisor for mark in marks],
            mode="lines",
            line={"shape": "hvh", "color": faint(theme), "width": 1.2},
            fill="tozeroy",
            fillcolor="rgba(123,135,148,0.18)",
            hovertext=[mark.text for mark in marks],
            hovertemplate=HOVER_TEXT,
            name="bytes across a cut",
        ),
        row=3,
        col=1,
    )
    top = 1.25 * max(crossing, default=0) / divisor or 1.0
    ends = [end for end in _ends(plan)[:-1] if end]
    cut = [crossing[end - 1] for end in ends]
    texts = [f"cut behind layer {i}: {units.bytes_(c)}" for i, c in enumerate(cut)]
    common = {"hovertext": texts, "hovertemplate": HOVER_TEXT, "name": "cuts"}
    places = [end - 0.5 for end in ends]
    figure.add_trace(
        go.Scatter(
            x=places,
            y=[c / divisor for c in cut],
            mode="markers",
            marker={"symbol": "diamond", "size": 10, "color": ink(theme)},
            cliponaxis=False,
            **common,
        ),
        row=3,
        col=1,
    )
    if len(ends) <= tuning.LABELLED_CUTS:
        figure.add_trace(
            go.Scatter(
                x=places,
                y=[0.9 * top] * len(cut),
                mode="text",
                text=[f" {units.bytes_(c)}" for c in cut],
                textposition="middle right",
                textfont={"size": 12, "color": ink(theme)},
                **common,
            ),
            row=3,
            col=1,
        )
    _boundaries(figure, plan, theme, top, row=3)
    figure.update_yaxes(title=f"{unit} across a cut here", range=[0, top], row=3, col=1)


def _boundaries(figure: go.Figure, plan: Plan, theme: str, top: float, *, row: int) -> None:
    places = [end - 0.5 for end in _ends(plan)[:-1]]
    figure.add_trace(
        go.Scatter(
            x=[x for place in places for x in (place, place, None)],
            y=[0, top, None] * len(places),
            mode="lines",
            line={"color": ink(theme), "width": 1, "dash": "dot"},
            hoverinfo="skip",
            name="layer boundaries",
        ),
        row=row,
        col=1,
    )
