"""Cost of every resharding of a tensor: the cheapest sequence of collectives, a shortest path over its specs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpa_explore.cluster import LogicalMesh
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.sharding.reshard import Step, StepKind, steps_from
from alpa_explore.sharding.spec import Spec, legal_specs, local_share

UNREACHABLE = 1e18
"""Seconds of a resharding that does not exist (nothing becomes Partial): forbidden, not merely slow."""


@dataclass(frozen=True, eq=False)
class ReshardTable:
    """Costs between all legal specs of one tensor on one mesh."""

    specs: tuple[Spec, ...]
    index: dict[Spec, int]
    seconds: NDArray[np.float64]
    """[from, to]."""
    first_step: NDArray[np.int32]
    """[from, to] -> position of the spec after the first step; -1 where nothing is to do or nothing leads there."""
    steps: dict[tuple[int, int], Step]
    step_seconds: dict[tuple[int, int], float]
    bytes: int

    def path(self, source: Spec, target: Spec) -> tuple[tuple[Step, float], ...]:
        """The collectives of the cheapest way, each with its seconds."""
        here, goal = self.index[source], self.index[target]
        found = []
        while here != goal:
            after = int(self.first_step[here, goal])
            assert after >= 0, f"no way from {source} to {target}"
            found.append((self.steps[here, after], self.step_seconds[here, after]))
            here = after
        return tuple(found)


def reshard_table(shape: tuple[int, ...], total_bytes: int, mesh: LogicalMesh) -> ReshardTable:
    """Price all reshardings of a tensor on a squeezed mesh (Floyd–Warshall over its legal specs)."""
    specs = legal_specs(shape, mesh.shape, partial=True)
    index = {spec: i for i, spec in enumerate(specs)}
    seconds = np.full((len(specs), len(specs)), np.inf)
    first_step = np.full(seconds.shape, -1, dtype=np.int32)
    np.fill_diagonal(seconds, 0.0)
    steps: dict[tuple[int, int], Step] = {}
    step_seconds: dict[tuple[int, int], float] = {}
    for i, spec in enumerate(specs):
        for step in steps_from(spec, shape, mesh.shape):
            j = index[step.target]
            larger = step.target if step.kind is StepKind.ALL_GATHER else step.source
            cost = collective_seconds(
                step.kind, total_bytes * local_share(larger, mesh.shape),
                mesh.shape[step.axis], mesh.bandwidth[step.axis], mesh.latency_seconds[step.axis],
            )  # fmt: skip
            if cost < seconds[i, j]:
                seconds[i, j], first_step[i, j] = cost, j
                steps[i, j], step_seconds[i, j] = step, cost
    for k in range(len(specs)):
        through = seconds[:, k, None] + seconds[None, k, :]
        # Strictly better only: free slices form ties, and a tie that replaced a first step could close a loop.
        better = through < seconds
        seconds = np.where(better, through, seconds)
        first_step = np.where(better, first_step[:, k, None], first_step)
    seconds[~np.isfinite(seconds)] = UNREACHABLE
    seconds.setflags(write=False)
    return ReshardTable(specs, index, seconds, first_step, steps, step_seconds, total_bytes)
