"""Cost of every resharding of a tensor: the cheapest sequence of collectives, a shortest path over its specs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from alpa_explore.cluster import LogicalMesh
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.sharding.reshard import Step, StepKind, steps_between
from alpa_explore.sharding.spec import PARTIAL, Spec, legal_specs, local_share

UNREACHABLE = 1e18
"""Seconds of a resharding that does not exist (nothing becomes Partial): forbidden, not merely slow."""


@dataclass(frozen=True, eq=False)
class ReshardTable:
    """Costs between all legal specs of one tensor on one mesh."""

    specs: tuple[Spec, ...]
    index: dict[Spec, int]
    shares: Floats
    """[spec]: of the tensor on one device."""
    step_seconds: Floats
    """[from, to] of a single step; inf where there is none."""
    seconds: Floats
    """[from, to]."""
    rank: int
    """Of the tensor."""

    def path(self, source: Spec, target: Spec) -> tuple[tuple[Step, float], ...]:
        """The collectives of the cheapest way, each with its seconds."""
        here, goal = self.index[source], self.index[target]
        found = []
        while here != goal:
            after = int(self._first_step[here, goal])
            assert after >= 0, f"no way from {source} to {target}"
            found.append((self._steps[here, after], float(self.step_seconds[here, after])))
            here = after
        return tuple(found)

    @cached_property
    def completion(self) -> Floats:
        """For each spec the cheapest way to one without a pending sum; 0 for those that have none. Shape [specs]."""
        complete = [i for i, spec in enumerate(self.specs) if PARTIAL not in spec]
        return np.asarray(self.seconds[:, complete].min(axis=1))

    @cached_property
    def _steps(self) -> dict[tuple[int, int], Step]:
        return {(self.index[s.source], self.index[s.target]): s for s in steps_between(self.specs, self.rank)}

    @cached_property
    def _first_step(self) -> Ints:
        """[from, to] -> position of the spec after the first step; -1 where nothing is to do or nothing leads there."""
        seconds = self.step_seconds.copy()
        np.fill_diagonal(seconds, 0.0)
        first_step = np.where(np.isfinite(self.step_seconds), np.arange(len(seconds))[None, :], -1)
        for k in range(len(seconds)):
            through = seconds[:, k, None] + seconds[None, k, :]
            # Strictly better only: free slices form ties, and a tie that replaced a first step could close a loop.
            better = through < seconds
            seconds = np.where(better, through, seconds)
            first_step = np.where(better, first_step[:, k, None], first_step)
        return first_step


def reshard_table(shape: tuple[int, ...], total_bytes: int, mesh: LogicalMesh) -> ReshardTable:
    """Price all reshardings of a tensor on a squeezed mesh (Floyd–Warshall over its legal specs)."""
    specs = legal_specs(shape, mesh.shape, partial=True)
    shares = np.array([local_share(spec, mesh.shape) for spec in specs])
    kinds, axes, ends, larger = _steps_as_arrays(specs, len(shape))
    steps = np.full((len(specs), len(specs)), np.inf)
    steps[*ends] = [
        collective_seconds(kind, size, mesh.shape[axis], mesh.bandwidth[axis], mesh.latency_seconds[axis])
        for kind, axis, size in zip(kinds, axes, (total_bytes * shares[larger]).tolist(), strict=True)
    ]
    seconds = steps.copy()
    np.fill_diagonal(seconds, 0.0)
    for k in range(len(specs)):
        np.minimum(seconds, seconds[:, k, None] + seconds[None, k, :], out=seconds)
    seconds[~np.isfinite(seconds)] = UNREACHABLE
    seconds.setflags(write=False)
    return ReshardTable(specs, {spec: i for i, spec in enumerate(specs)}, shares, steps, seconds, len(shape))


@lru_cache(maxsize=256)
def _steps_as_arrays(specs: tuple[Spec, ...], rank: int) -> tuple[tuple[StepKind, ...], tuple[int, ...], Ints, Ints]:
    """Of every single step its kind, its axis, the positions of its ends [2, steps], and that of the end which is
    larger on a device."""
    index = {spec: i for i, spec in enumerate(specs)}
    steps = steps_between(specs, rank)
    ends = np.array([(index[s.source], index[s.target]) for s in steps], dtype=np.int64).reshape(-1, 2).T
    larger = [index[s.target if s.kind is StepKind.ALL_GATHER else s.source] for s in steps]
    return tuple(s.kind for s in steps), tuple(s.axis for s in steps), ends, np.array(larger, dtype=np.int64)
