"""Lower bounds on what an iteration takes, without a search: from the FLOPs, the bytes and the memory of the layers.

A stage on n devices takes at least the time of 1/n of its FLOPs and bytes, and its devices hold at least 1/n of its
weights and of what it holds for a microbatch (`search.bounds`). Two bounds follow. No pipeline has a lower Eq. 2 than
the best one by these times; T may be below Eq. 2 (`PipelineQuery.least_seconds`). And whatever the schedule, D devices
that offer M bytes in all work through B microbatches of all layers, each layer in one version v of recomputation; when
the loss of a microbatch is computed, they hold that microbatch in all layers:

    T  ≥  min of  B/D · Σ n·t(layer, v)    where    Σ bytes(layer, v) ≤ M

which is relaxed to mixtures of the versions of a layer: its dual is a price of memory.

Where no pipeline fits by these bytes, the one that lacks least says what every one lacks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alpa_explore.cluster import logical_meshes
from alpa_explore.numerics.arrays import Floats
from alpa_explore.pricing.tuning import PROVEN
from alpa_explore.search.bounds.lower_bounds import LowerBounds
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.stage_pricing import StagePricing


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTime:
    """What bounds every plan at one B."""

    seconds: float
    """Lower bound on T; inf where no plan fits in memory."""
    over_bytes: float
    """Lower bound on what some device of every plan lacks; 0 or less where a plan may fit."""


def least_time(stages: StagePricing) -> LeastTime:
    """The bounds, for stages of which none is priced (`search.profile_stages.unpriced_stages`)."""
    costs, query = stages.costs(given_up=True), stages.query
    work, over = _least_work(stages.lower_bounds, query)
    of_pipelines = min(asked.least_seconds(costs, alone=alone) for asked, alone in query.of_depths(stages.num_layers))
    seconds = max(work, of_pipelines) * (1.0 - PROVEN)
    return LeastTime(seconds=seconds, over_bytes=over if seconds < math.inf else max(over, least_over(stages)))


def least_over(stages: StagePricing) -> float:
    """The fewest bytes that every device lacks for a pipeline to exist by the lower bounds of its stages, as far as
    they are known; 0 where one exists without more, inf where none does with any memory."""
    over, query = stages.over_bytes(), stages.query.without_constraints
    steps = sorted({0.0, *(more for of_cell in over.values() for more in of_cell.values() if more > 0)})

    def exists(more: float) -> bool:
        free = {cell: {n: 0.0 for n, lacks in of_cell.items() if lacks <= more} for cell, of_cell in over.items()}
        return bool(query.best_stages(replace(stages.costs(), candidates={}, bounds=free)))

    return next(iter(steps[bisect_left(steps, True, key=exists) :]), math.inf)


def _least_work(bounds: Sequence[LowerBounds], query: PipelineQuery) -> tuple[float, float]:
    """The second bound of the module's docstring, by the bounds of each version, and what the devices lack at least on
    the average."""
    layers, cluster = range(bounds[0].layered.num_layers), query.cluster
    meshes = [mesh for submesh in query.submeshes for mesh in logical_meshes(cluster, submesh)]
    seconds, held, weights = [], [], math.inf
    for of_version in bounds:
        seconds.append([min(m.devices * of_version.seconds(layer, layer, m) for m in meshes) for layer in layers])
        of_range = of_version.least_bytes
        # What several layers hold is counted with the first of them.
        held.append(np.diff([0.0, *(of_range[0, layer][1] for layer in layers)]))
        weights = min(weights, of_range[0, layers[-1]][0])
    memory = sum(kind.devices * kind.device.offered_bytes for kind in cluster.kinds)
    time, size = np.array(seconds) * query.num_microbatches / cluster.devices, np.array(held)
    room = memory - weights
    over = float(size.min(axis=0).sum() - room) / cluster.devices
    return math.inf if over > 0 else _at_best_price(time, size, room), over


def _at_best_price(time: Floats, size: Floats, room: float) -> float:
    """The least sum of times [versions, layers] of mixtures whose sizes sum up to `room` at most: the largest value of
    the dual, which is concave and has its corners where two versions of a layer cost the same."""
    prices = {0.0}
    for faster, smaller in np.ndindex(len(time), len(time)):
        saved, longer = size[faster] - size[smaller], time[smaller] - time[faster]
        useful = (saved > 0) & (longer > 0)
        prices |= set((longer[useful] / saved[useful]).tolist())
    return max(float((time + price * size).min(axis=0).sum() - price * room) for price in prices)
