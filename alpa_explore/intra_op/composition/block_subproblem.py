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
    PRICED,
    CostLocation,
    PricedProblem,
    ProblemForm,
)
from alpa_explore.intra_op.reduction.factor_graph import without_forbidden
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.intra_op.stage.stage_totals import EXPOSED, FIGURES, Figure
from alpa_explore.numerics.arrays import Flags, Floats, Ints


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
        node_locations, common_entries, priced_entries = _locations(node_lengths, common, priced, 0, 0)
        edge_locations, common_entries, priced_entries = _locations(
            edge_lengths, ~flat.each_iteration, flat.each_iteration, common_entries, priced_entries
        )
        form = ProblemForm(
            sizes=tuple(node_lengths.tolist()),
            edges=tuple(zip(flat.a.tolist(), flat.b.tolist(), strict=True)),
            node_locations=tuple(node_locations),
            edge_locations=tuple(location for location in edge_locations if location is not None),
            common_entries=common_entries,
            priced_entries=priced_entries,
        )
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
        made = [np.full(len(node.weight_bytes), float(node.kind is NodeKind.OPERATOR)) for node in nodes]
        return _concatenated(weights), _concatenated(activations), _starts(weights), _concatenated(made)

    @cached_property
    def _least_held(self) -> dict[int, float]:
        return {}

    @cached_property
    def content_key(self) -> tuple[object, ...]:
        """Equal for subproblems with equal costs and equal nodes."""
        digest = sha256()
        beside = [side for _, *sides in self.problem.gathers for side in sides]
        beside += [kept for _, kept in self.problem.kept_beside]
        for array in (*self._flat, *(whole for _, _, whole in self._stored), *beside):
            digest.update(repr(array.shape).encode() + array.tobytes())
        return digest.hexdigest(), self.owned, self.left, self.right, self.shared

    def totals(self, choices: Ints) -> tuple[Floats, Floats]:
        """For each row of `choices` [rows, nodes] its figures [rows, `FIGURES`], and the bytes on one device of every
        output of every operator [rows, outputs]."""
        flat = self._flat
        nodes = flat.nodes[:, flat.node_starts + choices]
        totals = np.zeros((len(choices), FIGURES))
        totals[:, :4] = nodes.sum(axis=2).T
        places = flat.edge_starts + choices[:, flat.a] * flat.widths + choices[:, flat.b]
        edge_seconds = flat.seconds[places]
        totals[:, Figure.MICROBATCH] += edge_seconds[:, ~flat.each_iteration].sum(axis=1)
        totals[:, Figure.ITERATION] += edge_seconds[:, flat.each_iteration].sum(axis=1)
        if not self.problem.adds_up:
            of_nodes, of_edges = self._forward
            totals[:, Figure.FORWARD] = nodes[0] @ of_nodes + edge_seconds @ of_edges
            for number, (a, b, seconds) in self._launching:
                self._add_launching(totals, seconds[choices[:, a], choices[:, b]], of_edges[number])
            for node, inside in self._launching_inside:
                again = self.problem.runs(self.problem.nodes[node])
                self._add_launching(totals, inside[choices[:, node]] * again, of_nodes[node])
            for figure, number, whole in self._stored:
                seconds = whole[choices[:, flat.a[number]], choices[:, flat.b[number]]]
                totals[:, figure] += seconds
                totals[:, EXPOSED[figure]] += edge_seconds[:, number]
        for number, stored, read in self.problem.gathers:
            gathered = read[choices[:, flat.b[number]]] - stored[choices[:, flat.a[number]]]
            totals[:, Figure.GATHERED_BYTES] += np.maximum(gathered, 0.0)
        for node, kept in self.problem.kept_beside:
            totals[:, Figure.BESIDE_BYTES] += kept[choices[:, node]]
        return totals, flat.sizes[flat.output_starts + choices[:, flat.makers]]

    @staticmethod
    def _add_launching(totals: Floats, seconds: Floats, forward: float) -> None:
        """Add host seconds of which this share is of the forward pass."""
        totals[:, Figure.LAUNCHING_FORWARD] += forward * seconds
        totals[:, Figure.LAUNCHING_BACKWARD] += (1 - forward) * seconds

    @cached_property
    def _forward(self) -> tuple[Floats, Floats]:
        """Of every node and every edge the share of the forward pass: half where it is computed again."""
        problem = self.problem
        return (
            np.array([problem.is_forward(node) / problem.runs(node) for node in problem.nodes]),
            np.array([problem.is_forward_edge(edge) / edge.times for edge in problem.edges]),
        )

    @cached_property
    def _stored(self) -> list[tuple[Figure, int, Floats]]:
        """(figure, number, seconds with nothing hidden) of the edges of stored weights that cost anything."""
        edges = enumerate(self.problem.edges)
        stored = [(self.problem.figure_of(e), i, e.unhidden.whole) for i, e in edges if e.stored]
        return [one for one in stored if one[2].any()]

    @cached_property
    def _launching_inside(self) -> list[tuple[int, Floats]]:
        """(node, `PricedOperator.launching`) of the operators of the block with collectives inside."""
        nodes = self.problem.nodes
        operators = ((v, nodes[v].priced) for v in self.owned if nodes[v].kind is NodeKind.OPERATOR)
        return [(v, p.launching) for v, p in operators if p is not None and p.launching is not None]

    @cached_property
    def _launching(self) -> list[tuple[int, tuple[int, int, Floats]]]:
        """(number, (a, b, `Edge.launching`)) of the edges whose collectives take the host some time to launch."""
        edges = enumerate(self.problem.edges)
        return [(i, (e.a, e.b, e.launching)) for i, e in edges if e.launching is not None and e.launching.any()]

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
            node_starts=_starts([n.microbatch_seconds for n in nodes]),
            nodes=np.concatenate([np.zeros((4, 0)), *map(node_figures, nodes)], axis=1),
            a=np.array([e.a for e in edges], dtype=np.int64),
            b=np.array([e.b for e in edges], dtype=np.int64),
            edge_starts=_starts([e.seconds for e in edges]),
            widths=np.array([e.seconds.shape[1] for e in edges], dtype=np.int64),
            seconds=_concatenated([e.seconds if e.times == 1 else e.seconds * e.times for e in edges]),
            each_iteration=np.array([e.each_iteration for e in edges], dtype=np.bool_),
            makers=np.array([v for v, _ in self._outputs], dtype=np.int64),
            output_starts=_starts(sizes),
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


