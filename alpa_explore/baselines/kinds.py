"""The baselines by name: for each, the pipelines that it may be, each stage on one submesh with a role for every axis.

data-parallel        one stage; every axis cuts the batch
zero-3               the same; weights, gradients and optimizer state in pieces
megatron             pp stages of equally many layers, each on dp × tp devices: axis 0 data, axis 1 tensor
gpipe-equal-layers   stages of equally many layers on submeshes of one shape, each divided in the best way
intra-only           one stage, divided in the best way
inter-only           a pipeline of single devices, cut in the best way
equal-operators      the whole planner, but layers are runs of equally many operators
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh, logical_meshes, submeshes
from alpa_explore.errors import OptionError, nearest_names

KINDS = (
    "data-parallel", "zero-3", "megatron", "gpipe-equal-layers", "intra-only", "inter-only", "equal-operators",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to be a baseline: the layer ranges that may be stages, all on `submesh`, seen as one of `meshes`."""

    text: str
    """For people: 'tp 4, dp 2, pp 2'."""
    ranges: tuple[tuple[int, int], ...]
    """(first layer, last layer inclusive); a partition, or every range where the pipeline is cut in the best way."""
    submesh: Submesh
    meshes: tuple[tuple[LogicalMesh, tuple[Role, ...]], ...]
    """With the roles of the squeezed axes."""
    stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """What the user fixed of megatron's (tp, dp, pp), and of the stages of gpipe-equal-layers; None is free."""

    tp: int | None = None
    dp: int | None = None
    pp: int | None = None


def check_kind(kind: str, degrees: Degrees) -> None:
    """OptionError for an unknown baseline, or degrees that it does not have."""
    if kind not in KINDS:
        raise OptionError("Unknown baseline", found=repr(kind), remedy=nearest_names(kind, KINDS, count=len(KINDS)))
    takes = {"megatron": ("tp", "dp", "pp"), "gpipe-equal-layers": ("pp",)}.get(kind, ())
    for name in ("tp", "dp", "pp"):
        value = getattr(degrees, name)
        if value is not None and name not in takes:
            raise OptionError(
                f"The baseline {kind} does not take {name}", found=f"{name}={value}",
                remedy=f"It takes {', '.join(takes)}." if takes else "Leave it out.",
            )  # fmt: skip
        if value is not None and value < 1:
            raise OptionError(f"{name} must be 1 or more", found=f"{name}={value}", remedy="Give 1 or more.")


def ways(kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees) -> tuple[Way, ...]:
    """The pipelines that `kind` may be on `cluster`. OptionError where there is none, with what would work."""
    whole = Submesh(cluster.nodes, cluster.devices_per_node)
    everything = ((0, num_layers - 1),)
    if kind in ("data-parallel", "zero-3"):
        if samples % cluster.devices:
            raise OptionError(
                f"The batch cannot be divided for the baseline {kind}",
                found=f"{samples} samples in a microbatch for {cluster.devices} devices",
                remedy=f"Give fewer, larger microbatches: a multiple of {cluster.devices} samples each.",
            )
        role = Role.DATA if kind == "data-parallel" else Role.SHARDED_DATA
        return (_way("all devices", everything, cluster, whole, role),)
    if kind == "intra-only":
        return (_way("one stage", everything, cluster, whole, Role.ANY),)
    if kind == "inter-only":
        if num_layers < cluster.devices:
            raise OptionError(
                "A pipeline of single devices needs a layer for each", found=f"{num_layers} layers on {cluster}",
                remedy=f"Give num_layers={cluster.devices} or more.",
            )  # fmt: skip
        ranges = tuple((i, j) for i in range(num_layers) for j in range(i, num_layers))
        way = _way("single devices", ranges, cluster, Submesh(1, 1), Role.ANY, stages=cluster.devices)
        return (way,)
    found = tuple(_equal(kind, cluster, num_layers, samples, degrees))
    if not found:
        raise OptionError(
            f"No division of {cluster} is the baseline {kind} with these degrees",
            found=f"{_degrees(degrees)}, {num_layers} layers, {samples} samples in a microbatch",
            remedy=f"pp must divide {num_layers} layers, dp the samples; tp × dp × pp must be {cluster.devices}, and "
            "tp × dp a part of a node (a power of two) or whole nodes.",
        )
    return found


def _equal(kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees) -> Iterator[Way]:
    """Pipelines of stages with equally many layers and devices."""
    shapes = {piece.devices: piece for piece in submeshes(cluster)}
    for pp in range(1, min(num_layers, cluster.devices) + 1):
        devices, rest = divmod(cluster.devices, pp)
        if rest or num_layers % pp or devices not in shapes or degrees.pp not in (None, pp):
            continue
        length = num_layers // pp
        ranges = tuple((i * length, (i + 1) * length - 1) for i in range(pp))
        piece = shapes[devices]
        if kind == "gpipe-equal-layers":
            yield _way(f"pp {pp}", ranges, cluster, piece, Role.ANY)
            continue
        for tp, dp in product(range(1, devices + 1), repeat=2):
            if tp * dp != devices or samples % dp or degrees.tp not in (None, tp) or degrees.dp not in (None, dp):
                continue
            if degrees.tp is None and tp > cluster.devices_per_node:
                continue  # nobody divides tensors over the network unless told to
            mesh = logical_mesh(cluster, piece, (dp, tp))
            roles = tuple(role for role, size in ((Role.DATA, dp), (Role.TENSOR, tp)) if size > 1)
            yield Way(
                text=f"tp {tp}, dp {dp}, pp {pp}", ranges=ranges, submesh=piece, meshes=((mesh, roles),), stages=pp
            )


def _way(
    text: str, ranges: tuple[tuple[int, int], ...], cluster: Cluster, piece: Submesh, role: Role,
    stages: int | None = None,
) -> Way:  # fmt: skip
    meshes = tuple((mesh, (role,) * len(mesh.axes)) for mesh in logical_meshes(cluster, piece))
    return Way(text=text, ranges=ranges, submesh=piece, meshes=meshes, stages=len(ranges) if stages is None else stages)


def _degrees(degrees: Degrees) -> str:
    given = [f"{name}={getattr(degrees, name)}" for name in ("tp", "dp", "pp") if getattr(degrees, name) is not None]
    return ", ".join(given) or "none given"
