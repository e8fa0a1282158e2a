"""Layers as a chain: which node of a stage belongs to which layer, and which ranges are chains.

A layer may be a chain itself, of *blocks*: it is cut wherever one forward tensor alone goes on, as the residual stream
does between the halves of a transformer's block.

A range of layers is a chain when its layers touch their neighbours alone. What is read in layers that are not
neighbours breaks the chain if it is made in the range (a rotary table, a skip over two layers), or if it is a parameter
(a tied weight); if it comes from outside (a mask) it is a *constant*: a source that may as well be replicated, where no
reader gains by another spec.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from alpa_explore.graph import Phase, TensorKind
from alpa_explore.intra_op.factor_graph import Ints
from alpa_explore.intra_op.layered_graph import LayeredGraph
from alpa_explore.intra_op.liveness import workspace_intervals
from alpa_explore.intra_op.stage_graph import StageGraph
from alpa_explore.intra_op.stage_problem import NodeKind, StageProblem

CONSTANT = -1
"""In place of the layer of a constant."""
SMALLEST_BLOCK = 4
"""Forward operators; smaller blocks would cost more than they save."""

Place = tuple[int, int]
"""(layer, block)"""


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
    block_of: tuple[int, ...]
    """For each operator its block, counted in its layer."""
    _workspaces: dict[str, tuple[Ints, Ints, Ints]] = field(default_factory=dict, repr=False)
    """By structure; the same on every mesh."""

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

    def workspace(self, stage: StageGraph) -> tuple[Ints, Ints, Ints]:
        """Start, end, and place among the outputs of all operators, block after block, of what lives for a while."""
        if stage.structure_key not in self._workspaces:
            order = sorted(stage.operators, key=lambda o: (self.layered.layer_of[o], self.block_of[o], o))
            made = [tensor for o in order for tensor in self.layered.graph.operators[o].outputs]
            place = {tensor: i for i, tensor in enumerate(made)}
            intervals = workspace_intervals(stage)
            mine = [i for i, tensor in enumerate(intervals.tensors) if tensor in place]
            self._workspaces[stage.structure_key] = (
                intervals.starts[mine], intervals.ends[mine],
                np.array([place[intervals.tensors[i]] for i in mine], dtype=np.int64),
            )  # fmt: skip
        return self._workspaces[stage.structure_key]

    def places(self, problem: StageProblem) -> tuple[Place, ...]:
        """For each node its layer, as `owners`, and there the first block that it touches."""
        owners = self.owners(problem)
        far = len(self.block_of)
        blocks = [
            self.block_of[node.subject] if node.kind is NodeKind.OPERATOR else far for node in problem.nodes
        ]  # fmt: skip
        # A weight, its accumulator and its update go together; what is read in several layers counts in its own.
        first: dict[int, int] = {}
        for e in problem.edges:
            for v, u in ((e.a, e.b), (e.b, e.a)):
                operator = problem.nodes[u].kind is NodeKind.OPERATOR
                if problem.nodes[v].kind is not NodeKind.OPERATOR and operator and owners[u] == owners[v]:
                    name = _together(problem, v)
                    first[name] = min(first.get(name, far), blocks[u])
        return tuple(
            (k, block if block < far else first.get(_together(problem, v), 0))
            for v, (k, block) in enumerate(zip(owners, blocks, strict=True))
        )


def _together(problem: StageProblem, v: int) -> int:
    """A number that the nodes of one parameter share; another for each source."""
    node = problem.nodes[v]
    return -1 - v if node.kind is NodeKind.SOURCE else node.subject


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
        layered=layered, constants=frozenset(constants), breaks=frozenset(breaks), parameter_readers=tuple(readers),
        block_of=_blocks(layered, constants),
    )  # fmt: skip


def _far(layers: set[int]) -> set[tuple[int, int]]:
    """Pairs of layers that are not neighbours."""
    return {(a, b) for a in layers for b in layers if b >= a + 2}


def _spans(pair: tuple[int, int], layer: int) -> bool:
    return pair[0] <= layer <= pair[1]


def _blocks(layered: LayeredGraph, constants: Collection[int]) -> tuple[int, ...]:
    """For each operator the block of its layer; that of a backward operator is its forward operator's."""
    graph = layered.graph
    forward = [o for o in graph.operators if o.phase is Phase.FORWARD]
    # Storage -> where it is first there (made, or first read) and where it is last read.
    lives: dict[int, tuple[int, int]] = {}
    for i, operator in enumerate(forward):
        for tensor in (*operator.inputs, *operator.outputs):
            base = layered.storage[tensor]
            if graph.tensors[base].kind is not TensorKind.PARAMETER and tensor not in constants:
                lives[base] = (lives.get(base, (i, i))[0], i)
    crossing = np.zeros(len(forward) + 1, dtype=np.int64)
    for start, end in lives.values():
        crossing[start] += 1
        crossing[end] -= 1
    crossing = crossing.cumsum()
    found = [0] * len(graph.operators)
    block, length = 0, 0
    for i, operator in enumerate(forward):
        if i == 0 or layered.layer_of[operator.index] != layered.layer_of[forward[i - 1].index]:
            block, length = 0, 0
        elif crossing[i - 1] <= 1 and length >= SMALLEST_BLOCK:
            block, length = block + 1, 0
        found[operator.index] = block
        length += 1
    for operator in graph.operators:
        if operator.phase is Phase.BACKWARD and operator.forward is not None:
            found[operator.index] = found[operator.forward]
    return tuple(found)
