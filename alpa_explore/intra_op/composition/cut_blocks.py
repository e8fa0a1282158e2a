"""A block of a chain on a mesh, cut out of its neighbours as a subproblem.

The cut between two neighbours is a *separator*: nodes through which all edges between them pass. A block subproblem is
a block with the separators on its open sides. Where the block begins or ends a stage, the subproblem ends as a stage
does: what comes from outside is a source, and what leaves does so without a pending sum. Every node is paid for by the
block that owns it, and every edge by one block: an edge of a node of the left separator belongs to the block on the
right of that separator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.block_subproblem import BlockSubproblem
from alpa_explore.intra_op.composition.chain import NO_BLOCK, BlockPart, Chain, Place, placed
from alpa_explore.intra_op.stage.build_problem import build_stage_problem, zeros
from alpa_explore.intra_op.stage.edge import Edge, EdgeMatrix
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.sharding.spec import REPLICATE

Separators = tuple[tuple[int, ...], tuple[int, ...]]
"""Nodes of the separators at the left and the right end."""

Range = tuple[int, int]
"""(first, last) layer, both included."""

_KINDS = tuple(NodeKind)


@dataclass(kw_only=True, eq=False)
class BlockCutter:
    """Cuts the blocks of one chain on the mesh of `model`; subproblems of equal blocks are built once."""

    chain: Chain
    model: CostModel

    def __post_init__(self) -> None:
        self._blocks: dict[Place, BlockSubproblem | None] = {}
        self._ranges: dict[Range, tuple[BlockSubproblem, ...] | None] = {}
        self._built: dict[tuple[object, ...], tuple[BlockSubproblem, ...] | None] = {}
        self._cuts: dict[tuple[object, ...], tuple[tuple[int, BlockSubproblem], ...] | None] = {}
        """Of ranges with shared nodes, the blocks that are cut together: (number, counted from the first, block)."""
        self._by_content: dict[tuple[object, ...], BlockSubproblem] = {}

    def of_range(self, first: int, last: int) -> tuple[BlockSubproblem, ...] | None:
        """The blocks of a range of layers, from left to right, equal ones as one value; None where more breaks the
        chain than parameters that distant layers read (a tied embedding)."""
        if (first, last) not in self._ranges:
            parts = self.chain.parts(first, last)
            is_chain = self.chain.is_chain(first, last)
            self._ranges[first, last] = self._of_chain(parts) if is_chain else self._with_shared_nodes(parts)
        return self._ranges[first, last]

    def _of_chain(self, parts: Sequence[BlockPart]) -> tuple[BlockSubproblem, ...] | None:
        blocks = [self.block(place) for place in placed(parts)]
        built = tuple(block for block in blocks if block is not None)
        return built if len(built) == len(blocks) else None

    def block(self, place: Place) -> BlockSubproblem | None:
        """A block, or the part of one at the end of a range; None where a reader gains by sharding a constant."""
        if place not in self._blocks:
            before, part, after = place
            stage = self.chain.stage_of((before or part).first, (after or part).last, (part.first, part.last))
            key = (stage.structure_key, self._positions(stage, (part.first, part.last + 1)))
            if key not in self._built:
                problem = build_stage_problem(stage, self.model)
                owner = self.chain.owners(problem)
                roles = self.chain.roles(problem, owner)
                left = separator(problem, roles, part.block - 1) if before else ()
                right = separator(problem, roles, part.block) if after else ()
                # The block is number 1, its neighbours 0 and 2.
                block_of = [NO_BLOCK if k == NO_BLOCK else k - part.block + 1 for k in owner]
                self._built[key] = self._cut(problem, owner, block_of, {1: (left, right)}, ())
            blocks = self._built[key]
            self._blocks[place] = None if blocks is None else blocks[0]
        return self._blocks[place]

    def _with_shared_nodes(self, parts: Sequence[BlockPart]) -> tuple[BlockSubproblem, ...] | None:
        """The blocks of a range in which parameters, and the accumulators of their gradients, are shared by distant
        blocks (`BlockSubproblem.shared`)."""
        if self.chain.breaks_beyond_repair(parts):
            return None
        sharing = self.chain.sharing_blocks(parts)
        # Between the outermost blocks that share nodes, those that share none are blocks like any other.
        low, high = min(sharing, default=0), max(sharing, default=0)
        ordinary = [part for part in parts if low < part.block < high and part.block not in sharing]
        cut_together = [(part.first, part.last) for part in parts if part not in ordinary]
        stage = self.chain.stage_of(parts[0].first, parts[-1].last, *cut_together)
        key = (stage.structure_key, self._positions(stage, [part.first for part in parts]))
        if key not in self._cuts:
            problem = build_stage_problem(stage, self.model)
            owner = self.chain.owners(problem)
            shared = _shared_nodes(problem, self.chain.roles(problem, owner))
            numbers = {part.block - parts[0].block for part in parts if part not in ordinary}
            if shared is None:
                self._cuts[key] = None
            else:
                self._cuts[key] = self._cut_sharing(problem, owner, shared, numbers, parts[0].block) if shared else ()
        cut = self._cuts[key]
        if cut is None:
            return None
        if cut == ():  # distant layers may be in one block, or in adjacent ones
            return self._of_chain(parts)
        between = {
            place[1].block - parts[0].block: self.block(place) for place in placed(parts) if place[1] in ordinary
        }
        blocks = [block for _, block in sorted((between | dict(cut)).items())]
        built = tuple(block for block in blocks if block is not None)
        return built if len(built) == len(blocks) else None

    def _positions(self, stage: StageGraph, begins: Sequence[int]) -> bytes:
        """For each operator the number of these beginnings (fragments) that it does not precede."""
        fragment_of = self.chain.fragments.layer_of
        return np.searchsorted(begins, [fragment_of[o] for o in stage.operators], side="right").tobytes()

    def _cut_sharing(
        self,
        problem: StageProblem,
        owner: Sequence[int],
        shared: tuple[int, ...],
        numbers: Collection[int],
        first_block: int,
    ) -> tuple[tuple[int, BlockSubproblem], ...] | None:
        """The blocks with these `numbers`, counted from `first_block`; `problem` holds them and their neighbours."""
        # What lies beyond the outermost blocks that share nodes is joined to them: the table has one separator less.
        sharing = {owner[v] for e in problem.edges if e.a in shared or e.b in shared for v in (e.a, e.b)}
        low, high = min(sharing), max(sharing)
        block_of = [NO_BLOCK if k == NO_BLOCK else min(max(k, low), high) for k in owner]
        roles = self.chain.roles(problem, block_of)
        edges_from: dict[int, list[Edge]] = {}
        for e in problem.edges:
            edges_from.setdefault(min(roles[e.a], roles[e.b]), []).append(e)

        def right_of(block: int) -> tuple[int, ...]:
            if not low <= block < high:
                return ()
            return separator(problem, roles, block, shared, edges_from.get(block, ()))

        separators = {k: (right_of(k - 1), right_of(k)) for k in range(low, high + 1) if k - first_block in numbers}
        cut = self._cut(problem, owner, block_of, separators, shared)
        return None if cut is None else tuple(zip((k - first_block for k in separators), cut, strict=True))

    def _cut(
        self,
        problem: StageProblem,
        owner: Sequence[int],
        block_of: Sequence[int],
        separators: Mapping[int, Separators],
        shared: tuple[int, ...],
    ) -> tuple[BlockSubproblem, ...] | None:
        """The blocks that have `separators`; `owner` orders their nodes."""
        roles = self.chain.roles(problem, block_of)
        replicated = {v: _replicated(problem, v) for v, k in enumerate(roles) if k == NO_BLOCK}
        if None in replicated.values():
            return None
        edges_of: dict[int, list[Edge]] = {i: [] for i in separators}
        for e in problem.edges:
            if (payer := _paying_block(e, roles, separators, shared)) in edges_of:
                edges_of[payer].append(e)
        owned_by: dict[int, list[int]] = {i: [] for i in separators}
        for v in sorted(range(len(block_of)), key=owner.__getitem__):
            if block_of[v] in owned_by:
                owned_by[block_of[v]].append(v)
        blocks = []
        for i, (left, right) in separators.items():
            owned = owned_by[i]
            touched = {v for e in edges_of[i] for v in (e.a, e.b)}
            shared_here = shared if not touched.isdisjoint(shared) else ()
            nodes_here = sorted({*owned, *left, *right, *shared_here, *(touched & replicated.keys())})
            at = {v: n for n, v in enumerate(nodes_here)}
            nodes = [
                problem.nodes[v] if block_of[v] == i else _without_costs(problem.nodes[v], v in replicated)
                for v in nodes_here
            ]
            edges = tuple(_renumbered(e, at, replicated.get(e.a)) for e in edges_of[i])
            block = BlockSubproblem(
                problem=StageProblem(
                    stage=problem.stage, model=self.model, nodes=tuple(nodes), edges=edges, warnings=problem.warnings
                ),
                owned=tuple(at[v] for v in owned),
                left=tuple(at[v] for v in left),
                right=tuple(at[v] for v in right),
                shared=tuple(at[v] for v in shared_here),
                variables=sum(len(problem.nodes[v].microbatch_seconds) for v in owned)
                + sum(e.seconds.size for e in edges),
                constraints=len(owned) + sum(sum(e.seconds.shape) for e in edges),
            )
            blocks.append(self._by_content.setdefault(block.content_key, block))
        return tuple(blocks)


def _shared_nodes(problem: StageProblem, owner: Sequence[int]) -> tuple[int, ...] | None:
    """Weights and accumulators with an edge to a block that is not adjacent; None where an edge between other nodes
    passes over a block."""
    shared = set()
    for e in problem.edges:
        a, b = owner[e.a], owner[e.b]
        if NO_BLOCK in (a, b) or abs(a - b) < 2:
            continue
        node = next((v for v in (e.a, e.b) if problem.nodes[v].kind in (NodeKind.WEIGHT, NodeKind.ACCUMULATOR)), None)
        if node is None:
            return None
        shared.add(node)
    return tuple(sorted(shared))


def _paying_block(
    edge: Edge, block_of: Sequence[int], separators: Mapping[int, Separators], shared: Collection[int]
) -> int:
    """The block that pays for an edge."""
    low, high = (edge.a, edge.b) if block_of[edge.a] <= block_of[edge.b] else (edge.b, edge.a)
    if low in shared or high in shared:
        return block_of[high if low in shared else low]
    # A constant may be read in several blocks: each reader pays for its own edge.
    left, right = block_of[low] if block_of[low] != NO_BLOCK else block_of[high], block_of[high]
    if left == right:
        return left
    between = separators[right][0] if right in separators else separators[left][1] if left in separators else ()
    return right if low in between else left


def separator(
    problem: StageProblem,
    owner: Sequence[int],
    block: int,
    shared: Collection[int] = (),
    edges: Collection[Edge] | None = None,
) -> tuple[int, ...]:
    """Nodes that cover every edge between `block` and the next, in an order that equal blocks share.

    Edges of `shared` nodes are left out. `edges`, where given, holds all edges between the two blocks. Of each
    connected group of those edges it is the side with fewer combinations of strategies.
    """
    group: dict[int, int] = {}
    members: dict[int, set[int]] = {}
    for e in problem.edges if edges is None else edges:
        low, high = owner[e.a], owner[e.b]
        if (low, high) not in ((block, block + 1), (block + 1, block)) or e.a in shared or e.b in shared:
            continue
        for v in (e.a, e.b):
            if v not in group:
                group[v] = v
                members[v] = {v}
        group_a, group_b = group[e.a], group[e.b]
        if group_a != group_b:
            members[group_a] |= members.pop(group_b)
            for v in members[group_a]:
                group[v] = group_a
    nodes = []
    for connected in members.values():
        sides = [sorted(v for v in connected if owner[v] == k) for k in (block, block + 1)]
        nodes += min(sides, key=lambda side: prod(len(problem.nodes[v].microbatch_seconds) for v in side))
    return tuple(sorted(nodes, key=lambda v: (_KINDS.index(problem.nodes[v].kind), problem.nodes[v].subject)))


def replicated_strategy(problem: StageProblem, v: int) -> int:
    """The strategy of constant v, a source or a table, that is replicated along every mesh axis."""
    if problem.nodes[v].kind is NodeKind.OPERATOR:
        return 0
    tensor = problem.stage.layered.graph.tensors[problem.nodes[v].subject]
    table = problem.model.reshard(tensor)
    specs = next(e.source_specs for e in problem.edges if e.a == v)
    return int(np.flatnonzero(specs == table.index[(REPLICATE,) * len(problem.model.mesh.shape)])[0])


def _replicated(problem: StageProblem, v: int) -> int | None:
    """The replicated strategy of constant v; None where some reader gains by another."""
    strategy = replicated_strategy(problem, v)
    for e in problem.edges:
        if e.a == v and (e.seconds[strategy] > e.seconds.min(axis=0)).any():
            return None
    return strategy


def _without_costs(node: Node, constant: bool) -> Node:
    """A node that another block owns; a constant has one strategy left."""
    no_costs = zeros(1 if constant else len(node.microbatch_seconds))
    return Node(
        kind=node.kind,
        subject=node.subject,
        microbatch_seconds=no_costs,
        iteration_seconds=no_costs,
        weight_bytes=no_costs,
        activation_bytes=no_costs,
    )


def _renumbered(edge: Edge, number: dict[int, int], strategy: int | None) -> Edge:
    """An edge between the nodes of a subproblem; of a constant only the row of its strategy."""
    ends = number[edge.a], number[edge.b]
    if strategy is None:
        return edge.between(*ends)
    kept = slice(strategy, strategy + 1)
    exposed, whole, launches = (
        None if figures is None else EdgeMatrix.of(figures.whole[kept])
        for figures in (edge.exposed, edge.whole, edge.launches)
    )
    assert exposed is not None, "every edge has seconds"
    sources = edge.source_specs[kept]
    return replace(edge, a=ends[0], b=ends[1], exposed=exposed, whole=whole, launches=launches, source_specs=sources)
