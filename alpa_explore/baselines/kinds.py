"""The baselines by name: for each, the pipelines that it may be.

Of data-parallel, zero-3 and megatron every stage has a submesh with a role for every axis (`ways`); the others leave
the stages to the planner, under constraints (`pipelines`).

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
from typing import NoReturn

from alpa_explore.baselines.roles import Role
from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh, logical_meshes, submeshes
from alpa_explore.errors import OptionError, nearest_names
from alpa_explore.inter_op.options import PipelineOptions

WITH_ROLES = ("data-parallel", "zero-3", "megatron")
KINDS = (*WITH_ROLES, "gpipe-equal-layers", "intra-only", "inter-only", "equal-operators")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to be a baseline: the stages, all on `submesh`, seen as one of `meshes`."""

    text: str
    """For people: 'tp 4, dp 2, pp 2'."""
    ranges: tuple[tuple[int, int], ...]
    """(first layer, last layer inclusive) of every stage."""
    submesh: Submesh
    meshes: tuple[tuple[LogicalMesh, tuple[Role, ...]], ...]
    """With the roles of the squeezed axes."""


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
                f"The baseline {kind} does not take {name}",
                found=f"{name}={value}",
                remedy=f"It takes {', '.join(takes)}." if takes else "Leave it out.",
            )
        if value is not None and value < 1:
            raise OptionError(f"{name} must be 1 or more", found=f"{name}={value}", remedy="Give 1 or more.")


def ways(kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees) -> tuple[Way, ...]:
    """The pipelines that a baseline with roles may be on `cluster`. OptionError where there is none, with what would
    work."""
    if kind == "megatron":
        return tuple(_megatron(cluster, num_layers, samples, degrees)) or _none(
            kind, cluster, num_layers, samples, degrees
        )
    if samples % cluster.devices:
        raise OptionError(
            f"The batch cannot be divided for the baseline {kind}",
            found=f"{samples} samples in a microbatch for {cluster.devices} devices",
            remedy=f"Give fewer, larger microbatches: a multiple of {cluster.devices} samples each.",
        )
    whole = Submesh(cluster.nodes, cluster.devices_per_node)
    role = Role.DATA if kind == "data-parallel" else Role.SHARDED_DATA
    meshes = tuple((mesh, (role,) * len(mesh.axes)) for mesh in logical_meshes(cluster, whole))
    return (Way(text="all devices", ranges=((0, num_layers - 1),), submesh=whole, meshes=meshes),)


def pipelines(
    kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees
) -> tuple[tuple[str, PipelineOptions], ...]:
    """What the planner is asked for in place of a baseline without roles, in words and as constraints. OptionError
    where no pipeline is that baseline, with what would work."""
    if kind == "intra-only":
        return (("one stage", PipelineOptions(num_stages=1)),)
    if kind == "inter-only":
        if num_layers < cluster.devices:
            raise OptionError(
                "A pipeline of single devices needs a layer for each",
                found=f"{num_layers} layers on {cluster}",
                remedy=f"Give num_layers={cluster.devices} or more.",
            )
        return (("single devices", _stages_on(Submesh(1, 1), cluster.devices)),)
    return tuple(
        (f"pp {len(ranges)}", _stages_on(piece, len(ranges), cuts=tuple(first for first, _ in ranges[1:])))
        for piece, ranges in _equal(cluster, num_layers, degrees)
    ) or _none(kind, cluster, num_layers, samples, degrees)


def _stages_on(piece: Submesh, count: int, cuts: tuple[int, ...] = ()) -> PipelineOptions:
    each = tuple((stage, piece.nodes, piece.devices_per_node) for stage in range(count))
    return PipelineOptions(cuts=cuts, num_stages=count, stage_submeshes=each)


def _megatron(cluster: Cluster, num_layers: int, samples: int, degrees: Degrees) -> Iterator[Way]:
    """Every tp, dp and pp."""
    for piece, ranges in _equal(cluster, num_layers, degrees):
        for tp, dp in product(range(1, piece.devices + 1), repeat=2):
            if tp * dp != piece.devices or samples % dp or degrees.tp not in (None, tp) or degrees.dp not in (None, dp):
                continue
            if degrees.tp is None and tp > cluster.devices_per_node:
                continue  # nobody divides tensors over the network unless told to
            mesh = logical_mesh(cluster, piece, (dp, tp))
            roles = tuple(role for role, size in ((Role.DATA, dp), (Role.TENSOR, tp)) if size > 1)
            text = f"tp {tp}, dp {dp}, pp {len(ranges)}"
            yield Way(text=text, ranges=ranges, submesh=piece, meshes=((mesh, roles),))


def _equal(
    cluster: Cluster, num_layers: int, degrees: Degrees
) -> Iterator[tuple[Submesh, tuple[tuple[int, int], ...]]]:
    """Pipelines of stages with equally many layers and devices: the submesh and the layers of each stage."""
    shapes = {piece.devices: piece for piece in submeshes(cluster)}
    for pp in range(1, min(num_layers, cluster.devices) + 1):
        devices, rest = divmod(cluster.devices, pp)
        if not rest and num_layers % pp == 0 and devices in shapes and degrees.pp in (None, pp):
            length = num_layers // pp
            yield shapes[devices], tuple((i * length, (i + 1) * length - 1) for i in range(pp))


def _none(kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees) -> NoReturn:
    raise OptionError(
        f"No division of {cluster} is the baseline {kind} with these degrees",
        found=f"{_degrees(degrees)}, {num_layers} layers, {samples} samples in a microbatch",
        remedy=f"pp must divide {num_layers} layers, dp the samples; tp × dp × pp must be {cluster.devices}, and "
        "tp × dp a part of a node (a power of two) or whole nodes.",
    )


def _degrees(degrees: Degrees) -> str:
    given = [f"{name}={getattr(degrees, name)}" for name in ("tp", "dp", "pp") if getattr(degrees, name) is not None]
    return ", ".join(given) or "none given"
