"""The pipelines of a baseline that leaves the sharding of its stages to the planner, as constraints for it."""

from __future__ import annotations

from alpa_explore.baselines.equal_stages import equal_stages, no_pipeline
from alpa_explore.baselines.kinds import Degrees
from alpa_explore.cluster import Cluster, Submesh
from alpa_explore.errors import OptionError
from alpa_explore.inter_op.options import PipelineOptions


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
