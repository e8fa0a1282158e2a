"""Reading a plan file: safe to do with one from a stranger (no pickle, checked, limited in size).

A schema cannot express that layers follow each other without a gap, stages cover all devices and share none, specs only
name axes of the stage's mesh, and indices are in range: `first_fault` does.
"""

import json
import math
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError, PlanFileError
from alpa_explore.plans.file import tuning
from alpa_explore.plans.file.document import FORMAT, VERSION, from_document, rename_older_keys
from alpa_explore.plans.file.schema import schema_fault, unknown_keys
from alpa_explore.plans.value import PlanValue
from alpa_explore.schedules.catalog import V_SHAPES, submeshes_in_turn
from alpa_explore.sharding.spec_constraint import SpecConstraint, fault_of
from alpa_explore.store.read import open_regular, parse_json
from alpa_explore.store.records import record
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
    constraints = [record(SpecConstraint, row, checked=False) for row in spec_constraints]
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


_P = TypeVar("_P", bound=PlanValue)
_AGAIN = "Write it again with `alpa-explore plan … -o FILE`, or ask for another copy."


def read_plan(path: str | os.PathLike[str], kind: type[_P]) -> _P:
    """The plan in a file, as a value of the class `kind`; nothing in the file is executed or imported.

    PlanFileError, with one line that says what to do, when the file is missing, truncated, damaged, too large, from a
    newer version, or not a plan.
    """
    document = _parse(_read(path), path)
    _check_version(document, path)
    try:
        renamed = rename_older_keys(document)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    fault = first_fault(document)
    if fault is not None:
        for new, old in renamed.items():  # name what the file holds
            fault = fault.replace(new, old, 1) if fault.startswith(new) else fault
        raise _damaged(path, fault)
    if unknown := unknown_keys(document):
        document["warnings"] = [*document["warnings"], _ignored(unknown)]
    try:
        return from_document(document, kind)
    except AlpaExploreError as error:  # a figure that no device or link can have
        raise _damaged(path, printable(f"{error.what}: {error.found}")) from error


def _ignored(unknown: list[str]) -> str:
    """A warning: what the file says there may change what the plan means."""
    more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
    names = ", ".join(name if len(name) <= 80 else f"{name[:79]}…" for name in sorted(unknown)[:3])
    what = "a figure in it is" if len(unknown) == 1 else f"{len(unknown)} figures in it are"
    return printable(f"The plan file may be of a later version: {what} not known here, and ignored ({names}{more}).")


def _read(path: str | os.PathLike[str]) -> str:
    file = Path(path)
    if file.is_dir():
        raise PlanFileError("There is no plan file", found=f"{path} is a folder", remedy="Name a file in it.")
    try:
        with open_regular(file) as stream:
            content = stream.read(tuning.MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise PlanFileError(
            "There is no plan file", found=str(path), remedy="Check the name; `alpa-explore plan … -o FILE` writes one."
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        found = f"{path}: {getattr(error, 'strerror', None) or error}"
        raise PlanFileError(
            "The plan file cannot be read", found=found, remedy="Check that you may read it."
        ) from error
    if len(content) > tuning.MAX_BYTES:
        raise PlanFileError(
            "The plan file is too large",
            found=f"{path} has more than {units.bytes_(tuning.MAX_BYTES)}",
            remedy="A plan is far smaller: check that it is the right file.",
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_a_plan(path, f"byte {error.start} is not UTF-8 text") from error


def _parse(text: str, path: str | os.PathLike[str]) -> Any:
    try:
        document = parse_json(text)
        # JSON allows half of a surrogate pair; such text could never be encoded, so neither written nor shown.
        if re.search(r"\\u[dD][89a-fA-F]", text):
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except ValueError as error:
        body = text.strip()
        if body.startswith("{") and not body.endswith("}") and f'"{FORMAT}"' in body[:200]:
            found = f"{path} ends after {units.bytes_(len(text))} in the middle of the text"
            raise PlanFileError("The plan file is truncated", found=found, remedy=_AGAIN) from error
        raise _not_a_plan(path, f"not JSON, {error}" if body else "the file is empty") from error
    return document


def _check_version(document: Any, path: str | os.PathLike[str]) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _not_a_plan(path, f'it has no "format": "{FORMAT}"')
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged(path, f"version: {version!r:.40}")
    if version > VERSION:
        raise PlanFileError(
            "The plan file is from a newer alpa_explore",
            found=f"{path} has version {version}; this one reads {VERSION}",
            remedy="Upgrade with `pip install --upgrade alpa-explore`, or plan again.",
        )


def _damaged(path: str | os.PathLike[str], fault: str) -> PlanFileError:
    return PlanFileError("The plan file is damaged", found=f"{path}, {fault}", remedy=_AGAIN)


def _not_a_plan(path: str | os.PathLike[str], why: str) -> PlanFileError:
    return PlanFileError(
        "The file is not a plan",
        found=printable(f"{path}, {why}"),
        remedy="Name a file that `alpa-explore plan … -o FILE` or `plan.save` wrote.",
    )
