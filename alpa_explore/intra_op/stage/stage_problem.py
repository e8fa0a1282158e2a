"""A stage on a logical mesh as a sharding problem (Eq. 1): nodes, edges, and the bytes that every choice holds.

Nodes, in this order:
- a *source* for every tensor that comes from outside: any Shard/Replicate spec, at no cost inside the stage. A frozen
  weight, a buffer or a constant is stored in it for good, as weights are, without gradient and optimizer state; an
  input, and what is held for the backward pass, is there for each microbatch;
- a *weight* for every parameter: the spec in which it is stored;
- an *operator* for every forward and backward operator: its strategies;
- an *accumulator* for every gradient: the spec in which it is summed over microbatches, Partial included;
- an *update* for every parameter: the optimizer step, whose spec is that of the optimizer state.

Edges carry the exposed seconds of resharding (`overlap`): into operators and accumulators once per microbatch (twice
into a recomputed operator), accumulator → update → weight once per iteration. A tensor that leaves the stage pays for
its pending sum at its producer. ZeRO-1, 2 and 3 are ordinary choices: a sharded update, accumulator, weight. A strategy
or stored spec that violates a spec constraint of the user (`sharding/spec_constraint.py`) is forbidden.

Where every device runs a stage of two copies of the model (`Device.mirror`), weights, gradients and optimizer states
count twice, and so does what is paid once an iteration; to it comes the sum of the gradients of both copies. The other
stage of a device is taken to be like this one.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from alpa_explore.cost.model import CostModel, PricedOperator
from alpa_explore.graph import Phase
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.stage.edge import Edge, EdgeMatrix
from alpa_explore.intra_op.stage.liveness import Intervals, workspace_intervals
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_totals import EXPOSED, FIGURES, Figure, StageTotals, totals_of
from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.sharding.spec import Spec
from alpa_explore.units import DTYPE_BYTES


class NodeKind(enum.Enum):
    """The decision that a node of the problem stands for."""

    SOURCE = "source"
    WEIGHT = "weight"
    OPERATOR = "operator"
    ACCUMULATOR = "accumulator"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One decision. Arrays have one entry per strategy."""

    kind: NodeKind
    subject: int
    """Tensor (source), position in graph.parameters (weight, accumulator, update), operator index (operator)."""
    microbatch_seconds: Floats
    iteration_seconds: Floats
    weight_bytes: Floats
    activation_bytes: Floats
    priced: PricedOperator | None = None


def node_figures(node: Node) -> Floats:
    """Microbatch and iteration seconds, weight and activation bytes of the strategies of a node, [4, strategies]."""
    return np.array([node.microbatch_seconds, node.iteration_seconds, node.weight_bytes, node.activation_bytes])


