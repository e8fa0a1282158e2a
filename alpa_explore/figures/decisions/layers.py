"""Layers: the forward operators in order, their FLOPs, and the bytes that a cut behind each of them would send."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
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
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import layers_table, stage_of_layer

__all__ = ["layers_figure", "layers_sentence", "layers_table"]

_MOST_MARKS = 2000
"""Of more operators several share a mark: thousands of bars take a browser longer than a second."""
_LABELLED_CUTS = 16
"""So many cuts have their bytes written beside them; more would overlap."""


def layers_figure(plan: Plan, theme: str = "light") -> go.Figure:
    """Bars of FLOPs by operator in the colour of their stage, over the bytes that would cross a cut behind each."""
    figure = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        row_heights=[0.13, 0.52, 0.35],
        vertical_spacing=0.05,
    )
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
    count, step = sum(len(layer.operators) for layer in layers), _operators_a_mark(plan)
    shared = "" if step == 1 else f" Each mark stands for up to {step} operators."
    if len(layers) == 1:
        return f"One layer holds all {count:,} forward operators.{shared}"
    mean = sum(layer.flops for layer in layers) / len(layers)
    above = max(layer.flops for layer in layers) / mean - 1 if mean else 0.0
    most = units.bytes_(max(layer.cut_bytes for layer in layers))
    return (
        f"{len(layers)} layers hold {count:,} forward operators: the largest computes {units.percent(above)} more than "
        f"the mean (delta allows {units.percent(plan.options.delta)}), and at most {most} leave a layer.{shared}"
    )


def _ends(plan: Plan) -> list[int]:
    """For each layer the place behind its last operator."""
    return list(accumulate(len(layer.operators) for layer in plan.layers))


def _strip(figure: go.Figure, plan: Plan, theme: str) -> None:
    """Two rows of boxes on top: stages, and the layers in them."""
    ends = _ends(plan)
    starts = [0, *ends[:-1]]
    stage_of = stage_of_layer(plan)
    boxes = [
        (
            key(stage=s.index),
            "stage",
            starts[s.layers[0]],
            ends[s.layers[1]],
            s.index,
            f"stage {s.index}" if len(plan.stages) < 13 else f"{s.index}",
            lines(f"<b>stage {s.index}</b>", f"layers {s.layers[0]} to {s.layers[1]}", f"{len(s.devices)} devices"),
        )
        for s in plan.stages
    ] + [
        (
            key(stage=stage_of[layer.index], layer=layer.index),
            "layer",
            starts[layer.index],
            ends[layer.index],
            stage_of[layer.index],
            f"{layer.index}" if len(plan.layers) > 8 else f"{layer.index} · {units.flops(layer.flops)}",
            lines(
                f"<b>layer {layer.index}</b>, stage {stage_of[layer.index]}",
                f"{len(layer.operators)} forward operators",
                units.flops(layer.flops),
                f"{units.bytes_(layer.cut_bytes)} leave it",
            ),
        )
        for layer in plan.layers
    ]
    for stage in plan.stages:
        own = [b for b in boxes if b[4] == stage.index]
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=[b[1] for b in own],
                base=[b[2] - 0.5 for b in own],
                x=[b[3] - b[2] for b in own],
                customdata=[b[0] for b in own],
                marker=stage_marker(stage.index, theme) | {"line": {"width": 1, "color": empty(theme)}},
                width=0.9,
                text=[b[5] for b in own],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                insidetextfont={"color": ink_on(stage_color(stage.index, theme))},
                hovertext=[b[6] for b in own],
                hovertemplate="%{hovertext}<extra></extra>",
                name=f"stage {stage.index}",
            ),
            row=1,
            col=1,
        )
    figure.update_yaxes(categoryorder="array", categoryarray=["layer", "stage"], row=1, col=1, showgrid=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What one mark stands for: an operator, or, of a very long model, some neighbours in one layer."""

    layer: int
    first: int
    """Place of its first operator."""
    count: int
    flops: int
    """Of all of them."""
    crossing_bytes: int
    """Across the cheapest cut behind one of them."""
    text: str
    key: str


