"""The logical meshes of a submesh: which devices communicate along each axis, and with what bandwidth.

A submesh of n × m devices is seen as an a × b array, row by row. The devices of a row form a group along axis 1, those
of a column a group along axis 0. A group whose devices are `stride` apart crosses the network where it leaves its node;
min(stride, M) groups of a node then share the network's bandwidth: `cluster.mesh.logical_mesh`.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh
from alpa_explore.figures.course.states import State, slider_figure
from alpa_explore.figures.style import HOVER_TEXT, faint, ink, ink_on, stage_color


def axis_groups(shape: tuple[int, int], axis: int) -> list[list[int]]:
    """The groups of devices along one axis of an a × b mesh; devices are numbered row by row."""
    rows, columns = shape
    if axis == 1:
        return [[row * columns + column for column in range(columns)] for row in range(rows)]
    return [[row * columns + column for row in range(rows)] for column in range(columns)]


def meshes_figure(cluster: Cluster, submesh: Submesh, theme: str = "light") -> go.Figure:
    """A slider over the a × b meshes with a · b devices. A panel for each axis: the nodes of the submesh as rows of
    devices; devices of one group have the same colour and letter."""
    devices = submesh.devices
    shapes = [(a, devices // a) for a in range(1, devices + 1) if devices % a == 0]
    states = []
    for shape in shapes:
        mesh = logical_mesh(cluster, submesh, shape)
        traces = [_panel(mesh, submesh, axis, theme) for axis in (0, 1)]
        parts = [_axis_words(mesh, axis) for axis in (0, 1)]
        states.append(
            State(
                label=units.shape(shape),
                sentence=f"Logical mesh {units.shape(shape)} of the submesh {submesh}: {parts[0]}; {parts[1]}.",
                traces=traces,
                layout={"shapes": _nodes(submesh, theme), "annotations": _titles(submesh, parts, theme)},
            )
        )
    start = next(n for n, shape in enumerate(shapes) if shape == (submesh.nodes, submesh.devices_per_node))
    axis = {"visible": False, "fixedrange": True, "range": [-0.7, submesh.devices_per_node - 0.3]}
    rows = {"visible": False, "fixedrange": True, "range": [submesh.nodes - 0.4, -1.1]}
    return slider_figure(
        states,
        "logical mesh",
        start=start,
        theme=theme,
        height=260 + 62 * submesh.nodes,
        xaxis={"domain": [0.04, 0.48], **axis},
        xaxis2={"domain": [0.56, 1.0], "anchor": "y2", **axis},
        yaxis=rows,
        yaxis2={"anchor": "x2", **rows},
        showlegend=False,
    )


def _axis_words(mesh: LogicalMesh, axis: int) -> str:
    size, count = mesh.shape[axis], mesh.devices // mesh.shape[axis]
    if size == 1:
        return f"axis {axis} has one device"
    return f"axis {axis}, {count} × {size} devices at {units.bytes_per_second(mesh.bandwidth[axis])}"


def _panel(mesh: LogicalMesh, submesh: Submesh, axis: int, theme: str) -> dict[str, Any]:
    group_of: dict[int, int] = {}
    for number, group in enumerate(axis_groups((mesh.shape[0], mesh.shape[1]), axis)):
        group_of |= dict.fromkeys(group, number)
    devices = range(submesh.devices)
    colors = [stage_color(group_of[d], theme) for d in devices]
    return {
        "type": "scatter",
        "x": [d % submesh.devices_per_node for d in devices],
        "y": [d // submesh.devices_per_node for d in devices],
        "mode": "markers+text",
        "marker": {"symbol": "square", "size": 34, "color": colors, "line": {"width": 1, "color": ink(theme)}},
        "text": [chr(ord("a") + group_of[d] % 26) for d in devices],
        "textfont": {"size": 14, "color": [ink_on(color) for color in colors]},
        "hovertext": [
            f"device {d} at ({d // mesh.shape[1]}, {d % mesh.shape[1]}) of the mesh: along axis {axis} in group "
            f"{chr(ord('a') + group_of[d] % 26)}"
            for d in devices
        ],
        "hovertemplate": HOVER_TEXT,
        "xaxis": "x" if axis == 0 else "x2",
        "yaxis": "y" if axis == 0 else "y2",
    }


def _nodes(submesh: Submesh, theme: str) -> list[dict[str, Any]]:
    """A box around the devices of each node."""
    return [
        {
            "type": "rect",
            "x0": -0.5,
            "x1": submesh.devices_per_node - 0.5,
            "y0": node - 0.38,
            "y1": node + 0.38,
            "xref": x,
            "yref": y,
            "line": {"width": 1, "color": faint(theme)},
            "layer": "below",
        }
        for x, y in (("x", "y"), ("x2", "y2"))
        for node in range(submesh.nodes)
    ]


def _titles(submesh: Submesh, parts: list[str], theme: str) -> list[dict[str, Any]]:
    titles = []
    for axis, words in enumerate(parts):
        x, y = ("x", "y") if axis == 0 else ("x2", "y2")
        place = {"x": -0.5, "y": -0.8, "xref": x, "yref": y, "xanchor": "left", "showarrow": False}
        titles.append(place | {"text": f"<b>{words}</b>", "font": {"size": 13, "color": ink(theme)}})
    for node in range(submesh.nodes):
        place = {"x": 0.0, "y": node, "xref": "paper", "yref": "y", "xanchor": "right", "showarrow": False}
        titles.append(place | {"text": f"node {node}", "font": {"size": 12, "color": ink(theme)}})
    return titles
