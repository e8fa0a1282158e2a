"""The plans that were tried: throughput against memory, and the Pareto frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.comparisons.search_points import Point, comparable, pareto_frontier, points_of
from alpa_explore.figures.keys import key
from alpa_explore.figures.placing import AxisRange, fitted, label_positions, limit_label
from alpa_explore.figures.plots import Plots
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, faint, halo, ink, layout_of, lines, safe
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.differences import differences
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import fullest
from alpa_explore.plans.report.tried import NoPlan
from alpa_explore.units import printable

__all__ = ["search_figure", "search_sentence", "search_table"]

_STAR_PIXELS = 20
_LISTED = 4
"""Plans of one point that its hover text lists."""


def search_figure(
    plan: Plan, theme: str = "light", *, tried: Sequence[Plan] = (), failed: Sequence[NoPlan] = ()
) -> go.Figure:
    """A mark for each point of throughput and memory among the plans of the same model; the star is at `plan`.

    Nearly equal plans are one mark with their count; its key is the index of the fastest of them in `tried`. Baselines
    are diamonds with their names. The dashed line is the Pareto frontier; the legend lists what has no plan.
    """
    shown = comparable(plan, tried)
    points = points_of(plan, shown)
    capacity = float(plan.device_of(fullest(plan)).memory_bytes)
    sizes = [p.predicted.peak_bytes_per_device for _, p in shown]
    x_scale, x_unit = units.bytes_axis(max(sizes))
    x = fitted([size / x_scale for size in sizes], capacity / x_scale)
    y = fitted([p.samples_per_second for _, p in shown])
    figure = Plots([1.0])
    _frontier_line(figure, [p for _, p in shown], x_scale, x, theme)
    texts = [_label(plan, point) for point in points]
    places = [(point.peak_bytes / x_scale, point.samples_per_second) for point in points]
    radii = [_STAR_PIXELS / 2 if p.holds(plan) else 0.0 for p in points]
    positions = label_positions(places, texts, x, y, radii=radii, upright=[capacity / x_scale])
    for name, symbol, size, color, chosen in (
        ("plans of the planner", "circle", 11, OKABE_ITO[0], [not p.kind for p in points]),
        ("baselines", "diamond", 12, OKABE_ITO[1], [bool(p.kind) for p in points]),
        ("this plan", "star", _STAR_PIXELS, OKABE_ITO[5], [p.holds(plan) for p in points]),
    ):
        own = [i for i, wanted in enumerate(chosen) if wanted]
        if own:
            labelled = symbol != "star"  # its label is further away than plotly would write it
            figure.add_trace(
                {
                    "type": "scatter",
                    "x": [places[i][0] for i in own],
                    "y": [places[i][1] for i in own],
                    "mode": "markers+text" if labelled else "markers",
                    "name": name,
                    "text": ["" if points[i].holds(plan) else texts[i] for i in own] if labelled else None,
                    "textposition": [positions[i] for i in own] if labelled else None,
                    "textfont": {"color": ink(theme), "size": 12},
                    "cliponaxis": False,
                    "marker": {
                        "symbol": symbol,
                        "size": size,
                        "color": color,
                        "line": {"width": 1, "color": ink(theme)},
                    },
                    "customdata": [key(plan=points[i].number) for i in own],
                    "hovertext": [_hover(plan, points[i]) for i in own],
                    "hovertemplate": HOVER_TEXT,
                }
            )
    here = next(i for i, p in enumerate(points) if p.holds(plan))
    figure.add_trace(_star_label(places[here], texts[here], positions[here], theme))
    _memory_line(figure, capacity / x_scale, x, y, units.bytes_(capacity), theme)
    for attempt in failed:
        figure.add_trace(_no_plan_entry(attempt))
    figure.update_xaxes(title=x.title(f"peak memory of the fullest device ({x_unit})"), range=list(x))
    figure.update_yaxes(title=y.title("samples/s"), range=list(y))
    legend_rows = 4 + len(failed) if failed else 1
    bottom = 64 + 19 * legend_rows
    height = 300 + bottom + 66
    layout = layout_of(search_sentence(plan, tried=tried, failed=failed), theme=theme, height=height)
    margin = layout["margin"] | {"b": bottom}
    below = {"x": 0, "xanchor": "left", "y": -56 / 300, "yanchor": "top", "traceorder": "normal"}
    legend = layout["legend"] | below
    return figure.figure(layout | {"height": 300 + bottom + margin["t"], "margin": margin, "legend": legend})


def search_sentence(plan: Plan, *, tried: Sequence[Plan] = (), failed: Sequence[NoPlan] = ()) -> str:
    """What the figure shows for this plan."""
    shown = comparable(plan, tried)
    if len(shown) == 1:
        alone = "Only this plan has been made: move a control, or try neighbours and baselines."
        return " ".join([alone, *_failures(failed)])
    points = points_of(plan, shown)
    place = pareto_frontier([p for _, p in shown])
    count, front = len(points), len(place)
    here = next(i for i, (_, p) in enumerate(shown) if p is plan)
    summary = f"{len(shown)} plans of {printable(plan.model.name)}"
    if count < len(shown):
        summary += f" at {count} clearly different points" if count > 1 else ", nearly equal"
    summary += f"; {front} {'is' if front == 1 else 'are'} on the Pareto frontier, "
    summary += (
        ("and it is this plan" if front == 1 else "this plan among them") if here in place else "this plan is not"
    )
    best = max((p for _, p in shown), key=lambda p: p.samples_per_second)
    gain = best.samples_per_second / plan.samples_per_second - 1
    if gain < tuning.NOTICEABLE_SHARE:
        fastest = "This plan is the fastest."
    else:
        settings = "; ".join(map(str, differences(plan, best))) or "the same settings"
        fastest = f"The fastest makes {units.percent(gain)} more samples/s: {settings}."
    return " ".join([f"{summary}.", fastest, *_failures(failed)])


def search_table(plan: Plan, *, tried: Sequence[Plan] = (), failed: Sequence[NoPlan] = ()) -> list[Row]:
    """Every plan, in the order in which they were made, and what has no plan, with the reason."""
    shown = comparable(plan, tried)
    frontier = pareto_frontier([p for _, p in shown])
    rows: list[Row] = [
        {
            "plan_number": number,
            "this_one": other is plan,
            "on_the_front": place in frontier,
            "differs_in": "; ".join(map(str, differences(plan, other))) or "nothing",
            "iteration_seconds": other.predicted.iteration_seconds,
            "samples_a_second": other.samples_per_second,
            "peak_bytes": other.predicted.peak_bytes_per_device,
            "stages": len(other.stages),
            "bubble_fraction": other.predicted.bubble_fraction,
            "no_plan_because": "",
        }
        for place, (number, other) in enumerate(shown)
    ]
    nothing = dict.fromkeys(rows[0])
    return rows + [nothing | {"differs_in": f.name, "no_plan_because": f.reason} for f in failed]


def _failures(failed: Sequence[NoPlan]) -> list[str]:
    """['No plan: data-parallel (needs 24.5 GiB of 16 GiB), …'], or nothing."""
    if not failed:
        return []
    more = len(failed) - tuning.NO_PLANS_NAMED
    named = ", ".join(f"{f.name} ({f.reason})" for f in failed[: tuning.NO_PLANS_NAMED])
    return [f"No plan: {named}{f' and {more} more, in the legend' if more > 0 else ''}."]


def _frontier_line(figure: Plots, plans: Sequence[Plan], scale: float, x: AxisRange, theme: str) -> None:
    corners = sorted(
        {
            (plans[i].predicted.peak_bytes_per_device / scale, plans[i].samples_per_second)
            for i in pareto_frontier(plans)
        }
    )
    figure.add_trace(
        {
            "type": "scatter",
            "x": [*(px for px, _ in corners), x.high],
            "y": [*(py for _, py in corners), corners[-1][1]],
            "mode": "lines",
            "hoverinfo": "skip",
            "line": {"shape": "hv", "dash": "dash", "color": faint(theme), "width": 2},
            "name": "Pareto frontier: none is faster with less memory",
        }
    )


def _star_label(place: tuple[float, float], text: str, position: str, theme: str) -> dict[str, Any]:
    """The label of the star, beside an unseen mark that is wider than the star: plotly keeps a label as far from a mark
    as a circle of its size reaches, and the tips of a star reach further."""
    return {
        "type": "scatter",
        "x": [place[0]],
        "y": [place[1]],
        "mode": "markers+text",
        "text": [text],
        "textposition": position,
        "textfont": {"color": ink(theme), "size": 12, "shadow": halo(theme)},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
        "name": "label of this plan",
        "marker": {"size": 1.4 * _STAR_PIXELS, "opacity": 0},
    }


def _memory_line(figure: Plots, capacity: float, x: AxisRange, y: AxisRange, words: str, theme: str) -> None:
    seen = capacity <= x.high
    if seen:
        figure.add_trace(
            {
                "type": "scatter",
                "x": [capacity] * 2,
                "y": list(y),
                "mode": "lines",
                "hoverinfo": "skip",
                "showlegend": False,
                "name": "memory of a device",
                "line": {"color": ink(theme), "width": 2},
            }
        )
    place: dict[str, Any] = {
        "x": capacity if seen else 1.0,
        "xref": "x" if seen else "paper",
        "y": 1.0,
        "yref": "paper",
    }
    figure.add_annotation(limit_label(words, theme, seen=seen, **place, xanchor="right", yanchor="bottom"))


def _no_plan_entry(attempt: NoPlan) -> dict[str, Any]:
    """An entry of the legend alone."""
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "markers",
        "name": f"no plan: {safe(str(attempt))}",
        "marker": {"symbol": "x", "size": 10, "color": OKABE_ITO[5]},
        "hoverinfo": "skip",
    }


def _label(plan: Plan, point: Point) -> str:
    name = safe(point.kind) or ("this plan" if point.holds(plan) else "")
    more = len(point.plans) - 1
    if name:
        return f"{name} and {more} more" if more else name
    return f"{more + 1} plans" if more else ""


def _hover(plan: Plan, point: Point) -> str:
    shown, others = point.plans[0][1], len(point.plans) - 1
    listed = [_settings(plan, p) for _, p in point.plans[:_LISTED]]
    more = len(point.plans) - len(listed)
    return lines(
        f"<b>{listed[0]}</b>",
        f"{units.number(point.samples_per_second, 4)} samples/s, T {units.seconds(shown.predicted.iteration_seconds)}",
        f"peak {units.bytes_(point.peak_bytes)} of {units.bytes_(shown.device_of(fullest(shown)).memory_bytes)}",
        f"{len(shown.stages)} stage{'' if len(shown.stages) == 1 else 's'}",
        "nearly equal to it:" if others else "",
        *(f"   {text}" for text in listed[1:]),
        f"   and {more} more" if more else "",
        "" if shown is plan else "click to show it",
    )


def _settings(plan: Plan, other: Plan) -> str:
    if other is plan:
        return "this plan"
    return "; ".join(safe(str(difference)) for difference in differences(plan, other)) or "the same settings"
