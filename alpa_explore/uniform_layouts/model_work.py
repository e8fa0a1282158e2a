"""The work of a model under the degrees of a layout, from its captured graph; as JSON, for the cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from alpa_explore.baselines.block_work import CapturedBlocks, Counted, DecoderWork, decoder_work
from alpa_explore.baselines.kinds import dividing_sequences, ordered
from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, Device, Submesh, logical_mesh
from alpa_explore.cost.kernels import Kernel, KernelKind, KernelName
from alpa_explore.cost.work import CollectiveCall, PartWork, PassWork, Recomputed
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.sharding.reshard import StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKey:
    """What decides on the captured graph."""

    config: Any
    """A config of `models.configs`. Of a measured run: with two periods of blocks, the vocabulary padded as the
    framework does, and at least tp heads of keys (where there are fewer, frameworks replicate them)."""
    micro_batch: int
    """Samples of a microbatch of one data-parallel replica."""
    dtype: str
    """torch's name of the dtype of tensors."""
    period: int = 1
    """Unlike blocks that take turns."""
    routed: bool = False
    """Whether blocks have routed experts."""
    predicted_ahead: int = 0
    """`Sizes.predicted_ahead`."""


def check_dtype(device: Device, dtype: str) -> None:
    """OptionError for tensors in a dtype that the device does not compute in."""
    if dtype not in device.peak_flops:
        raise OptionError(
            "The device does not compute in this precision",
            found=f"{dtype} on {device.name}",
            remedy=f"It has {', '.join(device.peak_flops)}.",
        )


def features(device: Device) -> tuple[object, ...]:
    """What of a device and its software decides on the work that is read from a graph."""
    software = device.software
    products = software.joins_projections, software.low_precision, software.lowers_head
    others = software.fuses_pointwise, software.sequence_parallel, software.gradient_bytes
    return *products, *others, software.recomputes_whole, software.plain_loop, device.measured is not None


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


def stored_work(work: DecoderWork) -> dict[str, Any]:
    """Its fields, as JSON has them."""
    return asdict(work, dict_factory=lambda fields: {k: v.value if isinstance(v, Enum) else v for k, v in fields})


def work_from(stored: Mapping[str, Any]) -> DecoderWork:
    """The inverse of `stored_work`."""
    ends = {part: _part(stored[part]) for part in ("embedding", "head")}
    return DecoderWork(**{**stored, **ends, "blocks": tuple(map(_part, stored["blocks"]))})


def _part(stored: Mapping[str, Any]) -> PartWork:
    recomputed = {
        kind: Recomputed(**{**kept, "again": _pass(kept["again"])}) for kind, kept in stored["recomputed"].items()
    }
    passes = {name: _pass(stored[name]) for name in ("forward", "backward")}
    return PartWork(**{**stored, **passes, "recomputed": recomputed})


def _pass(stored: Mapping[str, Any]) -> PassWork:
    kernels = tuple(
        Kernel(
            **{
                **{**k, "kind": KernelKind(k["kind"]), "sizes": tuple(k["sizes"])},
                "name": None if k["name"] is None else KernelName(*k["name"]),
            }
        )
        for k in stored["kernels"]
    )
    calls = tuple(CollectiveCall(**{**c, "kind": StepKind(c["kind"])}) for c in stored["collectives"])
    return PassWork(**{**stored, "kernels": kernels, "collectives": calls})
