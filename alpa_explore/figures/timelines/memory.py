"""Memory over time below a timeline: curves of the fullest submeshes, and the contents of the fullest one."""

import numpy as np

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.marks import MEMORY_PARTS, labels, limit_line, line
from alpa_explore.figures.style import safe, stage_color
from alpa_explore.figures.timelines.chart import TimelineChart, largest_between, rounded, with_gaps
from alpa_explore.numerics.arrays import Floats
from alpa_explore.schedules.simulator.memory import MemoryCurve, memory_curve

_HEADROOM = 1.3
"""Room above the capacity, for its label."""


def draw_memory(chart: TimelineChart) -> tuple[str, float]:
    """Draw the memory of the fullest submeshes as curves, the parts of the fullest one stacked, and the capacity.

    Returns the unit of the axis and its end, above which nothing is drawn.
    """
    timeline, kinds = chart.timeline, [kind.device for kind in chart.plan.cluster.kinds]
    capacity = float(max(kind.memory_bytes for kind in kinds))
    curves = [memory_curve(timeline, p) for p in range(timeline.schedule.num_submeshes)]
    by_peak = sorted(range(len(curves)), key=lambda p: -curves[p].peak_bytes)
    fullest = curves[by_peak[0]]
    scale, unit = units.bytes_axis(max(capacity, fullest.peak_bytes))
    _contents(chart, fullest, chart.row_names[by_peak[0]], stage_color(by_peak[0]), scale, unit)
    for p in by_peak[: tuning.TIMELINE_MEMORY_CURVES]:
        x, y = sampled_steps(chart, curves[p].seconds, curves[p].total_bytes)
        name, look = chart.row_names[p], {"dash": ("solid", "dash", "dot", "dashdot")[p % 4], "shape": "hv"}
        looks = {"name": f"memory of {name}", "hover": f"{name}: %{{y:.4g}} {unit}", "listed": False}
        chart.add(line(x, with_gaps(y / scale), stage_color(p), **look, **looks), memory=True)
    named = {kind.memory_bytes: safe(kind.name) if len(kinds) > 1 else "a device" for kind in kinds}
    for limit, name in named.items():
        draw_limit(chart, limit, scale, name)
    return unit, _HEADROOM * max(capacity, fullest.peak_bytes) / scale


def draw_limit(chart: TimelineChart, limit: int, scale: float, name: str) -> None:
    """The memory of a device as a line; `name` is that of its kind."""
    x = [chart.parts[0].at / chart.scale, (chart.parts[0].at + chart.length) / chart.scale]
    texts = labels([f"\u00a0memory of {name}: {units.bytes_(limit)}", ""], "top right", 11, None)
    chart.add(limit_line(x, [limit / scale] * 2, mode="lines+text", **texts), memory=True)


def _contents(chart: TimelineChart, curve: MemoryCurve, name: str, color: str, scale: float, unit: str) -> None:
    """The parts of one submesh, stacked: each paler than the one below it, and named in its hover text."""
    channels = ",".join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))
    values = (np.full(len(curve.seconds), curve.resident_bytes), curve.activation_bytes, curve.workspace_bytes)
    for (part, *_), sizes, opacity in zip(MEMORY_PARTS, values, (0.32, 0.2, 0.1), strict=True):
        x, y = sampled_steps(chart, curve.seconds, sizes)
        fill = {"stackgroup": f"memory {chart.number}", "fillcolor": f"rgba({channels},{opacity})"}
        looks = {"name": f"{part} of {name}", "hover": f"{part} of {name}: %{{y:.4g}} {unit}", "listed": False}
        area = line(x, rounded(np.nan_to_num(y) / scale), None, 0, shape="hv", **fill, **looks)
        chart.add(area, memory=True)


def sampled_steps(chart: TimelineChart, moments: Floats, values: Floats) -> tuple[list[float], Floats]:
    """A step curve in the parts that are shown; between them it is NaN."""
    columns: list[tuple[Floats, Floats]] = []
    for part in chart.parts:
        edges = np.linspace(part.start, part.end, tuning.TIMELINE_INTERVALS + 1)
        x, y = largest_between(moments, values, edges)
        places = chart.places(x, part)
        columns.append((np.append(places, places[-1]), np.append(y, np.nan)))
    x, y = (np.concatenate(column) for column in zip(*columns, strict=True))
    return rounded(x[:-1]), y[:-1]
