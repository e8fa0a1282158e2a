"""The recurrence of Eq. 3 for one t_max, over arrays.

    F(s, k, d; t_max) = min over k < i ≤ L and shapes of  t(k..i-1, shape, s) + F(s − 1, i, d − devices(shape); t_max)

`exact` is that. `relaxed` forgets s: each stage takes the least of its latencies over the places it could have,

    R(k, d; t_max) = min over i, shapes of  min_s t(k..i-1, shape, s) + R(i, d − devices(shape); t_max)  ≤  F

which is L times cheaper, and mostly says F itself: where its best partition pays the same latencies at the places the
stages really have (memory does not bind), R = F. Floating-point addition is monotone, and both add from the last stage
on as the pseudocode does, so these relations hold for the rounded values, not just for the real ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpa_explore.inter_op.result import Stage

Floats = NDArray[np.float64]

_BLOCK_ELEMENTS = 1 << 16
"""Sums held at once: half a megabyte stays in the second-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The least Σt under one t_max (inf when there is no partition) and, when it was asked for, the stages."""

    sum_latency_seconds: float
    bottleneck_seconds: float
    """Largest latency of its stages: down to this t_max the answer stays the same."""
    stages: tuple[Stage, ...]
    exact: bool
    """False when only a lower bound: some stage's latency is not the one of the place it has."""


NO_PARTITION = Partition(sum_latency_seconds=math.inf, bottleneck_seconds=math.inf, stages=(), exact=True)


class Recurrence:
    """A latency table made ready for evaluation at many t_max."""

    def __init__(self, latency: Floats, devices_of: NDArray[np.int64], total_devices: int) -> None:
        """`latency` [L, L + 1, M, S] in seconds, `devices_of` [M]; see `pipeline_dp`."""
        self.num_layers, _, self.num_shapes, self.deepest = latency.shape
        self.devices = [int(n) for n in devices_of]
        self.total_devices = total_devices
        # [S, L, (L + 1)·M]: one slab a place; a stage in an impossible place is inf (place 1 must end at L, and so on).
        slabs = np.ascontiguousarray(np.moveaxis(latency, 3, 0))
        start, end = np.arange(self.num_layers)[:, None], np.arange(self.num_layers + 1)[None, :]
        for place, slab in enumerate(slabs, start=1):
            possible = (end == self.num_layers) if place == 1 else (end <= self.num_layers - place + 1)
            slab[~(possible & (end > start))] = np.inf
        self._exact = slabs.reshape(self.deepest, self.num_layers, -1)
        self._relaxed: Floats = self._exact.min(axis=0)
        # Column d of "what is left after this shape": F padded with inf in front, read at d − devices(shape).
        width = total_devices + 1
        self._shift = np.arange(width)[None, :] + total_devices - devices_of[:, None]
        self._shift[devices_of > total_devices] = 0  # such a shape never fits: it reads the padding
        self._width = width

    def relaxed(self, t_max: float) -> Partition:
        """The least Σt with every stage's latency taken at its best place; `exact` when it is F itself."""
        latency = np.where(self._relaxed <= t_max, self._relaxed, np.inf)
        rest = np.full((self.num_layers + 1, self.num_shapes, self._width), np.inf)
        table = np.full((self.num_layers + 1, self.total_devices + self._width), np.inf)
        table[self.num_layers, self.total_devices] = 0.0
        rows = rest.reshape(-1, self._width)
        for k in range(self.num_layers - 1, -1, -1):
            self._shifted(table[k + 1], rest[k + 1])
            first = (k + 1) * self.num_shapes
            _least(latency[k : k + 1, first:], rows[first:], table[k : k + 1, self.total_devices :])
        total = float(table[0, -1])
        if total == math.inf:
            return NO_PARTITION
        stages: list[Stage] = []
        k, d = 0, self.total_devices
        while k < self.num_layers:
            option = int(np.argmin(latency[k] + rows[:, d]))
            i, shape = divmod(option, self.num_shapes)
            stages.append((k, i, shape))
            k, d = i, d - self.devices[shape]
        return self._described(total, tuple(stages), latency)

    def exact(self, t_max: float) -> Partition:
        """F(s, 0, D; t_max) at its least over s; of ties the fewest stages, then the shortest first stage …"""
        tables = np.full((self.deepest + 1, self.num_layers + 1, self.total_devices + self._width), np.inf)
        tables[0, self.num_layers, self.total_devices] = 0.0
        rest = np.empty((self.num_layers + 1, self.num_shapes, self._width))
        rows = rest.reshape(-1, self._width)
        for place in range(1, self.deepest + 1):
            last = self.num_layers if place == 1 else self.num_layers - place + 1
            begin = self.num_layers if place == 1 else 1
            self._shifted(tables[place - 1, begin : last + 1], rest[begin : last + 1])
            slab = self._exact[place - 1]
            block = max(1, _BLOCK_ELEMENTS // ((last - begin + 1) * self.num_shapes * self._width))
            for k in range(0, self.num_layers - place + 1, block):
                stop = min(k + block, self.num_layers - place + 1)
                options = slice(max(k + 1, begin) * self.num_shapes, (last + 1) * self.num_shapes)
                latency = slab[k:stop, options]
                latency = np.where(latency <= t_max, latency, np.inf)
                _least(latency, rows[options], tables[place, k:stop, self.total_devices :])
        totals = tables[:, 0, -1]
        depth = int(np.argmin(totals))
        if totals[depth] == math.inf:
            return NO_PARTITION
        return self._walk(tables, depth, t_max)

    def _walk(self, tables: Floats, depth: int, t_max: float) -> Partition:
        """The stages behind tables[depth, 0, D]."""
        stages: list[Stage] = []
        slowest, k, d = -math.inf, 0, self.total_devices
        for place in range(depth, 0, -1):
            latency = self._exact[place - 1, k].reshape(self.num_layers + 1, self.num_shapes)
            rest = tables[place - 1][:, self._shift[:, d]]
            option = int(np.argmin(np.where(latency <= t_max, latency, np.inf) + rest))
            i, shape = divmod(option, self.num_shapes)
            stages.append((k, i, shape))
            slowest = max(slowest, float(latency[i, shape]))
            k, d = i, d - self.devices[shape]
        return Partition(
            sum_latency_seconds=float(tables[depth, 0, -1]),
            bottleneck_seconds=slowest,
            stages=tuple(stages),
            exact=True,
        )

    def _shifted(self, table: Floats, out: Floats) -> None:
        """out[…, shape, d] = table[…, d − devices(shape)], inf where that is negative."""
        np.take(table, self._shift, axis=-1, out=out, mode="clip")

    def _described(self, total: float, stages: tuple[Stage, ...], latency: Floats) -> Partition:
        """The relaxed partition, and whether its stages pay the same at the places they have."""
        options = [i * self.num_shapes + shape for _, i, shape in stages]
        starts = [k for k, _, _ in stages]
        paid = latency[starts, options]
        exact = len(stages) <= self.deepest and bool(
            (self._exact[np.arange(len(stages))[::-1], starts, options] == paid).all()
        )
        return Partition(sum_latency_seconds=total, bottleneck_seconds=float(paid.max()), stages=stages, exact=exact)


def _least(latency: Floats, rest: Floats, out: Floats) -> None:
    """out[k, d] = min over options of latency[k, option] + rest[option, d] (a min-plus product), block by block."""
    step = max(1, _BLOCK_ELEMENTS // max(1, out.size))
    for first in range(0, rest.shape[0], step):
        sums = latency[:, first : first + step, None] + rest[None, first : first + step]
        np.minimum(out, sums.min(axis=1), out=out)
