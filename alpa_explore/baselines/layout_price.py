"""Price a manual layout: seconds of an iteration and bytes of the fullest device, from the work of its parts.

With t_i the seconds of a microbatch in stage i at the pace of the slower of host and device, of the slowest of many
devices, and with its sends, an iteration of B microbatches takes under 1F1B

    Σ t_i + (B − 1) · max t_i + gradient sync + update + overhead

An interleaved schedule is simulated (`interleaved_time`). A recomputed block runs its forward pass again in the
backward one. Weights that are divided among replicas (ZeRO-3, FSDP) are gathered in every pass, beside its computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeAlias

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.interleaved_time import FULL_ROUNDS, interleaved_seconds
from alpa_explore.baselines.layout import ManualLayout
from alpa_explore.baselines.part_times import DecoderTime, PassTime, decoder_time
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import Group, device_group, straggler_factor
from alpa_explore.cost.collectives import send_seconds
from alpa_explore.cost.compute import adding_seconds
from alpa_explore.cost.group_collectives import stored_seconds
from alpa_explore.cost.stage_seconds import OnceParts, PassParts, once_seconds, pass_seconds
from alpa_explore.inter_op.schedule_terms import ScheduleTerms
from alpa_explore.schedules.catalog import INTERLEAVED
from alpa_explore.sharding.reshard import StepKind

HALF = 2
"""Bytes of a weight."""
OPTIMIZER_BYTES = 12
"""Adam's two moments and the fp32 weight, for each parameter."""
UPDATE_BYTES = 30
"""Bytes that an update moves for each parameter: the norm reads the gradient (2); Adam reads gradient, weight and two
moments (14) and writes the last three (12) and the weight in half precision (2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPrice:
    """What a layout is predicted to take, in parts."""

    seconds: float
    """Of an iteration."""
    pipeline_seconds: float
    sync_seconds: float
    update_seconds: float
    slowest_stage: int
    bytes: float
    """Of the fullest device, with what the software keeps back."""
    fullest_stage: int
    parts_bytes: tuple[tuple[str, float], ...]
    """Of that device: weights, gradients, optimizer state, activations, temporary tensors, reserve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchCosts:
    """What decides on the price of a layout besides its number of microbatches. Made for 3 · pipeline microbatches or
    more, it holds for every larger number; made for fewer, for that number alone (`counted_microbatches`)."""

    slowest_seconds: float
    """Of one microbatch in the slowest stage."""
    filling_seconds: float
    """While the pipeline fills and drains: of the other stages, once."""
    sync_seconds: float
    update_seconds: float
    slowest_stage: int
    fullest_stage: int
    parts_bytes: tuple[tuple[str, float], ...]
    """Of a device of the fullest stage."""

    def price(self, microbatches: int) -> LayoutPrice:
        """The price with so many microbatches."""
        pipeline = microbatches * self.slowest_seconds + self.filling_seconds
        return LayoutPrice(
            seconds=pipeline + self.sync_seconds + self.update_seconds,
            pipeline_seconds=pipeline,
            sync_seconds=self.sync_seconds,
            update_seconds=self.update_seconds,
            slowest_stage=self.slowest_stage,
            bytes=sum(b for _, b in self.parts_bytes),
            fullest_stage=self.fullest_stage,
            parts_bytes=self.parts_bytes,
        )


def price_layout(work: DecoderWork, cluster: Cluster, layout: ManualLayout) -> LayoutPrice:
    """The price of a layout of a decoder on a cluster."""
    costs = microbatch_costs(work, cluster, layout, decoder_time(work, cluster, layout))
    return costs.price(layout.microbatches)


def microbatch_costs(work: DecoderWork, cluster: Cluster, layout: ManualLayout, time: DecoderTime) -> MicrobatchCosts:
    """What a layout takes, from the times of its parts, which layouts share that differ in stages, copies or ZeRO
    alone."""
    return _Pricer(work, cluster, layout, time).costs()


