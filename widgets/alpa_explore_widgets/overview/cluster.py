"""The cluster: devices of each node in the colour of their stage, filled as far as their memory."""

from itertools import groupby

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import stage_color
from alpa_explore.plans.phrases import run_of_layers, stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.error_bands import bytes_with_band
from alpa_explore.plans.report.text import fullest
from alpa_explore_widgets.overview.drawing import HEIGHT, Card, Drawing, box

_ROW, _LEAST_ROW, _ROW_GAP = 74.0, 15.0, 4.0
"""Height of a row of devices, at most and at least, and the gap below it, in pixels."""
_GAP = 0.12
"""Between two devices, as a share of the place of one."""
_CHARACTER, _BESIDE_NAME = 7, 12
"""Pixels for a character of the name of a row, and beside the name."""
_NAMED_DEVICES = 16
"""In a node of more devices the stage is written on none of them."""


def cluster_card(plan: Plan) -> Card:
    """A row for each node, or for neighbouring nodes that hold the same stages."""
    per_node = plan.cluster.devices_per_node
    full = fullest(plan)
    used = f"{bytes_with_band(plan, full.peak_bytes)} of {units.bytes_(plan.device_of(full).memory_bytes)}"
    text = f"{plan.cluster.devices:,} devices; stage {full.index} is the fullest: {used}"
    stage_of = {device: stage for stage in plan.stages for device in stage.devices}
    rows = _rows(plan, stage_of)
    shown = rows[: int(HEIGHT // _LEAST_ROW)]
    if len(shown) < len(rows):
        shown = shown[:-1]
    unit = plan.cluster.tiers[0].name
    names = [f"{unit}{'' if first == last else 's'} {run_of_layers((first, last))}" for first, last in shown]
    drawing = Drawing(left=_BESIDE_NAME + _CHARACTER * max(map(len, names)))
    pitch = min(_ROW + _ROW_GAP, HEIGHT / (len(shown) + (len(shown) < len(rows))))
    height = pitch - min(_ROW_GAP, 0.2 * pitch)
    for row, (first, _) in enumerate(shown):
        top = row * pitch
        drawing.row_name(top + height / 2, names[row])
        for column in range(per_node):
            device = first * per_node + column
            left, width = (column + _GAP / 2) / per_node, (1 - _GAP) / per_node
            _device(drawing, plan, stage_of.get(device), device, (left, top, width, height))
    if len(shown) < len(rows):
        drawing.row_name(len(shown) * pitch + pitch / 2, f"… {plan.cluster.nodes - shown[-1][1] - 1} more")
    return Card(tab="Cluster", line=text, name=f"Stages of the devices: {text}", figure=drawing)


def _device(
    drawing: Drawing, plan: Plan, stage: PlanStage | None, device: int, place: tuple[float, float, float, float]
) -> None:
    """A box; `place` is left, top, width, height."""
    left, top, width, height = place
    if stage is None:
        drawing.plain(box(left, top, width, height, css="unused"))
        return
    used = min(stage.peak_bytes / plan.device_of(stage).memory_bytes, 1.0)
    color = stage_color(stage.index)
    ground = box(left, top, width, height, fill=color, css="pale")
    hint = (
        f"device {device}, {stage_phrase(stage)}: {units.bytes_(stage.peak_bytes)} of "
        f"{units.bytes_(plan.device_of(stage).memory_bytes)}"
    )
    drawing.group(
        key(stage=stage.index, device=device), hint, [ground, box(left, top, width * used, height, fill=color)]
    )
    if plan.cluster.devices_per_node <= _NAMED_DEVICES:
        drawing.text(left + width / 2, top + height / 2, str(stage.index), css="middle alpa-on-device")


def _rows(plan: Plan, stage_of: dict[int, PlanStage]) -> list[tuple[int, int]]:
    """(first, last) node of each run of nodes whose devices have the same stages; single nodes where all fit."""
    per_node, nodes = plan.cluster.devices_per_node, range(plan.cluster.nodes)
    if len(nodes) * _LEAST_ROW <= HEIGHT:
        return [(node, node) for node in nodes]

    def stages(node: int) -> list[int]:
        devices = range(node * per_node, (node + 1) * per_node)
        return [stage_of[device].index if device in stage_of else -1 for device in devices]

    runs = [list(run) for _, run in groupby(nodes, key=stages)]
    return [(run[0], run[-1]) for run in runs]
