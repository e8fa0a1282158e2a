"""The devices of the cluster as a grid, each with its stage and the contents of its memory."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import MEMORY_PARTS, NOWHERE, axis, bars, gaps, inside, line
from alpa_explore.figures.style import Drawing, Trace, faint, ground, ink, lines, mixed, safe, stage_color, with_theme
from alpa_explore.plans.phrases import layers_phrase, logical_mesh_phrase, stage_phrase, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.error_bands import bytes_with_band
from alpa_explore.plans.report.tables import stages_table
from alpa_explore.plans.report.text import fullest, recomputed_words

cluster_table = stages_table

_NODES_PIXELS, _LEAST_NODE, _MOST_NODE = 400, 34, 200
"""Height of all nodes, and of one: as many as possible on a screen."""
_SHRUNK = 0.6
"""Of the height of a node, what a window of usual size leaves of it."""
_HEAD, _EDGE, _HEADED = 15, 3, 28
"""Height of a heading, the edge round the boxes below it, and of a node that has one, in pixels of such a window."""
_GROUND_EDGE = 0.03
"""Of the height of a node, below and above the ground of a stage."""
_NARROW, _CHARACTER = 440, 6.5
"""Width of the nodes in a narrow window, and of a character of a heading, in pixels."""
_NAMED_STAGES = 6
"""Stages whose nodes the sentence names one by one."""
_WIDTH = 0.86
"""Of the box of a device, which has a place of 1."""


class _Box(NamedTuple):
    """A device in the grid; rows count from the bottom, node 0 is at the top."""

    device: int
    column: int
    row: int
    stage: PlanStage | None


@with_theme
def cluster_figure(plan: Plan, *, start: int = 0, count: int = 64) -> Drawing:
    """Nodes as rows, devices as boxes that are filled from the left as far as their memory; the devices of a stage in
    a node have a ground in its colour and a heading.

    Of a larger cluster, `count` nodes from node `start` on are shown.
    """
    cluster, width = plan.cluster, plan.cluster.devices_per_node
    nodes = range(min(max(start, 0), cluster.nodes - 1), min(start + count, cluster.nodes))
    stage_of = {d: s for s in plan.stages for d in s.devices}
    boxes = [
        _Box(node * width + column, column, row, stage_of.get(node * width + column))
        for row, node in enumerate(reversed(nodes))
        for column in range(width)
    ]
    pixels = min(_MOST_NODE, max(_LEAST_NODE, _NODES_PIXELS / len(nodes)))
    page = "" if len(nodes) == cluster.nodes else f" Nodes {nodes[0]} to {nodes[-1]} of {cluster.nodes} are shown."
    edge, unit = 0.02 * width, cluster.tiers[0].name
    tiers = reversed(list(pairwise(cluster.tiers)))
    joined = [f"{inner.name}s, joined by {units.bytes_per_second(tier.link.bandwidth)}" for inner, tier in tiers]
    rates = dict.fromkeys(units.bytes_per_second(kind.inside_node.bandwidth) for kind in cluster.kinds)
    kinds = [f"<br>{safe(cluster.part_of(node * width).device.name)}" if cluster.others else "" for node in nodes]
    rows = [f"{unit} {node}{kind}" for node, kind in zip(nodes, kinds, strict=True)]
    seen = _SHRUNK * pixels
    bottom = max(_EDGE / seen, 2 * _GROUND_EDGE)
    height = 1 - 2 * bottom - (_HEAD / seen if seen >= _HEADED else 0)
    traces = [
        _links(len(nodes), width, edge, bottom + height / 2),
        _regions(plan, boxes, headed=seen >= _HEADED),
        _memories(plan, boxes, bottom, height),
        *_contents(plan, boxes, bottom, height),
        *_legend(plan),
    ]
    across = {"tickmode": "linear", "dtick": 1 if width <= 32 else 8, "bare": True}
    return Drawing(
        traces,
        cluster_sentence(plan) + page,
        height=round(pixels * len(nodes)) + 150,
        margin={"l": 84},
        barmode="overlay",
        xaxis=axis(
            f"devices of a {unit}, joined by {' or '.join(rates)} each", (-0.5 - 2 * edge, width - 0.5), **across
        ),
        yaxis=axis(
            "<br>".join(joined) if len(nodes) > 1 else "",
            (0, len(nodes)),
            ticks={row + 0.5: name for row, name in enumerate(reversed(rows))},
            bare=True,
        ),
    )


def cluster_sentence(plan: Plan) -> str:
    """What the figure shows for this plan."""
    full = fullest(plan)
    memory = plan.device_of(full).memory_bytes
    share = units.percent(full.peak_bytes / memory)
    used = f"{bytes_with_band(plan, full.peak_bytes)} of {units.bytes_(memory)} ({share})"
    if len(plan.stages) == 1:
        return f"One stage takes all {plan.cluster.devices} devices, each with {used} in use at the peak."
    stages = f"{len(plan.stages)} stages share the {plan.cluster.devices} devices"
    return f"{stages}{_kinds_phrase(plan)}; stage {full.index} is the fullest, with {used}."


def _kinds_phrase(plan: Plan) -> str:
    """Of unlike nodes, which stages are on which: ': 0 on 1×8 h100, 1 on 1×8 a100'; of many, how many: ': 6 on h100,
    2 on a100'."""
    if not plan.cluster.others:
        return ""
    if len(plan.stages) > _NAMED_STAGES:
        counts = Counter(safe(stage.device) for stage in plan.stages)
        return ": " + ", ".join(f"{count} on {device}" for device, count in counts.items())
    return ": " + ", ".join(f"{s.index} on {submesh_phrase(s.submesh, s.device)}" for s in plan.stages)


