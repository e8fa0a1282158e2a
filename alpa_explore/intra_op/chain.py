"""Layers as a chain: which node of a stage belongs to which layer, and which ranges are chains.

A range of layers is a chain when its layers touch their neighbours alone. What is read in layers that are not
neighbours breaks the chain if it is made in the range (a rotary table, a skip over two layers), or if it is a parameter
(a tied weight); if it comes from outside (a mask) it is a *constant*: a source that may as well be replicated, where no
reader gains by another spec.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from alpa_explore.graph import Phase, TensorKind
from alpa_explore.intra_op.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage_problem import NodeKind, StageProblem

CONSTANT = -1
"""In place of the layer of a constant."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chain:
    """A layered graph seen as a chain."""

    layered: LayeredGraph
    constants: frozenset[int]
    """Tensors."""
    breaks: frozenset[tuple[int, int]]
    """(a, b): ranges that hold both layers, b ≥ a + 2, are no chains."""
    parameter_readers: tuple[frozenset[int], ...]
    """For each of `graph.parameters` the layers that read it."""

    def holds(self, first: int, last: int) -> bool:
        """True when layers first..last are a chain."""
        return not any(first <= a and b <= last for a, b in self.breaks)

    def owners(self, problem: StageProblem) -> tuple[int, ...]:
        """For each node its layer: of an operator that which it is in, else the first that reads it here."""
        first, last = problem.stage.first, problem.stage.last
        found = [last + 1] * len(problem.nodes)
        for v, node in enumerate(problem.nodes):
            if node.kind is NodeKind.OPERATOR:
                found[v] = self.layered.layer_of[node.subject]
            elif node.kind is not NodeKind.SOURCE:
                found[v] = min(k for k in self.parameter_readers[node.subject] if first <= k <= last)
            elif node.subject in self.constants:
                found[v] = CONSTANT
        for edge in problem.edges:
            a = problem.nodes[edge.a]
            if a.kind is NodeKind.SOURCE and a.subject not in self.constants:
                found[edge.a] = min(found[edge.a], found[edge.b])
        return tuple(found)


def chain_of(layered: LayeredGraph) -> Chain:
    """See the module's text."""
    graph = layered.graph
    touched: dict[int, set[int]] = defaultdict(set)
    maker: dict[int, int] = {}
    for operator in graph.operators:
        if operator.phase is Phase.UPDATE:
            continue
        layer = layered.layer_of[operator.index]
        for tensor in operator.inputs:
            touched[tensor].add(layer)
        for tensor in operator.outputs:
            maker[tensor] = layer
            touched[tensor].add(layer)
    # What a layer holds for its backward pass may be stored elsewhere, as the base of a view.
    for layer, tensors in enumerate(layered.held):
        for tensor in tensors:
            touched[tensor].add(layer)
    parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
    readers: list[frozenset[int]] = [frozenset()] * len(graph.parameters)
    constants: set[int] = set()
    breaks: set[tuple[int, int]] = set()
    for tensor, layers in touched.items():
        if graph.tensors[tensor].kind is TensorKind.PARAMETER and tensor in parameter_at:
            position = parameter_at[tensor]
            readers[position] = frozenset(layers)
            for gradient in layered.contributions[position]:
                layers |= {maker[gradient]} if gradient in maker else set()
            breaks |= _far(layers)
        elif _far(layers):
            constants.add(tensor)
            if tensor in maker:
                breaks |= {pair for pair in _far(layers | {maker[tensor]}) if _spans(pair, maker[tensor])}
    return Chain(
        layered=layered, constants=frozenset(constants), breaks=frozenset(breaks), parameter_readers=tuple(readers)
    )


def _far(layers: set[int]) -> set[tuple[int, int]]:
    """Pairs of layers that are not neighbours."""
    return {(a, b) for a in layers for b in layers if b >= a + 2}


def _spans(pair: tuple[int, int], layer: int) -> bool:
    return pair[0] <= layer <= pair[1]
