"""No plan is faster or smaller than physics allows, and one that were would be told."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Software
from alpa_explore.plans.report.summary import broken_floors, plan_report

OVERLAPPED = Software(tensor_overlap=0.75, gradient_sync="overlapped", contention=0.3)


def planned(model: str, cluster: str, software: Software | None = None, **options: object) -> ax.Plan:
    where = ax.Cluster.parse(cluster)
    where = where if software is None else where.with_changes(software=software)
    return ax.plan(model, where, num_microbatches=4, num_layers=4, scheduler="serial", **options)


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    cluster = ax.Cluster.parse("1x4:h100").with_changes(software=OVERLAPPED)
    return ax.baseline("moe-tiny", cluster, "megatron", tp=2, dp=2, num_microbatches=4, num_layers=2)


@pytest.mark.sweep(kept=2)
@pytest.mark.parametrize("cluster", ["1x4:h100", "2x2:a100", "2x2:v100"])
@pytest.mark.parametrize("remat", [False, True, "auto"])
@pytest.mark.parametrize("model", ["moe-tiny", "gpt-tiny", "llama-tiny", "mixtral-tiny"])
def test_no_plan_lies_below_one(model, cluster, remat) -> None:
    for software in (None, OVERLAPPED):
        assert broken_floors(planned(model, cluster, software, rematerialization=remat)) == ()


@pytest.mark.parametrize("kind", ["fsdp", "zero-3", "megatron"])
def test_no_baseline_lies_below_one(kind) -> None:
    """Stored weights are gathered and gradients scattered in each microbatch, and all of it would hide."""
    cluster = ax.Cluster.parse("2x4:h100").with_changes(software=OVERLAPPED)
    plan = ax.baseline("mixtral-tiny", cluster, kind, num_microbatches=4, num_layers=2)
    assert broken_floors(plan) == ()
    assert any(sum(o.hidden_seconds) for o in plan.stages[0].operators) or kind == "megatron"


def test_each_is_told(plan, tmp_path) -> None:
    assert broken_floors(plan) == ()
    assert "physics" not in plan_report(plan)
    (stage,) = plan.stages[:1]
    operators = tuple(stage.operators)
    first = next(i for i, o in enumerate(operators) if o.phase == "forward")
    longer = tuple(10 * stage.microbatch_seconds for size in stage.logical_mesh if size > 1)

    def with_(**changes: object) -> tuple:
        return (*operators[:first], replace(operators[first], **changes), *operators[first + 1 :])

    for changed, words in (
        ({"microbatch_seconds": 1e-12}, "less than its FLOPs at the peak"),
        ({"iteration_seconds": 0.0}, "less than its optimizer states through memory"),
        ({"weight_bytes": 1.0}, "less than gradients and states"),
        ({"operators": with_(axis_seconds=longer)}, "less than collectives over axis 0"),
        ({"operators": with_(hidden_seconds=longer)}, "less than what it hides along axis 0"),
        (
            {"operators": with_(hidden_once_seconds=1.0, phase="update")},
            "less than the sums of gradients and gathered weights that it hides",
        ),
    ):
        below = replace(plan, stages=(replace(stage, **changed), *plan.stages[1:]))
        told = broken_floors(below)
        assert any(words in line for line in told), words
        assert all(line in plan_report(below) for line in told)
    path = tmp_path / "plan.json"
    plan.save(path)
    assert broken_floors(ax.load_plan(path)) == ()
