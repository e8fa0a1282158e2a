"""A training graph as text, one line an operator: identical from run to run, for golden files and for reading."""

from __future__ import annotations

from alpa_explore import units
from alpa_explore.graph.graph import TrainingGraph
from alpa_explore.graph.operator import Argument, Operator, Phase, Ref, Symbol
from alpa_explore.graph.tensor import GIVEN_KINDS, Tensor


def to_text(graph: TrainingGraph, *, sources: bool = False) -> str:
    """The whole graph as text; `sources` adds the source line that called each operator (which changes with the
    file)."""
    lines = [
        f"graph {graph.name}: {len(graph.operators)} operators, {graph.parameter_count} parameters, "
        f"{graph.samples} samples, {graph.tokens} tokens, {graph.precision}, {graph.optimizer}",
        "inputs",
        *(f"  {_declare(graph.tensors[t])}" for t in graph.inputs),
        "parameters",
        *(f"  {_declare(graph.tensors[p.tensor])} gradient {graph.tensors[p.gradient].name}" for p in graph.parameters),
    ]
    held = [t for t in graph.tensors if t.producer is None and t.kind in GIVEN_KINDS]
    if held:
        lines += ["held", *(f"  {_declare(t)} ({t.kind.value})" for t in held)]
    for phase in Phase:
        lines.append(phase.value)
        lines += [f"  {_line(graph, o, sources)}" for o in graph.operators if o.phase is phase]
    lines.append(f"loss {graph.tensors[graph.loss].name}")
    lines += [f"warning {w}" for w in graph.warnings]
    return "\n".join(lines) + "\n"


def _declare(tensor: Tensor) -> str:
    return f"{tensor.name}: {tensor.dtype}{list(tensor.shape)}"


def _line(graph: TrainingGraph, operator: Operator, sources: bool) -> str:
    outputs = ", ".join(_declare(graph.tensors[t]) for t in operator.outputs)
    parts = [_argument(graph, a) for a in operator.arguments]
    parts += [f"{name}={_argument(graph, a)}" for name, a in operator.keywords]
    notes = []
    if operator.flops:
        notes.append(units.flops(operator.flops))
    if operator.forward is not None:
        notes.append(f"of {graph.operators[operator.forward].name}")
    if operator.module:
        notes.append(f"in {operator.module}")
    if sources and operator.source:
        notes.append(f"at {operator.source}")
    return f"{outputs} = {operator.kind}({', '.join(parts)})" + (f"  # {', '.join(notes)}" if notes else "")


def _argument(graph: TrainingGraph, argument: Argument) -> str:
    if isinstance(argument, Ref):
        return graph.tensors[argument.tensor].name
    if isinstance(argument, Symbol):
        return argument.value
    if isinstance(argument, tuple):
        return "[" + ", ".join(_argument(graph, a) for a in argument) + "]"
    return repr(argument)
