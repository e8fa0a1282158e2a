"""Stages of equally many layers on equal submeshes, and the error where there are none; and the pipelines of a baseline
that leaves the sharding of its stages to the planner, as constraints for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NoReturn

from alpa_explore.baselines.kinds import Degrees
from alpa_explore.cluster import Cluster, Submesh, submeshes
from alpa_explore.errors import OptionError
from alpa_explore.inter_op.options import PipelineOptions


def equal_stages(
    cluster: Cluster, num_layers: int, pp: int | None
) -> Iterator[tuple[Submesh, tuple[tuple[int, int], ...]]]:
    """Pipelines of `pp` stages, or of every possible number: the submesh and (first, last layer) of each stage."""
    for count in range(1, min(num_layers, cluster.devices) + 1) if pp is None else (pp,):
        if num_layers % count == 0:
            yield from stages_of(cluster, (num_layers // count,) * count)


def stages_of(cluster: Cluster, counts: Sequence[int]) -> Iterator[tuple[Submesh, tuple[tuple[int, int], ...]]]:
    """As `equal_stages`, of the pipeline whose stages have so many layers; nothing where there is no such submesh."""
    devices, rest = divmod(cluster.devices, len(counts))
    shapes = {submesh.devices: submesh for submesh in submeshes(cluster)}
    if not rest and devices in shapes:
        ends = [0, *accumulate(counts)]
        yield shapes[devices], tuple((first, end - 1) for first, end in pairwise(ends))


def block_counts(blocks: int, parts: int) -> tuple[int, ...]:
    """The blocks of each part of a pipeline: equally many; else embedding and head count as a block each, if they then
    divide evenly (Megatron-Core's account_for_…_in_pipeline_split, torchtitan); else the first parts have one more."""
    if blocks % parts == 0:
        return (blocks // parts,) * parts
    if (blocks + 2) % parts == 0:
        each = (blocks + 2) // parts
        return (each - 1, *(each,) * (parts - 2), each - 1)
    short, longer = divmod(blocks, parts)
    return (*(short + 1,) * longer, *(short,) * (parts - longer))


def no_pipeline(kind: str, cluster: Cluster, num_layers: int, samples: int, degrees: Degrees) -> NoReturn:
    """OptionError: what does not divide what."""
    sizes = ", ".join(str(s.devices) for s in submeshes(cluster) if s.nodes == 1)
    raise OptionError(
        f"The baseline {kind} is not possible on {cluster} with these degrees",
        found=f"{degrees}, {num_layers} layers, {samples} samples in a microbatch",
        remedy=f"pp must divide {num_layers} layers, dp the samples, replicas and ep dp; tp × dp × pp must be "
        f"{cluster.devices}, and tp × dp one of {sizes} within a node, or whole nodes."
        + (" A replica has 2 or more shards." if degrees.replicas is not None else "")
        + (" With cp: tp × cp × dp, and microbatches of dp samples." if (degrees.cp or 1) > 1 else ""),
    )


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
        for submesh, ranges in equal_stages(cluster, num_layers, degrees.pp)
    ) or no_pipeline(kind, cluster, num_layers, samples, degrees)


def _stages_on(submesh: Submesh, count: int, cuts: tuple[int, ...] = ()) -> PipelineOptions:
    stage_submeshes = tuple((stage, submesh.nodes, submesh.devices_per_node) for stage in range(count))
    return PipelineOptions(cuts=cuts, num_stages=count, stage_submeshes=stage_submeshes)
