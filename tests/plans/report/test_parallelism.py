"""The uses of mesh axes in words: read from plans whose axes have known roles."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.plans.export.degrees import plan_degrees
from alpa_explore.plans.records import PlanTensor
from alpa_explore.plans.report.parallelism import parallelism_lines
from alpa_explore.plans.report.summary import plan_report


@pytest.mark.sweep(kept=4)
@pytest.mark.parametrize("model", ["gpt-tiny", pytest.param("llama-tiny", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "degrees", "cluster", "said"),
    [
        ("data-parallel", {}, "1x2:v100", "data parallel over axis 0 (2)"),
        ("zero-1", {}, "1x2:v100", "data parallel (ZeRO-1) over axis 0 (2)"),
        ("zero-2", {}, "1x2:v100", "data parallel (ZeRO-2) over axis 0 (2)"),
        ("zero-3", {}, "2x2:v100", "FSDP (ZeRO-3) over axes 0 and 1 (2×2)"),
        ("hsdp", {}, "2x2:v100", "data parallel over axis 0 (2), FSDP (ZeRO-3) over axis 1 (2)"),
        ("megatron", {"tp": 2, "dp": 2}, "1x4:v100", "data parallel over axis 0 (2), tensor parallel over axis 1 (2)"),
        ("megatron", {"tp": 2, "pp": 2}, "1x4:v100", "stages 0–1: tensor parallel over axis 0 (2)"),
        ("megatron", {"tp": 4}, "1x4:a100@megatron", "tensor parallel with sequence over axis 0 (4)"),
        (
            "fsdp+tp+pp",
            {"tp": 2, "pp": 1},
            "1x4:a100@megatron",
            "FSDP (ZeRO-3) over axis 0 (2), tensor parallel with sequence over axis 1 (2)",
        ),
    ],
)
def test_the_axes_of_a_baseline_are_named_as_what_it_is(
    model: str, kind: str, degrees: dict[str, int], cluster: str, said: str
) -> None:
    plan = ax.baseline(model, cluster, kind, num_microbatches=8, num_layers=4, **degrees)
    assert parallelism_lines(plan) == (said,)


def test_shards_of_experts_that_devices_divide_are_none_of_zero() -> None:
    plan = ax.baseline("mixtral-tiny", "1x4:h100", "megatron", tp=1, ep=4, pp=1, num_microbatches=4, num_layers=2)
    assert parallelism_lines(plan) == ("data parallel (ZeRO-1) and expert parallel over axis 0 (4)",)


def test_what_is_stored_in_shards_is_counted_by_bytes() -> None:
    """Of a table, a matrix and eight vectors, of which the table has most bytes."""
    plan = ax.baseline("gpt-tiny", "1x2:v100", "zero-3", num_microbatches=8, num_layers=1)
    sizes = [("table", 900), ("matrix", 80), *((f"vector {n}", 2) for n in range(8))]

    def stored(weights: dict[str, str], gradients: dict[str, str]) -> ax.Plan:
        tensors = tuple(
            PlanTensor(name=name, role=role, spec=specs.get(name, "R"), bytes=size)
            for role, specs in (("weight", weights), ("accumulator", gradients))
            for name, size in sizes
        )
        return replace(plan, stages=(replace(plan.stages[0], tensors=tensors),))

    large = {"table": "S0R", "matrix": "S0R"}
    small = {f"vector {n}": "S0" for n in range(8)}
    for weights, gradients, said in (
        (large, large, "FSDP (ZeRO-3) over axis 0 (2)"),
        (small, large, "data parallel (ZeRO-2) over axis 0 (2)"),
        ({"table": "S0R"}, {}, "FSDP (ZeRO-3 for 90.4 % of the bytes) over axis 0 (2)"),
        (small, small, "data parallel (ZeRO-1) over axis 0 (2)"),
    ):
        assert parallelism_lines(stored(weights, gradients)) == (said,)
    (limit,) = [str(limit) for limit in plan_degrees(stored({"table": "S0R"}, large)).limits]
    assert "weights in shards along a data axis for 90.4 % of the bytes" in limit


@pytest.mark.slow
def test_one_device_has_no_axes_and_the_summary_says_what_several_do() -> None:
    assert parallelism_lines(ax.plan("gpt-tiny", "1x1:v100", num_microbatches=8, num_layers=2)) == ()
    plan = ax.baseline("gpt-tiny", "1x2:v100", "data-parallel", num_microbatches=8, num_layers=2)
    assert "\ndata parallel over axis 0 (2)\n" in plan_report(plan)


@pytest.mark.slow
def test_heads_of_attention_beside_positions_of_products_are_ulysses() -> None:
    """One long sequence on 4 devices: the products divide its positions, attention its heads."""
    plan = ax.plan(
        "llama-tiny",
        "1x4:h100",
        num_microbatches=64,
        sequence=4096,
        num_layers=1,
        delta=1.0,
        pipeline=ax.PipelineOptions(num_stages=1),
    )
    assert plan.model.samples == 1
    forward = [o for o in plan.stages[0].operators if o.phase == "forward"]
    assert {o.strategy for o in forward if o.op.startswith("alpa_explore.attention.")} == {"heads"}
    assert any(o.strategy == "m" for o in forward if o.op.startswith("aten.mm."))
    (line,) = parallelism_lines(plan)
    assert line.startswith("context parallel (Ulysses)")
