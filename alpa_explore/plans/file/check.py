"""Whether a plan document is one: its schema, and then what a schema cannot say (ranges, sums, disjoint devices)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from alpa_explore.plans.printable import printable
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.sharding.spec_constraint import SpecConstraint, fault_of, read_constraints

SCHEMA_FILE = "plan.schema.json"
_PROVENANCES = frozenset(str(f) for f in Provenance)


@cache
def plan_schema() -> Mapping[str, Any]:
    """The published JSON schema of a plan file."""
    found: Mapping[str, Any] = json.loads((files(__package__) / SCHEMA_FILE).read_text(encoding="utf-8"))
    return found


def first_fault(document: Any) -> str | None:
    """What is wrong with a document, in one line; None when it holds a plan."""
    # Only what satisfies the schema can be looked at more closely.
    fault = next(_schema_faults(document), None) or next(_contradictions(document), None)
    return None if fault is None else printable(fault)


@cache
def _validators() -> tuple[Any, Any]:
    """Of a document whose rows of candidates are left out, and of such a row."""
    import jsonschema  # late: it takes longer to import than a plan takes to read

    # JSON Schema calls 2.0 an integer; a range of 2.0 layers is none.
    checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
    )
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=checker)
    schema = _inlined(plan_schema())
    row = schema["properties"]["costs"]["properties"]["candidates"].pop("items")
    return validator(schema), validator(row)


def _inlined(part: Any) -> Any:
    """The schema without references: following one costs jsonschema more than the check behind it."""
    if isinstance(part, list):
        return [_inlined(p) for p in part]
    if not isinstance(part, dict):
        return part
    own = {key: _inlined(value) for key, value in part.items() if key not in ("$ref", "$defs")}
    if "$ref" not in part:
        return own
    return _inlined(plan_schema()["$defs"][part["$ref"].removeprefix("#/$defs/")]) | own


def _schema_faults(document: Any) -> Iterator[str]:
    of_document, of_row = _validators()
    for error in of_document.iter_errors(document):
        yield _words(error, "")
    # A large cluster has a hundred thousand candidates: jsonschema looks only at those that are not plainly right.
    for index, row in enumerate(document["costs"]["candidates"]):
        if not _plainly_right(row):
            for error in of_row.iter_errors(row):
                yield _words(error, f"costs.candidates[{index}]")


def _words(error: Any, at: str) -> str:
    message = error.message if len(error.message) <= 160 else f"{error.message[:60]} … {error.message[-90:]}"
    path = error.json_path.removeprefix("$")
    return f"{at}{path if at else path.removeprefix('.')}: {message}"


def _plainly_right(row: Any) -> bool:
    """Whether a row of candidates satisfies its schema at first sight."""
    return (
        type(row) is list
        and 10 <= len(row) <= 12
        and (len(row) == 10 or (type(row[10]) is str and row[10] in _PROVENANCES))
        and (len(row) < 12 or (type(row[11]) is int and 0 <= row[11] < 10**6))
        and all(type(v) is int and 0 <= v < 10**6 for v in row[:3])
        and type(row[3]) is list
        and 1 <= len(row[3]) <= 8
        and all(type(v) is int and 1 <= v < 10**6 for v in row[3])
        and all(type(v) in (int, float) and 0 <= v <= 1e30 for v in row[4:9])
        and type(row[9]) is str
        and len(row[9]) <= 100
    )


def _contradictions(d: Mapping[str, Any]) -> Iterator[str]:
    yield from _cluster(d["cluster"])
    yield from _layers(d["layers"], d["options"]["num_layers"])
    yield from _stages(d["stages"], d["cluster"], len(d["layers"]))
    yield from _interleaved(d.get("interleaved", []), d["stages"], len(d["layers"]))
    yield from _spec_constraints(d["options"].get("spec_constraints", []), [*d["stages"], *d.get("interleaved", [])])
    yield from _sweep(d["t_max_sweep"])
    yield from _costs(d["costs"], d["cluster"], len(d["layers"]))


def _cluster(cluster: Mapping[str, Any]) -> Iterator[str]:
    per_node = cluster["devices_per_node"]
    if per_node & (per_node - 1):
        yield f"cluster.devices_per_node: {per_node} is not a power of two"


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
    yield from _runs("stages", stages, num_layers)
    taken = set[int]()
    for index, stage in enumerate(stages):
        at = f"stages[{index}]"
        size, mesh, devices = math.prod(stage["submesh"]), stage["logical_mesh"], stage["devices"]
        if not (0 < stage["submesh"][0] <= nodes and 0 < stage["submesh"][1] <= per_node):
            yield f"{at}.submesh: {stage['submesh']} is no piece of a cluster of {nodes} × {per_node}"
        if not size == math.prod(mesh) == len(devices):
            yield f"{at}: submesh {stage['submesh']}, logical mesh {mesh} and {len(devices)} devices do not agree"
        if max(devices) >= nodes * per_node:
            yield f"{at}.devices: {max(devices)} is not one of the {nodes * per_node} devices"
        if not taken.isdisjoint(devices):
            yield f"{at}.devices: another stage has {sorted(taken.intersection(devices))[0]}"
        taken.update(devices)
    if len(taken) != nodes * per_node:
        yield f"stages: they use {len(taken)} of {nodes * per_node} devices"


def _interleaved(runs: list[Any], stages: list[Any], num_layers: int) -> Iterator[str]:
    if len(runs) % len(stages):
        yield f"interleaved: {len(runs)} stages do not come out even on {len(stages)} submeshes"
    for index, run in enumerate(runs):
        own = stages[index % len(stages)]
        if (run["submesh"], run["devices"]) != (own["submesh"], own["devices"]):
            yield f"interleaved[{index}]: submesh and devices are not those of stages[{own['index']}]"
        if math.prod(run["logical_mesh"]) != len(run["devices"]):
            yield f"interleaved[{index}]: logical mesh {run['logical_mesh']} and its devices do not agree"
    if runs:
        yield from _runs("interleaved", runs, num_layers)


def _runs(name: str, stages: list[Any], num_layers: int) -> Iterator[str]:
    """What holds of layers that follow each other."""
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
            if operator.get("axis_seconds") and len(operator["axis_seconds"]) != axes:
                yield f"{at}.operators[{place}].axis_seconds: logical mesh {mesh} has {axes} axes to share out"
            for spec in (*operator["inputs"], operator["output"], *operator["outputs"]):
                if any(letter.isdecimal() and int(letter) >= axes for letter in spec):
                    yield f"{at}.operators[{place}]: {spec} names an axis that logical mesh {mesh} has not"
    if expected != num_layers:
        yield f"{name}: they end with layer {expected - 1}, but there are {num_layers} layers"


def _spec_constraints(spec_constraints: list[Any], stages: list[Any]) -> Iterator[str]:
    asked = read_constraints(spec_constraints)
    if fault := fault_of(asked):
        yield f"options.spec constraints: {fault}"
    of: dict[str, list[SpecConstraint]] = {}
    for constraint in asked:
        of.setdefault(constraint.operator, []).append(constraint)
    for stage in stages if of else ():
        specs = {t["name"]: t["spec"] for t in stage.get("tensors", ()) if t["role"] == "weight"}
        specs |= {o["name"]: o["output"] for o in stage["operators"]}
        for name in specs.keys() & of.keys():
            for constraint in of[name]:
                if not constraint.allows(specs[name]):
                    yield f"options.spec constraints: {constraint}, but the plan has it as {specs[name]}"


def _sweep(sweep: list[Any]) -> Iterator[str]:
    for index, (a, b) in enumerate(pairwise(sweep)):
        if b["t_max_seconds"] < a["t_max_seconds"]:
            yield f"t_max_sweep[{index + 1}]: {b['t_max_seconds']} follows {a['t_max_seconds']}; candidates ascend"
    for index, point in enumerate(sweep):
        if point["pruned"] and point["iteration_seconds"] is not None:
            yield f"t_max_sweep[{index}]: pruned, and yet iteration_seconds is {point['iteration_seconds']}"


def _costs(costs: Mapping[str, Any], cluster: Mapping[str, Any], num_layers: int) -> Iterator[str]:
    nodes, per_node, pieces = cluster["nodes"], cluster["devices_per_node"], costs["submeshes"]
    for index, piece in enumerate(pieces):
        if not (0 < piece[0] <= nodes and 0 < piece[1] <= per_node):
            yield f"costs.submeshes[{index}]: {piece} is no piece of a cluster of {nodes} × {per_node}"
    for index, (first, last, submesh, shape, *figures) in enumerate(costs["candidates"]):
        at = f"costs.candidates[{index}]"
        if len(figures) + 4 != len(costs["columns"]):
            yield f"{at}: {len(figures) + 4} figures in {len(costs['columns'])} columns"
        elif not first <= last < num_layers:
            yield f"{at}: layers {first} to {last} of {num_layers}"
        elif len(figures) == 8 and figures[7] >= len(costs.get("versions", ((),))):
            yield f"{at}: version {figures[7]} is not one of costs.versions"
        elif submesh >= len(pieces):
            yield f"{at}: submesh {submesh} of {len(pieces)}"
        elif math.prod(shape) != math.prod(pieces[submesh]):
            yield f"{at}: logical mesh {shape} does not fill submesh {pieces[submesh]}"
