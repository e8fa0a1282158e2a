"""Seconds of the passes of a part of the model, from its work: device and host, for one device and software."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import ManualLayout
from alpa_explore.cluster import Cluster, Device, Software
from alpa_explore.cluster.group import Group, call_seconds, device_group, expert_seconds
from alpa_explore.cost.collectives import exposed_seconds, launched
from alpa_explore.cost.compute import seconds_of_table
from alpa_explore.cost.group_collectives import group_seconds, rows_seconds
from alpa_explore.cost.kernel_seconds import KernelTable
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import PassWork
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.reshard import StepKind

UNFUSED_SOFTMAX_LAUNCHES = 18
"""Launches of a pass where the fused softmax does not apply (Megatron-LM's scale, mask and softmax one by one)."""


@dataclass(frozen=True, slots=True)
class PassTime:
    """Seconds of one pass of a part."""

    device: float
    host: float

    def __add__(self, other: PassTime) -> PassTime:
        return PassTime(self.device + other.device, self.host + other.host)

    def __mul__(self, times: float) -> PassTime:
        return PassTime(self.device * times, self.host * times)


@dataclass(frozen=True, slots=True)
class PartTime:
    """Seconds of a part of the model."""

    forward: PassTime
    backward: PassTime
    recompute: PassTime
    """Of its forward pass run again."""


@dataclass(frozen=True, slots=True)
class DecoderTime:
    """Seconds of one microbatch."""

    embedding: PartTime
    blocks: tuple[PartTime, ...]
    """Of a block of each kind."""
    head: PartTime


def decoder_time(work: DecoderWork, cluster: Cluster, layout: ManualLayout) -> DecoderTime:
    """Seconds of the parts of a decoder under a layout."""
    passes = passes_of(work, layout.recompute)
    return decoder_time_of(passes, [kernel_seconds(cluster.device, p.kernels) for p in passes], cluster, layout)


def passes_of(work: DecoderWork, recompute: str) -> tuple[PassWork, ...]:
    """Of embedding, a block of each kind and head, in this order: forward, backward and recomputed pass."""
    passes: list[PassWork] = []
    for part in (work.embedding, *work.blocks, work.head):
        passes += (part.forward, part.backward, part.recomputed[recompute].again)
    return tuple(passes)


def decoder_time_of(
    passes: Sequence[PassWork], seconds: Sequence[Floats], cluster: Cluster, layout: ManualLayout
) -> DecoderTime:
    """The times of a decoder from the seconds of each kernel of its passes (`passes_of`)."""
    software = cluster.software
    calls = {(c.ranks, c.stride) for work in passes for c in work.collectives}
    groups = {call: device_group(cluster, *call) for call in calls}
    call = call_seconds(cluster, layout.tensor, pipeline=layout.pipeline > 1)
    experts = expert_seconds(cluster)
    forward, backward = software.forward_launch_seconds, software.backward_launch_seconds
    launches = (forward, backward, forward)
    times = [
        _pass_time(work, kernels, software, groups, (launches[i % 3], call, experts))
        for i, (work, kernels) in enumerate(zip(passes, seconds, strict=True))
    ]
    embedding, *blocks, head = (PartTime(*times[i : i + 3]) for i in range(0, len(times), 3))
    return DecoderTime(embedding, tuple(blocks), head)


def _pass_time(
    work: PassWork,
    kernels: Floats,
    software: Software,
    groups: Mapping[tuple[int, int], Group],
    launch_seconds: tuple[float, float, float],
) -> PassTime:
    """`kernels` are the seconds of each; `launch_seconds` those of a kernel, a collective and a layer of
    experts."""
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
    host = launches * kernel + launched_calls * collective + work.expert_layers * experts
    return PassTime(float(kernels.sum()) + calls, host)


def kernel_seconds(device: Device, kernels: tuple[Kernel, ...]) -> Floats:
    """Device seconds of each of some kernels."""
    return seconds_of_table(device, KernelTable.of(kernels)) if kernels else np.zeros(0)
