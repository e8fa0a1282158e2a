"""Layers as a chain of blocks: which node of a stage belongs to which block, and which ranges of layers are chains.

A range of layers is a chain when its layers touch their neighbours alone. What is read in layers that are not
neighbours breaks the chain if it is made in the range (a rotary table, a skip over two layers), or if it is a parameter
(a tied weight); if it comes from outside (a mask) it is a *constant*: a source that may as well be replicated, where no
reader gains by another spec.

A layer is a chain itself, of *blocks*: it is cut wherever one forward tensor alone goes on, as the residual stream does
between the halves of a transformer's block. Blocks touch their neighbours alone, within a layer and across its ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from alpa_explore.graph import Phase, TensorKind
from alpa_explore.intra_op.factor_graph import Ints
from alpa_explore.intra_op.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.intra_op.liveness import workspace_intervals
from alpa_explore.intra_op.stage_graph import StageGraph, slice_stages
from alpa_explore.intra_op.stage_problem import NodeKind, StageProblem

CONSTANT = -1
"""In place of the block of a constant."""
SMALLEST_BLOCK = 4
"""Forward operators; smaller blocks would cost more than they save."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chain:
    """A layered graph seen as a chain."""

    layered: LayeredGraph
    blocks: LayeredGraph
    """The same graph with blocks, counted through all layers, in place of layers; what is held stays what layers
    hold."""
    starts: tuple[int, ...]
    """For each layer its first block, and the number of blocks."""
    stage_of: Callable[[int, int], StageGraph]
    """(first block, last block) -> StageGraph."""
    constants: frozenset[int]
    """Tensors."""
    breaks: frozenset[tuple[int, int]]
    """(a, b): ranges that hold both layers, b ≥ a + 2, are no chains."""
    parameter_readers: tuple[frozenset[int], ...]
    """For each of `graph.parameters` the blocks that read it."""
    _workspaces: dict[str, tuple[Ints, Ints, Ints]] = field(default_factory=dict, repr=False)
    """By structure; the same on every mesh."""

    def holds(self, first: int, last: int) -> bool:
        """True when layers first..last are a chain."""
        return not any(first <= a and b <= last for a, b in self.breaks)

    def layer_of(self, block: int) -> int:
        """The layer that holds a block."""
        return bisect_right(self.starts, block) - 1

    def owners(self, problem: StageProblem) -> tuple[int, ...]:
        """For each node of a stage, of layers or of blocks, its block: of an operator that which it is in, else the
        first that touches it here."""
        stage = problem.stage
        first, last = stage.first, stage.last
        if stage.layered is self.layered:
            first, last = self.starts[first], self.starts[last + 1] - 1
        found = [last + 1] * len(problem.nodes)
        for v, node in enumerate(problem.nodes):
            if node.kind is NodeKind.OPERATOR:
                found[v] = self.blocks.layer_of[node.subject]
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
            order = sorted(stage.operators, key=lambda o: (self.blocks.layer_of[o], o))
            made = [tensor for o in order for tensor in self.layered.graph.operators[o].outputs]
            place = {tensor: i for i, tensor in enumerate(made)}
            intervals = workspace_intervals(stage)
            mine = [i for i, tensor in enumerate(intervals.tensors) if tensor in place]
            self._workspaces[stage.structure_key] = (
                intervals.starts[mine], intervals.ends[mine],
                np.array([place[intervals.tensors[i]] for i in mine], dtype=np.int64),
            )  # fmt: skip
        return self._workspaces[stage.structure_key]


def chain_of(layered: LayeredGraph) -> Chain:
    """See the module's text."""
    graph = layered.graph
    constants, breaks = _layer_breaks(layered)
    block_of = _joined(layered, _cuts(layered, constants), constants)
    starts = [0] * (layered.num_layers + 1)
    for index, block in enumerate(block_of):
        if block != UPDATE_LAYER:
            layer = layered.layer_of[index]
            starts[layer + 1] = max(starts[layer + 1], block + 1)
    held: list[set[int]] = [set() for _ in range(starts[-1])]
    for operator in graph.operators:
        if operator.phase is not Phase.UPDATE:
            here = {layered.storage[t] for t in (*operator.inputs, *operator.outputs)}
            held[block_of[operator.index]] |= here.intersection(layered.held[layered.layer_of[operator.index]])
    blocks = replace(
        layered, num_layers=starts[-1], layer_of=block_of, held=tuple(tuple(sorted(tensors)) for tensors in held)
    )
    parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
    readers: list[set[int]] = [set() for _ in graph.parameters]
    for tensor, touching in _touching(layered, block_of).items():
        if tensor in parameter_at:
            readers[parameter_at[tensor]] = touching
    return Chain(
        layered=layered, blocks=blocks, starts=tuple(starts), stage_of=slice_stages(blocks), constants=constants,
        breaks=breaks, parameter_readers=tuple(frozenset(blocks) for blocks in readers),
    )  # fmt: skip


