"""The logical meshes of a submesh: which devices communicate along each axis, and with what bandwidth.

A submesh of n × m devices is seen as an a × b array, row by row. The devices of a row form a group along axis 1, those
of a column a group along axis 0. A group whose devices are `stride` apart crosses the network where it leaves its node;
min(stride, M) groups of a node then share the network's bandwidth: `cluster.mesh.logical_mesh`.
"""

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.marks import HIDDEN_AXIS, at, labels, note, points
from alpa_explore.figures.style import Trace, faint, ink, ink_on, stage_color

_LEAST_WIDTH = 680
"""Pixels; the words above the two panels would run into each other on fewer."""


def axis_groups(shape: tuple[int, int], axis: int) -> list[list[int]]:
    """The groups of devices along one axis of an a × b mesh; devices are numbered row by row."""
    numbers = np.arange(shape[0] * shape[1]).reshape(shape)
    groups: list[list[int]] = (numbers if axis == 1 else numbers.T).tolist()
    return groups


def meshes_figure(cluster: Cluster, submesh: Submesh) -> InteractiveFigure:
    """A slider over the a × b meshes with a · b devices. A panel for each axis: the nodes of the submesh as rows of
    devices; devices of one group have the same colour and letter."""
    devices = submesh.devices
    shapes = [(a, devices // a) for a in range(1, devices + 1) if devices % a == 0]
    axis = HIDDEN_AXIS | {"range": [-0.7, submesh.devices_per_node - 0.3]}
    rows = HIDDEN_AXIS | {"range": [submesh.nodes - 0.4, -1.1]}
    common: Trace = {
        "height": 170 + 62 * submesh.nodes,
        "xaxis": {"domain": [0.04, 0.48], **axis},
        "xaxis2": {"domain": [0.56, 1.0], "anchor": "y2", **axis},
        "yaxis": rows,
        "yaxis2": {"anchor": "x2", **rows},
        "showlegend": False,
        "margin": {"b": 16},
        "meta": {"least_width": _LEAST_WIDTH},
    }
    states = {}
    for shape in shapes:
        mesh = logical_mesh(cluster, submesh, shape)
        parts = [_axis_words(mesh, axis) for axis in (0, 1)]
        sentence = f"Logical mesh {units.shape(shape)} of the submesh {submesh}: {parts[0]}; {parts[1]}."
        traces, layout = [_panel(mesh, submesh, number) for number in (0, 1)], _frames(submesh, parts)
        states[units.shape(shape)] = steady(traces, sentence, **common, **layout)
    start = units.shape((submesh.nodes, submesh.devices_per_node))
    return of_states("The groups of devices along each axis of a logical mesh", "Logical mesh", states, start)


def _axis_words(mesh: LogicalMesh, axis: int) -> str:
    size, count = mesh.shape[axis], mesh.devices // mesh.shape[axis]
    if size == 1:
        return f"axis {axis} has one device"
    return f"axis {axis}, {count} × {size} devices at {units.bytes_per_second(mesh.bandwidth[axis])}"


def _panel(mesh: LogicalMesh, submesh: Submesh, axis: int) -> Trace:
    group_of: dict[int, int] = {}
    for number, group in enumerate(axis_groups((mesh.shape[0], mesh.shape[1]), axis)):
        group_of |= dict.fromkeys(group, number)
    devices = range(submesh.devices)
    colors, letters = [stage_color(group_of[d]) for d in devices], [chr(ord("a") + group_of[d] % 26) for d in devices]
    places = [divmod(d, mesh.shape[1]) for d in devices]
    where = f"of the mesh: along axis {axis} in group"
    hover = [f"device {d} at {place} {where} {of}" for d, place, of in zip(devices, places, letters, strict=True)]
    rows, columns = zip(*(divmod(d, submesh.devices_per_node) for d in devices), strict=True)
    texts = labels(letters, None, 14, [ink_on(color) for color in colors])
    looks = {"edge": (ink, 1), "hover": hover, "mode": "markers+text", **texts, **at(1 + axis)}
    return points(list(columns), list(rows), colors, "square", 34, **looks)


def _frames(submesh: Submesh, parts: list[str]) -> Trace:
    """A box around the devices of each node, the names of the nodes, and the words of each axis."""
    box: Trace = {"type": "rect", "line": {"width": 1, "color": faint}, "layer": "below"}
    box |= {"x0": -0.5, "x1": submesh.devices_per_node - 0.5}
    panels, nodes = (("x", "y"), ("x2", "y2")), range(submesh.nodes)
    shapes = [box | {"y0": n - 0.38, "y1": n + 0.38, "xref": x, "yref": y} for x, y in panels for n in nodes]
    texts = zip(parts, panels, strict=True)
    notes = [note(f"<b>{words}</b>", -0.5, -0.8, size=13, refs=refs, xanchor="left") for words, refs in texts]
    notes += [note(f"node {node}", 0.0, node, refs=("paper", "y"), xanchor="right") for node in nodes]
    return {"shapes": shapes, "annotations": notes}
