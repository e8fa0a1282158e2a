"""A block of a chain on a mesh, cut out of its neighbours: what `compose` puts together again.

The cut between two neighbours is a *separator*: nodes through which all edges between them pass. A piece is a block
with the separators on its open sides; where it begins or ends a stage it ends as a stage does (what comes from outside
is a source, what leaves does so without a pending sum). Every node is paid for in the piece that owns it, every edge in
one piece: an edge that leaves a node of the separator on its left belongs to the piece on its right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.block_subproblem import Piece
from alpa_explore.intra_op.composition.chain import CONSTANT, Chain, Run
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_problem import Edge, Node, NodeKind, StageProblem, build_stage_problem, zeros
from alpa_explore.sharding.spec import REPLICATE

Separators = tuple[tuple[int, ...], tuple[int, ...]]
"""At the left and the right end."""

Range = tuple[int, int]
"""(first, last) layer, both included."""

_KINDS = tuple(NodeKind)


@dataclass(kw_only=True, eq=False)
class Pieces:
    """The pieces of one chain on the mesh of `model`; those of equal blocks are made once."""

    chain: Chain
    model: CostModel

    def __post_init__(self) -> None:
        self._blocks: dict[tuple[Run | None, Run, Run | None], Piece | None] = {}
        self._ranges: dict[Range, tuple[Piece, ...] | None] = {}
        self._built: dict[tuple[object, ...], tuple[Piece, ...] | None] = {}
        self._cuts: dict[tuple[object, ...], tuple[tuple[int, Piece], ...] | None] = {}
        """Of ranges with ties, the pieces that are cut together: (block, counted from the first, piece)."""
        self._contents: dict[tuple[object, ...], Piece] = {}

    def of(self, first: int, last: int) -> tuple[Piece, ...] | None:
        """The pieces of a range of layers, from left to right; None where more breaks the chain than weights that
        layers far from each other read (a tied embedding). Equal pieces are one value."""
        if (first, last) not in self._ranges:
            runs = self.chain.runs(first, last)
            self._ranges[first, last] = self._of(runs) if self.chain.holds(first, last) else self._tied(runs)
        return self._ranges[first, last]

    def _of(self, runs: Sequence[Run]) -> tuple[Piece, ...] | None:
        pieces = [self.block(*near) for near in zip((None, *runs), runs, (*runs[1:], None), strict=False)]
        found = tuple(piece for piece in pieces if piece is not None)
        return found if len(found) == len(pieces) else None

    def block(self, before: Run | None, run: Run, after: Run | None) -> Piece | None:
        """A block, or a part of one at the end of a range, and what lies beside it in the stage; None where a reader
        gains by cutting a constant."""
        near = before, run, after
        if near not in self._blocks:
            stage = self.chain.stage_of.beside((before or run).first, (after or run).last, (run.first, run.last))
            key = (stage.structure_key, self._places(stage, (run.first, run.last + 1)))
            if key not in self._built:
                whole = build_stage_problem(stage, self.model)
                owner = self.chain.owners(whole)
                left = separator(whole, owner, run.block - 1) if before else ()
                right = separator(whole, owner, run.block) if after else ()
                part = [CONSTANT if k == CONSTANT else k - run.block + 1 for k in owner]
                # The neighbours are parts 0 and 2.
                self._built[key] = self._cut(whole, owner, part, {1: (left, right)}, ())
            pieces = self._built[key]
            self._blocks[near] = None if pieces is None else pieces[0]
        return self._blocks[near]

    def _tied(self, runs: Sequence[Run]) -> tuple[Piece, ...] | None:
        """The pieces of all runs of a range: the weights that are read far away, and where their gradients are added
        up, are `Piece.ties`."""
        blocks = self.chain.tied_blocks(runs)
        # Between the outermost blocks that touch the ties, those that do not are blocks like any other.
        low, high = min(blocks, default=0), max(blocks, default=0)
        apart = [run for run in runs if low < run.block < high and run.block not in blocks]
        inner = [(run.first, run.last) for run in runs if run not in apart]
        stage = self.chain.stage_of.beside(runs[0].first, runs[-1].last, *inner)
        key = (stage.structure_key, self._places(stage, [run.first for run in runs]))
        if key not in self._cuts:
            whole = build_stage_problem(stage, self.model)
            owner = self.chain.owners(whole)
            ties = _ties(whole, owner)
            here = {run.block - runs[0].block for run in runs if run not in apart}
            self._cuts[key] = (
                None if ties is None else self._cut_tied(whole, owner, ties, here, runs[0].block) if ties else ()
            )
        cut = self._cuts[key]
        if cut is None:
            return None
        if cut == ():  # layers far from each other may share a block, or neighbouring ones
            return self._of(runs)
        near = zip((None, *runs), runs, (*runs[1:], None), strict=False)
        beside = {run.block - runs[0].block: (before, run, after) for before, run, after in near}
        between = {k: self.block(*beside[k]) for k in beside if beside[k][1] in apart}
        found = [piece for _, piece in sorted((between | dict(cut)).items())]
        pieces = tuple(piece for piece in found if piece is not None)
        return pieces if len(pieces) == len(found) else None

    def _places(self, stage: StageGraph, begins: Sequence[int]) -> bytes:
        """For each operator behind how many of these beginnings (fragments) it is."""
        fragment_of = self.chain.fragments.layer_of
        return np.searchsorted(begins, [fragment_of[o] for o in stage.operators], side="right").tobytes()

    def _cut_tied(
        self, whole: StageProblem, owner: Sequence[int], ties: tuple[int, ...], here: Collection[int], start: int
    ) -> tuple[tuple[int, Piece], ...] | None:
        """The pieces of the blocks `here`, counted from `start`; `whole` holds them and what lies beside them."""
        # What lies beyond the outermost blocks that touch the ties goes with them: a table has one separator less.
        touching = {owner[v] for e in whole.edges if e.a in ties or e.b in ties for v in (e.a, e.b)}
        low, high = min(touching), max(touching)
        part = [CONSTANT if k == CONSTANT else min(max(k, low), high) for k in owner]
        crossing: dict[int, list[Edge]] = {}
        for e in whole.edges:
            crossing.setdefault(min(part[e.a], part[e.b]), []).append(e)

        def between(block: int) -> tuple[int, ...]:
            return separator(whole, part, block, ties, crossing.get(block, ())) if low <= block < high else ()

        separators = {k: (between(k - 1), between(k)) for k in range(low, high + 1) if k - start in here}
        cut = self._cut(whole, owner, part, separators, ties)
        return None if cut is None else tuple(zip((k - start for k in separators), cut, strict=True))

    def _cut(
        self,
        whole: StageProblem,
        owner: Sequence[int],
        part: Sequence[int],
        separators: Mapping[int, Separators],
        ties: tuple[int, ...],
    ) -> tuple[Piece, ...] | None:
        """The pieces of the parts that have `separators`."""
        replicated = {v: _replicated(whole, v) for v, k in enumerate(part) if k == CONSTANT}
        if None in replicated.values():
            return None
        edges_of: dict[int, list[Edge]] = {i: [] for i in separators}
        for e in whole.edges:
            if (payer := _payer(e, part, separators, ties)) in edges_of:
                edges_of[payer].append(e)
        own_of: dict[int, list[int]] = {i: [] for i in separators}
        for v in sorted(range(len(part)), key=owner.__getitem__):
            if part[v] in own_of:
                own_of[part[v]].append(v)
        found = []
        for i, (left, right) in separators.items():
            own = own_of[i]
            touched = {v for e in edges_of[i] for v in (e.a, e.b)}
            tied = ties if not touched.isdisjoint(ties) else ()
            inside = sorted({*own, *left, *right, *tied, *(touched & replicated.keys())})
            at = {v: n for n, v in enumerate(inside)}
            nodes = [whole.nodes[v] if part[v] == i else _unpaid(whole.nodes[v], v in replicated) for v in inside]
            edges = tuple(_on_piece(e, at, replicated.get(e.a)) for e in edges_of[i])
            piece = Piece(
                problem=StageProblem(
                    stage=whole.stage, model=self.model, nodes=tuple(nodes), edges=edges, warnings=whole.warnings
                ),
                own=tuple(at[v] for v in own),
                left=tuple(at[v] for v in left),
                right=tuple(at[v] for v in right),
                ties=tuple(at[v] for v in tied),
                variables=sum(len(whole.nodes[v].microbatch_seconds) for v in own) + sum(e.seconds.size for e in edges),
                constraints=len(own) + sum(sum(e.seconds.shape) for e in edges),
            )
            found.append(self._contents.setdefault(piece.content, piece))
        return tuple(found)


def _ties(problem: StageProblem, owner: Sequence[int]) -> tuple[int, ...] | None:
    """Weights and accumulators with an edge to a block that is no neighbour; None where an edge between other nodes
    passes over a block."""
    found = set()
    for e in problem.edges:
        a, b = owner[e.a], owner[e.b]
        if CONSTANT in (a, b) or abs(a - b) < 2:
            continue
        tie = next((v for v in (e.a, e.b) if problem.nodes[v].kind in (NodeKind.WEIGHT, NodeKind.ACCUMULATOR)), None)
        if tie is None:
            return None
        found.add(tie)
    return tuple(sorted(found))


def _payer(edge: Edge, part: Sequence[int], separators: Mapping[int, Separators], ties: Collection[int]) -> int:
    """The part that pays for an edge."""
    low, high = (edge.a, edge.b) if part[edge.a] <= part[edge.b] else (edge.b, edge.a)
    if low in ties or high in ties:
        return part[high if low in ties else low]
    # A constant may be read in several parts: each reader pays for its own edge.
    left, right = part[low] if part[low] != CONSTANT else part[high], part[high]
    if left == right:
        return left
    between = separators[right][0] if right in separators else separators[left][1] if left in separators else ()
    return right if low in between else left


def separator(
    problem: StageProblem,
    owner: Sequence[int],
    block: int,
    ties: Collection[int] = (),
    edges: Collection[Edge] | None = None,
) -> tuple[int, ...]:
    """Nodes that cover every edge between `block` and the next, in an order that equal blocks share; edges of `ties`
    are not looked at. `edges`, where given, has them all.

    Of each connected group of such edges it is the side with fewer combinations of strategies.
    """
    group: dict[int, int] = {}
    members: dict[int, set[int]] = {}
    for e in problem.edges if edges is None else edges:
        low, high = owner[e.a], owner[e.b]
        if (low, high) not in ((block, block + 1), (block + 1, block)) or e.a in ties or e.b in ties:
            continue
        for v in (e.a, e.b):
            if v not in group:
                group[v] = v
                members[v] = {v}
        here, there = group[e.a], group[e.b]
        if here != there:
            members[here] |= members.pop(there)
            for v in members[here]:
                group[v] = here
    found = []
    for together in members.values():
        sides = [sorted(v for v in together if owner[v] == k) for k in (block, block + 1)]
        found += min(sides, key=lambda side: prod(len(problem.nodes[v].microbatch_seconds) for v in side))
    return tuple(sorted(found, key=lambda v: (_KINDS.index(problem.nodes[v].kind), problem.nodes[v].subject)))


def replicated_strategy(problem: StageProblem, v: int) -> int:
    """The strategy of source v that is replicated along every axis."""
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


def _unpaid(node: Node, constant: bool) -> Node:
    nothing = zeros(1 if constant else len(node.microbatch_seconds))
    return Node(
        kind=node.kind,
        subject=node.subject,
        priced=node.priced,
        microbatch_seconds=nothing,
        iteration_seconds=nothing,
        weight_bytes=nothing,
        activation_bytes=nothing,
    )


def _on_piece(edge: Edge, place: dict[int, int], strategy: int | None) -> Edge:
    seconds, sources = edge.seconds, edge.source_specs
    if strategy is not None:
        seconds, sources = seconds[strategy : strategy + 1], sources[strategy : strategy + 1]
    return Edge(
        a=place[edge.a],
        b=place[edge.b],
        tensor=edge.tensor,
        seconds=seconds,
        source_specs=sources,
        target_specs=edge.target_specs,
        times=edge.times,
        each_iteration=edge.each_iteration,
    )
