"""Formulations of one sharding problem side by side: the seconds of each, and its gap above the optimum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.style import CONFIG, OKABE_ITO, dress, hatching, lines
from alpa_explore.formulations.comparison import Comparison, SolverRow, solvers_table

__all__ = ["solvers_figure", "solvers_html", "solvers_sentence", "solvers_table"]

_PASSES = (("build", "build_seconds"), ("solve", "solve_seconds"), ("repair", "repair_seconds"))


def solvers_figure(comparison: Comparison, theme: str = "light") -> go.Figure:
    """Two panels: total seconds of each formulation (logarithmic, parts in the hover text), and its gap in percent.

    The gap has two bars: hatched, that of the formulation's own answer (none where that answer is infeasible); plain,
    what remains after the joint repair under the exact costs.
    """
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.14, subplot_titles=("seconds", "above the optimum, %"))
    figure.update_annotations(font_size=13)
    _seconds(figure, comparison.rows)
    _gaps(figure, comparison)
    figure = dress(figure, solvers_sentence(comparison), theme=theme, height=420, barmode="group", bargap=0.35)
    return figure.update_layout(legend={"y": -0.12, "yanchor": "top"})


def _seconds(figure: go.Figure, rows: Sequence[SolverRow]) -> None:
    totals = [row.total_seconds for row in rows]
    figure.add_trace(
        go.Bar(
            x=[row.solver for row in rows],
            y=totals,
            marker={"color": OKABE_ITO[0]},
            name="total seconds",
            showlegend=False,
            text=[units.seconds(t) for t in totals],
            textposition="outside",
            cliponaxis=False,
            hovertext=[_seconds_text(row) for row in rows],
            hoverinfo="text",
        ),
        row=1,
        col=1,
    )
    powers = range(-4, 5)
    low, high = min(totals, default=0.1), max(totals, default=1.0)
    figure.update_yaxes(
        type="log",
        range=[math.log10(low) - 0.4, math.log10(high) + 0.3],
        tickvals=[10.0**p for p in powers],
        ticktext=[units.seconds(10.0**p) for p in powers],
        row=1,
        col=1,
    )


def _gaps(figure: go.Figure, comparison: Comparison) -> None:
    rows = comparison.rows
    before = [comparison.gap_before(row) for row in rows]
    after = [comparison.gap(row) for row in rows]
    for name, gaps, color, shape in (
        ("before the repair", before, OKABE_ITO[1], "/"),
        ("after the repair", after, OKABE_ITO[2], ""),
    ):
        figure.add_trace(
            go.Bar(
                x=[row.solver for row in rows],
                y=[None if g is None else 100 * g for g in gaps],
                name=name,
                marker={"color": color, "pattern": hatching(shape)},
                text=["" if g is None else units.percent(g) for g in gaps],
                textposition="outside",
                hovertext=[_gap_text(row) for row in rows],
                hoverinfo="text",
                cliponaxis=False,
            ),
            row=1,
            col=2,
        )
    for row, gap in zip(rows, before, strict=True):
        if gap is None:
            reason = f"{row.impossible_nodes} impossible<br>placements" if row.impossible_nodes else "a forbidden pair"
            figure.add_annotation(
                x=row.solver,
                y=0,
                text=f"infeasible:<br>{reason}",
                showarrow=False,
                yshift=36,
                font={"size": 11},
                row=1,
                col=2,
            )
    highest = 100 * max((g for g in (*before, *after) if g is not None), default=0.0)
    figure.update_yaxes(range=[0, max(1.0, 1.15 * highest)], row=1, col=2)


def solvers_html(comparison: Comparison, theme: str = "light") -> str:
    """The figure as one self-contained page."""
    page: str = solvers_figure(comparison, theme).to_html(include_plotlyjs=True, full_html=True, config=CONFIG)
    return page


def solvers_sentence(comparison: Comparison) -> str:
    """What the figure shows for this comparison."""
    rows = comparison.rows
    if not rows:
        return f"No formulation was run on logical mesh {comparison.mesh}."
    fastest = min(rows, key=lambda r: r.total_seconds)
    worst = max(rows, key=comparison.gap)
    outcome = f"{worst.solver} ends {units.percent(comparison.gap(worst))} above the optimum"
    if comparison.gap(worst) < 5e-5:
        outcome = "all reach the optimum"
    time = units.seconds(fastest.total_seconds)
    return f"On logical mesh {comparison.mesh} {fastest.solver} is fastest ({time}); {outcome}."


def _seconds_text(row: SolverRow) -> str:
    passes = [f"{name} {units.seconds(getattr(row, key))}" for name, key in _PASSES if getattr(row, key) > 0]
    size = f"{row.variables:,} variables, {row.constraints:,} constraints"
    return lines(f"<b>{row.solver}</b>", ", ".join(passes), size)


def _gap_text(row: SolverRow) -> str:
    before = row.objective_before_seconds
    return lines(
        f"<b>{row.solver}</b>",
        f"objective {units.seconds(row.objective_seconds)}",
        f"{units.seconds(before)} before the repair"
        if before is not None
        else f"its own answer is infeasible at {row.impossible_nodes} nodes",
        f"{row.differing_nodes} nodes differ from the optimal choice",
        f"{units.percent(row.batch_share_before)} of the operators shard the batch on every axis before the repair, "
        f"{units.percent(row.batch_share)} after it",
    )
