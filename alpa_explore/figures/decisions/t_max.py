"""The t_max sweep: Σt + (B−1)·t_max (Alpa, §5.1, Eq. 2) for every evaluated candidate, and why others were not.

This is the objective. T of the plan is what an iteration takes, and equal to it in the paper's mode alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import link
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, empty, faint, halo, ink, layout_of, lines, safe, unchecked
from alpa_explore.plans.iteration_time import objective_seconds
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import iteration_with_band
from alpa_explore.plans.report.tables import chosen_t_max, outcome, t_max_table

__all__ = ["t_max_figure", "t_max_sentence", "t_max_table"]

_OUTCOMES = {
    "evaluated": ("circle", 8, "a partition was found"),
    "ruled out": ("line-ns-open", 9, "a bound showed that T cannot be less"),
    "no partition": ("x-thin-open", 8, "no partition on all devices keeps every stage under it"),
}
"""Outcome -> marker, its size, what it means."""
_DOMAINS = ((0.5, 1.0), (0.24, 0.43), (0.0, 0.17))
"""Heights of the panels: T, Σt, the candidates."""
_SUM_HEADROOM = 1.45
"""Height of the panel of Σt, as a multiple of the largest."""
_LABEL_SHARE = 0.2
"""Of the width of the axis: two labels that are nearer would overlap."""
_NO_PARTITION = "no partition"
"""What the reasons of candidates begin with that are smaller than the slowest stage of every partition."""
_BAND = "rgba(0,158,115,0.35)"
"""Colour of Σt."""
_HIDDEN = {"hoverinfo": "skip", "showlegend": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """An evaluated candidate."""

    t_max: float
    total: float
    """The objective."""
    seconds: float
    """T."""
    first: float
    """Σt: its part of the objective."""
    text: str
    """On hover."""
    link: str
    """What a click selects: the slowest stage, of the plan; of other partitions the stages are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The part of the axis of t_max near the optimum, in seconds, and its unit."""

    left: float
    right: float
    scale: float
    unit: str

    @classmethod
    def of(cls, plan: Plan, points: list[_Point]) -> _View:
        """As far to the right as candidates that come near the optimum, and about as far to the left."""
        best = plan.predicted.t_max_seconds
        near = [p.t_max - best for p in points if p.t_max <= best * (1 + tuning.T_MAX_WIDEST)]
        width = min(best * tuning.T_MAX_WIDEST, max(1.25 * max(near, default=0.0), best * tuning.T_MAX_NARROWEST))
        scale, unit = units.seconds_axis(best)
        return cls(left=best - 0.7 * width, right=best + width, scale=scale, unit=unit)


def t_max_figure(plan: Plan, theme: str = "light") -> go.Figure:
    """Near the optimum: above, T and (B−1)·t_max over t_max, between them Σt, the chosen one marked; below, Σt on its
    own scale, and the outcome of each candidate. The rest of the axis is reached by a double click.

    Between two evaluated candidates Σt is drawn as the best known value: that of the smaller candidate.
    """
    points = _evaluated(plan)
    view = _View.of(plan, points)
    traces = _candidates(plan, theme, view)
    if points:
        near = [*_too_small(plan, theme, view, points), *_totals(plan, theme, view, points)]
        traces = [*near, *_sums(plan, theme, view, points), *traces]
    axes = _axes(plan, theme, view, points)
    layout = layout_of(t_max_sentence(plan), theme=theme, height=540, margin={"l": 92}, **axes)
    return unchecked(traces, layout)


def _axes(plan: Plan, theme: str, view: _View, points: list[_Point]) -> dict[str, Any]:
    """The axis of t_max, and those of the three panels."""
    low, high = _range(plan, view, points)
    most = _SUM_HEADROOM * max((p.first for p in points), default=1.0)
    (scale, unit), (sum_scale, sum_unit) = units.seconds_axis(high), units.seconds_axis(most)
    count, plain = len(plan.t_max_sweep), {"zeroline": False, "anchor": "x"}
    return {
        "xaxis": plain
        | {
            "title": {"text": f"t_max ({view.unit})" + (f"; a double click shows all {count:,}" if count else "")},
            "anchor": "y3",
            "showline": True,
            "linecolor": faint(theme),
            "range": [view.left / view.scale, view.right / view.scale],
        },
        "yaxis": plain
        | {
            "title": {"text": f"time of an iteration ({unit})"},
            "domain": _DOMAINS[0],
            "range": [low / scale, high / scale],
        },
        "yaxis2": plain
        | {
            "title": {"text": f"Σt{plan.terms.share} ({sum_unit})"},
            "domain": _DOMAINS[1],
            "range": [0, most / sum_scale],
            "nticks": 4,
        },
        "yaxis3": plain
        | {
            "domain": _DOMAINS[2],
            "type": "category",
            "categoryorder": "array",
            "categoryarray": ["no partition", "ruled out", "evaluated"],
            "range": [-0.6, 2.6],
        },
    }


def t_max_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    p, terms = plan.predicted, plan.terms
    if chosen_t_max(plan) is None:
        return f"T = {iteration_with_band(plan)}; the candidates for t_max were not recorded."
    evaluated = sum(point.iteration_seconds is not None for point in plan.t_max_sweep)
    sums = ("" if p.iteration_seconds == objective_seconds(plan) else "objective ") + (
        f"Σt{terms.share} {units.seconds(p.sum_latency_seconds / terms.bubble_divisor)} + {terms.rounds_text} × "
        f"{units.seconds(p.t_max_seconds)}{_once_text(plan)}"
    )
    return (
        f"T is least, {iteration_with_band(plan)}, where no stage takes longer than "
        f"{units.seconds(p.t_max_seconds)}: {sums}. Of {len(plan.t_max_sweep):,} candidates {evaluated:,} had to be "
        "evaluated."
    )


def _once(plan: Plan) -> list[tuple[str, float]]:
    """What T has beside the latencies of the stages, as far as there is any: (what, seconds)."""
    parts = (("sums of tied weights", plan.tied_seconds), ("overhead", plan.overhead_seconds))
    return [(what, seconds) for what, seconds in parts if seconds]


def _once_text(plan: Plan, before: str = " ") -> str:
    """' + 120 ms overhead'."""
    return "".join(f"{before}+ {units.seconds(seconds)} {what}" for what, seconds in _once(plan))


def _evaluated(plan: Plan) -> list[_Point]:
    """The evaluated candidates, ascending."""
    rounds, share = plan.terms.rounds, plan.terms.share
    best, points = chosen_t_max(plan), []
    for index, candidate in enumerate(plan.t_max_sweep):
        t, seconds = candidate.t_max_seconds, candidate.iteration_seconds
        if seconds is None:
            continue
        total = seconds if candidate.objective_seconds is None else candidate.objective_seconds
        first = total - rounds * t - plan.once_seconds
        waiting = f"{plan.terms.rounds_text} × {units.seconds(t)} = {units.seconds(rounds * t)}"
        text = lines(
            f"<b>t_max {units.seconds(t)}</b>",
            f"T {units.seconds(seconds)}",
            f"objective {units.seconds(total)}" if candidate.objective_seconds is not None else "",
            f"Σt{share} {units.seconds(first)}",
            f"{plan.terms.rounds_symbols}·t_max = {waiting}",
            *(f"{what} {units.seconds(seconds)}" for what, seconds in _once(plan)),
            safe(candidate.reason),
            f"click: selects stage {_slowest(plan)}, the slowest of the plan" if index == best else "",
        )
        target = link(stage=_slowest(plan)) if index == best else ""
        points.append(_Point(t_max=t, total=total, seconds=seconds, first=first, text=text, link=target))
    return points


def _slowest(plan: Plan) -> int:
    """The stage that sets t_max."""
    return max(plan.stages, key=lambda stage: stage.latency_seconds).index


def _range(plan: Plan, view: _View, points: list[_Point]) -> tuple[float, float]:
    """Of the panel of T, in seconds: from the least wait in view to the highest T."""
    near = [p for p in points if p.t_max <= view.right] or points[:1]
    if not near:
        return 0.0, plan.predicted.iteration_seconds
    low, end = plan.terms.rounds * view.left, plan.terms.rounds * view.right + near[-1].first + plan.once_seconds
    high = max(end, *(p.total for p in near))
    return max(0.0, low - 0.06 * (high - low)), high + 0.08 * (high - low)


def _steps(points: list[_Point], last: float) -> list[tuple[float, float]]:
    """Corners of the best Σt known at each t_max: it falls at an evaluated candidate and is constant to the next."""
    steps = [(points[0].t_max, points[0].first)]
    for before, point in pairwise(points):
        steps += [(point.t_max, before.first), (point.t_max, point.first)]
    return [*steps, (max(last, steps[-1][0]), points[-1].first)]


def _too_small(plan: Plan, theme: str, view: _View, points: list[_Point]) -> list[dict[str, Any]]:
    """Shade the t_max under which no partition keeps every stage."""
    (low, high), end = _range(plan, view, points), 0.0
    for candidate, following in pairwise(plan.t_max_sweep):
        if candidate.reason.startswith(_NO_PARTITION):
            end = following.t_max_seconds
    if not end:
        return []
    scale, _ = units.seconds_axis(high)
    shade = {
        "type": "scatter",
        "x": [t / view.scale for t in (0.0, end, end, 0.0)],
        "y": [y / scale for y in (0.0, 0.0, high, high)],
        "mode": "none",
        "fill": "toself",
        "fillcolor": empty(theme),
        "name": "t_max too small",
    }
    place = (view.left + end) / 2 / view.scale, (low + 0.95 * (high - low)) / scale
    words = "<b>too small</b>:<br>no partition<br>is so fast"
    return [shade | _HIDDEN, _words(words, place, "bottom center", theme)]


def _words(text: str, place: tuple[float, float], position: str, theme: str) -> dict[str, Any]:
    """An explanation in the panel of T."""
    font = {"size": 12, "color": ink(theme)}
    at = {"x": [place[0]], "y": [place[1]], "textposition": position}
    return {"type": "scatter", "mode": "text", "text": [text], "textfont": font, "name": "words"} | at | _HIDDEN


def _totals(plan: Plan, theme: str, view: _View, points: list[_Point]) -> list[dict[str, Any]]:
    """T and (B−1)·t_max, and Σt as the band between them."""
    rounds, share = plan.terms.rounds, plan.terms.share
    low, high = _range(plan, view, points)
    scale, _ = units.seconds_axis(high)
    steps = _steps(points, view.right)
    start, last = steps[0][0], steps[-1][0]
    warm = OKABE_ITO[5] if theme == "light" else OKABE_ITO[1]
    waiting = f"{plan.terms.rounds_symbols}·t_max"
    once = plan.once_seconds
    path = [(t, first + once + rounds * t) for t, first in steps]

    def line(places: list[tuple[float, float]], **looks: Any) -> dict[str, Any]:
        xs, ys = [t / view.scale for t, _ in places], [value / scale for _, value in places]
        return {"type": "scatter", "x": xs, "y": ys, "mode": "lines", "hoverinfo": "skip"} | looks

    band = line(
        [*path, (last, once + rounds * last), (start, once + rounds * start)],
        fill="toself",
        fillcolor=_BAND,
        mode="none",
        name=f"Σt{share}, the first microbatch",
    )
    wait = line(
        [(0.0, 0.0), (last, rounds * last)],
        line={"color": warm, "dash": "dot", "width": 2},
        name=f"{waiting}, the others",
    )
    name = "T" if plan.options.pipeline.mode else "objective"
    total = line(
        path,
        line={"color": ink(theme), "width": 2.5},
        name=f"{name} = Σt{share} + {waiting}{''.join(f' + {what}' for what, _ in _once(plan))}",
    )
    place = (view.right - 0.01 * (view.right - view.left)) / view.scale, (low + 0.03 * (high - low)) / scale
    cost = f"<b>larger</b>: each {view.unit} of t_max costs {units.seconds(rounds * view.scale)}"
    marks = _marks([p.total / scale for p in points], points, view, ink(theme)) | {"name": "T of the candidates"}
    star = _star(plan, points, view, scale, theme)
    return [band, wait, total, _words(cost, place, "top left", theme), marks, star]


def _marks(values: list[float], points: list[_Point], view: _View, color: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": [p.t_max / view.scale for p in points],
        "y": values,
        "mode": "markers",
        "marker": {"size": 8, "color": color},
        "hovertext": [p.text for p in points],
        "hovertemplate": HOVER_TEXT,
        "customdata": [p.link for p in points],
        "showlegend": False,
    }


def _star(plan: Plan, points: list[_Point], view: _View, scale: float, theme: str) -> dict[str, Any]:
    """The plan, with its numbers; a click selects its slowest stage."""
    chosen, terms = chosen_t_max(plan), plan.terms
    t_max = plan.t_max_sweep[chosen or 0].t_max_seconds
    best = next(point for point in points if point.t_max == t_max)
    # In lines of their own: on a narrow page the right edge is near.
    once = _once_text(plan, "<br>   ")
    waiting = f"{terms.rounds_text} × {units.seconds(best.t_max)}"
    equal = "=" if best.total == best.seconds else f"objective {units.seconds(best.total)} ="
    sums = f"{equal} {units.seconds(best.first)}{' ' if once else '<br>   '}+ {waiting}{once}"
    return _marks([best.total / scale], [best], view, ink(theme)) | {
        "name": "the plan",
        "mode": "markers+text",
        "text": [f"   <b>the plan, T {units.seconds(best.seconds)}</b><br>   {sums}"],
        "marker": {"symbol": "star", "size": 18, "color": OKABE_ITO[0], "line": {"color": ink(theme), "width": 1}},
        "textposition": "bottom right",
        "textfont": {"size": 13, "color": ink(theme), "shadow": halo(theme)},
    }


def _sums(plan: Plan, theme: str, view: _View, points: list[_Point]) -> list[dict[str, Any]]:
    """Σt on its own scale: beside T it is seldom seen."""
    scale, _ = units.seconds_axis(_SUM_HEADROOM * max(p.first for p in points))
    steps, green = _steps(points, view.right), OKABE_ITO[2]
    labels, place = [], float("-inf")
    for point in points:
        apart = point.t_max - place > _LABEL_SHARE * (view.right - view.left)
        labels.append(units.seconds(point.first) if apart else "")
        place = point.t_max if apart else place
    line = {
        "type": "scatter",
        "x": [t / view.scale for t, _ in steps],
        "y": [first / scale for _, first in steps],
        "mode": "lines",
        "line": {"color": green, "width": 2},
        "fill": "tozeroy",
        "fillcolor": _BAND,
        "yaxis": "y2",
        "name": "Σt",
    }
    marks = _marks([p.first / scale for p in points], points, view, green) | {
        "mode": "markers+text",
        "text": labels,
        "textposition": "top right",
        "textfont": {"size": 12, "color": ink(theme)},
        "yaxis": "y2",
        "name": "Σt of the candidates",
    }
    return [line | _HIDDEN, marks]


def _candidates(plan: Plan, theme: str, view: _View) -> list[dict[str, Any]]:
    """A row of marks for each outcome; a star is the plan."""
    sweep, best = plan.t_max_sweep, chosen_t_max(plan)
    step, traces = max(1, len(sweep) // tuning.T_MAX_CANDIDATES), []
    for name, (symbol, size, meaning) in _OUTCOMES.items():
        points = [(i, p) for i, p in enumerate(sweep) if outcome(p) == name and (i % step == 0 or name == "evaluated")]
        chosen = f"click: selects stage {_slowest(plan)}, the slowest of the plan"
        traces.append(
            {
                "type": "scatter",
                "x": [p.t_max_seconds / view.scale for _, p in points],
                "y": [name] * len(points),
                "mode": "markers",
                "name": name,
                "yaxis": "y3",
                "marker": {
                    "symbol": ["star" if i == best else symbol for i, _ in points],
                    "size": [14 if i == best else size for i, _ in points],
                    "color": [OKABE_ITO[0] if i == best else ink(theme) for i, _ in points],
                    "line": {"width": 1, "color": ink(theme)},
                },
                "hovertext": [
                    lines(
                        f"<b>t_max {units.seconds(p.t_max_seconds)}</b>, {name}: {meaning}",
                        safe(p.reason),
                        chosen if i == best else "",
                    )
                    for i, p in points
                ],
                "hovertemplate": HOVER_TEXT,
                "customdata": [link(stage=_slowest(plan)) if i == best else "" for i, _ in points],
                "showlegend": False,
            }
        )
    return traces
