"""The baselines by name, and for each the pipelines that it may be.

In data-parallel, zero-3 and megatron the mesh axes of every stage have roles (`role_pipelines`); the others leave the
sharding of the stages to the planner, under constraints (`planner_pipelines`).

data-parallel        one stage; every axis shards the batch
zero-3               the same; weights, gradients and optimizer state are sharded too
megatron             pp stages of equally many layers, each on dp × tp devices: axis 0 data, axis 1 tensor; ZeRO-1
                     where that is the default of the software
gpipe-equal-layers   stages of equally many layers on submeshes of one shape, each with its optimal sharding
intra-only           one stage on all devices, with its optimal sharding
inter-only           a pipeline of single devices, with optimal cuts
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
class RolePipeline:
    """A pipeline with all stages on submeshes of one shape, seen as one of `meshes`, with a role for every axis."""

    text: str
    """Shown to users: 'tp 4, dp 2, pp 2'."""
    ranges: tuple[tuple[int, int], ...]
    """(first layer, last layer inclusive) of every stage."""
    submesh: Submesh
    meshes: tuple[tuple[LogicalMesh, tuple[Role, ...]], ...]
    """Logical meshes, each with the roles of its axes of more than one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """The degrees that the user fixed of megatron (tp, dp, pp) and gpipe-equal-layers (pp); None is free."""

    tp: int | None = None
    dp: int | None = None
    pp: int | None = None


def check_kind(kind: str, degrees: Degrees) -> None:
    """Raises OptionError for an unknown baseline, or for degrees that it does not take."""
    if kind not in KINDS:
        raise OptionError("Unknown baseline", found=repr(kind), remedy=nearest_names(kind, KINDS, count=len(KINDS)))
    accepted = {"megatron": ("tp", "dp", "pp"), "gpipe-equal-layers": ("pp",)}.get(kind, ())
    for name in ("tp", "dp", "pp"):
        value = getattr(degrees, name)
        if value is not None and name not in accepted:
            raise OptionError(
                f"The baseline {kind} does not take {name}",
                found=f"{name}={value}",
                remedy=f"It takes {', '.join(accepted)}." if accepted else "Leave it out.",
            )
        if value is not None and value < 1:
            raise OptionError(f"{name} must be 1 or more", found=f"{name}={value}", remedy="Give 1 or more.")


def role_pipelines(
    kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees
) -> tuple[RolePipeline, ...]:
    """The pipelines that a baseline with roles may be on `cluster`; `samples` are those of one microbatch.

    OptionError, with what would work, where there is none.
    """
    if kind == "megatron":
        return tuple(_megatron(cluster, num_layers, samples, degrees)) or _no_pipeline(
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
    return (RolePipeline(text="all devices", ranges=((0, num_layers - 1),), submesh=whole, meshes=meshes),)


def planner_pipelines(
    kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees
) -> tuple[tuple[str, PipelineOptions], ...]:
    """(description, constraints) of the pipelines that a baseline without roles may be, for the planner.

    OptionError, with what would work, where there is none.
    """
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
        (f"pp {len(ranges)}", _stages_on(submesh, len(ranges), cuts=tuple(first for first, _ in ranges[1:])))
        for submesh, ranges in _equal_stages(cluster, num_layers, degrees)
    ) or _no_pipeline(kind, cluster, num_layers, samples, degrees)


def _stages_on(submesh: Submesh, count: int, cuts: tuple[int, ...] = ()) -> PipelineOptions:
    stage_submeshes = tuple((stage, submesh.nodes, submesh.devices_per_node) for stage in range(count))
    return PipelineOptions(cuts=cuts, num_stages=count, stage_submeshes=stage_submeshes)


def _megatron(cluster: Cluster, num_layers: int, samples: int, degrees: Degrees) -> Iterator[RolePipeline]:
    """Every tp, dp and pp that fits the cluster, the layers and the batch."""
    data_role = Role.DATA_ZERO_1 if cluster.software.shards_optimizer else Role.DATA
    tensor_role = Role.TENSOR_SEQUENCE if cluster.software.sequence_parallel else Role.TENSOR
    for submesh, ranges in _equal_stages(cluster, num_layers, degrees):
        for tp, dp in product(range(1, submesh.devices + 1), repeat=2):
            if (
                tp * dp != submesh.devices
                or samples % dp
                or degrees.tp not in (None, tp)
                or degrees.dp not in (None, dp)
            ):
                continue
            if degrees.tp is None and tp > cluster.devices_per_node:
                continue  # tensor parallelism across nodes only where the user asks for it
            mesh = logical_mesh(cluster, submesh, (dp, tp))
            roles = tuple(role for role, size in ((data_role, dp), (tensor_role, tp)) if size > 1)
            text = f"tp {tp}, dp {dp}, pp {len(ranges)}"
            yield RolePipeline(text=text, ranges=ranges, submesh=submesh, meshes=((mesh, roles),))


def _equal_stages(
    cluster: Cluster, num_layers: int, degrees: Degrees
) -> Iterator[tuple[Submesh, tuple[tuple[int, int], ...]]]:
    """Pipelines of stages with equally many layers and devices: the submesh and the layers of each stage."""
    shapes = {submesh.devices: submesh for submesh in submeshes(cluster)}
    for pp in range(1, min(num_layers, cluster.devices) + 1):
        devices, rest = divmod(cluster.devices, pp)
        if not rest and num_layers % pp == 0 and devices in shapes and degrees.pp in (None, pp):
            length = num_layers // pp
            yield shapes[devices], tuple((i * length, (i + 1) * length - 1) for i in range(pp))


def _no_pipeline(kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees) -> NoReturn:
    sizes = ", ".join(str(s.devices) for s in submeshes(cluster) if s.nodes == 1)
    raise OptionError(
        f"The baseline {kind} is not possible on {cluster} with these degrees",
        found=f"{_degrees(degrees)}, {num_layers} layers, {samples} samples in a microbatch",
        remedy=f"pp must divide {num_layers} layers, dp the samples; tp × dp × pp must be {cluster.devices}, and "
        f"tp × dp one of {sizes} within a node, or whole nodes.",
    )


def _degrees(degrees: Degrees) -> str:
    given = [f"{name}={getattr(degrees, name)}" for name in ("tp", "dp", "pp") if getattr(degrees, name) is not None]
    return ", ".join(given) or "none given"
