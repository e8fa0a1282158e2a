"""Eq. 3 of Alpa (arXiv 2201.12023, §5.2) as a table: the least Σt of layers k … L in s stages on d devices.

    F(s, k, d; t_max) = min over i and shape of  t_intra(k … i−1, shape, s) + F(s−1, i, d − devices; t_max)
    T = min over s and t_max of  F(s, 0, D; t_max) + (B − 1) · t_max

Only stages with t_intra ≤ t_max are allowed, and those that fit in memory at place s from the end (Eq. 5); F(0, L, 0)
is 0. `stage_table` is the recurrence as the paper has it; the planner's is `inter_op.recurrence`, which gives the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from alpa_explore.numerics.arrays import Floats

Cell = tuple[int, int, int]
"""(s, k, d)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTable:
    """F for one t_max."""

    t_max: float
    values: Floats
    """F, shape [S + 1, L + 1, D + 1]; inf where there is no partition."""
    steps: Mapping[Cell, tuple[int, int]]
    """For each finite cell with s ≥ 1 the end of its first stage, and the index of that stage's submesh shape."""

    def total(self, num_microbatches: int) -> tuple[float, int]:
        """T with this t_max, and its number of stages; (inf, 0) where no partition uses all devices."""
        sums = self.values[1:, 0, -1]
        best = int(sums.argmin())
        if not math.isfinite(sums[best]):
            return math.inf, 0
        return float(sums[best]) + (num_microbatches - 1) * self.t_max, best + 1

    def way(self, stages: int, devices_of: Sequence[int]) -> list[Cell]:
        """The cells of the best partition into so many stages, from (s, 0, D) on."""
        cell: Cell = (stages, 0, self.values.shape[2] - 1)
        cells = []
        while cell in self.steps:
            cells.append(cell)
            end, shape = self.steps[cell]
            cell = (cell[0] - 1, end, cell[2] - devices_of[shape])
        return cells


def stage_table(latency: Floats, devices_of: Sequence[int], total_devices: int, t_max: float) -> StageTable:
    """F by Eq. 3. `latency` [L, L + 1, shapes, places] as `StageCosts.latency_table` gives it, in seconds."""
    layers, _, _, places = latency.shape
    values = np.full((places + 1, layers + 1, total_devices + 1), np.inf)
    values[0, layers, 0] = 0.0
    steps: dict[Cell, tuple[int, int]] = {}
    for s in range(1, places + 1):
        for k in range(layers - 1, -1, -1):
            for d in range(1, total_devices + 1):
                for i in range(k + 1, layers + 1):
                    for shape, devices in enumerate(devices_of):
                        seconds = latency[k, i, shape, s - 1]
                        if devices > d or not seconds <= t_max:
                            continue
                        total = seconds + values[s - 1, i, d - devices]
                        if total < values[s, k, d]:
                            values[s, k, d] = total
                            steps[s, k, d] = (i, shape)
    return StageTable(t_max=t_max, values=values, steps=steps)


def candidates(latency: Floats) -> list[float]:
    """Every latency that t_max can take, ascending."""
    layers = latency.shape[0]
    values = np.concatenate([latency[k, i].ravel() for k in range(layers) for i in range(k + 1, layers + 1)])
    return sorted({float(v) for v in values if math.isfinite(v)})


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStage:
    """One of the stages over which a cell takes the least."""

    end: int
    shape: int
    """Index of its submesh."""
    rest: Cell
    """The cell that is read for the stages after it."""


def cells_to_fill(
    layers: int, places: int, devices_of: Sequence[int], total_devices: int
) -> dict[Cell, list[FirstStage]]:
    """The cells through which a partition of all layers on all devices can go, in the order in which they are filled,
    and the first stages that each tries. Other cells are never needed."""
    possible: dict[Cell, list[FirstStage]] = {(0, layers, 0): []}
    for s, k, d in product(range(1, places + 1), reversed(range(layers)), range(1, total_devices + 1)):
        tried = [
            FirstStage(end=i, shape=shape, rest=(s - 1, i, d - devices))
            for i in range(k + 1, layers + 1)
            for shape, devices in enumerate(devices_of)
            if (s - 1, i, d - devices) in possible
        ]
        if tried:
            possible[s, k, d] = tried
    needed = {(s, 0, total_devices) for s in range(1, places + 1)}
    for cell in reversed(possible):  # more stages come later: a cell stands behind all that it reads
        if cell in needed:
            needed.update(stage.rest for stage in possible[cell])
    return {cell: tried for cell, tried in possible.items() if cell in needed and cell[0]}