@dataclass(frozen=True, kw_only=True, eq=False)
class StageProblem:
    """The decisions of one stage on one mesh. `at` makes the ShardingProblem for a given B and memory price."""

    stage: StageGraph
    model: CostModel
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    warnings: tuple[str, ...]

    @cached_property
    def intervals(self) -> Intervals:
        """When the tensors that the operators of the stage produce are alive."""
        return workspace_intervals(self.stage)

    def at(
        self, *, inverse_b: float, memory_price: float, microbatches_held: float, kept: Sequence[Ints] | None = None
    ) -> ShardingProblem:
        """Minimise microbatch + iteration × `inverse_b` + `memory_price` × (weight + held × activation bytes).

        With `kept`, which has one entry for each node, only these strategies of it are in the problem.
        """

        def scaled(edge: Edge) -> Floats:
            seconds = edge.seconds if kept is None else edge.exposed.between(kept[edge.a], kept[edge.b])
            costs = seconds * (inverse_b if edge.each_iteration else edge.times)
            costs[seconds >= FORBIDDEN] = FORBIDDEN
            return costs

        def priced(node: Node) -> Floats:
            return (
                node.microbatch_seconds
                + inverse_b * node.iteration_seconds
                + memory_price * (node.weight_bytes + microbatches_held * node.activation_bytes)
            )

        costs = [priced(n) for n in self.nodes]

        return ShardingProblem(
            name=f"layers {self.stage.first}–{self.stage.last} on {self.model.mesh}",
            node_costs=tuple(costs if kept is None else (c[k] for c, k in zip(costs, kept, strict=True))),
            edges=tuple((e.a, e.b) for e in self.edges),
            edge_costs=tuple(scaled(e) for e in self.edges),
        )

    @property
    def adds_up(self) -> bool:
        """Whether what is predicted is what solvers add up, but for what a microbatch costs beside its operators: the
        host is never the limit, and nothing of stored weights is hidden."""
        software = self.model.device.software
        launches = software.forward_launch_seconds or software.backward_launch_seconds
        return not launches and software.gradient_sync != "overlapped"

    def is_forward(self, node: Node) -> bool:
        """Whether a node is an operator of the forward pass."""
        operators = self.stage.layered.graph.operators
        return node.kind is NodeKind.OPERATOR and operators[node.subject].phase is Phase.FORWARD

    def is_forward_edge(self, edge: Edge) -> bool:
        """Whether an operator of the forward pass reads what the edge reshards."""
        return not edge.each_iteration and self.is_forward(self.nodes[edge.b])

    def runs(self, node: Node) -> int:
        """How often a node runs in a microbatch: twice where the backward pass computes it again."""
        return 2 if self.is_forward(node) and node.subject in self.stage.layered.recomputed else 1

    def figure_of(self, edge: Edge) -> Figure:
        """Of an edge of stored weights: as what its seconds count, with nothing hidden."""
        if edge.each_iteration:
            summed = self.nodes[edge.a].kind is NodeKind.ACCUMULATOR
            return Figure.SUMMED if summed else Figure.GATHERED
        return Figure.STORED_FORWARD if self.is_forward_edge(edge) else Figure.STORED_BACKWARD

    def figures(self, choices: Ints, nodes: Floats, edge_seconds: Floats) -> Floats:
        """The `Figure`s of each row of `choices` [rows, nodes], as [rows, FIGURES]. `nodes` are the `node_figures` of
        what is chosen [4, rows, nodes], `edge_seconds` the exposed seconds on the edges [rows, edges], each time."""
        totals = np.zeros((len(choices), FIGURES))
        totals[:, :4] = nodes.sum(axis=2).T
        each_iteration = self._each_iteration
        totals[:, Figure.MICROBATCH] += edge_seconds[:, ~each_iteration].sum(axis=1)
        totals[:, Figure.ITERATION] += edge_seconds[:, each_iteration].sum(axis=1)
        if not self.adds_up:
            of_nodes, of_edges = self._forward
            totals[:, Figure.FORWARD] = nodes[0] @ of_nodes + edge_seconds @ of_edges
            launched = [(of_nodes[v], inside[choices[:, v]]) for v, inside in self._launching_nodes]
            launched += [(of_edges[n], m.pairs(choices[:, e.a], choices[:, e.b])) for n, e, m in self._launching_edges]
            for forward, seconds in launched:
                totals[:, Figure.LAUNCHING_FORWARD] += forward * seconds
                totals[:, Figure.LAUNCHING_BACKWARD] += (1 - forward) * seconds
            for number, edge, whole in self.stored:
                figure = self.figure_of(edge)
                totals[:, figure] += whole.pairs(choices[:, edge.a], choices[:, edge.b])
                totals[:, EXPOSED[figure]] += edge_seconds[:, number]
        for number, stored, read in self.gathers:
            edge = self.edges[number]
            totals[:, Figure.GATHERED_BYTES] += np.maximum(read[choices[:, edge.b]] - stored[choices[:, edge.a]], 0.0)
        for node, kept in self.kept_beside:
            totals[:, Figure.BESIDE_BYTES] += kept[choices[:, node]]
        return totals

    @cached_property
    def _each_iteration(self) -> Flags:
        return np.array([edge.each_iteration for edge in self.edges], dtype=np.bool_)

    @cached_property
    def _forward(self) -> tuple[Floats, Floats]:
        """Of every node and every edge the share of the forward pass: half where it is computed again."""
        of_nodes = [self.is_forward(node) / self.runs(node) for node in self.nodes]
        of_edges = [self.is_forward_edge(edge) / edge.times for edge in self.edges]
        return np.array(of_nodes, dtype=np.float64), np.array(of_edges, dtype=np.float64)

    @cached_property
    def stored(self) -> list[tuple[int, Edge, EdgeMatrix]]:
        """(number, edge, seconds with nothing hidden) of the edges of stored weights that cost anything."""
        stored = [(number, edge, edge.unhidden) for number, edge in enumerate(self.edges) if edge.stored]
        return [one for one in stored if not one[2].is_zero]

    @cached_property
    def _launching_edges(self) -> list[tuple[int, Edge, EdgeMatrix]]:
        """(number, edge, host seconds) of the edges whose collectives take the host some time to launch."""
        edges = ((number, edge, edge.launches) for number, edge in enumerate(self.edges))
        return [(number, edge, m) for number, edge, m in edges if m is not None and not m.is_zero]

    @cached_property
    def _launching_nodes(self) -> list[tuple[int, Floats]]:
        """(node, host seconds) of the operators with collectives inside."""
        operators = [(v, n, n.priced) for v, n in enumerate(self.nodes) if n.kind is NodeKind.OPERATOR]
        return [(v, p.launching * self.runs(n)) for v, n, p in operators if p is not None and p.launching is not None]

    @cached_property
    def gathers(self) -> tuple[tuple[int, Floats, Floats], ...]:
        """(edge, bytes stored under each strategy of its first end, bytes read under each of its second) of the weights
        that the forward pass reads; nothing where the software counts no copies of them."""
        if not self.model.device.software.gathered_blocks:
            return ()
        found = []
        for number, edge in enumerate(self.edges):
            if edge.stored and self.is_forward_edge(edge):
                tensor = self.stage.layered.graph.tensors[edge.tensor]
                local = self.model.reshard(tensor).shares * tensor.bytes
                found.append((number, local[edge.source_specs], local[edge.target_specs]))
        return tuple(found)

    @cached_property
    def kept_beside(self) -> tuple[tuple[int, Floats], ...]:
        """(node, bytes that the software keeps beside it for each strategy): buffers of gradients, and the loss of the
        last microbatch."""
        software, layered = self.model.device.software, self.stage.layered
        found = []
        for v, node in enumerate(self.nodes):
            if node.kind is NodeKind.ACCUMULATOR and software.buffer_bytes:
                dtype = layered.graph.tensors[layered.graph.parameters[node.subject].tensor].dtype
                each = software.gradient_element_bytes(dtype, DTYPE_BYTES[dtype])
                found.append((v, node.weight_bytes * (software.buffer_bytes / each)))
            elif node.kind is NodeKind.OPERATOR and software.keeps_last_loss and node.subject in layered.head:
                found.append((v, node.activation_bytes))
        return tuple(found)

    def totals(self, choices: tuple[int, ...]) -> StageTotals:
        """The seconds and bytes of a choice, from the figures of its nodes and edges."""
        nodes = np.array([node_figures(node)[:, k] for node, k in zip(self.nodes, choices, strict=True)])
        seconds = [e.exposed.at(choices[e.a], choices[e.b]) * e.times for e in self.edges]
        whole = self.figures(np.array([choices]), nodes.reshape(-1, 4).T[:, None], np.array([seconds]))
        figures = whole[0].tolist()
        workspace = self._workspace(choices) + self.model.device.reserved_bytes
        return totals_of(figures, workspace, self.stage, self.model)

    def beside_bytes(self, choices: tuple[int, ...]) -> float:
        """Of the workspace of a choice what `memory_limit` does not count: copies of weights that it gathers, and what
        the software keeps."""
        workspace = self._workspace(choices) + self.model.device.reserved_bytes
        return self.totals(choices).workspace_bytes - workspace

    def memory_limit(self, microbatches_held: float, limit_bytes: float) -> MemoryLimit:
        """A limit of `limit_bytes` per device: weights and the activations of other microbatches at all times, tensors
        of the running one while they are alive, and what the software keeps back.

        The peak of a choice equals that of its totals (weight + held × activation + workspace bytes), but for its
        `beside_bytes`, which depend on pairs of nodes.
        """
        times = int(self.intervals.ends.max(initial=-1)) + 1
        items = [
            Item(
                node=v,
                start=0,
                end=max(times, 1),
                usage=n.weight_bytes + (microbatches_held - (n.kind is NodeKind.OPERATOR)) * n.activation_bytes,
            )
            for v, n in enumerate(self.nodes)
        ]
        graph = self.stage.layered.graph
        producers = {
            tensor: (v, position)
            for v, n in enumerate(self.nodes)
            if n.kind is NodeKind.OPERATOR
            for position, tensor in enumerate(graph.operators[n.subject].outputs)
        }
        for tensor, start, end in zip(self.intervals.tensors, self.intervals.starts, self.intervals.ends, strict=True):
            if tensor in producers:
                v, position = producers[tensor]
                priced = self.nodes[v].priced
                assert priced is not None, "operators are priced"
                usage = priced.output_bytes[position]
                items.append(Item(node=v, start=int(start), end=int(end) + 1, usage=usage))
        return MemoryLimit.of(items, limit_bytes - self.model.device.reserved_bytes)

    def leaving_seconds(self, tensor: int, spec: Spec) -> float:
        """Seconds to complete the pending sum of a tensor that leaves the stage in `spec`."""
        table = self.model.reshard(self.stage.layered.graph.tensors[tensor])
        return float(table.completion(np.array([table.index[spec]]))[0])

    def local_bytes(self, choices: tuple[int, ...]) -> dict[int, float]:
        """Tensor that an operator makes -> its bytes on one device."""
        local: dict[int, float] = {}
        for node, choice in zip(self.nodes, choices, strict=True):
            if node.kind is NodeKind.OPERATOR and node.priced is not None:
                for position, tensor in enumerate(self.stage.layered.graph.operators[node.subject].outputs):
                    local[tensor] = float(node.priced.output_bytes[position][choice])
        return local

    def _workspace(self, choices: tuple[int, ...]) -> float:
        local = self.local_bytes(choices)
        # Storage that begins outside the stage (a view of a received tensor) counts at its sender: size 0 here.
        sizes = np.array([[local.get(t, 0.0) for t in self.intervals.tensors]])
        return float(self.intervals.workspace(sizes)[0])
