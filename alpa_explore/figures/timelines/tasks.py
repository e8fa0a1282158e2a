"""The tasks of one timeline as a Gantt chart, or, where they are too many, how busy each submesh is over time.

A row of the chart is a submesh, in the colour of its stage. A forward pass is a low, pale bar, a backward pass a high
one in full colour. Where a submesh runs several stages, those of the second turn are darker and their microbatches have
a prime (3′), those of the third two. Idle time is hatched, sends lead from row to row, and the critical path is
underlined.
"""

from typing import Any, NamedTuple

import numpy as np

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import bars_across, line, mark, words
from alpa_explore.figures.style import Color, Trace, empty, faint, ground, heat_scale, ink, ink_on, mixed, stage_color
from alpa_explore.figures.timelines.chart import TimelineChart, busy_share, rounded, with_gaps
from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.plans.report.timeline_tables import ACTION_NAMES
from alpa_explore.schedules.task import Action


class _Look(NamedTuple):
    """How the bars of an action differ from those of others of the same stage."""

    height: float
    pale: float
    """Share of the background in their colour."""
    pattern: str = ""


_LOOKS = {
    Action.FORWARD: _Look(0.5, 0.55),
    Action.BACKWARD: _Look(0.84, 0.0),
    Action.BACKWARD_INPUT: _Look(0.84, 0.0),
    Action.BACKWARD_WEIGHT: _Look(0.66, 0.3),
    Action.UPDATE: _Look(0.84, 0.3, "x"),
}
_DARKER = 0.3
"""Share of ink in the colour of a submesh's second stage."""
_ROW_HEIGHT = 0.84
_HATCHED_PIXELS = 8.0
"""Gaps from this width on are hatched; in a narrower one no line of the hatching would be seen."""
_SEND_PIXELS = 12.0
"""Where sends between two rows are nearer, they would be a web across the critical path."""
_LETTER_PIXELS = 7.0


def draw_tasks(chart: TimelineChart) -> None:
    """Tasks as bars where few enough of them are shown, else the busy share of each submesh over time."""
    timeline = chart.timeline
    shown = sum(int(inside.sum()) for inside, _, _ in chart.spans(timeline.start_seconds, timeline.end_seconds))
    if shown > tuning.TIMELINE_TASKS:
        _busy_shares(chart)
        return
    _idle_bars(chart)
    for action in _LOOKS:
        _action_bars(chart, action)
    _numbers(chart)
    sending, path = np.flatnonzero(~np.isnan(timeline.send_start_seconds)), timeline.critical_path()
    crossings = tuning.TIMELINE_PIXELS * (timeline.schedule.num_submeshes - 1)
    if (
        _SEND_PIXELS * len(_placed(chart, timeline.send_start_seconds, timeline.send_end_seconds, sending)[0])
        <= crossings
    ):
        _segments(chart, sending, np.full(len(sending), True), "send", faint, 1)
    tasks, sends = np.array([step.task for step in path]), np.array([step.send for step in path])
    _segments(chart, tasks, sends, "critical path", ink, 2)


def _action_bars(chart: TimelineChart, action: Action) -> None:
    """The tasks of one action."""
    schedule, timeline, look = chart.timeline.schedule, chart.timeline, _LOOKS[action]
    chosen = np.flatnonzero((schedule.actions == action) & (timeline.end_seconds > timeline.start_seconds))
    tasks, left, right = _placed(chart, timeline.start_seconds, timeline.end_seconds, chosen)
    if not len(tasks):
        return
    stages, count, name = schedule.stages[tasks].tolist(), range(schedule.num_stages), ACTION_NAMES[action]
    rows = np.array(schedule.submesh_of_stage)[schedule.stages[tasks]].tolist()
    colors = [task_color(chart, stage, action) for stage in count]
    texts = [_task_text(chart, stage, action) for stage in count]
    numbers = zip(stages, schedule.microbatches[tasks].tolist(), rows, strict=True)
    keys = [[microbatch, texts[stage], key(stage=p)] for stage, microbatch, p in numbers]
    update = "update, %{customdata[1]}" if action is Action.UPDATE else ""
    hover = update or f"{name} of microbatch %{{customdata[0]}}, %{{customdata[1]}}"
    places = {"base": rounded(left), "width": look.height}
    # One colour where there is a pattern: plotly cannot hatch a trace of many.
    own = faint if look.pattern else [colors[stage] for stage in stages]
    looks = {"edge": (ground, 0.5), "name": name, "legendgroup": name, "keys": keys, "hover": hover}
    trace = bars_across(rounded(right - left), rows, own, **places, **looks)
    if look.pattern:
        trace["marker"]["pattern"] = {"shape": look.pattern, "size": 5, "solidity": 0.25, "fgcolor": ground}
    chart.add(trace)


