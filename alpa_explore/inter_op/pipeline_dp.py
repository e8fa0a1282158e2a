"""The inter-operator pass (Alpa §5.1, Eq. 2 and 3): which layers form a stage, and which submesh each stage gets.

    T = min over s and t_max of  F(s, 0, D; t_max) + (B − 1)·t_max        (all D devices are used)

A schedule may have a bubble that is q times smaller, and a stage may add seconds once an iteration. With P stages of
latency t, the (P − 1)·t idle seconds become (P − 1)·t / q, so that

    T = Σt / q + (B − 1/q)·t_max + Σ once = min of [F(s, 0, D; t_max) + (q·B − 1)·t_max] / q      with q·once in F

which is the same search with q·B in place of B. A schedule may also wait r microbatches longer for its slowest stage:
then with q·(B + r). The paper's case is q = 1, r = 0, once = 0.

F is in `recurrence`, the search over t_max in `t_max_sweep`, the paper's pseudocode itself in `reference`.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from alpa_explore.errors import OptionError
from alpa_explore.inter_op.recurrence import Recurrence
from alpa_explore.inter_op.result import PipelineResult, Stage, SweepPoint
from alpa_explore.inter_op.t_max_sweep import Sweep
from alpa_explore.numerics.arrays import Floats, Ints

__all__ = ["PipelineResult", "SweepPoint", "pipeline_dp"]

NEAR, MOST_NEAR = 0.05, 8
"""Partitions whose Eq. 2 is within this share of the best, and so many of them at most, are worth an evaluation of what
an iteration takes. Set by hand."""


def pipeline_dp(
    latency: Floats,
    devices_of: ArrayLike,
    total_devices: int,
    num_microbatches: int,
    *,
    bubble_divisor: float = 1,
    more_rounds: float = 0.0,
    rounds_symbols: str = "(B−1)",
    once_seconds: Floats | None = None,
    outside: Ints | None = None,
) -> PipelineResult:
    """The stages with the least iteration time.

    `latency` [L, L + 1, M, S] in seconds: layers k..i-1 on submesh shape m at place s + 1 counted from the last stage;
    inf where such a stage is impossible (it does not exist, or does not fit in memory there). S ≤ L is the largest
    number of stages. `devices_of` [M]: devices of each shape. Only entries with i > k are read. `bubble_divisor` is q,
    `more_rounds` r, `rounds_symbols` the factor of t_max for people; `once_seconds` [L, L + 1]: what layers k..i-1 as a
    stage add to an iteration. Devices of several kinds are numbers of `device_kinds`, with those `outside`.

    The result is the pseudocode's, bit for bit. Among partitions with equal T the one with the smallest t_max is
    taken; then the one with the fewest stages; then the one whose first stage is shortest, then of the first shape, and
    so on to the last stage. OptionError when num_microbatches < 1 or there is no device; an infeasible problem is a
    result (`feasible` is False).
    """
    if num_microbatches < 1:
        raise OptionError(
            "The number of microbatches must be at least 1", found=f"{num_microbatches}", remedy="Give a positive B."
        )
    if total_devices < 1:
        raise OptionError("A plan needs at least one device", found=f"{total_devices}", remedy="Give a larger cluster.")
    latency = np.asarray(latency, dtype=np.float64)
    devices = np.asarray(devices_of, dtype=np.int64)
    once = np.zeros(latency.shape[:2]) if once_seconds is None else once_seconds
    _check_shapes(latency, devices, once, bubble_divisor)

    candidates = _candidates(latency)
    recurrence = Recurrence(latency, devices, total_devices, bubble_divisor * once, outside)
    sweep = Sweep(
        recurrence=recurrence,
        candidates=candidates,
        num_microbatches=num_microbatches,
        bubble_divisor=bubble_divisor,
        more_rounds=more_rounds,
        waiting_text=f"{rounds_symbols}·t_max",
    )
    sweep.run()
    total = t_max = sum_latency = math.inf
    once_of_stages = 0.0
    stages: tuple[Stage, ...] = ()
    if sweep.best >= 0:
        # Evaluated again in full: the search may have met another partition with the same Σt first.
        t_max = float(candidates[sweep.best])
        best = recurrence.exact(t_max)
        total, sum_latency, stages = sweep.best_seconds / bubble_divisor, best.sum_latency_seconds, best.stages
        assert sum_latency + sweep.rounds * t_max == sweep.best_seconds, "the search and the recurrence disagree"
        once_of_stages = float(sum(once[first, end] for first, end, _ in stages))
        if once_of_stages:
            sum_latency = recurrence.sum_latency(stages)
    return PipelineResult(
        total_seconds=total,
        t_max_seconds=t_max,
        sum_latency_seconds=sum_latency,
        once_seconds=once_of_stages,
        stages=stages,
        near=tuple(
            found
            for seconds, found in sorted(sweep.found, key=lambda partition: partition[0])
            if seconds <= (1.0 + NEAR) * sweep.best_seconds and found != stages
        ),
        evaluations=sweep.evaluations,
        candidates=candidates,
        runs=sweep.finished_runs(),
    )


def _check_shapes(latency: Floats, devices: Ints, once: Floats, bubble_divisor: float) -> None:
    """The preconditions of `pipeline_dp` that only its callers in this package can violate."""
    layers, ends, shapes, places = latency.shape
    assert (ends, devices.shape) == (layers + 1, (shapes,)), "see the docstring for shapes"
    assert 1 <= places <= layers, "a stage has at least one layer"
    assert not np.isnan(latency).any(), "a latency is a number or inf"
    assert (devices > 0).all(), "a shape has at least one device"
    assert once.shape == (layers, ends), "one figure per range of layers"
    assert bubble_divisor >= 1, "no schedule has a larger bubble than 1F1B"


def _candidates(latency: Floats) -> Floats:
    """Every distinct finite latency of layers k..i-1, i > k, ascending."""
    layers = latency.shape[0]
    start, last = np.triu_indices(layers)
    ranges = latency[start, last + 1]  # [ranges, M, S]
    # Latencies seldom change from place to place: sort those of the first place and those that change.
    changed = ranges[..., 1:] != ranges[..., :-1]
    values = np.concatenate((ranges[..., 0].ravel(), ranges[..., 1:][changed]))
    values = np.unique(values[np.isfinite(values)])
    values.setflags(write=False)
    return values
