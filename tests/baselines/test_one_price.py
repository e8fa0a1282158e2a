"""One cost model: the plan of a layout and `price_layout`, which `predict` reports, give the same iteration time."""

from __future__ import annotations

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.baselines.block_work import CapturedBlocks, decoder_work
from alpa_explore.baselines.layout import Layout, Parts
from alpa_explore.baselines.layout_price import price_layout
from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.configs import DecoderConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.questions.explain import OVERHEAD, time_parts
from alpa_explore.tracing.capture import capture
from alpa_explore.uniform_layouts.works import own_work

LAYERS, SAMPLES = 4, 2


def llama(layers: int, samples: int) -> TrainingGraph:
    config = DecoderConfig(layers=layers, hidden=2048, heads=16, kv_heads=8, vocabulary=2048, sequence=2048, ffn=5632)
    return captured(config, samples)


def captured(config: DecoderConfig, samples: int) -> TrainingGraph:
    inputs = make_inputs(config, samples, "meta", 0)
    return capture(make_module(config, "meta", 0), inputs, name="llama", precision="bfloat16")


def equal_parts(layout: Layout) -> Parts:
    last = layout.pipeline - 1
    return tuple((int(stage == 0), LAYERS // layout.pipeline, int(stage == last)) for stage in range(last + 1))


@pytest.mark.slow
@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.parametrize(
    ("cluster", "tp", "pp", "dp", "microbatches"),
    [
        ("1x8:h100", 2, 1, 4, 4),
        ("1x8:h100", 2, 2, 2, 8),
        ("1x8:h100", 8, 1, 1, 4),
        ("2x8:h100", 8, 2, 1, 8),
        ("1x8:h100@nanotron", 4, 1, 2, 4),
        ("2x8:h100@nanotron", 2, 2, 4, 8),
    ],
)
def test_a_plan_and_a_layout_take_the_same_time(cluster: str, tp: int, pp: int, dp: int, microbatches: int) -> None:
    """A plan also pays for what leaves fused kernels, and sums the loss over replicas in every microbatch: with the
    slow launches of collectives of nanotron these sums are the difference."""
    machines = Cluster.parse(cluster)
    plan = ax.baseline(
        llama(LAYERS, SAMPLES * dp),
        machines,
        "megatron",
        num_microbatches=microbatches,
        tp=tp,
        dp=dp,
        pp=pp,
        num_layers=LAYERS,
    )
    mesh = logical_mesh(machines, Submesh(1, tp), (tp,))
    work = decoder_work(
        llama(2, SAMPLES), machines.device, mesh, [Role.TENSOR_SEQUENCE], blocks=CapturedBlocks.of_period(1)
    )
    layout = Layout(
        tensor=tp, data=dp, pipeline=pp, microbatches=microbatches, zero_stage=int(machines.software.shards_optimizer)
    )
    assert plan.predicted.iteration_seconds == pytest.approx(
        price_layout(work, machines, layout, equal_parts(layout)).seconds,
        rel=0.03 if machines.software.name == "megatron" else 0.08,
    )
    for time in time_parts(plan):
        assert sum(seconds for _, seconds in time.parts) == pytest.approx(plan.predicted.iteration_seconds)
        assert dict(time.parts)[OVERHEAD] == machines.software.iteration_seconds


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(("cp", "tp", "dp"), [(2, 1, 4), (4, 2, 1), (8, 1, 1)])
def test_a_plan_and_a_layout_take_the_same_time_with_context_parallelism(cp: int, tp: int, dp: int) -> None:
    machines = Cluster.parse("1x8:h100")
    sizes = {"hidden": 2048, "heads": 16, "kv_heads": 8, "vocabulary": 2048, "ffn": 5632}
    whole = DecoderConfig(layers=LAYERS, sequence=16384, **sizes)
    plan = ax.baseline(
        captured(whole, dp), machines, "megatron", num_microbatches=8, cp=cp, tp=tp, pp=1, num_layers=LAYERS
    )
    work = own_work(captured(whole.with_periods(2), 1), machines, (1, cp, tp), CapturedBlocks.of_period(1))
    layout = Layout(tensor=tp, context=cp, data=dp, pipeline=1, microbatches=8, zero_stage=1)
    price = price_layout(work, machines, layout, equal_parts(layout))
    assert plan.predicted.iteration_seconds == pytest.approx(price.seconds, rel=0.03)


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "precision", "tp", "pp", "dp"),
    [
        ("1x4:h100", "fp8", 1, 1, 4),
        ("1x4:h100", "fp8-current", 2, 2, 1),
        ("1x4:b200", "mxfp8", 2, 1, 2),
        ("1x4:b200", "nvfp4", 1, 2, 2),
    ],
)
def test_a_plan_and_a_layout_take_the_same_time_in_a_low_precision(
    cluster: str, precision: str, tp: int, pp: int, dp: int
) -> None:
    """So do what the precision saves, without host time, which would hide the products."""
    software = replace(Cluster.parse(cluster).software, forward_launch_seconds=0, backward_launch_seconds=0)
    machines = Cluster.parse(cluster, software=software)
    sizes = {"hidden": 4096, "heads": 32, "kv_heads": 8, "vocabulary": 2048, "sequence": 4096, "ffn": 14336}
    config = DecoderConfig(layers=LAYERS, fused_projections=True, **sizes)
    degrees = {"tp": tp, "dp": dp, "pp": pp}
    graph = captured(config, dp)
    whole, low = (
        ax.baseline(
            graph, machines, "megatron", num_microbatches=4, num_layers=LAYERS, precision=p, **degrees
        ).predicted.iteration_seconds
        for p in (None, precision)
    )
    mesh = logical_mesh(machines, Submesh(1, tp), (tp,))
    two = captured(config.with_periods(2), 1)
    layout = Layout(tensor=tp, data=dp, pipeline=pp, microbatches=4, zero_stage=1)
    lower = machines.in_precision(precision)
    layouts = [
        price_layout(
            decoder_work(two, each.device, mesh, [Role.TENSOR_SEQUENCE], blocks=CapturedBlocks.of_period(1)),
            each,
            layout,
            equal_parts(layout),
        ).seconds
        for each in (machines, lower)
    ]
    assert low == pytest.approx(layouts[1], rel=0.03)
    assert whole - low == pytest.approx(layouts[0] - layouts[1], rel=0.1)


@pytest.mark.slow
@pytest.mark.sweep(kept=1)
@pytest.mark.parametrize("cluster", ["1x8:h100@fsdp", "2x8:h100@fsdp"])
@pytest.mark.parametrize("samples", [1, 4])
def test_fsdp_gathers_weights_in_buckets_in_a_plan_and_in_a_layout(cluster: str, samples: int) -> None:
    machines = Cluster.parse(cluster)
    devices = machines.devices
    plan = ax.baseline(llama(LAYERS, samples * devices), machines, "fsdp", num_microbatches=4, num_layers=LAYERS)
    mesh = logical_mesh(machines, Submesh(1, 1), (1,))
    work = decoder_work(llama(2, samples), machines.device, mesh, [Role.TENSOR], blocks=CapturedBlocks.of_period(1))
    layout = Layout(tensor=1, pipeline=1, zero_stage=3, data=devices, microbatches=4)
    assert plan.predicted.iteration_seconds == pytest.approx(
        price_layout(work, machines, layout, equal_parts(layout)).seconds, rel=0.06
    )