def task_color(chart: TimelineChart, stage: int, action: Action) -> Color:
    """The colour of the submesh, darker at each further turn and paler by the action."""
    own = stage_color(chart.timeline.schedule.submesh_of_stage[stage])
    darker = mixed(own, ink, min(_DARKER * _turns(chart)[stage], 0.6))
    return mixed(darker, ground, _LOOKS[action].pale)


def _turns(chart: TimelineChart) -> list[int]:
    """For each stage how many stages before it run on its submesh."""
    order = chart.timeline.schedule.submesh_of_stage
    return [order[:stage].count(p) for stage, p in enumerate(order)]


def _task_text(chart: TimelineChart, stage: int, action: Action) -> str:
    """Where a task runs and what it takes; equal for all microbatches."""
    times = chart.timeline.times[stage]
    moved = times.collective_seconds(action)
    text = f"stage {stage}: {units.seconds(times.seconds(action))}"
    text += f", of which collectives {units.seconds(moved)}" if moved else ""
    exposed, hidden = times.stored_of(action)
    if not exposed and not hidden:
        return text
    what = "weights gathered" if action is Action.FORWARD else "weights gathered, gradients scattered"
    return f"{text}<br>{what}: {units.seconds(hidden)} behind computing, {units.seconds(exposed)} exposed"


def _numbers(chart: TimelineChart) -> None:
    """The number of its microbatch on each bar that is wide enough."""
    timeline, schedule = chart.timeline, chart.timeline.schedule
    chosen = np.flatnonzero(schedule.actions != Action.UPDATE)
    tasks, left, right = _placed(chart, timeline.start_seconds, timeline.end_seconds, chosen)
    primes = np.array(["′" * turn for turn in _turns(chart)])[schedule.stages[tasks]]
    texts = np.char.add(schedule.microbatches[tasks].astype(str), primes)
    room = (right - left) * chart.scale / chart.seconds_per_pixel
    fits = room >= _LETTER_PIXELS * np.char.str_len(texts) + 2
    if not fits.any():
        return
    tasks, middle, texts = tasks[fits], (left + right)[fits] / 2, texts[fits]
    rows = np.array(schedule.submesh_of_stage)[schedule.stages[tasks]]
    shown = list(zip(schedule.stages[tasks].tolist(), schedule.actions[tasks].tolist(), strict=True))
    inks = {(stage, action): ink_on(task_color(chart, stage, Action(action))) for stage, action in set(shown)}
    colors = [inks[of_task] for of_task in shown]
    chart.add(words(rounded(middle), rows.tolist(), texts.tolist(), size=11, color=colors, name="microbatch"))


def _idle_bars(chart: TimelineChart) -> None:
    """The ground of each row, which is seen where no task is, and a hatched bar for every gap that is wide enough.

    One bar for each narrow gap would take a browser as long as all tasks.
    """
    timeline, count = chart.timeline, chart.timeline.schedule.num_submeshes
    from_to = np.array([[p.at, p.at + p.end - p.start] for p in chart.parts]).repeat(count, axis=0) / chart.scale
    rows_of_parts = list(range(count)) * len(chart.parts)
    chart.add(_row_bars("short waits", from_to[:, 0], from_to[:, 1], rows_of_parts, listed=False))
    starts, ends, rows, following = [], [], [], []
    for p in range(count):
        tasks = timeline.submesh(p)
        end = np.concatenate([[0.0], timeline.end_seconds[tasks]])
        start = np.concatenate([timeline.start_seconds[tasks], [timeline.makespan_seconds]])
        longer = np.flatnonzero(start - end > 1e-9 * timeline.makespan_seconds)
        starts.append(end[longer])
        ends.append(start[longer])
        rows.append(np.full(len(longer), p))
        following.append(np.where(longer < len(start) - 1, longer + tasks.start, -1))
    start, end, row, after = map(np.concatenate, (starts, ends, rows, following))
    gaps, left, right = _placed(chart, start, end, np.arange(len(start)))
    wide = (right - left) * chart.scale / chart.seconds_per_pixel >= _HATCHED_PIXELS
    gaps, left, right = gaps[wide], left[wide], right[wide]
    keys = [
        [units.seconds(float(end[g] - start[g])), _waits_for(chart, int(after[g])), key(stage=int(row[g]))]
        for g in gaps.tolist()
    ]
    hover = "idle for %{customdata[0]}%{customdata[1]}"
    idle = _row_bars("idle", left, right, row[gaps].tolist(), keys=keys, hover=hover)
    idle["marker"]["pattern"] = {"shape": "\\", "fgcolor": faint, "size": 8, "solidity": 0.15}
    chart.add(idle)


