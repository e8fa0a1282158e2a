"""The sharding problems behind the stages of a plan that was read from a file.

The model is captured again and cut at the plan's layers; every node's choice follows from the specs in the file.
Nothing is solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.arguments import checked
from alpa_explore.cluster import LogicalMesh
from alpa_explore.cost.collectives import with_mirrors
from alpa_explore.cost.resharding import UNREACHABLE
from alpa_explore.errors import PlanFileError
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_problem import Node, StageProblem
from alpa_explore.layering.layers import make_layers
from alpa_explore.models.catalog import entry, is_reference
from alpa_explore.models.recipe import build_from_recipe
from alpa_explore.plans.describe import TENSOR_NODES, node_name, node_operator, node_specs, node_tensor
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import ModelSummary, PlanStage
from alpa_explore.plans.stage_details import StageDetails
from alpa_explore.plans.value import PlanValue
from alpa_explore.pricing.tasks import cost_model
from alpa_explore.sharding.spec import render
from alpa_explore.sharding.strategy import Strategy
from alpa_explore.sharding.zigzag import in_zigzag_order
from alpa_explore.tracing.catalogue import catalogue_graph

Choices = tuple[int, ...]


@checked("plan", "graph")
def rebuild(plan: Plan, graph: TrainingGraph | None = None, *, allow_import: bool = False) -> Plan:
    """`plan` with `details`, so that it can be lowered, and what-if questions be answered.

    `graph` is the captured model, needed where the plan has no recipe. RecipeError where the model cannot be made
    again; PlanFileError, with the first disagreement, where the file does not match the model.
    """
    if plan.details is not None:
        return plan
    if graph is None:
        graph = capture_again(plan.model, allow_import=allow_import)
    graph = in_zigzag_order(graph, plan.model.zigzag)
    slices = [slice_stages(layered) for layered in layered_graphs(plan, graph)]

    cluster = plan.cluster if plan.costs.copies == 1 else with_mirrors(plan.cluster)

    def problem_of(first: int, last: int, mesh: LogicalMesh, version: int = 0) -> StageProblem:
        return build_stage_problem(
            slices[version](first, last), cost_model(cluster.kinds[mesh.kind].device, mesh.squeezed())
        )

    details = StageDetails(problem_of, choices := _Choices(), graph)
    for stage in (*plan.stages, *plan.interleaved):
        candidate = plan.candidate_of(stage)
        problem = details.problem(stage.layers, candidate.logical_mesh, candidate.version)
        stage_choices = _choices(stage, problem)
        if choices.setdefault(stage.solution_key, stage_choices) != stage_choices:
            raise _mismatch(f"stage {stage.index} has the solution key of another stage, but other choices")
    return replace(plan, details=details)


def details_of(plan: Plan) -> StageDetails:
    """The problems behind the stages of `plan`, which is rebuilt where it has none. Raises as `rebuild` does."""
    details = rebuild(plan).details
    assert details is not None, "a rebuilt plan has its problems"
    return details


def graph_of(plan: Plan, *, allow_import: bool = False) -> TrainingGraph:
    """The graph that `plan` was made from, captured again where it is from a file. RecipeError."""
    return capture_again(plan.model, allow_import=allow_import) if plan.details is None else plan.details.graph


def capture_again(model: ModelSummary, *, allow_import: bool = False) -> TrainingGraph:
    """The graph of a plan's model, captured from its recipe. RecipeError where that is impossible."""
    if model.recipe is not None and is_reference(model.recipe):
        graph = catalogue_graph(
            entry(model.recipe),
            model.samples,
            rematerialization=model.rematerialization,
            precision=model.precision,
            optimizer=model.optimizer,
        )
        return replace(in_zigzag_order(graph, model.zigzag), name=model.name)
    from alpa_explore.tracing.capture import capture  # torch

    followed = build_from_recipe(model.recipe, model.samples, allow_import=allow_import)
    graph = capture(
        followed.model,
        followed.example_inputs,
        followed.loss,
        optimizer=model.optimizer,
        precision=model.precision,
        rematerialization=model.rematerialization,
        name=model.name,
        recipe=model.recipe,
    )
    return in_zigzag_order(graph, model.zigzag)


class _Choices(dict[str, Choices]):
    """Choices by solution key, for the plan's own stages; another key raises an error with its remedy."""

    def __missing__(self, key: str) -> Choices:
        raise PlanFileError(
            "The choice of a stage is not in the plan file",
            found=f"solution {key}",
            remedy="The file holds only what its own schedule runs: plan again for this one (`--schedule`).",
        )


