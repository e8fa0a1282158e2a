"""A plan as the JSON document of a plan file, and back; plan.schema.json describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from typing import Any, TypeVar

from alpa_explore.cluster import Cluster, Device, Link, LogicalMesh, Submesh, logical_mesh
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.result import SweepPoint
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
)
from alpa_explore.plans.value import PlanValue
from alpa_explore.pricing.stage_costs import Provenance, RangeKey, StageCandidate, StageCosts
from alpa_explore.sharding.spec_constraint import read_constraints

FORMAT = "alpa_explore.plan"
VERSION = 1
COLUMNS = (
    "first_layer",
    "last_layer",
    "submesh",
    "logical_mesh",
    "microbatch_seconds",
    "iteration_seconds",
    "weight_bytes",
    "activation_bytes",
    "workspace_bytes",
    "solution_key",
    "provenance",
    "version",
)
"""Of a row of `costs.candidates`: a table, because a large cluster has tens of thousands of candidates."""

Document = dict[str, Any]
_P = TypeVar("_P", bound=PlanValue)


def to_document(plan: PlanValue) -> Document:
    """The plan as dicts, lists, strings, numbers, booleans and None."""
    cluster, device = plan.cluster, plan.cluster.device
    figures = asdict(device)
    del figures["name"]
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
        },
        "options": asdict(plan.options),
        "layers": [_shown(layer) for layer in plan.layers],
        "stages": [_stage_document(stage) for stage in plan.stages],
        "interleaved": [_stage_document(stage) for stage in plan.interleaved],
        "predicted": asdict(plan.predicted),
        "t_max_sweep": [_shown(point) for point in plan.t_max_sweep],
        "statistics": asdict(plan.statistics) | {"seconds": dict(plan.statistics.seconds)},
        "warnings": list(plan.warnings),
        "microbatches": [_shown(one) for one in plan.microbatches],
        "costs": _costs_document(plan.costs),
    }


def from_document(document: Mapping[str, Any], kind: type[_P]) -> _P:
    """The plan of a document that satisfies the schema; keys that this version does not know are left out."""
    cluster = _cluster(document["cluster"])
    costs = _costs(document["costs"], cluster, document["layers"], document["model"]["rematerialization"])
    return kind(
        model=_made(ModelSummary, document["model"]),
        cluster=cluster,
        options=_options(document["options"]),
        layers=tuple(_made(PlanLayer, layer) for layer in document["layers"]),
        stages=tuple(_stage(stage, costs) for stage in document["stages"]),
        interleaved=tuple(_stage(stage, costs) for stage in document.get("interleaved", ())),
        predicted=_made(Predicted, document["predicted"]),
        t_max_sweep=tuple(_made(SweepPoint, point) for point in document["t_max_sweep"]),
        statistics=_made(Statistics, document["statistics"], seconds=tuple(document["statistics"]["seconds"].items())),
        costs=costs,
        warnings=tuple(document["warnings"]),
        microbatches=tuple(_made(TriedMicrobatches, one) for one in document.get("microbatches", ())),
    )


def _stage_document(stage: PlanStage) -> Document:
    return _shown(stage, operators=[_shown(o) for o in stage.operators], tensors=[_shown(t) for t in stage.tensors])


def _stage(body: Mapping[str, Any], costs: StageCosts) -> PlanStage:
    made: PlanStage = _made(
        PlanStage,
        {"rematerialized": _of_stage(costs.versions[0], body), **body},
        operators=tuple(_made(PlanOperator, o) for o in body["operators"]),
        tensors=tuple(_made(PlanTensor, t) for t in body.get("tensors", ())),
    )
    return made


def _of_stage(layers: Sequence[int], stage: Mapping[str, Any]) -> list[int]:
    """Those of the layers that a stage has."""
    return [layer for layer in layers if stage["layers"][0] <= layer <= stage["layers"][1]]


def _shown(value: Any, **instead: Any) -> Document:
    """The fields of a flat dataclass; `asdict` would copy every string of every operator."""
    names = [field.name for field in fields(value)]
    return {name: instead[name] if name in instead else getattr(value, name) for name in names}


def rename_older_keys(document: dict[str, Any]) -> None:
    """Bring the keys of a file of 0.1.0 up to date, in place: `wishes` of the options are `spec_constraints` now."""
    options = document.get("options")
    if isinstance(options, dict) and "wishes" in options and "spec_constraints" not in options:
        options["spec_constraints"] = options.pop("wishes")


def _made(kind: Any, body: Mapping[str, Any], **instead: Any) -> Any:
    """A dataclass from its fields; JSON's lists are tuples. What an older file does not say takes its default."""
    given = {
        field.name: body[field.name]
        for field in fields(kind)
        if field.name not in instead
        and (field.name in body or (field.default is MISSING and field.default_factory is MISSING))
    }
    return kind(**instead, **{name: _frozen(value) for name, value in given.items()})


