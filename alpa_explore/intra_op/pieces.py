"""A block of a chain on a mesh, cut out of its neighbours: what `compose` puts together again.

The cut between two neighbours is a *separator*: nodes through which all edges between them pass. A piece is a block
with the separators on its open sides; where it begins or ends a stage it ends as a stage does (what comes from outside
is a source, what leaves does so without a pending sum). Every node is paid for in the piece that owns it, every edge in
one piece: an edge that leaves a node of the separator on its left belongs to the piece on its right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.chain import CONSTANT, Chain, Run
from alpa_explore.intra_op.contract import Priced
from alpa_explore.intra_op.contract_program import OWN, SAME, Form, Given
from alpa_explore.intra_op.factor_graph import Ints, without_forbidden
from alpa_explore.intra_op.problem import Floats
from alpa_explore.intra_op.stage_graph import StageGraph
from alpa_explore.intra_op.stage_problem import Edge, Node, NodeKind, StageProblem, build_stage_problem, zeros
from alpa_explore.sharding.spec import REPLICATE

Separators = tuple[tuple[int, ...], tuple[int, ...]]
"""At the left and the right end."""

Range = tuple[int, int]
"""(first, last) layer, both included."""

_KINDS = tuple(NodeKind)


class Price(NamedTuple):
    """What `StageProblem.at` is asked for."""

    inverse_b: float
    memory_price: float
    microbatches_held: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A block and its separators as a problem of their own; nodes of other pieces cost nothing here."""

    problem: StageProblem
    own: tuple[int, ...]
    """Nodes of the block, in their order in every stage that holds it (block by block where blocks are joined)."""
    left: tuple[int, ...]
    """Nodes of the separators; the piece may own some of them."""
    right: tuple[int, ...]
    ties: tuple[int, ...]
    """Nodes that pieces far from each other share, in the order that all of them have; none where it has no edge to
    them."""
    variables: int
    """Of Eq. 1, that the piece adds to a stage; `constraints` likewise."""
    constraints: int

    def at(self, prices: Sequence[Price]) -> Priced:
        """`StageProblem.at` of every price."""
        form, same, nodes, edges = self._forms
        inverse_b, memory, held = np.array(prices).T[:, :, None]
        paid = nodes[0] + inverse_b * nodes[1] + memory * (nodes[2] + held * nodes[3])
        return Priced(form=form, same=same, own=np.concatenate([paid, inverse_b * edges], axis=1))

    @cached_property
    def _forms(self) -> tuple[Form, Floats, Floats, Floats]:
        """The form of `at`, what it says of every price, and what it makes of each: of nodes that a price changes their
        four figures [4, entries], of edges that are paid in each iteration their seconds."""
        flat = self._flat
        starts, parts, seconds = flat.node_starts, flat.nodes, flat.seconds
        nodes, edges = self.problem.nodes, self.problem.edges
        charged = np.asarray(np.logical_or.reduceat(parts != 0, starts, axis=1))
        ends = np.append(starts, parts.shape[1])
        taken = {SAME: 0, OWN: 0}
        slices: dict[int, list[Ints]] = {SAME: [], OWN: []}
        """Of nodes, then of edges."""

        def give(space: int, begin: int, end: int) -> Given:
            slices[space].append(np.arange(begin, end))
            taken[space] += end - begin
            return Given(space, taken[space] - (end - begin))

        changed, free = np.any(charged[1:], axis=0).tolist(), (~np.any(charged, axis=0)).tolist()
        nodes_given = tuple(
            None if free[v] else give(OWN if changed[v] else SAME, ends[v], ends[v + 1]) for v in range(len(nodes))
        )
        some = {space: np.concatenate([np.zeros(0, dtype=np.int64), *here]) for space, here in slices.items()}
        slices.update({SAME: [], OWN: []})
        ends = np.append(flat.edge_starts, len(seconds))
        edges_given = tuple(give(OWN if e.each_iteration else SAME, ends[i], ends[i + 1]) for i, e in enumerate(edges))
        more = {space: np.concatenate([np.zeros(0, dtype=np.int64), *here]) for space, here in slices.items()}
        form = Form(
            sizes=tuple(len(n.microbatch_seconds) for n in nodes), edges=tuple((e.a, e.b) for e in edges),
            nodes_given=nodes_given, edges_given=edges_given, same=taken[SAME], own=taken[OWN],
        )  # fmt: skip
        same = np.concatenate([parts[0, some[SAME]], seconds[more[SAME]]])
        return (
            form,
            without_forbidden(same),
            without_forbidden(parts[:, some[OWN]]),
            without_forbidden(seconds[more[OWN]]),
        )

    @cached_property
    def least_bytes(self) -> Floats:
        """Bytes on one device of every output of every operator of the piece where each is as small as it can be."""
        return np.array([size.min() for _, size in self._outputs])

    def least_held(self, microbatches: int) -> float:
        """Bytes of weights and of the activations of so many microbatches that the piece holds at least."""
        if microbatches not in self._least_held:
            least = (float((weight + microbatches * activation).min()) for weight, activation in self._holding)
            self._least_held[microbatches] = sum(least)
        return self._least_held[microbatches]

    @cached_property
    def least_activation_bytes(self) -> float:
        """Of a microbatch, that the piece holds at least."""
        return sum(float(self.problem.nodes[v].activation_bytes.min()) for v in self.own)

    @cached_property
    def _holding(self) -> list[tuple[Floats, Floats]]:
        """Weight and activation bytes of the nodes of the block that hold any."""
        both = ((self.problem.nodes[v].weight_bytes, self.problem.nodes[v].activation_bytes) for v in self.own)
        return [(weight, activation) for weight, activation in both if weight.any() or activation.any()]

    @cached_property
    def _least_held(self) -> dict[int, float]:
        return {}

    @cached_property
    def content(self) -> tuple[object, ...]:
        """Equal for pieces that are equal in all that is asked of them."""
        digest = sha256()
        for n in self.problem.nodes:
            for part in _parts(n):
                digest.update(part.tobytes())
        for v, size in self._outputs:
            digest.update(repr(v).encode() + size.tobytes())
        for e in self.problem.edges:
            digest.update(repr((e.a, e.b, e.each_iteration, e.times)).encode() + e.seconds.tobytes())
        return digest.hexdigest(), self.own, self.left, self.right, self.ties

    def totals(self, choices: Ints) -> tuple[Floats, Floats]:
        """Of each row of `choices` [rows, nodes]: microbatch and iteration seconds, weight and activation bytes
        [rows, 4], and the bytes on one device of every output of every operator [rows, outputs]."""
        flat = self._flat
        found = flat.nodes[:, flat.node_starts + choices].sum(axis=2).T
        paid = flat.seconds[flat.edge_starts + choices[:, flat.a] * flat.widths + choices[:, flat.b]]
        found[:, 0] += paid[:, ~flat.each_iteration].sum(axis=1)
        found[:, 1] += paid[:, flat.each_iteration].sum(axis=1)
        return found, flat.sizes[flat.output_starts + choices[:, flat.makers]]

    @cached_property
    def _outputs(self) -> list[tuple[int, Floats]]:
        nodes = self.problem.nodes
        return [
            (v, size)
            for v in self.own if nodes[v].kind is NodeKind.OPERATOR and (priced := nodes[v].priced) is not None
            for size in priced.output_bytes
        ]  # fmt: skip

    @cached_property
    def _flat(self) -> _Flat:
        nodes, edges = self.problem.nodes, self.problem.edges

        def starts(arrays: Sequence[Floats]) -> Ints:
            return np.array([0, *accumulate(array.size for array in arrays)][: len(arrays)], dtype=np.int64)

        def flat(arrays: Sequence[Floats]) -> Floats:
            return np.concatenate([np.zeros(0), *(array.ravel() for array in arrays)])

        microbatch = [n.microbatch_seconds for n in nodes]
        sizes = [size for _, size in self._outputs]
        return _Flat(
            node_starts=starts(microbatch),
            nodes=np.array([flat(part) for part in zip(*map(_parts, nodes), strict=True)]),
            a=np.array([e.a for e in edges], dtype=np.int64), b=np.array([e.b for e in edges], dtype=np.int64),
            edge_starts=starts([e.seconds for e in edges]),
            widths=np.array([e.seconds.shape[1] for e in edges], dtype=np.int64),
            seconds=flat([e.seconds if e.times == 1 else e.seconds * e.times for e in edges]),
            each_iteration=np.array([e.each_iteration for e in edges], dtype=np.bool_),
            makers=np.array([v for v, _ in self._outputs], dtype=np.int64),
            output_starts=starts(sizes), sizes=flat(sizes),
        )  # fmt: skip


