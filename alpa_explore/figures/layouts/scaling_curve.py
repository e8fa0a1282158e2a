"""The best uniform layout over the number of devices: tokens a second, efficiency, and where the model fits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import CONFIG, HOVER_TEXT, OKABE_ITO, dress, faint, ink, lines, safe
from alpa_explore.uniform_layouts.report import Row, point_words, priced_best, scaling_sentence, scaling_table
from alpa_explore.uniform_layouts.scaling import Scaling, ScalingPoint

__all__ = ["scaling_curve_figure", "scaling_curve_html", "scaling_curve_sentence", "scaling_curve_table"]

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star")
_PANELS, _GAP = (190, 110, 40), 40
"""Pixels of tokens a second, of the efficiency, and of a row of the table of what fits; between panels."""

_MARGIN = 0.12
"""Of the range of devices, to its left and right: room for half of a text."""


def scaling_curve_figure(scaling: Scaling, theme: str = "light") -> go.Figure:
    """Three panels over the number of devices: a row for each device with what fits, the dollars for a billion tokens
    where they are known, or what is missing; tokens a second with the line of perfect scaling; the efficiency.

    A click on a mark plans there.
    """
    rows = len(scaling.devices)
    table = _PANELS[2] * max(rows, 1)
    heights = [table, _PANELS[0], _PANELS[1]]
    height = sum(heights) + 2 * _GAP
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=_GAP / height)
    for number, device in enumerate(scaling.devices):
        known = [point for point in scaling.of(device) if priced_best(point) is not None]
        _curve(figure, number, device, known, theme)
        _fits(figure, number, scaling.of(device), theme)
    counts = sorted({point.cluster.devices for point in scaling.points})
    figure.update_xaxes(type="log", tickvals=counts, ticktext=[f"{count:,}" for count in counts], showgrid=False)
    if counts:
        low, high = math.log10(counts[0]), math.log10(counts[-1])
        margin = _MARGIN * (high - low or 1)
        figure.update_xaxes(range=[low - margin, high + margin])
    figure.update_xaxes(showticklabels=True, row=1, col=1)
    figure.update_xaxes(title="devices", showticklabels=True, row=3, col=1)
    rates = [best.tokens_per_second for point in scaling.points if (best := priced_best(point)) is not None]
    ticks = log_ticks(rates)
    figure.update_yaxes(title="tokens/s (log)", type="log", row=2, col=1)
    figure.update_yaxes(tickvals=ticks, ticktext=[units.count(tick) for tick in ticks], row=2, col=1)
    figure.update_yaxes(title="efficiency", tickformat=".0%", rangemode="tozero", row=3, col=1)
    figure.update_yaxes(
        tickvals=list(range(rows)),
        ticktext=[safe(device.upper()) for device in scaling.devices],
        range=[rows - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
        row=1,
        col=1,
    )
    figure = dress(figure, scaling_curve_sentence(scaling), theme=theme, height=height)
    return figure.update_layout(height=height + figure.layout.margin.t + 56, margin={"l": 96})


def scaling_curve_table(scaling: Scaling) -> list[Row]:
    """One row for each device and number of nodes."""
    return scaling_table(scaling)


def scaling_curve_sentence(scaling: Scaling) -> str:
    """Where the model fits, where it is fastest, and cheapest where prices are given."""
    return scaling_sentence(scaling)


def scaling_curve_html(scaling: Scaling, theme: str = "light") -> str:
    """The figure as one self-contained page."""
    page: str = scaling_curve_figure(scaling, theme).to_html(include_plotlyjs=True, full_html=True, config=CONFIG)
    return page


def log_ticks(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times powers of ten, from below the least value to above the largest."""
    if not values:
        return []
    exponents = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in (1, 2, 5)]
    below = max((i for i, tick in enumerate(ticks) if tick <= min(values)), default=0)
    return [tick for tick in ticks[below:] if tick <= 2 * max(values)]


def _curve(figure: go.Figure, number: int, device: str, known: list[ScalingPoint], theme: str) -> None:
    """Tokens a second and efficiency of a device."""
    color, symbol = OKABE_ITO[number % len(OKABE_ITO)], _SYMBOLS[number % len(_SYMBOLS)]
    counts = [point.cluster.devices for point in known]
    rates = [best.tokens_per_second for point in known if (best := priced_best(point)) is not None]
    if len(known) > 1:
        figure.add_trace(
            go.Scatter(
                x=counts,
                y=[rates[0] * count / counts[0] for count in counts],
                mode="lines",
                line={"color": color, "dash": "dot", "width": 1},
                name=f"{safe(device.upper())}, perfect",
                hoverinfo="skip",
                showlegend=False,
            ),
            row=2,
            col=1,
        )
    for row, values in ((2, rates), (3, [point.efficiency for point in known])):
        figure.add_trace(
            go.Scatter(
                x=counts,
                y=values,
                mode="lines+markers",
                name=safe(device.upper()),
                legendgroup=device,
                showlegend=row == 2,
                line={"color": color, "width": 2},
                marker={"symbol": symbol, "size": 10, "color": color},
                hovertext=[_hover(point) for point in known],
                hovertemplate=HOVER_TEXT,
                customdata=[_key(point) for point in known],
            ),
            row=row,
            col=1,
        )


def _fits(figure: go.Figure, number: int, points: tuple[ScalingPoint, ...], theme: str) -> None:
    """The row of a device in the table of what fits."""
    figure.add_trace(
        go.Scatter(
            x=[point.cluster.devices for point in points],
            y=[number] * len(points),
            mode="text",
            text=[_cell(point) for point in points],
            textfont={"size": 12, "color": [_ink(point, theme) for point in points]},
            hovertext=[_hover(point) for point in points],
            hovertemplate=HOVER_TEXT,
            customdata=[_key(point) for point in points],
            name=f"{points[0].device} fits" if points else "fits",
            showlegend=False,
            cliponaxis=False,
        ),
        row=1,
        col=1,
    )


def _cell(point: ScalingPoint) -> str:
    best = priced_best(point)
    if best is not None:
        cost = point.dollars_per_billion_tokens
        return f"✓ {units.seconds(best.seconds)}" + ("" if cost is None else f"<br>{cost:,.0f} $")
    if point.state == "does not fit":
        return f"✕ −{units.bytes_(point.missing_bytes)}"
    return {"waiting": "…", "fits": "✓ …"}.get(point.state, "–")


def _ink(point: ScalingPoint, theme: str) -> str:
    return ink(theme) if point.best is not None else faint(theme)


def _key(point: ScalingPoint) -> str:
    return key(place=str(point.cluster))


def _hover(point: ScalingPoint) -> str:
    where = f"<b>{safe(str(point.cluster))}</b>, {point.cluster.devices:,} devices"
    best = priced_best(point)
    if best is None:
        nearest = "" if point.nearest is None else f"the leanest: {safe(point.nearest.words)}"
        return lines(where, safe(point_words(point)), nearest)
    efficiency = "" if point.efficiency is None else f", efficiency {units.percent(point.efficiency)}"
    cost = point.dollars_per_billion_tokens
    return lines(
        where,
        safe(best.words),
        f"iteration {units.seconds(best.seconds)}, {best.tokens_per_second:,.0f} tokens/s{efficiency}",
        f"MFU {units.percent(best.mfu)}, fullest device {units.bytes_(best.bytes)}",
        "" if cost is None else f"{cost:,.0f} dollars for a billion tokens",
        "click: plan here",
    )
