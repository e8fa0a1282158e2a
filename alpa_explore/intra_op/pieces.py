"""A layer of a chain on a mesh, cut out of its neighbours and into pieces: what `compose` puts together again.

The cut between two neighbours is a *separator*: nodes through which all edges between them pass. A piece is a run of
blocks of a layer with the separators on its open sides; where the layer begins or ends a stage it ends as a stage does
(what comes from outside is a source, what leaves does so without a pending sum). Every node is paid for in the piece
that owns it, every edge in one piece: an edge that leaves a node of the separator on its left belongs to the piece on
its right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.chain import CONSTANT, Chain, Place
from alpa_explore.intra_op.contract import Priced
from alpa_explore.intra_op.factor_graph import Ints
from alpa_explore.intra_op.problem import FORBIDDEN, Floats
from alpa_explore.intra_op.stage_graph import StageGraph
from alpa_explore.intra_op.stage_problem import Edge, Node, NodeKind, StageProblem, build_stage_problem
from alpa_explore.sharding.spec import REPLICATE

ALL_LAYERS = -1
"""In place of a layer, in a key."""
CONSTANT_PART = -2
MOST_STATES = 1024
"""Of a separator inside a layer: beyond it the table between two of them is dearer than a contraction of both sides."""

Separators = tuple[tuple[int, ...], tuple[int, ...]]
"""At the left and the right end."""

_KINDS = tuple(NodeKind)


class Price(NamedTuple):
    """What `StageProblem.at` is asked for."""

    inverse_b: float
    memory_price: float
    microbatches_held: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """Blocks of a layer and their separators as a problem of their own; nodes of other pieces cost nothing here."""

    problem: StageProblem
    own: tuple[int, ...]
    """Nodes of the blocks, block by block, and in a block in their order in every stage that holds it."""
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
        inverse_b = np.array([p.inverse_b for p in prices])[:, None]
        memory = np.array([p.memory_price for p in prices])[:, None]
        held = np.array([p.microbatches_held for p in prices])[:, None]

        def costs(node: Node) -> Floats:
            total = node.microbatch_seconds[None, :]
            if node.iteration_seconds.any():
                total = total + inverse_b * node.iteration_seconds
            if node.weight_bytes.any() or node.activation_bytes.any():
                total = total + memory * (node.weight_bytes + held * node.activation_bytes)
            return total

        def matrix(edge: Edge) -> Floats:
            if not edge.each_iteration:
                return np.asarray(edge.seconds if edge.times == 1 else edge.seconds * edge.times)[None]
            found: Floats = edge.seconds * inverse_b[:, :, None]
            found[:, edge.seconds >= FORBIDDEN] = FORBIDDEN
            return found

        return Priced(
            node_costs=tuple(costs(n) for n in self.problem.nodes),
            edges=tuple((e.a, e.b) for e in self.problem.edges),
            edge_costs=tuple(matrix(e) for e in self.problem.edges),
        )

    @cached_property
    def least_bytes(self) -> Floats:
        """Bytes on one device of every output of every operator of the piece where each is as small as it can be."""
        return np.array([size.min() for _, size in self._outputs])

    def least_held(self, microbatches: int) -> float:
        """Bytes of weights and of the activations of so many microbatches that the piece holds at least."""
        if microbatches not in self._least_held:
            nodes = [self.problem.nodes[v] for v in self.own]
            least = sum(float((n.weight_bytes + microbatches * n.activation_bytes).min()) for n in nodes)
            self._least_held[microbatches] = least
        return self._least_held[microbatches]

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
        node_starts, parts, a, b, edge_starts, widths, seconds, iteration, makers, output_starts, sizes = self._flat
        found = parts[:, node_starts + choices].sum(axis=2).T
        paid = seconds[edge_starts + choices[:, a] * widths + choices[:, b]]
        found[:, 0] += paid[:, ~iteration].sum(axis=1)
        found[:, 1] += paid[:, iteration].sum(axis=1)
        return found, sizes[output_starts + choices[:, makers]]

    @cached_property
    def _outputs(self) -> list[tuple[int, Floats]]:
        nodes = self.problem.nodes
        return [
            (v, size)
            for v in self.own if nodes[v].kind is NodeKind.OPERATOR and (priced := nodes[v].priced) is not None
            for size in priced.output_bytes
        ]  # fmt: skip

    @cached_property
    def _flat(self) -> tuple[Any, ...]:
        """The arrays that `totals` indexes: one array of all nodes, one of all edges, one of all outputs."""
        nodes, edges = self.problem.nodes, self.problem.edges

        def starts(arrays: Sequence[Floats]) -> Ints:
            return np.array([0, *accumulate(array.size for array in arrays)][: len(arrays)], dtype=np.int64)

        def flat(arrays: Sequence[Floats]) -> Floats:
            return np.concatenate([np.zeros(0), *(array.ravel() for array in arrays)])

        microbatch = [n.microbatch_seconds for n in nodes]
        sizes = [size for _, size in self._outputs]
        return (
            starts(microbatch), np.array([flat(part) for part in zip(*map(_parts, nodes), strict=True)]),
            np.array([e.a for e in edges], dtype=np.int64), np.array([e.b for e in edges], dtype=np.int64),
            starts([e.seconds for e in edges]), np.array([e.seconds.shape[1] for e in edges], dtype=np.int64),
            flat([e.seconds * e.times for e in edges]), np.array([e.each_iteration for e in edges], dtype=np.bool_),
            np.array([v for v, _ in self._outputs], dtype=np.int64), starts(sizes), flat(sizes),
        )  # fmt: skip


def _parts(node: Node) -> tuple[Floats, Floats, Floats, Floats]:
    return node.microbatch_seconds, node.iteration_seconds, node.weight_bytes, node.activation_bytes


@dataclass(kw_only=True, eq=False)
class Pieces:
    """The pieces of one chain on the mesh of `model`; those of equal layers are made once."""

    chain: Chain
    stage_of: Callable[[int, int], StageGraph]
    model: CostModel

    def __post_init__(self) -> None:
        self._found: dict[tuple[str, int], tuple[Piece, ...] | None] = {}
        self._contents: dict[tuple[object, ...], Piece] = {}

    def of(self, layer: int, *, before: bool, after: bool) -> tuple[Piece, ...] | None:
        """The pieces of `layer`, open to the layers before and after it or not, from left to right; None where these
        are no chain. Equal pieces are one value."""
        first, last = layer - before, layer + after
        stage = self.stage_of(first, last)
        key = (stage.structure_key, layer - first)
        if key not in self._found:
            cut = self._layer(layer, stage) if self.chain.holds(first, last) else None
            self._found[key] = None if cut is None else tuple(self._contents.setdefault(p.content, p) for p in cut)
        return self._found[key]

    def tied(self, first: int, last: int) -> tuple[Piece, ...] | None:
        """The pieces of layers first..last, which would be a chain but for weights that layers far from each other
        read: these, and where their gradients are added up, are `Piece.ties`. None where more than that is shared."""
        stage = self.stage_of(first, last)
        key = (stage.structure_key, ALL_LAYERS)
        if key not in self._found:
            whole = build_stage_problem(stage, self.model)
            places = self.chain.places(whole)
            ties = _ties(whole, places)
            blocks = sorted({place for place in places if place[0] != CONSTANT})
            cut = None if ties is None else self._cut(whole, places, blocks, ((), ()), ties)
            self._found[key] = None if cut is None else tuple(self._contents.setdefault(p.content, p) for p in cut)
        return self._found[key]

    def _layer(self, layer: int, stage: StageGraph) -> tuple[Piece, ...] | None:
        whole = build_stage_problem(stage, self.model)
        places = self.chain.places(whole)
        owner = [k for k, _ in places]
        before, after = (
            separator(whole, owner, k) if stage.first <= k < stage.last else () for k in (layer - 1, layer)
        )
        return self._cut(whole, places, sorted({p for p in places if p[0] == layer}), (before, after), ())

    def _cut(
        self, whole: StageProblem, places: Sequence[Place], blocks: Sequence[Place], outer: Separators,
        ties: tuple[int, ...],
    ) -> tuple[Piece, ...] | None:  # fmt: skip
        """The pieces of `blocks`, whose nodes are next to each other in the chain."""
        replicated = {v: _replicated(whole, v) for v, (k, _) in enumerate(places) if k == CONSTANT}
        if None in replicated.values():
            return None
        part, separators = _parts_of(whole, places, blocks, outer, ties)
        edges_of: list[list[Edge]] = [[] for _ in separators]
        for e in whole.edges:
            if (payer := _payer(e, part, separators, ties)) is not None:
                edges_of[payer].append(e)
        found = []
        for i, (left, right) in enumerate(pairwise(separators)):
            own = sorted((v for v, j in enumerate(part) if j == i), key=lambda v: (places[v], v))
            touched = {v for e in edges_of[i] for v in (e.a, e.b)}
            tied = ties if not touched.isdisjoint(ties) else ()
            inside = sorted({*own, *left, *right, *tied, *(touched & replicated.keys())})
            at = {v: n for n, v in enumerate(inside)}
            nodes = [whole.nodes[v] if part[v] == i else _unpaid(whole.nodes[v], v in replicated) for v in inside]
            edges = tuple(_on_piece(e, at, replicated.get(e.a)) for e in edges_of[i])
            found.append(
                Piece(
                    problem=StageProblem(
                        stage=whole.stage, model=self.model, nodes=tuple(nodes), edges=edges, warnings=whole.warnings
                    ),
                    own=tuple(at[v] for v in own), left=tuple(at[v] for v in left),
                    right=tuple(at[v] for v in right), ties=tuple(at[v] for v in tied),
                    variables=sum(len(whole.nodes[v].microbatch_seconds) for v in own)
                    + sum(e.seconds.size for e in edges),
                    constraints=len(own) + sum(sum(e.seconds.shape) for e in edges),
                )
            )  # fmt: skip
        return tuple(found)


def _ties(problem: StageProblem, places: Sequence[Place]) -> tuple[int, ...] | None:
    """Weights and accumulators with an edge to a layer that is no neighbour; None where an edge between other nodes
    passes over a layer."""
    found = set()
    for e in problem.edges:
        (a, _), (b, _) = places[e.a], places[e.b]
        if CONSTANT in (a, b) or abs(a - b) < 2:
            continue
        tie = next((v for v in (e.a, e.b) if problem.nodes[v].kind in (NodeKind.WEIGHT, NodeKind.ACCUMULATOR)), None)
        if tie is None:
            return None
        found.add(tie)
    return tuple(sorted(found))


def _parts_of(
    problem: StageProblem, places: Sequence[Place], blocks: Sequence[Place], outer: Separators, ties: Collection[int]
) -> tuple[list[int], list[tuple[int, ...]]]:
    """For each node its part of `blocks` (−1 before them, CONSTANT_PART for constants, the number of parts behind
    them), and the separators from the left end to the right.

    Blocks are parts, but for those that an edge passes over or whose separator has too many states.
    """
    part_of = {block: i for i, block in enumerate(blocks)}

    def parts() -> list[int]:
        end = part_of[blocks[-1]] + 1
        return [
            CONSTANT_PART if place[0] == CONSTANT else part_of.get(place, -1 if place < blocks[0] else end)
            for place in places
        ]

    def join(low: int, high: int) -> None:
        """Parts low..high become one."""
        assert low < high, "neighbours of neighbours have no edge in a chain"
        for block, part in part_of.items():
            part_of[block] = part if part <= low else max(low, part - (high - low))

    edges = [e for e in problem.edges if e.a not in ties and e.b not in ties]
    if ties:
        # What lies beyond the outermost of those that touch the ties goes with them: a table has one separator less.
        found = parts()
        touching = {found[v] for e in problem.edges if e.a in ties or e.b in ties for v in (e.a, e.b)}
        for low, high in ((max(touching), len(blocks) - 1), (0, min(touching))):
            if low < high:
                join(low, high)
    while True:
        found = parts()
        end = part_of[blocks[-1]] + 1
        far = next(
            (
                (low, high) for low, high in (sorted((found[e.a], found[e.b])) for e in edges)
                if low > CONSTANT_PART and high >= low + 2
            ),
            None,
        )  # fmt: skip
        if far is not None:
            low, high = far
            join(max(low, 0) if high == end else low + 1, min(high, end - 1))
            continue
        inner = [separator(problem, found, i, ties) for i in range(end - 1)]
        states = [prod(len(problem.nodes[v].microbatch_seconds) for v in nodes) for nodes in inner]
        if max(states, default=0) <= MOST_STATES:
            return found, [outer[0], *inner, outer[1]]
        widest = states.index(max(states))
        join(widest, widest + 1)


def _payer(edge: Edge, part: Sequence[int], separators: Sequence[Collection[int]], ties: Collection[int]) -> int | None:
    """The part that pays for an edge; None where that is another layer's."""
    low, high = (edge.a, edge.b) if part[edge.a] <= part[edge.b] else (edge.b, edge.a)
    if low in ties or high in ties:
        return part[high if low in ties else low]
    # A constant may be read in several parts: each reader pays for its own edge.
    left, right = part[low] if part[low] > CONSTANT_PART else part[high], part[high]
    leaves = left < right < len(separators) and low in separators[right]
    payer = right if leaves else left
    return payer if 0 <= payer < len(separators) - 1 else None


