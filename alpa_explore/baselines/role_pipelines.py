"""The pipelines of a baseline whose mesh axes have roles: every way to divide a cluster that its degrees leave open."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from alpa_explore.baselines.equal_stages import equal_stages, no_pipeline, stages_of
from alpa_explore.baselines.kinds import ONE_STAGE, Degrees, takes
from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh, logical_meshes
from alpa_explore.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Divisible:
    """What a baseline divides among devices."""

    layers: int
    samples: int
    """Of one microbatch."""
    positions: int
    """Of a sequence; 1 where none is known."""
    experts: int
    """Of a block; 1 where there are none."""
    of_stages: tuple[int, ...] = ()
    """The layers of each stage, where they are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePipeline:
    """A pipeline with all stages on submeshes of one shape, seen as one of `meshes`, with a role for every axis."""

    text: str
    """Shown to users: 'tp 4, dp 2, pp 2'."""
    cp: int
    """Devices that share a sequence."""
    ranges: tuple[tuple[int, int], ...]
    """(first layer, last layer inclusive) of every stage."""
    submesh: Submesh
    meshes: tuple[tuple[LogicalMesh, tuple[Role, ...]], ...]
    """Logical meshes, each with the roles of its axes of more than one device."""


def role_pipelines(kind: str, cluster: Cluster, whole: Divisible, degrees: Degrees) -> tuple[RolePipeline, ...]:
    """The pipelines that a baseline with roles may be on `cluster`. OptionError, with what would work, where there is
    none."""
    for name, size, what in (("ep", whole.experts, "routed experts"), ("cp", whole.positions, "positions")):
        given = getattr(degrees, name)
        if given is not None and size % given:
            raise OptionError(
                f"The {what} cannot be divided for this degree",
                found=f"{name}={given} for {size:,} {what}" if size > 1 else f"{name}={given}, and there are no {what}",
                remedy=f"Give a divisor of {size:,}." if size > 1 else f"Leave {name} out.",
            )
    undivided = kind in ONE_STAGE and degrees.cp in (None, 1)
    found = tuple(_on_all_devices(kind, cluster, whole)) if undivided else ()
    found += tuple(_divided(kind, cluster, whole, degrees))
    if not found and undivided:
        raise OptionError(
            f"The batch cannot be divided for the baseline {kind}",
            found=f"{whole.samples} samples in a microbatch for {cluster.devices} devices",
            remedy=f"Give fewer, larger microbatches: a multiple of {cluster.devices} samples each.",
        )
    return found or no_pipeline(kind, cluster, whole.layers, whole.samples, degrees)


def _on_all_devices(kind: str, cluster: Cluster, whole: Divisible) -> Iterator[RolePipeline]:
    """One stage whose every axis divides the batch."""
    if whole.samples % cluster.devices == 0:
        submesh, role = Submesh(cluster.nodes, cluster.devices_per_node), Role(("data", ONE_STAGE.index(kind)))
        meshes = tuple((mesh, (role,) * len(mesh.axes)) for mesh in logical_meshes(cluster, submesh))
        ranges = ((0, whole.layers - 1),)
        yield RolePipeline(text="all devices", cp=1, ranges=ranges, submesh=submesh, meshes=meshes)


def _divided(kind: str, cluster: Cluster, whole: Divisible, degrees: Degrees) -> Iterator[RolePipeline]:
    """The pipelines with every degree that fits the cluster, the layers, the batch, the sequence and the experts."""
    taken = takes(kind)
    pp = degrees.pp if "pp" in taken else 1
    given = whole.of_stages
    for submesh, ranges in stages_of(cluster, given) if given else equal_stages(cluster, whole.layers, pp):
        devices = submesh.devices
        if len(ranges) > 1 and min(last - first + 1 for first, last in ranges) < (degrees.chunks or 1):
            continue  # a part without a layer
        for cp in _context_degrees(kind, devices, whole, degrees):
            for tp in _options("tp" in taken, degrees.tp, devices // cp):
                dp = devices // (cp * tp)
                # The positions of several samples on a device are not divided together.
                fits = whole.samples % dp == 0 if cp == 1 else whole.samples == dp
                if not fits or degrees.dp not in (None, dp):
                    continue
                for replicas in _options("replicas" in taken, degrees.replicas, dp):
                    shards = dp // replicas
                    if (replicas > 1 and shards * cp == 1) or (kind == "hsdp" and replicas == 1):
                        continue  # nothing is sharded, or replicated
                    for ep in _options("ep" in taken, degrees.ep, math.gcd(shards, whole.experts)):
                        sizes = replicas, shards, ep, cp, tp
                        yield _pipeline(kind, cluster, submesh, ranges, sizes, degrees)


def _context_degrees(kind: str, devices: int, whole: Divisible, degrees: Degrees) -> tuple[int, ...]:
    options = _options("cp" in takes(kind), degrees.cp, math.gcd(devices, whole.positions))
    # Of one stage without context parallelism every axis divides the batch: `_on_all_devices`.
    return tuple(cp for cp in options if cp > 1) if kind in ONE_STAGE else options


def _options(taken: bool, given: int | None, size: int) -> tuple[int, ...]:
    """The degrees that divide `size`: all, or the given one; 1 where the baseline takes none."""
    if not taken:
        return (1,)
    return tuple(n for n in range(1, size + 1) if size % n == 0 and given in (None, n))


def _pipeline(
    kind: str,
    cluster: Cluster,
    submesh: Submesh,
    ranges: tuple[tuple[int, int], ...],
    sizes: tuple[int, int, int, int, int],
    degrees: Degrees,
) -> RolePipeline:
    """The pipeline of these numbers of replicas, of their shards, and of devices that share experts, sequences and
    tensors."""
    (replicas, shards, ep, cp, tp), pp = sizes, len(ranges)
    software = cluster.software
    tensor = Role.TENSOR_SEQUENCE if software.sequence_parallel else Role.TENSOR
    if kind == "megatron":
        zero = int(software.shards_optimizer) if degrees.zero is None else degrees.zero
        named = {"tp": tp, "cp": cp, "dp": shards, "pp": pp, "ep": ep, "chunks": degrees.chunks or 1}
        text = ", ".join(f"{name} {size}" for name, size in named.items() if size > 1 or name in ("tp", "dp", "pp"))
        text += "" if degrees.zero is None else f", ZeRO-{zero}"
    else:
        zero = 3
        text = f"{replicas} replicas of " * (replicas > 1) + f"{shards} shard{'s' * (shards > 1)}"
        text += f", cp {cp}" * (cp > 1)
        text += f", tp {tp}, pp {pp}" + f", ep {ep}" * (ep > 1) if kind == "fsdp+tp+pp" else ""
    uses = ((shards // ep, "data"), (ep, "data and experts"), (cp, "context"))
    parts = ((replicas, Role.DATA), *((size, Role((use, zero))) for size, use in uses), (tp, tensor))
    axes = [(size, role) for place, (size, role) in enumerate(parts) if size > 1 or place in (1, 4)]
    mesh = logical_mesh(cluster, submesh, tuple(size for size, _ in axes))
    roles = tuple(role for size, role in axes if size > 1)
    return RolePipeline(text=text, cp=cp, ranges=ranges, submesh=submesh, meshes=((mesh, roles),))
