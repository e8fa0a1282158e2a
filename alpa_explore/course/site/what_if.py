"""The tables from which a page prices TP × PP × DP × CP × EP layouts by itself, as JSON.

They hold what needs the library: seconds and bytes of the parts of a model (`layout_price.part_seconds`) for every
division and microbatch, the links of every group of devices, the blocks of every stage, and the figures of software and
device. `what_if.js` adds them up as `LayoutPricer` does, for pipelines in 1F1B order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.baselines.layout import Layout
from alpa_explore.baselines.layout_price import HALF, MOMENTS, part_seconds, update_bytes
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import Group, device_group
from alpa_explore.cost.collectives import send_seconds
from alpa_explore.cost.compute import adding_seconds
from alpa_explore.cost.plain_kernels import state_bytes
from alpa_explore.execution.executors import Executor
from alpa_explore.planner.resources import Resources
from alpa_explore.uniform_layouts.enumeration import enumerate_layouts
from alpa_explore.uniform_layouts.layouts import Question
from alpa_explore.uniform_layouts.stages import pipeline_parts

DEVICE = "h100"
MODELS: Mapping[str, tuple[int, ...]] = {
    "llama-3-8b": (1, 2, 4, 8),
    "llama-3-70b": (8, 16, 32),
    "mixtral-8x7b": (4, 8, 16),
    "llama-3.1-405b": (64, 128),
    "deepseek-v3": (64, 128, 256),
}
"""Model -> numbers of nodes of eight devices."""
_KINDS = ("none", "full")
"""Of recomputation; the attention of these models is one kernel, which holds no scores."""
_SOFTWARE = (
    "pace_sharpness gradient_sync contention microbatch_seconds iteration_seconds straggler_share shared_node_share "
    "backward_launch_seconds accumulate_bytes accumulate_in_product sync_bytes bucket_bytes buffer_bytes "
    "sync_buffer_bytes boundary_buffers keeps_last_loss gathered_blocks network_share"
).split()
_DIGITS = 7


def what_if_tables(models: Mapping[str, Sequence[int]] = MODELS) -> dict[str, Any]:
    """Tables of these models, each on so many nodes of `DEVICE`."""
    found: dict[str, Any] = {}
    groups: dict[str, list[float]] = {}
    with Executor(None) as executor:
        resources = Resources(executor=executor, store=None, progress=None, cancel=None)
        for name, nodes in models.items():
            found[name] = _model(name, [_cluster(n) for n in nodes], resources, groups)
    return {"models": found, "groups": groups, **_machine(_cluster(max(max(nodes) for nodes in models.values())))}


def asked_layouts(question: Question, cluster: Cluster, resources: Resources) -> list[Layout]:
    """The layouts of a cluster that the page knows: those without interleaving."""
    structure = question.prices.works.read_structure(resources)
    every = enumerate_layouts(structure, cluster, question.global_batch)
    return [layout for layout in every if layout.chunks == 1 and layout.recompute in _KINDS]


def _cluster(nodes: int) -> Cluster:
    return Cluster.parse(f"{nodes}x8:{DEVICE}")


def _model(name: str, clusters: list[Cluster], resources: Resources, groups: dict[str, list[float]]) -> dict[str, Any]:
    question = Question.of(name, None, None, None, cache=True)
    works = question.prices.works
    asked = [(cluster, layout) for cluster in clusters for layout in asked_layouts(question, cluster, resources)]
    works.prepare(asked, resources)
    structure = works.structure
    assert structure is not None, "it was read to enumerate the layouts"
    rows: dict[str, Any] = {}
    pipelines: dict[int, Any] = {}
    for cluster, layout in asked:
        key = f"{layout.tensor},{layout.context},{layout.expert},{layout.microbatch}"
        if key not in rows and isinstance(work := works.of(cluster, layout), DecoderWork):
            rows[key] = _row(work, cluster, layout)
        if layout.pipeline not in pipelines:
            pipelines[layout.pipeline] = pipeline_parts(structure, structure.kinds, layout, cluster.software.name)
        strides = (layout.replicas, layout.tensor), (layout.expert_replicas, layout.expert * layout.expert_tensor)
        for ranks, stride in strides:
            groups[f"{ranks},{stride}"] = _links(device_group(cluster, ranks, stride))
    return {
        "devices": [cluster.devices for cluster in clusters],
        "batch": question.global_batch,
        "tokens": structure.tokens,
        "flops": structure.flops,
        "words": structure.sizes,
        "stages": pipelines,
        "zero": {
            "alone": sorted({layout.zero_stage for _, layout in asked if layout.pipeline == 1}),
            "in pipelines": sorted({layout.zero_stage for _, layout in asked if layout.pipeline > 1}),
        },
        "rows": rows,
    }


def _row(work: DecoderWork, cluster: Cluster, layout: Layout) -> dict[str, Any]:
    """Of a division and microbatch: for each part its sizes, and for each kind of recomputation
    [forward, backward][device, host] seconds and the bytes held and needed."""
    seconds = {kind: part_seconds(work, cluster, replace(layout, recompute=kind)) for kind in _KINDS}
    parts = [
        {
            "sizes": _short((part.parameters, part.expert_parameters, part.parameter_tensors)),
            **{
                kind: _short(
                    (
                        *seconds[kind][place].ravel(),
                        part.recomputed[kind].held_bytes,
                        part.recomputed[kind].workspace_bytes,
                    )
                )
                for kind in _KINDS
            },
        }
        for place, part in enumerate(work.parts)
    ]
    return {"parts": parts, "tied": _short([work.tied_parameters])[0], "boundary": _short([work.boundary_bytes])[0]}


def _links(group: Group) -> list[float]:
    assert not group.outer, "the clusters of the page have two levels of links"
    inside = (group.inside_bandwidth, group.reduction_bandwidth, group.network_bandwidth)
    return _short((group.nodes, *inside, group.hop_inside_seconds, group.hop_seconds, group.wait_seconds))


def _machine(cluster: Cluster) -> dict[str, Any]:
    """Figures of software and device, and the straight lines of what costs seconds by bytes."""
    device, software = cluster.device, cluster.software
    assert not software.rank_launch_seconds, "a row would differ between one stage and several"
    assert not software.spread_rank_seconds, "launches of a row would differ inside a node and among several"

    def line(seconds: Any) -> list[float]:
        start = float(seconds(0.0))
        return _short((start, float(seconds(1e9) - start) / 1e9))

    return {
        "software": {name: getattr(software, name) for name in _SOFTWARE},
        "label": f"{software.label} on {device.name.upper()}",
        "per_node": cluster.devices_per_node,
        "room": device.memory_bytes,
        "reserve": device.reserved_bytes,
        "peak": device.peak("bfloat16"),
        "adding": line(lambda size: adding_seconds(device, size, HALF, 0.0)),
        "adding_tensor": float(adding_seconds(device, 0.0, HALF, 1.0)),
        "update": update_bytes(software) / (device.memory_bandwidth * device.memory_efficiency),
        "send_inside": line(lambda size: send_seconds(cluster, size, crosses_nodes=False)),
        "send_between": line(lambda size: send_seconds(cluster, size, crosses_nodes=True)),
        "tied": [cluster.inside_node.bandwidth, cluster.between_nodes.bandwidth / cluster.devices_per_node],
        "element": {
            "weight": HALF,
            "gradient": software.gradient_element_bytes("bfloat16", HALF),
            "optimizer": state_bytes(MOMENTS, HALF, software),
        },
    }


def _short(values: Iterable[float]) -> list[float]:
    """With as many digits as a page needs: an error of 1e-7."""
    return [float(f"{float(value):.{_DIGITS}g}") for value in values]
