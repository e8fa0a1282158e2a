"""The automatic plan beside the baselines: the time of an iteration, and the memory of the fullest device."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.style import CONFIG, OKABE_ITO, dress, hatching, ink, lines, safe
from alpa_explore.plans.phrases import submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import bytes_with_band
from alpa_explore.plans.report.iteration import iteration_sum
from alpa_explore.plans.report.tables import Row, comparison_table
from alpa_explore.plans.report.text import fullest

__all__ = ["baselines_figure", "baselines_html", "baselines_sentence", "comparison_table"]


def baselines_figure(plans: Sequence[Plan], theme: str = "light") -> go.Figure:
    """Two panels with a bar for each plan; the first plan, with which the others are compared, at the top.

    Left, the terms of the iteration, T = Σt + (B−1)·t_max; right, the fullest device, with its capacity as a line.
    """
    rows = comparison_table(plans)
    figure = make_subplots(
        rows=1,
        cols=2,
        shared_yaxes=True,
        horizontal_spacing=0.06,
        column_widths=[0.62, 0.38],
        subplot_titles=("iteration", "fullest device"),
    )
    figure.update_annotations(font_size=13)
    hover = [_hover(plan, row["plan"]) for plan, row in zip(plans, rows, strict=True)]
    _iterations(figure, rows, hover)
    capacity = plans[0].device_of(fullest(plans[0])).memory_bytes if plans else 1
    _memory(figure, rows, hover, capacity, theme)
    figure.update_yaxes(autorange="reversed", automargin=True)
    height = 180 + 34 * len(rows)
    figure = dress(figure, baselines_sentence(plans), theme=theme, height=height, barmode="stack", bargap=0.3)
    return figure.update_layout(legend={"y": -0.5 * 120 / height - 0.1, "yanchor": "top"}, margin={"b": 100, "l": 200})


def _iterations(figure: go.Figure, rows: Sequence[Row], hover: Sequence[str]) -> None:
    names = [safe(row["plan"]) for row in rows]
    longest = max((row["iteration_seconds"] for row in rows), default=1.0)
    scale, unit = units.seconds_axis(longest)
    for name, column, color, shape in (
        ("Σt: one microbatch through all stages", "sum_latency_seconds", OKABE_ITO[1], "/"),
        ("(B−1)·t_max: the other microbatches", "waiting_seconds", OKABE_ITO[0], ""),
        ("forward and backward passes", "passes_seconds", OKABE_ITO[0], ""),
        ("waits (bubble)", "bubble_seconds", OKABE_ITO[1], "/"),
        ("sends between stages", "sends_seconds", OKABE_ITO[4], "|"),
        ("gradient sync and update", "update_seconds", OKABE_ITO[7], "-"),
        ("sums of tied weights", "tied_seconds", OKABE_ITO[3], "x"),
        ("overhead of the software", "overhead_seconds", OKABE_ITO[6], "."),
    ):
        if rows and column not in rows[0]:
            continue
        figure.add_trace(
            go.Bar(
                y=names,
                x=[row[column] / scale for row in rows],
                orientation="h",
                name=name,
                marker={"color": color, "pattern": hatching(shape)},
                hovertext=hover,
                hoverinfo="text",
            ),
            row=1,
            col=1,
        )
    for row, name in zip(rows, names, strict=True):
        figure.add_annotation(
            x=row["iteration_seconds"] / scale,
            y=name,
            text=f"{units.seconds(row['iteration_seconds'])} (× {row['times_first']:.3g})",
            showarrow=False,
            xanchor="left",
            xshift=4,
            font={"size": 12},
            row=1,
            col=1,
        )
    figure.update_xaxes(title=unit, range=[0, 1.3 * longest / scale], row=1, col=1)


def _memory(figure: go.Figure, rows: Sequence[Row], hover: Sequence[str], capacity: int, theme: str) -> None:
    fullest = max((row["peak_bytes"] for row in rows), default=1.0)
    scale, unit = units.bytes_axis(max(fullest, capacity))
    figure.add_trace(
        go.Bar(
            y=[safe(row["plan"]) for row in rows],
            x=[row["peak_bytes"] / scale for row in rows],
            orientation="h",
            name="peak memory",
            marker={"color": OKABE_ITO[2]},
            hovertext=hover,
            hoverinfo="text",
            showlegend=False,
        ),
        row=1,
        col=2,
    )
    figure.add_vline(x=capacity / scale, line={"color": ink(theme), "dash": "dash", "width": 1}, row=1, col=2)
    figure.update_xaxes(title=unit, range=[0, 1.05 * max(fullest, capacity) / scale], row=1, col=2)


def baselines_html(plans: Sequence[Plan], theme: str = "light") -> str:
    """The figure as one self-contained page."""
    page: str = baselines_figure(plans, theme).to_html(include_plotlyjs=True, full_html=True, config=CONFIG)
    return page


def baselines_sentence(plans: Sequence[Plan]) -> str:
    """What the figure shows for these plans."""
    if len(plans) < 2:
        return "There is no other plan to compare with."
    first, *others = comparison_table(plans)
    best = min(others, key=lambda row: float(row["iteration_seconds"]))
    ratio = best["times_first"]
    if abs(ratio - 1) < 5e-4:
        return f"The {first['plan']} plan takes as long as {best['plan']}, the fastest of the others."
    difference = f"{units.percent(abs(ratio - 1))} {'longer' if ratio > 1 else 'shorter'}"
    return f"{best['plan']}, the fastest of the others, takes {difference} than the {first['plan']} plan."


def _hover(plan: Plan, name: str) -> str:
    p = plan.predicted
    return lines(
        f"<b>{safe(name)}</b>",
        iteration_sum(plan),
        f"{len(plan.stages)} stages on submeshes "
        + ", ".join(submesh_phrase(s.submesh, s.device) for s in plan.stages),
        f"bubble {units.percent(p.bubble_fraction)}, peak memory {bytes_with_band(plan, p.peak_bytes_per_device)} of "
        f"{units.bytes_(plan.device_of(fullest(plan)).memory_bytes)}",
    )
