"""The uses of mesh axes in words: read from plans whose axes have known roles."""

from __future__ import annotations

import pytest

import alpa_explore as ax
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
