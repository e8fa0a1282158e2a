"""Whether a document holds a plan: first its schema, then what a schema cannot express.

Layers must follow each other without a gap, stages must cover all devices and share none, specs may only name axes of
the stage's mesh, and indices must be in range.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from alpa_explore.plans.file.schema import schema_fault
from alpa_explore.schedules.catalog import V_SHAPES, submeshes_in_turn
from alpa_explore.sharding.spec_constraint import SpecConstraint, fault_of, read_constraints
from alpa_explore.units import printable


def first_fault(document: Any) -> str | None:
    """What is wrong with a document, in one line; None when it holds a plan."""
    # The contradictions read keys that the schema requires.
    fault = schema_fault(document) or next(_contradictions(document), None)
    return None if fault is None else printable(fault)


def _contradictions(d: Mapping[str, Any]) -> Iterator[str]:
    yield from _topology(d["cluster"])
    yield from _layers(d["layers"], d["options"]["num_layers"])
    yield from _stages(d["stages"], d["cluster"], len(d["layers"]))
    schedule = d["options"].get("pipeline", {}).get("schedule", "")
    yield from _interleaved(d.get("interleaved", []), d["stages"], len(d["layers"]), schedule)
    yield from _spec_constraints(d["options"].get("spec_constraints", []), [*d["stages"], *d.get("interleaved", [])])
    yield from _sweep(d["t_max_sweep"])
    yield from _costs(d["costs"], d["cluster"], len(d["layers"]))


def _topology(cluster: Mapping[str, Any]) -> Iterator[str]:
    if sum(kind["nodes"] for kind in cluster.get("others", ())) >= max(cluster["nodes"], 1):
        yield "cluster.others: they have all nodes"
    sizes = [level["of"] for level in cluster.get("levels", ())]
    devices = [math.prod(sizes[: number + 1]) for number in range(len(sizes))]
    if sizes and (devices[-1] != cluster["nodes"] * cluster["devices_per_node"]):
        yield f"cluster.levels: {' × '.join(map(str, sizes))} = {devices[-1]}, which are not all devices"
    if sizes and cluster["devices_per_node"] not in devices:
        yield f"cluster.levels: none of them is a node of {cluster['devices_per_node']} devices"


def _layers(layers: list[Any], num_layers: int) -> Iterator[str]:
    if len(layers) != num_layers:
        yield f"layers: {len(layers)} of them, but options.num_layers is {num_layers}"
    for index, layer in enumerate(layers):
        if layer["index"] != index:
            yield f"layers[{index}].index: {layer['index']} is not its place"
        count = len(layer["operators"])
        for name in ("operator_flops", "operator_cut_bytes"):
            if len(layer[name]) != count:
                yield f"layers[{index}].{name}: {len(layer[name])} figures for {count} operators"


def _stages(stages: list[Any], cluster: Mapping[str, Any], num_layers: int) -> Iterator[str]:
    nodes, per_node = cluster["nodes"], cluster["devices_per_node"]
    yield from _layer_ranges("stages", stages, num_layers)
    starts = _first_nodes(cluster)
    taken = set[int]()
    for index, stage in enumerate(stages):
        at = f"stages[{index}]"
        size, mesh, devices = math.prod(stage["submesh"]), stage["logical_mesh"], stage["devices"]
        if not (0 < stage["submesh"][0] <= nodes and 0 < stage["submesh"][1] <= per_node):
            yield f"{at}.submesh: {stage['submesh']} is no submesh of a cluster of {nodes} × {per_node}"
        if not size == math.prod(mesh) == len(devices):
            yield f"{at}: submesh {stage['submesh']}, logical mesh {mesh} and {len(devices)} devices do not agree"
        if max(devices) >= nodes * per_node:
            yield f"{at}.devices: {max(devices)} is not one of the {nodes * per_node} devices"
        if len({bisect_right(starts, device // per_node) for device in devices}) > 1:
            yield f"{at}.devices: they are of more than one kind"
        if not taken.isdisjoint(devices):
            yield f"{at}.devices: another stage has {sorted(taken.intersection(devices))[0]}"
        taken.update(devices)
    if len(taken) != nodes * per_node:
        yield f"stages: they use {len(taken)} of {nodes * per_node} devices"


def _first_nodes(cluster: Mapping[str, Any]) -> list[int]:
    """The first node of every kind after the first."""
    others = [kind["nodes"] for kind in cluster.get("others", ())]
    return [cluster["nodes"] - sum(others[index:]) for index in range(len(others))]


def _interleaved(runs: list[Any], stages: list[Any], num_layers: int, schedule: str) -> Iterator[str]:
    if not runs:
        return
    turns, rest = divmod(len(runs), len(stages))
    if rest or (schedule in V_SHAPES and turns != 2):
        yield f"interleaved: {len(runs)} stages do not come out even on {len(stages)} submeshes"
        return
    for index, (run, submesh) in enumerate(zip(runs, submeshes_in_turn(schedule, len(stages), turns), strict=True)):
        stage = stages[submesh]
        if (run["submesh"], run["devices"]) != (stage["submesh"], stage["devices"]):
            yield f"interleaved[{index}]: submesh and devices are not those of stages[{stage['index']}]"
        if math.prod(run["logical_mesh"]) != len(run["devices"]):
            yield f"interleaved[{index}]: logical mesh {run['logical_mesh']} and its devices do not agree"
    yield from _layer_ranges("interleaved", runs, num_layers)


_OF_EACH_LINE = ("collective_tensors", "collective_kinds", "collective_seconds")


def _layer_ranges(name: str, stages: list[Any], num_layers: int) -> Iterator[str]:
    """Faults of stages whose layers should follow each other from the first layer to the last."""
    expected = 0
    for index, stage in enumerate(stages):
        at = f"{name}[{index}]"
        (first, last), mesh = stage["layers"], stage["logical_mesh"]
        if stage["index"] != index:
            yield f"{at}.index: {stage['index']} is not its place"
        if first != expected or last < first:
            yield f"{at}.layers: {first} to {last}, where a run that begins with layer {expected} is due"
        expected = last + 1
        axes = sum(axis > 1 for axis in mesh)
        for place, operator in enumerate(stage["operators"]):
            if not first <= operator["layer"] <= last:
                yield f"{at}.operators[{place}].layer: {operator['layer']} is not in the stage"
            for field in ("axis_seconds", "hidden_seconds"):
                if operator.get(field) and len(operator[field]) != axes:
                    yield f"{at}.operators[{place}].{field}: logical mesh {mesh} has {axes} axes to share out"
            for field in _OF_EACH_LINE:
                if operator.get(field) and len(operator[field]) != len(operator["communication"]):
                    yield f"{at}.operators[{place}].{field}: not one for each line of communication"
            for spec in (*operator["inputs"], operator["output"], *operator["outputs"]):
                if any(letter.isdecimal() and int(letter) >= axes for letter in spec):
                    yield f"{at}.operators[{place}]: {spec} names an axis that logical mesh {mesh} has not"
    if expected != num_layers:
        yield f"{name}: they end with layer {expected - 1}, but there are {num_layers} layers"


def _spec_constraints(spec_constraints: list[Any], stages: list[Any]) -> Iterator[str]:
    constraints = read_constraints(spec_constraints)
    if fault := fault_of(constraints):
        yield f"options.spec_constraints: {fault}"
    by_operator: dict[str, list[SpecConstraint]] = {}
    for constraint in constraints:
        by_operator.setdefault(constraint.operator, []).append(constraint)
    for stage in stages if by_operator else ():
        specs = {t["name"]: t["spec"] for t in stage.get("tensors", ()) if t["role"] == "weight"}
        specs |= {o["name"]: o["output"] for o in stage["operators"]}
        for name in specs.keys() & by_operator.keys():
            for constraint in by_operator[name]:
                if not constraint.allows(specs[name]):
                    yield f"options.spec_constraints: {constraint}, but the plan has it as {specs[name]}"


def _sweep(sweep: list[Any]) -> Iterator[str]:
    for index, (a, b) in enumerate(pairwise(sweep)):
        if b["t_max_seconds"] < a["t_max_seconds"]:
            yield f"t_max_sweep[{index + 1}]: {b['t_max_seconds']} follows {a['t_max_seconds']}; candidates ascend"
    for index, point in enumerate(sweep):
        if point["pruned"] and point["iteration_seconds"] is not None:
            yield f"t_max_sweep[{index}]: pruned, and yet iteration_seconds is {point['iteration_seconds']}"


def _costs(costs: Mapping[str, Any], cluster: Mapping[str, Any], num_layers: int) -> Iterator[str]:
    nodes, per_node, submeshes = cluster["nodes"], cluster["devices_per_node"], costs["submeshes"]
    for index, shape in enumerate(submeshes):
        if not (0 < shape[0] <= nodes and 0 < shape[1] <= per_node):
            yield f"costs.submeshes[{index}]: {shape} is no submesh of a cluster of {nodes} × {per_node}"
    priced = {(first, last) for first, last, *_ in costs["candidates"]}
    if missing := [layers for stage in costs.get("turns", ()) for layers in stage if tuple(layers) not in priced]:
        yield f"costs.turns: layers {missing[0][0]} to {missing[0][1]} have no candidate"
    kinds = costs.get("submesh_kinds", [0] * len(submeshes))
    if len(kinds) != len(submeshes) or max(kinds) > len(cluster.get("others", ())):
        yield f"costs.submesh_kinds: {len(kinds)} for {len(submeshes)} submeshes, or a kind that is not there"
    for index, (first, last, submesh, shape, *figures) in enumerate(costs["candidates"]):
        at = f"costs.candidates[{index}]"
        if len(figures) + 4 != len(costs["columns"]):
            yield f"{at}: {len(figures) + 4} figures in {len(costs['columns'])} columns"
        elif not first <= last < num_layers:
            yield f"{at}: layers {first} to {last} of {num_layers}"
        elif len(figures) == 8 and figures[7] >= len(costs.get("versions", ((),))):
            yield f"{at}: version {figures[7]} is not one of costs.versions"
        elif submesh >= len(submeshes):
            yield f"{at}: submesh {submesh} of {len(submeshes)}"
        elif math.prod(shape) != math.prod(submeshes[submesh]):
            yield f"{at}: logical mesh {shape} does not fill submesh {submeshes[submesh]}"
