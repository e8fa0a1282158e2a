"""The training graph cut into layers: which layer every operator is in, what is held, what is computed twice.

Of a layer that is rematerialised only what enters it is held for the backward pass, which first runs its forward
operators again. Of another every forward tensor that a backward operator reads is held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from alpa_explore.graph import Operator, Phase, TensorKind, TrainingGraph
from alpa_explore.sharding.spec_constraint import SpecConstraint

UPDATE_LAYER = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class LayeredGraph:
    """`graph` with its operators assigned to layers."""

    graph: TrainingGraph
    num_layers: int
    layer_of: tuple[int, ...]
    """For each operator its layer; UPDATE_LAYER for the update phase."""
    storage: tuple[int, ...]
    """For each tensor the tensor whose memory it shares: itself, or what a chain of views starts from."""
    rematerialized: tuple[int, ...]
    """Layers that hold no more than what enters them, ascending."""
    recomputed: frozenset[int]
    """Forward operators that the backward pass runs again."""
    uses: tuple[int, ...]
    """For each operator how often its outputs are read, in whatever layer."""
    held: tuple[tuple[int, ...], ...]
    """For each layer the (storage) tensors held from its forward to its backward pass, ascending."""
    contributions: tuple[tuple[int, ...], ...]
    """For each of `graph.parameters` the backward tensors whose sum over uses and microbatches is its gradient."""
    spec_constraints: Mapping[int, tuple[SpecConstraint, ...]] = field(default_factory=dict)
    """Operator -> its spec constraints; most have none."""
    stored_constraints: Mapping[int, tuple[SpecConstraint, ...]] = field(default_factory=dict)
    """Position in `graph.parameters` -> the spec constraints on how it is stored."""


def assign_layers(
    graph: TrainingGraph,
    layer_of_forward: tuple[int, ...],
    rematerialized: Collection[int] | None = None,
    spec_constraints: Collection[SpecConstraint] = (),
) -> LayeredGraph:
    """Carry layering over from forward operators to the whole graph.

    `rematerialized` names layers; where it is left out the graph says whether all of them are, or none.
    """
    layer_of = []
    for operator in graph.operators:
        if operator.phase is Phase.FORWARD:
            layer_of.append(layer_of_forward[operator.index])
        elif operator.phase is Phase.BACKWARD:
            assert operator.forward is not None
            layer_of.append(layer_of_forward[operator.forward])
        else:
            layer_of.append(UPDATE_LAYER)
    storage = _storage(graph)
    num_layers = max(layer_of_forward) + 1
    if rematerialized is None:
        rematerialized = range(num_layers) if graph.rematerialization else ()
    leaning = frozenset(rematerialized)
    recomputed = _recomputed(graph, layer_of, leaning)
    held: list[set[int]] = [set() for _ in range(num_layers)]
    for operator in graph.operators:
        if operator.phase is Phase.UPDATE:
            continue
        reads_held = operator.phase is Phase.BACKWARD or operator.index in recomputed
        for tensor in operator.inputs if reads_held else ():
            kind, producer = graph.tensors[tensor].kind, graph.tensors[tensor].producer
            made_forward = producer is not None and graph.operators[producer].phase is Phase.FORWARD
            base = graph.tensors[storage[tensor]]
            if not (kind is TensorKind.INPUT or made_forward) or base.kind not in (TensorKind.INPUT, TensorKind.VALUE):
                continue
            layer = layer_of[operator.index]
            if layer in leaning and producer is not None and layer_of[producer] == layer:
                continue  # made again from what the layer reads
            held[layer].add(base.index)
    operators = {o.name for o in graph.operators}
    stored = {i: p.name for i, p in enumerate(graph.parameters) if p.name not in operators}
    return LayeredGraph(
        graph=graph,
        num_layers=num_layers,
        layer_of=tuple(layer_of),
        storage=storage,
        recomputed=recomputed,
        uses=_uses(graph),
        held=tuple(tuple(sorted(h)) for h in held),
        rematerialized=tuple(sorted(leaning)),
        contributions=tuple(_contributions(graph, p.gradient) for p in graph.parameters),
        spec_constraints=_by_name({o.index: o.name for o in graph.operators}, spec_constraints),
        stored_constraints=_by_name(stored, spec_constraints),
    )


def _by_name(
    names: Mapping[int, str], spec_constraints: Collection[SpecConstraint]
) -> dict[int, tuple[SpecConstraint, ...]]:
    named = {constraint.operator for constraint in spec_constraints}
    return {i: tuple(w for w in spec_constraints if w.operator == name) for i, name in names.items() if name in named}


def _uses(graph: TrainingGraph) -> tuple[int, ...]:
    found = [0] * len(graph.operators)
    for operator in graph.operators:
        for tensor in operator.inputs:
            if (producer := graph.tensors[tensor].producer) is not None:
                found[producer] += 1
    return tuple(found)


def is_view(operator: Operator) -> bool:
    """True for an operator that moves no bytes: its output shares the memory of its first input."""
    return operator.bytes_accessed == 0 and operator.flops == 0 and len(operator.outputs) == 1 and bool(operator.inputs)


def _storage(graph: TrainingGraph) -> tuple[int, ...]:
    storage = list(range(len(graph.tensors)))
    for operator in graph.operators:
        if is_view(operator):
            storage[operator.outputs[0]] = storage[operator.inputs[0]]
    return tuple(storage)


def _recomputed(graph: TrainingGraph, layer_of: list[int], layers: frozenset[int]) -> frozenset[int]:
    """Of these layers the forward operators that backward operators of the same layer need, directly or through others
    of that layer."""
    found: set[int] = set()
    for operator in graph.operators:
        layer = layer_of[operator.index]
        if operator.phase is not Phase.BACKWARD or layer not in layers:
            continue
        todo = list(operator.inputs)
        while todo:
            producer = graph.tensors[todo.pop()].producer
            if producer is None or producer in found or layer_of[producer] != layer:
                continue
            if graph.operators[producer].phase is Phase.FORWARD:
                found.add(producer)
                todo.extend(graph.operators[producer].inputs)
    return frozenset(found)


def _contributions(graph: TrainingGraph, gradient: int) -> tuple[int, ...]:
    """Backward tensors that are summed (update-phase adds) into `gradient`."""
    producer = graph.tensors[gradient].producer
    if producer is None or graph.operators[producer].phase is not Phase.UPDATE:
        return (gradient,)
    return tuple(t for read in graph.operators[producer].inputs for t in _contributions(graph, read))
