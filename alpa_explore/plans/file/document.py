"""A plan as the JSON document of a plan file, and back. plan.schema.json describes the document. The text of the file
is JSON that a person can read, and that two plans can be compared in line by line.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from alpa_explore import units
from alpa_explore.cluster import Cluster, Device, Link, LogicalMesh, Submesh, logical_mesh
from alpa_explore.cluster.kernel_store import kernel_store_of
from alpa_explore.cluster.levels import Level
from alpa_explore.cluster.topology import Kind
from alpa_explore.errors import PlanFileError
from alpa_explore.inter_op.result import SweepPoint
from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore.intra_op.stage.recomputation import LAYERS, NONE, Recomputation
from alpa_explore.plans.file import tuning
from alpa_explore.plans.iteration_time import iteration_time, objective_seconds
from alpa_explore.plans.records import (
    ModelSummary,
    PlanLayer,
    PlanOptions,
    PlanStage,
    Predicted,
    Statistics,
    TriedMicrobatches,
    TriedSchedule,
)
from alpa_explore.plans.value import PlanValue
from alpa_explore.pricing.stage_costs import Provenance, RangeKey, Screened, StageCandidate, StageCosts
from alpa_explore.store.records import plain, record
from alpa_explore.store.write import write_text

FORMAT = "alpa_explore.plan"
VERSION = 1
COLUMNS = tuple(
    """
    first_layer last_layer submesh logical_mesh microbatch_seconds iteration_seconds weight_bytes activation_bytes
    workspace_bytes solution_key provenance version paced_seconds
    """.split()
)
"""Columns of `costs.candidates`, which is a table because a large cluster has tens of thousands of candidates."""

OF_ONE_RUN = ("The cache in ", "Worker processes ")
"""Beginnings of warnings about the run that made a plan, not about the plan (`SolveCache.warnings`,
`Executor.warnings`): they are shown then, and not written."""

Document = dict[str, Any]
_P = TypeVar("_P", bound=PlanValue)
_R = TypeVar("_R")


def to_document(plan: PlanValue) -> Document:
    """The plan as dicts, lists, strings, numbers, booleans and None."""
    cluster, device, time = plan.cluster, plan.cluster.device, iteration_time(plan)
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": plain(plan.model),
        "cluster": {
            "nodes": cluster.nodes,
            "devices_per_node": cluster.devices_per_node,
            "device": device.name,
            "device_figures": _figures(device),
            "inside_node": plain(cluster.inside_node),
            "between_nodes": plain(cluster.between_nodes),
            **({"others": [_kind_document(kind) for kind in cluster.others]} if cluster.others else {}),
            **({"levels": plain([*cluster.levels])} if cluster.levels else {}),
        },
        "options": plain(plan.options),
        "layers": plain([*plan.layers]),
        "stages": [_stage_document(stage) for stage in plan.stages],
        "interleaved": [_stage_document(stage) for stage in plan.interleaved],
        "predicted": plain(plan.predicted)
        | {"objective_seconds": objective_seconds(plan)}
        | ({} if time is None else {"sends_seconds": time.sends_seconds}),
        "t_max_sweep": plain([*plan.t_max_sweep]),
        "statistics": plain(plan.statistics) | {"seconds": dict(plan.statistics.seconds)},
        "warnings": [warning for warning in plan.warnings if not warning.startswith(OF_ONE_RUN)],
        "microbatches": plain([*plan.microbatches]),
        "schedules": plain([*plan.schedules]),
        "costs": _costs_document(plan.costs),
    }


def from_document(document: Mapping[str, Any], kind: type[_P]) -> _P:
    """The plan of a document that satisfies the schema, as a value of the class `kind`; unknown keys are ignored."""
    cluster = _cluster(document["cluster"])
    document = _said_out(document, cluster)

    def each(kind_of: type[_R], name: str) -> tuple[_R, ...]:
        return tuple(record(kind_of, one, checked=False) for one in document.get(name, ()))

    statistics = {**document["statistics"], "seconds": [*document["statistics"]["seconds"].items()]}
    return kind(
        model=record(ModelSummary, document["model"], checked=False),
        cluster=cluster,
        options=record(PlanOptions, document["options"], checked=False),
        layers=each(PlanLayer, "layers"),
        stages=each(PlanStage, "stages"),
        interleaved=each(PlanStage, "interleaved"),
        predicted=record(Predicted, document["predicted"], checked=False),
        t_max_sweep=each(SweepPoint, "t_max_sweep"),
        statistics=record(Statistics, statistics, checked=False),
        costs=_costs(document["costs"], cluster, document["layers"]),
        warnings=tuple(document["warnings"]),
        microbatches=each(TriedMicrobatches, "microbatches"),
        schedules=each(TriedSchedule, "schedules"),
    )


def _stage_document(stage: PlanStage) -> Document:
    body: Document = plain(stage)
    body |= {name: list(body[name]) for name in ("operators", "tensors")}
    return body if stage.device else {name: value for name, value in body.items() if name != "device"}


_RENAMED = {("options", "wishes"): "spec_constraints"}
"""Keys of files of version 0.1.0 -> their present names."""


def rename_older_keys(document: dict[str, Any]) -> dict[str, str]:
    """Give the keys of a file of version 0.1.0 their present names, in place; returns new place -> old place.

    ValueError where a file has a key under both names.
    """
    renamed = {}
    for (place, old), new in _RENAMED.items():
        part = document.get(place)
        if isinstance(part, dict) and old in part:
            if new in part:
                raise ValueError(f"{place}: it has {new} and {old}, which is their name in older files")
            part[new] = part.pop(old)
            renamed[f"{place}.{new}"] = f"{place}.{old}"
    return renamed


def _said_out(document: Mapping[str, Any], cluster: Cluster) -> Document:
    """A document with what a file of version 0.1.0 leaves to be understood: T is Eq. 2, with the sends that it had for
    software that says what they cost; each forward operator of the layers that are rematerialised runs again."""
    options = document["options"]
    pipeline = {"schedule": SCHEDULES[0], **options.get("pipeline", {})}
    if "paper" not in pipeline:
        counted = pipeline.get("communication", False) or not cluster.software.ideal_sends
        pipeline |= {"paper": True, "communication": counted, "tied_weights": pipeline.get("tied_weights", False)}

    def stage(body: Mapping[str, Any]) -> Document:
        again = body.get("rematerialized", ())
        operators = [
            o
            if "recomputed" in o or o["phase"] != "forward" or o["layer"] not in again
            else {**o, "recomputed": "input"}
            for o in body["operators"]
        ]
        device = cluster.part_of(body["devices"][0]).device.name if cluster.others else ""
        return {**body, "operators": operators, "device": device}

    stages = {name: [stage(body) for body in document.get(name, ())] for name in ("stages", "interleaved")}
    return {**document, "options": {**options, "pipeline": pipeline}, **stages}


def _figures(device: Device) -> Document:
    """All of a device but its name."""
    store = device.measured
    figures: Document = plain(replace(device, measured=None))
    del figures["name"], figures["mirror"], figures["measured"]
    return figures if store is None else {**figures, "measured": store.as_json()}


def _device(body: Mapping[str, Any]) -> Device:
    figures = {**body["device_figures"], "name": body["device"]}
    store = figures.pop("measured", None)
    device = record(Device, figures, checked=False)
    return device if store is None else replace(device, measured=kernel_store_of(store, "the plan"))


def _kind_document(kind: Kind) -> Document:
    return {
        "nodes": kind.nodes,
        "device": kind.device.name,
        "device_figures": _figures(kind.device),
        "inside_node": plain(kind.inside_node),
    }


def _cluster(body: Mapping[str, Any]) -> Cluster:
    return Cluster(
        nodes=body["nodes"],
        devices_per_node=body["devices_per_node"],
        device=_device(body),
        inside_node=record(Link, body["inside_node"], checked=False),
        between_nodes=record(Link, body["between_nodes"], checked=False),
        levels=tuple(record(Level, level, checked=False) for level in body.get("levels", ())),
        others=tuple(
            Kind(
                nodes=kind["nodes"], device=_device(kind), inside_node=record(Link, kind["inside_node"], checked=False)
            )
            for kind in body.get("others", ())
        ),
    )


def _costs_document(costs: StageCosts) -> Document:
    screened = [[*cell, *bound] for cell, of_cell in costs.screened.items() for bound in of_cell]
    return {
        "submeshes": [[m.nodes, m.devices_per_node] for m in costs.submeshes],
        **({"submesh_kinds": [m.kind for m in costs.submeshes]} if costs.memory_of_kinds else {}),
        "device_memory_bytes": costs.device_memory_bytes,
        "received_bytes": [[first, last, size] for (first, last), size in costs.received_bytes.items()],
        "versions": [list(v.layers) if v.name in (NONE, LAYERS) else v.name for v in costs.versions],
        "tied_weights": [[list(layers), size] for layers, size in costs.tied_weights],
        **({"turns": [[stage, *turns] for stage, turns in costs.turns.items()]} if costs.turns else {}),
        **({"copies": costs.copies} if costs.copies > 1 else {}),
        **({"num_microbatches": costs.num_microbatches} if costs.num_microbatches else {}),
        "complete": costs.complete,
        **({"screened": screened} if screened else {}),
        "columns": list(COLUMNS),
        "candidates": [
            [first, last, submesh, list(c.logical_mesh.shape), *(getattr(c, name) for name in COLUMNS[4:])]
            for (first, last, submesh), candidates in costs.candidates.items()
            for c in candidates
        ],
    }


def _version(body: str | Sequence[int]) -> Recomputation:
    return Recomputation.parse(body) if isinstance(body, str) else Recomputation.of_layers(body)


def _costs(body: Mapping[str, Any], cluster: Cluster, layers: Sequence[Mapping[str, Any]]) -> StageCosts:
    """The stage costs. A logical mesh is stored as its shape: its links follow from the cluster.

    IndexError or AssertionError where a row names a submesh that does not exist, or a shape that does not fill it.
    """
    kinds = body.get("submesh_kinds", [0] * len(body["submeshes"]))
    submeshes = tuple(
        Submesh(nodes, devices, kind) for (nodes, devices), kind in zip(body["submeshes"], kinds, strict=True)
    )
    meshes: dict[tuple[int, tuple[int, ...]], LogicalMesh] = {}
    candidates: dict[RangeKey, list[StageCandidate]] = {}
    for first, last, submesh, shape, *figures in body["candidates"]:
        key = (submesh, tuple(shape))
        if key not in meshes:
            meshes[key] = logical_mesh(cluster, submeshes[submesh], key[1])
        columns = dict(zip(COLUMNS[4:], figures, strict=False))  # of version 0.1.0 the last one is missing
        columns["provenance"] = Provenance(columns["provenance"])
        candidates.setdefault((first, last, submesh), []).append(StageCandidate(logical_mesh=meshes[key], **columns))
    screened: dict[RangeKey, tuple[Screened, ...]] = {}
    for first, last, submesh, *bound in body.get("screened", ()):
        screened[first, last, submesh] = (*screened.get((first, last, submesh), ()), Screened(*bound))
    return StageCosts(
        num_layers=len(layers),
        submeshes=submeshes,
        device_memory_bytes=body["device_memory_bytes"],
        candidates={key: tuple(of_cell) for key, of_cell in candidates.items()},
        layer_flops=tuple(layer["flops"] for layer in layers),
        received_bytes={(int(first), int(last)): float(size) for first, last, size in body["received_bytes"]},
        versions=tuple(map(_version, body["versions"])),
        tied_weights=tuple((tuple(readers), float(size)) for readers, size in body["tied_weights"]),
        memory_of_kinds=tuple(kind.device.memory_bytes for kind in cluster.kinds) if cluster.others else (),
        turns={tuple(stage): tuple(map(tuple, turns)) for stage, *turns in body.get("turns", ())},
        copies=body.get("copies", 1),
        num_microbatches=body.get("num_microbatches", 0),
        complete=body.get("complete", True),
        screened=screened,
    )


def save_plan(plan: PlanValue, path: str | os.PathLike[str]) -> None:
    """Write the plan file, whole or not at all. PlanFileError when that is impossible (folder missing, disk full)."""
    write_text(path, plan_text(plan), "The plan")


def plan_text(plan: PlanValue) -> str:
    """The text of the plan file: the same plan always gives the same text."""
    try:
        text = _lines(to_document(plan)) + "\n"
    except ValueError as error:  # json's: NaN and infinity are not JSON
        raise PlanFileError(
            "The plan was not written",
            found=f"a figure in it is not a number ({error})",
            remedy="Check the cluster's figures (bandwidths, FLOP/s): one of them may be 0.",
        ) from error
    if len(text) > tuning.MAX_BYTES:
        raise PlanFileError(
            "The plan was not written",
            found=f"{units.bytes_(len(text))} are more than plan files may hold",
            remedy="Plan with fewer layers: candidates grow with their square.",
        )
    return text


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""One encoder for all lines, because making one takes longer than most lines."""


def _line(value: Any) -> str:
    """JSON in one line; numbers, of which a plan has half a million, as the encoder writes them, without it."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return _encode(value)


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with one layer, operator, candidate or figure a line, so that two plans can be compared line by line."""
    if not isinstance(value, dict | list) or not value or depth == tuning.BROKEN_LEVELS:
        return _line(value)
    nested = any(isinstance(v, dict | list) for v in _parts(value))
    if depth > 1 and not nested:
        return _line(value)
    if depth > 1:
        line = _line(value)
        if len(line) <= tuning.LINE_CHARACTERS:
            return line
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        parts = [f"{_line(k)}: {_lines(v, depth + 1)}" for k, v in value.items()]
        return "{" + inner + ("," + inner).join(parts) + outer + "}"
    return "[" + inner + ("," + inner).join(_lines(v, depth + 1) for v in value) + outer + "]"


def _parts(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value
