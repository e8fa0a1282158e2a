"""The baselines by name, and for each the pipelines that it may be.

Where the mesh axes of every stage have roles, these are (`role_pipelines`):

data-parallel        one stage; every axis shards the batch
zero-1               the same; optimizer state is sharded too
zero-2               the same, and accumulated gradients
zero-3, or fsdp      the same, and weights
hsdp                 zero-3 in groups of devices that are replicas of each other: dp = replicas × shards
megatron             pp stages of equally many layers, each on dp × tp devices: axis 0 data, axis 1 tensor; ZeRO-1
                     where that is the default of the software. With cp > 1 an axis between them divides the
                     sequence (context parallelism), attention by a ring
fsdp+tp+pp           the same with weights sharded over the data-parallel devices, as torchtitan runs it, or over
                     those of a replica, as in hsdp

The others leave the sharding of the stages to the planner, under constraints (`planner_pipelines`):

gpipe-equal-layers   stages of equally many layers on submeshes of one shape, each with its optimal sharding
intra-only           one stage on all devices, with its optimal sharding
inter-only           a pipeline of single devices, with optimal cuts
equal-operators      the whole planner, but layers are runs of equally many operators
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from alpa_explore.baselines.roles import EXPERT_OF, Role
from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh, logical_meshes, submeshes
from alpa_explore.errors import OptionError, nearest_names
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.sharding.rules.attention import QUERIES, QUERIES_ZIGZAG, RING, RING_ZIGZAG, ULYSSES

_ONE_STAGE = {
    "data-parallel": Role.DATA,
    "zero-1": Role.DATA_ZERO_1,
    "zero-2": Role.DATA_ZERO_2,
    "zero-3": Role.SHARDED_DATA,
}
WITH_ROLES = (*_ONE_STAGE, "hsdp", "megatron", "fsdp+tp+pp")
KINDS = (*WITH_ROLES, "gpipe-equal-layers", "intra-only", "inter-only", "equal-operators")
ALIASES = {"fsdp": "zero-3", "ddp": "data-parallel", "3d": "megatron"}
"""Other names of baselines."""
_TAKES = {
    "hsdp": ("replicas",),
    "megatron": ("tp", "dp", "pp", "cp", "ep"),
    "fsdp+tp+pp": ("tp", "dp", "pp", "replicas", "ep"),
    "gpipe-equal-layers": ("pp",),
}
"""The degrees that a baseline takes."""
EXCHANGES = {
    "ring": RING,
    "ring-zigzag": RING_ZIGZAG,
    "all-gather": f"{QUERIES} {QUERIES_ZIGZAG}",
    "ulysses": ULYSSES,
}
"""How devices that share a sequence exchange keys and values -> factors of attention (`sharding.rules.attention`)."""


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
    """The degrees that the user fixed; None is free. tp × cp × dp × pp devices are all of the cluster."""

    tp: int | None = None
    dp: int | None = None
    pp: int | None = None
    replicas: int | None = None
    """Groups of data-parallel devices, each of which holds all weights once."""
    cp: int | None = None
    """1 where it is not given."""
    ep: int | None = None
    """Data-parallel devices that hold different experts: it divides dp, and the shards of a replica."""

    def only(self, kind: str) -> Degrees:
        """Those that a baseline takes."""
        return Degrees(**{name: getattr(self, name) for name in _TAKES.get(kind, ())})


def known_kind(kind: str) -> str:
    """The name of a baseline, for it or another name of it. OptionError for an unknown one."""
    kind = ALIASES.get(kind, kind)
    if kind not in KINDS:
        names = (*KINDS, *ALIASES)
        raise OptionError("Unknown baseline", found=repr(kind), remedy=nearest_names(kind, names, count=len(names)))
    return kind


def check_degrees(kind: str, degrees: Degrees, exchange: str | None = None) -> None:
    """OptionError for degrees that a baseline does not take, and for an exchange that is none or without cp."""
    accepted = _TAKES.get(kind, ())
    for name in Degrees.__dataclass_fields__:
        value = getattr(degrees, name)
        if value is not None and name not in accepted:
            raise OptionError(
                f"The baseline {kind} does not take {name}",
                found=f"{name}={value}",
                remedy=f"It takes {', '.join(accepted)}." if accepted else "Leave it out.",
            )
        if value is not None and value < 1:
            raise OptionError(f"{name} must be 1 or more", found=f"{name}={value}", remedy="Give 1 or more.")
    if exchange is not None and exchange not in EXCHANGES:
        raise OptionError("Unknown exchange", found=repr(exchange), remedy=nearest_names(exchange, EXCHANGES, count=4))
    if exchange is not None and (degrees.cp or 1) == 1:
        raise OptionError(
            "Only devices that share a sequence exchange keys and values",
            found=f"exchange={exchange} without cp",
            remedy="Give cp of 2 or more to the baseline megatron.",
        )


def role_pipelines(
    kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees, experts: int = 1
) -> tuple[RolePipeline, ...]:
    """The pipelines that a baseline with roles may be on `cluster`; `samples` are those of one microbatch, `experts`
    those of a block, 1 where there are none.

    OptionError, with what would work, where there is none.
    """
    if kind not in _ONE_STAGE:
        if degrees.ep is not None and experts % degrees.ep:
            raise OptionError(
                "The experts cannot be divided for this degree",
                found=f"ep={degrees.ep} for {experts} experts a block" if experts > 1 else "no routed experts",
                remedy=f"Give a divisor of {experts}." if experts > 1 else "Leave ep out.",
            )
        found = tuple(_divided(kind, cluster, num_layers, samples, degrees, experts))
        return found or _no_pipeline(kind, cluster, num_layers, samples, degrees)
    if samples % cluster.devices:
        raise OptionError(
            f"The batch cannot be divided for the baseline {kind}",
            found=f"{samples} samples in a microbatch for {cluster.devices} devices",
            remedy=f"Give fewer, larger microbatches: a multiple of {cluster.devices} samples each.",
        )
    whole, role = Submesh(cluster.nodes, cluster.devices_per_node), _ONE_STAGE[kind]
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


def _divided(
    kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees, experts: int
) -> Iterator[RolePipeline]:
    """The pipelines with every tp, dp, pp and ep that fits the cluster, the layers, the batch and the experts."""
    software, cp = cluster.software, degrees.cp or 1
    context = Role.CONTEXT_ZERO_1 if software.shards_optimizer else Role.CONTEXT
    data = Role.DATA_ZERO_1 if software.shards_optimizer else Role.DATA
    tensor = Role.TENSOR_SEQUENCE if software.sequence_parallel else Role.TENSOR
    for submesh, ranges in _equal_stages(cluster, num_layers, replace(degrees, pp=1) if kind == "hsdp" else degrees):
        pp = len(ranges)
        for tp in range(1, submesh.devices + 1):
            dp, rest = divmod(submesh.devices, tp * cp)
            # The positions of several samples on a device are not divided together.
            if (
                rest
                or (samples % dp if cp == 1 else samples != dp)
                or degrees.tp not in (None, tp)
                or degrees.dp not in (None, dp)
            ):
                continue
            if tp > 1 and (kind == "hsdp" or (degrees.tp is None and tp > cluster.devices_per_node)):
                continue  # tensor parallelism across nodes only where the user asks for it
            if kind == "megatron":
                for ep in _expert_degrees(dp, degrees, experts):
                    axes = [
                        (size, role)
                        for size, role in ((dp // ep, data), (ep, EXPERT_OF[data]), (cp, context), (tp, tensor))
                        if size > 1 or role in (data, tensor)
                    ]
                    mesh = logical_mesh(cluster, submesh, tuple(size for size, _ in axes))
                    roles = tuple(role for size, role in axes if size > 1)
                    named = {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": ep}
                    text = ", ".join(f"{n} {size}" for n, size in named.items() if size > 1 or n in ("tp", "dp", "pp"))
                    yield _role_pipeline(text, ranges, submesh, mesh, roles)
                continue
            for replicas in _replicas(cluster, submesh, dp, degrees, always=kind == "hsdp"):
                shards = dp // replicas
                for ep in _expert_degrees(shards, degrees, experts if kind != "hsdp" else 1):
                    mesh = logical_mesh(cluster, submesh, (replicas, shards // ep, ep, tp))
                    parts = (
                        (Role.DATA, replicas),
                        (Role.SHARDED_DATA, shards // ep),
                        (Role.EXPERT_SHARDED, ep),
                        (tensor, tp),
                    )
                    roles = tuple(role for role, size in parts if size > 1)
                    text = f"{replicas} replicas of {shards} shards" if replicas > 1 else f"{shards} shards"
                    text += "" if kind == "hsdp" else f", tp {tp}, pp {pp}" + (f", ep {ep}" if ep > 1 else "")
                    yield _role_pipeline(text, ranges, submesh, mesh, roles)


def _expert_degrees(size: int, degrees: Degrees, experts: int) -> tuple[int, ...]:
    """The degrees of expert parallelism among `size` data-parallel devices."""
    if degrees.ep is not None:
        return (degrees.ep,) if size % degrees.ep == 0 else ()
    return tuple(ep for ep in range(1, size + 1) if size % ep == 0 == experts % ep)


def _replicas(cluster: Cluster, submesh: Submesh, dp: int, degrees: Degrees, *, always: bool) -> tuple[int, ...]:
    """The numbers of replicas that are tried where none is given: all (`always` more than one), or one, and as many as
    the stage has nodes, so that weights are gathered inside a node."""
    if degrees.replicas is not None:
        return (degrees.replicas,) if dp % degrees.replicas == 0 else ()
    if always:
        return tuple(r for r in range(2, dp) if dp % r == 0)
    return (1, submesh.nodes) if submesh.nodes > 1 and dp % submesh.nodes == 0 and dp > submesh.nodes else (1,)


def _role_pipeline(
    text: str, ranges: tuple[tuple[int, int], ...], submesh: Submesh, mesh: LogicalMesh, roles: tuple[Role, ...]
) -> RolePipeline:
    return RolePipeline(text=text, ranges=ranges, submesh=submesh, meshes=((mesh, roles),))


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
        remedy=f"pp must divide {num_layers} layers, dp the samples, replicas and ep dp; tp × dp × pp must be "
        f"{cluster.devices}, and tp × dp one of {sizes} within a node, or whole nodes."
        + (" With cp: tp × cp × dp, and microbatches of dp samples." if (degrees.cp or 1) > 1 else ""),
    )


def _degrees(degrees: Degrees) -> str:
    names = Degrees.__dataclass_fields__
    given = [f"{name}={getattr(degrees, name)}" for name in names if getattr(degrees, name) is not None]
    return ", ".join(given) or "none given"
