"""A block of a chain on a mesh as a subproblem, and its costs at any price for bytes and any B."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from alpa_explore.intra_op.composition.contraction.priced_problem import (
    COMMON,
    FREE,
    PRICED,
    PricedProblem,
    ProblemForm,
)
from alpa_explore.intra_op.reduction.factor_graph import without_forbidden
from alpa_explore.intra_op.stage.stage_problem import NodeKind, StageProblem, node_figures
from alpa_explore.numerics.arrays import Flags, Floats, Ints, starts


class Price(NamedTuple):
    """The arguments of `StageProblem.at`: how seconds and bytes add up to one objective."""

    inverse_b: float
    """1/B, the weight of the seconds that are paid once an iteration."""
    memory_price: float
    """Seconds for each byte held (a Lagrange multiplier)."""
    microbatches_held: float
    """How many microbatches' activations count as held."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockSubproblem:
    """A block and its separators as a problem; nodes that other blocks own cost nothing here."""

    problem: StageProblem
    owned: tuple[int, ...]
    """Nodes of the block, in the order that they have in every stage that holds it (block by block where blocks are
    joined)."""
    left: tuple[int, ...]
    """Nodes of the separator on the left; the block may own some of them."""
    right: tuple[int, ...]
    """Likewise on the right."""
    shared: tuple[int, ...]
    """Nodes of parameters that distant blocks share, in the same order in all of those; empty where the block has no
    edge to them."""
    variables: int
    """Variables of Eq. 1 that the block adds to a stage."""
    constraints: int
    """Constraints of Eq. 1 that the block adds to a stage."""

    def at(self, prices: Sequence[Price]) -> PricedProblem:
        """The problem at several prices, each as `StageProblem.at` has it."""
        form, common_costs, nodes, edges = self._cost_arrays
        inverse_b = np.array([[price.inverse_b] for price in prices])
        priced_costs = np.concatenate([priced_figures(nodes, prices), inverse_b * edges], axis=1)
        return PricedProblem(form=form, common_costs=common_costs, priced_costs=priced_costs)

    @cached_property
    def _cost_arrays(self) -> tuple[ProblemForm, Floats, Floats, Floats]:
        """The form of `at`; the costs that no price changes; the four figures [4, entries] of the nodes that a price
        changes; the seconds of the edges that are paid once an iteration."""
        flat = self._flat
        nonzero = np.asarray(np.logical_or.reduceat(flat.nodes != 0, flat.node_starts, axis=1))
        priced = np.any(nonzero[1:], axis=0)
        common = np.any(nonzero, axis=0) & ~priced
        node_lengths, edge_lengths = flat.lengths()
        of_nodes = np.where(priced, PRICED, np.where(common, COMMON, FREE))
        spaces = np.concatenate([of_nodes, np.where(flat.each_iteration, PRICED, COMMON)])
        edges = list(zip(flat.a.tolist(), flat.b.tolist(), strict=True))
        form = ProblemForm.of(node_lengths.tolist(), edges, spaces)
        seconds = flat.seconds
        common_costs = [flat.nodes[0, common.repeat(node_lengths)], seconds[~flat.each_iteration.repeat(edge_lengths)]]
        return (
            form,
            without_forbidden(np.concatenate(common_costs)),
            without_forbidden(flat.nodes[:, priced.repeat(node_lengths)]),
            without_forbidden(seconds[flat.each_iteration.repeat(edge_lengths)]),
        )

    def strategies(self, nodes: Sequence[int], states: Ints | None = None) -> Ints:
        """The strategy of each of `nodes` in each of these states of them all, [nodes, states]; by default in every
        state."""
        sizes = [len(self.problem.nodes[v].microbatch_seconds) for v in nodes]
        left = np.arange(math.prod(sizes), dtype=np.int64) if states is None else states
        strategies = np.empty((len(sizes), len(left)), dtype=np.int64)
        for place in reversed(range(len(sizes))):  # np.unravel_index takes no more than 64 nodes
            left, strategies[place] = np.divmod(left, sizes[place])
        return strategies

    @cached_property
    def least_bytes(self) -> Floats:
        """Bytes on one device of every output of every operator of the block, each as small as it can be."""
        return np.array([size.min() for _, size in self._outputs])

    @cached_property
    def most_bytes(self) -> Floats:
        """The same as large as it can be."""
        return np.array([size.max() for _, size in self._outputs])

    def least_held(self, microbatches: int) -> float:
        """Lower bound on the bytes of weights and of the activations of so many microbatches, without those that
        operators make of the running one."""
        if microbatches not in self._least_held:
            weights, activations, starts, running = self._holding
            whole = weights + (microbatches - running) * activations
            self._least_held[microbatches] = float(np.minimum.reduceat(whole, starts).sum()) if len(starts) else 0.0
        return self._least_held[microbatches]

    @cached_property
    def least_activation_bytes(self) -> float:
        """Lower bound on the activation bytes of one microbatch."""
        return sum(float(self.problem.nodes[v].activation_bytes.min()) for v in self.owned)

    @cached_property
    def _holding(self) -> tuple[Floats, Floats, Ints, Floats]:
        """Weight and activation bytes of the nodes of the block that hold any, one after the other; where each node
        begins; and 1.0 for what operators make."""
        nodes = [
            node
            for v in self.owned
            if (node := self.problem.nodes[v]).weight_bytes.any() or node.activation_bytes.any()
        ]
        weights, activations = [node.weight_bytes for node in nodes], [node.activation_bytes for node in nodes]
        begins = starts([w.size for w in weights])
        made = [np.full(len(node.weight_bytes), float(node.kind is NodeKind.OPERATOR)) for node in nodes]
        return (_concatenated(weights), _concatenated(activations), begins, _concatenated(made))

    @cached_property
    def _least_held(self) -> dict[int, float]:
        return {}

    @cached_property
    def content_key(self) -> tuple[object, ...]:
        """Equal for subproblems with equal costs and equal nodes."""
        digest = sha256()
        beside = [side for _, *sides in self.problem.gathers for side in sides]
        beside += [kept for _, kept in self.problem.kept_beside]
        for array in (*self._flat, *(seconds.whole for _, _, seconds in self.problem.stored), *beside):
            digest.update(repr(array.shape).encode() + array.tobytes())
        return digest.hexdigest(), self.owned, self.left, self.right, self.shared

    def totals(self, choices: Ints) -> tuple[Floats, Floats]:
        """For each row of `choices` [rows, nodes] its figures [rows, `FIGURES`], and the bytes on one device of every
        output of every operator [rows, outputs]."""
        flat = self._flat
        places = flat.edge_starts + choices[:, flat.a] * flat.widths + choices[:, flat.b]
        totals = self.problem.figures(choices, flat.nodes[:, flat.node_starts + choices], flat.seconds[places])
        return totals, flat.sizes[flat.output_starts + choices[:, flat.makers]]

    @cached_property
    def _outputs(self) -> list[tuple[int, Floats]]:
        """(node, bytes for each strategy) of every output of every operator."""
        nodes = self.problem.nodes
        return [
            (v, size)
            for v in self.owned
            if nodes[v].kind is NodeKind.OPERATOR and (priced := nodes[v].priced) is not None
            for size in priced.output_bytes
        ]

    @cached_property
    def _flat(self) -> _FlatArrays:
        nodes, edges = self.problem.nodes, self.problem.edges
        sizes = [size for _, size in self._outputs]
        return _FlatArrays(
            node_starts=starts([n.microbatch_seconds.size for n in nodes]),
            nodes=np.concatenate([np.zeros((4, 0)), *map(node_figures, nodes)], axis=1),
            a=np.array([e.a for e in edges], dtype=np.int64),
            b=np.array([e.b for e in edges], dtype=np.int64),
            edge_starts=starts([e.seconds.size for e in edges]),
            widths=np.array([e.seconds.shape[1] for e in edges], dtype=np.int64),
            seconds=_concatenated([e.seconds if e.times == 1 else e.seconds * e.times for e in edges]),
            each_iteration=np.array([e.each_iteration for e in edges], dtype=np.bool_),
            makers=np.array([v for v, _ in self._outputs], dtype=np.int64),
            output_starts=starts([size.size for size in sizes]),
            sizes=_concatenated(sizes),
        )


class _FlatArrays(NamedTuple):
    """The arrays of a subproblem one after the other: of all nodes, of all edges, of all outputs."""

    node_starts: Ints
    nodes: Floats
    """[4, entries], the figures of `node_figures`."""
    a: Ints
    b: Ints
    edge_starts: Ints
    widths: Ints
    """Strategies of b."""
    seconds: Floats
    each_iteration: Flags
    makers: Ints
    """The node of every output."""
    output_starts: Ints
    sizes: Floats

    def lengths(self) -> tuple[Ints, Ints]:
        """Entries of every node, and of every edge."""
        nodes = np.diff(self.node_starts, append=self.nodes.shape[1])
        return nodes, np.diff(self.edge_starts, append=len(self.seconds))


def priced_figures(figures: Floats, prices: Sequence[Price]) -> Floats:
    """Figures [4, entries] of nodes as costs, [prices, entries], as `StageProblem.at` has them."""
    inverse_b, memory_price, held = np.array(prices).T[:, :, None]
    costs: Floats = figures[0] + inverse_b * figures[1] + memory_price * (figures[2] + held * figures[3])
    return costs


def _concatenated(arrays: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *(array.ravel() for array in arrays)])
