"""The frontier of a stage: latency of a microbatch against the peak memory of a device.

The marker of a point shows what is proven about it (`Provenance`).
"""

from __future__ import annotations

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, dress, faint, ink, lines
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import PROVENANCE_PHRASES, layers_phrase
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.questions.frontier import FrontierPoint, StageFrontier, known_frontier
from alpa_explore.questions.frontier import frontier_table as table_of

_LOOKS = {
    Provenance.EXACT: ("circle", 2),
    Provenance.CONVEX: ("diamond", 5),
    Provenance.FITTING: ("triangle-up", 6),
    Provenance.FASTEST: ("square", 0),
    Provenance.NEAR: ("square-open", 7),
    Provenance.UNKNOWN: ("x", 3),
}
"""Provenance of a point -> its marker, and the place of its colour in OKABE_ITO."""


def frontier_figure(
    plan: Plan, stage: int = 0, theme: str = "light", *, frontier: StageFrontier | None = None
) -> go.Figure:
    """Points from the fastest to the one with the least memory, marked by provenance; a line at the device's memory.

    `frontier` is what `ax.frontier(plan, stage)` returned; without it, the choices that the plan's stage costs hold.
    """
    frontier = frontier or known_frontier(plan, stage)
    points = frontier.points
    x_scale, x_unit = units.bytes_axis(max([p.peak_bytes for p in points] + [float(frontier.memory_bytes)]))
    y_scale, y_unit = units.seconds_axis(max((p.seconds for p in points), default=1.0))
    figure = go.Figure()
    for kind, (symbol, color) in _LOOKS.items():
        of_kind = [p for p in points if p.provenance is kind]
        if of_kind:
            figure.add_trace(
                go.Scatter(
                    x=[p.peak_bytes / x_scale for p in of_kind],
                    y=[p.seconds / y_scale for p in of_kind],
                    mode="markers",
                    marker={"symbol": symbol, "size": 9, "color": OKABE_ITO[color % len(OKABE_ITO)]},
                    name=str(kind),
                    hovertext=[_text(p, frontier) for p in of_kind],
                    hovertemplate=HOVER_TEXT,
                )
            )
    chosen = [p for p in points if p.chosen]
    figure.add_trace(
        go.Scatter(
            x=[p.peak_bytes / x_scale for p in chosen],
            y=[p.seconds / y_scale for p in chosen],
            mode="markers+text",
            text=["the plan"] * len(chosen),
            textposition="top center",
            hoverinfo="skip",
            showlegend=False,
            marker={"symbol": "circle-open", "size": 18, "color": ink(theme), "line": {"width": 2}},
            name="the plan",
        )
    )
    top = 1.15 * max((p.seconds for p in points), default=1.0) / y_scale
    figure.add_trace(
        go.Scatter(
            x=[frontier.memory_bytes / x_scale] * 2,
            y=[0.0, top],
            mode="lines",
            hoverinfo="skip",
            line={"color": faint(theme), "dash": "dash", "width": 2},
            name="memory of a device",
        )
    )
    held = frontier.microbatches_held
    figure.update_xaxes(title=f"peak memory of a device that holds {held} microbatches ({x_unit})", rangemode="tozero")
    figure.update_yaxes(title=f"latency of a microbatch ({y_unit})", range=[0, top])
    return dress(figure, frontier_sentence(plan, stage, frontier=frontier), theme=theme, height=460)


def frontier_table(plan: Plan, stage: int = 0, *, frontier: StageFrontier | None = None) -> list[Row]:
    """The same as rows."""
    return table_of(frontier or known_frontier(plan, stage))


def frontier_sentence(plan: Plan, stage: int = 0, *, frontier: StageFrontier | None = None) -> str:
    """What the figure shows for this plan and stage."""
    frontier = frontier or known_frontier(plan, stage)
    fits = sum(p.fits for p in frontier.points)
    extent = (
        "the whole frontier, exact over weights and held activations"
        if frontier.complete
        else "the choices computed so far"
    )
    return (
        f"Stage {frontier.stage} ({layers_phrase(frontier.layers)}): {fits} of {len(frontier.points)} choices fit in "
        f"{units.bytes_(frontier.memory_bytes)}; these are {extent}."
    )


def _text(point: FrontierPoint, frontier: StageFrontier) -> str:
    phrase = PROVENANCE_PHRASES[point.provenance]
    return lines(
        f"<b>{units.seconds(point.seconds)} a microbatch</b>",
        f"peak {units.bytes_(point.peak_bytes)}, of which weights and {frontier.microbatches_held} held activations "
        f"{units.bytes_(point.held_bytes)}",
        f"on logical mesh {point.logical_mesh}",
        f"this choice: {phrase}" if phrase else "",
        "" if point.fits else "does not fit",
    )
