"""Price a layout: seconds of an iteration and bytes of the fullest device, from kernels and collectives of its parts.

Embedding, a block of each kind, and head are the parts of a model. Each has device and host seconds in the forward and
in the backward pass (in which a recomputed block runs its forward pass again), parameters and activations; a stage has
the sum of those of its parts (`layout.Parts`).

Passes go at the pace of the slower of host and device, and of the slowest of many devices. Weights that are divided
among replicas (ZeRO-3, FSDP) are gathered in every pass, beside its computation. Passes, sends, and once an iteration
gradient sync, update and overhead are those of the stages of a schedule (`schedules.iteration`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import Layout, Parts
from alpa_explore.cluster import Cluster, Software
from alpa_explore.cluster.group import Group, call_seconds, device_group, expert_seconds, straggler_factor
from alpa_explore.cost.collectives import exposed_seconds, launched, nodes_of, stage_send_seconds, waited_share
from alpa_explore.cost.compute import adding_seconds, kernels_seconds
from alpa_explore.cost.group_collectives import group_seconds, rows_seconds, stored_seconds
from alpa_explore.cost.kernels import KernelKind
from alpa_explore.cost.plain_kernels import state_bytes, step_bytes
from alpa_explore.cost.stage import (
    OnceParts,
    PassParts,
    StageBytes,
    device_bytes,
    gathered_bytes,
    once_seconds,
    passes_seconds,
)
from alpa_explore.cost.work import PassWork
from alpa_explore.inter_op.schedule_terms import ScheduleTerms
from alpa_explore.numerics.arrays import Floats
from alpa_explore.schedules.catalog import INTERLEAVED
from alpa_explore.schedules.iteration import FULL_ROUNDS, iteration_seconds
from alpa_explore.schedules.simulator.times import StageTimes, links_between, with_sends
from alpa_explore.sharding.reshard import StepKind

HALF = 2
"""Bytes of a weight."""
MOMENTS = 2
"""Of Adam, for each parameter."""
UNFUSED_SOFTMAX_LAUNCHES = 18
"""Launches of a pass where the fused softmax does not apply (Megatron-LM's scale, mask and softmax one by one)."""


def update_bytes(software: Software) -> float:
    """Bytes that an update moves for each parameter: the norm reads the gradient, then Adam's step."""
    return HALF + step_bytes("adam", MOMENTS, HALF, software)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPrice:
    """What a layout is predicted to take, in parts. A price of 3 · pipeline microbatches or more holds for any larger
    `microbatches`; one of fewer holds for that number alone (`counted_microbatches`)."""

    microbatches: int
    each_seconds: float
    """Of one more microbatch."""
    once_seconds: float
    """Beside those of all microbatches: while the pipeline fills and drains, and stages update."""
    fullest_stage: int
    parts_bytes: tuple[tuple[str, float], ...]
    """Of a device of that stage: weights, gradients, optimizer state, activations, temporary tensors, reserve."""

    @property
    def seconds(self) -> float:
        """Of an iteration."""
        return self.microbatches * self.each_seconds + self.once_seconds

    @property
    def bytes(self) -> float:
        """Of the fullest device, with what the software keeps back."""
        return sum(size for _, size in self.parts_bytes)


def price_layout(work: DecoderWork, cluster: Cluster, layout: Layout, parts: Parts) -> LayoutPrice:
    """The price of a layout of a model on a cluster, with these parts of its pipeline."""
    return LayoutPricer(work, cluster, layout, parts, part_seconds(work, cluster, layout)).price()


def counted_microbatches(pipeline: int, microbatches: int) -> int:
    """The least number of microbatches whose price also holds for `microbatches`. A part of a pipeline holds two for
    each stage at most (`ScheduleTerms.held_in_turns`), a loss is kept from the second microbatch on, and an interleaved
    pipeline is full after `FULL_ROUNDS`."""
    return min(microbatches, FULL_ROUNDS * pipeline)


def part_seconds(work: DecoderWork, cluster: Cluster, layout: Layout) -> Floats:
    """Seconds of the parts of a model in one microbatch, [parts, forward and backward, device and host]."""
    passes = passes_of(work, layout.recompute)
    return seconds_of_passes(passes, [kernels_seconds(cluster.device, p.kernels) for p in passes], cluster, layout)


def passes_of(work: DecoderWork, recompute: str) -> tuple[PassWork, ...]:
    """Of embedding, a block of each kind and head, in this order: forward, backward and recomputed pass."""
    passes: list[PassWork] = []
    for place, part in enumerate(work.parts):
        is_block = 0 < place <= len(work.blocks)
        passes += (part.forward, part.backward, part.recomputed[recompute].again if is_block else PassWork())
    return tuple(passes)


def seconds_of_passes(
    passes: Sequence[PassWork], kernels: Sequence[Floats], cluster: Cluster, layout: Layout
) -> Floats:
    """`part_seconds` from the seconds of each kernel of the passes (`passes_of`)."""
    software = cluster.software
    calls = {(c.ranks, c.stride) for work in passes for c in work.collectives}
    groups = {call: device_group(cluster, *call) for call in calls}
    call = call_seconds(cluster, layout.tensor, 1, pipeline=layout.pipeline > 1)
    experts = expert_seconds(cluster)
    forward, backward = software.forward_launch_seconds, software.backward_launch_seconds
    launches = (forward, backward, forward)
    times = [
        _seconds_of_pass(work, of_kernels, software, groups, (launches[i % 3], call, experts))
        for i, (work, of_kernels) in enumerate(zip(passes, kernels, strict=True))
    ]
    seconds = np.array(times).reshape(-1, 3, 2)
    seconds[:, 1] += seconds[:, 2]
    return seconds[:, :2]


def _seconds_of_pass(
    work: PassWork,
    kernels: Floats,
    software: Software,
    groups: Mapping[tuple[int, int], Group],
    launch_seconds: tuple[float, float, float],
) -> tuple[float, float]:
    """(device seconds, host seconds). `kernels` are the seconds of each; `launch_seconds` those of a kernel, a
    collective and a layer of experts."""
    calls, launched_calls = 0.0, 0
    for call in work.collectives:
        group = groups[call.ranks, call.stride]
        launched_calls += launched(call.kind, group.ranks)
        seconds = group_seconds(call.kind, call.bytes, group)
        if call.copies:
            seconds = rows_seconds(call.bytes, group, call.copies if software.gathers_rows else 1)
            seconds *= 1 - software.expert_overlap
        elif call.kind is StepKind.RING:
            seconds = exposed_seconds(seconds, float(kernels[call.beside]), group.ranks)
        elif call.beside >= 0 and call.kind is not StepKind.ALL_REDUCE:
            seconds -= software.tensor_overlap * min(seconds, float(kernels[call.beside]))
        calls += seconds
    launches = work.launches
    if software.softmax_heads:
        heads = [k.sizes[0] for k in work.kernels if k.kind is KernelKind.PRODUCT and k.sizes[0] > 1]
        if heads and heads[0] % software.softmax_heads:
            launches += UNFUSED_SOFTMAX_LAUNCHES
    kernel, collective, experts = launch_seconds
    return float(kernels.sum()) + calls, launches * kernel + launched_calls * collective + work.expert_layers * experts


class LayoutPricer:
    """One layout, from the seconds of the parts of the model (`part_seconds`), which layouts share that differ in
    stages, copies or ZeRO alone."""

    def __init__(self, work: DecoderWork, cluster: Cluster, layout: Layout, parts: Parts, seconds: Floats) -> None:
        self.work, self.cluster, self.layout, self.seconds = work, cluster, layout, seconds
        self.software = cluster.software
        self.replicas = device_group(cluster, layout.replicas, layout.tensor)
        self.expert_replicas = device_group(cluster, layout.expert_replicas, layout.expert * layout.expert_tensor)
        self._sizes = np.array([(p.parameters, p.expert_parameters, p.parameter_tensors) for p in work.parts])
        self.parts = np.array(parts, dtype=np.float64).reshape(layout.chunks, layout.pipeline, -1)
        """How often each part of the model is in a chunk of a stage, [chunks, stages, parts]."""
        self.stages = self.parts.sum(axis=0)
        self._kept = [part.recomputed[layout.recompute].held_bytes for part in work.parts]
        self.elements = [self._elements(stage) for stage in self.stages]
        """Of each stage."""
        blocks = self.stages[:, 1:-1].sum(axis=0)
        self.of_block = blocks @ self._sizes[1:-1, :2] / max(blocks.sum(), 1)
        """Parameters of a block in the mean of all: all but those of experts, and of experts."""
        self._alike: dict[object, tuple[float, float]] = {}
        """Parts of a stage -> its passes."""

    def price(self, *, sized: bool = True) -> LayoutPrice:
        """Seconds and bytes; where it is not `sized`, seconds alone, for fits."""
        layout = self.layout
        stragglers = straggler_factor(
            self.cluster, devices=layout.devices, stage_devices=layout.stage_devices, tensor=layout.tensor
        )
        each, once = self._iteration(stragglers)
        stage, sizes = 0, tuple[tuple[str, float], ...]()
        if sized:
            of_stages = [self._bytes(stage) for stage in range(layout.pipeline)]
            stage, sizes = max(enumerate(of_stages), key=lambda entry: sum(size for _, size in entry[1]))
        return LayoutPrice(
            microbatches=layout.microbatches,
            each_seconds=each,
            once_seconds=once,
            fullest_stage=stage,
            parts_bytes=sizes,
        )

    def _elements(self, counts: Floats) -> tuple[float, float, float]:
        """Parameters of a device in so many parts: all but those of experts, of experts; and the number of tensors."""
        dense, experts, tensors = (counts @ self._sizes).tolist()
        copied = self.work.tied_parameters if counts[-1] and not counts[0] else 0.0
        return dense + copied, experts, tensors

    def _divided(self, stage: int, from_stage: int) -> float:
        """Parameters of a device of the stage, over their copies where ZeRO of `from_stage` or more divides them."""
        layout, (dense, experts, _) = self.layout, self.elements[stage]
        if layout.zero_stage < from_stage:
            return dense + experts
        return dense / layout.replicas + experts / layout.expert_replicas

    def _passes(self, counts: Floats, stage: int) -> tuple[float, float]:
        """Seconds of the forward and the backward pass of one microbatch, in so many parts of a stage."""
        kind = counts.tobytes(), self.elements[stage]
        if kind not in self._alike:
            self._alike[kind] = self._passes_of(counts, stage)
        return self._alike[kind]

    def _passes_of(self, counts: Floats, stage: int) -> tuple[float, float]:
        (forward, forward_host), (backward, backward_host) = np.tensordot(counts, self.seconds, 1).tolist()
        adding, launching = self._adding(counts, stage)
        of_all = self.stages[stage, 1:-1].sum()
        share = float(counts[1:-1].sum() / of_all) if of_all else 1.0 / self.layout.chunks
        gathering, scattering = (share * seconds for seconds in self._gathers(stage))
        return passes_seconds(
            PassParts(device=forward, host=forward_host, stored=gathering),
            PassParts(device=backward + adding, host=backward_host + launching, stored=scattering),
            self.software,
        )

    def _adding(self, counts: Floats, stage: int) -> tuple[float, float]:
        """Device and host seconds to add the gradients of some parts of a stage to the accumulated ones. From ZeRO-2 on
        a device has its share of them."""
        whole, software = sum(self.elements[stage][:2]), self.software
        if not whole:
            return 0.0, 0.0  # a stage without a part of the model
        share = self._divided(stage, 2) / whole
        dense, experts, tensors = self._elements(counts)
        launched_sums = tensors if software.accumulate_bytes and not software.accumulate_in_product else 0.0
        seconds = adding_seconds(self.cluster.device, HALF * (dense + experts) * share, HALF, tensors)
        return seconds, launched_sums * software.backward_launch_seconds

    def _gathers(self, stage: int) -> tuple[float, float]:
        """Seconds in which the replicas exchange weights and gradients in the forward and the backward pass."""
        zero = self.layout.zero_stage
        if zero < 2 or self.layout.replicas == 1:
            return 0.0, 0.0
        exchange = partial(self._exchange, stage, width=HALF, each_microbatch=True)
        gathered, scattered = exchange(StepKind.ALL_GATHER), exchange(StepKind.REDUCE_SCATTER)
        if zero == 2:
            return 0.0, scattered
        # The backward pass of the embedding does not read its weight.
        embedding = self.work.embedding.parameters * float(self.stages[stage, 0])
        return gathered, exchange(StepKind.ALL_GATHER, without=embedding) + scattered

    def _exchange(
        self, stage: int, kind: StepKind, width: float, *, without: float = 0.0, each_microbatch: bool = False
    ) -> float:
        """Seconds of a stage to exchange its parameters, all or `without` some, among their copies: once an iteration
        in buckets, in every microbatch block by block."""
        dense, experts, tensors = self.elements[stage]
        of_dense = of_experts = float(self.software.bucket_bytes)
        if each_microbatch and self.software.bucket_bytes:
            of_dense, of_experts = (width * self.of_block).tolist()
        return stored_seconds(kind, width * (dense - without), tensors, self.replicas, of_dense) + stored_seconds(
            kind, width * experts, 1, self.expert_replicas, of_experts
        )

    def _iteration(self, stragglers: float) -> tuple[float, float]:
        """(seconds of one more microbatch, seconds beside those of all microbatches)."""
        layout, software, together = self.layout, self.software, self.layout.stage_devices
        submeshes = [*range(layout.pipeline)] * layout.chunks  # of each stage of the schedule
        devices = [range(s * together, (s + 1) * together) for s in range(layout.pipeline)]
        whole = self.work.boundary_bytes * layout.replicas
        to_next = [stage_send_seconds(self.cluster, a, b, whole) for a, b in pairwise((*devices, devices[0]))]
        sent = [0.0, *(to_next[s] if layout.pipeline > 1 else 0.0 for s in submeshes[:-1]), 0.0]  # before and behind
        times = [
            StageTimes(
                forward_seconds=forward * stragglers,
                backward_input_seconds=(back + software.microbatch_seconds / layout.chunks) * stragglers,
                backward_weight_seconds=0.0,
                update_seconds=self._once(stage) if stage < layout.pipeline else 0.0,
            )
            for stage, (forward, back) in enumerate(
                map(self._passes, self.parts.reshape(-1, len(self._sizes)), submeshes)
            )
        ]
        sends = [(ahead, back) for back, ahead in pairwise(sent)]
        times = with_sends(times, sends, waited_share(software, layout.chunks))
        links = links_between(submeshes, [nodes_of(self.cluster, each) for each in devices])
        schedule = "1f1b" if layout.chunks == 1 else INTERLEAVED
        counted, seconds, more = iteration_seconds(schedule, times, layout.pipeline, layout.microbatches, links)
        each = more or seconds / counted
        return each, seconds - counted * each

    def _once(self, stage: int) -> float:
        """Seconds of a stage once an iteration: the gradient sum and gathering updated weights (ZeRO-1 and 2) as far as
        its passes do not hide them, the update, and what the software adds."""
        layout, software, device = self.layout, self.software, self.cluster.device
        forward, backward = self._passes(self.stages[stage], stage)
        summed = gathered = 0.0
        if layout.replicas > 1 and layout.zero_stage < 3:
            width = software.sync_bytes or HALF
            if not layout.zero_stage:
                summed = self._exchange(stage, StepKind.ALL_REDUCE, width)
            else:
                gathered = self._exchange(stage, StepKind.ALL_GATHER, HALF)
            if layout.zero_stage == 1:
                summed = self._exchange(stage, StepKind.REDUCE_SCATTER, width)
        update = update_bytes(software) * self._divided(stage, 1) / (device.memory_bandwidth * device.memory_efficiency)
        once = OnceParts(summed=summed, gathered=gathered, update=update)
        seconds = once_seconds(once, software, forward=forward, backward=backward) + software.iteration_seconds
        return seconds + (self._tied_tables() if stage and stage == layout.pipeline - 1 else 0.0)

    def _tied_tables(self) -> float:
        """Seconds to sum the gradients of a table that the first and the last stage hold."""
        if not self.work.tied_parameters:
            return 0.0
        cluster = self.cluster
        crosses = self.layout.devices > cluster.devices_per_node
        network = cluster.between_nodes.bandwidth / cluster.devices_per_node * self.software.network_share
        rate = network if crosses else cluster.inside_node.bandwidth
        return 2 * HALF * self.work.tied_parameters / rate

    def _bytes(self, stage: int) -> tuple[tuple[str, float], ...]:
        """Bytes of a device of the stage, in parts."""
        layout, software = self.layout, self.software
        weights, gradients, state = (self._divided(stage, first) for first in (3, 2, 1))
        stored = HALF * (weights + (self._gathered(stage) if layout.zero_stage >= 3 else 0.0))
        terms = ScheduleTerms(
            schedule="1f1b" if layout.chunks == 1 else INTERLEAVED,
            num_microbatches=layout.microbatches,
            stages_per_submesh=layout.chunks,
        )
        in_turns = terms.held_in_turns(layout.pipeline - stage, layout.pipeline)
        turns = zip(in_turns, self.parts[:, stage].tolist(), strict=True)
        _, held, temporary = device_bytes([self._turn(microbatches, counts) for microbatches, counts in turns])
        if software.keeps_last_loss and layout.microbatches > 1:
            held += self._kept[-1] * float(self.stages[stage, -1])
        temporary += gradients * software.buffer_bytes
        # While gradients are summed and weights updated, no activations are held, but other buffers.
        if layout.replicas > 1 and gradients * software.sync_buffer_bytes > held + temporary:
            held, temporary = 0.0, gradients * software.sync_buffer_bytes
        return (
            ("weights", stored),
            ("gradients", gradients * software.gradient_element_bytes(self.work.dtype, HALF)),
            ("optimizer state", state * state_bytes(MOMENTS, HALF, software)),
            ("activations", held),
            ("temporary tensors", temporary),
            ("reserve", self.cluster.device.reserved_bytes),
        )

    def _gathered(self, stage: int) -> float:
        """Gathered weights that a device of the stage holds at once, where all are stored in shards."""
        layout, (dense, experts, _) = self.layout, self.elements[stage]
        copies = dense * (1 - 1 / layout.replicas) + experts * (1 - 1 / layout.expert_replicas)
        return gathered_bytes(copies, float(self.stages[stage, 1:-1].sum()), self.software)

    def _turn(self, microbatches: float, counts: Sequence[float]) -> StageBytes:
        """What so many parts of the model keep and need; what they store is counted of all turns together. While one of
        them runs, those behind it keep nothing: not yet, or no more. Of blocks that is the one before the head."""
        of_parts = [kept * count for kept, count in zip(self._kept, counts, strict=True)]
        behind = [sum(of_parts[1:]), *(of_parts[-1] for _ in of_parts[2:]), 0.0]
        there = zip(self.work.parts, behind, counts, strict=True)
        needs = (p.recomputed[self.layout.recompute].workspace_bytes - freed for p, freed, count in there if count)
        boundary = self.software.boundary_buffers * self.work.boundary_bytes if self.layout.pipeline > 1 else 0.0
        return StageBytes(0.0, microbatches * (sum(of_parts) + boundary), max(needs, default=0.0))
