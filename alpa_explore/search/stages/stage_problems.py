"""The stages of one layering on one cluster: which can occur in a pipeline, their problems, keys of equal ones
and the stage costs before anything is priced."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import combinations_with_replacement
from weakref import WeakValueDictionary

from alpa_explore.cluster import Cluster, Device, LogicalMesh, Submesh
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
        num_microbatches=query.num_microbatches,
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


def feasible_stages(layers: int, submeshes: Sequence[Submesh], devices: int) -> Iterator[tuple[int, int, int]]:
    """(first layer, last layer, index into `submeshes`) of every stage such that the layers before and after it can use
    all other devices, or such that the other layers are enough for an interleaved pipeline.

    A pipeline uses every device of the cluster exactly once (paper, Eq. 3). k layers can use any number of devices that
    is the sum of at most k submeshes, and at least one; without layers no device is used. In an interleaved pipeline, P
    submeshes take turns: stage k runs on submesh k mod P, so at least 2P − 1 other stages need layers.
    """
    least = _least_stages({submesh.devices for submesh in submeshes}, devices)
    for first, last in combinations_with_replacement(range(layers), 2):
        before, after = first, layers - 1 - last
        for index, submesh in enumerate(submeshes):
            rest = devices - submesh.devices
            in_turns = rest > 0 and before + after >= 2 * least[rest] + 1
            if in_turns or any(
                _fits(least[d], d, before) and _fits(least[rest - d], rest - d, after) for d in range(rest + 1)
            ):
                yield first, last, index


def _least_stages(sizes: Collection[int], devices: int) -> list[int]:
    """The fewest submeshes that add up to 0, 1, … `devices` devices; more than `devices` where none do."""
    least = [0] + [devices + 1] * devices
    for total in range(1, devices + 1):
        least[total] = min((least[total - size] + 1 for size in sizes if size <= total), default=devices + 1)
    return least


def _fits(stages: int, devices: int, layers: int) -> bool:
    return stages <= layers and (devices > 0) == (layers > 0)


def problem_key(stage: StageGraph, prices: str) -> str:
    """The same for stages whose problems are equal, if their `price_key` is the same."""
    return sha256(f"{stage.structure_key} {prices}".encode()).hexdigest()


def price_key(mesh: LogicalMesh, device: Device, solver: str) -> str:
    """A digest of everything but the stage that the prices of choices depend on: not the names and sources of figures,
    and of the memory of a device only what the software keeps back."""
    figures = replace(device, name="", source="", memory_bytes=0, peak_flops=dict(sorted(device.peak_flops.items())))
    body = (replace(mesh.squeezed(), kind=0), figures, device.reserved_bytes, solver)
    return sha256(repr(body).encode()).hexdigest()
