"""Prices hand-made layouts with the planner's costs, through `baselines`: one by one, each from its captured graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from alpa_explore import units
from alpa_explore.baselines.block_work import DecoderWork, decoder_work
from alpa_explore.baselines.layout import ManualLayout
from alpa_explore.baselines.layout_price import LayoutPrice, price_layout
from alpa_explore.baselines.roles import Role
from alpa_explore.baselines.sequences import dividing_sequences, ordered
from alpa_explore.cluster import Cluster, LogicalMesh, Software, Submesh, logical_mesh
from alpa_explore.cost.blocks.block import Division, block_part, parts_in_sequence
from alpa_explore.cost.blocks.ring import in_ring
from alpa_explore.cost.work import CONTEXT, EXPERTS, TENSOR
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.uniform_layouts.pricing.requests import ModelKey, RunPrice, RunRequest


@dataclass(slots=True)
class CapturedModel:
    """A captured graph, and its work under the degrees of tensor parallelism that were asked for."""

    graph: TrainingGraph
    key: ModelKey
    work: dict[tuple[object, ...], DecoderWork] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayoutPricer:
    """The cost model of the planner, on hand-made layouts."""

    def model(self, key: ModelKey) -> CapturedModel:
        """The captured graph of a model with two blocks. CaptureError where it cannot be captured."""
        from alpa_explore.models.factory import make_inputs, make_module
        from alpa_explore.tracing.capture import capture

        graph = capture(
            make_module(key.config, "meta", 0),
            make_inputs(key.config, key.micro_batch, "meta", 0),
            name=type(key.config).__name__,
            precision=key.dtype,
        )
        return CapturedModel(graph, key)

    def price(self, model: CapturedModel, run: RunRequest) -> RunPrice:
        """Seconds and bytes of the first recomputation that the run may have had; it fits if one of them does."""
        first, *others = (self._price(model, run, recompute) for recompute in run.recompute)
        if not others:
            return first
        fits = first.fits or any(other.fits for other in others)
        return replace(first, fits=fits, reason="" if fits else first.reason, ends=(first, *others))

    def _price(self, model: CapturedModel, run: RunRequest, recompute: str) -> RunPrice:
        layout, room = layout_of(model.key.dtype, run, recompute), run.cluster.device.memory_bytes
        price = price_layout(work_of(model, run), run.cluster, layout)
        fits = price.bytes <= room
        reserve = 0.0 if run.counts_reserve else dict(price.parts_bytes)["reserve"]
        return RunPrice(
            seconds=price.seconds,
            bytes=price.bytes - reserve,
            fits=fits,
            reason="" if fits else overflow(price, room),
            recompute=recompute,
        )


def work_of(model: CapturedModel, run: RunRequest) -> DecoderWork:
    """The work of a microbatch under the run's tensor parallelism and software."""
    division = division_of(model.key, run)
    key = (division, *features(run.cluster.software))
    if key not in model.work:
        model.work[key] = completed(captured_work(model.graph, run.cluster, run.tensor), model.key, division)
    return model.work[key]


def features(software: Software) -> tuple[object, ...]:
    """What of the software decides on the work that is read from a graph."""
    return software.fuses_pointwise, software.sequence_parallel, software.gradient_bytes, software.recomputes_whole


def captured_work(graph: TrainingGraph, cluster: Cluster, tensor: int) -> DecoderWork:
    """The work of a captured graph on one of so many tensor-parallel devices."""
    role = Role.TENSOR_SEQUENCE if cluster.software.sequence_parallel else Role.TENSOR
    return decoder_work(graph, cluster.device, _ring(cluster, tensor), [(TENSOR, role)])


def own_work(graph: TrainingGraph, cluster: Cluster, degrees: tuple[int, int, int], period: int) -> DecoderWork:
    """The work of a model's own graph, of the samples of all devices that share experts, by (expert, context, tensor)
    parallelism."""
    tensor = Role.TENSOR_SEQUENCE if cluster.software.sequence_parallel else Role.TENSOR
    axes = [(EXPERTS, Role.EXPERT), (CONTEXT, Role.CONTEXT), (TENSOR, tensor)]
    context, devices = degrees[1], math.prod(degrees)
    if context > 1:
        cluster, graph = dividing_sequences(cluster, None), ordered(graph, context, None)
    nodes = max(devices // cluster.devices_per_node, 1)
    mesh = logical_mesh(cluster, Submesh(nodes, devices // nodes), degrees)
    return decoder_work(graph, cluster.device, mesh, axes, period=period)


def division_of(key: ModelKey, run: RunRequest) -> Division:
    """How a run divides a microbatch and its blocks."""
    return Division(
        samples=key.micro_batch,
        length=key.config.sequence,
        tensor=run.tensor,
        context=run.context,
        expert=run.expert,
        expert_tensor=run.expert_tensor,
        fuses_sinks=run.cluster.software.fuses_sinks,
    )


def completed(work: DecoderWork, key: ModelKey, division: Division) -> DecoderWork:
    """With the blocks that were not captured, and the ring of context parallelism."""
    if key.decoder is None:
        if division.context == 1:
            return work
        heads, config = max(key.config.key_heads // division.tensor, 1), key.config
        elements = 2 * division.samples * heads * config.hidden // config.heads * division.length
        return replace(work, block=in_ring(work.block, division.context, elements * division.context))
    period = [block_part(shape, division) for shape in key.decoder.period]
    head = work.head
    for _ in range(key.decoder.predicted_ahead):
        head = parts_in_sequence(head, period[-1], work.head)
    return replace(work, block=parts_in_sequence(*period), head=head)


def _ring(cluster: Cluster, devices: int) -> LogicalMesh:
    """Neighbouring devices as one mesh axis; any number of them, whole nodes or not."""
    inside, between = cluster.inside_node, cluster.between_nodes
    if devices <= cluster.devices_per_node:
        return LogicalMesh((devices,), (inside.bandwidth,), (inside.latency_seconds,))
    return LogicalMesh((devices,), (min(between.bandwidth, inside.bandwidth),), (between.latency_seconds,))


def layout_of(dtype: str, run: RunRequest, recompute: str) -> ManualLayout:
    """The layout of a run whose tensors have this dtype. OptionError for a device without the precision."""
    device = run.cluster.device
    if run.low_precision is not None:
        device = run.cluster.in_precision(run.low_precision).device
    if dtype not in device.peak_flops:
        raise OptionError(
            "The device does not compute in this precision",
            found=f"{dtype} on {device.name}",
            remedy=f"It has {', '.join(device.peak_flops)}.",
        )
    return ManualLayout(
        tensor=run.tensor,
        context=run.context,
        expert=run.expert,
        expert_tensor=run.expert_tensor,
        data=run.data,
        pipeline=run.pipeline,
        microbatches=run.microbatches,
        blocks=run.blocks,
        head_part=run.head_part,
        zero_stage=run.zero_stage,
        recompute=recompute,
        low_precision=run.low_precision,
    )


def overflow(price: LayoutPrice, room: float) -> str:
    """Why a layout does not fit: stage, bytes, and what takes most of them."""
    name, most = max(price.parts_bytes, key=lambda part: part[1])
    return (
        f"stage {price.fullest_stage} needs {units.bytes_(price.bytes)} of {units.bytes_(room)} on a device, "
        f"{units.bytes_(most)} of them for {name}"
    )