def layered_graphs(plan: PlanValue, graph: TrainingGraph) -> list[LayeredGraph]:
    """`graph` cut at the plan's layers, for each version of `StageCosts.versions`.

    PlanFileError where its forward operators are not those of the plan.
    """
    planned = [
        (layer.index, name, flops)
        for layer in plan.layers
        for name, flops in zip(layer.operators, layer.operator_flops, strict=True)
    ]
    captured = [(o.name, o.flops) for o in graph.forward_operators]
    for (layer, name, flops), (model_name, model_flops) in zip(planned, captured, strict=False):
        if (name, flops) != (model_name, model_flops):
            raise _mismatch(
                f"layer {layer} has {name} with {flops:,} FLOPs, the model {model_name} with {model_flops:,}"
            )
    if len(planned) != len(captured):
        raise _mismatch(f"{len(planned)} forward operators, the model has {len(captured)}")
    ends = [0]
    for planned_layer in plan.layers[:-1]:
        ends.append(ends[-1] + len(planned_layer.operators))
    layer_of_forward = make_layers(graph, ends[1:]).layer_of_forward
    return [
        assign_layers(graph, layer_of_forward, version, plan.options.spec_constraints, software=plan.cluster.software)
        for version in plan.costs.versions
    ]


def _choices(stage: PlanStage, problem: StageProblem) -> Choices:
    """The choice of every node of a stage's sharding problem, as the plan has it."""
    if not stage.operators:
        raise PlanFileError(
            "The plan file does not record the strategies of its operators",
            found=f"stage {stage.index} without operators",
            remedy="It was planned again from a file: plan with the model, and write that plan.",
        )
    chosen = _choices_by_specs(stage, problem)
    for edge in problem.edges:
        if edge.exposed.at(chosen[edge.a], chosen[edge.b]) >= UNREACHABLE:
            name = node_name(problem, problem.nodes[edge.b])
            raise _mismatch(f"stage {stage.index}: {name} reads a tensor in a spec that it cannot be brought to")
    return chosen


def _choices_by_specs(stage: PlanStage, problem: StageProblem) -> Choices:
    """For each node the choice that agrees with the plan's specs."""
    graph = problem.stage.layered.graph
    operators = {o.name: o for o in stage.operators}
    tensors = {(t.role, t.name): t.spec for t in stage.tensors}
    chosen: list[int] = []
    # Equal operators share what was priced.
    rendered: dict[int, dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]]] = {}
    for node in problem.nodes:
        name, at = node_name(problem, node), f"stage {stage.index}: {node_name(problem, node)}"
        if node.kind in TENSOR_NODES:
            rank = len(graph.tensors[node_tensor(problem, node)].shape)
            specs = [render(spec, rank) for spec in node_specs(problem, node)]
            stored = tensors.pop((node.kind.value, name), None)
            if stored is None:
                raise _mismatch(f"{at} ({node.kind.value}) is not in the file")
            if stored not in specs:
                raise _mismatch(f"{at} ({node.kind.value}) cannot be {stored}, only {', '.join(specs[:6])}")
            chosen.append(specs.index(stored))
            continue
        if name not in operators:
            raise _mismatch(f"{at} is not in the file")
        planned = operators.pop(name)
        if id(node.priced) not in rendered:
            rendered[id(node.priced)] = _strategies_by_specs(problem, node)
        equal = rendered[id(node.priced)].get((planned.inputs, planned.outputs), [])
        # Rings and gathered keys, or experts with and without an all-to-all, have the same specs.
        equal = [k for k in equal if _strategies(node)[k].name == planned.strategy] or equal
        if not equal:
            reads = ", ".join(planned.inputs)
            raise _mismatch(f"{at} has no strategy {planned.strategy} from {reads} to {planned.output}")
        chosen.append(equal[0])
    if surplus := [*operators, *(name for _, name in tensors)]:
        raise _mismatch(f"stage {stage.index} has {surplus[0]}, which the model has not")
    return tuple(chosen)


def _strategies_by_specs(problem: StageProblem, node: Node) -> dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]]:
    """(specs of the inputs, specs of the outputs), rendered as in a plan -> the strategies of an operator."""
    graph = problem.stage.layered.graph
    operator = node_operator(problem, node)
    ranks = [[len(graph.tensors[t].shape) for t in side] for side in (operator.inputs, operator.outputs)]
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for number, strategy in enumerate(_strategies(node)):
        specs = tuple(map(render, strategy.inputs, ranks[0])), tuple(map(render, strategy.outputs, ranks[1]))
        found.setdefault(specs, []).append(number)
    return found


def _strategies(node: Node) -> Sequence[Strategy]:
    assert node.priced is not None, "every operator node has priced strategies"
    return node.priced.strategies


def _mismatch(found: str) -> PlanFileError:
    return PlanFileError(
        "The plan file does not match the model that its recipe makes",
        found=found,
        remedy="Plan again: the model, or alpa_explore or torch, has changed since the plan was written.",
    )
