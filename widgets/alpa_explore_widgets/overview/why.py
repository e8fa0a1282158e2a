"""Why: where the time of an iteration goes on each stage and on all devices, and what costs most."""

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import time_looks
from alpa_explore.figures.style import in_theme
from alpa_explore.plans.plan import Plan
from alpa_explore.questions.explain import COMPUTING, UNKNOWN, WAIT, StageTime, limits, mean_parts, time_parts
from alpa_explore_widgets.overview.drawing import HEIGHT, Card, Drawing, Item, box

_BARS = HEIGHT - 88.0
"""Height of the bars of all stages, in pixels; the rest is for the lists below them."""
_ROW, _NAMED_ROW = 24.0, 11.0
"""Height of a row, at most; and from which on it has a name."""
_LISTED, _LISTED_LOW = 4, 3
"""Parts, and limits, that are listed, each in one or two lines: below few bars, and where the bars take all room."""
_NOTICEABLE = 5e-4
"""A share below this is not listed."""


def why_card(plan: Plan) -> Card:
    """Stacked bars of the parts of T for each stage; below them their shares, and T without each limit."""
    times, total = time_parts(plan), plan.predicted.iteration_seconds
    binding = [limit for limit in limits(plan) if limit.name not in (COMPUTING, UNKNOWN) and limit.gain >= _NOTICEABLE]
    text = "nothing but computing limits the plan"
    if binding:
        text = f"{binding[0].name} costs most besides computing: {units.percent(binding[0].gain)} of T"
    drawing = Drawing(left=74)
    looks = time_looks(name for time in times for name, _ in time.parts)
    colors = {name: in_theme(color, "light") for name, (color, _) in looks.items()}
    pitch = min(_ROW, _BARS / len(times))
    for row, time in enumerate(times):
        _stage(drawing, time, colors, total, row * pitch, pitch)
    shares = sorted(((s / total, name) for name, s in mean_parts(times).items()), reverse=True)
    parts = tuple(
        Item(units.percent(share), name, "" if name == WAIT else colors[name])
        for share, name in shares
        if share >= _NOTICEABLE
    )
    without = tuple(Item(units.percent(limit.gain), limit.name) for limit in binding)
    listed = _LISTED if len(times) * pitch <= 2 * _ROW else _LISTED_LOW
    return Card(
        tab="Why",
        line=text,
        name=f"Parts of the time of each stage: {text}",
        figure=drawing,
        height=max(len(times) * pitch, _ROW),
        lists=(("Time of all devices", parts[:listed]), ("T would be shorter without", without[:listed])),
    )


def _stage(drawing: Drawing, time: StageTime, colors: dict[str, str], total: float, top: float, pitch: float) -> None:
    parts, at, shapes = dict(time.parts), 0.0, []
    height = pitch - min(4.0, 0.2 * pitch)
    for name, color in colors.items():
        share = parts.get(name, 0.0) / total
        if share > 0:
            is_wait = name == WAIT
            shapes.append(box(at, top, share, height, fill="" if is_wait else color, css="idle" if is_wait else ""))
            at += share
    listed = "; ".join(f"{name} {units.seconds(seconds)}" for name, seconds in time.parts)
    drawing.group(key(stage=time.stage), f"stage {time.stage}: {listed}", shapes)
    if pitch >= _NAMED_ROW:
        drawing.row_name(top + height / 2, f"stage {time.stage}")
