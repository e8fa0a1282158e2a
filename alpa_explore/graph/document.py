"""A graph as plain lists for files, without pickle: `load_graph(dump_graph(g)) == g`, and reading runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from alpa_explore.graph import counts
from alpa_explore.graph.graph import Parameter, TrainingGraph
from alpa_explore.graph.operator import Argument, Operator, Phase, Ref, Symbol
from alpa_explore.graph.tensor import Tensor, TensorKind

_REF, _SYMBOL, _TUPLE = "ref", "symbol", "tuple"


def dump_graph(graph: TrainingGraph) -> dict[str, Any]:
    """The graph as JSON data; tensors and operators are rows, parameters are objects."""
    whole = {f.name: getattr(graph, f.name) for f in fields(TrainingGraph)}
    return {
        **whole,
        "inputs": list(graph.inputs),
        "warnings": list(graph.warnings),
        "tensors": [[t.name, list(t.shape), t.dtype, t.kind.value, t.producer] for t in graph.tensors],
        "operators": [
            [
                o.name,
                o.kind,
                o.phase.value,
                list(o.inputs),
                list(o.outputs),
                [_dump(a) for a in o.arguments],
                [[name, _dump(a)] for name, a in o.keywords],
                o.flops,
                o.bytes_accessed,
                o.forward,
                o.module,
                o.source,
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
        name, kind, phase, inputs, outputs, arguments, keywords, flops, moved, forward, module, source = row
        operators.append(
            Operator(
                index=i,
                name=name,
                kind=kind,
                phase=Phase(phase),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                arguments=tuple(_load(a) for a in arguments),
                keywords=tuple((n, _load(a)) for n, a in keywords),
                flops=flops,
                bytes_accessed=moved,
                launches=counts.steps(kind, [tensors[t] for t in inputs]),
                forward=forward,
                module=module,
                source=source,
            )
        )
    parts = {
        "tensors": tensors,
        "operators": tuple(operators),
        "inputs": tuple(stored["inputs"]),
        "warnings": tuple(stored["warnings"]),
        "parameters": tuple(Parameter(**p) for p in stored["parameters"]),
    }
    return TrainingGraph(**{**stored, **parts})


def _dump(argument: Argument) -> Any:
    if isinstance(argument, Ref):
        return [_REF, argument.tensor]
    if isinstance(argument, Symbol):
        return [_SYMBOL, argument.kind, argument.value]
    if isinstance(argument, tuple):
        return [_TUPLE, *map(_dump, argument)]
    return argument


def _load(argument: Any) -> Argument:
    if not isinstance(argument, list):
        scalar: Argument = argument
        return scalar
    kind, *rest = argument
    if kind == _REF:
        return Ref(*rest)
    if kind == _SYMBOL:
        return Symbol(*rest)
    if kind == _TUPLE:
        return tuple(map(_load, rest))
    raise ValueError(f"unknown kind of argument: {kind!r}")
