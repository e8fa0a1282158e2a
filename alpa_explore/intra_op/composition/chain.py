"""A graph in layers as a chain of blocks: which node of a stage is in which block, which ranges of layers are chains.

A range of layers is a chain when its blocks touch their neighbours alone. What is read far away breaks the chain if it
is made in the range (a rotary table, a skip over many layers), or if it is a parameter (a tied weight); if it comes
from outside (a mask) it is a *constant*: a source that may as well be replicated, where no reader gains by another
spec. A short skip over a layer (to the shortcut of a residual block) breaks nothing where one block holds its readers.

The graph is cut into *blocks* wherever one forward tensor alone goes on, as the residual stream does between the halves
of a transformer's block, and blocks touch their neighbours alone. Layers need not end there: a layer that ends between
the two products of an MLP divides a block into *fragments*, and a range that ends with that layer holds a part of the
block, a *run* of its fragments. Where more than MOST_ENDS layers would end in a block the chain is cut there anyway.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np

from alpa_explore.graph import Operator, Phase, TensorKind
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.intra_op.stage.liveness import workspace_intervals
from alpa_explore.intra_op.stage.stage_graph import StageGraph, StageSlicer, slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.numerics.arrays import Ints

CONSTANT = -1
"""In place of the block of a constant."""
MOST_ENDS = 2
"""Of layers, inside one block: a residual block may have a whole layer in its middle."""
SMALLEST_BLOCK = 4
"""Forward operators; smaller blocks would cost more than they save."""


class Run(NamedTuple):
    """Neighbouring fragments: a block, or what a range of layers holds of it."""

    block: int
    first: int
    """Fragments, both included."""
    last: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """A layered graph seen as a chain."""

    layered: LayeredGraph
    fragments: LayeredGraph
    """The same graph with fragments, counted through all layers, in place of layers; what is held stays what layers
    hold."""
    starts: tuple[int, ...]
    """For each layer its first fragment, and the number of fragments."""
    block_of: tuple[int, ...]
    """For each fragment its block."""
    stage_of: StageSlicer
    """(first fragment, last fragment) -> StageGraph, whose key says nothing of fragments."""
    constants: frozenset[int]
    """Tensors."""
    breaks: frozenset[tuple[int, int]]
    """(a, b): ranges that hold both layers, b ≥ a + 2, are no chains."""
    tied_alone: frozenset[tuple[int, int]]
    """Those of `breaks` where nothing but parameters is touched by both."""
    parameter_readers: tuple[frozenset[int], ...]
    """For each of `graph.parameters` the fragments that read it."""
    _workspaces: dict[str, tuple[Ints, Ints, Ints]] = field(default_factory=dict, repr=False)
    """By structure; the same on every mesh, as those below."""
    _runs: dict[tuple[int, int], tuple[Run, ...]] = field(default_factory=dict, repr=False)
    _tied_blocks: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict, repr=False)

    def holds(self, first: int, last: int) -> bool:
        """True when layers first..last are a chain."""
        return not any(first <= a and b <= last for a, b in self.breaks)

    def tied_blocks(self, runs: Sequence[Run]) -> frozenset[int]:
        """The blocks among these that touch a parameter, or a part of its gradient, that a block far from them touches;
        none where more than that breaks the chain."""
        ends = runs[0].first, runs[-1].last
        if ends not in self._tied_blocks:
            self._tied_blocks[ends] = self._tied(*ends)
        return self._tied_blocks[ends]

    def _tied(self, first: int, last: int) -> frozenset[int]:
        """`tied_blocks` of these fragments."""
        layers = [self.fragment_layers[f] for f in (first, last)]
        if any(layers[0] <= a and b <= layers[1] for a, b in self.breaks - self.tied_alone):
            return frozenset()
        graph, found = self.layered.graph, set[int]()
        for readers, grads in zip(self.parameter_readers, self.layered.contributions, strict=True):
            makers = (graph.tensors[t].producer for t in grads)
            touching = readers | {self.fragments.layer_of[m] for m in makers if m is not None} - {UPDATE_LAYER}
            blocks = {self.block_of[f] for f in touching if first <= f <= last}
            if blocks and max(blocks) - min(blocks) >= 2:
                found |= blocks
        return frozenset(found)

    @cached_property
    def fragment_layers(self) -> tuple[int, ...]:
        """Of each fragment its layer."""
        return tuple(bisect_right(self.starts, f) - 1 for f in range(self.starts[-1]))

    def runs(self, first: int, last: int) -> tuple[Run, ...]:
        """What layers first..last hold of each of their blocks, from left to right."""
        if (first, last) not in self._runs:
            fragments = range(self.starts[first], self.starts[last + 1])
            groups = [(block, list(here)) for block, here in groupby(fragments, key=self.block_of.__getitem__)]
            self._runs[first, last] = tuple(Run(block, here[0], here[-1]) for block, here in groups)
        return self._runs[first, last]

    def block_of_operator(self, index: int) -> int:
        """The block that an operator of the forward or backward phase is in."""
        return self.block_of[self.fragments.layer_of[index]]

    def owners(self, problem: StageProblem) -> tuple[int, ...]:
        """For each node of a stage, of layers or of fragments, its block: of an operator that which it is in, else the
        first that touches it here."""
        stage = problem.stage
        first, last = stage.first, stage.last
        if stage.layered is self.layered:
            first, last = self.starts[first], self.starts[last + 1] - 1
        found = [self.block_of[last] + 1] * len(problem.nodes)
        for v, node in enumerate(problem.nodes):
            if node.kind is NodeKind.OPERATOR:
                found[v] = self.block_of_operator(node.subject)
            elif node.kind is not NodeKind.SOURCE:
                found[v] = min(self.block_of[k] for k in self.parameter_readers[node.subject] if first <= k <= last)
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
            order = sorted(stage.operators, key=lambda o: (self.block_of_operator(o), o))
            made = [tensor for o in order for tensor in self.layered.graph.operators[o].outputs]
            place = {tensor: i for i, tensor in enumerate(made)}
            intervals = workspace_intervals(stage)
            mine = [i for i, tensor in enumerate(intervals.tensors) if tensor in place]
            self._workspaces[stage.structure_key] = (
                intervals.starts[mine],
                intervals.ends[mine],
                np.array([place[intervals.tensors[i]] for i in mine], dtype=np.int64),
            )
        return self._workspaces[stage.structure_key]


def chain_of(layered: LayeredGraph) -> Chain:
    """See the module's text."""
    graph = layered.graph
    touched = _touched(layered)
    short = _short(layered, touched)
    while True:
        constants, breaks, tied_alone = _layer_breaks(layered, touched, short)
        fragments, layer_of, block_of = _divided(layered, constants)
        if not short or not (apart := short & _apart(fragments, block_of)):
            break
        # Skips that no block holds: they break the chain as long ones do.
        short -= apart
    readers = (graph.readers.get(p.tensor, ()) for p in graph.parameters)
    return Chain(
        layered=layered,
        fragments=fragments,
        starts=tuple(bisect_left(layer_of, layer) for layer in range(layered.num_layers + 1)),
        stage_of=slice_stages(fragments, layers_apart=False),
        constants=constants,
        block_of=block_of,
        breaks=breaks,
        tied_alone=tied_alone,
        parameter_readers=tuple(frozenset(fragments.layer_of[r] for r in read) - {UPDATE_LAYER} for read in readers),
    )


