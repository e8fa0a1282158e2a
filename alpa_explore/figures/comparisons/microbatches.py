"""T, throughput and memory of the fullest device over the number of microbatches B."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.placing import bar_texts, limit_label
from alpa_explore.figures.plots import Plots
from alpa_explore.figures.style import OKABE_ITO, hatching, ink, layout_of, lines
from alpa_explore.planner.microbatches import microbatches_of, same_global_batch
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore.plans.report.text import fullest
from alpa_explore.questions.microbatches import microbatches_sentence, microbatches_table

__all__ = ["microbatches_figure", "microbatches_sentence", "microbatches_table"]

_PARTS = (
    ("weights, gradients, optimizer state", "weight_bytes", OKABE_ITO[0], ""),
    ("activations held", "held_bytes", OKABE_ITO[1], "/"),
    ("workspace", "workspace_bytes", OKABE_ITO[2], "x"),
)
"""What fills a device: name, field, colour, hatching."""
_PANELS, _GAP = (100, 100, 140), 16
"""Pixels of the panels, and between them."""


def microbatches_figure(plan: Plan, theme: str = "light") -> go.Figure:
    """Three panels over the B that were tried, with their values: T, samples a second, and the fullest device with its
    capacity as a line.

    A star marks the B of the plan. A cross marks a B at which nothing fits, at the memory that the closest plan needs.
    With microbatches of one size T grows with B, so its axis is logarithmic.
    """
    tried = microbatches_of(plan)
    names = [f"{t.num_microbatches:,}" for t in tried]
    texts = [_hover(t) for t in tried]
    height = sum(_PANELS) + 2 * _GAP
    figure = Plots(_PANELS, spacing=(0.0, _GAP / height), shared_x=True)
    fitting = [t.iteration_seconds for t in tried if t.iteration_seconds is not None]
    scale, second = units.seconds_axis(max(fitting, default=1.0))
    times = [None if t.iteration_seconds is None else t.iteration_seconds / scale for t in tried]
    rates = [None if t.iteration_seconds is None else t.samples_per_second for t in tried]
    for row, (name, values) in enumerate((("T", times), ("samples a second", rates)), start=1):
        _line(figure, row, name, values, plan, tried, names, texts, theme)
    one_size = not same_global_batch(tried)
    logarithmic = one_size and len(fitting) > 1
    _axis(figure, 1, f"T ({second}{', log' if logarithmic else ''})", times, logarithmic=logarithmic)
    _axis(figure, 2, "samples/s", rates, logarithmic=False)
    _memory(figure, plan, tried, names, texts, theme)
    each = f"{plan.model.samples:,} sample{'' if plan.model.samples == 1 else 's'} in each"
    sizes = each if one_size else f"{plan.global_batch:,} samples in all"
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=names)
    figure.update_xaxes(title=f"B, the number of microbatches ({sizes})", row=3, col=1)
    layout = layout_of(microbatches_sentence(plan, tried), theme=theme, height=height, barmode="stack", bargap=0.3)
    top, bottom = layout["margin"]["t"], 84
    below = {"x": 0, "xanchor": "left", "y": -48 / height, "yanchor": "top", "traceorder": "normal"}
    margin, legend = layout["margin"] | {"b": bottom}, layout["legend"] | below
    return figure.figure(layout | {"height": height + top + bottom, "margin": margin, "legend": legend})


def _line(
    figure: Plots,
    row: int,
    name: str,
    values: Sequence[float | None],
    plan: Plan,
    tried: Sequence[TriedMicrobatches],
    names: Sequence[str],
    texts: Sequence[str],
    theme: str,
) -> None:
    """One value over B, written at each mark."""
    figure.add_trace(
        {
            "type": "scatter",
            "x": names,
            "y": values,
            "name": name,
            "mode": "lines+markers+text",
            "text": ["" if value is None else units.number(value, 3) for value in values],
            "textposition": "top center",
            "textfont": {"size": 11, "color": ink(theme)},
            "cliponaxis": False,
            "hovertext": texts,
            "hoverinfo": "text",
            "showlegend": False,
            "line": {"color": ink(theme), "width": 2},
            "marker": {
                "symbol": ["star" if _is_chosen(plan, t) else "circle" for t in tried],
                "size": [17 if _is_chosen(plan, t) else 7 for t in tried],
                "color": [OKABE_ITO[0] if _is_chosen(plan, t) else ink(theme) for t in tried],
                "line": {"color": ink(theme), "width": 1},
                "opacity": 1,
            },
        },
        row=row,
        col=1,
    )


def _axis(figure: Plots, row: int, title: str, values: Sequence[float | None], *, logarithmic: bool) -> None:
    """From 0, or logarithmic, with room for the values above the marks."""
    known = [value for value in values if value is not None] or [1.0]
    if logarithmic:
        low, high = log10(min(known)), log10(max(known))
        room = 0.3 * (high - low) + 0.1
        span: dict[str, object] = {"type": "log", "dtick": 1, "range": [low - 0.5 * room, high + room]}
    else:
        span = {"range": [0, 1.3 * max(known)]}
    figure.update_yaxes(title=title, row=row, col=1, **span)


def _memory(
    figure: Plots,
    plan: Plan,
    tried: Sequence[TriedMicrobatches],
    names: Sequence[str],
    texts: Sequence[str],
    theme: str,
) -> None:
    capacity = plan.device_of(fullest(plan)).memory_bytes
    needed = [t.peak_bytes if t.over_bytes is None else capacity + t.over_bytes for t in tried]
    scale, byte = units.bytes_axis(max([capacity, *(n for n in needed if n is not None)]))
    for name, field, color, shape in _PARTS:
        figure.add_trace(
            {
                "type": "bar",
                "x": names,
                "y": [None if (size := getattr(t, field)) is None else size / scale for t in tried],
                "name": name,
                "marker": {"color": color, "pattern": hatching(shape)},
                "hovertext": texts,
                "hoverinfo": "text",
            },
            row=3,
            col=1,
        )
    too_large = [(n, t.over_bytes, text) for n, t, text in zip(names, tried, texts, strict=True) if t.over_bytes]
    figure.add_trace(
        {
            "type": "scatter",
            "x": [n for n, _, _ in too_large],
            "y": [(capacity + over) / scale for _, over, _ in too_large],
            "mode": "markers",
            "name": "nothing fits; the closest needs",
            "hovertext": [text for *_, text in too_large],
            "hoverinfo": "text",
            "marker": {"symbol": "x", "size": 11, "color": OKABE_ITO[5]},
            "showlegend": bool(too_large),
        },
        row=3,
        col=1,
    )
    figure.add_trace(
        {
            "type": "scatter",
            "x": list(names),
            "y": [capacity / scale] * len(names),
            "mode": "lines",
            "name": "memory of a device",
            "showlegend": False,
            "line": {"color": ink(theme), "dash": "dash", "width": 1},
            "hoverinfo": "skip",
        },
        row=3,
        col=1,
    )
    figure.add_trace(
        bar_texts(
            names,
            [None if t.peak_bytes is None else t.peak_bytes / scale for t in tried],
            ["" if t.peak_bytes is None else units.number(t.peak_bytes / scale, 3) for t in tried],
            theme,
            place="top center",
        ),
        row=3,
        col=1,
    )
    # Above the sums, where those of the first bars stand on the line.
    full = any(t.peak_bytes is not None and t.peak_bytes > 0.8 * capacity for t in tried[:3])
    lifted = {"yshift": 13} if full else {}
    place: dict[str, Any] = {"x": 0.0, "xref": "x3 domain", "y": capacity / scale, "yref": "y3", **lifted}
    figure.add_annotation(limit_label(units.bytes_(capacity), theme, **place, xanchor="left", yanchor="bottom"))
    highest = max([capacity, *(n for n in needed if n is not None)]) / scale
    figure.update_yaxes(
        title=f"fullest device<br>({byte})", range=[0, (1.34 if full else 1.22) * highest], row=3, col=1
    )


def _is_chosen(plan: Plan, tried: TriedMicrobatches) -> bool:
    return tried.num_microbatches == plan.options.num_microbatches


def _hover(tried: TriedMicrobatches) -> str:
    head = f"<b>B = {tried.num_microbatches:,}</b> microbatches of {units.samples(tried.samples)}"
    if tried.iteration_seconds is None or tried.peak_bytes is None:
        over = "" if tried.over_bytes is None else f": the closest is {units.bytes_(tried.over_bytes)} over"
        return lines(head, f"no plan fits in memory{over}")
    parts = [f"{name} {units.bytes_(getattr(tried, field))}" for name, field, _, _ in _PARTS]
    return lines(
        head,
        f"T {units.seconds(tried.iteration_seconds)}, {units.number(tried.samples_per_second, 4)} samples/s",
        f"{tried.stages} stages; on a device of stage {tried.fullest_stage}: {units.bytes_(tried.peak_bytes)}",
        *parts,
    )
