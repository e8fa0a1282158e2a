"""What there is: the layers, over the stages and layers that hold their FLOPs; the cluster, its devices filled as far
as their memory, in the colour of their stage."""

from itertools import groupby
from math import ceil

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import end_of_most
from alpa_explore.figures.style import ink_on, stage_color
from alpa_explore.plans.phrases import layers_phrase, run_of_layers, stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanLayer, PlanStage
from alpa_explore.plans.report.error_bands import bytes_with_band
from alpa_explore.plans.report.tables import stage_of_layer
from alpa_explore.plans.report.text import fullest
from alpa_explore_widgets.overview.drawing import HEIGHT, Card, Drawing, bars, box, line

_BARS = 240
"""At most so many bars: one has about a pixel and a half."""
_TOP, _STRIP, _GAP = 18.0, 20.0, 2.0
"""Room above the bars, height of the strips of layers and of stages, and the gap before each, in pixels."""
_CHARACTER = 0.018
"""Share of the width that a character takes."""
_LABELLED_SHARE = 0.15
"""Share of the width between two cuts from which on the bytes that cross them have room."""


def layers_card(plan: Plan) -> Card:
    """Bars of FLOPs, below them the layers and the stages."""
    count = sum(len(layer.operators) for layer in plan.layers)
    mean = sum(layer.flops for layer in plan.layers) / len(plan.layers)
    above = max(layer.flops for layer in plan.layers) / mean - 1 if mean else 0.0
    cut = max(layer.cut_bytes for layer in plan.layers)
    layers = "1 layer" if len(plan.layers) == 1 else f"{len(plan.layers):,} layers"
    text = f"{layers} of {count:,} operators; the largest computes {units.percent(above)} more than the mean"
    text += f"; at most {units.bytes_(cut)} cross a cut" if len(plan.layers) > 1 else ""
    drawing = Drawing()
    bottom = HEIGHT - 2 * (_STRIP + _GAP)
    binned = [_binned(layer, count) for layer in plan.layers]
    largest = end_of_most([flops for of_layer in binned for flops, _ in of_layer]) or 1.0
    stage_of, start = stage_of_layer(plan), 0
    ends: dict[int, tuple[float, float]] = {}
    # In words where all of them have room, else as numbers: all, or every second, third, … where they are many.
    step = ceil(_CHARACTER * len(str(len(plan.layers) - 1)) * len(plan.layers))
    shares = [len(layer.operators) / (count or 1) for layer in plan.layers]
    in_words = all(_fitting(share, f"layer {i}", "") for i, share in enumerate(shares))
    for layer, of_layer in zip(plan.layers, binned, strict=True):
        stage = stage_of[layer.index]
        left, width = start / (count or 1), len(layer.operators) / (count or 1)
        ends[stage] = (ends.get(stage, (left, 0))[0], left + width)
        color = stage_color(stage)
        spans, at = [], start
        for flops, operators in of_layer:
            spans.append((at / count, (at + operators) / count, (bottom - _TOP) * min(flops / largest, 1.0)))
            at += operators
        hint = (
            f"layer {layer.index}, stage {stage}: {len(layer.operators):,} forward operators, "
            f"{units.flops(layer.flops)}; {units.bytes_(layer.cut_bytes)} cross the cut behind it"
        )
        strip = box(left, bottom + _GAP, width, _STRIP, fill=color, css="edged")
        drawing.group(key(stage=stage, layer=layer.index), hint, [bars(spans, bottom, fill=color), strip])
        numbered = [str(layer.index)] if layer.index % step == 0 else []
        label = f"layer {layer.index}" if in_words else _fitting(step * width, *numbered, "")
        drawing.text(left + width / 2, bottom + _GAP + _STRIP / 2, label, css="middle", color=str(ink_on(color)))
        if layer is not plan.layers[-1]:
            drawing.plain(line(left + width, _TOP, bottom))
            if all(len(layer.operators) >= _LABELLED_SHARE * count for layer in plan.layers[1:-1]):
                drawing.text(left + width, _TOP / 2, units.bytes_(layer.cut_bytes), css="middle")
        start += len(layer.operators)
    in_words = all(_fitting(right - left, f"stage {index}", "") for index, (left, right) in ends.items())
    for s in plan.stages:
        left, right = ends[s.index]
        top, color = HEIGHT - _STRIP, stage_color(s.index)
        hint = f"stage {s.index}: {layers_phrase(s.layers)}"
        drawing.group(key(stage=s.index), hint, [box(left, top, right - left, _STRIP, fill=color, css="edged")])
        label = f"stage {s.index}" if in_words else _fitting(right - left, str(s.index), "")
        drawing.text((left + right) / 2, top + _STRIP / 2, label, css="middle", color=str(ink_on(color)))
    return Card(tab="Layers", line=text, name=f"FLOPs of the operators: {text}", figure=drawing)


def _binned(layer: PlanLayer, count: int) -> list[tuple[float, int]]:
    """(most FLOPs of an operator, number of operators) of each bar of a layer."""
    step = -(-count // _BARS) or 1
    flops = layer.operator_flops
    return [(max(flops[at : at + step]), len(flops[at : at + step])) for at in range(0, len(flops), step)]


def _fitting(width: float, *labels: str) -> str:
    """The first label that fits into a box of this width; '' for none."""
    return next((label for label in labels if len(label) * _CHARACTER <= width), "")


_ROW, _LEAST_ROW, _ROW_GAP = 74.0, 15.0, 4.0
"""Height of a row of devices, at most and at least, and the gap below it, in pixels."""
_DEVICE_GAP = 0.12
"""Between two devices, as a share of the place of one."""
_NAME_CHARACTER, _BESIDE_NAME = 7, 12
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
    drawing = Drawing(left=_BESIDE_NAME + _NAME_CHARACTER * max(map(len, names)))
    pitch = min(_ROW + _ROW_GAP, HEIGHT / (len(shown) + (len(shown) < len(rows))))
    height = pitch - min(_ROW_GAP, 0.2 * pitch)
    for row, (first, _) in enumerate(shown):
        top = row * pitch
        drawing.row_name(top + height / 2, names[row])
        for column in range(per_node):
            device = first * per_node + column
            left, width = (column + _DEVICE_GAP / 2) / per_node, (1 - _DEVICE_GAP) / per_node
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
