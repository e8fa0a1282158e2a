"""The plans that were tried: throughput against memory, and the Pareto frontier among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, dress, faint, ink, lines, safe
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.printable import printable
from alpa_explore.plans.report.differences import differences
from alpa_explore.plans.report.tables import Row

__all__ = ["search_figure", "search_sentence", "search_table"]

_SYMBOLS = ("diamond", "square", "triangle-up", "triangle-down", "pentagon", "x", "cross")
"""Markers of the baselines, in the order in which they were tried."""


def search_figure(plan: Plan, theme: str = "light", *, tried: Sequence[Plan] = ()) -> go.Figure:
    """A mark for each plan of the same model; the star is `plan`, the dashed line is the Pareto frontier.

    Each kind of baseline has its own symbol. The key of a mark is the index of the plan in `tried`.
    """
    shown = _comparable(plan, tried)
    frontier = pareto_frontier([p for _, p in shown])
    x_scale, x_unit = units.bytes_axis(max(p.predicted.peak_bytes_per_device for _, p in shown))
    figure = go.Figure()
    corners = sorted(frontier, key=lambda i: shown[i][1].predicted.peak_bytes_per_device)
    figure.add_trace(
        go.Scatter(
            x=[shown[i][1].predicted.peak_bytes_per_device / x_scale for i in corners],
            y=[shown[i][1].samples_per_second for i in corners],
            mode="lines",
            hoverinfo="skip",
            line={"shape": "hv", "dash": "dash", "color": faint(theme), "width": 2},
            name="Pareto frontier",
        )
    )
    for name, symbol, size, color, points in _groups(plan, shown):
        figure.add_trace(
            go.Scatter(
                x=[p.predicted.peak_bytes_per_device / x_scale for _, p in points],
                y=[p.samples_per_second for _, p in points],
                mode="markers",
                name=name,
                marker={"symbol": symbol, "size": size, "color": color, "line": {"width": 1, "color": ink(theme)}},
                customdata=[key(plan=number) for number, _ in points],
                hovertext=[_text(plan, p) for _, p in points],
                hovertemplate=HOVER_TEXT,
            )
        )
    capacity = plan.cluster.device.memory_bytes / x_scale
    top = 1.15 * max(p.samples_per_second for _, p in shown)
    figure.add_trace(
        go.Scatter(
            x=[capacity, capacity],
            y=[0, top],
            mode="lines",
            hoverinfo="skip",
            name="memory of a device",
            line={"color": faint(theme), "width": 2},
        )
    )
    figure.update_xaxes(title=f"peak memory of a device ({x_unit})", rangemode="tozero")
    figure.update_yaxes(title="samples/s", range=[0, top])
    return dress(figure, search_sentence(plan, tried=tried), theme=theme, height=480)


def _groups(
    plan: Plan, shown: Sequence[tuple[int, Plan]]
) -> Iterator[tuple[str, str, int, str, list[tuple[int, Plan]]]]:
    """(name, symbol, size, colour, plans) of each trace: automatic plans, each kind of baseline, and `plan` on top."""
    kinds = dict.fromkeys(p.options.baseline.split(" ")[0] for _, p in shown if p.options.baseline)
    yield "planned", "circle", 11, OKABE_ITO[0], [(i, p) for i, p in shown if not p.options.baseline]
    for kind, symbol in zip(kinds, cycle(_SYMBOLS), strict=False):
        of_kind = [(i, p) for i, p in shown if p.options.baseline.split(" ")[0] == kind]
        yield safe(kind), symbol, 11, OKABE_ITO[1], of_kind
    yield "the plan", "star", 20, OKABE_ITO[5], [(i, p) for i, p in shown if p is plan]


def search_sentence(plan: Plan, *, tried: Sequence[Plan] = ()) -> str:
    """What the figure shows for this plan."""
    shown = [p for _, p in _comparable(plan, tried)]
    if len(shown) == 1:
        return "Only this plan has been tried: move a control, or try neighbours and baselines."
    best = max(shown, key=lambda p: p.samples_per_second)
    frontier = pareto_frontier(shown)
    count = len(frontier)
    summary = (
        f"{len(shown)} plans of {printable(plan.model.name)} were tried; {count} "
        f"{'is' if count == 1 else 'are'} on the Pareto frontier of throughput and memory"
    )
    place = "this one among them" if shown.index(plan) in frontier else "this one is not among them"
    if count == 1:
        place = "it is this one" if shown.index(plan) in frontier else "it is not this one"
    if best is plan:
        return f"{summary}, {place}; this one is the fastest."
    settings = "; ".join(map(str, differences(plan, best))) or "the same settings"
    gain = best.samples_per_second / plan.samples_per_second - 1
    return f"{summary}, {place}; the fastest has {units.percent(gain)} more samples/s ({settings})."


def search_table(plan: Plan, *, tried: Sequence[Plan] = ()) -> list[Row]:
    """The same as rows, in the order in which the plans were tried."""
    shown = _comparable(plan, tried)
    frontier = pareto_frontier([p for _, p in shown])
    return [
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
        }
        for place, (number, other) in enumerate(shown)
    ]


def pareto_frontier(plans: Sequence[Plan]) -> frozenset[int]:
    """Indices of the plans that are not dominated: no other is at least as good in throughput and memory and better in
    one."""
    points = [(p.samples_per_second, -p.predicted.peak_bytes_per_device) for p in plans]
    return frozenset(
        i
        for i, (rate, saved) in enumerate(points)
        if not any(r >= rate and s >= saved and (r, s) != (rate, saved) for r, s in points)
    )


def _comparable(plan: Plan, tried: Sequence[Plan]) -> list[tuple[int, Plan]]:
    """(index in `tried`, plan) of the plans of the same model; `plan` itself is one of them."""
    same_model = [(number, other) for number, other in enumerate(tried) if other.model.name == plan.model.name]
    return same_model if any(other is plan for _, other in same_model) else [*same_model, (len(tried), plan)]


def _text(plan: Plan, other: Plan) -> str:
    settings = [safe(str(difference)) for difference in differences(plan, other)]
    return lines(
        "<b>this plan</b>" if other is plan else f"<b>{'<br>'.join(settings) or 'the same settings'}</b>",
        f"{other.samples_per_second:.4g} samples/s, T {units.seconds(other.predicted.iteration_seconds)}",
        f"peak {units.bytes_(other.predicted.peak_bytes_per_device)} of "
        f"{units.bytes_(other.cluster.device.memory_bytes)}",
        f"{len(other.stages)} stages",
        "" if other is plan else "click to show it",
    )
