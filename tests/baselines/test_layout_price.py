"""Prices of manual layouts against closed forms, on work that is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import ManualLayout
from alpa_explore.baselines.layout_price import (
    OPTIMIZER_BYTES,
    UPDATE_BYTES,
    counted_microbatches,
    microbatch_costs,
    price_layout,
)
from alpa_explore.baselines.part_times import decoder_time
from alpa_explore.cluster import Cluster, Software
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import PartWork, PassWork

PRODUCT = Kernel(
    flops=2.0 * 4096**3,
    bytes_accessed=3.0 * 2 * 4096**2,
    dtype="bfloat16",
    matrix=True,
    kind=KernelKind.PRODUCT,
    sizes=(1, 4096, 4096, 4096),
)


def part(products: int, parameters: float, held: float) -> PartWork:
    """A part with so many products forward, and twice as many backward."""
    return PartWork(
        forward=PassWork(kernels=(PRODUCT,) * products, launches=products),
        backward=PassWork(kernels=(PRODUCT,) * (2 * products), launches=2 * products),
        parameters=parameters,
        parameter_tensors=1,
        held_bytes=held,
        entering_bytes=held / 10,
        attention_bytes=held / 4,
        workspace_bytes=0.0,
    )


WORK = DecoderWork(
    embedding=part(0, 1e6, 0.0),
    block=part(4, 1e7, 1e8),
    head=part(1, 1e6, 1e8),
    tied=False,
    dtype="bfloat16",
    boundary_bytes=1e6,
)


def cluster(nodes: int = 1, **software: object) -> Cluster:
    return Cluster.parse(f"{nodes}x8:h100").with_changes(software=Software(**software))


def layout(**changes: object) -> ManualLayout:
    plain = ManualLayout(tensor=1, data=1, pipeline=1, microbatches=4, blocks=(8,), head_part=0)
    return replace(plain, **changes)


def test_one_device_takes_its_kernels_and_the_update() -> None:
    one, time = cluster(), decoder_time(WORK, cluster(), layout())
    price = price_layout(WORK, one, layout())
    parts = (time.embedding, time.head, *(time.block,) * 8)
    each = sum(p.forward.device + p.backward.device for p in parts)
    moved = UPDATE_BYTES * (1e6 + 8e7 + 1e6) / (one.device.memory_bandwidth * one.device.memory_efficiency)
    assert price.seconds == pytest.approx(4 * each + moved)
    assert price.sync_seconds == 0.0


def test_a_pipeline_fills_and_drains() -> None:
    """Equal stages: (B + stages − 1) · t, and with two chunks half of what is not the slowest."""
    equal = replace(WORK, embedding=part(0, 0.0, 0.0), head=part(0, 0.0, 0.0), boundary_bytes=0.0)
    inside = replace(cluster().inside_node, latency_seconds=0.0)
    instant = cluster().with_changes(inside_node=inside)
    flat = price_layout(equal, instant, layout(pipeline=4, blocks=(2,) * 4, head_part=3))
    stage = price_layout(equal, cluster(), layout(blocks=(2,), microbatches=1)).pipeline_seconds
    assert flat.pipeline_seconds == pytest.approx((4 + 3) * stage)
    chunked = price_layout(equal, instant, layout(pipeline=4, blocks=(1,) * 8, head_part=7))
    assert chunked.pipeline_seconds == pytest.approx((4 + 3 / 2) * stage)


def test_recomputation_runs_the_forward_pass_again() -> None:
    time = decoder_time(WORK, cluster(), layout())
    plain, full = (price_layout(WORK, cluster(), layout(recompute=r)) for r in ("none", "full"))
    assert full.seconds - plain.seconds == pytest.approx(4 * 8 * time.block.forward.device)
    assert full.bytes < plain.bytes


def test_a_slow_host_sets_the_pace() -> None:
    slow = price_layout(WORK, cluster(forward_launch_seconds=1e-2, backward_launch_seconds=1e-2), layout())
    assert slow.pipeline_seconds == pytest.approx(4 * 3 * (4 * 8 + 1) * 1e-2, rel=1e-3)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_zero_divides_what_its_stage_divides(zero_stage: int) -> None:
    parts = dict(price_layout(WORK, cluster(), layout(data=8, zero_stage=zero_stage)).parts_bytes)
    parameters = 1e6 + 8e7 + 1e6
    assert parts["optimizer state"] == pytest.approx(parameters * OPTIMIZER_BYTES / (8 if zero_stage >= 1 else 1))
    assert parts["gradients"] == pytest.approx(parameters * 2 / (8 if zero_stage >= 2 else 1))
    gathered = 2 * 1e7 * 2 if zero_stage == 3 else 0.0
    assert parts["weights"] == pytest.approx(parameters * 2 / (8 if zero_stage == 3 else 1) + gathered)


def test_overlap_hides_the_gradient_sum_as_far_as_the_backward_pass_is_long() -> None:
    late, hidden = (
        price_layout(WORK, cluster(gradient_sync=sync), layout(data=8)) for sync in ("exposed", "overlapped")
    )
    assert 0 < hidden.sync_seconds < 0.1 * late.sync_seconds
    assert hidden.pipeline_seconds == late.pipeline_seconds


def test_the_reserve_is_added_and_the_parts_are_the_whole() -> None:
    price = price_layout(WORK, cluster(reserve_bytes=2**31, fragmentation=0.05), layout())
    assert dict(price.parts_bytes)["reserve"] == pytest.approx(2**31 + 0.05 * 80 * 2**30)
    assert price.bytes == pytest.approx(sum(size for _, size in price.parts_bytes))


def test_1f1b_holds_as_many_microbatches_as_stages_follow() -> None:
    equal = replace(WORK, embedding=part(0, 0.0, 0.0), head=part(0, 0.0, 0.0))
    price = price_layout(equal, cluster(), layout(pipeline=4, blocks=(2,) * 4, head_part=3, microbatches=16))
    assert price.fullest_stage == 0
    assert dict(price.parts_bytes)["activations"] == pytest.approx(4 * 2 * 1e8)


@pytest.mark.parametrize("pipeline", [1, 2, 4])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_costs_of_one_number_of_microbatches_price_every_larger_one(pipeline: int, chunks: int) -> None:
    machines = cluster(keeps_last_loss=True)
    parts = pipeline * chunks
    some = layout(pipeline=pipeline, blocks=(2,) * parts, head_part=parts - 1, data=2, zero_stage=1)
    for microbatches in range(1, 6 * parts):
        each = replace(some, microbatches=microbatches)
        counted = replace(some, microbatches=counted_microbatches(pipeline, microbatches))
        costs = microbatch_costs(WORK, machines, counted, decoder_time(WORK, machines, counted))
        assert costs.price(microbatches) == price_layout(WORK, machines, each)
