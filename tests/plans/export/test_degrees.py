"""plan -> degrees: baselines are read back as what they are; what has no degrees is a limit."""

from dataclasses import replace
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.plans.export.degrees import plan_degrees
from alpa_explore.plans.records import PlanOperator


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "cluster", "kind", "options", "expected"),
    [
        ("gpt-tiny", "1x2:v100", "data-parallel", {}, {"data": 2, "zero_stage": 0}),
        ("gpt-tiny", "1x2:v100", "zero-1", {}, {"data": 2, "zero_stage": 1}),
        ("gpt-tiny", "1x2:v100", "zero-2", {}, {"data": 2, "zero_stage": 2}),
        ("llama-tiny", "1x2:h100", "fsdp", {}, {"data": 2, "zero_stage": 3, "replicas": 1}),
        ("llama-tiny", "2x2:h100", "hsdp", {}, {"data": 4, "zero_stage": 3, "replicas": 2}),
        (
            "llama-tiny",
            "2x4:h100",
            "megatron",
            {"tp": 2, "pp": 2},
            {
                "tensor": 2,
                "pipeline": 2,
                "data": 2,
                "zero_stage": 1,
                "sequence_parallel": True,
                "blocks": ((0, 1), (2, 3)),
                "microbatch": 8,
                "global_batch": 64,
            },
        ),
        (
            "mixtral-tiny",
            "1x4:h100",
            "megatron",
            {"tp": 2, "ep": 2, "pp": 1},
            {"tensor": 2, "data": 2, "expert": 2, "expert_tensor": 2},  # the matrices of every expert are divided
        ),
        (
            "llama-tiny",
            "1x2:h100",
            "fsdp",
            {"cp": 2, "exchange": "all-gather"},
            {"context": 2, "data": 1, "exchange": "all-gather", "zigzag": True},
        ),
    ],
)
def test_a_baseline_has_the_degrees_that_it_was_made_with(
    model: str, cluster: str, kind: str, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    shape = {"num_microbatches": 64, "num_layers": 2} if "cp" in options else {"num_microbatches": 4, "num_layers": 4}
    plan = ax.baseline(model, cluster, kind, **shape, **options)
    degrees = plan_degrees(plan)
    assert {name: getattr(degrees, name) for name in expected} == expected
    assert degrees.global_batch == plan.model.samples * shape["num_microbatches"]
    assert degrees.tensor * degrees.context * degrees.data * degrees.pipeline == degrees.devices
    assert degrees.limits == () or kind == "fsdp"


def test_unequal_stages_become_equal_ones_and_the_limit_says_so() -> None:
    options = ax.PipelineOptions(num_stages=3, stage_submeshes=((0, 1, 1), (1, 1, 1), (2, 1, 2)))
    plan = ax.plan("gpt-tiny", "1x4:v100", num_microbatches=4, num_layers=4, pipeline=options, scheduler="serial")
    assert [len(stage.devices) for stage in plan.stages] == [1, 1, 2]
    degrees = plan_degrees(plan)
    assert (degrees.pipeline, degrees.devices, degrees.blocks) == (2, 4, ())
    (limit,) = [limit for limit in degrees.limits if "unequal" in limit.what]
    assert "1×1, 1×1, 1×2" in limit.what
    assert "another layout" in limit.instead


@pytest.mark.slow
def test_devices_that_repeat_work_a_cut_block_and_unlike_stages_are_limits() -> None:
    plan = ax.baseline("llama-tiny", "1x4:h100", "megatron", num_microbatches=4, num_layers=4, tp=2, pp=2)
    first, second = plan.stages
    copied = replace(
        second, operators=tuple(replace(o, strategy="-") if o.phase == "forward" else o for o in second.operators)
    )
    degrees = plan_degrees(replace(plan, stages=(first, copied)))
    said = " ".join(map(str, degrees.limits))
    assert "2 devices of stage 1 do the same work" in said
    assert "Stages with different layouts" in said
    moved = replace(first.operators[-1], phase="forward", module="h.3.mlp", flops=1, name="x", strategy="-")
    cut = plan_degrees(replace(plan, stages=(replace(first, operators=(*first.operators, moved)), second)))
    assert cut.blocks == ((0, 1), (2, 3))
    assert any("A cut inside block 3" in str(limit) for limit in cut.limits)


@pytest.mark.slow
def test_recomputation_that_differs_between_stages_is_a_limit() -> None:
    plan = ax.baseline("llama-tiny", "1x2:h100", "megatron", num_microbatches=4, num_layers=4, tp=1, pp=2)
    first, second = plan.stages
    mixed = replace(plan, stages=(replace(first, recomputation="full"), second))
    (limit,) = [limit for limit in plan_degrees(mixed).limits if "recompute" in limit.what]
    assert "1 × full, 1 × none" in limit.what
    layers = replace(plan, stages=tuple(replace(s, rematerialized=(s.layers[0],)) for s in plan.stages))
    degrees = plan_degrees(layers)
    assert (degrees.recomputation, degrees.recomputed_blocks) == ("layers", 2), "the layer reaches into block 3"


def test_unlike_nodes_are_a_limit() -> None:
    plan = ax.plan("gpt-tiny", "1x1:v100+1x1:a100", num_microbatches=4, num_layers=4, scheduler="serial")
    assert any("Unlike nodes" in limit.what for limit in plan_degrees(plan).limits)


@pytest.mark.slow
def test_tensor_parallelism_on_the_outer_axis_is_a_limit_since_frameworks_number_it_first() -> None:
    plan = ax.baseline("llama-tiny", "2x2:h100", "megatron", num_microbatches=4, num_layers=4, tp=2, pp=1)
    assert not any("neighbours" in str(limit) for limit in plan_degrees(plan).limits)
    (stage,) = plan.stages
    turned = replace(stage, operators=tuple(map(_turned, stage.operators)))
    degrees = plan_degrees(replace(plan, stages=(turned,)))
    (limit,) = [limit for limit in degrees.limits if "neighbours" in limit.what]
    assert "stage 0: tensor parallel over axis 0, outside of data parallel" in limit.what
    assert "renumbered" in limit.instead
    assert (degrees.tensor, degrees.data) == (2, 2), "the degrees are the same"


def _turned(operator: PlanOperator) -> PlanOperator:
    """The same operator with the two axes of its mesh in each other's place."""
    other = str.maketrans("01", "10")
    return replace(
        operator,
        strategy="·".join(reversed(operator.strategy.split("·"))),
        inputs=tuple(spec.translate(other) for spec in operator.inputs),
        output=operator.output.translate(other),
        outputs=tuple(spec.translate(other) for spec in operator.outputs),
    )