def node_figures(node: Node) -> Floats:
    """Microbatch and iteration seconds, weight and activation bytes of the strategies of a node, [4, strategies]."""
    return np.array([node.microbatch_seconds, node.iteration_seconds, node.weight_bytes, node.activation_bytes])


def priced_figures(figures: Floats, prices: Sequence[Price]) -> Floats:
    """Figures [4, entries] of nodes as costs, [prices, entries], as `StageProblem.at` has them."""
    inverse_b, memory_price, held = np.array(prices).T[:, :, None]
    costs: Floats = figures[0] + inverse_b * figures[1] + memory_price * (figures[2] + held * figures[3])
    return costs


def _concatenated(arrays: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *(array.ravel() for array in arrays)])


def _starts(arrays: Sequence[Floats]) -> Ints:
    lengths = np.array([array.size for array in arrays], dtype=np.int64)
    return np.cumsum(lengths) - lengths


def _locations(
    lengths: Ints, common: Flags, priced: Flags, common_begin: int, priced_begin: int
) -> tuple[list[CostLocation | None], int, int]:
    """Where the costs of each node or edge lie, from these beginnings of the two spaces on, and the ends of both."""
    common_lengths, priced_lengths = np.where(common, lengths, 0), np.where(priced, lengths, 0)
    offsets = np.where(
        priced,
        priced_begin + np.cumsum(priced_lengths) - priced_lengths,
        common_begin + np.cumsum(common_lengths) - common_lengths,
    ).tolist()
    spaces = np.where(priced, PRICED, COMMON).tolist()
    locations = [
        CostLocation(space, offset) if has_costs else None
        for space, offset, has_costs in zip(spaces, offsets, (common | priced).tolist(), strict=True)
    ]
    return locations, common_begin + int(common_lengths.sum()), priced_begin + int(priced_lengths.sum())
