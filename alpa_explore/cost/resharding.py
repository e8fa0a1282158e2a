"""Resharding costs: between any two specs of a tensor the cheapest sequence of collectives.

It is a shortest path in the graph whose nodes are the legal specs and whose edges are single collectives
(`sharding.reshard`). These are the matrices R of Alpa's Eq. 1 (arXiv 2201.12023, §4.2). Of a tensor with many specs
only the rows that are asked for are priced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from alpa_explore.cluster import LogicalMesh
from alpa_explore.cost import tuning
from alpa_explore.cost.collectives import axis_seconds
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.shortest_paths import Arrivals, all_pairs, first_steps
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
    mesh: LogicalMesh
    total_bytes: int
    kinds: tuple[StepKind, ...]
    """Of every single collective or slice."""
    axes: tuple[int, ...]
    ends: Ints
    """[2, step]: its two specs."""
    step_seconds: Floats
    """[step]."""
    rank: int
    """Number of dims of the tensor."""
    _rows: dict[int, tuple[Floats, Ints]] = field(default_factory=dict, repr=False)
    """Memo, where specs are many: source -> [to]: seconds, and the number of the last step."""
    _figures: dict[object, Floats] = field(default_factory=dict, repr=False)
    """Memo of figures of the cheapest sequences: [from, to], or [step] where specs are many."""

    def path(self, source: Spec, target: Spec) -> tuple[tuple[Step, float], ...]:
        """The collectives of the cheapest sequence, each with its seconds."""
        start, end = self.index[source], self.index[target]
        steps = self._backwards(start, end) if self.has_many else self._forwards(start, end)
        return tuple(
            (
                Step(self.kinds[s], self.axes[s], *(self.specs[i] for i in self.ends[:, s].tolist())),
                float(self.step_seconds[s]),
            )
            for s in steps
        )

    @property
    def has_many(self) -> bool:
        """Whether specs are so many that sequences are searched only from those that are asked for."""
        return len(self.specs) > tuning.MOST_SPECS_OF_ALL_PAIRS

    @cached_property
    def seconds(self) -> Floats:
        """[from, to]: of the cheapest sequence; `UNREACHABLE` where there is none."""
        if self.has_many:
            seconds = np.stack([row for row, _ in self._searched(np.arange(len(self.specs)))])
        else:
            seconds = all_pairs(self._single)
        seconds[~np.isfinite(seconds)] = UNREACHABLE
        seconds.setflags(write=False)
        return seconds

    def between(self, sources: Ints, targets: Ints) -> Floats:
        """`seconds` from each of `sources` to each of `targets`."""
        if not self.has_many:
            return self.seconds[sources[:, None], targets[None, :]]
        seconds = np.array([row[targets] for row, _ in self._searched(sources)]).reshape(len(sources), len(targets))
        return np.where(np.isfinite(seconds), seconds, UNREACHABLE)

    def completion(self, sources: Ints) -> Floats:
        """For each of `sources` the seconds to the nearest spec without a pending sum; 0 for specs without one."""
        return np.asarray(self.between(sources, self.complete).min(axis=1))

    @cached_property
    def complete(self) -> Ints:
        """The specs without a pending sum."""
        return np.array([i for i, spec in enumerate(self.specs) if PARTIAL not in spec], dtype=np.int64)

    def all_reduce_seconds(self, sources: Ints, targets: Ints) -> Floats:
        """[source, target]: of the all-reduces in the cheapest sequence."""

        def of_steps() -> Floats:
            reduces = np.array([kind is StepKind.ALL_REDUCE for kind in self.kinds], dtype=np.bool_)
            return np.where(reduces, self.step_seconds, 0.0)

        return self._along("all-reduces", of_steps, sources, targets)

    def calls(self, sources: Ints, targets: Ints) -> Floats:
        """[source, target]: host seconds to launch the collectives in the cheapest sequence; slices launch none."""

        def of_steps() -> Floats:
            call = self.mesh.call_seconds
            return np.array(
                [0.0 if k is StepKind.SLICE else call[a] for k, a in zip(self.kinds, self.axes, strict=True)]
            )

        return self._along("calls", of_steps, sources, targets)

    def in_buckets(self, bucket_bytes: float, whole: bool, sources: Ints, targets: Ints) -> Floats:
        """[source, target]: this tensor's part of the seconds of the cheapest sequence, where tensors share collectives
        of so many bytes on a device; or, if `whole`, of tensors of so many bytes that are divided as this one is."""

        def of_steps() -> Floats:
            shares = self.shares[self.ends].max(axis=0)
            buckets = bucket_bytes * (shares if whole else np.ones(len(shares)))
            of_bucket = _step_seconds(self.kinds, self.axes, buckets.tolist(), self.mesh)
            return np.asarray(of_bucket * self.total_bytes * shares / buckets)

        seconds = self._along(("bucket", bucket_bytes, whole), of_steps, sources, targets)
        alone = self.between(sources, targets)
        return np.where(alone < UNREACHABLE, seconds, alone)

    def _along(self, name: object, of_steps: Callable[[], Floats], sources: Ints, targets: Ints) -> Floats:
        """[source, target]: the sum of a figure of single steps over the cheapest sequence."""
        if name not in self._figures:
            self._figures[name] = of_steps() if self.has_many else self._along_all(of_steps())
        figure = self._figures[name]
        if not self.has_many:
            return figure[sources[:, None], targets[None, :]]
        last = np.stack([row for _, row in self._searched(sources)])
        total, at = np.zeros((len(sources), len(targets))), np.broadcast_to(targets, (len(sources), len(targets)))
        while True:
            step = np.take_along_axis(last, at, axis=1)
            if (step < 0).all():
                return total
            total += np.where(step < 0, 0.0, figure[step])
            at = np.where(step < 0, at, self.ends[0][step])

    def _along_all(self, of_step: Floats) -> Floats:
        figure = np.zeros_like(self.seconds)
        figure[*self.ends] = of_step
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

    def _forwards(self, start: int, end: int) -> list[int]:
        steps = []
        while start != end:
            following = int(self._first_step[start, end])
            assert following >= 0, f"no resharding from {self.specs[start]} to {self.specs[end]}"
            steps.append(self._step_of[start, following])
            start = following
        return steps

    def _backwards(self, start: int, end: int) -> list[int]:
        ((_, last),) = self._searched(np.array([start]))
        steps: list[int] = []
        while end != start:
            step = int(last[end])
            assert step >= 0, f"no resharding from {self.specs[start]} to {self.specs[end]}"
            steps.append(step)
            end = int(self.ends[0, step])
        return steps[::-1]

    def _searched(self, sources: Ints) -> list[tuple[Floats, Ints]]:
        """For each source its row of `_rows`."""
        missing = [s for s in dict.fromkeys(sources.tolist()) if s not in self._rows]
        for first in range(0, len(missing), tuning.SOURCES_AT_ONCE):
            some = missing[first : first + tuning.SOURCES_AT_ONCE]
            self._rows.update(zip(some, zip(*self._arrivals.from_sources(np.array(some)), strict=True), strict=True))
        return [self._rows[s] for s in sources.tolist()]

    @cached_property
    def _arrivals(self) -> Arrivals:
        return Arrivals.of(len(self.specs), self.ends, self.step_seconds)

    @cached_property
    def _step_of(self) -> dict[tuple[int, int], int]:
        return {(a, b): s for s, (a, b) in enumerate(self.ends.T.tolist())}

    @property
    def _single(self) -> Floats:
        """[from, to]: of a single collective; inf where there is none."""
        single = np.full((len(self.specs), len(self.specs)), np.inf)
        single[*self.ends] = self.step_seconds
        return single

    @cached_property
    def _first_step(self) -> Ints:
        return first_steps(self._single)


def reshard_table(shape: tuple[int, ...], total_bytes: int, mesh: LogicalMesh, *, fixed: bool = False) -> ReshardTable:
    """The reshardings of a tensor on a squeezed mesh; a `fixed` one has none."""
    specs = legal_specs(shape, mesh.shape, partial=True)
    shares = np.array([local_share(spec, mesh.shape) for spec in specs])
    kinds, axes, ends, larger = _steps_as_arrays(specs, len(shape))
    if fixed:
        kinds, axes, ends, larger = (), (), ends[:, :0], larger[:0]
    return ReshardTable(
        specs=specs,
        index={spec: i for i, spec in enumerate(specs)},
        shares=shares,
        mesh=mesh,
        total_bytes=total_bytes,
        kinds=kinds,
        axes=axes,
        ends=ends,
        step_seconds=_step_seconds(kinds, axes, (total_bytes * shares[larger]).tolist(), mesh),
        rank=len(shape),
    )


def _step_seconds(kinds: tuple[StepKind, ...], axes: tuple[int, ...], sizes: list[float], mesh: LogicalMesh) -> Floats:
    """Seconds of single steps; most equal another one."""
    works = list(zip(kinds, sizes, axes, strict=True))
    seconds = {work: axis_seconds(work[0], work[1], mesh, work[2]) for work in dict.fromkeys(works)}
    return np.array([seconds[work] for work in works], dtype=np.float64)


# Memo of a pure function.
@lru_cache(maxsize=64)
def _steps_as_arrays(specs: tuple[Spec, ...], rank: int) -> tuple[tuple[StepKind, ...], tuple[int, ...], Ints, Ints]:
    """Of every single step its kind, its axis, the indices of its two specs [2, steps], and the index of the spec under
    which a device holds more bytes."""
    index = {spec: i for i, spec in enumerate(specs)}
    steps = steps_between(specs, rank)
    ends = np.array([(index[s.source], index[s.target]) for s in steps], dtype=np.int64).reshape(-1, 2).T
    larger = [index[s.target if s.kind is StepKind.ALL_GATHER else s.source] for s in steps]
    return tuple(s.kind for s in steps), tuple(s.axis for s in steps), ends, np.array(larger, dtype=np.int64)
