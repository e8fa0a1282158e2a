"""The pipeline DP written straight from Alpa's pseudocode (arXiv 2201.12023, §5.1): slow, for tests to compare with.

It comes in two forms. One takes (latency, weight bytes, activation bytes) of every stage and a memory limit, as the
paper does. The other takes latency[k, i, shape, s − 1] with the memory limit already applied, as the planner does.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.inter_op.result import Stage
from alpa_explore.numerics.arrays import Floats

Lookup = Callable[[int, int, int, int], float | None]
"""(k, i, shape, s) -> latency of layers k..i-1 on the shape at place s from the end; None when it is infeasible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceResult:
    """The least T of the pseudocode, with the t_max, the Σt and the stages that first reached it."""

    total_seconds: float
    t_max_seconds: float
    sum_latency_seconds: float
    stages: tuple[Stage, ...]


def reference_with_memory(
    costs: Mapping[tuple[int, int, int], tuple[float, float, float]],
    devices_of: Sequence[int],
    num_layers: int,
    total_devices: int,
    num_microbatches: int,
    memory_limit: float,
) -> ReferenceResult:
    """The best pipeline under a memory limit.

    `costs[k, i, shape]` = (latency, weight bytes, activation bytes of a microbatch); place s holds s microbatches.
    """

    def lookup(k: int, i: int, shape: int, s: int) -> float | None:
        if (k, i, shape) not in costs:
            return None
        latency, weight, activation = costs[k, i, shape]
        return None if weight + s * activation > memory_limit else latency

    candidates = {latency for latency, _, _ in costs.values()}
    return _minimise(lookup, candidates, devices_of, num_layers, num_layers, total_devices, num_microbatches)


def reference_dp(
    latency: Floats, devices_of: Sequence[int], total_devices: int, num_microbatches: int
) -> ReferenceResult:
    """The best pipeline for a table [L, L + 1, shapes, S] of seconds; inf where infeasible (see `pipeline_dp`)."""
    num_layers, deepest = latency.shape[0], latency.shape[3]

    def lookup(k: int, i: int, shape: int, s: int) -> float | None:
        value = float(latency[k, i, shape, s - 1])
        return value if math.isfinite(value) else None

    candidates = {
        float(latency[k, i, shape, s])
        for k in range(num_layers)
        for i in range(k + 1, num_layers + 1)
        for shape in range(latency.shape[2])
        for s in range(deepest)
        if math.isfinite(latency[k, i, shape, s])
    }
    return _minimise(lookup, candidates, devices_of, num_layers, deepest, total_devices, num_microbatches)


def _minimise(
    lookup: Lookup,
    candidates: Iterable[float],
    devices_of: Sequence[int],
    num_layers: int,
    deepest: int,
    total_devices: int,
    num_microbatches: int,
) -> ReferenceResult:
    best = ReferenceResult(total_seconds=math.inf, t_max_seconds=math.inf, sum_latency_seconds=math.inf, stages=())
    for t_max in sorted(candidates):
        if (num_microbatches - 1) * t_max >= best.total_seconds:
            break
        # table[s, k, d]: least Σt of layers k.. in exactly s stages on exactly d devices; step: its first (end, shape).
        table = np.full((deepest + 1, num_layers + 1, total_devices + 1), np.inf)
        step: dict[tuple[int, int, int], tuple[int, int]] = {}
        table[0, num_layers, 0] = 0.0
        for s in range(1, deepest + 1):
            for k in range(num_layers - 1, -1, -1):
                for d in range(1, total_devices + 1):
                    for i in range(k + 1, num_layers + 1):
                        for shape, devices in enumerate(devices_of):
                            if devices > d:
                                continue
                            seconds = lookup(k, i, shape, s)
                            if seconds is None or seconds > t_max:
                                continue
                            cost = seconds + table[s - 1, i, d - devices]
                            if cost < table[s, k, d]:
                                table[s, k, d] = cost
                                step[s, k, d] = (i, shape)
        for s in range(1, deepest + 1):
            sum_latency = float(table[s, 0, total_devices])
            if sum_latency + (num_microbatches - 1) * t_max < best.total_seconds:
                best = ReferenceResult(
                    total_seconds=sum_latency + (num_microbatches - 1) * t_max,
                    t_max_seconds=t_max,
                    sum_latency_seconds=sum_latency,
                    stages=_backtrack(step, devices_of, s, total_devices),
                )
    return best


def _backtrack(
    step: Mapping[tuple[int, int, int], tuple[int, int]], devices_of: Sequence[int], s: int, d: int
) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    k = 0
    while s:
        i, shape = step[s, k, d]
        stages.append((k, i, shape))
        s, k, d = s - 1, i, d - devices_of[shape]
    return tuple(stages)
