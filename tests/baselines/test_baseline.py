"""Baselines: each is what its name says, and none is faster than the automatic plan with the same layers."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.baselines.kinds import KINDS
from alpa_explore.errors import AlpaExploreError, CancelledError, InfeasiblePlanError, OptionError
from alpa_explore.graph import GIVEN_KINDS, TrainingGraph
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.iteration_time import objective_seconds
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOperator

B, LAYERS = 8, 4
PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten.matmul.default")
SAME_CUTS = tuple(kind for kind in KINDS if kind != "equal-operators")


@cache
def graph(model: str = "gpt-tiny", microbatches: int = B) -> TrainingGraph:
    return microbatch_graph(model, microbatches)


@cache
def automatic(cluster: str, model: str = "gpt-tiny") -> Plan:
    return ax.plan(graph(model), cluster, num_microbatches=B, num_layers=LAYERS, scheduler="serial")


@cache
def plan_of(kind: str, cluster: str = "1x4:v100", model: str = "gpt-tiny", **degrees: int) -> Plan:
    return ax.baseline(graph(model), cluster, kind, num_microbatches=B, num_layers=LAYERS, **degrees)


def trained_bytes(plan: Plan) -> float:
    """Weights, gradients and optimizer state of a plan of one stage, without its buffers, which are replicated."""
    return plan.stages[0].weight_bytes - sum(t.bytes for t in graph().tensors if t.kind in GIVEN_KINDS)


def products(plan: Plan, phase: str = "forward") -> list[PlanOperator]:
    return [o for stage in plan.stages for o in stage.operators if o.op in PRODUCTS and o.phase == phase]


@pytest.mark.parametrize("cluster", ["1x4:v100", pytest.param("2x2:v100", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", SAME_CUTS)
def test_the_automatic_plan_is_at_least_as_fast_as_a_baseline_cut_at_the_same_layers(kind: str, cluster: str) -> None:
    plan = plan_of(kind, cluster)
    assert plan.layers == automatic(cluster).layers
    least = automatic(cluster).predicted.iteration_seconds
    assert plan.predicted.iteration_seconds >= least * (1 - 1e-9)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["1x4:v100", "2x2:v100"])
@pytest.mark.parametrize("kind", SAME_CUTS)
def test_no_baseline_of_gpt_350m_is_faster_than_the_automatic_plan(kind: str, cluster: str) -> None:
    large = graph("gpt-350m", 64)
    options: dict[str, Any] = {"num_microbatches": 64, "num_layers": 4}
    try:
        by_hand = ax.baseline(large, cluster, kind, **options)
    except InfeasiblePlanError:
        return  # a plan that does not fit is not faster
    plan = ax.plan(large, cluster, **options)
    assert by_hand.predicted.iteration_seconds >= plan.predicted.iteration_seconds * (1 - 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_t_is_the_end_of_the_timeline_the_objective_eq_2_and_memory_holds(kind: str) -> None:
    plan = plan_of(kind)
    latencies = [s.latency_seconds for s in plan.stages]
    total = sum(latencies) + (B - 1) * max(latencies)
    assert objective_seconds(plan) == pytest.approx(total + plan.tied_seconds)
    assert plan.predicted.iteration_seconds == plan.timeline().makespan_seconds
    assert sum(len(s.devices) for s in plan.stages) == 4
    assert all(s.peak_bytes <= plan.cluster.device.memory_bytes for s in plan.stages)
    assert plan.options.baseline.startswith(kind)


def test_data_parallelism_shards_the_batch_and_replicates_weights() -> None:
    plan = plan_of("data-parallel")
    assert len(plan.stages) == 1
    letters = {letter for o in products(plan) for letter in o.strategy.split("·")}
    assert letters <= {"m", "b"}, "rows of every product are rows of the batch"
    assert trained_bytes(plan) == pytest.approx(16 * plan.model.parameters), "2 + 2 + 12 bytes a weight"
    updates = [o for o in plan.stages[0].operators if o.phase == "update"]
    assert all("S" not in o.output for o in updates)
    collectives = [line for o in plan.stages[0].operators if o.phase == "forward" for line in o.communication]
    assert [line for line in collectives if "loss" not in line] == [], (
        "the forward pass has no collective but the sum of the loss"
    )


def test_zero_3_shards_alike_with_a_fourth_of_the_memory_and_more_communication() -> None:
    zero, replicated = plan_of("zero-3"), plan_of("data-parallel")
    assert [o.strategy for o in products(zero)] == [o.strategy for o in products(replicated)]
    assert trained_bytes(zero) == pytest.approx(trained_bytes(replicated) / 4)
    assert zero.stages[0].microbatch_seconds > replicated.stages[0].microbatch_seconds
    collectives = [line for o in zero.stages[0].operators if o.phase == "forward" for line in o.communication]
    assert any("all-gather" in line for line in collectives)


def test_each_stage_of_zero_shards_one_more_of_what_is_stored() -> None:
    kinds = ("data-parallel", "zero-1", "zero-2", "zero-3")
    whole, first, second, third = (trained_bytes(plan_of(kind)) for kind in kinds)
    # Of 16 bytes a weight, 12 are the optimizer's, 2 the gradient's, 2 the weight's.
    assert first == pytest.approx(whole * (4 + 12 / 4) / 16)
    assert second == pytest.approx(whole * (2 + 14 / 4) / 16)
    assert third == pytest.approx(whole / 4)
    gathers = [
        [line for o in plan_of(kind).stages[0].operators if o.phase == "forward" for line in o.communication]
        for kind in kinds
    ]
    assert [any("all-gather" in line for line in lines) for lines in gathers] == [False, False, False, True]


def test_hsdp_shards_within_replicas() -> None:
    plan = plan_of("hsdp", cluster="2x2:v100", replicas=2)
    assert plan.options.baseline == "hsdp (2 replicas of 2 shards)"
    assert [size for size in plan.stages[0].logical_mesh if size > 1] == [2, 2]
    whole = plan_of("data-parallel", cluster="2x2:v100")
    assert trained_bytes(plan) == pytest.approx(trained_bytes(whole) / 2)
    gathers = [line for o in plan.stages[0].operators for line in o.communication if "all-gather" in line]
    assert gathers
    assert all("axis 1" in line for line in gathers), "weights are gathered within a replica, inside a node"


def test_fsdp_tp_pp_has_an_axis_for_each() -> None:
    plan = plan_of("fsdp+tp+pp", tp=2, pp=1)
    assert plan.options.baseline == "fsdp+tp+pp (2 shards, tp 2, pp 1)"
    megatron = plan_of("megatron", tp=2, pp=1)
    assert [o.strategy for o in products(plan)] == [o.strategy for o in products(megatron)]
    assert plan.stages[0].weight_bytes < megatron.stages[0].weight_bytes


def test_other_names_of_a_baseline_are_the_same_one() -> None:
    assert plan_of("fsdp").stages == plan_of("zero-3").stages
    assert plan_of("fsdp").options.baseline == "zero-3 (all devices)"


def test_megatron_shards_columns_then_rows_and_heads() -> None:
    plan = plan_of("megatron", tp=4, dp=1, pp=1)
    inside = [o for o in products(plan) if o.layer == 1]
    assert {o.strategy for o in inside if o.op == "aten.addmm.default"} == {"n", "k"}
    assert {o.strategy for o in inside if o.op == "aten.matmul.default"} == {"c"}, "the heads"
    assert plan.options.baseline == "megatron (tp 4, dp 1, pp 1)"


def test_megatron_with_data_parallelism_uses_one_axis_for_each() -> None:
    plan = plan_of("megatron", tp=2, dp=2, pp=1)
    assert [s.logical_mesh for s in plan.stages] == [(2, 2)]
    for operator in products(plan):
        data, tensor = operator.strategy.split("·")
        assert data in ("m", "b")
        assert tensor not in ("m", "b")


def test_a_pipeline_of_megatron_has_stages_of_equally_many_layers() -> None:
    plan = plan_of("megatron", tp=1, dp=2, pp=2)
    assert [s.layers for s in plan.stages] == [(0, 1), (2, 3)]
    assert [s.submesh for s in plan.stages] == [(1, 2), (1, 2)]


def test_degrees_that_are_not_given_are_those_of_the_fastest_plan() -> None:
    best = plan_of("megatron").predicted.iteration_seconds
    every = [(t, d, p) for t in (1, 2, 4) for d in (1, 2, 4) for p in (1, 2, 4) if t * d * p == 4]
    assert len(every) == 6
    assert best == min(plan_of("megatron", tp=t, dp=d, pp=p).predicted.iteration_seconds for t, d, p in every)
    assert best <= plan_of("megatron", tp=4).predicted.iteration_seconds


def test_equal_layers_and_single_devices_are_pipelines_of_that_kind() -> None:
    for plan in (plan_of("gpipe-equal-layers"), plan_of("gpipe-equal-layers", pp=2)):
        assert len({s.layers[1] - s.layers[0] for s in plan.stages}) == 1
        assert len({s.submesh for s in plan.stages}) == 1
    assert [s.submesh for s in plan_of("inter-only").stages] == [(1, 1)] * 4
    assert len(plan_of("intra-only").stages) == 1


@pytest.mark.slow
def test_a_pipeline_of_single_devices_has_optimal_cuts() -> None:
    plan = ax.baseline(graph(), "1x2:v100", "inter-only", num_microbatches=B, num_layers=LAYERS, paper=True)
    whole = ax.plan(graph(), "1x2:v100", num_microbatches=B, num_layers=LAYERS, scheduler="serial")
    table = whole.costs.latency_table(B).copy()
    table[:, :, 1:, :] = float("inf")  # single devices only
    best = pipeline_dp(table, [1, 2], 2, B)
    assert plan.predicted.iteration_seconds == pytest.approx(best.total_seconds)


def test_equal_operators_have_their_own_layers() -> None:
    plan = plan_of("equal-operators")
    counts = [len(layer.operators) for layer in plan.layers]
    assert max(counts) - min(counts) <= 1


def test_a_baseline_is_written_read_and_planned_again_like_any_plan(tmp_path: Path) -> None:
    plan = plan_of("megatron", tp=2, dp=1, pp=2)
    plan.save(tmp_path / "a.plan.json")
    read = ax.load_plan(tmp_path / "a.plan.json")
    assert read == plan
    assert read.options.baseline == "megatron (tp 2, dp 1, pp 2)"
    more = ax.replan(plan, num_microbatches=16)
    assert [s.layers for s in more.stages] == [s.layers for s in plan.stages]
    assert more.predicted.iteration_seconds > plan.predicted.iteration_seconds


@pytest.mark.slow
def test_where_memory_is_short_the_fastest_choice_that_fits_is_chosen() -> None:
    unlimited = ax.baseline(graph("mlp-tiny"), "1x4:v100", "intra-only", num_microbatches=B, num_layers=2)
    peak = unlimited.stages[0].peak_bytes
    cluster = ax.Cluster.parse("1x4:v100", memory_bytes=int(peak * 0.9))
    plan = ax.baseline(graph("mlp-tiny"), cluster, "intra-only", num_microbatches=B, num_layers=2)
    assert plan.stages[0].peak_bytes <= peak * 0.9
    assert plan.predicted.iteration_seconds >= unlimited.predicted.iteration_seconds


def test_the_error_for_a_baseline_that_does_not_fit_names_the_memory_that_it_needs() -> None:
    cluster = ax.Cluster.parse("1x4:v100", memory_bytes=2_000_000)
    with pytest.raises(
        InfeasiblePlanError, match=r"layers 0–3 \(all devices\) need .* of 1.907 MiB on a device.*zero-3"
    ):
        ax.baseline(graph(), cluster, "data-parallel", num_microbatches=B, num_layers=LAYERS)


@pytest.mark.parametrize(
    ("kind", "degrees", "message"),
    [
        ("qqq", {}, "Unknown baseline.*Known: .*data-parallel, .*zero-3"),
        ("zero-3", {"tp": 2}, "does not take tp"),
        ("megatron", {"tp": 3}, "The baseline megatron is not possible on 1x4:v100 with these degrees.*tp=3, 4 layers"),
        ("megatron", {"pp": 0}, "pp must be 1 or more"),
        ("megatron", {"replicas": 2}, "does not take replicas.*It takes tp, dp, pp"),
        ("hsdp", {"replicas": 3}, "The baseline hsdp is not possible on 1x4:v100.*replicas=3.*replicas and ep dp"),
        ("gpipe-equal-layers", {"pp": 3}, "pp must divide 4 layers"),
    ],
)
def test_the_error_for_bad_input_names_what_would_work(kind: str, degrees: dict[str, Any], message: str) -> None:
    with pytest.raises(AlpaExploreError, match=message):
        ax.baseline(graph(), "1x4:v100", kind, num_microbatches=B, num_layers=LAYERS, **degrees)


def test_batches_and_pipelines_that_are_too_small_are_refused() -> None:
    with pytest.raises(OptionError, match="8 samples in a microbatch for 16 devices"):
        ax.baseline(graph(), "2x8:v100", "data-parallel", num_microbatches=B, num_layers=LAYERS)
    with pytest.raises(OptionError, match="num_layers=16 or more"):
        ax.baseline(graph(), "2x8:v100", "inter-only", num_microbatches=B, num_layers=LAYERS)
    with pytest.raises(OptionError, match="at least 1"):
        ax.baseline(graph(), "1x4:v100", "intra-only", num_microbatches=0, num_layers=LAYERS)


def test_a_baseline_can_be_cancelled() -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(CancelledError):
        ax.baseline(graph(), "1x4:v100", "intra-only", num_microbatches=B, num_layers=LAYERS, cancel=cancel)


def test_blocks_of_parts_are_not_ignored_where_layers_are_no_blocks() -> None:
    with pytest.raises(OptionError, match="takes the blocks of its parts"):
        ax.baseline("llama-tiny", "1x4:h100", "megatron", num_microbatches=8, pp=2, blocks=(2, 2), num_layers=4)
    with pytest.raises(OptionError, match="not those of the model"):
        ax.baseline("llama-tiny", "1x4:h100", "megatron", num_microbatches=8, pp=2, blocks=(3, 2))