def _links(nodes: int, width: int, edge: float, height: float) -> Trace:
    """Lines between the devices of each node, and one at the left that joins the nodes."""
    left = -0.5 - edge
    ends = [left, *(column + side * _WIDTH / 2 for column in range(width) for side in (-1, 1))][:-1]
    across = list(zip(ends[::2], ends[1::2], strict=True))
    paths = [[(x, row + height) for x in link] for row in range(nodes) for link in across]
    x, y = gaps(*paths, [(left, height), (left, nodes - 1 + height)])
    return line(x, y, faint, name="links", listed=False)


def _regions(plan: Plan, boxes: list[_Box], *, headed: bool) -> Trace:
    """The devices of a stage in each node, with a heading: a pale ground, so that the memory stands out."""
    runs = [list(run) for _, run in groupby(boxes, key=lambda box: (box.row, box.stage))]
    regions = [(run[0].stage, run[0], run[-1]) for run in runs]
    used = [(stage, a, b, b.column - a.column + 1) for stage, a, b in regions if stage is not None]
    colors = [stage_color(stage.index) for stage, *_ in used]
    headings = [_heading(plan, stage, devices) if headed else "" for stage, *_, devices in used]
    return bars(
        [(a.column + b.column) / 2 for _, a, b, _ in used],
        [1 - 2 * _GROUND_EDGE] * len(used),
        [mixed(color, ground, 0.78) for color in colors],
        edge=(colors, 1.5),
        base=[a.row + _GROUND_EDGE for _, a, *_ in used],
        width=[devices - 0.04 for *_, devices in used],
        hover=[lines(*_stage_lines(plan, stage), f"click: selects stage {stage.index}") for stage, *_ in used],
        keys=[key(stage=stage.index) for stage, *_ in used],
        listed=False,
        name="stages",
        **inside(headings, size=11, anchor="end", whole=True),
    )


def _heading(plan: Plan, stage: PlanStage, devices: int) -> str:
    """As much as fits above so many devices of a node."""
    room = devices * _NARROW / plan.cluster.devices_per_node / _CHARACTER
    share = units.percent(round(stage.peak_bytes / plan.device_of(stage).memory_bytes, 2))
    parts = (f"stage {stage.index}", layers_phrase(stage.layers), f"{units.bytes_(stage.peak_bytes)} ({share})")
    shorter = (f"{stage.index}: {share}", str(stage.index))
    headings = (" · ".join(parts), " · ".join([*parts[:2], share]), f"{parts[0]} · {share}", *shorter)
    text = next((heading for heading in headings if len(heading) <= room), "")
    first, *rest = text.split(" · ")
    return " · ".join([f"<b>{first}</b>", *rest]) if text else ""


