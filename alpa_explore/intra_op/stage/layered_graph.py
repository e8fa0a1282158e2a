"""The training graph cut into layers: the layer of every operator, what is held, and what is recomputed.

A rematerialised layer holds only the tensors that enter it; its backward pass first runs its forward operators again.
Any other layer holds every forward tensor that one of its backward operators reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from alpa_explore.cluster import Software
from alpa_explore.cost.fusion import fuse
from alpa_explore.graph import Operator, Phase, TensorKind, TrainingGraph
from alpa_explore.graph.counts import is_matrix_product
from alpa_explore.graph.low_precision import in_low_precision
from alpa_explore.sharding.spec_constraint import SpecConstraint

Place = TypeVar("Place", int, tuple[int, int])

UPDATE_LAYER = -1
"""The layer of every update-phase operator."""
_HELD_KINDS = (TensorKind.INPUT, TensorKind.VALUE, TensorKind.ROUTED)
"""Kinds of storage that can be held for the backward pass; weights and buffers are there anyway."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayeredGraph:
    """`graph` with its operators assigned to layers."""

    graph: TrainingGraph
    num_layers: int
    layer_of: tuple[int, ...]
    """For each operator its layer; UPDATE_LAYER for the update phase."""
    storage: tuple[int, ...]
    """For each tensor the tensor whose memory it shares: itself, or the first tensor of a chain of views."""
    rematerialized: tuple[int, ...]
    """Layers that hold only the tensors that enter them, ascending."""
    recomputed: frozenset[int]
    """Forward operators that the backward pass runs again."""
    uses: tuple[int, ...]
    """For each operator how often its outputs are read, in all layers together."""
    products: tuple[tuple[int | None, int | None], ...]
    """For each operator the matrix product that made its first output and the one that reads it, if any: itself where
    it is one; views in between do not count."""
    held: tuple[tuple[int, ...], ...]
    """For each layer the (storage) tensors held from its forward to its backward pass, ascending."""
    contributions: tuple[tuple[int, ...], ...]
    """For each of `graph.parameters` the backward tensors whose sum over uses and microbatches is its gradient."""
    spec_constraints: Mapping[int, tuple[SpecConstraint, ...]] = field(default_factory=dict)
    """Operator -> its spec constraints; most operators have none."""
    stored_constraints: Mapping[int, tuple[SpecConstraint, ...]] = field(default_factory=dict)
    """Position in `graph.parameters` -> the spec constraints on how it is stored."""


