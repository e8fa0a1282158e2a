"""The stages of one layering on one cluster: their problems, and the stage costs before anything is priced."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

from alpa_explore.cluster import Cluster, LogicalMesh
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.stage_graph import StageGraph, received_bytes
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.pricing.tasks import cost_model, slicer
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.stages.tied_weights import tied_weights


class StageProblems:
    """Stages by (first, last) layer, and their problems on a mesh."""

    def __init__(self, layered: LayeredGraph, cluster: Cluster) -> None:
        self.layered, self._stage_of, self._cluster = layered, slicer(layered), cluster
        self._last: tuple[tuple[int, int, LogicalMesh], StageProblem] | None = None
        self._built: WeakValueDictionary[tuple[str, LogicalMesh], StageProblem] = WeakValueDictionary()
        """(structure key, mesh) -> a problem with that structure, while somebody keeps it."""

    def stage(self, first: int, last: int) -> StageGraph:
        """The stage of layers first..last."""
        return self._stage_of(first, last)

    def problem(self, first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        """Its problem on a logical mesh. The last one is kept: a choice in it is read right after it was built."""
        last_built, key = self._last, (first, last, mesh)
        if last_built is None or last_built[0] != key:
            model = cost_model(self._cluster.kinds[mesh.kind].device, mesh.squeezed())
            last_built = self._last = key, build_stage_problem(self.stage(first, last), model)
            self._built[self.stage(first, last).structure_key, mesh] = last_built[1]
        return last_built[1]

    def equal_problem(self, first: int, last: int, mesh: LogicalMesh) -> StageProblem:
        """The problem, or that of other layers whose nodes and costs are the same, where somebody keeps one."""
        equal = self._built.get((self.stage(first, last).structure_key, mesh))
        return self.problem(first, last, mesh) if equal is None else equal


def unpriced_costs(versions: Sequence[LayeredGraph], query: PipelineQuery, layer_flops: tuple[int, ...]) -> StageCosts:
    """Stage costs without candidates."""
    layered = versions[0]
    return StageCosts(
        num_layers=layered.num_layers,
        submeshes=query.submeshes,
        device_memory_bytes=query.cluster.device.memory_bytes,
        memory_of_kinds=tuple(kind.device.memory_bytes for kind in query.cluster.kinds) if query.cluster.others else (),
        candidates={},
        layer_flops=layer_flops,
        received_bytes=received_bytes(layered),
        versions=tuple(version.recomputation for version in versions),
        tied_weights=tied_weights(layered),
        copies=query.copies,
    )
