"""The graph of a stage as JSON for the page that lays it out and draws it: ids, texts and numbers, no colours but that
of the stage.

A tile stands for a tensor: its spec says into how many parts each mesh axis cuts it. `specs` takes the specs apart, so
that the page can draw them.
"""

from collections.abc import Iterator
from typing import Any

from alpa_explore import units
from alpa_explore.figures.dataflow.stage_dataflow import Block, DataflowEdge, DataflowNode, StageDataflow, part_of_block
from alpa_explore.figures.dataflow.wiring import LEAVES, WEIGHT, is_view
from alpa_explore.figures.decisions.operator_rows import per
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import stage_color
from alpa_explore.plans.records import PlanOperator
from alpa_explore.plans.report.specs import axis_sizes, spec_legend, spec_lines
from alpa_explore.sharding.spec import read_spec
from alpa_explore.units import printable


def dataflow_document(flow: StageDataflow) -> dict[str, Any]:
    """The graph, with texts for the screen; everything that comes from the plan is text, never markup."""
    counts = {f"g{number}": group.count for number, group in enumerate(flow.groups)}
    sizes = axis_sizes(flow.stage.logical_mesh)
    weights = {t.name for t in flow.stage.tensors if t.role == "weight"}
    nodes = [_node(node, counts[node.group], sizes, weights) for node in flow.nodes]
    specs = {tile["spec"] for node in nodes for tile in node["tiles"]}
    return {
        "stage": flow.stage.index,
        "color": stage_color(flow.stage.index),
        "legend": spec_legend(flow.stage.logical_mesh),
        "sizes": list(sizes),
        "specs": {
            spec: {"dims": [list(axes) for axes in read.dims], "pending": list(read.pending)}
            for spec, read in ((spec, read_spec(spec)) for spec in sorted(specs))
        },
        "groups": [_group(f"g{number}", group) for number, group in enumerate(flow.groups)],
        "nodes": nodes,
        "edges": [_edge(edge) for edge in flow.edges],
    }


def _group(name: str, group: Block) -> dict[str, Any]:
    computing, moving, phases = group.seconds("compute_seconds"), group.seconds("communication_seconds"), {}
    for phase, compute in computing.items():
        moved = moving[phase]
        if compute or moved:
            text = units.seconds(compute) + (f" + {units.seconds(moved)}" if moved else "")
            phases[phase] = {"compute": compute, "moved": moved, "text": text}
    of_all = f"all {group.count} together" if group.count > 1 else ""
    count = sum(map(is_view, group.operators))
    views = f"{count} operators that take no time are left out" if count else ""
    return {
        "id": name,
        "label": printable(group.label),
        "count": group.count,
        "phases": phases,
        "note": "; ".join(text for text in (of_all, views) if text),
    }


def _node(node: DataflowNode, count: int, sizes: tuple[int, ...], weights: set[str]) -> dict[str, Any]:
    operator = node.operator
    names = ", ".join(o.name for o in node.operators)
    lines = [
        names if len(node.operators) == 1 else f"{len(node.operators)} updates: {names}",
        f"{operator.op}, {operator.phase}, module {operator.module or '(none)'}, layer {operator.layer}",
        _node_text(node, count),
        f"strategy {operator.strategy}" if operator.strategy not in ("", "-") else "nothing is divided",
        *(line for o in node.operators for line in o.communication),
    ]
    return {
        "id": node.id,
        "group": node.group,
        "phase": operator.phase,
        "part": printable(part_of_block(operator.module)),
        "label": printable(node.label),
        "module": printable(operator.module),
        "seconds": node.compute_seconds + node.communication_seconds,
        "time": units.seconds(node.compute_seconds),
        "text": [printable(line) for line in lines],
        "tiles": list(_tiles(operator, sizes, weights)),
        "keys": [key(layer=o.layer, operator=o.name) for o in (*node.operators, *node.equal, *node.views)],
    }


def _node_text(node: DataflowNode, count: int) -> str:
    """The time of a node in words; `count` is the number of equal blocks."""
    compute, moved = units.seconds(node.compute_seconds), units.seconds(node.communication_seconds)
    times = f"{compute} + collectives {moved}" if node.communication_seconds else compute
    return f"{times} {per(node.operator)}{f', in each of {count} equal blocks' if count > 1 else ''}"


def _tiles(operator: PlanOperator, sizes: tuple[int, ...], weights: set[str]) -> Iterator[dict[str, Any]]:
    """One for each input and for the first output."""
    for place, spec in enumerate(operator.inputs):
        name = operator.input_names[place] if place < len(operator.input_names) else ""
        shape = operator.input_shapes[place] if place < len(operator.input_shapes) else None
        role = "weight" if name in weights else "input"
        yield _tile(role, name, spec, shape, sizes)
    if operator.output:
        yield _tile("output", operator.name, operator.output, operator.output_shape, sizes)


def _tile(role: str, name: str, spec: str, shape: tuple[int, ...] | None, sizes: tuple[int, ...]) -> dict[str, Any]:
    return {
        "role": role,
        "name": printable(name),
        "spec": spec,
        "shape": units.shape(shape) if shape is not None else "",
        "words": list(spec_lines(spec, shape, sizes)),
    }


def _edge(edge: DataflowEdge) -> dict[str, Any]:
    moving = [read.collective for read in edge.reads if read.collective is not None]
    times = f" × {len(moving)}" if len(moving) > 1 else ""
    each = edge.seconds / len(moving) if moving else 0.0
    ends = {
        WEIGHT: "stored weight",
        LEAVES: "stored weights" if edge.reads[0].tensor.endswith(".updated") else "leaves",
    }
    return {
        "a": edge.source,
        "b": edge.target,
        "end": ends.get(edge.end, edge.end),
        "next": edge.next_block,
        "seconds": each,
        "once": bool(moving) and all(collective.once for collective in moving),
        "label": f"{edge.kinds} {units.seconds(each)}{times}" if moving else "",
        "text": [printable(line) for line in _texts(edge)],
    }


def _texts(edge: DataflowEdge) -> list[str]:
    """What moves on an edge, or what is read as it is."""
    moved = [c.text for read in edge.reads if (c := read.collective) is not None]
    if moved:
        return [*dict.fromkeys(line for text in moved for line in text.split("\n"))][:8]
    return [
        f"{read.tensor}: {read.spec}, {units.shape(read.shape)}" if read.shape else f"{read.tensor}: {read.spec}"
        for read in edge.reads[:4]
        if read.tensor
    ]
