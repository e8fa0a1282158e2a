"""Two plans beside each other: what changed, and what that did to time, memory and every stage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.comparisons.compare_words import (
    compare_sentence,
    compare_table,
    comparison_sentence,
    results,
    stage_text,
)
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import (
    HOVER_TEXT,
    OKABE_ITO,
    dress,
    empty,
    faint,
    hatching,
    ink,
    ink_on,
    lines,
    safe,
    stage_color,
    stage_marker,
)
from alpa_explore.plans.phrases import submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import PlanComparison, compare_plans
from alpa_explore.plans.report.tables import stage_of_layer
from alpa_explore.plans.report.text import pace_setter
from alpa_explore.plans.value import PlanValue

__all__ = ["compare_figure", "compare_sentence", "compare_table"]

THIS = "this plan"
_CUT = "cut differently"
"""Row of the layers in the panel of the stages."""
_BETTER, _WORSE = "rgba(0, 158, 115, 0.22)", "rgba(213, 94, 0, 0.22)"
"""Grounds of a result that is better or worse; the words say it too."""
_ROW, _GAP = 24, 74
"""Pixels of a row of the table, and of the room between the panels."""
_LABELLED = 8.0
"""Percent of the model above which a stage has its submesh written on it."""
_COLUMNS = (0.0, 0.49, 0.68, 0.7)
"""Places of the columns of the table, as shares of its width: the first and last begin there, the others end there."""
_TINTED = 0.69
"""Where the colour of better and worse begins, likewise."""
_LEAST_WIDTH = 720
"""Pixels at which no column of the table reaches into the next one."""
_Results: TypeAlias = Sequence[tuple[str, str, str, str, int]]
"""See `compare_words.results`."""


def compare_figure(plan: Plan, other: Plan, theme: str = "light", *, other_name: str = "the other plan") -> go.Figure:
    """Above, the latency of each stage, and a table of the headline figures and the parts of the time of both plans;
    below, both plans along the model with the number of operators that are cut differently in each layer."""
    comparison = compare_plans(other, plan)
    rows = [row for row in results(comparison) if row[0] != "tokens/s"]  # changes as samples/s does
    heights = [_ROW * (len(rows) + 1) + 4, 26 * (3 if comparison.common else 2)]
    height = sum(heights) + _GAP
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{}, {}], [{"colspan": 2}, None]],
        row_heights=heights,
        vertical_spacing=_GAP / height,
        horizontal_spacing=0.02,
        column_widths=[0.26, 0.74],
    )
    _results_table(figure, comparison, rows, other_name.removeprefix("the "), theme)
    for shown, name in ((other, other_name), (plan, THIS)):
        _latencies(figure, shown, safe(name), theme, new=shown is plan)
        _stages(figure, shown, safe(name), theme, selectable=shown is plan)
    if comparison.common:
        _cuts_by_layer(figure, comparison, theme)
    figure.update_xaxes(title="the model, by FLOPs (%)", range=[0, 100], domain=[0.1, 1], row=2, col=1)
    figure.update_yaxes(autorange="reversed", row=2, col=1)
    figure = dress(figure, comparison_sentence(comparison, other_name), theme=theme, height=height, bargap=0.25)
    figure.update_layout(height=height + 56 + figure.layout.margin.t, margin={"l": 60, "r": 8, "b": 56})
    return figure.update_layout(
        meta={"least_width": _LEAST_WIDTH},
        barmode="group",
        legend={"x": 0, "xanchor": "left", "y": 1.01, "yanchor": "bottom", "traceorder": "normal"},
    )


def _results_table(figure: go.Figure, comparison: PlanComparison, rows: _Results, other_name: str, theme: str) -> None:
    """A table as text marks: its lines are never wrapped or scrolled out of sight, whatever the width."""
    names, before, now, changes, tones = zip(*rows, strict=True)
    why = {figure.name: safe(figure.why) for _, figure in comparison.headline}
    tints = {1: _BETTER, -1: _WORSE, 0: empty(theme)}
    for start, colors in ((0.0, "rgba(0, 0, 0, 0)"), (_TINTED, [tints[tone] for tone in tones])):
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=list(range(1, len(rows) + 1)),
                x=[(1.0 if start else _TINTED) - start] * len(rows),
                base=[start] * len(rows),
                width=0.92,
                offset=-0.46,
                marker={"color": colors, "line": {"width": 0}},
                hovertext=[lines(f"<b>{safe(name)}</b>", why.get(name, "")) for name in names],
                hovertemplate=HOVER_TEXT,
                showlegend=False,
                name="results",
            ),
            row=1,
            col=2,
        )
    for place, position, column in zip(
        _COLUMNS,
        ("middle right", "middle left", "middle left", "middle right"),
        (
            ["", *names],
            [other_name, *_plain(before)],
            [THIS, *_plain(now)],
            ["change", *(text or "same" for text in changes)],
        ),
        strict=True,
    ):
        figure.add_trace(
            go.Scatter(
                x=[place] * len(column),
                y=list(range(len(column))),
                text=[f"<b>{safe(column[0])}</b>", *map(safe, column[1:])],
                mode="text",
                textposition=position,
                textfont={"color": ink(theme), "size": 12},
                hoverinfo="skip",
                showlegend=False,
                name="table",
            ),
            row=1,
            col=2,
        )
    figure.update_xaxes(range=[0, 1], visible=False, fixedrange=True, row=1, col=2)
    figure.update_yaxes(range=[len(rows) + 0.5, -0.5], visible=False, fixedrange=True, row=1, col=2)


def _plain(texts: Sequence[str]) -> list[str]:
    """Without the error band: there is no room for it, and the headline has it."""
    return [text.partition(" ± ")[0] for text in texts]


def _latencies(figure: go.Figure, plan: Plan, name: str, theme: str, *, new: bool) -> None:
    scale, unit = units.seconds_axis(pace_setter(plan).latency_seconds)
    look = {"color": OKABE_ITO[0]} if new else {"color": faint(theme), "pattern": hatching("/")}
    slowest = pace_setter(plan)
    figure.add_trace(
        go.Bar(
            x=[str(stage.index) for stage in plan.stages],
            y=[stage.latency_seconds / scale for stage in plan.stages],
            name=name,
            marker=look,
            customdata=[key(stage=stage.index) for stage in plan.stages] if new else None,
            hovertext=[
                lines(
                    f"<b>{name}, stage {stage.index}</b>",
                    stage_text(stage),
                    "the slowest: it sets the pace" if stage is slowest else "",
                )
                for stage in plan.stages
            ],
            hovertemplate=HOVER_TEXT,
        ),
        row=1,
        col=1,
    )
    figure.update_yaxes(title=f"latency per microbatch ({unit})", rangemode="tozero", row=1, col=1)
    figure.update_xaxes(type="category", title="stage", row=1, col=1)


def _stages(figure: go.Figure, plan: Plan, name: str, theme: str, *, selectable: bool) -> None:
    ends = _layer_ends(plan)
    for stage in plan.stages:
        start, end = (ends[stage.layers[0] - 1] if stage.layers[0] else 0.0), ends[stage.layers[1]]
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=[name],
                x=[end - start],
                base=[start],
                showlegend=False,
                offsetgroup="along the model",
                name=f"stage {stage.index}",
                marker=stage_marker(stage.index, theme) | {"line": {"width": 1.5, "color": empty(theme)}},
                text=f"{stage.index}: {submesh_phrase(stage.submesh, stage.device)}"
                if end - start > _LABELLED
                else str(stage.index),
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": ink_on(stage_color(stage.index, theme)), "size": 12},
                customdata=[key(stage=stage.index)] if selectable else None,
                hovertext=lines(f"<b>{name}, stage {stage.index}</b>", stage_text(stage)),
                hovertemplate=HOVER_TEXT,
            ),
            row=2,
            col=1,
        )


def _cuts_by_layer(figure: go.Figure, comparison: PlanComparison, theme: str) -> None:
    """For each layer, how many of the operators that both plans have are cut differently."""
    ends = _layer_ends(comparison.new)
    layers = range(len(ends))
    starts = [0.0, *ends[:-1]]
    counts = [sum(o.layer == layer for o in comparison.operators) for layer in layers]
    totals = [comparison.common.get(layer, 0) for layer in layers]
    stage_of = stage_of_layer(comparison.new)
    figure.add_trace(
        go.Bar(
            orientation="h",
            y=[_CUT] * len(ends),
            x=[b - a for a, b in zip(starts, ends, strict=True)],
            base=starts,
            showlegend=False,
            offsetgroup="along the model",
            name=_CUT,
            marker={
                "color": [OKABE_ITO[6] if count else empty(theme) for count in counts],
                "line": {"width": 1.5, "color": ["#1f2933" if count else faint(theme) for count in counts]},
            },
            text=[f"{c:,}" if n else "?" for c, n in zip(counts, totals, strict=True)],
            textposition="inside",
            textangle=0,
            insidetextanchor="middle",
            textfont={"color": [ink_on(OKABE_ITO[6]) if count else ink(theme) for count in counts], "size": 12},
            customdata=[key(stage=stage_of[layer], layer=layer) for layer in layers],
            hovertext=[_layer_text(comparison, *of_layer) for of_layer in zip(layers, counts, totals, strict=True)],
            hovertemplate=HOVER_TEXT,
        ),
        row=2,
        col=1,
    )


def _layer_text(comparison: PlanComparison, layer: int, count: int, total: int) -> str:
    if not total:
        return f"<b>layer {layer}</b><br>its specs are not known in both plans"
    own = [o for o in comparison.operators if o.layer == layer]
    listed = [f"{safe(o.name)}: {safe(o.old)}<br>   now {safe(o.new)}" for o in own[:3]]
    return lines(
        f"<b>layer {layer}</b>",
        f"{count:,} of {total:,} operators are cut differently",
        *listed,
        f"and {len(own) - 3:,} more: see Tables" if len(own) > 3 else "",
    )


def _layer_ends(plan: PlanValue) -> list[float]:
    """Where each layer ends, in percent of the FLOPs of the forward pass."""
    total = sum(layer.flops for layer in plan.layers) or 1
    return [100 * end / total for end in accumulate(layer.flops for layer in plan.layers)]
