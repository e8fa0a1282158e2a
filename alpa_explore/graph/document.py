"""A graph as plain lists for files, without pickle: `load_graph(dump_graph(g)) == g`, and reading runs no code."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from alpa_explore.graph import counts
from alpa_explore.graph.graph import Parameter, TrainingGraph, Written
from alpa_explore.graph.loops import dump_call, load_call
from alpa_explore.graph.operator import Operator, Phase
from alpa_explore.graph.tensor import Tensor, TensorKind


def dump_graph(graph: TrainingGraph) -> dict[str, Any]:
    """The graph as JSON data; tensors and operators are rows, parameters are objects."""
    whole = {f.name: getattr(graph, f.name) for f in fields(TrainingGraph)}
    return {
        **whole,
        "inputs": list(graph.inputs),
        "checkpoints": [list(region) for region in graph.checkpoints],
        "warnings": list(graph.warnings),
        "written": [[w.name, w.tensor, w.value] for w in graph.written],
        "tensors": [[t.name, list(t.shape), t.dtype, t.kind.value, t.producer] for t in graph.tensors],
        "operators": [
            [
                *(o.name, o.kind, o.phase.value, *dump_call(o), o.flops, o.bytes_accessed, o.forward, o.module),
                *(o.source, o.in_place),
            ]
            for o in graph.operators
        ],
        "parameters": [asdict(p) for p in graph.parameters],
    }


def load_graph(stored: Mapping[str, Any]) -> TrainingGraph:
    """The graph that `dump_graph` stored. ValueError, TypeError or KeyError for other data."""
    tensors = tuple(
        Tensor(index=i, name=name, shape=tuple(shape), dtype=dtype, kind=TensorKind(kind), producer=producer)
        for i, (name, shape, dtype, kind, producer) in enumerate(stored["tensors"])
    )
    operators = []
    for i, row in enumerate(stored["operators"]):
        name, kind, phase, *stored_call = row[:7]
        flops, moved, forward, module, source, *in_place = row[7:]  # files of earlier versions lack the last
        call = load_call(*stored_call)
        operators.append(
            Operator(
                index=i,
                name=name,
                kind=kind,
                phase=Phase(phase),
                **call,
                flops=flops,
                bytes_accessed=moved,
                launches=counts.launches(kind, [tensors[t] for t in call["inputs"]], call["arguments"]),
                forward=forward,
                module=module,
                source=source,
                in_place=bool(in_place and in_place[0]),
            )
        )
    parts = {
        "tensors": tensors,
        "operators": tuple(operators),
        "inputs": tuple(stored["inputs"]),
        "checkpoints": tuple(tuple(region) for region in stored["checkpoints"]),
        "warnings": tuple(stored["warnings"]),
        "written": tuple(Written(name=name, tensor=t, value=v) for name, t, v in stored["written"]),
        "parameters": tuple(Parameter(**p) for p in stored["parameters"]),
    }
    return TrainingGraph(**{**stored, **parts})
