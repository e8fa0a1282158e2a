"""The t_max sweep: Σt + (B−1)·t_max (Alpa, §5.1, Eq. 2) for every evaluated candidate, and why others were not.

This is the objective. T of the plan is what an iteration takes, and equal to it in the paper's mode alone.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import change_key, link
from alpa_explore.figures.marks import axis, labels, line, words
from alpa_explore.figures.marks import points as marks
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, empty, faint, ink, lines, safe, with_theme
from alpa_explore.plans.iteration_time import objective_seconds
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import iteration_with_band
from alpa_explore.plans.report.tables import chosen_t_max, outcome, t_max_table
from alpa_explore.plans.report.text import pace_setter

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


class _Point(NamedTuple):
    """An evaluated candidate."""

    t_max: float
    total: float
    """The objective."""
    first: float
    """Σt: its part of the objective."""
    text: str
    """On hover."""
    key: str


class _View(NamedTuple):
    """The part of the axis of t_max near the optimum, in seconds, and its unit."""

    left: float
    right: float
    scale: float
    unit: str


@with_theme
def t_max_figure(plan: Plan) -> Drawing:
    """Near the optimum: above, T and (B−1)·t_max over t_max, between them Σt, the chosen one marked; below, Σt on its
    own scale, and the outcome of each candidate. The rest of the axis is reached by a double click.

    Between two evaluated candidates Σt is drawn as the best known value: that of the smaller candidate.
    """
    points = _evaluated(plan)
    view = _view(plan, points)
    traces = list(_candidates(plan, view))
    if points:
        traces = [*_too_small(plan, view, points), *_totals(plan, view, points), *_sums(view, points), *traces]
    low, high = _range(plan, view, points)
    most = _SUM_HEADROOM * max((p.first for p in points), default=1.0)
    (scale, unit), (sum_scale, sum_unit) = units.seconds_axis(high), units.seconds_axis(most)
    count, plain = len(plan.t_max_sweep), {"zeroline": False, "anchor": "x"}
    title = f"t_max ({view.unit}); each {view.unit} more costs {units.seconds(plan.terms.rounds * view.scale)}"
    title += f"; double click shows all {count:,}" if count else ""
    seen = (view.left / view.scale, view.right / view.scale)
    outcomes = {"type": "category", "categoryorder": "array", "categoryarray": list(reversed(_OUTCOMES))}
    return Drawing(
        traces,
        t_max_sentence(plan),
        height=540,
        meta={"least_width": tuning.LABELLED_PIXELS},
        margin={"l": 92},
        xaxis=axis(title, seen, anchor="y3", showline=True, linecolor=faint, zeroline=False),
        yaxis=axis(f"iteration ({unit})", (low / scale, high / scale), domain=_DOMAINS[0], **plain),
        yaxis2=axis(f"Σt{plan.terms.share} ({sum_unit})", (0, most / sum_scale), domain=_DOMAINS[1], nticks=4, **plain),
        yaxis3=axis(span=(-0.6, 2.6), domain=_DOMAINS[2], **outcomes, **plain),
    )


def t_max_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    p, terms = plan.predicted, plan.terms
    if chosen_t_max(plan) is None:
        return f"T = {iteration_with_band(plan)}; the candidates for t_max were not recorded."
    evaluated = sum(point.iteration_seconds is not None for point in plan.t_max_sweep)
    sums = ("" if p.iteration_seconds == objective_seconds(plan) else "objective ") + (
        f"Σt{terms.share} {units.seconds(p.sum_latency_seconds / terms.bubble_divisor)} + {terms.rounds_text} × "
        f"{units.seconds(p.t_max_seconds)}" + "".join(f" + {units.seconds(s)} {what}" for what, s in _once(plan))
    )
    return (
        f"T is least, {iteration_with_band(plan)}, where no stage takes longer than {units.seconds(p.t_max_seconds)}: "
        f"{sums}. Of {len(plan.t_max_sweep):,} candidates {evaluated:,} had to be evaluated."
    )


def _once(plan: Plan) -> list[tuple[str, float]]:
    """What T has beside the latencies of the stages, as far as there is any: (what, seconds)."""
    parts = (("sums of tied weights", plan.tied_seconds), ("overhead", plan.overhead_seconds))
    return [(what, seconds) for what, seconds in parts if seconds]


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
        key, click = _reaction(plan, t, is_plan=index == best)
        text = lines(
            f"<b>t_max {units.seconds(t)}</b>",
            f"T {units.seconds(seconds)}",
            f"objective {units.seconds(total)}" if candidate.objective_seconds is not None else "",
            f"Σt{share} {units.seconds(first)}",
            f"{plan.terms.rounds_symbols}·t_max = {waiting}",
            *(f"{what} {units.seconds(seconds)}" for what, seconds in _once(plan)),
            safe(candidate.reason),
            click,
        )
        points.append(_Point(t, total, first, text, key))
    return points


def _reaction(plan: Plan, t_max: float, *, is_plan: bool) -> tuple[str, str]:
    """The key of a mark and the words for a click on it: of the plan, a link to its slowest stage; of another
    partition, what opens it."""
    if not is_plan:
        return change_key("t_max", repr(t_max)), "click: opens the plan with these stages"
    slowest = pace_setter(plan).index
    return link(stage=slowest), f"click: selects stage {slowest}, the slowest of the plan"


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


def _too_small(plan: Plan, view: _View, points: list[_Point]) -> list[Trace]:
    """Shade the t_max under which no partition keeps every stage."""
    (low, high), end = _range(plan, view, points), 0.0
    for candidate, following in pairwise(plan.t_max_sweep):
        if candidate.reason.startswith(_NO_PARTITION):
            end = following.t_max_seconds
    if not end:
        return []
    scale, _ = units.seconds_axis(high)
    x, y = [t / view.scale for t in (0.0, end, end, 0.0)], [v / scale for v in (0.0, 0.0, high, high)]
    looks = {"mode": "none", "fill": "toself", "fillcolor": empty, "name": "t_max too small", "listed": False}
    place = [(view.left + end) / 2 / view.scale], [(low + 0.95 * (high - low)) / scale]
    text = "<b>too small</b>:<br>no partition<br>is so fast"
    return [line(x, y, None, **looks), words(*place, [text], "bottom center", name="words")]


def _totals(plan: Plan, view: _View, points: list[_Point]) -> list[Trace]:
    """T and (B−1)·t_max, and Σt as the band between them."""
    rounds, share, once = plan.terms.rounds, plan.terms.share, plan.once_seconds
    low, high = _range(plan, view, points)
    scale, _ = units.seconds_axis(high)
    steps = _steps(points, view.right)
    start, last = steps[0][0], steps[-1][0]
    waiting = f"{plan.terms.rounds_symbols}·t_max"
    path = [(t, first + once + rounds * t) for t, first in steps]

    def warm(theme: str) -> str:
        return OKABE_ITO[5] if theme == "light" else OKABE_ITO[1]

    def through(places: list[tuple[float, float]], color: Any, width: float, dash: str = "", **looks: Any) -> Trace:
        xs, ys = [t / view.scale for t, _ in places], [value / scale for _, value in places]
        return line(xs, ys, color, width, dash, **looks)

    # In the corner that is below all lines, as they rise.
    corner = [(view.right - 0.01 * (view.right - view.left)) / view.scale], [(low + 0.02 * (high - low)) / scale]
    best = f"star: <b>the plan, T {units.seconds(plan.predicted.iteration_seconds)}</b>"
    around = [*path, (last, once + rounds * last), (start, once + rounds * start)]
    band = {"fill": "toself", "fillcolor": _BAND, "mode": "none", "name": f"Σt{share}, the first microbatch"}
    name = "T" if plan.options.pipeline.mode else "objective"
    name += f" = Σt{share} + {waiting}{''.join(f' + {what}' for what, _ in _once(plan))}"
    t_max = plan.t_max_sweep[chosen_t_max(plan) or 0].t_max_seconds
    plan_point = next(point for point in points if point.t_max == t_max)
    star = {"symbol": "star", "size": 18, "color": OKABE_ITO[0], "line": {"color": ink, "width": 1}}
    return [
        through(around, None, 0, **band),
        through([(0.0, 0.0), (last, rounds * last)], warm, 2, "dot", name=f"{waiting}, the others"),
        through(path, ink, 2.5, name=name),
        words(*corner, [best], "top left", 13, name="words"),
        _marks([p.total / scale for p in points], points, view, ink) | {"name": "T of the candidates"},
        _marks([plan_point.total / scale], [plan_point], view, ink) | {"name": "the plan", "marker": star},
    ]


def _marks(values: list[float], points: list[_Point], view: _View, color: Any) -> Trace:
    hover, keys = [p.text for p in points], [p.key for p in points]
    trace = marks([p.t_max / view.scale for p in points], values, color, hover=hover, keys=keys, listed=False)
    return trace | {"marker": {"size": 8, "color": color}}


def _sums(view: _View, points: list[_Point]) -> list[Trace]:
    """Σt on its own scale: beside T it is seldom seen."""
    scale, _ = units.seconds_axis(_SUM_HEADROOM * max(p.first for p in points))
    steps, green = _steps(points, view.right), OKABE_ITO[2]
    texts, place = [], float("-inf")
    for point in points:
        apart = point.t_max - place > _LABEL_SHARE * (view.right - view.left)
        texts.append(units.seconds(point.first) if apart else "")
        place = point.t_max if apart else place
    x, y = [t / view.scale for t, _ in steps], [first / scale for _, first in steps]
    area = {"fill": "tozeroy", "fillcolor": _BAND, "yaxis": "y2", "name": "Σt", "listed": False}
    looks = labels(texts, "top right") | {"mode": "markers+text", "yaxis": "y2", "name": "Σt of the candidates"}
    looks["cliponaxis"] = False
    return [line(x, y, green, **area), _marks([p.first / scale for p in points], points, view, green) | looks]


def _candidates(plan: Plan, view: _View) -> Iterator[Trace]:
    """A row of marks for each outcome; a star is the plan."""
    sweep, best = plan.t_max_sweep, chosen_t_max(plan)
    step = max(1, len(sweep) // tuning.T_MAX_CANDIDATES)
    for name, (symbol, size, meaning) in _OUTCOMES.items():
        shown = [(i, p) for i, p in enumerate(sweep) if outcome(p) == name and (i % step == 0 or name == "evaluated")]
        chosen = [i == best for i, _ in shown]
        reactions = [
            _reaction(plan, p.t_max_seconds, is_plan=i == best) if name == "evaluated" else ("", "") for i, p in shown
        ]
        hover = [
            lines(f"<b>t_max {units.seconds(p.t_max_seconds)}</b>, {name}: {meaning}", safe(p.reason), click)
            for (_, p), (_, click) in zip(shown, reactions, strict=True)
        ]
        yield marks(
            [p.t_max_seconds / view.scale for _, p in shown],
            [name] * len(shown),
            [OKABE_ITO[0] if own else ink for own in chosen],
            ["star" if own else symbol for own in chosen],
            [14 if own else size for own in chosen],
            edge=(ink, 1),
            name=name,
            hover=hover,
            keys=[key for key, _ in reactions],
            yaxis="y3",
            listed=False,
        )


def _view(plan: Plan, points: list[_Point]) -> _View:
    """As far to the right as candidates that come near the optimum, and about as far to the left."""
    best = plan.predicted.t_max_seconds
    near = [p.t_max - best for p in points if p.t_max <= best * (1 + tuning.T_MAX_WIDEST)]
    width = min(best * tuning.T_MAX_WIDEST, max(1.25 * max(near, default=0.0), best * tuning.T_MAX_NARROWEST))
    return _View(best - 0.7 * width, best + width, *units.seconds_axis(best))
