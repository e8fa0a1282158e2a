"""A graph in layers as a chain of blocks: which block each node of a stage is in, which layer ranges are chains.

A layer range is a chain when each of its blocks has edges to adjacent blocks only. A tensor that is read far away
breaks the chain if it is made in the range (a skip over many layers) or if it is a parameter (a tied weight). If it
comes from outside the range (a mask) it is a *constant*: a source that may as well be replicated where no reader gains
by another spec. So is every table (`table_operators`), which is whole on every device. A short skip over a layer (to
the shortcut of a residual block) breaks nothing where one block holds its readers. How the graph is cut into blocks is
in `chain_blocks`.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np

from alpa_explore.intra_op.composition.chain_blocks import (
    breaking_tensors,
    cut_into_blocks,
    layers_touching,
    short_skips,
    skipped_over,
)
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.intra_op.stage.liveness import Intervals, workspace_intervals
from alpa_explore.intra_op.stage.stage_graph import StageGraph, StageSlicer, slice_stages
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem
from alpa_explore.numerics.arrays import Ints, entries_of_runs

NO_BLOCK = -1
"""In place of the block of a constant."""


class BlockPart(NamedTuple):
    """A block, or the part of it that a layer range holds: consecutive fragments."""

    block: int
    first: int
    """Fragments, both included."""
    last: int


Place = tuple[BlockPart | None, BlockPart, BlockPart | None]
"""A block between its neighbours in a stage; None at an end of the stage."""


def placed(parts: Sequence[BlockPart]) -> list[Place]:
    """The places of all blocks of a range, from left to right."""
    return list(zip((None, *parts), parts, (*parts[1:], None), strict=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """A layered graph seen as a chain."""

    layered: LayeredGraph
    fragments: LayeredGraph
    """The same graph with fragments, counted through all layers, in place of layers; what is held for the backward pass
    is still what layers hold."""
    starts: tuple[int, ...]
    """For each layer its first fragment, and the number of fragments."""
    block_of: tuple[int, ...]
    """For each fragment its block."""
    stage_of: StageSlicer
    """(first fragment, last fragment) -> StageGraph, whose key does not depend on the fragments."""
    constants: frozenset[int]
    """Tensors."""
    breaks: frozenset[tuple[int, int]]
    """(a, b), b ≥ a + 2: ranges that hold both layers are not chains."""
    parameter_breaks: frozenset[tuple[int, int]]
    """The members of `breaks` whose two layers share parameters only."""
    _workspaces: dict[str, tuple[Intervals, Ints]] = field(default_factory=dict, repr=False)
    """By structure key; the same on every mesh, as the two below."""
    _parts: dict[tuple[int, int], tuple[BlockPart, ...]] = field(default_factory=dict, repr=False)
    _sharing_blocks: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """For `_workspaces`: tasks on meshes ask for the same ones at the same time."""

    def is_chain(self, first: int, last: int) -> bool:
        """True when layers first..last are a chain."""
        return not any(first <= a and b <= last for a, b in self.breaks)

    def sharing_blocks(self, parts: Sequence[BlockPart]) -> frozenset[int]:
        """The blocks of a range that share a parameter, or terms of its gradient, with a block that is not adjacent;
        empty where other tensors break the chain as well."""
        ends = parts[0].first, parts[-1].last
        if ends not in self._sharing_blocks:
            self._sharing_blocks[ends] = self._blocks_sharing_parameters(*ends)
        return self._sharing_blocks[ends]

    def _blocks_sharing_parameters(self, first: int, last: int) -> frozenset[int]:
        """`sharing_blocks` of these fragments."""
        layers = [self.fragment_layers[f] for f in (first, last)]
        if any(layers[0] <= a and b <= layers[1] for a, b in self.breaks - self.parameter_breaks):
            return frozenset()
        sharing = set[int]()
        for users in self.layered.parameter_users:
            blocks = {self.block_of[f] for o in users if first <= (f := self.fragments.layer_of[o]) <= last}
            if blocks and max(blocks) - min(blocks) >= 2:
                sharing |= blocks
        return frozenset(sharing)

    def breaks_beyond_repair(self, parts: Sequence[BlockPart]) -> bool:
        """Whether an operator of a range reads what another one makes in a block that is not adjacent (a skip over many
        layers, an encoder's output in a decoder): no parameter, so that no blocks can share it."""
        first, last = parts[0].first, parts[-1].last
        return any(first <= low and high <= last for low, high in self._long_edges)

    @cached_property
    def _long_edges(self) -> tuple[tuple[int, int], ...]:
        """The two fragments, in order, of every operator and reader of its output in blocks that are not adjacent."""
        graph, fragment_of = self.layered.graph, self.fragments.layer_of
        edges = set()
        for reader in graph.operators:
            for tensor in reader.inputs:
                maker = graph.tensors[tensor].producer
                if maker is None or maker in self.layered.tables or reader.index in self.layered.tables:
                    continue
                low, high = sorted((fragment_of[maker], fragment_of[reader.index]))
                if low != UPDATE_LAYER and self.block_of[high] - self.block_of[low] >= 2:
                    edges.add((low, high))
        return tuple(edges)

    @cached_property
    def fragment_layers(self) -> tuple[int, ...]:
        """For each fragment its layer."""
        return tuple(bisect_right(self.starts, f) - 1 for f in range(self.starts[-1]))

    def parts(self, first: int, last: int) -> tuple[BlockPart, ...]:
        """What layers first..last hold of each of their blocks, from left to right."""
        if (first, last) not in self._parts:
            fragments = range(self.starts[first], self.starts[last + 1])
            groups = [(block, list(group)) for block, group in groupby(fragments, key=self.block_of.__getitem__)]
            self._parts[first, last] = tuple(BlockPart(block, group[0], group[-1]) for block, group in groups)
        return self._parts[first, last]

    def block_of_operator(self, index: int) -> int:
        """The block of an operator of the forward or backward phase."""
        return self.block_of[self.fragments.layer_of[index]]

    def owners(self, problem: StageProblem) -> tuple[int, ...]:
        """For each node of a stage, of layers or of fragments, the block that owns it: that of the operator, or for
        a tensor the first block of the stage that reads or writes it."""
        stage = problem.stage
        first, last = stage.first, stage.last
        if stage.layered is self.layered:
            first, last = self.starts[first], self.starts[last + 1] - 1
        owners = [self.block_of[last] + 1] * len(problem.nodes)
        for v, node in enumerate(problem.nodes):
            if node.kind is NodeKind.OPERATOR:
                owners[v] = self.block_of_operator(node.subject)
            elif node.kind is not NodeKind.SOURCE:
                owners[v] = min(self.block_of[k] for k in self._parameter_users[node.subject] if first <= k <= last)
            elif node.subject in self.constants:
                owners[v] = NO_BLOCK
        for edge in problem.edges:
            a = problem.nodes[edge.a]
            if a.kind is NodeKind.SOURCE and a.subject not in self.constants:
                owners[edge.a] = min(owners[edge.a], owners[edge.b])
        return tuple(owners)

    @cached_property
    def _parameter_users(self) -> tuple[frozenset[int], ...]:
        """For each of `graph.parameters` the fragments that read it or make terms of its gradient."""
        return tuple(frozenset(map(self.fragments.layer_of.__getitem__, of)) for of in self.layered.parameter_users)

    def roles(self, problem: StageProblem, owners: Sequence[int]) -> tuple[int, ...]:
        """`owners` with NO_BLOCK for tables as well: their operators belong to a block, and no edge of them does."""
        tables = self.layered.tables
        return tuple(
            NO_BLOCK if node.kind is NodeKind.OPERATOR and node.subject in tables else owner
            for node, owner in zip(problem.nodes, owners, strict=True)
        )

    def workspace(self, stage: StageGraph) -> tuple[Intervals, Ints]:
        """When the tensors that a stage makes are alive, and their positions among the outputs of all operators, block
        after block."""
        with self._lock:
            if stage.structure_key not in self._workspaces:
                self._workspaces[stage.structure_key] = self._find_workspace(stage)
            return self._workspaces[stage.structure_key]

    def _find_workspace(self, stage: StageGraph) -> tuple[Intervals, Ints]:
        intervals = workspace_intervals(stage)
        block_of, begins, made = self._outputs
        operators = np.array(stage.operators, dtype=np.int64)
        operators = operators[np.lexsort((operators, block_of[operators]))]
        counts = begins[operators + 1] - begins[operators]
        outputs = made[entries_of_runs(begins[operators], counts)]
        position = np.full(len(self.layered.graph.tensors), -1)
        position[outputs] = np.arange(len(outputs))
        places = position[list(intervals.tensors)]
        inside = places >= 0
        return intervals.among(inside), places[inside]

    @cached_property
    def _outputs(self) -> tuple[Ints, Ints, Ints]:
        """(for each operator its block, where its outputs begin, and the outputs of all operators)"""
        operators = self.layered.graph.operators
        blocks = np.append(self.block_of, -1)  # the last one is of UPDATE_LAYER
        return (
            blocks[list(self.fragments.layer_of)],
            np.cumsum([0, *(len(operator.outputs) for operator in operators)]),
            np.array([tensor for operator in operators for tensor in operator.outputs], dtype=np.int64),
        )


def chain_of(layered: LayeredGraph) -> Chain:
    """The chain of a layered graph (see the module's text)."""
    touching = layers_touching(layered)
    short = short_skips(layered, touching)
    while True:
        constants, breaks, parameter_breaks = breaking_tensors(layered, touching, short)
        fragments, layer_of, block_of = cut_into_blocks(layered, constants)
        if not short or not (too_long := short & skipped_over(fragments, block_of)):
            break
        # Skips whose readers are in no common block break the chain as long skips do.
        short -= too_long
    return Chain(
        layered=layered,
        fragments=fragments,
        starts=tuple(bisect_left(layer_of, layer) for layer in range(layered.num_layers + 1)),
        stage_of=slice_stages(fragments, layers_apart=False),
        constants=constants,
        block_of=block_of,
        breaks=breaks,
        parameter_breaks=parameter_breaks,
    )
