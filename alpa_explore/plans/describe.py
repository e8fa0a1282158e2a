"""A solved stage as records: for every operator its strategy, its specs, and the collectives on its inputs."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from alpa_explore import units
from alpa_explore.cost.compute import compute_seconds
from alpa_explore.cost.measured import is_measured
from alpa_explore.cost.model import CostModel
from alpa_explore.cost.resharding import ReshardTable
from alpa_explore.graph import Operator, Phase
from alpa_explore.intra_op.stage.edge import Edge
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.plans.records import PlanOperator, PlanTensor
from alpa_explore.sharding.reshard import Step, StepKind
from alpa_explore.sharding.spec import PARTIAL, Spec, local_share, render
from alpa_explore.sharding.strategy import Strategy


def describe_stage(
    problem: StageProblem, choices: tuple[int, ...], kinds: Collection[str] | None = None
) -> tuple[PlanOperator, ...]:
    """The operators of a stage in execution order (forward, backward, update) under `choices`; with `kinds` only those
    forward and backward ones whose `op` is among them."""
    # A weight, its accumulator and its update are three nodes of the problem, but one record: that of the update.
    update_of = {n.subject: i for i, n in enumerate(problem.nodes) if n.kind is NodeKind.UPDATE}
    incoming: dict[int, list[Edge]] = {}
    for edge in problem.edges:
        reader = problem.nodes[edge.b]
        owned = reader.kind in (NodeKind.WEIGHT, NodeKind.ACCUMULATOR)
        incoming.setdefault(update_of[reader.subject] if owned else edge.b, []).append(edge)
    held = {(n.kind, n.subject): float(n.weight_bytes[c]) for n, c in zip(problem.nodes, choices, strict=True)}
    weight_half = _weight_half(problem)
    halves = dict.fromkeys(weight_half, "weight") | _recomputed(problem, weight_half)
    # Arrays of single specs, which describing makes, are not used again.
    model = problem.model.without_memo_of_pairs()
    return tuple(
        _described_operator(problem, model, choices, index, incoming.get(index, []), held, halves)
        for index, node in enumerate(problem.nodes)
        if node.priced is not None and (kinds is None or _kind(problem, node) in kinds)
    )


def _kind(problem: StageProblem, node: Node) -> str:
    """The kind of the operator of a node; "" for an update."""
    return "" if node.kind is NodeKind.UPDATE else problem.stage.layered.graph.operators[node.subject].kind


def _described_operator(
    problem: StageProblem,
    model: CostModel,
    choices: tuple[int, ...],
    index: int,
    incoming: list[Edge],
    held: Mapping[tuple[NodeKind, int], float],
    halves: Mapping[int, str],
) -> PlanOperator:
    """The operator of node `index`; `held` are the bytes that each (kind, subject) keeps on a device, `halves` the half
    of the backward pass of operators of the weight half, and of forward operators that run again."""
    graph, node, choice = problem.stage.layered.graph, problem.nodes[index], choices[index]
    assert node.priced is not None, "only operators are described"
    update = node.kind is NodeKind.UPDATE
    operator = node_operator(problem, node)
    strategy = node.priced.strategies[choice]
    outputs = [graph.tensors[t] for t in operator.outputs]
    rendered = tuple(render(s, len(t.shape)) for s, t in zip(strategy.outputs, outputs, strict=True))
    collectives, axis_seconds, (stored, behind, once) = _communication(problem, model, incoming, choices)
    copies = problem.model.copies if update else 1
    if copies > 1:
        gradient, places = graph.tensors[graph.parameters[node.subject].gradient], node.priced.input_specs[1]
        summed = copies * float(problem.model.mirrored_seconds(gradient, places)[choice])
        line = f"{gradient.name}: summed over both copies of the model once per iteration ({units.seconds(summed)})"
        collectives.append(_Collective(gradient.name, StepKind.ALL_REDUCE.value, summed, line))
    for tensor, spec in zip(operator.outputs, strategy.outputs, strict=True):
        if tensor in problem.stage.sinks and PARTIAL in spec:
            cost = problem.leaving_seconds(tensor, spec)
            name, path = graph.tensors[tensor].name, _completion(problem.model.reshard(graph.tensors[tensor]), spec)
            line = f"{name} leaves the stage: its pending sum takes {units.seconds(cost)}"
            collectives.append(_Collective(name, _kinds(path), cost, line))
            _add_steps(axis_seconds, path, 1)
    runs = 2 if not update and operator.index in problem.stage.layered.recomputed else 1
    for axis, seconds in enumerate(problem.model.exchange_seconds(operator, graph.tensors, strategy)):
        axis_seconds[axis] += runs * seconds
    return PlanOperator(
        name=operator.name,
        op=operator.kind,
        phase=operator.phase.value,
        module=operator.module,
        layer=problem.stage.layered.layer_of[operator.index] if not update else problem.stage.first,
        strategy=strategy.name,
        inputs=tuple(
            render(s, len(graph.tensors[t].shape)) for s, t in zip(strategy.inputs, operator.inputs, strict=True)
        ),
        output=rendered[0] if rendered else "",
        outputs=rendered,
        compute_seconds=copies * float(node.priced.seconds[choice]),
        communication_seconds=sum((c.seconds for c in collectives), 0.0),
        communication=tuple(c.line for c in collectives),
        measured_seconds=0.0 if update else _measured_seconds(problem, operator, strategy),
        flops=operator.flops,
        output_shape=outputs[0].shape if outputs else (),
        weight_half=operator.phase is Phase.BACKWARD and operator.index in halves,
        recomputed=halves.get(operator.index, "") if operator.phase is Phase.FORWARD else "",
        gradient_bytes=held[NodeKind.ACCUMULATOR, node.subject] if update else 0.0,
        optimizer_bytes=held[NodeKind.UPDATE, node.subject] if update else 0.0,
        axis_seconds=tuple(axis_seconds),
        stored_seconds=stored,
        hidden_seconds=behind,
        hidden_once_seconds=once,
        input_names=tuple(graph.tensors[t].name for t in operator.inputs),
        input_shapes=tuple(graph.tensors[t].shape for t in operator.inputs),
        collective_tensors=tuple(c.tensor for c in collectives),
        collective_kinds=tuple(c.kinds for c in collectives),
        collective_seconds=tuple(c.seconds for c in collectives),
    )


def _measured_seconds(problem: StageProblem, operator: Operator, strategy: Strategy) -> float:
    """Seconds of the kernel of an operator that was timed on the device; 0 where it was not."""
    device = problem.model.device
    if device.measured is None:
        return 0.0
    kernel = problem.model.kernel(operator, problem.stage.layered.graph.tensors, strategy)
    return compute_seconds(device, kernel) if is_measured(device, kernel) else 0.0


def describe_tensors(problem: StageProblem, choices: tuple[int, ...]) -> tuple[PlanTensor, ...]:
    """The specs chosen for the nodes of a stage that are tensors, in the order of the nodes."""
    graph = problem.stage.layered.graph
    tensors = []
    for node, choice in zip(problem.nodes, choices, strict=True):
        if node.kind in TENSOR_NODES:
            spec, tensor = node_specs(problem, node)[choice], graph.tensors[node_tensor(problem, node)]
            tensors.append(
                PlanTensor(
                    name=node_name(problem, node),
                    role=node.kind.value,
                    spec=render(spec, len(tensor.shape)),
                    bytes=tensor.bytes,
                )
            )
    return tuple(tensors)


TENSOR_NODES = (NodeKind.SOURCE, NodeKind.WEIGHT, NodeKind.ACCUMULATOR)
"""Kinds of nodes that choose a spec; the others choose a strategy."""


def node_tensor(problem: StageProblem, node: Node) -> int:
    """The tensor whose spec is the choice of a tensor node."""
    if node.kind is NodeKind.SOURCE:
        return node.subject
    parameter = problem.stage.layered.graph.parameters[node.subject]
    return parameter.gradient if node.kind is NodeKind.ACCUMULATOR else parameter.tensor


def node_operator(problem: StageProblem, node: Node) -> Operator:
    """The operator of a node that chooses a strategy; of an update that of its parameter."""
    graph = problem.stage.layered.graph
    return graph.operators[graph.parameters[node.subject].update if node.kind is NodeKind.UPDATE else node.subject]


def node_name(problem: StageProblem, node: Node) -> str:
    """The name of a node in a plan: that of its operator, source tensor or parameter."""
    graph = problem.stage.layered.graph
    if node.kind not in TENSOR_NODES:
        return node_operator(problem, node).name
    return (graph.tensors if node.kind is NodeKind.SOURCE else graph.parameters)[node.subject].name


def node_specs(problem: StageProblem, node: Node) -> list[Spec]:
    """The specs that a tensor node chooses from, in the order of its choices."""
    table = problem.model.reshard(problem.stage.layered.graph.tensors[node_tensor(problem, node)])
    return [spec for spec in table.specs if node.kind is NodeKind.ACCUMULATOR or PARTIAL not in spec]


def _recomputed(problem: StageProblem, weight_half: frozenset[int]) -> dict[int, str]:
    """Forward operator that runs again -> the half of the backward pass that first needs it."""
    layered, half_of = problem.stage.layered, dict[int, str]()
    for index in problem.stage.operators:
        for segment in layered.waits.get(index, ()):
            half_of[segment] = "weight" if index in weight_half and half_of.get(segment) != "input" else "input"
    again = (o for o in problem.stage.operators if o in layered.recomputed)
    return {o: half_of.get(layered.segment_of[o], "input") for o in again}


def _weight_half(problem: StageProblem) -> frozenset[int]:
    """The backward operators from which no path leads to a backward operator of another layer, or out of the stage.

    Only gradients of activations pass between layers, so these operators lead to gradients of weights alone.
    """
    graph, layer_of = problem.stage.layered.graph, problem.stage.layered.layer_of
    backward_operators = [i for i in problem.stage.operators if graph.operators[i].phase is Phase.BACKWARD]
    passed_on: set[int] = set()
    for index in reversed(backward_operators):
        for tensor in graph.operators[index].outputs:
            for reader in graph.readers.get(tensor, ()):
                backward = graph.operators[reader].phase is Phase.BACKWARD
                if backward and (reader in passed_on or layer_of[reader] != layer_of[index]):
                    passed_on.add(index)
    return frozenset(backward_operators) - passed_on


class _Collective(NamedTuple):
    """One resharding: the tensor that moves, the kinds of its collectives, their exposed seconds, and all as text."""

    tensor: str
    kinds: str
    seconds: float
    line: str


_Hidden: TypeAlias = tuple[tuple[float, ...], tuple[float, ...], float]
"""What runs behind computing: `stored_seconds`, `hidden_seconds` and `hidden_once_seconds` of `PlanOperator`."""


def _communication(
    problem: StageProblem, model: CostModel, edges: list[Edge], choices: tuple[int, ...]
) -> tuple[list[_Collective], list[float], _Hidden]:
    """Every resharding, the exposed seconds in each microbatch by mesh axis, and what is hidden."""
    collectives: list[_Collective] = []
    stored, once = [0.0, 0.0], 0.0
    mesh = problem.model.mesh
    axis_seconds, behind = [0.0] * len(mesh.shape), [0.0] * len(mesh.shape)
    for edge in edges:
        source, target = edge.source_specs[choices[edge.a]], edge.target_specs[choices[edge.b]]
        if source == target:  # as on most edges
            continue
        seconds = edge.exposed.at(choices[edge.a], choices[edge.b])
        tensor = problem.stage.layered.graph.tensors[edge.tensor]
        ends = source[None], target[None]
        priced = (
            model.stored_resharding(tensor, *ends, edge.together) if edge.stored else model.resharding(tensor, *ends)
        )
        whole = float(priced[0, 0])
        if whole == 0.0:
            continue
        # The soft maximum is up to a thousandth more than the whole where next to nothing hides it.
        hides = max(whole * (model.copies if edge.each_iteration else 1) - seconds, 0.0)
        if edge.stored and not edge.each_iteration:
            stored = [stored[0] + seconds, stored[1] + hides]
        table = problem.model.reshard(tensor)
        rank = len(tensor.shape)
        steps = []
        path = table.path(table.specs[source], table.specs[target])
        alone = float(table.between(source[None], target[None])[0, 0])
        if not edge.each_iteration:
            _add_steps(axis_seconds, path, edge.times * seconds / alone)
            _add_steps(behind, path, edge.times * hides / alone)
        else:
            once += hides
        for step, cost in path:
            if step.kind is not StepKind.SLICE:
                larger = step.target if step.kind is StepKind.ALL_GATHER else step.source
                moved = units.bytes_(tensor.bytes * local_share(larger, mesh.shape))
                steps.append(
                    f"{step.kind.value} over axis {step.axis} ({moved}, {units.seconds(cost * whole / alone)})"
                )
        specs = f"{render(table.specs[source], rank)} → {render(table.specs[target], rank)}"
        when = " once per iteration" if edge.each_iteration else ""
        if hides > 1e-9 * whole:
            when += f", {units.seconds(hides)} of it hidden"
        line = f"{tensor.name}: {specs}, {', then '.join(steps)}{when}"
        collectives.append(_Collective(tensor.name, _kinds(path), seconds, line))
    hidden = tuple(stored) if any(stored) else (), tuple(behind) if any(behind) else (), once
    return collectives, axis_seconds, hidden


def _kinds(path: Sequence[tuple[Step, float]]) -> str:
    """The kinds of collectives of a path of steps; to keep a slice needs none."""
    return ", ".join(dict.fromkeys(step.kind.value for step, _ in path if step.kind is not StepKind.SLICE))


def _completion(table: ReshardTable, spec: Spec) -> tuple[tuple[Step, float], ...]:
    """The collectives of the cheapest path to a spec without a pending sum (`ReshardTable.completion`)."""
    nearest = table.between(np.array([table.index[spec]]), table.complete).argmin()
    return table.path(spec, table.specs[table.complete[nearest]])


def _add_steps(axis_seconds: list[float], path: tuple[tuple[Step, float], ...], times: float) -> None:
    for step, cost in path:
        axis_seconds[step.axis] += times * cost
