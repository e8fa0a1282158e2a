"""What a plan knows of its stages is made once, and only when it is read."""

from collections import Counter

import pytest

import alpa_explore as ax
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.plans.records import PlanOperator
from alpa_explore.search.stages import stage_problems


@pytest.mark.slow
@pytest.mark.parametrize(("model", "cluster", "layers"), [("mlp-tiny", "1x2:v100", 2), ("gpt-tiny", "4x1:v100", 8)])
def test_a_stage_is_described_from_one_sharding_problem(
    model: str, cluster: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was built four times for a report: for operators and tensors, and for the choices of each. Of equal stages,
    as GPT has them, the choices are put together from any problem with the same nodes."""
    builds: Counter[tuple[int, int]] = Counter()
    build = stage_problems.build_stage_problem

    def counted(stage, model):  # type: ignore[no-untyped-def]  # as the function it stands for
        builds[stage.first, stage.last] += 1
        return build(stage, model)

    monkeypatch.setattr(stage_problems, "build_stage_problem", counted)
    plan = ax.plan(
        model,
        cluster,
        num_microbatches=32,
        num_layers=layers,
        cache=False,
        scheduler="serial",
        pipeline=PipelineOptions(paper=True),  # otherwise T has described its stages already
    )
    builds.clear()
    for _ in range(2):
        for stage in plan.stages:
            assert list(stage.operators)
            assert list(stage.tensors)
    assert builds == Counter({stage.layers: 1 for stage in plan.stages})
    assert plan.stages[0].tensors[0] is plan.stages[0].tensors[0]


@pytest.mark.slow
@pytest.mark.parametrize("recomputed", [None, "full"])
def test_the_operators_of_a_stage_that_stands_for_another_cost_the_same(recomputed: str | None) -> None:
    plan = ax.plan(
        "gpt-tiny",
        "4x1:v100",
        num_microbatches=32,
        num_layers=4,
        rematerialization=recomputed,
        pipeline=PipelineOptions(num_stages=4, cuts=(1, 2, 3)),
        cache=False,
        scheduler="serial",
    )
    standing = plan.representatives()
    assert len({id(stage) for stage in standing}) < len(plan.stages) == 4
    for stage, described in zip(plan.stages, standing, strict=True):
        shift = stage.layers[0] - described.layers[0]
        assert [figures(o, shift) for o in described.operators] == [figures(o, 0) for o in stage.operators]


def figures(operator: PlanOperator, shift: int) -> tuple[object, ...]:
    """What an operator costs and how it is cut, without its names; its layer moved by `shift`."""
    o = operator
    costs = (o.compute_seconds, o.communication_seconds, o.stored_seconds, o.axis_seconds, o.flops)
    held = (o.gradient_bytes, o.optimizer_bytes, o.weight_half, o.recomputed)
    return (o.op, o.phase, o.layer + shift, o.strategy, o.inputs, o.outputs, *costs, *held)
