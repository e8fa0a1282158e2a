"""The t_max sweep: the iteration time of each candidate, with the chosen one marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore import units
from alpa_explore.plans.report.tables import chosen_t_max
from alpa_explore_widgets.overview.drawing import HEIGHT, Card, Drawing, box, line

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan

_HEAD, _FOOT = 18.0, 20.0
"""Room for the name of the chosen one, and for the axis, in pixels."""
_NEAR = 2.0
"""Candidates are drawn up to so many times the least time."""
_DOT, _DOT_HEIGHT = 0.008, 5.0
"""Width of a dot as a share of the drawing, and its height in pixels."""
_COLOR, _CHOSEN = "#56b4e9", "#d55e00"


def t_max_card(plan: Plan) -> Card:
    """A dot for each evaluated candidate: to the right its t_max, upwards its time."""
    chosen, least = chosen_t_max(plan), plan.predicted.iteration_seconds
    points = [
        (point.t_max_seconds, point.iteration_seconds)
        for point in plan.t_max_sweep
        if point.iteration_seconds is not None and point.iteration_seconds <= _NEAR * least
    ]
    text = f"T {units.seconds(least)} where no stage takes longer than {units.seconds(plan.predicted.t_max_seconds)}"
    drawing = Drawing(left=74)
    if chosen is None or not points:
        drawing.text(0.0, HEIGHT / 2, "the candidates were not recorded")
        return Card(tab="t_max", line=text, name=f"Candidates for t_max: {text}", figure=drawing)
    first, last = min(t for t, _ in points), max(t for t, _ in points)
    high = max(max(seconds for _, seconds in points), 1.01 * least)
    for t, seconds in points:
        x = (1.0 - _DOT) * (t - first) / (last - first) if last > first else 0.5
        y = _HEAD + (HEIGHT - _HEAD - _FOOT) * (high - seconds) / (high - 0.98 * least)
        is_chosen = t == plan.t_max_sweep[chosen].t_max_seconds
        drawing.plain(box(x, y - _DOT_HEIGHT / 2, _DOT, _DOT_HEIGHT, fill=_CHOSEN if is_chosen else _COLOR))
        if is_chosen:
            drawing.plain(line(x + _DOT / 2, _HEAD, HEIGHT - _FOOT))
            drawing.text(min(max(x, 0.1), 0.9), _HEAD / 2, "chosen", css="middle", color=_CHOSEN)
    drawing.row_name(_HEAD, units.seconds(high))
    drawing.row_name(HEIGHT - _FOOT, units.seconds(0.98 * least))
    drawing.text(0.0, HEIGHT - _FOOT / 2, units.seconds(first))
    drawing.text(1.0, HEIGHT - _FOOT / 2, f"t_max {units.seconds(last)}", css="end")
    return Card(tab="t_max", line=text, name=f"Candidates for t_max: {text}", figure=drawing)
