"""Prices of manual layouts against closed forms, on work that is made up."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import Layout, Parts
from alpa_explore.baselines.layout_price import LayoutPrice, counted_microbatches, part_seconds, price_layout
from alpa_explore.cluster import Cluster, Software
from alpa_explore.cluster.device import UNHIDDEN_SHARE
from alpa_explore.cluster.group import device_group, straggler_factor
from alpa_explore.cost.collectives import send_seconds
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.stage import pace
from alpa_explore.cost.work import CollectiveCall, PartWork, PassWork, Recomputed
from alpa_explore.schedules.catalog import build_schedule
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes
from alpa_explore.sharding.reshard import StepKind

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
    forward = PassWork(kernels=(PRODUCT,) * products, launches=products)
    return PartWork(
        forward=forward,
        recomputed={
            kind: Recomputed(again=again, held_bytes=share * held, workspace_bytes=0.0)
            for kind, again, share in (
                ("none", PassWork(), 1.0),
                ("selective", PassWork(), 0.75),
                ("full", forward, 0.1),
            )
        },
        backward=PassWork(kernels=(PRODUCT,) * (2 * products), launches=2 * products),
        parameters=parameters,
        parameter_tensors=1,
    )


WORK = DecoderWork(
    embedding=part(0, 1e6, 0.0),
    blocks=(part(4, 1e7, 1e8),),
    head=part(1, 1e6, 1e8),
    tied_parameters=0.0,
    dtype="bfloat16",
    boundary_bytes=1e6,
)


def cluster(nodes: int = 1, **software: object) -> Cluster:
    return Cluster.parse(f"{nodes}x8:h100").with_changes(software=Software(**software))


PLAIN = Layout(microbatches=4)


def priced(work: DecoderWork, machines: Cluster, layout: Layout, *blocks: int) -> LayoutPrice:
    """With so many blocks in each part."""
    return price_layout(work, machines, layout, parts(*(blocks or (8,))))


def parts(*blocks: int) -> Parts:
    return tuple((int(place == 0), count, int(place == len(blocks) - 1)) for place, count in enumerate(blocks))


def test_recomputation_runs_the_forward_pass_again() -> None:
    plain, full = (priced(WORK, cluster(), replace(PLAIN, recompute=r)) for r in ("none", "full"))
    assert full.seconds - plain.seconds == pytest.approx(4 * 8 * part_seconds(WORK, cluster(), PLAIN)[1, 0, 0])
    assert full.bytes < plain.bytes


def test_while_a_part_runs_those_behind_it_hold_nothing() -> None:
    """Of the embedding all others, of the last block the head; a stage without them has none to leave out."""

    def with_temporary(of: PartWork, size: float) -> PartWork:
        return replace(of, recomputed={k: replace(r, workspace_bytes=size) for k, r in of.recomputed.items()})

    work = replace(
        WORK,
        embedding=with_temporary(WORK.embedding, 1e9),
        blocks=(with_temporary(WORK.blocks[0], 3e8),),
        head=with_temporary(WORK.head, 1.5e8),
    )

    def temporary(*blocks: int) -> float:
        """Of the fullest stage."""
        return dict(priced(work, cluster(), replace(PLAIN, pipeline=len(blocks)), *blocks).parts_bytes)[
            "temporary tensors"
        ]

    assert temporary(2) == 7e8, "1e9 − 2 blocks of 1e8 − the head's 1e8"
    assert temporary(8) == 2e8, "3e8 − the head's 1e8"
    assert temporary(4, 1) == 6e8, "1e9 − 4 blocks of 1e8"
    assert temporary(2, 16) == 2e8


def plain_times(work: DecoderWork, machines: Cluster, one: Layout, in_parts: Parts) -> list[StageTimes]:
    """The seconds of every stage with every term written out; no interleaving, TP is 1."""
    sharpness = machines.software.pace_sharpness
    soft, stages, copies = machines.software, one.pipeline, one.data
    group, last = device_group(machines, one.data, 1), stages - 1
    time = part_seconds(work, machines, replace(one, recompute="none"))

    def exchange(kind: StepKind, parameters: float, tensors: int, width: int = 2, *, by_block: bool = False) -> float:
        if copies == 1 or not parameters:
            return 0.0
        if bucket := soft.bucket_bytes:
            bucket = width * work.blocks[0].parameters if by_block else bucket
            return width * parameters / bucket * group_seconds(kind, bucket, group)
        return group_seconds(kind, width * parameters, group) + (tensors - 1) * group_seconds(kind, 1.0, group)

    def exposed(seconds: float, beside: float) -> float:
        if soft.gradient_sync == "exposed":
            return seconds
        late = math.hypot(max(seconds - beside, 0.0), UNHIDDEN_SHARE * seconds)
        return late + soft.contention * min(seconds, beside)

    forward, backward, held, tensors = [], [], [], []
    for stage in range(stages):
        blocks = in_parts[stage][1]
        ends = [time[0]] * (stage == 0) + [time[2]] * (stage == last)
        end = work.embedding.parameters * (stage == 0)
        end += work.tied_parameters * (stage == last != 0)
        end += work.head.parameters * (stage == last)
        held.append(blocks * work.blocks[0].parameters + end)
        tensors.append(blocks + (stage == 0) + (stage == last))
        scatter = exchange(StepKind.REDUCE_SCATTER, held[-1], tensors[-1], by_block=True)
        # The backward pass of the embedding reads no weight.
        read = held[-1] - work.embedding.parameters * (stage == 0)
        gathers = [exchange(StepKind.ALL_GATHER, size, tensors[-1], by_block=True) for size in (held[-1], read)]
        again = blocks * (one.recompute != "none")
        own = held[-1] / (copies if one.zero_stage >= 2 else 1)
        device = machines.device
        rate = device.memory_bandwidth * device.memory_efficiency
        added = (
            tensors[-1] * device.launch_seconds * (not soft.accumulate_bytes)
            + (soft.accumulate_bytes or 6.0) * own / rate,
            tensors[-1] * soft.backward_launch_seconds * (soft.accumulate_bytes > 0),
        )
        for passes, parts, beside in (
            (forward, [time[1, 0] * blocks, *(e[0] for e in ends)], gathers[0] * (one.zero_stage == 3)),
            (
                backward,
                [time[1, 1] * blocks, time[1, 0] * again, added, *(e[1] for e in ends)],
                gathers[1] * (one.zero_stage == 3) + scatter * (one.zero_stage >= 2),
            ),
        ):
            device, host = (sum(p[place] for p in parts) for place in (0, 1))
            if soft.gradient_sync == "exposed":
                passes.append(pace(host, device + beside, sharpness))
            else:
                computing = pace(host, device, sharpness)
                passes.append(computing + exposed(beside, computing))

    per_node, each = machines.devices_per_node, one.stage_devices
    borders = [0.0]
    for stage in range(stages - 1):
        nodes = {device // per_node for device in range(stage * each, (stage + 2) * each)}
        senders = per_node if len(nodes) > 1 else each  # a stage has all network cards of its node
        sent = work.boundary_bytes * one.replicas / senders
        borders.append(send_seconds(machines, sent, crosses_nodes=len(nodes) > 1))
    borders.append(0.0)
    slow = straggler_factor(machines, devices=one.devices, stage_devices=each, tensor=1)
    waits = [before + after for before, after in pairwise(borders)]
    width, kinds = soft.sync_bytes or 2, {0: StepKind.ALL_REDUCE, 1: StepKind.REDUCE_SCATTER}
    times = []
    for stage in range(stages):
        once = soft.iteration_seconds
        if one.zero_stage in kinds:
            summed = exchange(kinds[one.zero_stage], held[stage], tensors[stage], width)
            once += exposed(summed, backward[stage])
        if one.zero_stage in (1, 2):
            once += exposed(exchange(StepKind.ALL_GATHER, held[stage], tensors[stage]), forward[stage])
        if work.tied_parameters and stage == last > 0:  # the gradient of the table there and back
            share = machines.between_nodes.bandwidth / per_node * soft.network_share
            rate = share if one.devices > per_node else machines.inside_node.bandwidth
            once += 2 * 2 * work.tied_parameters / rate
        updated = held[stage] / (copies if one.zero_stage else 1)
        once += 30 * updated / (machines.device.memory_bandwidth * machines.device.memory_efficiency)
        times.append(
            StageTimes(
                forward_seconds=forward[stage] * slow + waits[stage],
                backward_input_seconds=(backward[stage] + soft.microbatch_seconds) * slow + waits[stage],
                backward_weight_seconds=0.0,
                update_seconds=once,
            )
        )
    return times


SHARE = st.sampled_from([0.0, 0.25, 0.7])
MILLISECONDS = st.sampled_from([0.0, 1e-4, 3e-3])


@given(
    st.builds(
        Software,
        contention=SHARE,
        send_overlap=SHARE,
        straggler_share=SHARE,
        gradient_sync=st.sampled_from(["exposed", "overlapped"]),
        sync_bytes=st.sampled_from([0, 4]),
        microbatch_seconds=MILLISECONDS,
        iteration_seconds=MILLISECONDS,
        send_seconds=st.sampled_from([1e-5, 3e-3]),
        forward_launch_seconds=st.sampled_from([0.0, 5e-6]),
        accumulate_bytes=st.sampled_from([0.0, 6.0]),
        bucket_bytes=st.sampled_from([0, 10**7, 10**9]),
        network_share=st.sampled_from([0.5, 1.0]),
    ),
    st.sampled_from([1, 4]),
    st.sampled_from([2, 1, 4]),
    st.sampled_from([8, 1, 2]),
    st.sampled_from([1, 0, 2, 3]),
    st.sampled_from(["none", "full"]),
    st.booleans(),
    st.integers(1, 20),
)
def test_an_iteration_is_the_sum_of_its_terms(
    software: Software, nodes: int, stages: int, data: int, zero: int, recompute: str, tied: bool, microbatches: int
) -> None:
    machines = Cluster.parse(f"{nodes}x8:h100", software=software)
    in_parts = parts(*(1 + place % 2 for place in range(stages)))
    one = Layout(pipeline=stages, data=data, microbatches=microbatches, recompute=recompute)
    one = replace(one, zero_stage=zero if data > 1 else 0)
    # Exchanges longer than the pass beside them, too.
    work = replace(
        WORK,
        tied_parameters=WORK.embedding.parameters * tied,
        blocks=(replace(WORK.blocks[0], parameters=1e9),),
        boundary_bytes=1e8,
    )
    price = price_layout(work, machines, one, in_parts)
    times = plain_times(work, machines, one, in_parts)
    latency = [t.microbatch_seconds for t in times]
    late = max(t.update_seconds - sum(before.backward_seconds for before in times[:i]) for i, t in enumerate(times))
    expected = sum(latency) + (microbatches - 1) * max(latency) + late
    assert price.seconds == pytest.approx(expected, rel=1e-9)
    # Exact where the last backward pass goes on without waits from the last stage to the first.
    simulated = simulate(build_schedule("1f1b", stages, microbatches), times).makespan_seconds
    assert price.seconds >= simulated * (1 - 1e-9)


def test_the_host_launches_every_collective_and_each_step_of_a_ring() -> None:
    calls = tuple(
        CollectiveCall(kind=kind, bytes=1e6, ranks=4, stride=1, beside=0)
        for kind in (StepKind.RING, StepKind.ALL_REDUCE)
    )
    block = replace(WORK.blocks[0], forward=replace(WORK.blocks[0].forward, collectives=calls))
    machines = cluster(collective_launch_seconds=1e-5)
    time = part_seconds(replace(WORK, blocks=(block,)), machines, Layout(context=4))
    assert time[1, 0, 1] == pytest.approx((3 + 1) * 1e-5)


def test_a_slow_host_sets_the_pace() -> None:
    slow = priced(WORK, cluster(forward_launch_seconds=1e-2, backward_launch_seconds=1e-2), PLAIN)
    assert 4 * slow.each_seconds == pytest.approx(4 * 3 * (4 * 8 + 1) * 1e-2, rel=1e-3)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_zero_divides_what_its_stage_divides(zero_stage: int) -> None:
    machines = cluster(send_seconds=1e-6, gradient_sync="overlapped")
    parts = dict(priced(WORK, machines, replace(PLAIN, data=8, zero_stage=zero_stage)).parts_bytes)
    parameters = 1e6 + 8e7 + 1e6
    assert parts["optimizer state"] == pytest.approx(parameters * 12 / (8 if zero_stage >= 1 else 1))
    assert parts["gradients"] == pytest.approx(parameters * 2 / (8 if zero_stage >= 2 else 1))
    gathered = 2 * parameters / 8 * 2 * 7 / 8 if zero_stage == 3 else 0.0  # of two of eight blocks
    assert parts["weights"] == pytest.approx(parameters * 2 / (8 if zero_stage == 3 else 1) + gathered)


def test_the_reserve_is_added_and_the_parts_are_the_whole() -> None:
    price = priced(WORK, cluster(reserve_bytes=2**31, fragmentation=0.05), PLAIN)
    assert dict(price.parts_bytes)["reserve"] == pytest.approx(2**31 + 0.05 * 80 * 2**30)
    assert price.bytes == pytest.approx(sum(size for _, size in price.parts_bytes))


def test_1f1b_holds_as_many_microbatches_as_stages_follow() -> None:
    equal = replace(WORK, embedding=part(0, 0.0, 0.0), head=part(0, 0.0, 0.0))
    price = priced(equal, cluster(), Layout(pipeline=4, microbatches=16), 2, 2, 2, 2)
    assert price.fullest_stage == 0
    assert dict(price.parts_bytes)["activations"] == pytest.approx(4 * 2 * 1e8)


@pytest.mark.parametrize("pipeline", [1, 2, 4])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_costs_of_one_number_of_microbatches_price_every_larger_one(pipeline: int, chunks: int) -> None:
    machines = cluster(keeps_last_loss=True)
    blocks = [2] * pipeline * chunks
    some = Layout(pipeline=pipeline, chunks=chunks, data=2, zero_stage=1)
    for microbatches in range(1, 6 * len(blocks)):
        counted = replace(some, microbatches=counted_microbatches(pipeline, microbatches))
        found = replace(priced(WORK, machines, counted, *blocks), microbatches=microbatches)
        asked = priced(WORK, machines, replace(some, microbatches=microbatches), *blocks)
        assert found.seconds == pytest.approx(asked.seconds, rel=1e-12)
        assert found.parts_bytes == asked.parts_bytes


@pytest.mark.parametrize("microbatches", [2, 4, 32])
@pytest.mark.parametrize("tied", [False, True])
def test_a_pipeline_with_a_heavy_head_takes_what_it_takes_simulated(microbatches: int, tied: bool) -> None:
    machines = cluster(send_seconds=1e-5, accumulate_bytes=6.0)
    work = replace(WORK, tied_parameters=1e9 * tied)
    one, in_parts = Layout(pipeline=4, microbatches=microbatches), parts(2, 2, 2, 2)
    simulated = simulate(build_schedule("1f1b", 4, microbatches), plain_times(work, machines, one, in_parts))
    assert price_layout(work, machines, one, in_parts).seconds == pytest.approx(simulated.makespan_seconds, rel=2e-3)
