"""The choices for a stage: latency of a microbatch against the peak memory of a device, and what fills that memory.

A choice is named by what it means to the user (`choice_names`); what is proven about it stands in its hover text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.placing import AxisRange, bar_texts, fitted, label_positions, limit_label
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, dress, hatching, ink, lines
from alpa_explore.plans.phrases import layers_phrase, logical_mesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import PROVENANCE_PHRASES
from alpa_explore.questions.frontier import FrontierPoint, StageFrontier, known_frontier
from alpa_explore.questions.frontier import frontier_table as table_of

FASTEST = "the fastest that fits"
ALMOST = f"almost as fast (within {units.percent(tuning.ALMOST_AS_FAST)})"
SLOWER = "slower, with less memory"
TOO_LARGE = "does not fit"
_LOOKS = {
    FASTEST: ("square", OKABE_ITO[0]),
    ALMOST: ("diamond", OKABE_ITO[4]),
    SLOWER: ("triangle-down", OKABE_ITO[2]),
    TOO_LARGE: ("x", OKABE_ITO[5]),
}
"""Name of a choice -> its marker and colour."""
_PARTS = (
    ("weights, gradients, optimizer state", "weight_bytes", OKABE_ITO[0], ""),
    ("activations held", "activations_held_bytes", OKABE_ITO[1], "/"),
    ("workspace", "workspace_bytes", OKABE_ITO[2], "x"),
)
"""What fills a device: name, attribute, colour, hatching."""
_UPPER, _ROW, _GAP = 210, 22, 66
"""Pixels of the upper panel, of a bar, and between the panels."""


def frontier_figure(
    plan: Plan, stage: int = 0, theme: str = "light", *, frontier: StageFrontier | None = None
) -> go.Figure:
    """Above, each choice as a mark at its memory and latency, with a ring around that of the plan; below, a bar for
    each with what fills the memory. A line is at the memory of a device.

    `frontier` is what `ax.frontier(plan, stage)` returned; without it, the choices that the plan's stage costs hold.
    """
    frontier = frontier or known_frontier(plan, stage)
    bars = _listed(frontier)
    height = _UPPER + _ROW * len(bars) + _GAP
    figure = make_subplots(rows=2, cols=1, row_heights=[_UPPER, _ROW * len(bars)], vertical_spacing=_GAP / height)
    _marks(figure, frontier, theme)
    _memory(figure, frontier, bars, theme)
    title = frontier_sentence(plan, stage, frontier=frontier)
    figure = dress(figure, title, theme=theme, height=height, barmode="stack", bargap=0.25)
    top, bottom = figure.layout.margin.t + 18, 84
    below = {"x": 0, "xanchor": "left", "y": -48 / height, "yanchor": "top", "traceorder": "normal"}
    return figure.update_layout(
        height=height + top + bottom,
        margin={"t": top, "b": bottom, "l": 128},
        legend={"x": 0, "xanchor": "left", "y": 1 + 18 / height, "traceorder": "normal"},
        legend2={**below, "orientation": "h", "font": {"size": 12}},
    )


def frontier_table(plan: Plan, stage: int = 0, *, frontier: StageFrontier | None = None) -> list[Row]:
    """The same as rows."""
    frontier = frontier or known_frontier(plan, stage)
    names = choice_names(frontier)
    return [{"choice": name, **row} for name, row in zip(names, table_of(frontier), strict=True)]


def frontier_sentence(plan: Plan, stage: int = 0, *, frontier: StageFrontier | None = None) -> str:
    """What the figure shows for this plan and stage."""
    frontier = frontier or known_frontier(plan, stage)
    points, fitting = frontier.points, [p for p in frontier.points if p.fits]
    memory = units.bytes_(frontier.memory_bytes)
    count = f"{len(points)} choice{'' if len(points) == 1 else 's'}"
    fits = "fits" if len(fitting) == 1 else "fit"
    head = (
        f"Stage {frontier.stage} ({layers_phrase(frontier.layers)}): {len(fitting)} of {count} {fits} in {memory}"
        if len(points) > 1
        else f"Stage {frontier.stage} ({layers_phrase(frontier.layers)}): a single choice is known"
    )
    sentences = [head, *_of_the_plan(frontier)]
    exact = "No other choice is faster with as little memory: this is the exact frontier"
    return " ".join(f"{sentence}." for sentence in [*sentences, *([exact] if frontier.complete else [])])


def choice_names(frontier: StageFrontier) -> list[str]:
    """What each choice is to a user: the fastest that fits, almost as fast, slower with less memory, or too large."""
    best = min((p.seconds for p in frontier.points if p.fits), default=0.0)
    names = []
    for point in frontier.points:
        if not point.fits:
            names.append(TOO_LARGE)
        elif point.seconds <= best and FASTEST not in names:
            names.append(FASTEST)
        else:
            names.append(ALMOST if point.seconds <= best * (1 + tuning.ALMOST_AS_FAST) else SLOWER)
    return names


def _of_the_plan(frontier: StageFrontier) -> list[str]:
    """What the plan takes, and what the choice with the least memory would save and cost."""
    chosen = next((p for p in frontier.points if p.chosen), None)
    if chosen is None:
        return []
    name = choice_names(frontier)[frontier.points.index(chosen)]
    taken = f": {name}" if name in (FASTEST, ALMOST) else ""
    found = [f"The plan takes {units.seconds(chosen.seconds)} and {units.bytes_(chosen.peak_bytes)}{taken}"]
    least = min(frontier.points, key=lambda p: p.peak_bytes)
    saved, slower = 1 - least.peak_bytes / chosen.peak_bytes, least.seconds / chosen.seconds - 1
    if saved >= tuning.NOTICEABLE_SHARE:
        cost = f"would be {units.percent(slower)} slower" if slower > 0 else "would be as fast"
        found.append(f"The choice with the least memory needs {units.percent(saved)} less and {cost}")
    return found


def _listed(frontier: StageFrontier) -> list[FrontierPoint]:
    """The points with a bar: all, or evenly many of them with that of the plan."""
    points, most = frontier.points, tuning.MEMORY_BARS
    if len(points) <= most:
        return list(points)
    kept = {round(i * (len(points) - 1) / (most - 1)) for i in range(most)}
    return [p for i, p in enumerate(points) if i in kept or p.chosen]


def _marks(figure: go.Figure, frontier: StageFrontier, theme: str) -> None:
    points, names = frontier.points, choice_names(frontier)
    x_scale, x_unit = units.bytes_axis(max(p.peak_bytes for p in points))
    y_scale, y_unit = units.seconds_axis(max(p.seconds for p in points))
    limit = frontier.memory_bytes / x_scale
    x = fitted([p.peak_bytes / x_scale for p in points], limit, zero=tuning.MEMORY_FROM_ZERO)
    y = fitted([p.seconds / y_scale for p in points], zero=tuning.MEMORY_FROM_ZERO)
    for name, (symbol, color) in _LOOKS.items():
        own = [p for p, known in zip(points, names, strict=True) if known == name]
        if own:
            figure.add_trace(
                go.Scatter(
                    x=[p.peak_bytes / x_scale for p in own],
                    y=[p.seconds / y_scale for p in own],
                    mode="markers",
                    marker={"symbol": symbol, "size": 11, "color": color, "line": {"width": 1, "color": ink(theme)}},
                    name=name,
                    hovertext=[_hover(p, name, frontier) for p in own],
                    hovertemplate=HOVER_TEXT,
                ),
                row=1,
                col=1,
            )
    chosen = [p for p in points if p.chosen]
    places = [(p.peak_bytes / x_scale, p.seconds / y_scale) for p in points]
    positions = label_positions(places, ["the plan" if p.chosen else "" for p in points], x, y, pixels=(580, _UPPER))
    figure.add_trace(
        go.Scatter(
            x=[p.peak_bytes / x_scale for p in chosen],
            y=[p.seconds / y_scale for p in chosen],
            mode="markers+text",
            text=["the plan"] * len(chosen),
            textposition=[place for place, p in zip(positions, points, strict=True) if p.chosen],
            textfont={"color": ink(theme), "size": 13},
            hoverinfo="skip",
            showlegend=False,
            cliponaxis=False,
            marker={"symbol": "circle-open", "size": 20, "color": ink(theme), "line": {"width": 2}},
            name="the plan",
        ),
        row=1,
        col=1,
    )
    _limit(figure, limit, x, y, units.bytes_(frontier.memory_bytes), theme)
    held = f"{frontier.microbatches_held} microbatch{'' if frontier.microbatches_held == 1 else 'es'}"
    figure.update_xaxes(
        title=x.title(f"peak memory of a device, holding {held} ({x_unit})"), range=list(x), row=1, col=1
    )
    figure.update_yaxes(
        title=y.title(f"latency per microbatch ({y_unit})").replace(", ", ",<br>"), range=list(y), row=1, col=1
    )


def _limit(figure: go.Figure, limit: float, x: AxisRange, y: AxisRange, words: str, theme: str) -> None:
    """The memory of a device as a line with its words, or only the words with an arrow where it is far away."""
    seen = limit <= x.high
    if seen:
        figure.add_trace(_limit_line([limit] * 2, list(y), theme), row=1, col=1)
    place: dict[str, Any] = {"x": limit if seen else x.high, "xref": "x", "y": 1.0, "yref": "y domain"}
    figure.add_annotation(limit_label(words, theme, seen=seen, **place, xanchor="right", yanchor="top"))


def _limit_line(xs: Sequence[float], ys: Sequence[float | str], theme: str) -> go.Scatter:
    return go.Scatter(
        x=xs,
        y=ys,
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        line={"color": ink(theme), "dash": "dash", "width": 2},
        name="memory of a device",
    )


def _memory(figure: go.Figure, frontier: StageFrontier, bars: Sequence[FrontierPoint], theme: str) -> None:
    """Stacked bars of what fills the memory, the fastest choice first."""
    most = max([frontier.memory_bytes, *(p.peak_bytes for p in bars)])
    scale, unit = units.bytes_axis(most)
    names = dict(zip(frontier.points, choice_names(frontier), strict=True))
    rows = list(range(len(bars)))
    hover = [_hover(p, names[p], frontier) for p in bars]
    for name, attribute, color, shape in _PARTS:
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=rows,
                x=[getattr(p, attribute) / scale for p in bars],
                name=name,
                legend="legend2",
                marker={"color": color, "pattern": hatching(shape)},
                text=[_size(getattr(p, attribute), most) for p in bars],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"size": 11, "color": "#ffffff" if not shape else ink(theme)},
                hovertext=hover,
                hovertemplate=HOVER_TEXT,
            ),
            row=2,
            col=1,
        )
    figure.add_trace(
        bar_texts(
            [p.peak_bytes / scale for p in bars],
            rows,
            [units.bytes_(p.peak_bytes) for p in bars],
            theme,
            place="middle right",
        ),
        row=2,
        col=1,
    )
    figure.add_trace(_limit_line([frontier.memory_bytes / scale] * 2, [-0.5, len(bars) - 0.5], theme), row=2, col=1)
    labels = [f"{'<b>the plan</b>: ' if p.chosen else ''}{units.seconds(p.seconds)}" for p in bars]
    figure.update_yaxes(tickvals=rows, ticktext=labels, range=[len(bars) - 0.5, -0.5], row=2, col=1)
    figure.update_xaxes(title=f"memory of a device ({unit})", range=[0, 1.16 * most / scale], row=2, col=1)


def _size(size: float, most: float) -> str:
    """The size, where its part of the bar is wide enough."""
    return units.bytes_(size) if size > 0.13 * most else ""


def _hover(point: FrontierPoint, name: str, frontier: StageFrontier) -> str:
    phrase = PROVENANCE_PHRASES[point.provenance]
    best = min((p.seconds for p in frontier.points if p.fits), default=point.seconds)
    slower = point.seconds / best - 1
    beside = f", {units.percent(abs(slower))} {'slower' if slower > 0 else 'faster'} than the fastest that fits"
    held = frontier.microbatches_held
    return lines(
        f"<b>{units.seconds(point.seconds)} per microbatch: {name}</b>{', chosen by the plan' if point.chosen else ''}",
        f"{units.bytes_(point.peak_bytes)} = weights {units.bytes_(point.weight_bytes)} + activations of {held} "
        f"{units.bytes_(point.activations_held_bytes)} + workspace {units.bytes_(point.workspace_bytes)}",
        f"of {units.bytes_(frontier.memory_bytes)}{beside if abs(slower) >= tuning.NOTICEABLE_SHARE else ''}",
        logical_mesh_phrase(point.logical_mesh),
        f"what is proven: {phrase}" if phrase else "",
    )