def _touching(layered: LayeredGraph, part_of: Iterable[int]) -> dict[int, set[int]]:
    """For each tensor the parts (layers or blocks) whose operators read or make it."""
    found: dict[int, set[int]] = defaultdict(set)
    for operator, part in zip(layered.graph.operators, part_of, strict=True):
        if operator.phase is not Phase.UPDATE:
            for tensor in (*operator.inputs, *operator.outputs):
                found[tensor].add(part)
    return found


def _layer_breaks(layered: LayeredGraph) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    """Constants, and pairs of layers that are not neighbours and touch the same."""
    graph = layered.graph
    touched = _touching(layered, layered.layer_of)
    # What a layer holds for its backward pass may be stored elsewhere, as the base of a view.
    for layer, tensors in enumerate(layered.held):
        for tensor in tensors:
            touched[tensor].add(layer)
    parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
    constants: set[int] = set()
    breaks: set[tuple[int, int]] = set()
    for tensor, layers in touched.items():
        producer = graph.tensors[tensor].producer
        if graph.tensors[tensor].kind is TensorKind.PARAMETER and tensor in parameter_at:
            breaks |= _far(layers | _summed_in(layered, parameter_at[tensor], layered.layer_of))
        elif _far(layers):
            constants.add(tensor)
            if producer is not None:
                maker = layered.layer_of[producer]
                breaks |= {(a, b) for a, b in _far(layers | {maker}) if a <= maker <= b}
    return frozenset(constants), frozenset(breaks)


def _summed_in(layered: LayeredGraph, parameter: int, part_of: tuple[int, ...]) -> set[int]:
    """The parts that make the gradients of a parameter."""
    makers = (layered.graph.tensors[t].producer for t in layered.contributions[parameter])
    return {part_of[maker] for maker in makers if maker is not None} - {UPDATE_LAYER}


def _far(parts: set[int]) -> set[tuple[int, int]]:
    """Pairs that are not neighbours."""
    return {(a, b) for a in parts for b in parts if b >= a + 2}


def _cuts(layered: LayeredGraph, constants: Collection[int]) -> list[tuple[int, int]]:
    """(layer, block of the layer) of every operator, cut where one forward tensor alone goes on; that of a backward
    operator is its forward operator's."""
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
    found = [(UPDATE_LAYER, 0)] * len(graph.operators)
    layer, block, length = -1, 0, 0
    for i, operator in enumerate(forward):
        if layered.layer_of[operator.index] != layer:
            layer, block, length = layered.layer_of[operator.index], 0, 0
        elif crossing[i - 1] <= 1 and length >= SMALLEST_BLOCK:
            block, length = block + 1, 0
        found[operator.index] = layer, block
        length += 1
    for operator in graph.operators:
        if operator.phase is Phase.BACKWARD and operator.forward is not None:
            found[operator.index] = found[operator.forward]
    return found


def _joined(layered: LayeredGraph, places: list[tuple[int, int]], constants: Collection[int]) -> tuple[int, ...]:
    """For each operator its block, counted through all layers; those that something passes over are joined."""
    order = sorted({place for place in places if place[0] != UPDATE_LAYER})
    number = {place: i for i, place in enumerate(order)}
    layer_of_block = [layer for layer, _ in order]
    fine = [number.get(place, UPDATE_LAYER) for place in places]
    joined = list(range(len(order)))
    """For each cut-out block the one that it is part of: runs of blocks of a layer, numbered without gaps."""
    parameter_at = {p.tensor: i for i, p in enumerate(layered.graph.parameters)}
    groups = []
    for tensor, touching in _touching(layered, fine).items():
        if tensor in parameter_at:
            touching |= _summed_in(layered, parameter_at[tensor], tuple(fine))
        if tensor in constants:
            # Only where it is made it is no constant.
            producer = layered.graph.tensors[tensor].producer
            made = -2 if producer is None else layered.layer_of[producer]
            touching = {b for b in touching if abs(layer_of_block[b] - made) <= 1}
        groups.append(sorted(touching))
    changed = True
    while changed:
        changed = False
        for group in groups:
            for a in group:
                for b in group:
                    layers = layer_of_block[b] - layer_of_block[a]
                    if joined[b] < joined[a] + 2 or layers > 1:
                        continue
                    changed = True
                    for low, high in _runs(layer_of_block, a, b):
                        _join(joined, low, high)
    return tuple(UPDATE_LAYER if block == UPDATE_LAYER else joined[block] for block in fine)


def _runs(layer_of_block: list[int], a: int, b: int) -> list[tuple[int, int]]:
    """What to join so that a and b, of one layer or of two that are neighbours, become neighbours."""
    if layer_of_block[a] == layer_of_block[b]:
        return [(a + 1, b)]
    end = max(i for i, layer in enumerate(layer_of_block) if layer == layer_of_block[a])
    return [(a, end), (end + 1, b)]


def _join(joined: list[int], low: int, high: int) -> None:
    """Blocks low..high become one."""
    first, gone = joined[low], joined[high] - joined[low]
    for i, block in enumerate(joined):
        joined[i] = block if block <= first else max(first, block - gone)
