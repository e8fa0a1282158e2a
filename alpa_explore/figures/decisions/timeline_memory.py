"""Memory over time below a timeline: curves of the fullest submeshes, and the contents of the fullest one."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.timeline_chart import TimelineChart
from alpa_explore.figures.decisions.timeline_sampling import largest_between, rounded
from alpa_explore.figures.style import OKABE_ITO, faint, lines, stage_color
from alpa_explore.plans.plan import Plan
from alpa_explore.schedules.simulator.memory import memory_curve

_PARTS = (
    ("weights", "weight_bytes"),
    ("gradients", "gradient_bytes"),
    ("optimizer", "optimizer_bytes"),
    ("activations", "activation_bytes"),
    ("workspace", "workspace_bytes"),
)
"""What fills a device: name, field of a memory curve."""


def draw_memory(chart: TimelineChart, plan: Plan) -> None:
    """Total memory of the fullest submeshes as curves, the parts of the fullest one stacked, and the capacity."""
    timeline, capacity = chart.timeline, float(plan.cluster.device.memory_bytes)
    curves = [memory_curve(timeline, p) for p in range(timeline.schedule.num_submeshes)]
    by_peak = sorted(range(len(curves)), key=lambda p: -curves[p].peak_bytes)
    fullest = curves[by_peak[0]]
    y_scale, y_unit = units.bytes_axis(max(capacity, fullest.peak_bytes))
    edges = np.linspace(*chart.view, tuning.TIMELINE_INTERVALS + 1)
    for place, (name, part) in enumerate(_PARTS):
        values = np.broadcast_to(getattr(fullest, part), fullest.seconds.shape)
        x, y = largest_between(fullest.seconds, values, edges)
        chart.add(
            go.Scatter(
                x=rounded(x / chart.scale),
                y=rounded(y / y_scale),
                stackgroup=f"memory {chart.memory_row}",
                mode="lines",
                line={"width": 0, "shape": "hv", "color": OKABE_ITO[(place + 4) % 8]},
                name=f"{name} of submesh {by_peak[0]}",
                showlegend=False,
                hovertemplate=f"{name}: %{{y:.3g}} {y_unit}<extra></extra>",
            ),
            chart.memory_row,
        )
    for p in by_peak[: tuning.TIMELINE_MEMORY_CURVES]:
        x, y = largest_between(curves[p].seconds, curves[p].total_bytes, edges)
        dash = ("solid", "dash", "dot", "dashdot")[p % 4]
        chart.add(
            go.Scatter(
                x=rounded(x / chart.scale),
                y=rounded(y / y_scale),
                mode="lines",
                name=f"memory of submesh {p}",
                line={"width": 2, "shape": "hv", "color": stage_color(p, chart.theme), "dash": dash},
                showlegend=False,
                hovertemplate=lines(f"submesh {p}: %{{y:.3g}} {y_unit}") + "<extra></extra>",
            ),
            chart.memory_row,
        )
    chart.add(
        go.Scatter(
            x=[chart.view[0] / chart.scale, chart.view[1] / chart.scale],
            y=[capacity / y_scale] * 2,
            mode="lines",
            name="memory of a device",
            legendgroup="capacity",
            showlegend=chart.legend,
            hoverinfo="skip",
            line={"color": faint(chart.theme), "dash": "dash", "width": 2},
        ),
        chart.memory_row,
    )
    chart.figure.update_yaxes(title=f"memory ({y_unit})", rangemode="tozero", row=chart.memory_row, col=1)
