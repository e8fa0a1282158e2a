"""A plan that was read from a file, with the problems behind its stages again: the model is captured anew, cut at the
plan's layers, and every choice is found by what the file says of it.

Nothing is solved, but for files of an earlier version, which say nothing of stored weights: there operators are held to
what the file says and the rest is chosen as the planner would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.cluster import LogicalMesh
from alpa_explore.cost.resharding import UNREACHABLE
from alpa_explore.errors import PlanFileError
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.regrets import pinned
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem, build_stage_problem
from alpa_explore.layering.layers import Layering, make_layers
from alpa_explore.models.catalog import entry, names
from alpa_explore.models.recipe import follow
from alpa_explore.plans.describe import TENSOR_NODES, node_name, node_specs, node_tensor
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import ModelSummary, PlanStage
from alpa_explore.plans.stage_details import StageDetails
from alpa_explore.pricing.stage_tasks import cost_model
from alpa_explore.sharding.spec import render
from alpa_explore.tracing.catalogue import catalogue_graph

Choices = tuple[int, ...]


def rebuild(plan: Plan, graph: TrainingGraph | None = None, *, allow_import: bool = False) -> Plan:
    """`plan` with `details`, so that it can be lowered and asked what-if questions.

    `graph` is the captured model where the plan has no recipe. RecipeError where the model cannot be made again;
    PlanFileError, with the first disagreement, where the file does not belong to it.
    """
    if plan.details is not None:
        return plan
    graph = capture_again(plan.model, allow_import=allow_import) if graph is None else graph
    slices = [slice_stages(layered) for layered in layered_graphs(plan, graph)]

    def problem_of(first: int, last: int, mesh: LogicalMesh, version: int = 0) -> StageProblem:
        return build_stage_problem(slices[version](first, last), cost_model(plan.cluster.device, mesh.squeezed()))

    details = StageDetails(problem_of, choices := _Choices(), graph)
    for stage in (*plan.stages, *plan.interleaved):
        candidate = plan.candidate_of(stage)
        found = _choices(plan, stage, details.problem(stage.layers, candidate.logical_mesh, candidate.version))
        if choices.setdefault(stage.solution_key, found) != found:
            raise _disagree(f"stage {stage.index} has the solution key of another stage, and other choices")
    return replace(plan, details=details)


def capture_again(model: ModelSummary, *, allow_import: bool = False) -> TrainingGraph:
    """The graph of a plan's model, from its recipe."""
    if model.recipe in names():
        graph = catalogue_graph(
            entry(model.recipe),
            model.samples,
            rematerialization=model.rematerialization,
            precision=model.precision,
            optimizer=model.optimizer,
        )
        return replace(graph, name=model.name)
    from alpa_explore.tracing.capture import capture  # torch

    made = follow(model.recipe, model.samples, allow_import=allow_import)
    return capture(
        made.model,
        made.example_inputs,
        made.loss,
        optimizer=model.optimizer,
        precision=model.precision,
        rematerialization=model.rematerialization,
        name=model.name,
        recipe=model.recipe,
    )


class _Choices(dict[str, Choices]):
    """Only those of the plan's own stages are known."""

    def __missing__(self, key: str) -> Choices:
        raise PlanFileError(
            "The choice of a stage is not in the plan file",
            found=f"solution {key}",
            remedy="The file holds only what its own schedule runs: plan again for this one (`--schedule`).",
        )


def layered_graphs(plan: Plan, graph: TrainingGraph) -> list[LayeredGraph]:
    """`graph` cut at the plan's layers, for each version of what is rematerialised; its forward operators must be those
    of the file."""
    planned = [
        (layer.index, name, flops)
        for layer in plan.layers
        for name, flops in zip(layer.operators, layer.operator_flops, strict=True)
    ]
    made = [(o.name, o.flops) for o in graph.forward_operators]
    for (layer, *stored), own in zip(planned, made, strict=False):
        if tuple(stored) != own:
            raise _disagree(
                f"layer {layer} has {stored[0]} with {stored[1]:,} FLOPs, the model {own[0]} with {own[1]:,}"
            )
    if len(planned) != len(made):
        raise _disagree(f"{len(planned)} forward operators, the model has {len(made)}")
    ends = [0]
    for planned_layer in plan.layers[:-1]:
        ends.append(ends[-1] + len(planned_layer.operators))
    layers = make_layers(graph, ends[1:])
    layering = Layering(layers=layers, delta=None, objective_bytes=0, flops_limit=None)
    return [
        assign_layers(graph, layering.layer_of_forward, layers, plan.options.spec_constraints)
        for layers in plan.costs.versions
    ]


