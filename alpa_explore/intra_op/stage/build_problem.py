"""The nodes and edges of a stage on a mesh, collected in the order of `stage_problem`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from alpa_explore.cost.model import CostModel, PricedOperator
from alpa_explore.graph import GIVEN_KINDS, Operator, Phase
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN
from alpa_explore.intra_op.stage import tuning
from alpa_explore.intra_op.stage.edge import Edge, EdgeMatrix
from alpa_explore.intra_op.stage.overlap import Overlap, Resharding
from alpa_explore.intra_op.stage.stage_graph import Holding, StageGraph
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.sharding.spec_constraint import SpecConstraint, satisfied
from alpa_explore.units import DTYPE_BYTES


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
        exposed = self.matrix(edge, self.exposed_seconds, ends, times, each_iteration)
        whole = launches = None
        if stored and self.overlap.hides_stored:
            whole = self.matrix(edge, self.unhidden_seconds, each_iteration)
        if self.model.mesh.call_seconds and not stored:  # few launches exchange all that is stored
            launches = self.matrix(edge, self.launching, times)
        self.edges.append(
            Edge(
                a=a,
                b=b,
                tensor=tensor,
                exposed=exposed,
                whole=whole,
                source_specs=specs,
                target_specs=targets,
                times=times,
                each_iteration=each_iteration,
                stored=stored,
                together=together,
                launches=launches,
            )
        )

    def matrix(self, edge: Resharding, figures: Callable[..., Floats], *about: object) -> EdgeMatrix:
        """`figures(*about, edge, model)` of the pairs of strategies of an edge. Where these are too many to keep they
        are computed for those that are asked for, which the model does not keep either."""
        shape = len(edge.sources), len(edge.targets)
        if shape[0] * shape[1] <= tuning.MOST_PAIRS_KEPT:
            return EdgeMatrix.of(figures(*about, edge, self.model))

        def some(rows: Ints, columns: Ints) -> Floats:
            return figures(*about, edge.between(rows, columns), self.model.without_memo_of_pairs())

        return EdgeMatrix(shape, None, some)

    def exposed_seconds(
        self, ends: tuple[Node, Node], times: int, each_iteration: bool, edge: Resharding, model: CostModel
    ) -> Floats:
        """The seconds of an edge that do not hide behind computation."""
        seconds = self.unhidden_seconds(each_iteration, edge, model)
        if not self.overlap.hides:
            return seconds
        if not each_iteration:
            operators = [n.subject if n.kind is NodeKind.OPERATOR else None for n in ends]
            return self.overlap.beside(edge, seconds, operators, times, model)
        if ends[0].kind is NodeKind.ACCUMULATOR:
            return self.overlap.behind_backward(seconds, ends[0].subject)
        return self.overlap.behind_forward(seconds, ends[0].subject) if ends[0].kind is NodeKind.UPDATE else seconds

    def unhidden_seconds(self, each_iteration: bool, edge: Resharding, model: CostModel) -> Floats:
        """The seconds of an edge with nothing hidden."""
        if edge.stored:
            seconds = model.stored_resharding(edge.tensor, edge.sources, edge.targets, edge.together)
        else:
            seconds = model.resharding(edge.tensor, edge.sources, edge.targets)
        return seconds * model.copies if each_iteration and model.copies > 1 else seconds

    def launching(self, times: float, edge: Resharding, model: CostModel) -> Floats:
        """Host seconds to launch the collectives of an edge."""
        seconds = model.launching(edge.tensor, edge.sources, edge.targets)
        if times == 1 or edge.rows is not None:
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