def _runs(plan: Plan) -> list[_Run]:
    step = _operators_a_mark(plan)
    stage_of, place, found = stage_of_layer(plan), 0, []
    for layer in plan.layers:
        for at in range(0, len(layer.operators), step):
            names = layer.operators[at : at + step]
            flops, crossing = sum(layer.operator_flops[at : at + step]), min(layer.operator_cut_bytes[at : at + step])
            only = len(names) == 1
            here = {"stage": stage_of[layer.index], "layer": layer.index} | ({"operator": names[0]} if only else {})
            found.append(
                _Run(
                    layer=layer.index,
                    first=place,
                    count=len(names),
                    flops=flops,
                    crossing_bytes=crossing,
                    key=key(**here),
                    text=lines(
                        f"<b>{safe(names[0])}</b>" if only else f"<b>{safe(names[0])}</b> to {safe(names[-1])}",
                        f"layer {layer.index}",
                        units.flops(flops),
                        f"{'a cut behind it' if only else 'the cheapest cut here'}: {units.bytes_(crossing)}",
                    ),
                )
            )
            place += len(names)
    return found


def _operators_a_mark(plan: Plan) -> int:
    return -(-sum(len(layer.operators) for layer in plan.layers) // _MOST_MARKS) or 1


def _flops(figure: go.Figure, plan: Plan, theme: str) -> None:
    runs = _runs(plan)
    flops = [run.flops for run in runs]
    divisor, unit = units.flops_axis(max(flops, default=0))
    for stage in plan.stages:
        own = [run for run in runs if stage.layers[0] <= run.layer <= stage.layers[1]]
        figure.add_trace(
            go.Bar(
                x=[run.first + (run.count - 1) / 2 for run in own],
                y=[run.flops / divisor for run in own],
                width=[run.count for run in own],
                marker=stage_marker(stage.index, theme),
                customdata=[run.key for run in own],
                hovertext=[run.text for run in own],
                hovertemplate="%{hovertext}<extra></extra>",
                name=f"stage {stage.index}",
            ),
            row=2,
            col=1,
        )
    top = 1.05 * max(flops, default=0) / divisor or 1.0
    _boundaries(figure, plan, theme, top, row=2)
    figure.update_yaxes(title=unit, range=[0, top], row=2, col=1)


def _cuts(figure: go.Figure, plan: Plan, theme: str) -> None:
    """Bytes that a cut behind each operator would send, and the cuts that were made."""
    crossing, runs = [c for layer in plan.layers for c in layer.operator_cut_bytes], _runs(plan)
    divisor, unit = units.bytes_axis(max(crossing, default=0))
    figure.add_trace(
        go.Scatter(
            x=[run.first + run.count - 0.5 for run in runs],
            y=[run.crossing_bytes / divisor for run in runs],
            mode="lines",
            line={"shape": "hvh", "color": faint(theme), "width": 1.2},
            fill="tozeroy",
            fillcolor="rgba(123,135,148,0.18)",
            hovertext=[run.text for run in runs],
            hovertemplate="%{hovertext}<extra></extra>",
            name="bytes across a cut",
        ),
        row=3,
        col=1,
    )
    top = 1.25 * max(crossing, default=0) / divisor or 1.0
    ends = [end for end in _ends(plan)[:-1] if end]
    cut = [crossing[end - 1] for end in ends]
    texts = [f"cut behind layer {i}: {units.bytes_(c)}" for i, c in enumerate(cut)]
    common = {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>", "name": "cuts"}
    at = [end - 0.5 for end in ends]
    figure.add_trace(
        go.Scatter(
            x=at,
            y=[c / divisor for c in cut],
            mode="markers",
            marker={"symbol": "diamond", "size": 10, "color": ink(theme)},
            cliponaxis=False,
            **common,
        ),
        row=3,
        col=1,
    )
    if len(ends) <= _LABELLED_CUTS:
        figure.add_trace(
            go.Scatter(
                x=at,
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
    figure.update_yaxes(title=f"{unit} if cut here", range=[0, top], row=3, col=1)


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