def _divided(
    layered: LayeredGraph, constants: Collection[int]
) -> tuple[LayeredGraph, tuple[int, ...], tuple[int, ...]]:
    """The graph in fragments, and for each fragment its layer and its block."""
    places = _places(layered, constants)
    order = sorted({place for place in places if place is not None})
    number = {place: i for i, place in enumerate(order)}
    fragment_of = tuple(UPDATE_LAYER if place is None else number[place] for place in places)
    layer_of = tuple(layer for _, layer in order)
    held: list[set[int]] = [set() for _ in order]
    for operator in layered.graph.operators:
        if operator.phase is not Phase.UPDATE:
            here = {layered.storage[t] for t in (*operator.inputs, *operator.outputs)}
            held[fragment_of[operator.index]] |= here.intersection(layered.held[layered.layer_of[operator.index]])
    fragments = replace(
        layered, num_layers=len(order), layer_of=fragment_of, held=tuple(tuple(sorted(tensors)) for tensors in held)
    )
    return fragments, layer_of, _joined(fragments, [block for block, _ in order], layer_of, constants)


def _apart(fragments: LayeredGraph, block_of: Sequence[int]) -> set[int]:
    """Tensors that blocks touch which are no neighbours."""
    return {
        tensor
        for tensor, touching in _touched(fragments).items()
        if max(block_of[f] for f in touching) >= min(block_of[f] for f in touching) + 2
    }


