"""The recurrence of Eq. 3 for one t_max, over arrays.

    F(s, k, d; t_max) = min over k < i ≤ L and shapes of
                        t(k..i-1, shape, s) + once(k..i-1) + F(s − 1, i, d − devices(shape); t_max)      with t ≤ t_max

once is what a stage adds to an iteration and not to each microbatch; it is 0 in the paper. `exact` evaluates F.
`relaxed` drops s: each stage takes the least of its latencies over the places it could have,

    R(k, d; t_max) = min over i, shapes of  min_s t(k..i-1, shape, s) + once + R(i, d − devices(shape); t_max)  ≤  F

which is L times cheaper and usually equals F: where its best partition pays the same latencies at the places that the
stages then have (memory does not bind), R = F. Floating-point addition is monotone, and both add from the last stage to
the first as the pseudocode does, so these relations hold for the rounded values too.
"""

import math
from dataclasses import dataclass

import numpy as np

from alpa_explore.inter_op.kernels import exact_tables, relaxed_table
from alpa_explore.inter_op.result import Stage
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The least Σ(t + once) under one t_max (inf when there is no partition), and the stages that reach it."""

    sum_latency_seconds: float
    bottleneck_seconds: float
    """Largest latency of its stages: for every t_max from here up to the evaluated one the partition is the same."""
    stages: tuple[Stage, ...]
    exact: bool
    """False for a lower bound only: some stage's latency is not that of the place it has."""


NO_PARTITION = Partition(sum_latency_seconds=math.inf, bottleneck_seconds=math.inf, stages=(), exact=True)


class Recurrence:
    """A latency table prepared for evaluation at many t_max."""

    def __init__(
        self, latency: Floats, devices_of: Ints, total_devices: int, once: Floats, outside: Ints | None = None
    ) -> None:
        """`latency` [L, L + 1, M, S] and `once` [L, L + 1] in seconds, `devices_of` [M]; see `pipeline_dp`."""
        self.num_layers, _, self.num_shapes, self.deepest = latency.shape
        self.devices = np.ascontiguousarray(devices_of, dtype=np.int64)
        self.total_devices = total_devices
        self.outside = np.empty(0, dtype=np.int64) if outside is None else outside
        self.once = np.ascontiguousarray(once, dtype=np.float64)
        # [S, L, (L + 1)·M]: one slab per place; a stage in an impossible place is inf (at place 1 it must end with L).
        slabs = np.ascontiguousarray(np.moveaxis(latency, 3, 0))
        start, end = np.arange(self.num_layers)[:, None], np.arange(self.num_layers + 1)[None, :]
        for place, slab in enumerate(slabs, start=1):
            possible = (end == self.num_layers) if place == 1 else (end <= self.num_layers - place + 1)
            slab[~(possible & (end > start))] = np.inf
        self._exact = slabs.reshape(self.deepest, self.num_layers, -1)
        self._relaxed: Floats = self._exact.min(axis=0)

    def relaxed(self, t_max: float) -> Partition:
        """R of the module's docstring: every stage's latency taken at its best place; `exact` where it equals F."""
        table = relaxed_table(self._relaxed, self.once, self.devices, self.total_devices, self.outside, t_max)
        total = float(table[0, -1])
        if total == math.inf:
            return NO_PARTITION
        stages: list[Stage] = []
        k, d = 0, self.total_devices
        while k < self.num_layers:
            stages.append(self._first_stage(self._relaxed[k], table, k, d, t_max))
            k, d = stages[-1][1], d - int(self.devices[stages[-1][2]])
        return self._described(total, tuple(stages))

    def exact(self, t_max: float) -> Partition:
        """F(s, 0, D; t_max) minimised over s; ties go to the fewest stages, then to the shortest first stage …"""
        tables = exact_tables(self._exact, self.once, self.devices, self.total_devices, self.outside, t_max)
        totals = tables[:, 0, -1]
        depth = int(np.argmin(totals))
        if totals[depth] == math.inf:
            return NO_PARTITION
        stages: list[Stage] = []
        slowest, k, d = -math.inf, 0, self.total_devices
        for place in range(depth, 0, -1):
            latency = self._exact[place - 1, k]
            stage = self._first_stage(latency, tables[place - 1], k, d, t_max)
            stages.append(stage)
            slowest = max(slowest, float(latency[stage[1] * self.num_shapes + stage[2]]))
            k, d = stage[1], d - int(self.devices[stage[2]])
        return Partition(
            sum_latency_seconds=float(totals[depth]), bottleneck_seconds=slowest, stages=tuple(stages), exact=True
        )

    def sum_latency(self, stages: tuple[Stage, ...]) -> float:
        """Σt of a partition at the places its stages have, from the last stage on."""
        total = 0.0
        for place, (k, i, shape) in enumerate(reversed(stages)):
            total = float(self._exact[place, k, i * self.num_shapes + shape]) + total
        return total

    def _first_stage(self, latency: Floats, rest: Floats, k: int, d: int, t_max: float) -> Stage:
        """The best stage that begins with layer k where d devices are left; of equal ones the first."""
        left = d - self.devices
        after = np.where(left >= 0, rest[:, np.maximum(left, 0)], np.inf).ravel()
        paid = np.where(latency <= t_max, latency, np.inf) + np.repeat(self.once[k], self.num_shapes)
        option = int(np.argmin(paid + after))
        i, shape = divmod(option, self.num_shapes)
        return k, i, shape

    def _described(self, total: float, stages: tuple[Stage, ...]) -> Partition:
        """The relaxed partition; it is exact where its stages pay the same latencies at the places they have."""
        options = [i * self.num_shapes + shape for _, i, shape in stages]
        starts = [k for k, _, _ in stages]
        paid = self._relaxed[starts, options]
        exact = len(stages) <= self.deepest and bool(
            (self._exact[np.arange(len(stages))[::-1], starts, options] == paid).all()
        )
        return Partition(sum_latency_seconds=total, bottleneck_seconds=float(paid.max()), stages=stages, exact=exact)
