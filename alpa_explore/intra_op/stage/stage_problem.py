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
from functools import cache, cached_property, partial

import numpy as np

from alpa_explore.cost.memory import peak_bytes
from alpa_explore.cost.model import CostModel, PricedOperator
from alpa_explore.graph import GIVEN_KINDS, Operator, Phase
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.stage.edge import Edge, Pairs
from alpa_explore.intra_op.stage.liveness import Intervals, workspace_intervals
from alpa_explore.intra_op.stage.overlap import Overlap, Resharding
from alpa_explore.intra_op.stage.stage_graph import Holding, StageGraph
from alpa_explore.intra_op.stage.stage_totals import EXPOSED, FIGURES, Figure, StageTotals, totals_of
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.sharding.spec import Spec
from alpa_explore.sharding.spec_constraint import SpecConstraint, satisfied
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
        figures = [0.0] * FIGURES
        for node, choice in zip(self.nodes, choices, strict=True):
            seconds = float(node.microbatch_seconds[choice])
            figures[Figure.MICROBATCH] += seconds
            figures[Figure.ITERATION] += float(node.iteration_seconds[choice])
            figures[Figure.WEIGHT_BYTES] += float(node.weight_bytes[choice])
            figures[Figure.ACTIVATION_BYTES] += float(node.activation_bytes[choice])
            forward, runs = self.is_forward(node), self.runs(node)
            figures[Figure.FORWARD] += seconds / runs * forward
            if node.kind is NodeKind.OPERATOR and node.priced is not None and node.priced.launching is not None:
                launching = float(node.priced.launching[choice])
                figures[Figure.LAUNCHING_FORWARD if forward else Figure.LAUNCHING_BACKWARD] += launching
                figures[Figure.LAUNCHING_BACKWARD] += launching * (runs - 1)
        for edge in self.edges:
            pair = choices[edge.a], choices[edge.b]
            seconds, forward = edge.exposed.at(*pair), self.is_forward_edge(edge)
            figures[Figure.ITERATION if edge.each_iteration else Figure.MICROBATCH] += seconds * edge.times
            figures[Figure.FORWARD] += seconds * forward
            if edge.launches is not None:
                launching = edge.launches.at(*pair) / edge.times
                figures[Figure.LAUNCHING_FORWARD if forward else Figure.LAUNCHING_BACKWARD] += launching
                figures[Figure.LAUNCHING_BACKWARD] += launching * (edge.times - 1)
            if edge.stored:
                figure = self.figure_of(edge)
                figures[figure] += edge.unhidden.at(*pair)
                figures[EXPOSED[figure]] += seconds
        for number, stored, read in self.gathers:
            edge = self.edges[number]
            figures[Figure.GATHERED_BYTES] += max(float(read[choices[edge.b]] - stored[choices[edge.a]]), 0.0)
        figures[Figure.BESIDE_BYTES] = sum(float(kept[choices[v]]) for v, kept in self.kept_beside)
        workspace = self._workspace(choices) + self.model.device.reserved_bytes
        return totals_of(figures, workspace, self.stage, self.model)

    def beside_bytes(self, choices: tuple[int, ...]) -> float:
        """Of the workspace of a choice what `memory_limit` does not count: copies of weights that it gathers, and what
        the software keeps."""
        workspace = self._workspace(choices) + self.model.device.reserved_bytes
        return self.totals(choices).workspace_bytes - workspace

    def memory_limit(self, microbatches_held: float, limit_bytes: float) -> MemoryLimit:
        """A limit of `limit_bytes` per device: weights and held activations at all times, other tensors while they are
        alive, and what the software keeps back.

        The peak of a choice equals that of its totals (weight + held × activation + workspace bytes), but for its
        `beside_bytes`, which depend on pairs of nodes.
        """
        times = int(self.intervals.ends.max(initial=-1)) + 1
        items = [
            Item(node=v, start=0, end=max(times, 1), usage=n.weight_bytes + microbatches_held * n.activation_bytes)
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

    def _workspace(self, choices: tuple[int, ...]) -> float:
        graph = self.stage.layered.graph
        local: dict[int, float] = {}
        for node, choice in zip(self.nodes, choices, strict=True):
            if node.kind is NodeKind.OPERATOR and node.priced is not None:
                for position, tensor in enumerate(graph.operators[node.subject].outputs):
                    local[tensor] = float(node.priced.output_bytes[position][choice])
        # Storage that begins outside the stage (a view of a received tensor) counts at its sender: size 0 here.
        sizes = np.array([local.get(t, 0.0) for t in self.intervals.tensors])
        return peak_bytes(self.intervals.starts, self.intervals.ends, sizes)


def build_stage_problem(stage: StageGraph, model: CostModel) -> StageProblem:
    """The nodes and edges of `stage` on the mesh of `model` (see the module docstring)."""
    builder = _Builder(stage, model)
    for tensor in stage.sources:
        builder.add_source(tensor)
    for position in stage.parameters:
        builder.add_weight(position)
    for index in stage.operators:
        builder.add_operator(index)
    for position in stage.parameters:
        builder.add_update(position)
    return StageProblem(
        stage=stage,
        model=model,
        nodes=tuple(builder.nodes),
        edges=tuple(builder.edges),
        warnings=tuple(dict.fromkeys(builder.warnings)),
    )


@cache
def zeros(strategies: int) -> Floats:
    """The costs of a node without costs; read-only and shared."""
    costs = np.zeros(strategies)
    costs.setflags(write=False)
    return costs


class _Builder:
    """Collects nodes and edges in order."""

    def __init__(self, stage: StageGraph, model: CostModel) -> None:
        self.stage, self.model, self.graph = stage, model, stage.layered.graph
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.warnings: list[str] = []
        self.producer: dict[int, tuple[int, Ints]] = {}
        """Tensor -> the node that produces it, and for each strategy of that node the spec of the tensor."""
        self.held, self.holdings = set(stage.held), stage.holdings()
        self.overlap = Overlap(stage, model)
        self.scaled: dict[tuple[int, float], Floats] = {}
        """(id of seconds that the model keeps, factor) -> their product."""

    def add_node(
        self,
        kind: NodeKind,
        subject: int,
        microbatch: Floats,
        iteration: Floats | None = None,
        weight: Floats | None = None,
        activation: Floats | None = None,
        priced: PricedOperator | None = None,
    ) -> int:
        zero = zeros(len(microbatch))
        self.nodes.append(
            Node(
                kind=kind,
                subject=subject,
                microbatch_seconds=microbatch,
                priced=priced,
                iteration_seconds=zero if iteration is None else iteration,
                weight_bytes=zero if weight is None else weight,
                activation_bytes=zero if activation is None else activation,
            )
        )
        return len(self.nodes) - 1

    def add_edge(self, tensor: int, b: int, targets: Ints, times: int = 1, each_iteration: bool = False) -> None:
        a, specs = self.producer[tensor]
        ends, subject = (self.nodes[a], self.nodes[b]), self.graph.tensors[tensor]
        weight = ends[0].kind is NodeKind.WEIGHT or (ends[0].kind is NodeKind.SOURCE and subject.kind in GIVEN_KINDS)
        stored = each_iteration or weight or ends[1].kind is NodeKind.ACCUMULATOR
        if stored:
            times = 1  # what the backward pass gathers serves what it computes again, too
        if each_iteration and ends[0].kind is NodeKind.ACCUMULATOR:
            subject = self.model.as_summed(subject)
        # What every microbatch exchanges is exchanged block by block, as weights are needed and gradients are made.
        each_block = stored and not each_iteration
        together = self.stage.layered.exchanged_with.get(tensor, 0.0) if each_block else 0.0
        edge = Resharding(subject, specs, targets, stored, together)
        exposed = partial(self.exposed_seconds, edge, ends, times, each_iteration)
        unhidden = (
            partial(self.unhidden_seconds, edge, each_iteration) if stored and self.overlap.hides_stored else None
        )
        launching = None
        in_buckets = stored and self.model.device.software.bucket_bytes  # few launches
        if self.model.mesh.call_seconds and not each_iteration and not in_buckets:
            launching = partial(self.launching, edge, times)
        shape = len(specs), len(targets)
        many = Pairs.are_many(shape)
        self.edges.append(
            Edge(
                a=a,
                b=b,
                tensor=tensor,
                exposed=Pairs(shape, None, exposed) if many else Pairs.of(exposed()),
                whole=None if unhidden is None else Pairs(shape, None, unhidden) if many else Pairs.of(unhidden()),
                source_specs=specs,
                target_specs=targets,
                times=times,
                each_iteration=each_iteration,
                stored=stored,
                together=together,
                launches=None
                if launching is None
                else Pairs(shape, None, launching)
                if many
                else Pairs.of(launching()),
            )
        )

    def exposed_seconds(
        self,
        edge: Resharding,
        ends: tuple[Node, Node],
        times: int,
        each_iteration: bool,
        rows: Ints | None = None,
        columns: Ints | None = None,
    ) -> Floats:
        """The seconds of an edge that do not hide behind computation: of all pairs of strategies, or of some."""
        seconds = self.unhidden_seconds(edge, each_iteration, rows, columns)
        if not self.overlap.hides:
            return seconds
        model = self.model
        if rows is not None and columns is not None:
            edge, model = edge.between(rows, columns), model.without_memo_of_pairs()
        if not each_iteration:
            operators = [n.subject if n.kind is NodeKind.OPERATOR else None for n in ends]
            return self.overlap.beside(edge, seconds, operators, times, model)
        if ends[0].kind is NodeKind.ACCUMULATOR:
            return self.overlap.behind_backward(seconds, ends[0].subject)
        return self.overlap.behind_forward(seconds, ends[0].subject) if ends[0].kind is NodeKind.UPDATE else seconds

    def unhidden_seconds(
        self, edge: Resharding, each_iteration: bool, rows: Ints | None = None, columns: Ints | None = None
    ) -> Floats:
        """The seconds of an edge with nothing hidden, as `exposed_seconds`."""
        model = self.model
        if rows is not None and columns is not None:
            edge, model = edge.between(rows, columns), model.without_memo_of_pairs()
        if edge.stored:
            seconds = model.stored_resharding(edge.tensor, edge.sources, edge.targets, edge.together)
        else:
            seconds = model.resharding(edge.tensor, edge.sources, edge.targets)
        return seconds * model.copies if each_iteration and model.copies > 1 else seconds

    def launching(
        self, edge: Resharding, times: float, rows: Ints | None = None, columns: Ints | None = None
    ) -> Floats:
        """Host seconds to launch the collectives of an edge, as `exposed_seconds`."""
        model = self.model
        if rows is not None and columns is not None:
            edge, model = edge.between(rows, columns), model.without_memo_of_pairs()
        seconds = model.launching(edge.tensor, edge.sources, edge.targets)
        if rows is not None or times == 1:
            return seconds * times if times != 1 else seconds
        # Many edges share the seconds of their pairs, which the model keeps.
        key = id(seconds), times
        if key not in self.scaled:
            self.scaled[key] = seconds * times
        return self.scaled[key]

    def specs_of(self, tensor: int, *, partial: bool) -> tuple[Ints, Floats]:
        """The legal specs of a tensor, as positions in its ReshardTable, and the bytes per device under each."""
        return self.model.specs(self.graph.tensors[tensor], partial=partial)

    def constrained_seconds(
        self, seconds: Floats, spec_constraints: Sequence[SpecConstraint], tensor: int, specs: Ints
    ) -> Floats:
        """`seconds` for each of these specs of a tensor, plus FORBIDDEN for a spec that violates a constraint."""
        if not spec_constraints:
            return seconds
        table, rank = self.model.reshard(self.graph.tensors[tensor]), len(self.graph.tensors[tensor].shape)
        return seconds + np.where(
            satisfied(spec_constraints, [table.specs[spec] for spec in specs], rank), 0.0, FORBIDDEN
        )

    def constrained_strategies(self, seconds: Floats, operator: Operator, priced: PricedOperator) -> Floats:
        """The same for the strategies of an operator: its constraints are on its first output."""
        spec_constraints = self.stage.layered.spec_constraints.get(operator.index)
        if spec_constraints is None or not operator.outputs:
            return seconds
        return self.constrained_seconds(seconds, spec_constraints, operator.outputs[0], priced.output_specs[0])

    def add_source(self, tensor: int) -> None:
        specs, local = self.specs_of(tensor, partial=False)
        holding = self.holdings[tensor]
        node = self.add_node(
            NodeKind.SOURCE,
            tensor,
            zeros(len(specs)),
            weight=local * self.model.copies if holding is Holding.LASTING else None,
            activation=local if holding is Holding.EACH_MICROBATCH else None,
        )
        self.producer[tensor] = (node, specs)

    def add_weight(self, position: int) -> None:
        tensor = self.graph.parameters[position].tensor
        specs, local = self.specs_of(tensor, partial=False)
        spec_constraints = self.stage.layered.stored_constraints.get(position, ())
        node = self.add_node(
            NodeKind.WEIGHT,
            position,
            self.constrained_seconds(zeros(len(specs)), spec_constraints, tensor, specs),
            weight=local if self.model.copies == 1 else local * self.model.copies,
        )
        self.producer[tensor] = (node, specs)

    def add_operator(self, index: int) -> None:
        operator = self.graph.operators[index]
        priced = self.model.operator(self.graph, index)
        if index in self.stage.layered.tables:
            priced = self.model.whole(priced)
        if priced.how == "replicated":
            self.warnings.append(
                f"{operator.kind} has no sharding rule and is replicated ({operator.name}): {priced.reason}"
            )
        times = 2 if index in self.stage.layered.recomputed else 1
        seconds = self.constrained_strategies(
            priced.seconds if times == 1 else priced.seconds * times, operator, priced
        )
        activation = zeros(len(seconds))
        for place, tensor in enumerate(operator.outputs):
            if tensor in self.stage.sinks:
                table = self.model.reshard(self.graph.tensors[tensor])
                seconds = seconds + table.completion(priced.output_specs[place])
            if tensor in self.held:
                activation = activation + priced.output_bytes[place]
        node = self.add_node(NodeKind.OPERATOR, index, seconds, activation=activation, priced=priced)
        for place, tensor in enumerate(operator.inputs):
            self.add_edge(tensor, node, priced.input_specs[place], times=times)
        for place, tensor in enumerate(operator.outputs):
            self.producer[tensor] = (node, priced.output_specs[place])

    def add_update(self, position: int) -> None:
        parameter = self.graph.parameters[position]
        grads = [t for t in self.stage.layered.contributions[position] if t in self.producer]
        if not grads:
            return
        specs, local = self.specs_of(grads[0], partial=True)
        adding = self.model.adding_seconds(self.graph.tensors[grads[0]])
        dtype, software = self.graph.tensors[grads[0]].dtype, self.model.device.software
        kept = software.gradient_element_bytes(dtype, DTYPE_BYTES[dtype]) / DTYPE_BYTES[dtype]
        accumulator = self.add_node(NodeKind.ACCUMULATOR, position, adding, weight=local * kept * self.model.copies)
        for tensor in grads:
            self.add_edge(tensor, accumulator, specs)
        operator = self.graph.operators[parameter.update]
        assert operator.phase is Phase.UPDATE
        priced = self.model.operator(self.graph, parameter.update)
        elements = self.graph.tensors[parameter.tensor].elements
        updated = operator.outputs[0]
        share = priced.output_bytes[0] / max(self.graph.tensors[updated].bytes, 1)
        copies, once = self.model.copies, priced.seconds
        if copies > 1:
            gradient = self.graph.tensors[parameter.gradient]
            once = copies * (once + self.model.mirrored_seconds(gradient, priced.input_specs[1]))
        node = self.add_node(
            NodeKind.UPDATE,
            position,
            self.constrained_strategies(zeros(len(share)), operator, priced),
            iteration=once,
            weight=share * elements * parameter.state_bytes_per_element * copies,
            priced=priced,
        )
        self.producer[grads[0]], produced = (accumulator, specs), self.producer[grads[0]]
        self.add_edge(grads[0], node, priced.input_specs[1], each_iteration=True)
        self.producer[grads[0]] = produced
        self.add_edge(parameter.tensor, node, priced.input_specs[0], each_iteration=True)
        self.producer[updated] = (node, priced.output_specs[0])
        weight, stored = self.producer[parameter.tensor]
        self.add_edge(updated, weight, stored, each_iteration=True)