def _memories(plan: Plan, boxes: list[_Box], bottom: float, height: float) -> Trace:
    """A box for the memory of each device; where it is pressed, filled or not, it selects the device."""
    keys = ["" if b.stage is None else key(stage=b.stage.index, device=b.device) for b in boxes]
    places = {"base": [b.row + bottom for b in boxes], "width": _WIDTH}
    looks = {"name": "memory of a device", "hover": [_text(plan, b) for b in boxes], "keys": keys, "listed": False}
    return bars([b.column for b in boxes], [height] * len(boxes), ground, edge=(ink, 1), **places, **looks)


def _contents(plan: Plan, boxes: list[_Box], bottom: float, height: float) -> Iterator[Trace]:
    """The parts of each device's peak, beside each other from the left edge of its box."""
    used = [(b, b.stage) for b in boxes if b.stage is not None]
    filled = [b.column - _WIDTH / 2 for b, _ in used]
    colors = [stage_color(stage.index) for _, stage in used]
    keys = [key(stage=stage.index, device=b.device) for b, stage in used]
    for name, _, shape, field in MEMORY_PARTS:
        widths = [_WIDTH * getattr(stage, field) / plan.device_of(stage).memory_bytes for _, stage in used]
        x = [left + width / 2 for left, width in zip(filled, widths, strict=True)]
        places = {"base": [b.row + bottom for b, _ in used], "width": widths}
        looks = {"name": name, "keys": keys, "listed": False, "edge": (None, 0)}
        yield bars(x, [height] * len(used), colors, shape, **places, **looks)
        filled = [left + width for left, width in zip(filled, widths, strict=True)]


def _legend(plan: Plan) -> list[Trace]:
    """Grey, no stage's colour: the hatching distinguishes the parts."""
    memories = dict.fromkeys(units.bytes_(kind.device.memory_bytes) for kind in plan.cluster.kinds)
    free = bars(*NOWHERE, ground, edge=(ink, 1), name=f"free of {' or '.join(memories)}")
    return [*(bars(*NOWHERE, faint, shape, name=name) for name, _, shape, _ in MEMORY_PARTS), free]


def _text(plan: Plan, box: _Box) -> str:
    per_node = plan.cluster.devices_per_node
    kind = f"{safe(plan.cluster.part_of(box.device).device.name)}, " if plan.cluster.others else ""
    title = (
        f"<b>device {box.device}</b> ({kind}{_place(plan.cluster, box.device)}, device {box.device % per_node} in it)"
    )
    stage = box.stage
    if stage is None:
        return lines(title, "not used")
    click = f"click: selects device {box.device} and its stage, {stage.index}"
    return lines(title, *_stage_lines(plan, stage), click)


def _place(cluster: Cluster, device: int) -> str:
    """'node 3', 'pod 1, node 3', 'rack 1, tray 20'; numbers count from the first of the cluster."""
    tiers = [(tier.name, tier.devices) for tier in cluster.tiers[:-1]]
    if cluster.devices_per_host < cluster.devices_per_node:
        tiers.insert(0, (cluster.levels[0].name, cluster.devices_per_host))
    return ", ".join(f"{name} {device // size}" for name, size in reversed(tiers))


def _stage_lines(plan: Plan, stage: PlanStage) -> tuple[str, ...]:
    memory = plan.device_of(stage).memory_bytes
    share = units.percent(stage.peak_bytes / memory)
    return (
        stage_phrase(stage),
        logical_mesh_phrase(stage.logical_mesh),
        f"{units.seconds(stage.latency_seconds)} per microbatch",
        *([f"recomputes {words}"] if (words := recomputed_words(stage)) else []),
        f"weights, gradients, optimizer state {units.bytes_(stage.weight_bytes)}",
        f"activations held {units.number(stage.microbatches_held)} × {units.bytes_(stage.activation_bytes)}",
        f"workspace {units.bytes_(stage.workspace_bytes)}",
        f"peak {units.bytes_(stage.peak_bytes)} of {units.bytes_(memory)} ({share}) on each of its devices",
    )