def counted_microbatches(pipeline: int, microbatches: int) -> int:
    """The number of microbatches as far as the costs of a pipeline of so many stages depend on it: no part holds more
    than two for each stage (`ScheduleTerms.held_in_turns`), and a loss is kept from the second one on; an interleaved
    pipeline is full after `FULL_ROUNDS`."""
    return min(microbatches, FULL_ROUNDS * pipeline)


def layout_seconds(work: DecoderWork, cluster: Cluster, layout: ManualLayout, time: DecoderTime) -> float:
    """Seconds of an iteration alone, from the times of the parts; for fits."""
    return _Pricer(work, cluster, layout, time).seconds_only()


_Parts: TypeAlias = Sequence[tuple[int, tuple[int, ...]]]
"""(number of the part, its blocks of each kind) of a stage."""


class _Pricer:
    """One layout."""

    def __init__(self, work: DecoderWork, cluster: Cluster, layout: ManualLayout, time: DecoderTime) -> None:
        self.work, self.cluster, self.layout, self.time = work, cluster, layout, time
        self.software = cluster.software
        self.replicas: Group = device_group(cluster, layout.replicas, layout.tensor)
        self.expert_replicas: Group = device_group(
            cluster, layout.expert_replicas, layout.expert * layout.expert_tensor
        )
        of_stages = [self._elements(self._parts_of(stage)) for stage in range(layout.pipeline)]
        self.parameters = [dense for dense, _ in of_stages]
        self.expert_parameters = [experts for _, experts in of_stages]
        kinds = [sum(counts) for counts in zip(*layout.blocks, strict=True)]
        self.of_block = tuple(elements / max(sum(kinds), 1) for elements in self._of_blocks(kinds))
        """Parameters of a block in the mean of all: all but those of experts, and of experts."""

    def seconds_only(self) -> float:
        """The seconds of an iteration; for fits."""
        return self._costs(fullest_stage=0, parts_bytes=()).price(self.layout.microbatches).seconds

    def costs(self) -> MicrobatchCosts:
        """Seconds and bytes."""
        stage, parts = max(
            ((i, self._bytes(i)) for i in range(self.layout.pipeline)), key=lambda entry: sum(b for _, b in entry[1])
        )
        return self._costs(fullest_stage=stage, parts_bytes=parts)

    def _costs(self, *, fullest_stage: int, parts_bytes: tuple[tuple[str, float], ...]) -> MicrobatchCosts:
        """The seconds, beside these bytes."""
        layout, stragglers = self.layout, self._stragglers()
        passes = [self._stage(stage) for stage in range(layout.pipeline)]
        forward, backward = zip(*passes, strict=True)
        fixed = self.software.microbatch_seconds
        each = [(f + b + fixed) * stragglers + send for (f, b), send in zip(passes, self._sends(), strict=True)]
        if layout.chunks == 1:
            slowest, filling = max(each), sum(each) - max(each)
        else:
            slowest, filling = self._interleaved(stragglers)
        sync = self._sync(max(forward), max(backward)) + self._tied_tables()
        device = self.cluster.device
        moved = UPDATE_BYTES * max(self._divided(stage, 1) for stage in range(self.layout.pipeline))
        update = moved / (device.memory_bandwidth * device.memory_efficiency) + self.software.iteration_seconds
        return MicrobatchCosts(
            slowest_seconds=slowest,
            filling_seconds=filling,
            sync_seconds=sync,
            update_seconds=update,
            slowest_stage=each.index(max(each)),
            fullest_stage=fullest_stage,
            parts_bytes=parts_bytes,
        )

    def _interleaved(self, stragglers: float) -> tuple[float, float]:
        """(seconds of one more microbatch, seconds beside those of all microbatches) of an interleaved schedule."""
        layout = self.layout
        together, per_node = layout.stage_devices, self.cluster.devices_per_node
        nodes = [range(s * together // per_node, -(-(s + 1) * together // per_node)) for s in range(layout.pipeline)]
        alike: dict[object, tuple[float, float]] = {}
        forward, backward = [], []
        for part, blocks in enumerate(layout.blocks):
            stage = part % layout.pipeline
            kind = blocks, part == 0, part == layout.head_part, self.parameters[stage], self.expert_parameters[stage]
            if kind not in alike:
                alike[kind] = self._stage(stage, ((part, blocks),))
            forward.append(alike[kind][0] * stragglers)
            backward.append((alike[kind][1] + self.software.microbatch_seconds / layout.chunks) * stragglers)
        first, more = interleaved_seconds(
            forward,
            backward,
            self._borders(),
            nodes,
            waits=1.0 - self.software.send_overlap,
            microbatches=layout.microbatches,
        )
        each = more or first / layout.microbatches
        return each, first - layout.microbatches * each

    def _divided(self, stage: int, from_stage: int) -> float:
        """Parameters of a device of the stage, over their copies where ZeRO of `from_stage` or more divides them."""
        layout, shared = self.layout, self.layout.zero_stage >= from_stage
        dense, experts = self.parameters[stage], self.expert_parameters[stage]
        if not shared:
            return dense + experts
        return dense / layout.replicas + experts / layout.expert_replicas

    def _parts_of(self, stage: int) -> _Parts:
        """The parts of a stage."""
        pipeline = self.layout.pipeline
        return [(c * pipeline + stage, self.layout.blocks[c * pipeline + stage]) for c in range(self.layout.chunks)]

    def _stage(self, stage: int, parts: _Parts = ()) -> tuple[float, float]:
        """Seconds of the forward and the backward pass of one microbatch, of all parts of a stage or of some."""
        zero = PassTime(0.0, 0.0)
        forward = backward = zero
        run = parts or self._parts_of(stage)
        for number, blocks in run:
            ends = [self.time.embedding] * (number == 0) + [self.time.head] * (number == self.layout.head_part)
            run_times = [(time, count) for time, count in zip(self.time.blocks, blocks, strict=True) if count]
            forward += sum((end.forward for end in ends), _all(time.forward * count for time, count in run_times))
            backward += sum((end.backward for end in ends), _all(time.backward * count for time, count in run_times))
            if self.layout.recompute != "none":
                backward += _all(time.recompute * count for time, count in run_times)
        backward += self._adding(stage, run)
        gathering, scattering = self._gathers(stage)
        if parts:
            of_all = sum(sum(blocks) for _, blocks in self._parts_of(stage))
            share = sum(sum(blocks) for _, blocks in parts) / of_all if of_all else 1.0 / self.layout.chunks
            gathering, scattering = gathering * share, scattering * share
        return self._paced(forward, gathering), self._paced(backward, scattering)

    def _adding(self, stage: int, parts: _Parts) -> PassTime:
        """Seconds to add the gradients of some parts of a stage to the accumulated ones. From ZeRO-2 on a device has
        its share of them."""
        whole = self.parameters[stage] + self.expert_parameters[stage]
        if not whole:
            return PassTime(0.0, 0.0)  # a stage without a part of the model
        share, software = self._divided(stage, 2) / whole, self.software
        elements, tensors = sum(self._elements(parts)), self._tensors(parts)
        launched = tensors if software.accumulate_bytes and not software.accumulate_in_product else 0.0
        seconds = adding_seconds(self.cluster.device, HALF * elements * share, HALF, tensors)
        return PassTime(seconds, launched * software.backward_launch_seconds)

    def _paced(self, time: PassTime, communication: float) -> float:
        return pass_seconds(PassParts(device=time.device, host=time.host, stored=communication), self.software)

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
        embedding = self.work.embedding.parameters * any(number == 0 for number, _ in self._parts_of(stage))
        return gathered, exchange(StepKind.ALL_GATHER, without=embedding) + scattered

    def _exchange(
        self, stage: int, kind: StepKind, width: float, *, without: float = 0.0, each_microbatch: bool = False
    ) -> float:
        """Seconds of a stage to exchange its parameters, all or `without` some, among their copies: once an iteration
        in buckets, in every microbatch block by block."""
        tensors = self._tensors(self._parts_of(stage))
        dense, experts = width * (self.parameters[stage] - without), width * self.expert_parameters[stage]
        of_dense = of_experts = float(self.software.bucket_bytes)
        if each_microbatch and self.software.bucket_bytes:
            of_dense, of_experts = (width * elements for elements in self.of_block)
        return stored_seconds(kind, dense, tensors, self.replicas, of_dense) + stored_seconds(
            kind, experts, 1, self.expert_replicas, of_experts
        )

    def _tensors(self, parts: _Parts) -> float:
        """Number of the parameters of some parts."""
        numbers = [number for number, _ in parts]
        ends = self.work.embedding.parameter_tensors * (0 in numbers)
        ends += self.work.head.parameter_tensors * (self.layout.head_part in numbers)
        kinds = self.work.blocks
        return ends + sum(
            kind.parameter_tensors * count for _, blocks in parts for kind, count in zip(kinds, blocks, strict=True)
        )

    def _of_blocks(self, counts: Sequence[int]) -> tuple[float, float]:
        """Parameters of a device in so many blocks of each kind: all but those of experts, and of experts."""
        blocks = list(zip(self.work.blocks, counts, strict=True))
        return sum(b.parameters * n for b, n in blocks), sum(b.expert_parameters * n for b, n in blocks)

    def _elements(self, parts: _Parts) -> tuple[float, float]:
        """Parameters of a device in some parts of a stage: all but those of experts, and of experts."""
        work, numbers = self.work, [number for number, _ in parts]
        first, last = 0 in numbers, self.layout.head_part in numbers
        copied = work.tied_parameters * (last and not first)
        ends = work.embedding.parameters * first + copied + work.head.parameters * last
        counts = [sum(of_parts) for of_parts in zip(*(blocks for _, blocks in parts), strict=True)]
        dense, of_experts = self._of_blocks(counts)
        return dense + ends, of_experts + work.head.expert_parameters * last

    def _borders(self) -> list[float]:
        """Seconds of one send from each stage to the next; behind the last to the first, where the schedule is
        interleaved, and else 0."""
        layout, cluster = self.layout, self.cluster
        sent = self.work.boundary_bytes / min(layout.tensor, cluster.devices_per_node)
        together, per_node = layout.stage_devices, cluster.devices_per_node
        seconds = []
        for i in range(layout.pipeline - 1):
            crosses = (i * together) // per_node != ((i + 2) * together - 1) // per_node
            seconds.append(send_seconds(cluster, sent, crosses_nodes=crosses))
        if layout.chunks == 1:
            return [*seconds, 0.0]
        return [*seconds, send_seconds(cluster, sent, crosses_nodes=layout.devices > per_node)]

    def _sends(self) -> list[float]:
        """Seconds in which each stage waits for what a microbatch sends and receives."""
        borders = self._borders()
        return [2 * ((borders[i - 1] if i else 0.0) + borders[i]) for i in range(len(borders))]

    def _stragglers(self) -> float:
        layout = self.layout
        return straggler_factor(
            self.cluster, devices=layout.devices, stage_devices=layout.stage_devices, tensor=layout.tensor
        )

    def _sync(self, forward: float, backward: float) -> float:
        """Exposed seconds of the gradient sum, and of gathering updated weights (ZeRO-1 and 2)."""
        layout, software = self.layout, self.software
        if layout.replicas == 1 or layout.zero_stage >= 3:
            return 0.0
        width = software.sync_bytes or HALF
        stages = range(layout.pipeline)
        summed = gathered = 0.0
        if not layout.zero_stage:
            summed = max(self._exchange(stage, StepKind.ALL_REDUCE, width) for stage in stages)
        else:
            gathered = max(self._exchange(stage, StepKind.ALL_GATHER, HALF) for stage in stages)
            if layout.zero_stage == 1:
                summed = max(self._exchange(stage, StepKind.REDUCE_SCATTER, width) for stage in stages)
        once = OnceParts(summed=summed, gathered=gathered, update=0.0)
        return once_seconds(once, software, forward=forward, backward=backward)

    def _tied_tables(self) -> float:
        """Seconds to sum the gradients of a table that the first and the last stage hold."""
        layout = self.layout
        if not self.work.tied_parameters or layout.pipeline == 1:
            return 0.0
        cluster = self.cluster
        crosses = layout.devices > cluster.devices_per_node
        network = cluster.between_nodes.bandwidth / cluster.devices_per_node * self.software.network_share
        rate = network if crosses else cluster.inside_node.bandwidth
        return 2 * HALF * self.work.tied_parameters / rate

    def _bytes(self, stage: int) -> tuple[tuple[str, float], ...]:
        """Bytes of a device of the stage, in parts."""
        layout, software = self.layout, self.software
        replicas, zero = layout.replicas, layout.zero_stage
        gathered = self._gathered(stage) if zero >= 3 else 0.0
        held, temporary = self._activations(stage)
        gradient = software.gradient_element_bytes(self.work.dtype, HALF)
        device = self.cluster.device
        weights, gradients, state = (self._divided(stage, first) for first in (3, 2, 1))
        temporary += gradients * software.buffer_bytes
        # While gradients are summed and weights updated, no activations are held, but other buffers.
        if replicas > 1 and gradients * software.sync_buffer_bytes > held + temporary:
            held, temporary = 0.0, gradients * software.sync_buffer_bytes
        return (
            ("weights", weights * HALF + gathered),
            ("gradients", gradients * gradient),
            ("optimizer state", state * OPTIMIZER_BYTES),
            ("activations", held),
            ("temporary tensors", temporary),
            ("reserve", device.reserved_bytes),
        )

    def _gathered(self, stage: int) -> float:
        """Bytes of gathered weights that a device of the stage holds at once, where all are stored in shards."""
        layout = self.layout
        dense = self.parameters[stage] * (1 - 1 / layout.replicas)
        experts = self.expert_parameters[stage] * (1 - 1 / layout.expert_replicas)
        blocks = sum(sum(blocks) for _, blocks in self._parts_of(stage))
        return HALF * (dense + experts) * min(self.software.gathered_blocks / max(blocks, 1), 1.0)

    def _activations(self, stage: int) -> tuple[float, float]:
        """(bytes held for the backward pass, most bytes of temporary tensors)."""
        layout = self.layout
        embedding, *kinds, head = (
            part.recomputed[layout.recompute] for part in (self.work.embedding, *self.work.blocks, self.work.head)
        )
        temporary = held = 0.0
        terms = ScheduleTerms(
            schedule="1f1b" if layout.chunks == 1 else INTERLEAVED,
            num_microbatches=layout.microbatches,
            stages_per_submesh=layout.chunks,
        )
        in_turns = terms.held_in_turns(layout.pipeline - stage, layout.pipeline)
        for microbatches, (number, blocks) in zip(in_turns, self._parts_of(stage), strict=True):
            for kind, count in zip(kinds, blocks, strict=True):
                held += microbatches * count * kind.held_bytes
                temporary = max(temporary, kind.workspace_bytes * (count > 0))
            if layout.pipeline > 1:
                held += microbatches * self.software.boundary_buffers * self.work.boundary_bytes
            if number == 0:
                held += microbatches * embedding.held_bytes
                temporary = max(temporary, embedding.workspace_bytes)
            if number == layout.head_part:
                twice = self.software.keeps_last_loss and layout.microbatches > 1
                held += head.held_bytes * (1 + twice)
                temporary = max(temporary, head.workspace_bytes)
        return held, temporary


def _all(times: Iterable[PassTime]) -> PassTime:
    """One after the other."""
    return reduce(PassTime.__add__, times, PassTime(0.0, 0.0))
