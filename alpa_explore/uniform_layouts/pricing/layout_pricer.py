"""Prices hand-made layouts with the planner's costs, through `baselines`: one by one, each from its captured graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from alpa_explore import units
from alpa_explore.baselines.block_work import CapturedBlocks, Counted, DecoderWork, decoder_work
from alpa_explore.baselines.kinds import dividing_sequences, ordered
from alpa_explore.baselines.layout import ManualLayout
from alpa_explore.baselines.layout_price import LayoutPrice, price_layout
from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, Software, Submesh, logical_mesh
from alpa_explore.cost.work import in_sequence
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.uniform_layouts.pricing.requests import ModelKey, RunPrice, RunRequest


@dataclass(slots=True)
class CapturedModel:
    """The graphs and the work of a model that were asked for."""

    key: ModelKey
    graphs: dict[tuple[int, int], TrainingGraph] = field(default_factory=dict)
    """By samples and positions."""
    work: dict[tuple[object, ...], DecoderWork] = field(default_factory=dict)

    def graph(self, samples: int, positions: int) -> TrainingGraph:
        """The graph of so many samples of so many positions. CaptureError where it cannot be captured."""
        size = samples, positions
        if size not in self.graphs:
            config = replace(self.key.config, sequence=positions)
            self.graphs[size] = captured_graph(config, samples, self.key.dtype)
        return self.graphs[size]


@dataclass(frozen=True, slots=True)
class LayoutPricer:
    """The cost model of the planner, on hand-made layouts."""

    def model(self, key: ModelKey) -> CapturedModel:
        """A model with two periods of blocks, of which nothing is captured yet."""
        return CapturedModel(key)

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


def captured_graph(config: Any, samples: int, dtype: str) -> TrainingGraph:
    """The graph of a config of `models.configs`. CaptureError where it cannot be captured."""
    from alpa_explore.models.factory import make_inputs, make_module
    from alpa_explore.tracing.capture import capture

    module, inputs = make_module(config, "meta", 0), make_inputs(config, samples, "meta", 0)
    return capture(module, inputs, name=type(config).__name__, precision=dtype)


def work_of(model: CapturedModel, run: RunRequest) -> DecoderWork:
    """The work of a microbatch under the run's degrees and software."""
    key = run_features(run)
    if key not in model.work:
        model.work[key] = _work(model, run)
    return model.work[key]


def run_features(run: RunRequest) -> tuple[object, ...]:
    """What of a run decides on its work, beside the model and the device."""
    degrees = run.tensor, run.context, run.expert, run.expert_tensor
    return (*degrees, run.cluster.devices_per_node, *features(run.cluster.software))


def features(software: Software) -> tuple[object, ...]:
    """What of the software decides on the work that is read from a graph."""
    products = software.joins_projections, software.low_precision, software.lowers_head
    others = software.fuses_pointwise, software.sequence_parallel, software.gradient_bytes
    return *products, *others, software.recomputes_whole


def _work(model: CapturedModel, run: RunRequest) -> DecoderWork:
    key, cluster = model.key, run.cluster
    samples, positions, blocks = key.micro_batch, key.config.sequence, CapturedBlocks.of_period(key.period)
    context, tensor, expert = run.context, run.tensor, run.expert
    if not key.routed:
        work = own_work(model.graph(samples, positions), cluster, (1, context, tensor), blocks)
    elif run.expert_tensor == tensor:
        work = own_work(model.graph(samples * expert, positions), cluster, (expert, context, tensor), blocks)
    else:
        # Devices that share other products have tokens of their own in layers of experts.
        own = max(positions * run.expert_tensor // (context * tensor), 1)
        work = own_work(model.graph(samples, positions), cluster, (1, context, tensor), blocks, counted=Counted.OTHERS)
        inside = own_work(
            model.graph(samples * expert, own), cluster, (expert, 1, run.expert_tensor), blocks, counted=Counted.EXPERTS
        )
        both = zip(work.blocks, inside.blocks, strict=True)
        work = replace(work, blocks=tuple(in_sequence(outside, experts) for outside, experts in both))
    for _ in range(key.predicted_ahead):
        work = replace(work, head=in_sequence(work.head, work.blocks[-1], work.head))
    return work


def own_work(
    graph: TrainingGraph,
    cluster: Cluster,
    degrees: tuple[int, int, int],
    blocks: CapturedBlocks,
    *,
    counted: Counted = Counted.ALL,
) -> DecoderWork:
    """The work of a model's graph, of the samples of all devices that share experts, by (expert, context, tensor)
    parallelism."""
    tensor = Role.TENSOR_SEQUENCE if cluster.software.sequence_parallel else Role.TENSOR
    context, devices = degrees[1], math.prod(degrees)
    if context > 1:
        cluster, graph = dividing_sequences(cluster, None), ordered(graph, context, None)
    nodes = devices // cluster.devices_per_node if devices % cluster.devices_per_node == 0 else 1
    mesh = logical_mesh(cluster, Submesh(nodes, devices // nodes), degrees)
    roles = (Role.EXPERT, Role.CONTEXT, tensor)
    work = decoder_work(graph, cluster.device, mesh, roles, blocks=blocks, counted=counted)
    return replace(work, boundary_bytes=work.boundary_bytes / (degrees[0] * context))


def layout_of(dtype: str, run: RunRequest, recompute: str) -> ManualLayout:
    """The layout of a run whose tensors have this dtype. OptionError for a device without the precision."""
    device = run.cluster.device
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
    )


def overflow(price: LayoutPrice, room: float) -> str:
    """Why a layout does not fit: stage, bytes, and what takes most of them."""
    name, most = max(price.parts_bytes, key=lambda part: part[1])
    return (
        f"stage {price.fullest_stage} needs {units.bytes_(price.bytes)} of {units.bytes_(room)} on a device, "
        f"{units.bytes_(most)} of them for {name}"
    )
