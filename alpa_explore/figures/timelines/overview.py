"""A strip of the whole iteration below the charts: how busy each submesh is, and a frame round what is shown above."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpa_explore.figures import tuning
from alpa_explore.figures.style import empty, faint, ink
from alpa_explore.figures.timelines.chart import TimelineChart
from alpa_explore.figures.timelines.sampling import busy_share, with_gaps


def overview_traces(chart: TimelineChart, x_axis: str, y_axis: str) -> list[dict[str, Any]]:
    """The strip for the timeline of `chart`: darker is busier."""
    timeline = chart.timeline
    rows = timeline.schedule.num_submeshes
    edges = np.linspace(0.0, timeline.makespan_seconds, tuning.TIMELINE_OVERVIEW_INTERVALS + 1)
    busy = [busy_share(timeline, p, edges) for p in range(rows)]
    step = float(edges[1]) / chart.scale
    axes = {"xaxis": x_axis, "yaxis": y_axis}
    whole = sum(part.end - part.start for part in chart.parts) >= timeline.makespan_seconds
    x: list[float] = []
    y: list[float] = []
    for part in chart.parts:
        left, right = part.start / chart.scale, part.end / chart.scale
        x += [left, right, right, left, left, np.nan]
        y += [-0.5, -0.5, rows - 0.5, rows - 0.5, -0.5, np.nan]
    return [
        {
            "type": "heatmap",
            "x0": step / 2,
            "dx": step,
            "z": [np.round(row, 2).tolist() for row in busy],
            "zmin": 0,
            "zmax": 1,
            "colorscale": [[0, empty(chart.theme)], [1, faint(chart.theme)]],
            "showscale": False,
            "name": "overview",
            "opacity": 0.6,
            "hovertemplate": "%{z:.0%} busy<extra></extra>",
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
            "showlegend": False,
            "name": "shown above",
            **axes,
        },
    ]