def _choices(plan: Plan, stage: PlanStage, problem: StageProblem) -> Choices:
    """The choice of every node of a stage."""
    if not stage.operators:
        raise PlanFileError(
            "The plan file does not say how its operators are divided",
            found=f"stage {stage.index} without operators",
            remedy="It was planned again from a file: plan with the model, and write that plan.",
        )
    left = _left(stage, problem)
    if stage.tensors:
        chosen = tuple(own[0] for own in left)
        for edge in problem.edges:
            if edge.seconds[chosen[edge.a], chosen[edge.b]] >= UNREACHABLE:
                name = node_name(problem, problem.nodes[edge.b])
                raise _disagree(f"stage {stage.index}: {name} reads a tensor in a spec that it cannot be brought to")
        return chosen
    asked = problem.at(
        inverse_b=1.0 / plan.options.num_microbatches, memory_price=0.0, microbatches_held=stage.microbatches_held
    )
    found = solve(pinned(asked, {v: own for v, own in enumerate(left) if problem.nodes[v].priced is not None}))
    if not found.choices:
        raise _disagree(f"stage {stage.index}: its strategies cannot be had together")
    return found.choices


def _left(stage: PlanStage, problem: StageProblem) -> list[Sequence[int]]:
    """For each node the choices that are what the file says of it; all of those that it does not name."""
    graph = problem.stage.layered.graph
    operators = {o.name: o for o in stage.operators}
    tensors = {(t.role, t.name): t.spec for t in stage.tensors}
    found: list[Sequence[int]] = []
    for node in problem.nodes:
        name, at = node_name(problem, node), f"stage {stage.index}: {node_name(problem, node)}"
        if node.kind in TENSOR_NODES:
            rank = len(graph.tensors[node_tensor(problem, node)].shape)
            specs = [render(spec, rank) for spec in node_specs(problem, node)]
            stored = tensors.pop((node.kind.value, name), None)
            if stored is None and stage.tensors:
                raise _disagree(f"{at} ({node.kind.value}) is not in the file")
            if stored is not None and stored not in specs:
                raise _disagree(f"{at} ({node.kind.value}) cannot be {stored}, only {', '.join(specs[:6])}")
            found.append(range(len(specs)) if stored is None else [specs.index(stored)])
            continue
        if name not in operators:
            raise _disagree(f"{at} is not in the file")
        own = operators.pop(name)
        fitting = [k for k, specs in enumerate(_strategies(problem, node)) if specs == (own.inputs, own.outputs)]
        if not fitting:
            raise _disagree(f"{at} has no strategy {own.strategy} from {', '.join(own.inputs)} to {own.output}")
        found.append(fitting)
    if surplus := [*operators, *(name for _, name in tensors)]:
        raise _disagree(f"stage {stage.index} has {surplus[0]}, which the model has not")
    return found


def _strategies(problem: StageProblem, node: Node) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(specs of the inputs, of the outputs) of every strategy of an operator, as the file writes them."""
    graph = problem.stage.layered.graph
    update = node.kind is NodeKind.UPDATE
    operator = graph.operators[graph.parameters[node.subject].update if update else node.subject]
    ranks = [[len(graph.tensors[t].shape) for t in side] for side in (operator.inputs, operator.outputs)]
    assert node.priced is not None, "operators are priced"
    return [
        (tuple(map(render, strategy.inputs, ranks[0])), tuple(map(render, strategy.outputs, ranks[1])))
        for strategy in node.priced.strategies
    ]


def _disagree(found: str) -> PlanFileError:
    return PlanFileError(
        "The plan file does not belong to the model that its recipe makes",
        found=found,
        remedy="Plan again: the model, or alpa_explore or torch, has changed since the plan was written.",
    )
