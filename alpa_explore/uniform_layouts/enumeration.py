"""Every uniform layout of a model on a cluster.

All devices are used: TP × CP × PP × DP of them. A degree must divide what it divides:

- TP the heads, the width of the MLP and the positions of a device; it stays inside a node.
- CP the sequence, in two pieces a device (zig-zag), of at least `tuning.LEAST_POSITIONS` positions together, where
  positions see each other in attention alone.
- PP no more than the blocks; they need not divide evenly (`stages`). An encoder with a decoder has none.
- DP the global batch. The microbatch divides what a replica gets, in powers of two, up to `tuning.MOST_TOKENS` tokens
  on a device, and is one sample where CP divides it; with several stages there are at least as many microbatches as
  stages.
- EP the experts and DP; expert TP is TP.
- Interleaved: the parts divide the blocks, or these with embedding and head counted as one each; the stages divide
  the microbatches (Megatron-LM).
- What a software lacks (`Offer`, `Software.schedules`) is not among its layouts.
- ZeRO only where there are copies; selective recomputation only where attention is spelled out, whose scores it drops:
  a fused kernel holds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from alpa_explore.baselines.layout import Layout
from alpa_explore.cluster import Cluster, Software
from alpa_explore.models.catalog import divisors_of
from alpa_explore.schedules.catalog import INTERLEAVED
from alpa_explore.uniform_layouts import tuning
from alpa_explore.uniform_layouts.structure import Structure


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The layouts that a software can run."""

    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    """Where the model has one stage."""
    zero_in_pipelines: tuple[int, ...] = (0, 1)
    """Where it has several: weights that are gathered for every microbatch rule out most schedules."""
    tensor: bool = True
    pipeline: bool = True
    context: bool = True


_MEGATRON = Offer()  # ZeRO-2 and 3: Megatron-FSDP (--data-parallel-sharding-strategy), without pipelines
_TORCHTITAN = Offer(zero_stages=(2, 3), zero_in_pipelines=(2, 3))  # reshard_after_forward of FSDP2
_OFFERS: Mapping[str, Offer] = {
    "megatron": _MEGATRON,
    "megatron-2025": _MEGATRON,
    "megatron-hybridep": _MEGATRON,
    "mlperf": _MEGATRON,
    "megatron-v2": Offer(zero_stages=(0,), zero_in_pipelines=(0,), context=False),
    "megatron-deepspeed": Offer(zero_stages=(0, 1), context=False),
    "nanotron": Offer(zero_stages=(0, 1)),
    "torchtitan": _TORCHTITAN,
    "torchtitan-eager": _TORCHTITAN,
    "deepspeed": Offer(context=False, pipeline=False),
    "fsdp": Offer(zero_stages=(2, 3), tensor=False, pipeline=False, context=False),
    "maxtext": Offer(zero_stages=(3,), zero_in_pipelines=(3,)),
    "eager": Offer(zero_stages=(0, 1), tensor=False, pipeline=False, context=False),
    "compiled": Offer(zero_stages=(0, 1), tensor=False, pipeline=False, context=False),
}
"""By the name of the profile, from the documentation of each framework; of others, as of the paper's setting and a
profile of the user's, all."""


def enumerate_layouts(structure: Structure, cluster: Cluster, global_batch: int) -> tuple[Layout, ...]:
    """All layouts; none where the batch has no division on so many devices."""
    offer = _OFFERS.get(cluster.software.name, Offer())
    return tuple(
        layout
        for degrees in _degrees(structure, cluster, global_batch, offer)
        for expert in _experts(structure, degrees)
        for batched in _microbatches(structure.positions, expert, global_batch)
        for interleaved in _interleaved(structure, batched, cluster.software)
        for layout in _stored(structure, interleaved, offer)
    )


def leanest(layouts: tuple[Layout, ...]) -> tuple[Layout, ...]:
    """Those that may need the least memory: one sample in a microbatch, all recomputed, the most that ZeRO divides."""
    most: dict[tuple[int, ...], Layout] = {}
    for layout in layouts:
        if layout.microbatch == 1 and layout.recompute == "full" and layout.chunks == 1:
            key = (layout.tensor, layout.pipeline, layout.context, layout.expert, layout.expert_tensor)
            if key not in most or layout.zero_stage > most[key].zero_stage:
                most[key] = layout
    return tuple(most.values())


def _degrees(structure: Structure, cluster: Cluster, batch: int, offer: Offer) -> Iterator[Layout]:
    devices, length = cluster.devices, structure.tokens
    for tensor in divisors_of(devices):
        if tensor > min(cluster.devices_per_node, tuning.MOST_TENSOR) or (tensor > 1 and not offer.tensor):
            break
        if any(width % tensor for width in structure.widths) or (length > 1 and length % tensor):
            continue
        for context in divisors_of(devices // tensor):
            if context > 1 and not (
                structure.divides_sequences and offer.context and _divides_sequence(length, context, tensor)
            ):
                continue
            for pipeline in divisors_of(devices // tensor // context):
                if pipeline > structure.layers or (pipeline > 1 and not (offer.pipeline and structure.is_chain)):
                    break
                data = devices // tensor // context // pipeline
                if batch % data == 0:
                    yield Layout(tensor=tensor, context=context, pipeline=pipeline, data=data)


def _divides_sequence(length: int, context: int, tensor: int) -> bool:
    own, rest = divmod(length, context)
    return not rest and own >= tuning.LEAST_POSITIONS and own % (2 * tensor) == 0


def _experts(structure: Structure, degrees: Layout) -> Iterator[Layout]:
    if structure.experts == 1:
        yield degrees
        return
    for expert in divisors_of(degrees.data):
        if structure.experts % expert == 0:
            yield replace(degrees, expert=expert, expert_tensor=degrees.tensor)


def _microbatches(length: int, degrees: Layout, batch: int) -> Iterator[Layout]:
    own, samples = batch // degrees.data, 1
    most = tuning.MOST_TOKENS // length if degrees.context == 1 else 1
    while own % samples == 0 and (samples == 1 or samples <= most):
        count = own // samples
        if degrees.pipeline == 1 or count >= degrees.pipeline:
            yield replace(degrees, microbatch=samples, microbatches=count)
        samples *= 2


def _interleaved(structure: Structure, layout: Layout, software: Software) -> Iterator[Layout]:
    yield layout
    stages = layout.pipeline
    if stages == 1 or not software.runs(INTERLEAVED) or layout.microbatches % stages:
        return
    for chunks in range(2, tuning.MOST_CHUNKS + 1):
        parts = stages * chunks
        if parts <= structure.layers and 0 in (structure.layers % parts, (structure.layers + 2) % parts):
            yield replace(layout, chunks=chunks)


def _stored(structure: Structure, layout: Layout, offer: Offer) -> Iterator[Layout]:
    stages = offer.zero_stages if layout.pipeline == 1 else offer.zero_in_pipelines
    if layout.data * layout.context == 1:
        stages = (0,)
    kept = ("none", "selective", "full") if structure.spelled_out else ("none", "full")
    for zero in stages:
        for recompute in kept:
            yield replace(layout, zero_stage=zero, recompute=recompute)