def _row_bars(name: str, left: Floats, right: Floats, rows: list[int], **looks: Any) -> Trace:
    """Bars of the full height of a row."""
    looks |= {"base": rounded(left), "width": _ROW_HEIGHT, "legendgroup": name, "edge": (None, 0)}
    return bars_across(rounded(right - left), rows, empty, name=name, **looks)


def _waits_for(chart: TimelineChart, task: int) -> str:
    """What ended when `task` could begin: ', waiting for forward of microbatch 3 from stage 1'."""
    timeline = chart.timeline
    cause = int(timeline.cause[task]) if task >= 0 else -1
    if cause < 0:
        return ""
    waited = timeline.schedule.task(cause)
    return f", waiting for {ACTION_NAMES[waited.action]} of microbatch {waited.microbatch} from stage {waited.stage}"


def _segments(chart: TimelineChart, tasks: Ints, sends: Flags, name: str, color: Color, width: float) -> None:
    """One trace of lines: a task as a line below its bar; its send (where `sends`) as one from bar to bar, which is
    that of the stage that receives."""
    timeline, schedule = chart.timeline, chart.timeline.schedule
    start = np.where(sends, timeline.send_start_seconds[tasks], timeline.start_seconds[tasks])
    end = np.where(sends, timeline.send_end_seconds[tasks], timeline.end_seconds[tasks])
    shown, left, right = _placed(chart, start, end, np.arange(len(tasks)))
    if not len(shown):
        return
    rows, half = np.array(schedule.submesh_of_stage), _ROW_HEIGHT / 2
    stages = schedule.stages[tasks[shown]]
    ahead = np.where(schedule.actions[tasks[shown]] == Action.FORWARD, 1, -1)
    source = rows[stages]
    target = np.where(sends[shown], rows[np.clip(stages + ahead, 0, len(rows) - 1)], source)
    edge = np.where(target < source, -half, half)
    nothing = np.full(len(shown), np.nan)
    x = np.stack([left, right, nothing], axis=1).ravel()
    y = np.stack([source + edge, np.where(target == source, source + half, target - edge), nothing], axis=1).ravel()
    chart.add(line(with_gaps(x), with_gaps(y), color, width, name=name, legendgroup=name))


def _busy_shares(chart: TimelineChart) -> None:
    """How busy each submesh is in each of some hundred equal intervals of what is shown."""
    timeline = chart.timeline
    (part,) = chart.parts
    edges = np.linspace(part.start, part.end, tuning.TIMELINE_INTERVALS + 1)
    busy = np.stack([busy_share(timeline, p, edges) for p in range(timeline.schedule.num_submeshes)])
    x, z = rounded((edges[:-1] + edges[1:]) / 2 / chart.scale), [rounded(row) for row in busy]
    texts = [[name] * len(row) for name, row in zip(chart.row_names, busy, strict=True)]
    looks = {"zmin": 0, "zmax": 1, "colorscale": heat_scale, "showscale": False, "text": texts, "listed": False}
    chart.add(mark("heatmap", x, list(range(len(busy))), z=z, name="busy", hover="%{text}: %{z:.0%} busy", **looks))


def _placed(chart: TimelineChart, start: Floats, end: Floats, chosen: Ints) -> tuple[Ints, Floats, Floats]:
    """Of the spans of time `chosen` those that are shown, and where they begin and end on the axis."""
    found = [(chosen[inside], left, right) for inside, left, right in chart.spans(start[chosen], end[chosen])]
    indices, left, right = (np.concatenate(column) for column in zip(*found, strict=True))
    return indices, left, right
