"""When nothing fits in memory: which stage is in the way, by how much, and the nearest change that fits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import CONSTRAINTS, PipelineOptions, phrases
from alpa_explore.inter_op.result import PipelineResult
from alpa_explore.inter_op.stage_table import best_pipeline, chosen_candidate
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.search.lower_bounds import least_weight_bytes
from alpa_explore.sharding.spec_constraint import SpecConstraint


def nothing_fits(
    costs: StageCosts,
    cluster: Cluster,
    num_microbatches: int,
    *,
    options: PipelineOptions | None = None,
    spec_constraints: Sequence[SpecConstraint] = (),
    samples: int,
) -> InfeasiblePlanError:
    """The error to raise: names the stage that overflows least, its bytes over the limit, and what would fit.

    `samples` are those of a microbatch.
    """
    options = options or PipelineOptions()
    free = replace(options, cuts=(), num_stages=None, stage_submeshes=(), imbalance_tolerance=None)
    if options.constrained and best_pipeline(costs, cluster, free, num_microbatches).feasible:
        return _too_constrained(costs, cluster, num_microbatches, options)
    asked, options = options, free
    needed = _needed(costs, cluster, num_microbatches, options)
    if needed is None and spec_constraints:
        return InfeasiblePlanError(
            "No plan satisfies all spec constraints",
            found="; ".join(map(str, spec_constraints)),
            remedy="Each can be had alone, but not together on one logical mesh for each stage: take one of them back.",
        )
    if needed is None:
        return InfeasiblePlanError(
            "No plan exists",
            found=f"no choice of strategies for some layer on {cluster}",
            remedy="Use fewer layers, or check the warnings for operators that cannot be sharded.",
        )
    worst, where = needed
    advice = [f"It fits on {cluster.nodes}x{cluster.devices_per_node} devices with {units.bytes_(worst)} each"]
    named = sorted((load_preset(n)[0].memory_bytes, n) for n in preset_names())
    enough = next((name for size, name in named if size >= worst and name != "cpu"), None)
    if enough is not None:
        advice[0] += f" (for example {cluster.nodes}x{cluster.devices_per_node}:{enough})"
    if not any(costs.versions):
        advice.append("rematerialization=True holds fewer activations")
    if options.schedule != "1f1b":
        advice.append("the schedule 1f1b holds fewer microbatches")
    fewer = _largest_b_that_fits(costs, cluster, num_microbatches, options)
    if fewer is not None:
        advice.append(f"with microbatches of this size {fewer} of them fit")
    if spec_constraints:
        advice.append("specs that are pinned or forbidden may rule out what holds less")
    smaller = "more microbatches of a smaller size, or more nodes, need" if samples > 1 else "more nodes need"
    advice.append(f"{smaller} less memory on each device")
    least, _ = (_needed(costs, cluster, num_microbatches, asked) if asked.constrained else None) or needed
    return InfeasiblePlanError(
        "No plan fits in memory",
        found=where,
        remedy="; ".join(advice) + ".",
        over_bytes=least - costs.device_memory_bytes,
    )


def too_small(graph: TrainingGraph, cluster: Cluster) -> str:
    """Why no B can have a plan, in words, where that is known with no solve: what devices hold at any B is more than
    there is. Else ''."""
    needed, memory = least_weight_bytes(graph), cluster.device.memory_bytes
    if needed <= memory * cluster.devices:
        return ""
    nodes = math.ceil(needed / (memory * cluster.devices_per_node))
    return (
        f"weights, gradients and optimizer states alone are {units.bytes_(needed / cluster.devices)} on each device of "
        f"{units.bytes_(memory)} if nothing is stored twice (with {nodes:,} nodes they would fit)"
    )


def nothing_fits_at_any(failed: Mapping[int, InfeasiblePlanError], why: str = "") -> InfeasiblePlanError:
    """The error where no B has a plan: the B that is closest, with its stage and bytes.

    With `why` (`too_small`) only the B that holds least was tried.
    """
    b, error = min(failed.items(), key=lambda item: math.inf if item[1].over_bytes is None else item[1].over_bytes)
    return InfeasiblePlanError(
        f"{error.what} for any number of microbatches",
        found=(
            f"{why}; B = {b}, which holds the fewest activations: {error.found}"
            if why
            else f"tried B = {', '.join(map(str, sorted(failed)))}; closest is B = {b}: {error.found}"
        ),
        remedy=error.remedy,
        over_bytes=error.over_bytes,
    )


def _needed(costs: StageCosts, cluster: Cluster, b: int, options: PipelineOptions) -> tuple[float, str] | None:
    """The least memory of a device with which a plan exists, and in words the stage that needs it; None where none
    exists with any."""
    least = _least_memory(costs, cluster, b, options)
    if least is None:
        return None
    memory, pipeline = least
    larger = replace(costs, device_memory_bytes=memory)
    worst, where = 0.0, ""
    for index, (first, end, shape) in enumerate(pipeline.stages):
        from_end = len(pipeline.stages) - index
        candidate, held = chosen_candidate(larger, options, (first, end - 1, shape), from_end, len(pipeline.stages), b)
        peak = candidate.peak_bytes(held)
        if peak > worst:
            worst, over = peak, peak - costs.device_memory_bytes
            where = (
                f"stage {index} of {len(pipeline.stages)} (layers {first}–{end - 1} on {costs.submeshes[shape]}) needs "
                f"{units.bytes_(peak)} on each device of {units.bytes_(costs.device_memory_bytes)}, "
                f"{units.bytes_(over)} ({round(over)} bytes) over"
            )
    return worst, where


def _too_constrained(
    costs: StageCosts, cluster: Cluster, num_microbatches: int, options: PipelineOptions
) -> InfeasiblePlanError:
    """Plans exist, but none that keeps all constraints: which of them would have to go."""
    given = {field: words for field, words in phrases(options).items() if field in CONSTRAINTS}
    helps = []
    for field in given:
        if field == "num_stages" and any(s > 0 for s, _, _ in options.stage_submeshes):
            continue  # which stage is meant is not known without it
        without = replace(options, **{field: getattr(PipelineOptions(), field)})
        if best_pipeline(costs, cluster, without, num_microbatches).feasible:
            helps.append(f"without {field} there is a plan")
    # With more memory there may be one.
    needed = _needed(costs, cluster, num_microbatches, options)
    return InfeasiblePlanError(
        "No plan keeps all constraints",
        found=", ".join(given.values()) + (f": {needed[1]}" if needed else ""),
        remedy=f"{'; '.join(helps)}." if helps else "Each of them alone is too much: leave out more than one.",
        over_bytes=needed[0] - costs.device_memory_bytes if needed else None,
    )


def _least_memory(
    costs: StageCosts, cluster: Cluster, b: int, options: PipelineOptions
) -> tuple[int, PipelineResult] | None:
    """The smallest memory a device with which a plan exists (bisection over the peaks that occur), and that plan."""
    terms = options.terms(b)
    counts = {terms.held(s, p) for p in range(1, costs.num_layers + 1) for s in range(1, p + 1)}
    peaks = {int(np.ceil(c.peak_bytes(held))) for found in costs.candidates.values() for c in found for held in counts}
    steps = sorted(p for p in peaks if p > costs.device_memory_bytes)
    low, high, best = 0, len(steps) - 1, None
    while low <= high:
        middle = (low + high) // 2
        result = best_pipeline(replace(costs, device_memory_bytes=steps[middle]), cluster, options, b)
        if result.feasible:
            best, high = (steps[middle], result), middle - 1
        else:
            low = middle + 1
    return best


def _largest_b_that_fits(costs: StageCosts, cluster: Cluster, b: int, options: PipelineOptions) -> int | None:
    """Fewer microbatches hold fewer activations, but (but for GPipe) only below about twice the pipeline's depth."""
    for fewer in range(min(b - 1, 2 * costs.num_layers), 0, -1):
        if best_pipeline(costs, cluster, options, fewer).feasible:
            return fewer
    return None
