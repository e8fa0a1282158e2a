"""The bubble of a schedule of equal stages by its simulation, in microbatches."""

from __future__ import annotations

from functools import lru_cache

from alpa_explore.schedules.catalog import build_schedule
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes

_ROUNDS = 3
"""Microbatches for each submesh after which every microbatch adds the same time."""


def simulated_bubble(schedule: str, num_submeshes: int, num_microbatches: int, *, recomputes: bool) -> float:
    """(T − B·t) / t, where each of the equal submeshes takes t for a microbatch and sends take no time.

    Forward, backward to the input and backward to the weight take a third of t each; a quarter, a half and a quarter
    where the backward pass computes the forward pass again. In large B the bubble is linear: it is simulated for two.
    """
    few = _ROUNDS * num_submeshes
    if num_microbatches <= few:
        return _simulated(schedule, num_submeshes, num_microbatches, recomputes)
    at_few = _simulated(schedule, num_submeshes, few, recomputes)
    step = (_simulated(schedule, num_submeshes, few + num_submeshes, recomputes) - at_few) / num_submeshes
    return at_few + (num_microbatches - few) * step


@lru_cache(maxsize=1024)
def _simulated(schedule: str, submeshes: int, b: int, recomputes: bool) -> float:
    table = build_schedule(schedule, submeshes, b)
    parts = (1.0, 2.0, 1.0) if recomputes else (1.0, 1.0, 1.0)
    one = StageTimes(forward_seconds=parts[0], backward_input_seconds=parts[1], backward_weight_seconds=parts[2])
    each = sum(parts) * table.num_stages / submeshes / table.copies
    return simulate(table, [one] * table.num_stages).makespan_seconds / each - b
