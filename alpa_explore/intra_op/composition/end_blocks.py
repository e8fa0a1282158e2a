"""A block at an end of a stage, from the same block inside one: the table of that block serves for both.

The first block of a stage receives a tensor and sends a gradient where the same block inside a stage has a neighbour.
All else is equal, so its least costs follow from those of the block inside: with l a state of the separator that the
first block lacks,

    A(S) = min over l of  T(l, S) + cost of receiving and sending in state l

and likewise for the last block. That takes far less time than a contraction. `end_block` takes nothing for granted: it
compares the costs of both blocks node by node and edge by edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.graph import GIVEN_KINDS
from alpa_explore.intra_op.composition.block_subproblem import BlockSubproblem, Price, node_figures, priced_figures
from alpa_explore.intra_op.reduction.factor_graph import without_forbidden
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EndBlock:
    """How a block at an end of a stage follows from one inside it."""

    is_first: bool
    """Whether the separator that it lacks is the left one."""
    states: Ints
    """The states of that separator, in the block inside, that it can be in."""
    inner_node: Ints
    """For each of its nodes that of the block inside."""
    received: Mapping[int, Ints]
    """For each node of a tensor that the stage receives its strategy in each of `states`."""
    _figures: Floats
    """[4, states]: what the end of the stage costs in each state, as `node_figures`."""

    def costs(self, prices: Sequence[Price]) -> Floats:
        """What the end of the stage costs, [prices, states]."""
        return priced_figures(self._figures, prices)


def end_block(end: BlockSubproblem, inner: BlockSubproblem) -> EndBlock | None:
    """How `end` follows from `inner`; None where it does not, and for blocks that are at both ends of a stage."""
    if bool(end.left) == bool(end.right) or not inner.left or not inner.right or end.shared or inner.shared:
        return None
    if len(end.problem.nodes) != len(inner.problem.nodes) or len(end.problem.edges) != len(inner.problem.edges):
        return None
    is_first = not end.left
    missing = inner.left if is_first else inner.right
    inner_node = _nodes_at_same_places(end, inner, is_first=is_first)
    received = None if inner_node is None else _strategies_received(end, inner, inner_node)
    if inner_node is None or received is None:
        return None
    figures: dict[int, Floats] = {}
    for v, w in enumerate(inner_node.tolist()):
        of_end, of_inner = node_figures(end.problem.nodes[v]), node_figures(inner.problem.nodes[w])
        if v in received:
            figures[w] = np.full(of_inner.shape, np.inf)
            figures[w][:, received[v]] = of_end
        elif of_end.shape != of_inner.shape or not (w in missing or np.array_equal(of_end, of_inner)):
            return None
        elif w in missing:
            figures[w] = of_end - of_inner
    states = inner.strategies(missing)
    of_states = np.sum([figures[w][:, of_node] for w, of_node in zip(missing, states, strict=True)], axis=0)
    allowed = np.flatnonzero(np.isfinite(of_states[0]))
    places = {w: of_node[allowed] for w, of_node in zip(missing, states, strict=True)}
    return EndBlock(
        is_first=is_first,
        states=allowed,
        inner_node=inner_node,
        received={
            v: (places[int(inner_node[v])][:, None] == strategies).argmax(axis=1) for v, strategies in received.items()
        },
        _figures=without_forbidden(of_states[:, allowed]),
    )


def _nodes_at_same_places(end: BlockSubproblem, inner: BlockSubproblem, *, is_first: bool) -> Ints | None:
    """For each node of `end` that of `inner` at the same place: in the order of the nodes that a block owns, which is
    the same in all stages, or in that of a separator or of the constants. A tensor that the stage receives has the
    place of the neighbour's node that makes it."""
    missing, kept = (inner.left, (end.right, inner.right)) if is_first else (inner.right, (end.left, inner.left))
    owned_inside = set(inner.owned)
    made_outside = [w for w in missing if w not in owned_inside]
    received = [v for v in end.owned if _is_received(end, v)]
    others = [v for v in end.owned if not _is_received(end, v)]
    constants = _constants(end), _constants(inner)
    aligned = ((received, made_outside), (others, inner.owned), kept, constants)
    if any(len(of_end) != len(of_inner) for of_end, of_inner in aligned):
        return None
    pairs = {v: w for nodes in aligned for v, w in zip(*nodes, strict=True)}
    count = len(inner.problem.nodes)
    if pairs.keys() != set(range(count)) or len(set(pairs.values())) != count:
        return None
    return np.array([pairs[v] for v in range(count)], dtype=np.int64)


def _is_received(block: BlockSubproblem, v: int) -> bool:
    """Whether a node is a source that another stage makes, rather than a frozen weight or a buffer of the block."""
    node = block.problem.nodes[v]
    if node.kind is not NodeKind.SOURCE:
        return False
    return block.problem.stage.layered.graph.tensors[node.subject].kind not in GIVEN_KINDS


def _constants(block: BlockSubproblem) -> list[int]:
    """The nodes that no block owns."""
    known = {*block.owned, *block.left, *block.right}
    return [v for v in range(len(block.problem.nodes)) if v not in known]


def _strategies_received(end: BlockSubproblem, inner: BlockSubproblem, inner_node: Ints) -> dict[int, Ints] | None:
    """For each tensor that the stage receives, and each of its specs, a strategy in `inner` of the node that makes it
    which has that spec; None where not all edges cost the same then."""
    strategies: dict[int, Ints] = {}
    owned, owned_inside = set(end.owned), set(inner.owned)
    made_outside = {v for v, w in enumerate(inner_node.tolist()) if v in owned and w not in owned_inside}
    for e, f in zip(end.problem.edges, inner.problem.edges, strict=True):
        if (inner_node[e.a], inner_node[e.b], e.times, e.each_iteration) != (f.a, f.b, f.times, f.each_iteration):
            return None
        seconds = f.seconds
        if e.a in made_outside:
            if e.a not in strategies:
                same = e.source_specs[:, None] == f.source_specs
                if not same.any(axis=1).all():
                    return None
                strategies[e.a] = same.argmax(axis=1)
            seconds = seconds[strategies[e.a]]
        if not np.array_equal(e.seconds, seconds):
            return None
    return strategies if strategies.keys() == made_outside else None
