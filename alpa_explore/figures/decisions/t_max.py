"""The t_max sweep: T = Σt + (B−1)·t_max (Alpa, §5.1, Eq. 2) for every evaluated candidate, and why others were not."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, dress, faint, ink, lines, safe
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import chosen_t_max, outcome, t_max_table

__all__ = ["t_max_figure", "t_max_sentence", "t_max_table"]

_OUTCOMES = {
    "evaluated": ("circle", 8, "a partition was found"),
    "ruled out": ("line-ns-open", 9, "a bound showed that T cannot be less"),
    "no partition": ("x-thin-open", 8, "no partition on all devices keeps every stage under it"),
}
"""Outcome -> marker, its size, what it means."""


def t_max_figure(plan: Plan, theme: str = "light") -> go.Figure:
    """Above, T and its two terms over t_max, the chosen one marked; below, the outcome of each candidate.

    Between two evaluated candidates Σt is drawn as the best known value: that of the smaller candidate.
    """
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.76, 0.24], vertical_spacing=0.06)
    best = chosen_t_max(plan)
    candidates = [p.t_max_seconds for p in plan.t_max_sweep] or [plan.predicted.t_max_seconds]
    right = min(candidates[-1], tuning.T_MAX_ZOOM * plan.predicted.t_max_seconds) * 1.04
    beyond = sum(t > right for t in candidates)
    x_scale, x_unit = units.seconds_axis(right)
    _terms(figure, plan, theme, x_scale, right)
    _candidates(figure, plan, theme, x_scale, best)
    more = f"; {beyond:,} more to the right, a double click shows them" if beyond else ""
    figure.update_xaxes(title=f"t_max, the latency that no stage may exceed ({x_unit}{more})", row=2, col=1)
    figure.update_xaxes(showline=True, linecolor=faint(theme), zeroline=False, range=[0, right / x_scale])
    return dress(figure, t_max_sentence(plan), theme=theme, height=540).update_layout(margin={"l": 110})


def t_max_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    p, terms = plan.predicted, plan.terms
    if chosen_t_max(plan) is None:
        return f"T = {units.seconds(p.iteration_seconds)}; the candidates for t_max were not recorded."
    evaluated = sum(point.iteration_seconds is not None for point in plan.t_max_sweep)
    return (
        f"T is least, {units.seconds(p.iteration_seconds)}, where no stage takes longer than "
        f"{units.seconds(p.t_max_seconds)}: Σt{terms.share} "
        f"{units.seconds(p.sum_latency_seconds / terms.bubble_divisor)} + {terms.rounds_text} × "
        f"{units.seconds(p.t_max_seconds)}. Of {len(plan.t_max_sweep):,} candidates {evaluated:,} had to be evaluated."
    )


def _terms(figure: go.Figure, plan: Plan, theme: str, x_scale: float, right: float) -> None:
    """T and its two terms over t_max, up to `right` seconds, with the plan marked by a star."""
    evaluated = [
        (p.t_max_seconds, p.iteration_seconds, p.reason) for p in plan.t_max_sweep if p.iteration_seconds is not None
    ]
    if not evaluated:
        return
    rounds, share = plan.terms.rounds, plan.terms.share
    waiting = f"(B−1{share})·t_max"
    sums = [total - rounds * t for t, total, _ in evaluated]
    last = max(right, evaluated[-1][0])
    steps = _steps([t for t, _, _ in evaluated], sums, last)
    texts = [
        lines(
            f"<b>t_max {units.seconds(t)}</b>",
            f"T {units.seconds(total)}",
            f"Σt{share} {units.seconds(s)}",
            f"{waiting} = {plan.terms.rounds_text} × {units.seconds(t)} = {units.seconds(rounds * t)}",
            safe(reason),
        )
        for (t, total, reason), s in zip(evaluated, sums, strict=True)
    ]
    visible = sums[0] + rounds * right
    y_scale, y_unit = units.seconds_axis(visible)
    green, warm = OKABE_ITO[2], OKABE_ITO[5] if theme == "light" else OKABE_ITO[1]
    x = [t / x_scale for t, _, _ in evaluated]
    total_path = [(t, s + rounds * t) for t, s in steps]
    totals = [total for _, total, _ in evaluated]
    waits = [rounds * t for t, _, _ in evaluated]
    for name, path, values, color, dash, symbol, width in (
        (f"T = Σt{share} + {waiting}", total_path, totals, ink(theme), "solid", "circle", 2.5),
        (f"Σt{share}, the first microbatch", steps, sums, green, "dash", "diamond", 2),
        (f"{waiting}, the others", [(0.0, 0.0), (last, rounds * last)], waits, warm, "dot", "square", 2),
    ):
        line = go.Scatter(
            x=[t / x_scale for t, _ in path],
            y=[v / y_scale for _, v in path],
            name=name,
            mode="lines",
            line={"color": color, "dash": dash, "width": width},
            hoverinfo="skip",
            legendgroup=name,
        )
        marks = go.Scatter(
            x=x,
            y=[v / y_scale for v in values],
            name=name,
            mode="markers",
            showlegend=False,
            legendgroup=name,
            marker={"symbol": symbol, "size": 8, "color": color},
            hovertext=texts,
            hovertemplate=HOVER_TEXT,
        )
        figure.add_trace(line, row=1, col=1).add_trace(marks, row=1, col=1)
    best = min(range(len(evaluated)), key=lambda i: (totals[i], evaluated[i][0]))
    figure.add_trace(_star(x[best], totals[best] / y_scale, texts[best], theme), row=1, col=1)
    top = max(visible, 1.25 * totals[best])
    figure.update_yaxes(title=f"time of an iteration ({y_unit})", range=[0, top / y_scale], row=1, col=1)


def _steps(candidates: list[float], sums: list[float], last: float) -> list[tuple[float, float]]:
    """Corners of the best Σt known at each t_max: it falls at an evaluated candidate and is constant to the next."""
    steps = [(candidates[0], sums[0])]
    for t, before, after in zip(candidates[1:], sums, sums[1:], strict=False):
        steps += [(t, before), (t, after)]
    return [*steps, (last, sums[-1])]


def _star(x: float, y: float, text: str, theme: str) -> go.Scatter:
    """The plan."""
    return go.Scatter(
        x=[x],
        y=[y],
        name="the plan",
        mode="markers+text",
        text=["the plan  "],
        marker={"symbol": "star", "size": 18, "color": OKABE_ITO[0], "line": {"color": ink(theme), "width": 1}},
        textposition="top left",
        textfont={"size": 13, "color": ink(theme)},
        hovertext=[text],
        hovertemplate=HOVER_TEXT,
        showlegend=False,
    )


def _candidates(figure: go.Figure, plan: Plan, theme: str, x_scale: float, best: int | None) -> None:
    """A row of marks for each outcome; candidate `best` is the plan."""
    sweep = plan.t_max_sweep
    step = max(1, len(sweep) // tuning.T_MAX_CANDIDATES)
    for name, (symbol, size, meaning) in _OUTCOMES.items():
        points = [(i, p) for i, p in enumerate(sweep) if outcome(p) == name and (i % step == 0 or name == "evaluated")]
        figure.add_trace(
            go.Scatter(
                x=[p.t_max_seconds / x_scale for _, p in points],
                y=[name] * len(points),
                mode="markers",
                name=name,
                marker={
                    "symbol": ["star" if i == best else symbol for i, _ in points],
                    "size": [14 if i == best else size for i, _ in points],
                    "color": [OKABE_ITO[0] if i == best else ink(theme) for i, _ in points],
                    "line": {"width": 1, "color": ink(theme)},
                },
                hovertext=[
                    lines(f"<b>t_max {units.seconds(p.t_max_seconds)}</b>, {name}: {meaning}", safe(p.reason))
                    for _, p in points
                ],
                hovertemplate=HOVER_TEXT,
                showlegend=False,
            ),
            row=2,
            col=1,
        )
    figure.update_yaxes(
        type="category",
        categoryorder="array",
        categoryarray=["no partition", "ruled out", "evaluated"],
        range=[-0.6, 2.6],
        row=2,
        col=1,
    )
