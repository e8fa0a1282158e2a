"""Resharding costs: between any two specs of a tensor the cheapest sequence of collectives.

It is a shortest path in the graph whose nodes are the legal specs and whose edges are single collectives
(`sharding.reshard`), by Floyd–Warshall. These are the matrices R of Alpa's Eq. 1 (arXiv 2201.12023, §4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from alpa_explore.cluster import LogicalMesh
from alpa_explore.cost.collectives import axis_seconds
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
    """[spec]: the share of the tensor that one device holds."""
    step_seconds: Floats
    """[from, to]: of a single collective; inf where there is none."""
    seconds: Floats
    """[from, to]: of the cheapest sequence; `UNREACHABLE` where there is none."""
    rank: int
    """Number of dims of the tensor."""

    def path(self, source: Spec, target: Spec) -> tuple[tuple[Step, float], ...]:
        """The collectives of the cheapest sequence, each with its seconds."""
        current, end = self.index[source], self.index[target]
        steps = []
        while current != end:
            following = int(self._first_step[current, end])
            assert following >= 0, f"no resharding from {source} to {target}"
            steps.append((self._steps[current, following], float(self.step_seconds[current, following])))
            current = following
        return tuple(steps)

    @cached_property
    def completion(self) -> Floats:
        """For each spec the seconds to the nearest spec without a pending sum; 0 for specs without one. Shape
        [specs]."""
        complete = [i for i, spec in enumerate(self.specs) if PARTIAL not in spec]
        return np.asarray(self.seconds[:, complete].min(axis=1))

    @cached_property
    def all_reduce_seconds(self) -> Floats:
        """[from, to]: of the all-reduces in the cheapest sequence."""
        return self.along_path(
            {e: float(self.step_seconds[e]) for e, step in self._steps.items() if step.kind is StepKind.ALL_REDUCE}
        )

    def calls(self, mesh: LogicalMesh) -> Floats:
        """[from, to]: host seconds to launch the collectives in the cheapest sequence; slices launch none."""
        return self.along_path(
            {e: mesh.call_seconds[s.axis] for e, s in self._steps.items() if s.kind is not StepKind.SLICE}
        )

    def in_buckets(self, mesh: LogicalMesh, total_bytes: int, together: float) -> Floats:
        """[from, to]: this tensor's part of the seconds of the cheapest sequence, where `together` tensors of its size
        share every collective."""
        seconds = self.along_path(
            {
                e: axis_seconds(s.kind, together * total_bytes * self._larger_share(e), mesh, s.axis) / together
                for e, s in self._steps.items()
            }
        )
        return np.where(self.seconds < UNREACHABLE, seconds, self.seconds)

    def _larger_share(self, ends: tuple[int, int]) -> float:
        return float(self.shares[list(ends)].max())

    def along_path(self, of_step: Mapping[tuple[int, int], float]) -> Floats:
        """[from, to]: the sum of a figure of single steps (others count 0) over the cheapest sequence."""
        figure = np.zeros_like(self.seconds)
        for step, value in of_step.items():
            figure[step] = value
        # Follow every cheapest sequence at once, a step at a time.
        total, at = np.zeros_like(figure), np.arange(len(figure))[:, None].repeat(len(figure), 1)
        end, first = np.arange(len(figure))[None, :], self._first_step
        while True:
            following = np.where(at == end, at, first[at, end])
            following = np.where(following < 0, at, following)
            if (following == at).all():
                return total
            total += np.where(following == at, 0.0, figure[at, following])
            at = following

    @cached_property
    def _steps(self) -> dict[tuple[int, int], Step]:
        return {(self.index[s.source], self.index[s.target]): s for s in steps_between(self.specs, self.rank)}

    @cached_property
    def _first_step(self) -> Ints:
        """[from, to] -> index of the spec after the first step of the cheapest sequence; -1 where there is none."""
        seconds = self.step_seconds.copy()
        np.fill_diagonal(seconds, 0.0)
        first_step = np.where(np.isfinite(self.step_seconds), np.arange(len(seconds))[None, :], -1)
        for k in range(len(seconds)):
            through = seconds[:, k, None] + seconds[None, k, :]
            # Replace only if strictly better: slices are free, and replacing a step by an equal one could close a loop.
            better = through < seconds
            seconds = np.where(better, through, seconds)
            first_step = np.where(better, first_step[:, k, None], first_step)
        return first_step


def reshard_table(shape: tuple[int, ...], total_bytes: int, mesh: LogicalMesh, *, fixed: bool = False) -> ReshardTable:
    """Price all reshardings of a tensor on a squeezed mesh (Floyd–Warshall over its legal specs); a `fixed` one has
    none."""
    specs = legal_specs(shape, mesh.shape, partial=True)
    shares = np.array([local_share(spec, mesh.shape) for spec in specs])
    kinds, axes, ends, larger = _steps_as_arrays(specs, len(shape))
    steps = np.full((len(specs), len(specs)), np.inf)
    steps[*ends] = [
        axis_seconds(kind, size, mesh, axis)
        for kind, axis, size in zip(kinds, axes, (total_bytes * shares[larger]).tolist(), strict=True)
    ]
    if fixed:
        steps[:] = np.inf
    seconds = steps.copy()
    np.fill_diagonal(seconds, 0.0)
    for k in range(len(specs)):
        np.minimum(seconds, seconds[:, k, None] + seconds[None, k, :], out=seconds)
    seconds[~np.isfinite(seconds)] = UNREACHABLE
    seconds.setflags(write=False)
    return ReshardTable(specs, {spec: i for i, spec in enumerate(specs)}, shares, steps, seconds, len(shape))


# Memo of a pure function.
@lru_cache(maxsize=256)
def _steps_as_arrays(specs: tuple[Spec, ...], rank: int) -> tuple[tuple[StepKind, ...], tuple[int, ...], Ints, Ints]:
    """Of every single step its kind, its axis, the indices of its two specs [2, steps], and the index of the spec under
    which a device holds more bytes."""
    index = {spec: i for i, spec in enumerate(specs)}
    steps = steps_between(specs, rank)
    ends = np.array([(index[s.source], index[s.target]) for s in steps], dtype=np.int64).reshape(-1, 2).T
    larger = [index[s.target if s.kind is StepKind.ALL_GATHER else s.source] for s in steps]
    return tuple(s.kind for s in steps), tuple(s.axis for s in steps), ends, np.array(larger, dtype=np.int64)
