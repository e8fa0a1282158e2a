"""A plan as the JSON document of a plan file, and back. plan.schema.json describes the document."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from typing import Any, TypeVar

from alpa_explore.cluster import Cluster, Device, Link, LogicalMesh, Software, Submesh, logical_mesh
from alpa_explore.cluster.kernel_figures import KernelFigures
from alpa_explore.cluster.kernel_store import kernel_store_of
from alpa_explore.cluster.levels import Level
from alpa_explore.cluster.topology import Kind
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.result import SweepPoint
from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore.intra_op.stage.recomputation import LAYERS, NONE, Recomputation
from alpa_explore.plans.iteration_time import iteration_time, objective_seconds
from alpa_explore.plans.records import (
    ModelSummary,
    PlanLayer,
    PlanOperator,
    PlanOptions,
    PlanStage,
    PlanTensor,
    Predicted,
    Statistics,
    TriedMicrobatches,
    TriedSchedule,
)
from alpa_explore.plans.value import PlanValue
from alpa_explore.pricing.stage_costs import Provenance, RangeKey, Screened, StageCandidate, StageCosts
from alpa_explore.sharding.spec_constraint import read_constraints

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


def to_document(plan: PlanValue) -> Document:
    """The plan as dicts, lists, strings, numbers, booleans and None."""
    cluster, device, time = plan.cluster, plan.cluster.device, iteration_time(plan)
    figures = _figures(device)
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": asdict(plan.model),
        "cluster": {
            "nodes": cluster.nodes,
            "devices_per_node": cluster.devices_per_node,
            "device": device.name,
            "device_figures": figures,
            "inside_node": asdict(cluster.inside_node),
            "between_nodes": asdict(cluster.between_nodes),
            **({"others": [_kind_document(kind) for kind in cluster.others]} if cluster.others else {}),
            **({"levels": [asdict(level) for level in cluster.levels]} if cluster.levels else {}),
        },
        "options": asdict(plan.options),
        "layers": [_record_document(layer) for layer in plan.layers],
        "stages": [_stage_document(stage) for stage in plan.stages],
        "interleaved": [_stage_document(stage) for stage in plan.interleaved],
        "predicted": asdict(plan.predicted)
        | {"objective_seconds": objective_seconds(plan)}
        | ({} if time is None else {"sends_seconds": time.sends_seconds}),
        "t_max_sweep": [_record_document(point) for point in plan.t_max_sweep],
        "statistics": asdict(plan.statistics) | {"seconds": dict(plan.statistics.seconds)},
        "warnings": [warning for warning in plan.warnings if not warning.startswith(OF_ONE_RUN)],
        "microbatches": [_record_document(tried) for tried in plan.microbatches],
        "schedules": [_record_document(tried) for tried in plan.schedules],
        "costs": _costs_document(plan.costs),
    }


def from_document(document: Mapping[str, Any], kind: type[_P]) -> _P:
    """The plan of a document that satisfies the schema, as a value of the class `kind`; unknown keys are ignored."""
    cluster = _cluster(document["cluster"])
    costs = _costs(document["costs"], cluster, document["layers"], document["model"]["rematerialization"])
    return kind(
        model=_record(ModelSummary, document["model"]),
        cluster=cluster,
        options=_options(document["options"], cluster),
        layers=tuple(_record(PlanLayer, layer) for layer in document["layers"]),
        stages=tuple(_stage(stage, costs, cluster) for stage in document["stages"]),
        interleaved=tuple(_stage(stage, costs, cluster) for stage in document.get("interleaved", ())),
        predicted=_record(Predicted, document["predicted"]),
        t_max_sweep=tuple(_record(SweepPoint, point) for point in document["t_max_sweep"]),
        statistics=_record(
            Statistics, document["statistics"], seconds=tuple(document["statistics"]["seconds"].items())
        ),
        costs=costs,
        warnings=tuple(document["warnings"]),
        microbatches=tuple(_record(TriedMicrobatches, tried) for tried in document.get("microbatches", ())),
        schedules=tuple(_record(TriedSchedule, tried) for tried in document.get("schedules", ())),
    )


def _stage_document(stage: PlanStage) -> Document:
    body = _record_document(
        stage,
        operators=[_record_document(o) for o in stage.operators],
        tensors=[_record_document(t) for t in stage.tensors],
    )
    return body if stage.device else {name: value for name, value in body.items() if name != "device"}


def _stage(body: Mapping[str, Any], costs: StageCosts, cluster: Cluster) -> PlanStage:
    again = body.get("rematerialized", _layers_of_stage(costs.versions[0].layers, body))
    stage: PlanStage = _record(
        PlanStage,
        {"rematerialized": again, **body},
        operators=tuple(_operator(o, again) for o in body["operators"]),
        tensors=tuple(_record(PlanTensor, t) for t in body.get("tensors", ())),
        device=cluster.part_of(body["devices"][0]).device.name if cluster.others else "",
    )
    return stage


def _operator(body: Mapping[str, Any], recomputed_layers: Sequence[int]) -> PlanOperator:
    """An operator; in an older file, each forward operator of these layers runs again."""
    again = body["phase"] == "forward" and body["layer"] in recomputed_layers
    operator: PlanOperator = _record(PlanOperator, {"recomputed": "input" if again else "", **body})
    return operator


def _layers_of_stage(layers: Sequence[int], stage: Mapping[str, Any]) -> list[int]:
    """Those of `layers` that belong to a stage."""
    return [layer for layer in layers if stage["layers"][0] <= layer <= stage["layers"][1]]


def _record_document(record: Any, **replaced: Any) -> Document:
    """The fields of a flat dataclass, some of them replaced; `asdict` would copy every string of every operator."""
    names = [field.name for field in fields(record)]
    return {name: replaced[name] if name in replaced else getattr(record, name) for name in names}


def rename_older_keys(document: dict[str, Any]) -> dict[str, str]:
    """Give the keys of a file of version 0.1.0 their present names, in place; returns new place -> old place.

    ValueError where a file has a key under both names.
    """
    options = document.get("options")
    if not isinstance(options, dict) or "wishes" not in options:
        return {}
    if "spec_constraints" in options:
        raise ValueError("options: it has spec_constraints and wishes, which is their name in older files")
    options["spec_constraints"] = options.pop("wishes")
    return {"options.spec_constraints": "options.wishes"}


def _record(kind: Any, body: Mapping[str, Any], **replaced: Any) -> Any:
    """A dataclass from its fields, JSON's lists as tuples. Fields that an older file lacks take their defaults."""
    present = {
        field.name: body[field.name]
        for field in fields(kind)
        if field.name not in replaced
        and (field.name in body or (field.default is MISSING and field.default_factory is MISSING))
    }
    return kind(**replaced, **{name: _frozen(value) for name, value in present.items()})


