"""When nothing fits in memory: which stage is in the way, by how much, and the nearest change that fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.inter_op.result import PipelineResult
from alpa_explore.profiling.stage_costs import StageCosts


def nothing_fits(
    costs: StageCosts, cluster: Cluster, num_microbatches: int, *, rematerialization: bool
) -> InfeasiblePlanError:
    """The error to raise: names the stage that overflows least, its bytes over the limit, and what would fit."""
    needed = _least_memory(costs, cluster, num_microbatches)
    if needed is None:
        return InfeasiblePlanError(
            "No plan exists", found=f"no choice of strategies for some layer on {cluster}",
            remedy="Use fewer layers, or check the warnings for operators that cannot be sharded.",
        )  # fmt: skip
    memory, pipeline = needed
    larger = replace(costs, device_memory_bytes=memory)
    worst, where = 0.0, ""
    for index, (first, end, shape) in enumerate(pipeline.stages):
        from_end = len(pipeline.stages) - index
        candidate = larger.choose((first, end - 1, shape), from_end, num_microbatches)
        assert candidate is not None
        peak = candidate.peak_bytes(min(from_end, num_microbatches))
        if peak > worst:
            worst, over = peak, peak - costs.device_memory_bytes
            where = (
                f"stage {index} of {len(pipeline.stages)} (layers {first}–{end - 1} on {costs.submeshes[shape]}) needs "
                f"{units.bytes_(peak)} on each device of {units.bytes_(costs.device_memory_bytes)}, "
                f"{units.bytes_(over)} ({round(over)} bytes) over"
            )
    advice = [f"It fits on {cluster.nodes}x{cluster.devices_per_node} devices with {units.bytes_(worst)} each"]
    named = sorted((load_preset(n)[0].memory_bytes, n) for n in preset_names())
    enough = next((name for size, name in named if size >= worst and name != "cpu"), None)
    if enough is not None:
        advice[0] += f" (for example {cluster.nodes}x{cluster.devices_per_node}:{enough})"
    if not rematerialization:
        advice.append("rematerialization=True holds fewer activations")
    fewer = _largest_b_that_fits(costs, cluster, num_microbatches)
    if fewer is not None:
        advice.append(f"with microbatches of this size {fewer} of them fit")
    advice.append("more microbatches of a smaller size, or more nodes, need less memory on each device")
    return InfeasiblePlanError("No plan fits in memory", found=where, remedy="; ".join(advice) + ".")


def _pipeline(costs: StageCosts, cluster: Cluster, num_microbatches: int) -> PipelineResult:
    devices = [m.devices for m in costs.submeshes]
    return pipeline_dp(costs.latency_table(num_microbatches), devices, cluster.devices, num_microbatches)


def _least_memory(costs: StageCosts, cluster: Cluster, b: int) -> tuple[int, PipelineResult] | None:
    """The smallest memory a device with which a plan exists (bisection over the peaks that occur), and that plan."""
    peaks = {
        int(np.ceil(c.peak_bytes(min(s, b))))
        for found in costs.candidates.values()
        for c in found
        for s in range(1, costs.num_layers + 1)
    }
    steps = sorted(p for p in peaks if p > costs.device_memory_bytes)
    low, high, best = 0, len(steps) - 1, None
    while low <= high:
        middle = (low + high) // 2
        result = _pipeline(replace(costs, device_memory_bytes=steps[middle]), cluster, b)
        if result.feasible:
            best, high = (steps[middle], result), middle - 1
        else:
            low = middle + 1
    return best


def _largest_b_that_fits(costs: StageCosts, cluster: Cluster, b: int) -> int | None:
    """Fewer microbatches hold fewer activations, but only below the depth of the pipeline."""
    for fewer in range(min(b - 1, costs.num_layers), 0, -1):
        if _pipeline(costs, cluster, fewer).feasible:
            return fewer
    return None
