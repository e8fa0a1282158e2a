"""The error when nothing fits in memory: the stage that overflows, by how much, and the nearest change that fits."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.presets import load_preset, preset_names
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import AUTO, CONSTRAINTS, PipelineOptions, phrases
from alpa_explore.inter_op.result import PipelineResult
from alpa_explore.inter_op.stage_table import chosen_candidate
from alpa_explore.intra_op.stage.recomputation import FULL, LAYERS
from alpa_explore.plans.phrases import layers_phrase
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.search.bounds.least_bytes import least_weight_bytes
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.sharding.spec_constraint import SpecConstraint


def nothing_fits(
    costs: StageCosts,
    query: PipelineQuery,
    *,
    spec_constraints: Sequence[SpecConstraint] = (),
    rematerialization: bool | str | None = None,
    samples: int,
) -> InfeasiblePlanError:
    """The error to raise, with the stage that overflows least, its bytes over the limit, and what would fit.

    `samples` are those of a microbatch, `rematerialization` what was asked for.
    """
    cluster = query.cluster
    free = query.without_constraints
    if query.options.constrained and free.best(costs).feasible:
        return _too_constrained(costs, query)
    needed = _needed(costs, free)
    if needed is None and spec_constraints:
        return InfeasiblePlanError(
            "No plan satisfies all spec constraints",
            found="; ".join(map(str, spec_constraints)),
            remedy="Each can be satisfied alone, but not all on one logical mesh of each stage: remove one of them.",
        )
    if needed is None and costs.num_layers < len(cluster.kinds):
        count = len(cluster.kinds)
        return InfeasiblePlanError(
            "No plan exists",
            found=f"{costs.num_layers} layer{'s' * (costs.num_layers > 1)} on {count} kinds of nodes, each of which "
            "takes a stage of its own",
            remedy=f"Use at least {count} layers (num_layers={count}, --layers {count}), or nodes of fewer kinds.",
        )
    if needed is None:
        return InfeasiblePlanError(
            "No plan exists",
            found=f"some layer has no legal choice of strategies on {cluster}",
            remedy="Use fewer layers, or check the warnings for operators that cannot be sharded.",
        )
    named = sorted((load_preset(n)[0].memory_bytes, n) for n in preset_names())
    enough = next((name for size, name in named if size >= needed.peak_bytes and name != "cpu"), None)
    if cluster.others:
        advice = []
    elif enough is not None:
        advice = [f"It fits on {cluster.nodes}x{cluster.devices_per_node}:{enough}"]
    else:
        advice = [f"No device of the presets has the {units.bytes_(needed.peak_bytes)} that each of so few must hold"]
    if rematerialization != AUTO and not any(version.name in (FULL, LAYERS) for version in costs.versions):
        advice.append("recomputing every block (rematerialization='full', --remat full) holds fewer activations")
    if query.options.schedule not in (AUTO, "1f1b"):
        advice.append("the schedule 1f1b holds fewer microbatches")
    fewer = _largest_b_that_fits(costs, free)
    if fewer is not None:
        advice.append(f"B = {fewer} fits with microbatches of this size")
    if spec_constraints:
        advice.append("the spec constraints may rule out choices that hold less")
    smaller = "more microbatches of a smaller size, or more nodes, need" if samples > 1 else "more nodes need"
    advice.append(f"{smaller} less memory on each device")
    advice[0] = advice[0][0].upper() + advice[0][1:]
    least = (_needed(costs, query) if query.options.constrained else None) or needed
    return InfeasiblePlanError(
        "No plan fits in memory", found=needed.where, remedy="; ".join(advice) + ".", over_bytes=least.over_bytes
    )


def weights_too_large(graph: TrainingGraph, cluster: Cluster) -> str:
    """Why no B can have a plan, in words, where that is known without a solve: a lower bound on the bytes that the
    devices hold at any B exceeds their memory. Otherwise ''."""
    needed, memory = least_weight_bytes(graph, cluster.software), cluster.device.offered_bytes
    room = sum(kind.devices * kind.device.offered_bytes for kind in cluster.kinds)
    if needed <= room:
        return ""
    if cluster.others:
        return (
            f"weights, gradients and optimizer states alone are {units.bytes_(needed)} if nothing is stored twice, and "
            f"all {cluster.devices:,} devices together offer {units.bytes_(room)}"
        )
    nodes = math.ceil(needed / (memory * cluster.devices_per_node))
    return (
        f"weights, gradients and optimizer states alone are {units.bytes_(needed / cluster.devices)} on each device, "
        f"which offers {units.bytes_(memory)}, if nothing is stored twice (with {nodes:,} nodes they would fit)"
    )


def nothing_fits_at_any(
    failed: Mapping[int, InfeasiblePlanError], why: str = "", lacking_more: Collection[int] = ()
) -> InfeasiblePlanError:
    """The error where no B has a plan, with the B that comes closest, its stage and its bytes.

    With `why` (`weights_too_large`) only the B that holds least was tried. Those `lacking_more` were not tried, by
    lower bounds.
    """
    b, error = min(failed.items(), key=lambda item: math.inf if item[1].over_bytes is None else item[1].over_bytes)
    others = f" (with B = {_listed(lacking_more)} devices lack no less, by lower bounds)" if lacking_more else ""
    return InfeasiblePlanError(
        f"{error.what} for any number of microbatches",
        found=(
            f"{why}; B = {b}, which holds the fewest activations: {error.found}"
            if why
            else f"tried B = {_listed(failed)}{others}; closest is B = {b}: {error.found}"
        ),
        remedy=error.remedy,
        over_bytes=error.over_bytes,
    )


def _listed(counts: Collection[int]) -> str:
    return ", ".join(map(str, sorted(counts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needed:
    """The stage that exceeds its devices most, where each device has the least more with which a plan exists."""

    peak_bytes: float
    over_bytes: float
    where: str
    """The stage in words."""


def _needed(costs: StageCosts, query: PipelineQuery) -> _Needed | None:
    """What the least memory of a device is short of; None where no plan exists with any memory."""
    least = _least_more(costs, query)
    if least is None:
        return None
    more, pipeline = least
    larger = _with_more(costs, more)
    depth = len(pipeline.stages)
    worst = _Needed(peak_bytes=0.0, over_bytes=-math.inf, where="")
    for index, (first, end, shape) in enumerate(pipeline.stages):
        key = (first, end - 1, shape)
        candidate, held = chosen_candidate(larger, query.options, key, depth - index, depth, query.num_microbatches)
        peak, memory = candidate.peak_bytes(held), costs.memory_of(costs.submeshes[shape])
        if (over := peak - memory) > worst.over_bytes:
            kinds = query.cluster.kinds
            kind = f" {kinds[costs.submeshes[shape].kind].device.name}" if len(kinds) > 1 else ""
            where = (
                f"stage {index} of {depth} ({layers_phrase((first, end - 1))} on {costs.submeshes[shape]}{kind}) needs "
                f"{units.bytes_(peak)} on each device of {units.bytes_(memory)}, {units.bytes_(over)} over"
            )
            worst = _Needed(peak_bytes=peak, over_bytes=over, where=where)
    return worst


def _too_constrained(costs: StageCosts, query: PipelineQuery) -> InfeasiblePlanError:
    """The error where plans exist, but none that satisfies all constraints: which of them to leave out."""
    options = query.options
    given = {name: words for name, words in phrases(options).items() if name in CONSTRAINTS}
    helps = []
    for name in given:
        if name == "num_stages" and any(s > 0 for s, _, _ in options.stage_submeshes):
            continue  # which stage is meant is not known without it
        without = replace(options, **{name: getattr(PipelineOptions(), name)})
        if replace(query, options=without).best(costs).feasible:
            helps.append(f"without {name} there is a plan")
    # With more memory there may be one.
    needed = _needed(costs, query)
    return InfeasiblePlanError(
        "No plan satisfies all pipeline constraints",
        found=", ".join(given.values()) + (f": {needed.where}" if needed else ""),
        remedy=f"{'; '.join(helps)}." if helps else "No single one is the cause: leave out more than one.",
        over_bytes=needed.over_bytes if needed else None,
    )


def _with_more(costs: StageCosts, more: int) -> StageCosts:
    """The same candidates on devices with so many more bytes."""
    memories = tuple(memory + more for memory in costs.memory_of_kinds)
    return replace(costs, device_memory_bytes=costs.device_memory_bytes + more, memory_of_kinds=memories)


def _least_more(costs: StageCosts, query: PipelineQuery) -> tuple[int, PipelineResult] | None:
    """The fewest bytes that every device needs more for a plan to exist (bisection over the peaks that occur), and that
    plan."""
    counts = query.held_counts(costs.num_layers)
    over = {
        int(np.ceil(c.peak_bytes(held))) - costs.memory_of(c.logical_mesh)
        for cell in costs.candidates.values()
        for c in cell
        for held in counts
    }
    steps = sorted(more for more in over if more > 0)
    low, high, best = 0, len(steps) - 1, None
    while low <= high:
        middle = (low + high) // 2
        result = query.best(_with_more(costs, steps[middle]))
        if result.feasible:
            best, high = (steps[middle], result), middle - 1
        else:
            low = middle + 1
    return best


def _largest_b_that_fits(costs: StageCosts, query: PipelineQuery) -> int | None:
    """The largest smaller B with a plan; None where there is none.

    Except under GPipe, a smaller B holds fewer activations only below about twice the depth of the pipeline.
    """
    for fewer in range(min(query.num_microbatches - 1, 2 * costs.num_layers), 0, -1):
        if replace(query, num_microbatches=fewer).best(costs).feasible:
            return fewer
    return None