class _Flat(NamedTuple):
    """The arrays of a piece one after the other: of all nodes, of all edges, of all outputs."""

    node_starts: Ints
    nodes: Floats
    """[4, entries], the figures of `_parts`."""
    a: Ints
    b: Ints
    edge_starts: Ints
    widths: Ints
    """Strategies of b."""
    seconds: Floats
    each_iteration: NDArray[np.bool_]
    makers: Ints
    """The node of every output."""
    output_starts: Ints
    sizes: Floats


def _parts(node: Node) -> tuple[Floats, Floats, Floats, Floats]:
    return node.microbatch_seconds, node.iteration_seconds, node.weight_bytes, node.activation_bytes


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
    ) -> tuple[tuple[int, Piece], ...] | None:  # fmt: skip
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
        self, whole: StageProblem, owner: Sequence[int], part: Sequence[int], separators: Mapping[int, Separators],
        ties: tuple[int, ...],
    ) -> tuple[Piece, ...] | None:  # fmt: skip
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
                own=tuple(at[v] for v in own), left=tuple(at[v] for v in left), right=tuple(at[v] for v in right),
                ties=tuple(at[v] for v in tied),
                variables=sum(len(whole.nodes[v].microbatch_seconds) for v in own)
                + sum(e.seconds.size for e in edges),
                constraints=len(own) + sum(sum(e.seconds.shape) for e in edges),
            )  # fmt: skip
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
    problem: StageProblem, owner: Sequence[int], block: int, ties: Collection[int] = (),
    edges: Collection[Edge] | None = None,
) -> tuple[int, ...]:  # fmt: skip
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
        kind=node.kind, subject=node.subject, priced=node.priced, microbatch_seconds=nothing,
        iteration_seconds=nothing, weight_bytes=nothing, activation_bytes=nothing,
    )  # fmt: skip


def _on_piece(edge: Edge, place: dict[int, int], strategy: int | None) -> Edge:
    seconds, sources = edge.seconds, edge.source_specs
    if strategy is not None:
        seconds, sources = seconds[strategy : strategy + 1], sources[strategy : strategy + 1]
    return Edge(
        a=place[edge.a], b=place[edge.b], tensor=edge.tensor, seconds=seconds, source_specs=sources,
        target_specs=edge.target_specs, times=edge.times, each_iteration=edge.each_iteration,
    )  # fmt: skip
