"""The plans that were tried: throughput against memory, and which of them nothing beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import OKABE_ITO, dress, faint, ink, lines, safe
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.printable import printable
from alpa_explore.plans.report.differences import differences
from alpa_explore.plans.report.tables import Row

__all__ = ["search_figure", "search_sentence", "search_table"]

_SYMBOLS = ("diamond", "square", "triangle-up", "triangle-down", "pentagon", "x", "cross")
"""Of the baselines, in the order in which they were tried."""


def search_figure(plan: Plan, theme: str = "light", *, tried: Sequence[Plan] = ()) -> go.Figure:
    """A mark a plan of the same model: each baseline has its symbol, the star is `plan`, the line is the Pareto front.

    A mark carries the key of its place in `tried`.
    """
    shown = _comparable(plan, tried)
    front = pareto_front([p for _, p in shown])
    x_scale, x_unit = units.bytes_axis(max(p.predicted.peak_bytes_per_device for _, p in shown))
    figure = go.Figure()
    corners = sorted(front, key=lambda i: shown[i][1].predicted.peak_bytes_per_device)
    figure.add_trace(
        go.Scatter(
            x=[shown[i][1].predicted.peak_bytes_per_device / x_scale for i in corners],
            y=[shown[i][1].samples_per_second for i in corners],
            mode="lines",
            hoverinfo="skip",
            line={"shape": "hv", "dash": "dash", "color": faint(theme), "width": 2},
            name="nothing beats these in both",
        )
    )
    kinds = dict.fromkeys(p.options.baseline.split(" ")[0] for _, p in shown if p.options.baseline)
    for name, symbol, size, color, places in (
        ("planned", "circle", 11, OKABE_ITO[0], [i for i, (_, p) in enumerate(shown) if not p.options.baseline]),
        *(
            (
                safe(kind),
                symbol,
                11,
                OKABE_ITO[1],
                [i for i, (_, p) in enumerate(shown) if p.options.baseline.split(" ")[0] == kind],
            )
            for kind, symbol in zip(kinds, cycle(_SYMBOLS), strict=False)
        ),
        ("the plan", "star", 20, OKABE_ITO[5], [i for i, (_, p) in enumerate(shown) if p is plan]),
    ):
        points = [shown[i] for i in places]
        figure.add_trace(
            go.Scatter(
                x=[p.predicted.peak_bytes_per_device / x_scale for _, p in points],
                y=[p.samples_per_second for _, p in points],
                mode="markers",
                name=name,
                marker={"symbol": symbol, "size": size, "color": color, "line": {"width": 1, "color": ink(theme)}},
                customdata=[key(plan=number) for number, _ in points],
                hovertext=[_text(plan, p) for _, p in points],
                hovertemplate="%{hovertext}<extra></extra>",
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


def search_sentence(plan: Plan, *, tried: Sequence[Plan] = ()) -> str:
    """What the figure shows for this plan."""
    shown = [p for _, p in _comparable(plan, tried)]
    if len(shown) == 1:
        return "One plan was tried, this one: move a control, or try neighbours and baselines."
    best = max(shown, key=lambda p: p.samples_per_second)
    front = pareto_front(shown)
    words = (
        f"{len(shown)} plans of {printable(plan.model.name)} were tried, and nothing beats {len(front)} of them in both"
    )
    mine = "this one among them" if shown.index(plan) in front else "this one is not among them"
    if best is plan:
        return f"{words}, {mine}; this one is the fastest."
    apart = "; ".join(map(str, differences(plan, best))) or "the same settings"
    more = best.samples_per_second / plan.samples_per_second - 1
    return f"{words}, {mine}; the fastest has {units.percent(more)} more samples/s ({apart})."


def search_table(plan: Plan, *, tried: Sequence[Plan] = ()) -> list[Row]:
    """The same as rows, in the order in which they were tried."""
    shown = _comparable(plan, tried)
    front = pareto_front([p for _, p in shown])
    return [
        {
            "plan_number": number,
            "this_one": other is plan,
            "on_the_front": place in front,
            "differs_in": "; ".join(map(str, differences(plan, other))) or "nothing",
            "iteration_seconds": other.predicted.iteration_seconds,
            "samples_a_second": other.samples_per_second,
            "peak_bytes": other.predicted.peak_bytes_per_device,
            "stages": len(other.stages),
            "bubble_fraction": other.predicted.bubble_fraction,
        }
        for place, (number, other) in enumerate(shown)
    ]


def pareto_front(plans: Sequence[Plan]) -> frozenset[int]:
    """Places of the plans that no other equals or beats in throughput and in memory, better in one at least."""
    points = [(p.samples_per_second, -p.predicted.peak_bytes_per_device) for p in plans]
    return frozenset(
        i
        for i, (rate, room) in enumerate(points)
        if not any(r >= rate and m >= room and (r, m) != (rate, room) for r, m in points)
    )


def _comparable(plan: Plan, tried: Sequence[Plan]) -> list[tuple[int, Plan]]:
    """(place, plan) of those of the same model; `plan` itself is one of them."""
    found = [(number, other) for number, other in enumerate(tried) if other.model.name == plan.model.name]
    return found if any(other is plan for _, other in found) else [*found, (len(tried), plan)]


def _text(plan: Plan, other: Plan) -> str:
    apart = [safe(str(difference)) for difference in differences(plan, other)]
    return lines(
        "<b>this plan</b>" if other is plan else f"<b>{'<br>'.join(apart) or 'the same settings'}</b>",
        f"{other.samples_per_second:.4g} samples/s, T {units.seconds(other.predicted.iteration_seconds)}",
        f"peak {units.bytes_(other.predicted.peak_bytes_per_device)} of "
        f"{units.bytes_(other.cluster.device.memory_bytes)}",
        f"{len(other.stages)} stages",
        "" if other is plan else "click to show it",
    )