def _touching(layered: LayeredGraph, part_of: Iterable[int]) -> dict[int, set[int]]:
    """For each tensor the parts (layers or blocks) whose operators read or make it."""
    found: dict[int, set[int]] = defaultdict(set)
    for operator, part in zip(layered.graph.operators, part_of, strict=True):
        if operator.phase is not Phase.UPDATE:
            for tensor in (*operator.inputs, *operator.outputs):
                found[tensor].add(part)
    return found


def _touched(layered: LayeredGraph) -> dict[int, set[int]]:
    """For each tensor the layers that read, make or hold it."""
    found = _touching(layered, layered.layer_of)
    # What a layer holds for its backward pass may be stored elsewhere, as the base of a view.
    for layer, tensors in enumerate(layered.held):
        for tensor in tensors:
            found[tensor].add(layer)
    return found


def _short(layered: LayeredGraph, touched: Mapping[int, set[int]]) -> set[int]:
    """What is made in a layer and read behind the next, but not much farther: a block may hold all of it."""
    tensors = layered.graph.tensors
    return {
        tensor
        for tensor, layers in touched.items()
        if tensors[tensor].producer is not None and 2 <= max(layers) - min(layers) <= MOST_ENDS
    }


def _layer_breaks(
    layered: LayeredGraph, touched: Mapping[int, set[int]], short: Collection[int]
) -> tuple[frozenset[int], frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
    """Constants, pairs of layers that are not neighbours and touch the same, and those that touch the same parameters
    alone; `short` skips are none of these."""
    graph = layered.graph
    parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
    constants: set[int] = set()
    breaks: set[tuple[int, int]] = set()
    tied: set[tuple[int, int]] = set()
    for tensor, layers in touched.items():
        producer = graph.tensors[tensor].producer
        if graph.tensors[tensor].kind is TensorKind.PARAMETER and tensor in parameter_at:
            tied |= _far(layers | _summed_in(layered, parameter_at[tensor], layered.layer_of))
        elif _far(layers) and tensor not in short:
            constants.add(tensor)
            if producer is not None:
                maker = layered.layer_of[producer]
                breaks |= {(a, b) for a, b in _far(layers | {maker}) if a <= maker <= b}
    return frozenset(constants), frozenset(breaks | tied), frozenset(tied - breaks)


def _summed_in(layered: LayeredGraph, parameter: int, part_of: tuple[int, ...]) -> set[int]:
    """The parts that make the gradients of a parameter."""
    makers = (layered.graph.tensors[t].producer for t in layered.contributions[parameter])
    return {part_of[maker] for maker in makers if maker is not None} - {UPDATE_LAYER}


def _far(parts: set[int]) -> set[tuple[int, int]]:
    """Pairs that are not neighbours."""
    return {(a, b) for a in parts for b in parts if b >= a + 2}


def _places(layered: LayeredGraph, constants: Collection[int]) -> list[tuple[int, int] | None]:
    """(block, layer) of every operator; that of a backward operator is its forward operator's."""
    graph = layered.graph
    forward = [o for o in graph.operators if o.phase is Phase.FORWARD]
    layer_of = [layered.layer_of[o.index] for o in forward]
    found: list[tuple[int, int] | None] = [None] * len(graph.operators)
    cuts = _cuts(_crossing(layered, forward, constants), layer_of)
    for i, operator in enumerate(forward):
        found[operator.index] = bisect_right(cuts, i), layer_of[i]
    for operator in graph.operators:
        if operator.phase is Phase.BACKWARD and operator.forward is not None:
            found[operator.index] = found[operator.forward]
    return found


def _crossing(layered: LayeredGraph, forward: Sequence[Operator], constants: Collection[int]) -> Ints:
    """How many forward tensors live on before each operator, views and what they start from counted once."""
    graph = layered.graph
    # Storage -> where it is first there (made, or first read) and where it is last read.
    lives: dict[int, tuple[int, int]] = {}
    for i, operator in enumerate(forward):
        for tensor in (*operator.inputs, *operator.outputs):
            base = layered.storage[tensor]
            if graph.tensors[base].kind is not TensorKind.PARAMETER and tensor not in constants:
                lives[base] = (lives.get(base, (i, i))[0], i)
    change = np.zeros(len(forward) + 2, dtype=np.int64)
    for start, end in lives.values():
        change[start + 1] += 1
        change[end + 1] -= 1
    return change.cumsum()


def _cuts(crossing: Ints, layer_of: Sequence[int]) -> list[int]:
    """The forward operators that begin a block, but for the first."""
    ends = [i for i in range(1, len(layer_of)) if layer_of[i] != layer_of[i - 1]]
    narrow = [i for i in range(len(layer_of) + 1) if crossing[i] <= 1]
    found = []
    start = 0
    for i in range(1, len(layer_of)):
        if crossing[i] <= 1:
            # At the end of a layer always: what stages have between them is one tensor.
            if i not in ends and i - start < SMALLEST_BLOCK:
                continue
        elif i not in ends or _straddled(i, narrow, ends):
            continue
        found.append(i)
        start = i
    return found


def _straddled(end: int, narrow: Sequence[int], ends: Sequence[int]) -> bool:
    """Whether the chain can be cut before and after this end of a layer instead, with one tensor going on, and few
    layers end between."""
    place = bisect_left(narrow, end)
    if place in (0, len(narrow)):
        return False
    return bisect_left(ends, narrow[place]) - bisect_right(ends, narrow[place - 1]) <= MOST_ENDS


def _joined(
    fragments: LayeredGraph, block_of: Sequence[int], layer_of: Sequence[int], constants: Collection[int]
) -> tuple[int, ...]:
    """For each fragment its block; blocks that something passes over are joined."""
    graph, fragment_of = fragments.graph, fragments.layer_of
    joined = list(block_of)
    parameter_at = {p.tensor: i for i, p in enumerate(graph.parameters)}
    groups = []
    for tensor, touching in _touching(fragments, fragment_of).items():
        if tensor in parameter_at:
            touching |= _summed_in(fragments, parameter_at[tensor], fragment_of)
        if tensor in constants:
            # Only where it is made it is no constant.
            producer = graph.tensors[tensor].producer
            made = -2 if producer is None else layer_of[fragment_of[producer]]
            touching = {f for f in touching if abs(layer_of[f] - made) <= 1}
        groups.append(sorted(touching))
    changed = True
    while changed:
        changed = False
        for group in groups:
            for a in group:
                for b in group:
                    if joined[b] < joined[a] + 2 or layer_of[b] - layer_of[a] > 1:
                        continue
                    changed = True
                    for low, high in _together(joined, layer_of, a, b):
                        _join(joined, low, high)
    return tuple(joined)


def _together(joined: Sequence[int], layer_of: Sequence[int], a: int, b: int) -> list[tuple[int, int]]:
    """The blocks to join so that those of fragments a and b, of one layer or of two that are neighbours, become
    neighbours."""
    end = max(f for f, layer in enumerate(layer_of) if layer == layer_of[a])
    if layer_of[a] == layer_of[b] or joined[end] == joined[end + 1]:
        return [(joined[a] + 1, joined[b])]
    # The cut between the layers stays.
    return [(joined[a], joined[end]), (joined[end + 1], joined[b])]


def _join(joined: list[int], low: int, high: int) -> None:
    """Blocks low..high become one; blocks are numbered without gaps."""
    for i, block in enumerate(joined):
        joined[i] = block if block <= low else max(low, block - (high - low))