def _frozen(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _options(body: Mapping[str, Any]) -> PlanOptions:
    pipeline, spec_constraints = _pipeline(body.get("pipeline", {})), read_constraints(body.get("spec_constraints", ()))
    made: PlanOptions = _made(PlanOptions, body, pipeline=pipeline, spec_constraints=spec_constraints)
    return made


def _pipeline(body: Mapping[str, Any]) -> PipelineOptions:
    pinned = tuple((stage, nodes, devices) for stage, nodes, devices in body.get("stage_submeshes", ()))
    made: PipelineOptions = _made(PipelineOptions, body, stage_submeshes=pinned)
    return made


def _cluster(body: Mapping[str, Any]) -> Cluster:
    return Cluster(
        nodes=body["nodes"],
        devices_per_node=body["devices_per_node"],
        device=_made(Device, body["device_figures"], name=body["device"]),
        inside_node=_made(Link, body["inside_node"]),
        between_nodes=_made(Link, body["between_nodes"]),
    )


def _costs_document(costs: StageCosts) -> Document:
    return {
        "submeshes": [[m.nodes, m.devices_per_node] for m in costs.submeshes],
        "device_memory_bytes": costs.device_memory_bytes,
        "received_bytes": [[first, last, size] for (first, last), size in costs.received_bytes.items()],
        "versions": [list(layers) for layers in costs.versions],
        "tied_weights": [[list(layers), size] for layers, size in costs.tied_weights],
        "complete": costs.complete,
        "columns": list(COLUMNS),
        "candidates": [
            [first, last, submesh, list(c.logical_mesh.shape), *(getattr(c, name) for name in COLUMNS[4:])]
            for (first, last, submesh), candidates in costs.candidates.items()
            for c in candidates
        ],
    }


def _costs(
    body: Mapping[str, Any], cluster: Cluster, layers: Sequence[Mapping[str, Any]], rematerialized: bool
) -> StageCosts:
    """A logical mesh is stored as its shape: its links follow from the cluster. Raises IndexError or AssertionError
    where a row names a submesh that is not there, or a shape that does not fill it."""
    pieces = tuple(Submesh(nodes, devices) for nodes, devices in body["submeshes"])
    meshes: dict[tuple[int, tuple[int, ...]], LogicalMesh] = {}
    candidates: dict[RangeKey, list[StageCandidate]] = {}
    for first, last, submesh, shape, *figures in body["candidates"]:
        seen = (submesh, tuple(shape))
        if seen not in meshes:
            meshes[seen] = logical_mesh(cluster, pieces[submesh], seen[1])
        # A row of an earlier version ends before `provenance`, or before `version`.
        named = dict(zip(COLUMNS[4:], figures, strict=False))
        named["provenance"] = Provenance(named.get("provenance", Provenance.UNKNOWN))
        candidates.setdefault((first, last, submesh), []).append(StageCandidate(logical_mesh=meshes[seen], **named))
    return StageCosts(
        num_layers=len(layers),
        submeshes=pieces,
        device_memory_bytes=body["device_memory_bytes"],
        candidates={key: tuple(found) for key, found in candidates.items()},
        layer_flops=tuple(layer["flops"] for layer in layers),
        received_bytes={(int(first), int(last)): float(size) for first, last, size in body.get("received_bytes", ())},
        versions=tuple(map(tuple, body.get("versions", [range(len(layers)) if rematerialized else ()]))),
        tied_weights=tuple((tuple(readers), float(size)) for readers, size in body.get("tied_weights", ())),
        complete=body.get("complete", True),
    )