def _frozen(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _options(body: Mapping[str, Any], cluster: Cluster) -> PlanOptions:
    pipeline = _pipeline(body.get("pipeline", {}), cluster)
    spec_constraints = read_constraints(body.get("spec_constraints", ()))
    options: PlanOptions = _record(PlanOptions, body, pipeline=pipeline, spec_constraints=spec_constraints)
    return options


def _pipeline(body: Mapping[str, Any], cluster: Cluster) -> PipelineOptions:
    """In a file of a version without the option `paper`, T is Eq. 2, with the sends that it always had for software
    that says what they cost."""
    if "paper" not in body:
        counted = body.get("communication", False) or not cluster.software.ideal_sends
        body = {"tied_weights": False, **body, "paper": True, "communication": counted}
    pinned = tuple((stage, nodes, devices) for stage, nodes, devices in body.get("stage_submeshes", ()))
    body = {"schedule": SCHEDULES[0], **body}
    options: PipelineOptions = _record(PipelineOptions, body, stage_submeshes=pinned)
    return options


def _figures(device: Device) -> Document:
    """All of a device but its name."""
    store = device.measured
    figures = asdict(replace(device, measured=None))
    del figures["name"], figures["mirror"], figures["measured"]
    return figures if store is None else {**figures, "measured": store.as_json()}


def _device(body: Mapping[str, Any]) -> Device:
    figures = body["device_figures"]
    # A file of a version without software profiles has the figures of an ideal one.
    software = _record(Software, figures.get("software", {}))
    kernels = None if figures.get("kernels") is None else _kernels(figures["kernels"])
    store = None if figures.get("measured") is None else kernel_store_of(figures["measured"], "the plan")
    device: Device = _record(Device, figures, name=body["device"], software=software, kernels=kernels, measured=store)
    return device


def _kernels(body: Mapping[str, Any]) -> KernelFigures:
    """Without what a later version may have added, as for every record."""
    return KernelFigures(**{field.name: body[field.name] for field in fields(KernelFigures) if field.name in body})


def _kind_document(kind: Kind) -> Document:
    return {
        "nodes": kind.nodes,
        "device": kind.device.name,
        "device_figures": _figures(kind.device),
        "inside_node": asdict(kind.inside_node),
    }


def _kind(body: Mapping[str, Any]) -> Kind:
    return Kind(nodes=body["nodes"], device=_device(body), inside_node=_record(Link, body["inside_node"]))


def _cluster(body: Mapping[str, Any]) -> Cluster:
    return Cluster(
        nodes=body["nodes"],
        devices_per_node=body["devices_per_node"],
        device=_device(body),
        inside_node=_record(Link, body["inside_node"]),
        between_nodes=_record(Link, body["between_nodes"]),
        levels=tuple(_level(level) for level in body.get("levels", ())),
        others=tuple(_kind(kind) for kind in body.get("others", ())),
    )


def _level(body: Mapping[str, Any]) -> Level:
    link = body.get("link")
    level: Level = _record(Level, body, link=None if link is None else _record(Link, link))
    return level


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


def _costs(
    body: Mapping[str, Any], cluster: Cluster, layers: Sequence[Mapping[str, Any]], rematerialized: bool
) -> StageCosts:
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
        # A row of an earlier version ends before `provenance`, or before `version`.
        columns = dict(zip(COLUMNS[4:], figures, strict=False))
        columns["provenance"] = Provenance(columns.get("provenance", Provenance.UNKNOWN))
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
        received_bytes={(int(first), int(last)): float(size) for first, last, size in body.get("received_bytes", ())},
        versions=tuple(map(_version, body.get("versions", [range(len(layers)) if rematerialized else ()]))),
        tied_weights=tuple((tuple(readers), float(size)) for readers, size in body.get("tied_weights", ())),
        memory_of_kinds=tuple(kind.device.memory_bytes for kind in cluster.kinds) if cluster.others else (),
        turns={tuple(stage): tuple(map(tuple, turns)) for stage, *turns in body.get("turns", ())},
        copies=body.get("copies", 1),
        num_microbatches=body.get("num_microbatches", 0),
        complete=body.get("complete", True),
        screened=screened,
    )
