"""A strip of the whole iteration below the charts: from when to when each submesh runs, and what is shown above."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore import units
from alpa_explore.figures.style import faint, ground, ink
from alpa_explore.figures.timelines.chart import TimelineChart, mixed
from alpa_explore.figures.timelines.sampling import rounded, with_gaps


def overview_traces(chart: TimelineChart, x_axis: str, y_axis: str) -> list[dict[str, Any]]:
    """The strip for the timeline of `chart`: a bar from the first to the last task of each submesh, and the frames."""
    timeline = chart.timeline
    rows = timeline.schedule.num_submeshes
    first, last = timeline.schedule.starts[:-1], timeline.schedule.starts[1:] - 1
    start, end = timeline.start_seconds[first], timeline.end_seconds[last]
    axes = {"xaxis": x_axis, "yaxis": y_axis, "showlegend": False}
    x: list[float] = []
    y: list[float] = []
    for part in chart.parts:
        left, right = part.start / chart.scale, part.end / chart.scale
        x += [left, right, right, left, left, np.nan]
        y += [-0.5, -0.5, rows - 0.5, rows - 0.5, -0.5, np.nan]
    whole = sum(part.end - part.start for part in chart.parts) >= timeline.makespan_seconds
    return [
        {
            "type": "bar",
            "orientation": "h",
            "base": rounded(start / chart.scale),
            "x": rounded((end - start) / chart.scale),
            "y": list(range(rows)),
            "width": 1,
            "marker": {"color": mixed(faint(chart.theme), ground(chart.theme), 0.5), "line": {"width": 0}},
            "name": "overview",
            "customdata": [units.percent(float(1 - idle)) for idle in timeline.bubble_fractions],
            "text": chart.row_names,
            "textposition": "none",
            "hovertemplate": "%{text}: busy for %{customdata} of the iteration<extra></extra>",
            **axes,
        },
        {
            "type": "scatter",
            "mode": "lines",
            "x": with_gaps(np.array(x)),
            "y": with_gaps(np.array(y)),
            "line": {"color": ink(chart.theme), "width": 2},
            "fill": "none" if whole else "toself",
            "fillcolor": "rgba(230,159,0,0.5)",
            "hoverinfo": "skip",
            "name": "shown above",
            **axes,
        },
    ]