def separator(problem: StageProblem, owner: Sequence[int], layer: int, ties: Collection[int] = ()) -> tuple[int, ...]:
    """Nodes that cover every edge between `layer` and the next, in an order that equal layers share; edges of `ties`
    are not looked at.

    `owner` may count the parts of a layer instead. Of each connected group of such edges it is the side with fewer
    combinations of strategies.
    """
    group: dict[int, int] = {}
    members: dict[int, set[int]] = {}
    for e in problem.edges:
        low, high = owner[e.a], owner[e.b]
        if (low, high) not in ((layer, layer + 1), (layer + 1, layer)) or e.a in ties or e.b in ties:
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
        sides = [sorted(v for v in together if owner[v] == k) for k in (layer, layer + 1)]
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
    nothing = np.zeros(1 if constant else len(node.microbatch_seconds))
    return replace(
        node, microbatch_seconds=nothing, iteration_seconds=nothing, weight_bytes=nothing, activation_bytes=nothing
    )


def _on_piece(edge: Edge, place: dict[int, int], strategy: int | None) -> Edge:
    moved = replace(edge, a=place[edge.a], b=place[edge.b])
    if strategy is None:
        return moved
    rows = slice(strategy, strategy + 1)
    return replace(moved, seconds=edge.seconds[rows], source_specs=edge.source_specs[rows])
