"""Why a plan takes so long: parts that add up, limits that bound, changes that were planned."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.cost.compute import compute_seconds
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.questions.explain import SYNC, WAIT, changes, collective_seconds, limits, time_parts
from tests.plans.example import example_plan


@pytest.fixture(scope="module")
def real() -> Plan:
    return ax.plan("gpt-tiny", "2x2:v100", num_microbatches=8, num_layers=2, scheduler="serial")


@pytest.mark.parametrize("cluster", ["2x4:v100", "1x1:a100@alpa", "8x8:v100"])
@pytest.mark.parametrize("b", [1, 32])
def test_the_parts_of_every_stage_add_up_to_the_iteration(cluster: str, b: int) -> None:
    plan = replan(example_plan(cluster), num_microbatches=b)
    for stage, time in zip(plan.stages, time_parts(plan), strict=True):
        assert sum(seconds for _, seconds in time.parts) == pytest.approx(plan.predicted.iteration_seconds)
        waits = dict(time.parts)[WAIT]
        assert waits == pytest.approx(plan.predicted.iteration_seconds - b * stage.latency_seconds, abs=1e-12)


def test_the_mean_wait_is_the_bubble_of_the_plan() -> None:
    plan = example_plan()
    waits = [dict(time.parts)[WAIT] for time in time_parts(plan)]
    share = sum(waits) / len(waits) / plan.predicted.iteration_seconds
    assert share == pytest.approx(plan.predicted.bubble_fraction)


@pytest.fixture(scope="module")
def experts() -> Plan:
    """Experts on two devices each, which exchange their tokens by all-to-alls inside the operator."""
    degrees = {"tp": 1, "ep": 2, "pp": 1}
    return ax.baseline("mixtral-tiny", "1x4:v100", "megatron", num_microbatches=2, num_layers=1, **degrees)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["real", "experts"])
def test_computing_and_priced_collectives_are_the_time_of_a_microbatch(
    kind: str, request: pytest.FixtureRequest
) -> None:
    plan = request.getfixturevalue(kind)
    assert plan.details is not None
    exchanged = 0.0
    for stage in plan.stages:
        candidates = [c for found in plan.costs.candidates.values() for c in found]
        candidate = next(c for c in candidates if c.solution_key == stage.solution_key)
        problem = plan.details.problem(stage.layers, candidate.logical_mesh)
        choices, graph = plan.details.choices[stage.solution_key], problem.stage.layered.graph
        computing = inside = leaving = 0.0
        for node, choice in zip(problem.nodes, choices, strict=True):
            if node.kind is NodeKind.OPERATOR and node.priced is not None:
                times = 2 if node.subject in problem.stage.layered.recomputed else 1
                operator, strategy = graph.operators[node.subject], node.priced.strategies[choice]
                model = problem.model
                kernels = (
                    model.kernel(operator, graph.tensors, strategy),
                    *model.others(operator, graph.tensors, strategy),
                )
                kernel = sum(compute_seconds(model.device, one) for one in kernels)
                computing += times * kernel
                alone = times * float(node.priced.seconds[choice])
                inside += alone - times * kernel
                leaving += float(node.microbatch_seconds[choice]) - alone  # pending sums of outputs of the stage
            elif node.kind is NodeKind.ACCUMULATOR:
                computing += float(node.microbatch_seconds[choice])
        edges = [e for e in problem.edges if not e.each_iteration]
        between = sum(e.times * float(e.seconds[choices[e.a], choices[e.b]]) for e in edges)
        axes = collective_seconds(plan, stage)
        assert axes is not None
        collectives = sum(seconds for _, seconds in axes)
        assert collectives == pytest.approx(inside + between + leaving)
        assert computing + collectives == pytest.approx(stage.microbatch_seconds)
        exchanged += inside
    assert (exchanged > 1e-6) == (kind == "experts")


def test_no_limit_costs_more_than_the_iteration_and_the_heaviest_comes_first() -> None:
    plan = example_plan()
    found = limits(plan)
    gains = [limit.gain for limit in found]
    assert gains == sorted(gains, reverse=True)
    for limit in found:
        assert 0 < limit.iteration_seconds <= plan.predicted.iteration_seconds * (1 + 1e-12)
    names = [limit.name for limit in found]
    for name in ("computing", "links inside a node", "imbalance of the stages", SYNC):
        assert name in names


def test_memory_binds_exactly_where_a_larger_device_gives_a_faster_plan() -> None:
    plan = example_plan()
    roomy = replace(plan, costs=replace(plan.costs, device_memory_bytes=10**18))
    unlimited = replan(roomy)
    limit = next(limit for limit in limits(plan) if limit.name == "memory of a device")
    assert limit.iteration_seconds == pytest.approx(unlimited.predicted.iteration_seconds)
    assert next(limit for limit in limits(unlimited) if limit.name == "memory of a device").gain == 0


def test_changes_are_plans_of_their_own_with_the_best_first() -> None:
    plan = example_plan()
    found = changes(plan)
    assert {"B 32 → 64", "B 32 → 16"} <= {change.name for change in found}
    for change in found:
        if change.name.startswith("B "):
            count = int(change.name.split()[-1])
            again = replan(plan, num_microbatches=count)
            ratio = (again.predicted.iteration_seconds / count) / (plan.predicted.iteration_seconds / 32)
            assert change.gain == pytest.approx(1 - ratio)
    assert [c.gain for c in found] == sorted([c.gain for c in found], reverse=True)


def test_a_constraint_that_costs_time_is_a_change_to_drop() -> None:
    free = example_plan()
    bound = replan(free, pipeline=PipelineOptions(paper=True, num_stages=1, schedule="1f1b"))
    dropped = next(c for c in changes(bound) if c.name == "without: 1 stages")
    assert dropped.plan.predicted.iteration_seconds == pytest.approx(free.predicted.iteration_seconds)
    assert dropped.gain > 0
