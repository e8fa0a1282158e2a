"""A plan on unlike nodes, its stages of unequal sizes on either kind, trains as one process does."""

from __future__ import annotations

import pytest

import alpa_explore as ax


@pytest.mark.distributed
def test_a_plan_on_unlike_nodes_trains_as_one_process_does() -> None:
    plan = ax.plan(
        "mlp-tiny",
        "1x4:a100+1x4:v100",
        num_microbatches=2,
        num_layers=3,
        delta=1.0,
        precision="float32",
        global_batch=96,
    )
    assert {stage.device for stage in plan.stages} == {"a100-80gb", "v100"}
    checked = ax.verify(plan, steps=2, device="cpu")
    assert checked.ranks == 8
    assert checked.passed
    assert max(d.relative_error for d in checked.differences) < 1e-5