def assign_layers(
    graph: TrainingGraph,
    layer_of_forward: tuple[int, ...],
    rematerialized: Collection[int] | None = None,
    spec_constraints: Collection[SpecConstraint] = (),
    *,
    software: Software | None = None,
) -> LayeredGraph:
    """Extend a layering of the forward operators to the whole graph, mark what `software` computes in a lower
    precision, and fuse what it fuses.

    `rematerialized` are layers; by default all of them where `graph.rematerialization` is set, else none.
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
    move_sums(graph, layer_of)
    if software is not None and software.low_precision:
        graph = in_low_precision(graph, software.low_precision, heads=software.lowers_head)
    if software is not None and software.fuses_pointwise:
        graph = fuse(graph, layer_of)
    storage = _storage(graph)
    num_layers = max(layer_of_forward) + 1
    if rematerialized is None:
        rematerialized = range(num_layers) if graph.rematerialization else ()
    rematerialized_layers = frozenset(rematerialized)
    recomputed = _recomputed(graph, layer_of, rematerialized_layers)
    operator_names = {o.name for o in graph.operators}
    stored_names = {i: p.name for i, p in enumerate(graph.parameters) if p.name not in operator_names}
    return LayeredGraph(
        graph=graph,
        num_layers=num_layers,
        layer_of=tuple(layer_of),
        storage=storage,
        recomputed=recomputed,
        uses=_uses(graph),
        products=_products(graph),
        held=_held(graph, layer_of, storage, rematerialized_layers, recomputed),
        rematerialized=tuple(sorted(rematerialized_layers)),
        contributions=tuple(_contributions(graph, p.gradient) for p in graph.parameters),
        spec_constraints=_by_name({o.index: o.name for o in graph.operators}, spec_constraints),
        stored_constraints=_by_name(stored_names, spec_constraints),
    )


def move_sums(graph: TrainingGraph, places: list[Place]) -> None:
    """Move each sum of two gradients to the first place that computes a term of it, where both are later ones.

    Autograd adds the gradients of a tensor where the tensor was made; here a stage sends their sum, not every term.
    `places` are the layers of operators, or (block, layer).
    """
    for operator in graph.operators:
        if operator.phase is Phase.BACKWARD and operator.kind == "aten.add.Tensor" and len(operator.inputs) == 2:
            producers = [graph.tensors[t].producer for t in operator.inputs]
            terms = [places[p] for p in producers if p is not None and graph.operators[p].phase is Phase.BACKWARD]
            if len(terms) == 2 and places[operator.index] < min(terms):
                places[operator.index] = min(terms)


def _held(
    graph: TrainingGraph,
    layer_of: Sequence[int],
    storage: Sequence[int],
    rematerialized: frozenset[int],
    recomputed: frozenset[int],
) -> tuple[tuple[int, ...], ...]:
    """For each layer the storage tensors held from its forward to its backward pass, ascending."""
    held: list[set[int]] = [set() for _ in range(max(layer_of) + 1)]
    for operator in graph.operators:
        if operator.phase is Phase.UPDATE:
            continue
        reads_held = operator.phase is Phase.BACKWARD or operator.index in recomputed
        for tensor in operator.inputs if reads_held else ():
            kind, producer = graph.tensors[tensor].kind, graph.tensors[tensor].producer
            made_forward = producer is not None and graph.operators[producer].phase is Phase.FORWARD
            base = graph.tensors[storage[tensor]]
            if not (kind is TensorKind.INPUT or made_forward) or base.kind not in _HELD_KINDS:
                continue
            layer = layer_of[operator.index]
            if layer in rematerialized and producer is not None and layer_of[producer] == layer:
                continue  # recomputed from the inputs of the layer
            held[layer].add(base.index)
    return tuple(tuple(sorted(tensors)) for tensors in held)


def _by_name(
    names: Mapping[int, str], spec_constraints: Collection[SpecConstraint]
) -> dict[int, tuple[SpecConstraint, ...]]:
    """For each key in `names` whose name has constraints, those constraints."""
    constrained = {constraint.operator for constraint in spec_constraints}
    return {
        key: tuple(constraint for constraint in spec_constraints if constraint.operator == name)
        for key, name in names.items()
        if name in constrained
    }


def _uses(graph: TrainingGraph) -> tuple[int, ...]:
    uses = [0] * len(graph.operators)
    for operator in graph.operators:
        for tensor in operator.inputs:
            if (producer := graph.tensors[tensor].producer) is not None:
                uses[producer] += 1
    return tuple(uses)


def _products(graph: TrainingGraph) -> tuple[tuple[int | None, int | None], ...]:
    made: list[int | None] = []
    for operator in graph.operators:
        source = graph.tensors[operator.inputs[0]].producer if is_view(operator) else None
        made.append(operator.index if is_matrix_product(operator.kind) else None if source is None else made[source])
    read: list[int | None] = [None] * len(graph.operators)
    for operator in reversed(graph.operators):
        if is_matrix_product(operator.kind):
            read[operator.index] = operator.index
        elif is_view(operator):
            readers = (read[r] for r in graph.readers.get(operator.outputs[0], ()))
            read[operator.index] = next((r for r in readers if r is not None), None)
    return tuple(zip(made, read, strict=True))


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
    """The forward operators of `layers` on which backward operators of the same layer depend, directly or through other
    operators of that layer."""
    recomputed: set[int] = set()
    for operator in graph.operators:
        layer = layer_of[operator.index]
        if operator.phase is not Phase.BACKWARD or layer not in layers:
            continue
        stack = list(operator.inputs)
        while stack:
            producer = graph.tensors[stack.pop()].producer
            if producer is None or producer in recomputed or layer_of[producer] != layer:
                continue
            if graph.operators[producer].phase is Phase.FORWARD:
                recomputed.add(producer)
                stack.extend(graph.operators[producer].inputs)
    return frozenset(recomputed)


def _contributions(graph: TrainingGraph, gradient: int) -> tuple[int, ...]:
    """Backward tensors that are summed (update-phase adds) into `gradient`."""
    producer = graph.tensors[gradient].producer
    if producer is None or graph.operators[producer].phase is not Phase.UPDATE:
        return (gradient,)
    return tuple(t for read in graph.operators[producer].inputs for t in _contributions(graph, read))
